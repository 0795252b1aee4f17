"""Compile every kernel of the core ahead of time: `python -m hived.warm`.

Kernels compile when they are first called, and are then kept on disk (`jit`). Here a short story is played that needs
each of them once. `python -m hived_extender.warm` also compiles what the service adds.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

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
from hived.health import bind_doomed_in_chain, relieve_chains
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
from hived.views import forget_order


def compile_kernels() -> int:
    """Compile what is not compiled yet; returns the number of entry kernels. RuntimeError if the story misses one."""
    state = new_state(_cluster())
    for node in state.topology.node_names:
        _handle(state, NodeHealthChanged(node, is_healthy=True))
    near = _pod("near", priority=0, within_cell="RACK")
    _run(state, near)
    _handle(state, PodDeleted(near))
    _run(state, _pod("lent", priority=-1, pods=2))
    _run(state, _pod("lazy", priority=0, lazy=True))
    _run(state, _pod("urgent", priority=5))
    guest = _pod("preemptor", priority=9, pods=3)
    _handle(state, ScheduleRequested(guest, Phase.PREEMPTING))
    rival = _pod("rival", priority=10, pods=3)
    _handle(state, ScheduleRequested(rival, Phase.PREEMPTING))
    _handle(state, PodDeleted(rival))
    _handle(state, ScheduleRequested(guest, Phase.PREEMPTING))
    for name in ("lent", "lazy", "urgent"):
        for pod in list(state.groups[name].holders) if name in state.groups else []:
            if pod is not None:
                _handle(state, PodDeleted(pod))
    _run(state, guest, Phase.PREEMPTING)
    _handle(state, GroupSplit(guest.spec.group.name, tuple(_pod(f"part-{slot}", priority=9) for slot in range(3))))
    _run(state, _pod("pinned", priority=0, pinned_cell_id="pin"))
    _handle(state, NodeHealthChanged(state.topology.node_names[0], is_healthy=False))
    _handle(state, LeavesLost(state.topology.node_names[1], "GPU", 1))
    for cell_type in ("", "NODE"):
        _run(state, _pod("impossible", priority=0, pods=64, within_cell=cell_type))
    bind_doomed_in_chain(state.arrays, state.cells, 0)
    relieve_chains(state.arrays, state.cells)
    forget_order(state.arrays, state.cells)
    return count_compiled("hived")


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


def _handle(state: State, event: Event) -> Decision:
    """Kernels forget their sources as they come, so that the next ones find the memory free."""
    decision = handle(state, event)
    forget_sources()
    return decision


def _run(state: State, pod: PodRequest, phase: Phase = Phase.FILTERING) -> None:
    decision = _handle(state, ScheduleRequested(pod, phase))
    if isinstance(decision, Bind):
        _handle(state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))


def main(compile_all: Callable[[], int] = compile_kernels) -> None:
    """Compile, and say how long it took."""
    started = time.monotonic()
    count = compile_all()
    print(f"{count} kernels ready after {time.monotonic() - started:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
