"""The schedule that each virtual cluster would have alone on its cells (rule 30.1), and reservations in it.

A core state of its own simulates it, so that it decides as the live one would. Units end here by rule 30.2: a grace
period, and work that a unit lost after its start here, are part of its run. A borrower may end here long after its real
end, so borrowers leave no gap which the virtual cluster alone would not have had.

Invariant under `rules: 2`: a live unit that runs guaranteed runs here too, on the same virtual leaves. Rule 30.11
follows from it.

A reservation (rule 30.5) is found on a copy: running units end in their expected order until the first unit fits. So it
starts at the latest once the units on its leaves have ended.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import NO_GROUP, DecidedBind, State
from hived.cells.topology import NO_CELL, IntArray
from hived.scenario import Asked, Scenario, pods_of
from hived.scheduler import Fact, handle, idle_state
from hived.values.decisions import Bind, Preempt
from hived.values.errors import UserError
from hived.values.events import GroupSplit, NodeHealthChanged, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import (
    MIN_GUARANTEED_PRIORITY,
    BindInfo,
    ClusterSpec,
    PodRequest,
    PodSpec,
    Rules,
    WorkTimes,
    sizes_of,
)
from hived_extender.machine.stand_ins import like, ranges_of
from hived_extender.queues.units import Unit

COPYING = 10
"""As many searches is what would be if others left, about."""

MOST_KEPT = 1024
"""Kinds of pods of which it is remembered whether they could ever borrow."""


@dataclass(slots=True)
class OwnRun:
    """A unit that runs in its own schedule: since when, where, and until when if it has really ended already."""

    unit: Unit
    entitled_s: float
    leaves: IntArray
    end_s: float | None = None

    @property
    def own(self) -> tuple[int, ...]:
        """Its virtual leaves in slot order."""
        return tuple(self.leaves.tolist())


@dataclass(frozen=True, slots=True)
class Placed:
    """Room for a unit, not carried out yet: virtual leaves, and units of lower priority that lose theirs."""

    pod: PodRequest
    leaves: IntArray
    victims: tuple[str, ...]
    info: BindInfo


class OwnSchedule:
    """All virtual clusters side by side in one state; they do not know of each other."""

    def __init__(self, spec: ClusterSpec) -> None:
        """Cost O(cells)."""
        self.spec = spec
        self.state = idle_state(spec)
        self.empty = copy_state(self.state)  # always idle; its nodes fail as others do
        self._could_borrow: dict[PodSpec, bool] = {}
        self.runs: dict[str, OwnRun] = {}
        self._others: dict[str, PodRequest] = {}
        self._bad: dict[str, str] = {}  # a bad node, and the one that is bad in its place here
        self._bad_here: dict[str, None] = {}  # the latter
        self._promised = self.state.topology.promised_leaves()
        self.searches = 0  # so far, or as much as they

    def find(self, unit: Unit, now: float, own: tuple[int, ...] = ()) -> Placed | None:
        """Room for a unit now, on these leaves if they are free; None if there is none. Nothing changes.

        Units of lower priority may lose their place (rule 30.4), by the work that the core counts.

        Raises UserError if it asks for something impossible.
        """
        placed = find_room(self.state, unit, own, now)
        self.searches += 1 + (COPYING if placed is not None and placed.victims else 0)
        is_ours = placed is None or all(victim in self.runs for victim in placed.victims)
        return placed if is_ours else None  # the work of no queue is not ours to stop

    def find_alone(self, unit: Unit) -> Placed | None:
        """Room for a unit on the idle virtual cluster, on the hardware of now; as `find` otherwise.

        None if it never fits: those that run now do not count, since they leave some day.
        """
        self.searches += 1
        return find_room(self.empty, unit)

    def find_without(self, unit: Unit, gone: Iterable[Unit]) -> Placed | None:
        """Room for a unit once these have ended, and no others lose a place; as `find` otherwise."""
        self.searches += COPYING
        return _find_free(self.state, unit, (), [PodDeleted(stand_in(each)) for each in gone])

    @property
    def is_damaged(self) -> bool:
        """Is any node bad now?"""
        return bool(self.empty.cells.node_bad.any())

    def could_borrow(self, spec: PodSpec) -> bool:
        """Would opportunistic pods like these fit an idle cluster? Yes, as far as bad nodes leave that open."""
        if self._could_borrow.get(spec) or self.is_damaged:
            return True
        if spec not in self._could_borrow:
            if len(self._could_borrow) >= MOST_KEPT:
                self._could_borrow.clear()
            pod = PodRequest("", "", "", replace(spec.of_group("", True), pinned_cell_id=""))
            try:
                self._could_borrow[spec] = isinstance(handle(self.empty, ScheduleRequested(pod)), Bind)
            except UserError:
                self._could_borrow[spec] = False
        return self._could_borrow[spec]

    def start(self, unit: Unit, placed: Placed, entitled_s: float) -> None:
        """Carry out what `find` has just found; its victims have been ended."""
        handle(self.state, PodAllocated(placed.pod, placed.info, times=WorkTimes(entitled_s)))
        group = self.state.groups[unit.key]
        leaves = placed.leaves if group.virtual is None else group.virtual.copy()
        self.runs[unit.key] = OwnRun(unit, entitled_s, leaves)

    def shrink(self, unit: Unit, own: tuple[int, ...]) -> None:
        """A unit that runs here goes on with fewer pods: on these leaves, if it has them, else on any of its own."""
        run = self.runs[unit.key]
        chosen = _slots_to_keep(run, unit, own)
        sizes = sizes_of(run.unit.spec.group.members)
        rest = [slot for slot in range(len(sizes)) if slot not in chosen]
        if not rest:
            run.unit = unit
            return
        pod, name, ranges = stand_in(unit), f"{unit.key}#gone", list(ranges_of(sizes))
        gone = PodRequest(name, name, "", like(pod.spec, name, [sizes[slot] for slot in rest]))
        handle(self.state, GroupSplit(unit.key, (pod, gone), (tuple(chosen), tuple(rest))))
        handle(self.state, PodDeleted(gone))
        run.unit, run.leaves = unit, np.concatenate([run.leaves[ranges[slot]] for slot in chosen])

    def seat(self, key: str, own: tuple[int, ...]) -> None:
        """Give the leaves of a unit to its slots in this order, that of the live cluster; () for the present one.

        Nothing changes if the core does not place it so, as when hardware is bad.
        """
        run = self.runs[key]
        if own in ((), run.own) or sorted(own) != sorted(run.own):
            return
        placed = _find_free(self.state, run.unit, own, [PodDeleted(stand_in(run.unit))])
        self.searches += COPYING
        if placed is None or tuple(placed.leaves.tolist()) != own:
            return
        handle(self.state, PodDeleted(stand_in(run.unit)))
        placed = find_room(self.state, run.unit, own)  # only the state that decided knows the virtual cells
        assert placed is not None, "the scenario had room"
        handle(self.state, PodAllocated(placed.pod, placed.info, times=WorkTimes(run.entitled_s)))
        run.leaves = placed.leaves

    def end(self, key: str) -> OwnRun | None:
        """The unit runs here no more; None if it did not."""
        run = self.runs.pop(key, None)
        if run is not None:
            handle(self.state, PodDeleted(stand_in(run.unit)))
        return run

    def ended(self, key: str, started_s: float, now: float) -> None:
        """The unit has really ended, after its last start at `started_s`."""
        run = self.runs.get(key)
        if run is not None:
            run.end_s = now if started_s > run.entitled_s else max(now, run.entitled_s + (now - started_s))

    def next_end_s(self) -> float | None:
        """Return when the first unit ends here that has really ended already."""
        return min((run.end_s for run in self.runs.values() if run.end_s is not None), default=None)

    def over(self, now: float) -> list[tuple[float, str]]:
        """Units whose end here has come, in the order of the ends."""
        return sorted((run.end_s, key) for key, run in self.runs.items() if run.end_s is not None and run.end_s <= now)

    def told_running(self, name: str, spec: PodSpec, info: BindInfo) -> None:
        """Guaranteed work of no queue runs here. Raises UserError if it cannot."""
        if name in self._others:
            return
        pod = PodRequest(name, name, "", replace(spec.of_group(name), lazy_preemption=False))
        handle(self.state, PodAllocated(pod, info))
        self._others[name] = pod

    def told_gone(self, name: str) -> str:
        """Work of no queue is gone; returns its virtual cluster, "" if it was not there."""
        pod = self._others.pop(name, None)
        if pod is None:
            return ""
        handle(self.state, PodDeleted(pod))
        return pod.spec.virtual_cluster

    def health(self, node: str, is_healthy: bool, behind: int = NO_CELL) -> None:
        """A node turned healthy or bad. `behind` is a virtual leaf that a unit has there in the live cluster.

        Cells have other hardware here than there. So that of the same virtual cell turns bad; else a bad node in use
        would count as idle here, and virtual clusters would lack another one (rule 30.12).
        """
        handle(self.empty, NodeHealthChanged(node, is_healthy))
        if is_healthy == (node not in self._bad):
            return
        played = self._bad.pop(node) if is_healthy else self._place_of(node, behind)
        if is_healthy:
            del self._bad_here[played]
        else:
            self._bad[node], self._bad_here[played] = played, None
        handle(self.state, NodeHealthChanged(played, is_healthy))

    def _place_of(self, node: str, behind: int) -> str:
        """The node that is bad here in place of a bad one. Cost O(leaves of the node), rarely O(leaves)."""
        state, taken = self.state, self._bad_here
        names, index = state.topology.node_names, state.topology.node_index
        bound = NO_CELL if behind == NO_CELL else int(state.cells.bound[behind])
        there = "" if bound == NO_CELL else names[int(state.arrays.node[bound])]
        if there and there not in taken:
            return there
        users, chain = self._users(index[node]), self._chain(index[node])
        if node not in taken and all(user in self._others for user in users):
            return node  # work of no queue has the same hardware here
        alike = [at for at in range(len(names)) if names[at] not in taken and self._chain(at) == chain]
        idle = next((at for at in alike if not self._users(at)), None)
        return node if idle is None and node not in taken else names[alike[0] if idle is None else idle]

    def _users(self, node: int) -> list[str]:
        leaves = self.state.topology.leaves_of(node)
        numbers = set(self.state.cells.using[leaves].tolist()) - {NO_GROUP}
        return [self.state.group_by_number[number].name for number in sorted(numbers)]

    def _chain(self, node: int) -> int:
        arrays = self.state.arrays
        return int(arrays.chain_of_level[arrays.chain_level[self.state.topology.leaves_of(node)[0]]])

    def runs_of(self, vc: str) -> list[OwnRun]:
        """The units of a virtual cluster that run here, in the order of starts."""
        return [run for run in self.runs.values() if run.unit.vc == vc]

    def promised_leaves(self, vc: str) -> int:
        """Virtual leaf cells of a virtual cluster, pinned ones included; 0 if there is no such one."""
        return self._promised.get(vc, 0)

    @property
    def leaf_count(self) -> int:
        """Physical leaf cells of the cluster."""
        return len(self.state.arrays.node_leaf)

    @property
    def is_shared(self) -> bool:
        """May a virtual cluster's choice of cells hang on others? Not under `rules: 2`."""
        return self.spec.rules is not Rules.BETTER


