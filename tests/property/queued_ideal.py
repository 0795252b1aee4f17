"""The ideal division of a cluster among queues whose jobs are all of one size: jobs are given out one by one.

The next job always goes to the queue with the least share that has one more and may have it. Neither history nor places
of jobs count here; `queued_checks` compares it with what really runs.
"""

from collections.abc import Sequence

from hived.values.specs import ClusterSpec
from hived_extender.queues.own_schedule import OwnSchedule
from hived_extender.queues.units import Unit
from tests.property.queued_quotas import GPU, may_run
from tests.property.queued_replica import Manner


def ideal(cluster: ClusterSpec, manner: Manner, wanted: Sequence[Unit]) -> dict[str, int]:
    """How many of the wanted jobs should run, by queue. All are of one size."""
    own = OwnSchedule(cluster)
    promised = {vc: float(own.promised_leaves(vc)) for vc in cluster.virtual_clusters}
    total = float(own.leaf_count)
    if manner.tree is not None:
        promised = {leaf.name: leaf.min.get(GPU, 0.0) for leaf in manner.tree.leaves()}
        total = sum(promised.values()) or total
    left: dict[str, list[Unit]] = {}
    for unit in wanted:
        left.setdefault(unit.queue, []).append(unit)
    running: list[Unit] = []
    used = dict.fromkeys(left, 0)
    while left and sum(used.values()) + wanted[0].leaf_count <= own.leaf_count:
        queue = min(left, key=lambda name: (_share(used[name] - promised[name], total, manner, name), name))
        unit = left[queue].pop()
        if manner.tree is None or may_run(manner.tree, unit, running):
            running.append(unit)
            used[queue] += unit.leaf_count
        else:
            left[queue].clear()
        if not left[queue]:
            del left[queue]
    return {queue: amount // wanted[0].leaf_count for queue, amount in used.items()}


def _share(over: float, total: float, manner: Manner, queue: str) -> float:
    share = over / total
    return share / manner.rules.of(queue).weight if share > 0 else share
