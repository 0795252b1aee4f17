"""Random quota trees for histories of queues, edits of them, and Kube Queue's rules in the slow, obvious way."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from hived.values.specs import ClusterSpec
from hived_extender.jobs.quotas.tree import Quota, QuotaTree, read_tree
from hived_extender.jobs.quotas.usage import EPSILON
from hived_extender.queues.own_schedule import OwnSchedule
from hived_extender.queues.units import Unit

GPU = "nvidia.com/gpu"
JOBS = "kube-queue/max-jobs"
POLICIES = ("wait", "preempt-newest", "preempt-least-work")


class Leaf(msgspec.Struct):
    """One leaf of the tree, as an edit may change it."""

    name: str
    least: int
    most: int
    jobs: int = 0
    lends: int | None = None
    drain: str = "wait"


class Quotas:
    """The quotas of a history. Each virtual cluster has a node of its own, of its cells, with one to three leaves."""

    def __init__(self, cluster: ClusterSpec, random: Random) -> None:
        own = OwnSchedule(cluster)
        self._random = random
        self.total = own.leaf_count
        self.cells = {vc: own.promised_leaves(vc) for vc in cluster.virtual_clusters}
        self.leaves: dict[str, list[Leaf]] = {}
        for vc, cells in self.cells.items():
            self.leaves[vc] = leaves = []
            left = cells
            for number in range(random.randint(1, 3)):
                least = random.randint(0, left)
                left -= least
                leaves.append(Leaf(f"{vc.lower()}{number}", least, random.randint(max(least, 1), self.total)))
            leaves[0].least += random.choice((0, left))
            leaves[0].most = max(leaves[0].most, leaves[0].least)
            for leaf in leaves:
                self._dress(leaf)

    def edit(self) -> str:
        """Another min, max, number of jobs or policy of one leaf, often below its use; says which."""
        random = self._random
        vc = random.choice(list(self.leaves))
        leaf = random.choice(self.leaves[vc])
        others = sum(each.least for each in self.leaves[vc] if each is not leaf)
        leaf.least = random.choice((leaf.least, random.randint(0, self.cells[vc] - others)))
        leaf.most = random.randint(max(leaf.least, 1), self.total)
        self._dress(leaf)
        return str(leaf)

    def open(self) -> None:
        """Let every leaf have all that there is, so that no job waits for ever."""
        for leaf in (each for leaves in self.leaves.values() for each in leaves):
            leaf.most, leaf.jobs, leaf.lends = self.total, 0, None

    def queue(self, vc: str) -> str:
        """Some leaf of a virtual cluster."""
        return f"root/{vc.lower()}/{self._random.choice(self.leaves[vc]).name}"

    def tree(self) -> QuotaTree:
        """As the product reads it."""
        vcs = [self._team(vc, leaves) for vc, leaves in self.leaves.items()]
        everything = {GPU: 10_000}
        return read_tree({"spec": {"root": {"name": "root", "min": everything, "max": everything, "children": vcs}}})

    def _team(self, vc: str, leaves: list[Leaf]) -> dict[str, Any]:
        return {
            "name": vc.lower(),
            "min": {GPU: self.cells[vc]},
            "max": {GPU: self.total},
            "attributes": {"hivedscheduler.microsoft.com/virtual-cluster": vc},
            "children": [_document(leaf) for leaf in leaves],
        }

    def _dress(self, leaf: Leaf) -> None:
        random = self._random
        leaf.jobs = random.choice((0, 0, 0, 2, 5))
        leaf.lends = random.choice((None, None, random.randint(0, leaf.least)))
        leaf.drain = random.choice(POLICIES)


def _document(leaf: Leaf) -> dict[str, Any]:
    most = {GPU: leaf.most, **({JOBS: leaf.jobs} if leaf.jobs else {})}
    attributes = {"hivedscheduler.microsoft.com/over-quota": leaf.drain}
    if leaf.lends is not None:
        attributes["alibabacloud.com/lendlimit"] = f'{{"{GPU}": {leaf.lends}}}'
    return {"name": leaf.name, "min": {GPU: leaf.least}, "max": most, "attributes": attributes}


# The slow, obvious rules


def may_run(tree: QuotaTree, unit: Unit, running: Sequence[Unit]) -> bool:
    """Is a unit within the max and the number of jobs of its leaf and all above, beside these?"""
    if unit.queue not in tree.quotas:
        return True
    child: Quota | None = None
    for quota in tree.path(unit.queue):
        below = [each for each in running if _is_below(tree, each, quota)]
        if quota.max_jobs is not None and len(below) + 1 > quota.max_jobs * tree.oversell:
            return False
        if unit.is_preemptible:
            limits, used = quota.max, _used_beside(tree, quota, child, running)
        else:
            limits, used = quota.min, _sum(each for each in below if not each.is_preemptible)
        if GPU in limits and used + unit.request[GPU] > limits[GPU] * tree.oversell + EPSILON:
            return False
        child = quota
    return unit.is_preemptible or may_run(tree, _taken_back(unit), running)


def is_promised(tree: QuotaTree, unit: Unit, running: Sequence[Unit]) -> bool:
    """Is a unit within the min of its leaf and all above, and may it run?"""
    if unit.queue not in tree.quotas:
        return True
    is_within = all(
        _sum(each for each in running if _is_below(tree, each, quota)) + unit.request[GPU]
        <= quota.min.get(GPU, 0.0) * tree.oversell + EPSILON
        for quota in tree.path(unit.queue)
    )
    return is_within and may_run(tree, _taken_back(unit), running)


def use_of_min(tree: QuotaTree, queue: str, running: Sequence[Unit]) -> float:
    """The part of its min that a leaf uses."""
    used, least = _sum(each for each in running if each.queue == queue), tree.quotas[queue].min.get(GPU, 0.0)
    return used / least if least else (float("inf") if used else 0.0)


def _used_beside(tree: QuotaTree, quota: Quota, child: Quota | None, running: Sequence[Unit]) -> float:
    """The use of a quota, with all of what its other children do not lend, but without the reserve of this one."""
    if child is None:
        return _sum(each for each in running if each.queue == quota.name)
    others = sum(_seen(tree, tree.quotas[name], running) for name in quota.children if name != child.name)
    return others + _sum(each for each in running if _is_below(tree, each, child))


def _seen(tree: QuotaTree, quota: Quota, running: Sequence[Unit]) -> float:
    """The use of a quota as its parent sees it."""
    if quota.is_leaf:
        used = _sum(each for each in running if each.queue == quota.name)
    else:
        used = sum(_seen(tree, tree.quotas[name], running) for name in quota.children)
    kept = quota.min.get(GPU, 0.0) - quota.lend_limit[GPU] if GPU in quota.lend_limit else 0.0
    return max(used, kept)


def _is_below(tree: QuotaTree, unit: Unit, quota: Quota) -> bool:
    return unit.queue == quota.name or unit.queue.startswith(f"{quota.name}/")


def _sum(units: Any) -> float:
    return float(sum(each.request[GPU] for each in units))


def _taken_back(unit: Unit) -> Unit:
    """The same, with the rules of a unit that may be preempted."""
    return msgspec.structs.replace(unit, is_preemptible=True)


def request_of(leaves: int) -> Mapping[str, float]:
    """What a gang of so many leaf cells asks for."""
    return {GPU: float(leaves)}