def behind_node(state: State, node: int) -> int:
    """A virtual leaf that is in use on a node; NO_CELL if none is. Cost O(leaves of the node)."""
    leaves, cells = state.topology.leaves_of(node), state.cells
    used = leaves[(cells.priority[leaves] >= MIN_GUARANTEED_PRIORITY) & (cells.bound[leaves] != NO_CELL)]
    return int(cells.bound[used[0]]) if len(used) else NO_CELL


def stand_in(unit: Unit) -> PodRequest:
    """One pod in place of the whole gang: it brings the cells of all, and takes them away."""
    spec = replace(unit.spec.of_group(unit.key, True), lazy_preemption=False)
    return PodRequest(unit.key, unit.key, "", spec)


def _slots_to_keep(run: OwnRun, unit: Unit, own: tuple[int, ...]) -> list[int]:
    """The slots of a run that a smaller unit keeps, ascending: those on leaves of its own, then the first ones."""
    sizes, kept, wanted = sizes_of(run.unit.spec.group.members), set(own), sizes_of(unit.spec.group.members)
    ranges = list(ranges_of(sizes))
    slots = sorted(range(len(sizes)), key=lambda slot: (not kept.issuperset(run.leaves[ranges[slot]].tolist()), slot))
    chosen = []
    for slot in slots:
        if sizes[slot] in wanted:
            wanted.remove(sizes[slot])
            chosen.append(slot)
    return sorted(chosen)


