"""Large gangs while half of the nodes are refused, suggested or offered: how long it takes to place them, or to wait.

The VC `racks` has half of at most 64 racks, `few` an eighth, and `nodes` the rest of the cluster node by node. A gang
of whole nodes wants a quarter of the nodes of `racks`, or all nodes of `few`. A gang of all sizes from 1 to 8 GPUs
wants three quarters of the GPUs that `racks` can have, or a little more than all.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns

import numpy as np

from hived.cells.topology import BoolArray
from hived.scheduler import handle, new_state
from hived.values.decisions import Bind, Wait
from hived.values.events import NodeHealthChanged, Offer, PodAllocated, ScheduleRequested
from hived.values.specs import (
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PodRequest,
    PodSpec,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from tests.benchmarks.clusters import GPUS_PER_NODE, NODES_PER_RACK, cluster_spec
from tests.benchmarks.figures import Figures
from tests.benchmarks.measure import add_all_nodes

MOST_RACKS = 64
"""Racks of which the VCs of racks have parts: gangs are as large from so many on."""

REPEATS = 12
RACK, NODE = "POOL.RACK", "POOL.RACK.NODE"


class RefusedNodes:
    """Gangs that are asked about one at a time, on one cluster."""

    def __init__(
        self, node_count: int, seed: int, progress: Callable[[str], None], clock: Callable[[], int] = perf_counter_ns,
        rules: Rules = Rules.HIVED,
    ) -> None:  # fmt: skip
        self.figures = Figures()
        self._progress, self._clock, self._rules = progress, clock, rules
        self._racks = min(MOST_RACKS, node_count // NODES_PER_RACK)
        self._state = new_state(_spec(node_count, self._racks, rules))
        add_all_nodes(self._state)
        self._random = random.Random(seed)
        self._offered = np.zeros(node_count, np.bool_)
        for rack in range(0, node_count, NODES_PER_RACK):
            self._offered[
                [rack + place for place in self._random.sample(range(NODES_PER_RACK), NODES_PER_RACK // 2)]
            ] = True
        self._made = 0

    def run(self) -> Figures:
        """Raises RuntimeError if a gang is placed that cannot be, or under better rules is not placed that can be."""
        self._progress("gangs while half of the nodes are refused")
        for _ in range(self._racks // 2):
            self._start(self._pod("racks", {self._random.choice((1, 2, 4, 8)): 1}))
        whole = {GPUS_PER_NODE: self._racks * 2}
        for way in ("suggested", "offered"):
            for vc, expected in (("nodes", Bind), ("racks", Bind), ("few", Wait)):
                self._measure(f"refused/{vc}, {way}", vc, whole, way, expected)
            room = self._racks // 2 * NODES_PER_RACK // 2 * GPUS_PER_NODE
            each = room // sum(range(1, GPUS_PER_NODE + 1))
            for name, count, outcome in (("fits", each * 3 // 4, Bind), ("waits", each + 2, Wait)):
                sizes = dict.fromkeys(range(1, GPUS_PER_NODE + 1), count)
                self._measure(f"refused/mixed {name}, {way}", "racks", sizes, way, outcome)
        self._measure("refused/few, again", "few", whole, "suggested", Wait, changes=False)
        return self.figures

    def _measure(
        self, key: str, vc: str, sizes: dict[int, int], way: str, expected: type, *, changes: bool = True
    ) -> None:  # fmt: skip
        """Ask for a gang again and again; with `changes` something changes in between, so that nothing is known."""
        samples = self.figures.samples.setdefault(key, [])
        for _ in range(REPEATS):
            if changes:
                node = self._state.topology.node_names[-1]
                handle(self._state, NodeHealthChanged(node, is_healthy=False))
                handle(self._state, NodeHealthChanged(node, is_healthy=True))
            pod = self._pod(vc, sizes)
            event = ScheduleRequested(pod, suggested=self._offered)
            if way == "offered":
                event = ScheduleRequested(pod, offer=_offer(self._offered, sum(sizes.values())))
            started = self._clock()
            decision = handle(self._state, event)
            samples.append(self._clock() - started)
            if not isinstance(decision, expected) and (expected is Wait or self._rules is Rules.BETTER):
                raise RuntimeError(f"{key}: expected {expected.__name__}, got {decision}")

    def _start(self, pod: PodRequest) -> None:
        decision = handle(self._state, ScheduleRequested(pod))
        if not isinstance(decision, Bind):
            raise RuntimeError(f"{pod.name} was to start, got {decision}")
        handle(self._state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))

    def _pod(self, vc: str, sizes: dict[int, int]) -> PodRequest:
        self._made += 1
        name = f"gang-{self._made}"
        group = GroupSpec(f"bench/{name}", tuple(MemberSpec(count, size) for size, count in sorted(sizes.items())))
        spec = PodSpec(vc, 0, group.members[0].leaf_cell_count, group, ignore_suggested_nodes=False)
        return PodRequest(name, name, "bench", spec)


def _spec(node_count: int, racks: int, rules: Rules) -> ClusterSpec:
    promised = {"racks": (RACK, racks // 2), "few": (RACK, racks // 8)}
    left = node_count - (racks // 2 + racks // 8) * NODES_PER_RACK
    vcs = {name: VirtualClusterSpec(name, (VirtualCellSpec(*cells),)) for name, cells in promised.items()}
    vcs["nodes"] = VirtualClusterSpec("nodes", (VirtualCellSpec(NODE, left),))
    return replace(cluster_spec(node_count, rules), virtual_clusters=vcs)


def _offer(nodes: BoolArray, pods: int) -> Offer:
    """The same nodes for each pod, as one row of memory."""
    return Offer(
        np.broadcast_to(nodes, (pods, len(nodes))), np.broadcast_to(np.zeros(len(nodes), np.bool_), (pods, len(nodes)))
    )
