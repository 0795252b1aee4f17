"""Compile every kernel of the core ahead of time: `python -m hived.warm`.

Kernels compile when they are first called, and are then kept on disk (`jit`). Here a short story is played that needs
each of them once. `python -m hived_extender.warm` also compiles the service's kernels.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hived.decisions import Bind, Decision
from hived.events import (
    Event,
    GroupSplit,
    LeavesLost,
    NodeHealthChanged,
    Phase,
    PodAllocated,
    PodDeleted,
    ScheduleRequested,
)
from hived.health import bind_doomed_in_chain
from hived.jit import ENTRY_KERNELS, forget_sources
from hived.scheduler import handle, new_state
from hived.specs import (
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
from hived.state import State
from hived.topology import NO_CELL
from hived.views import forget_order
from hived.virtual_leaves import choose_virtual_leaves


def compile_kernels(after_each: Callable[[], None] = lambda: None) -> int:
    """Compile the kernels that are not compiled yet; returns the number of entry kernels. RuntimeError if the story
    misses one.

    `after_each` is called between the events of the story: `ready_count` may be another then.
    """
    story = _Story(new_state(_cluster()), after_each)
    state = story.state
    for node in state.topology.node_names:
        story.tell(NodeHealthChanged(node, is_healthy=True))
    near = _pod("near", priority=0, within_cell="RACK")
    story.run(near)
    story.tell(PodDeleted(near))
    story.run(_pod("lent", priority=-1, pods=2))
    story.run(_pod("lazy", priority=0, lazy=True))
    story.run(_pod("urgent", priority=5))
    guest = _pod("preemptor", priority=9, pods=3)
    story.tell(ScheduleRequested(guest, Phase.PREEMPTING))
    rival = _pod("rival", priority=10, pods=3)
    story.tell(ScheduleRequested(rival, Phase.PREEMPTING))
    story.tell(PodDeleted(rival))
    story.tell(ScheduleRequested(guest, Phase.PREEMPTING))
    for name in ("lent", "lazy", "urgent"):
        for pod in list(state.groups[name].holders) if name in state.groups else []:
            if pod is not None:
                story.tell(PodDeleted(pod))
    story.run(guest, Phase.PREEMPTING)
    story.tell(GroupSplit(guest.spec.group.name, tuple(_pod(f"part-{slot}", priority=9) for slot in range(3))))
    story.run(_pod("pinned", priority=0, pinned_cell_id="pin"))
    story.tell(NodeHealthChanged(state.topology.node_names[0], is_healthy=False))
    story.tell(LeavesLost(state.topology.node_names[1], "GPU", 1))
    for cell_type in ("", "NODE"):
        story.run(_pod("impossible", priority=0, pods=64, within_cell=cell_type))
    bind_doomed_in_chain(state.arrays, state.cells, 0)
    forget_order(state.arrays, state.cells)
    none = np.empty(0, np.int32)
    choose_virtual_leaves(state.arrays, state.cells, none, none, 0, NO_CELL, none)
    return count_compiled("hived")


def ready_count() -> tuple[int, int]:
    """How many entry kernels of the modules imported so far can be called at once, and how many there are."""
    return sum(bool(getattr(kernel, "signatures", [()])) for kernel in ENTRY_KERNELS), len(ENTRY_KERNELS)


def count_compiled(package: str) -> int:
    """How many entry kernels the modules of a package that are imported have. RuntimeError if one is not compiled."""
    kernels = [kernel for kernel in ENTRY_KERNELS if kernel.__module__.split(".")[0] == package]
    missing = [kernel.__name__ for kernel in kernels if not getattr(kernel, "signatures", [()])]
    if missing:
        raise RuntimeError(f"kernels that were not compiled: {', '.join(missing)}")
    return len(kernels)


def _cluster() -> ClusterSpec:
    node = PhysicalCellSpec
    return ClusterSpec(
        cell_types={
            "NODE": CellTypeSpec("NODE", "GPU", 2, is_node_level=True),
            "RACK": CellTypeSpec("RACK", "NODE", 2),
        },
        physical_cells=(
            PhysicalCellSpec("RACK", children=(node(address="a"), node(address="b"))),
            PhysicalCellSpec("RACK", children=(node(address="c", pinned_cell_id="pin"), node(address="d"))),
        ),
        virtual_clusters={"vc": VirtualClusterSpec("vc", (VirtualCellSpec("RACK.NODE", 3),), ("pin",))},
    )  # fmt: skip


def _pod(name: str, priority: int, pods: int = 1, lazy: bool = False, **spec: Any) -> PodRequest:
    group = GroupSpec(name, (MemberSpec(pods, 2),))
    return PodRequest(name, name, "ns", PodSpec("vc", priority, 2, group, lazy_preemption=lazy, **spec))


class _Story:
    """Events for one state; kernels forget their sources as they come, so that the next ones find the memory free."""

    def __init__(self, state: State, after_each: Callable[[], None]) -> None:
        self.state = state
        self._after_each = after_each

    def tell(self, event: Event) -> Decision:
        """Handle one event."""
        decision = handle(self.state, event)
        forget_sources()
        self._after_each()
        return decision

    def run(self, pod: PodRequest, phase: Phase = Phase.FILTERING) -> None:
        """Ask for a pod's place, and let it run there if it can."""
        decision = self.tell(ScheduleRequested(pod, phase))
        if isinstance(decision, Bind):
            self.tell(PodAllocated(pod, decision.bind_info, decision.lazily_preempted))


def main(compile_all: Callable[[], int] = compile_kernels) -> None:
    """Compile, and say how long it took."""
    started = time.monotonic()
    count = compile_all()
    print(f"{count} kernels ready after {time.monotonic() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
