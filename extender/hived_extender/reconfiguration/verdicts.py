"""Verdicts of a configuration on each group that holds or reserves cells (rules 8.11, 11.2, 11.3, 11.5)."""

from enum import Enum

import msgspec
import numpy as np

from hived.groups import bind_info_of_slot
from hived.specs import MIN_GUARANTEED_PRIORITY, VirtualClusterSpec
from hived.state import Group, GroupState, State
from hived.topology import NO_CELL, IntArray
from hived_extender.reconfiguration.successor import Successor
from hived_extender.service.notices import Reason


class Verdict(Enum):
    """The fate of a group; one that goes on as before has none."""

    LAZILY_PREEMPTED = "lazilyPreempted"
    UNACCOUNTED = "unaccounted"
    PARTLY_UNACCOUNTED = "partlyUnaccounted"
    PREEMPTION_CANCELLED = "preemptionCancelled"
    RESTORED = "restored"


HARM = (Verdict.LAZILY_PREEMPTED, Verdict.UNACCOUNTED, Verdict.PARTLY_UNACCOUNTED)
"""Running work is affected."""


class Affected(msgspec.Struct, frozen=True):
    """A group of the present state and its fate, with its pods by name and by uid.

    `is_locked_out`: it loses cells guaranteed to its VC.
    """

    name: str
    vc: str
    priority: int
    pods: tuple[str, ...]
    uids: tuple[str, ...]
    verdict: Verdict
    reason: str
    is_locked_out: bool


class Verdicts:
    """Compares the present state with its successor; unchanging facts of a group are looked at once."""

    def __init__(self, successor: Successor) -> None:
        self._successor = successor
        self._lost: dict[int, tuple[IntArray, int]] = {}  # by id of the group's cells, which never change
        self._settled: dict[str, tuple[Group, Group, IntArray | None, IntArray | None]] = {}  # that nothing becomes of

    def affected(self, present: State) -> list[Affected]:
        """All groups that something becomes of, by name. Cost: a look at each group; the lock need not be held, but
        then the answer may be of two moments. Of groups that the successor has not been told of yet, nothing is said.
        """
        successors, settled = self._successor.core.state.groups, self._settled
        found = []
        for name, group in present.groups.copy().items():  # copied at once: others may come and go meanwhile
            new = successors.get(name)
            seen = settled.get(name)
            if (
                seen is not None
                and new is not None
                and seen[0] is group
                and seen[1] is new
                and seen[2] is group.virtual
                and seen[3] is new.virtual
            ):
                continue
            if new is None and not self._successor.was_told_of(group):
                continue  # it has come since then
            verdict = self._verdict(group, new)
            if verdict is not None:
                found.append(self._explain(present, group, name, verdict))
            elif new is not None and group.state is not GroupState.PREEMPTING:
                settled[name] = group, new, group.virtual, new.virtual
        return sorted(found, key=lambda one: one.name)

    def _verdict(self, group: Group, new: Group | None) -> Verdict | None:
        if group.state is GroupState.PREEMPTING:
            is_kept = new is not None and new.state is GroupState.PREEMPTING
            return None if is_kept else Verdict.PREEMPTION_CANCELLED
        count = len(group.physical)
        before, after = self._lost_cells(group), count if new is None else self._lost_cells(new)
        # A group without any of its cells has no place either, even if some are to come back.
        had_place = group.virtual is not None and before < count
        has_place = new is not None and new.virtual is not None and after < count
        if not (before or after) and had_place == has_place:
            return None
        if after > before or (before and new is not None and _loses_some(group, new)):
            return Verdict.UNACCOUNTED if after == count else Verdict.PARTLY_UNACCOUNTED
        if had_place != has_place and group.priority >= MIN_GUARANTEED_PRIORITY:
            return Verdict.LAZILY_PREEMPTED if had_place else Verdict.RESTORED
        return Verdict.RESTORED if after < before else None

    def _lost_cells(self, group: Group) -> int:
        """How many of its cells are not configured, or another's."""
        known = self._lost.get(id(group.physical))
        if known is None:
            known = group.physical, int(np.count_nonzero(group.physical == NO_CELL))
            self._lost[id(group.physical)] = known
        return known[1]

    def _explain(self, present: State, group: Group, name: str, verdict: Verdict) -> Affected:
        vc = present.vc_names[group.vc]
        pods = [pod for pod in (*group.holders, *group.preempting_pods.values()) if pod is not None]
        return Affected(
            name,
            vc,
            group.priority,
            tuple(dict.fromkeys(f"{pod.namespace}/{pod.name}" for pod in pods)),
            tuple(dict.fromkeys(pod.uid for pod in pods)),
            verdict,
            self._reason(present, group, verdict),
            verdict in HARM and group.virtual is not None,
        )

    def _reason(self, present: State, group: Group, verdict: Verdict) -> str:
        state = self._successor.core.state
        new = state.groups.get(group.name)
        errors = [
            error
            for pod in group.holders
            if pod is not None and (error := self._successor.unaccounted.get(pod.uid)) is not None
        ]
        if errors:
            return errors[0].message
        if verdict is Verdict.PREEMPTION_CANCELLED:
            lost = self._successor.lost.get(group.name)
            return lost.message if lost is not None else "another preemption needs its cells"
        if verdict in (Verdict.UNACCOUNTED, Verdict.PARTLY_UNACCOUNTED):
            return self._missing_cells(present, group, new)
        if verdict is Verdict.RESTORED:
            has_more = new is not None and self._lost_cells(new) < self._lost_cells(group)
            return "its cells are configured again" if has_more else "its VC has room for it again"
        if new is not None and new.lazy_preemptor not in (None, new.name):
            return f"its place in the VC is needed by {new.lazy_preemptor}"
        return why_no_place(state, present, group)

    def _missing_cells(self, present: State, group: Group, new: Group | None) -> str:
        """Which of its cells are gone, by node."""
        cells = group.physical if new is None else group.physical[new.physical == NO_CELL]
        cells = cells[cells != NO_CELL]
        nodes = sorted({present.topology.node_names[node] for node in present.arrays.node[cells].tolist()})
        configured = self._successor.core.state.topology.node_index
        gone = [node for node in nodes if node not in configured]
        if gone:
            return f"node {', '.join(gone)} is not configured any more"
        return f"{len(cells)} of its cells on node {', '.join(nodes)} are not configured any more, or another group's"