def find_room(state: State, unit: Unit, own: tuple[int, ...] = (), now: float | None = None) -> Placed | None:
    """See `OwnSchedule.find`."""
    pod = stand_in(unit)
    decision = handle(state, _asked(pod, own).at(Phase.FILTERING, now))
    if isinstance(decision, Bind):
        assert state.last_bind is not None, "the state has just decided to bind"
        return Placed(pod, _virtual_leaves(state.last_bind), (), decision.bind_info)
    if not isinstance(decision, Preempt):
        return None
    victims = decision.victims
    if any(victim not in state.groups for victim in victims):
        return None  # the work of no queue: it is not ours to stop
    placed = _find_free(state, unit, own, [PodDeleted(pod) for pod in pods_of(state, victims)])
    return placed and replace(placed, victims=victims)


def _find_free(state: State, unit: Unit, own: tuple[int, ...], facts: Sequence[Fact]) -> Placed | None:
    """Room for a unit after some facts, where no others lose a place. Nothing changes."""
    pod = stand_in(unit)
    found = Scenario(state).cells(_asked(pod, own), facts)
    return None if found is None else Placed(pod, _virtual_leaves(found), (), found.bind_info)


def _asked(pod: PodRequest, own: tuple[int, ...]) -> Asked:
    return Asked(pod, own=np.array(own, np.int32) if own else None)


