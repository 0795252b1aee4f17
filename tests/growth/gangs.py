"""Counts the work of gangs of one size, and of one virtual cluster of many: `python -m tests.growth.gangs 16 64`.

Prints JSON. Kernels run as plain Python (NUMBA_DISABLE_JIT=1). Size means nodes, pods of a gang and virtual clusters at
once, each in a cluster of its own.
"""

import json
import sys
from dataclasses import asdict
from typing import TypeVar

import numpy as np

from hived.cells.state import State
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.events import NodeHealthChanged, Offer, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import (
    CellTypeSpec,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PhysicalCellSpec,
    PodRequest,
    PodSpec,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from tests.growth.work import Meter

Answer = TypeVar("Answer", Bind, Preempt, Wait)

NODES_PER_RACK = 4
GPUS_PER_NODE = 2
LOW, HIGH = 0, 5


class GangCount(Meter):
    """What gangs of `size` pods take, each on a node of its own, and single pods beside as many virtual clusters."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def count(self) -> None:
        """All of it."""
        self.many_clusters()
        self.slots()
        self.preemption()
        self.lazy_preemption()
        self.suggested_nodes()

    def state(self, racks: int, cells: dict[str, VirtualClusterSpec]) -> State:
        """A cluster of healthy racks."""
        types = (CellTypeSpec("RACK", "NODE", NODES_PER_RACK), CellTypeSpec("NODE", "GPU", GPUS_PER_NODE, True))
        nodes = [f"n{number:05}" for number in range(racks * NODES_PER_RACK)]
        leaves = [PhysicalCellSpec(address=name) for name in nodes]
        roots = tuple(
            PhysicalCellSpec("RACK", f"r{first}", children=tuple(leaves[first : first + NODES_PER_RACK]))
            for first in range(0, len(nodes), NODES_PER_RACK)
        )
        state = new_state(ClusterSpec({each.name: each for each in types}, roots, cells))
        for name in nodes:
            handle(state, NodeHealthChanged(name, is_healthy=True))
        return state

    def many_clusters(self) -> None:
        """A pod of the last of many virtual clusters, which have a node each; at last beside a node that is bad."""
        names = [f"vc{number:05}" for number in range(self.size)]
        cells = {name: VirtualClusterSpec(name, (VirtualCellSpec("RACK.NODE", 1),)) for name in names}
        state = self.state(self.size // NODES_PER_RACK, cells)
        for name in ("beside other virtual clusters", "beside other virtual clusters, one of them with a bad node"):
            wanted = pods(1, 1, LOW, names[-1])[0]
            self.place(state, name, wanted)
            with self.counting(f"deletion {name}"):
                handle(state, PodDeleted(wanted))
            handle(state, NodeHealthChanged(state.topology.node_names[0], is_healthy=False))
        check_invariants(state)

    def slots(self) -> None:
        """Later pods of a gang, placed one after the other, and once more as a restart tells of them."""
        state = self.state(self.size // NODES_PER_RACK, self.one_cluster(self.size))
        gang = pods(self.size, 1, LOW)
        infos = [self.place(state, "first" if number == 0 else "later", pod) for number, pod in enumerate(gang)]
        again = self.state(self.size // NODES_PER_RACK, self.one_cluster(self.size))
        backwards = list(zip(gang, infos, strict=True))[::-1]
        for number, (pod, info) in enumerate(backwards):
            with self.counting("replay, later" if number > 1 else "replay, first two"):
                handle(again, PodAllocated(pod, info.bind_info))
        check_invariants(again)
        everywhere = np.broadcast_to(np.ones(self.size, np.bool_), (self.size, self.size))
        offer = Offer(everywhere, ~everywhere, ())
        for number, pod in enumerate(pods(self.size, 1, LOW)):
            self.place(state, "first, offered" if number == 0 else "later, offered", pod, offer)

    def place(self, state: State, name: str, pod: PodRequest, offer: Offer | None = None) -> Bind:
        """Ask for a pod that can run at once, and allocate it."""
        with self.counting(f"pod {name}"):
            decision = handle(state, ScheduleRequested(pod, offer=offer))
            if not isinstance(decision, Bind):
                raise RuntimeError(f"{name} got {decision}")
            handle(state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))
        return decision

    def one_cluster(self, nodes: int) -> dict[str, VirtualClusterSpec]:
        """A virtual cluster with racks of so many nodes."""
        return {"a": VirtualClusterSpec("a", (VirtualCellSpec("RACK", nodes // NODES_PER_RACK),))}

    def preemption(self) -> None:
        """A gang that waits until a group on each GPU has left."""
        state = self.state(self.size // NODES_PER_RACK, self.one_cluster(self.size))
        low = [pods(1, 1, LOW)[0] for _ in range(self.size * GPUS_PER_NODE)]
        for pod in low:
            self.run(state, pod)
        gang = pods(self.size, GPUS_PER_NODE, HIGH)
        self.ask(state, "preempting gang, first", gang[0], Preempt)
        self.ask(state, "preempting gang, reserving", gang[0], Preempt, Phase.PREEMPTING)
        for phase in Phase:
            self.ask(state, f"preempting gang, later, {phase.value}", gang[1], Preempt, phase)
        with self.counting("deletion of a victim"):
            handle(state, PodDeleted(low[0]))
        self.ask(state, "preempting gang, later, after a victim left", gang[1], Preempt)
        check_invariants(state)
        with self.counting("preempting gang, cancelled"):
            for pod in gang[:2]:
                handle(state, PodDeleted(pod))
        check_invariants(state)

    def lazy_preemption(self) -> None:
        """A gang before which a group on each GPU leaves the virtual cluster and goes on."""
        state = self.state(2 * self.size // NODES_PER_RACK, self.one_cluster(self.size))
        for _ in range(self.size * GPUS_PER_NODE):
            self.run(state, pods(1, 1, LOW, is_lazy=True)[0])
        gang = pods(self.size, GPUS_PER_NODE, HIGH)
        decision = self.ask(state, "gang before lazy groups", gang[0], Bind)
        with self.counting("gang before lazy groups, allocated"):
            handle(state, PodAllocated(gang[0], decision.bind_info, decision.lazily_preempted))
        check_invariants(state)

    def suggested_nodes(self) -> None:
        """A gang of two racks where half of the nodes are suggested, of each rack or of the racks."""
        nodes = np.arange(self.size)
        state = self.state(self.size // NODES_PER_RACK, self.one_cluster(self.size))
        for name, mask, answer in (
            ("half of each rack", nodes % 2 == 0, Wait),
            ("the second half of the racks", nodes >= self.size // 2, Bind),
        ):
            gang = pods(2 * NODES_PER_RACK, GPUS_PER_NODE, LOW, heeds_suggestions=True)
            with self.counting(f"two racks, {name} suggested"):
                decision = handle(state, ScheduleRequested(gang[0], suggested=mask))
            if not isinstance(decision, answer):
                raise RuntimeError(f"{name}: {decision}")

    def run(self, state: State, pod: PodRequest) -> None:
        """Place a pod, uncounted."""
        decision = handle(state, ScheduleRequested(pod))
        if not isinstance(decision, Bind):
            raise RuntimeError(f"{pod.name} got {decision}")
        handle(state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))

    def ask(
        self, state: State, name: str, pod: PodRequest, answer: type[Answer], phase: Phase = Phase.FILTERING
    ) -> Answer:
        """Ask for a pod that gets this kind of answer."""
        with self.counting(name):
            decision = handle(state, ScheduleRequested(pod, phase))
        if not isinstance(decision, answer):
            raise RuntimeError(f"{name} got {decision}")
        return decision


MADE = [0]


def pods(
    count: int, gpus: int, priority: int, vc: str = "a", *, is_lazy: bool = False, heeds_suggestions: bool = False
) -> list[PodRequest]:
    """The pods of a new gang."""
    MADE[0] += 1
    spec = PodSpec(
        vc, priority, gpus, GroupSpec(f"gang-{MADE[0]}", (MemberSpec(count, gpus),)), lazy_preemption=is_lazy,
        ignore_suggested_nodes=not heeds_suggestions,
    )  # fmt: skip
    return [PodRequest(f"{MADE[0]}-{i}", f"{MADE[0]}-{i}", "growth", spec) for i in range(count)]


def main() -> None:
    """The program."""
    found = {}
    for size in sys.argv[1:]:
        gangs = GangCount(int(size))
        gangs.count()
        found[size] = {operation: asdict(work) for operation, work in gangs.work.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