def _loses_some(group: Group, new: Group) -> bool:
    """Whether some cell that it has is not among its future ones. It may get others back at the same time."""
    return bool(((group.physical != NO_CELL) & (new.physical == NO_CELL)).any())


def why_no_place(state: State, present: State, group: Group) -> str:
    """Why a guaranteed group that keeps its cells has no place in its VC in `state`."""
    vc = present.vc_names[group.vc]
    spec = state.spec.virtual_clusters.get(vc)
    if spec is None:
        return f"virtual cluster {vc} is not configured any more"
    pinned = group.spec.pinned_cell_id
    shapes = _shapes(present, group)
    if pinned:
        if pinned not in spec.pinned_cell_ids:
            return f"{vc} does not have the pinned cell {pinned} any more"
        return _why_not_pinned(state, pinned, shapes)
    lacking = [shape for shape in shapes if not _count(spec, shape)]
    if lacking:
        return f"{vc} is not guaranteed any {lacking[0].rpartition('.')[2]} in {lacking[0].split('.')[0]} any more"
    if shapes:
        count = _count(spec, shapes[0])
        return (
            f"{vc} is guaranteed {count} {shapes[0].rpartition('.')[2]} in {shapes[0].split('.')[0]}; groups of the "
            "same or a higher priority have them, or other guarantees need these very cells"
        )
    return "its place in the VC cannot be told from its annotations"


def _why_not_pinned(state: State, pinned: str, shapes: list[str]) -> str:
    topology = state.topology
    cell = topology.pinned_cells[pinned]
    chain, cell_type = topology.chain_of(cell).name, topology.cell_type(cell)
    if shapes and shapes[0] != f"{chain}.{cell_type}":
        was = " in ".join(reversed(shapes[0].split(".")))
        return f"the pinned cell {pinned} is now {cell_type} in {chain}, formerly {was}"
    return f"the pinned cell {pinned} is elsewhere, or its cells are in use"


def _shapes(present: State, group: Group) -> list[str]:
    """`chain.type` of the preassigned cells that a group is in, in the order of its cells."""
    info = bind_info_of_slot(present, group, 0)
    types = [each for member in info.members for pod in member for each in pod.preassigned_cell_types if each]
    return [f"{info.cell_chain}.{each}" for each in dict.fromkeys(types)]


def _count(spec: VirtualClusterSpec, shape: str) -> int:
    chain, cell_type = shape.split(".")
    return sum(
        cells.cell_count
        for cells in spec.virtual_cells
        if cells.cell_type.split(".")[0] == chain and cells.cell_type.split(".")[-1] == cell_type
    )


def news_of(affected: Affected) -> tuple[Reason, str] | None:
    """The message to the owners of its pods, if there is any."""
    group, why = affected.name, affected.reason
    match affected.verdict:
        case Verdict.LAZILY_PREEMPTED:
            lost = f"affinity group {group} has lost its place in the virtual cluster to a new configuration ({why})"
            goes_on = "it runs on, but opportunistic now: anyone with a guarantee may preempt it"
            return Reason.LAZY_PREEMPTED, f"{lost}; {goes_on}"
        case Verdict.UNACCOUNTED | Verdict.PARTLY_UNACCOUNTED:
            extent = "not all" if affected.verdict is Verdict.PARTLY_UNACCOUNTED else "none"
            text = f"affinity group {group} runs on, but {extent} of its cells are configured any more ({why})"
            return Reason.UNACCOUNTED, text
        case Verdict.RESTORED:
            return (
                Reason.RESTORED,
                f"affinity group {group} has back what an earlier configuration took from it ({why})",
            )
        case Verdict.PREEMPTION_CANCELLED:
            return None