def _virtual_leaves(decided: DecidedBind) -> IntArray:
    assert decided.virtual is not None, "a guaranteed unit has virtual leaves"
    leaves: IntArray = decided.virtual.copy()
    return leaves


Learned = Callable[[str, int, float], tuple[float, float] | None]
"""The seconds that a job of this virtual cluster still runs that has had so many leaf cells for so many seconds.

Median and 90th percentile of jobs like it; None if nothing is known.
"""


class Certainty(StrEnum):
    """The certainty of a moment."""

    CERTAIN = "certain"  # nothing but time is missing
    BOUNDED = "bounded"  # at the latest, by declared limits
    ESTIMATED = "estimated"  # by earlier runs; only ever shown
    UNKNOWN = "unknown"


_ORDER = [Certainty.CERTAIN, Certainty.BOUNDED, Certainty.ESTIMATED, Certainty.UNKNOWN]


@dataclass(frozen=True, slots=True)
class Expected:
    """The moment of an end or a start; `at_s` is None if that is unknown. `late_s` is that of 9 of 10 cases."""

    at_s: float | None
    certainty: Certainty
    late_s: float | None = None

    @property
    def is_sure(self) -> bool:
        """Is it no later than this?"""
        return self.certainty in (Certainty.CERTAIN, Certainty.BOUNDED)


@dataclass(slots=True)
class Reservation:
    """The leaves that are reserved for the first unit, and when it starts there."""

    key: str
    start: Expected
    leaves: IntArray = field(repr=False)
    passed: set[int] = field(default_factory=set)  # kinds that may not go past it; looked up, never iterated

    def allows(self, leaves: IntArray, limit_s: float | None, now: float) -> bool:
        """May another unit start on these leaves now (rule 30.6)?"""
        start_s = self.start.at_s if self.start.is_sure else None
        if limit_s is not None and start_s is not None and now + limit_s <= start_s:
            return True
        return not np.isin(leaves, self.leaves, assume_unique=True).any()


def expected_end(run: OwnRun, now: float, learned: Learned | None = None, started_s: float | None = None) -> Expected:
    """Return when a unit ends in its own schedule. `started_s` is its last real start, None if that is still to come.

    Only shown: its pods may have their grace period beside its declared limit, and a moment that was `learned` (rule
    30.8) differs between replicas, and after a restart. See `declared_end` for decisions.
    """
    if run.end_s is not None:
        return Expected(run.end_s, Certainty.CERTAIN)
    if run.unit.limit_s is not None:
        return Expected(max(run.entitled_s + run.unit.limit_s + run.unit.grace_s, now), Certainty.BOUNDED)
    since = max(run.entitled_s, now if started_s is None else started_s)
    left_s = learned(run.unit.vc, run.unit.leaf_count, max(now - since, 0.0)) if learned is not None else None
    if left_s is None:
        return Expected(None, Certainty.UNKNOWN)
    return Expected(now + left_s[0], Certainty.ESTIMATED, now + left_s[1])


def declared_end(run: OwnRun, now: float) -> Expected:
    """Return when a unit ends in its own schedule, as its virtual cluster alone would know it at this moment.

    Its limit counts as rule 30.6 has it: others elsewhere, and their grace periods, must not decide about backfill. A
    borrower may have ended really, and is still to end there. Alone that is not known yet: else the first unit would
    have other cells reserved, and others would go past it.
    """
    if run.unit.limit_s is None:
        return Expected(None, Certainty.UNKNOWN)
    return Expected(max(run.entitled_s + run.unit.limit_s, now), Certainty.BOUNDED)


def reserve(own: OwnSchedule, unit: Unit, ends: Iterable[tuple[OwnRun, Expected]]) -> Reservation | None:
    """The reserved start of a unit that does not fit (rule 30.5); None if it would not fit an empty virtual cluster.

    `ends` are the running units of its virtual cluster. If others have to end as well, which are of no queue, its
    start is unknown. Cost O(units) and a search, log(units) times; and a copy of the cells.
    """
    order = sorted(ends, key=_by_end)
    low, high = 0, len(order)  # it does not fit once `low` have ended
    gone = [PodDeleted(stand_in(run.unit)) for run, _ in order]
    if not _binds_without(own.state, unit, gone):
        placed = own.find_alone(unit)
        return None if placed is None else Reservation(unit.key, Expected(None, Certainty.UNKNOWN), placed.leaves)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _binds_without(own.state, unit, gone[:middle]) else (middle, high)
    placed = own.find_without(unit, (run.unit for run, _ in order[:high]))
    return None if placed is None else Reservation(unit.key, latest(end for _, end in order[:high]), placed.leaves)


def latest(ends: Iterable[Expected]) -> Expected:
    """Return when all of these have come: as sure as the least sure of them, and certain if there are none."""
    found = list(ends)
    certainty = max((end.certainty for end in found), key=_ORDER.index, default=Certainty.CERTAIN)
    times = [end.at_s for end in found if end.at_s is not None]
    if certainty is Certainty.UNKNOWN:
        return Expected(None, certainty)
    late = [end.late_s or end.at_s or 0.0 for end in found] if certainty is Certainty.ESTIMATED else []
    return Expected(max(times, default=None), certainty, max(late, default=None))


def _by_end(each: tuple[OwnRun, Expected]) -> tuple[int, float, float, str]:
    """Sure ends first: the others may never come."""
    run, end = each
    return (0 if end.is_sure else _ORDER.index(end.certainty), end.at_s or 0.0, run.entitled_s, run.unit.key)


def _binds_without(state: State, unit: Unit, gone: Sequence[PodDeleted]) -> bool:
    """Has it room, without victims, once these have gone? Nothing changes."""
    return Scenario(state).places([Asked(stand_in(unit))], gone) is not None
