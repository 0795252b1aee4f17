"""The queue played forward: the real core on a copy of the state, in virtual time, all virtual clusters together.

A scene has the jobs that wait and run, made ready to be played again and again. They are numbered: those that wait in
the order in which they are served, then those that run, by name. A job that runs may have many groups, one for each pod
of its gang; they end together.

Jobs that run end at moments that the caller chooses. At each such moment all that wait are tried in their order; later
ones pass those that have no room, as kube-scheduler lets them. A job for which others have to leave reserves its cells,
and starts when their time to leave is over. An evicted job is not seen again, and no new one comes. So a play is a
guess of one future; `forecast` draws many. Deterministic, with no clock and no chance of its own.

Jobs of one kind get the same answers. So one of each kind is tried, and once it is refused, the others wait with it
until cells come free that may help them.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace as with_fields
from enum import IntEnum

import msgspec
import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL, BoolArray
from hived.scenario import Asked, Scenario, nodes_of, pods_of
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Offer, Phase, PodAllocated, PodDeleted
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest, Rules, count_leaves
from hived.virtual_time import Agenda, Lineup, Occupancy
from hived_extender.insight.snapshot import RunningFacts, Snapshot, WaitingEntry
from hived_extender.machine.certificates import NEVER_PREEMPTS
from hived_extender.machine.counts import PodEnd

GRACE_S = 30.0
"""Of a group of which nothing is known."""

MOST_COMPARED = 1 << 20
"""Entries of masks that are compared."""


def may_have(state: State, entry: WaitingEntry, decision: Decision) -> bool:
    """May a job have the cells of a decision? One that does not preempt reclaims lent cells alone."""
    if entry.preempts or not isinstance(decision, Preempt):
        return True
    victims = set(decision.victims)
    return not any(
        group.virtual is not None and not victims.isdisjoint(group.slots_of) for group in state.groups.values()
    )


class Waiter(msgspec.Struct, frozen=True, eq=False):
    """A job that waits, for so many `leaves`. Jobs of one `kind` get the same answers, so they are refused together.

    `is_asked` is false for a job that cannot be asked for as it is. `is_restricted`: there are nodes that it could not
    use even if they were empty.
    """

    entry: WaitingEntry
    kind: Hashable
    leaves: int
    is_asked: bool
    is_restricted: bool

    @property
    def is_opportunistic(self) -> bool:
        """Does it take cells without a guarantee?"""
        return self.entry.priority <= OPPORTUNISTIC_PRIORITY

    def asked(self, opened: BoolArray | None, *, keeps_rules: bool = False) -> list[Asked]:
        """Its parts, with the nodes offered now that groups have left those in `opened`, shape (nodes,); None: as at
        first.

        Rules between pods count what was there at first. They are left out later, unless the answer has to be safe.
        """

        if opened is None:
            return [one.asked for one in self.entry.parts]
        offers = ((one.request, one.once_left(opened)) for one in self.entry.parts)
        return [
            Asked(request, offer=offer if offer is None or keeps_rules else with_fields(offer, rules=()))
            for request, offer in offers
        ]

    def has_place(self, scenario: Scenario, asked: list[Asked], *, is_free: bool = False) -> bool:
        """Have its parts room together, if need be once others have left? Not so if the place has to be free.

        Raises UserError for a job that the core refuses. Cost: a search for each part.
        """
        (found,) = scenario.plan([asked])
        if isinstance(found, UserError):
            raise found
        refusals = (Wait, Preempt) if is_free else (Wait,)
        return all(not isinstance(one, refusals) and may_have(scenario.state, self.entry, one) for one in found)


class Runner(msgspec.Struct, frozen=True, eq=False):
    """A job that runs. `age_s` is its age, and `left_s` how long it still has its cells at the most by its own
    declaration, or as it is leaving already; None if it does not say, or has stayed longer. It has `grace_s` to leave.
    If others take its cells now, it is gone in `gone_s` at the latest; infinite if unknown.
    """

    name: str
    groups: tuple[str, ...]
    vc: str
    priority: int
    leaves: int
    age_s: float
    left_s: float | None
    grace_s: float
    is_leaving: bool = False
    gone_s: float = math.inf

    @property
    def is_opportunistic(self) -> bool:
        """Does it have cells without a guarantee?"""
        return self.priority <= OPPORTUNISTIC_PRIORITY


class Scene(msgspec.Struct, frozen=True, eq=False):
    """A snapshot made ready to be played.

    `state` is a copy of its own, to be copied again. `promised` has the leaf cells of each virtual cluster. `is_whole`:
    no node is bad. `lost` and `ends` are those of the snapshot. `at` is in seconds since 1970.
    """

    state: State
    at: float
    waiters: tuple[Waiter, ...]
    runners: tuple[Runner, ...]
    runner_of: dict[str, int]
    promised: dict[str, int]
    is_whole: bool
    lost: Sequence[tuple[int, str]] = ()
    ends: Sequence[PodEnd] = ()

    def number(self, entry: WaitingEntry) -> int:
        """The number of a waiting job. Raises ValueError if it is of another snapshot."""
        for number, each in enumerate(self.waiters):
            if each.entry is entry:
                return number
        raise ValueError(f"{entry.name} waits in another snapshot")


def scene_of(snapshot: Snapshot) -> Scene:
    """Everything that each play of a snapshot needs. Cost: a copy of the state, O(groups + waiting jobs)."""
    with snapshot.lock:
        state = copy_state(snapshot.state)
    runners = tuple(_runners(snapshot, state))
    return Scene(
        state,
        snapshot.at,
        tuple(_waiter(entry) for entry in snapshot.waiting),
        runners,
        {group: number for number, runner in enumerate(runners) for group in runner.groups},
        state.topology.promised_leaves(),
        not bool(state.cells.node_bad.any()) and not bool(state.cells.lost_total.any()),
        snapshot.lost,
        snapshot.ends,
    )


def has_own_cells(group: Group) -> bool:
    """Does a group use cells of its virtual cluster, and not those of others?"""
    return group.virtual is not None


def _waiter(entry: WaitingEntry) -> Waiter:
    kinds: list[Hashable] = []
    is_restricted = False
    for one in entry.parts:
        kinds.append((one.request.spec.of_group(""), None if one.offer is None else _key(one.offer, one.fit)))
        is_restricted |= one.offer is not None and not bool(one.fit.all())
    is_asked = bool(entry.parts) and not entry.refusal
    leaves = sum(count_leaves(one.spec.group.members) for one in entry.requests)
    return Waiter(entry, (entry.preempts, *kinds), leaves, is_asked, is_restricted)


def _key(offer: Offer, fit: BoolArray) -> Hashable:
    """Equal for offers that are equal; one with rules between pods equals itself only."""
    if offer.rules:
        return id(offer)
    return _content(offer.nodes), _content(offer.after), _content(fit)


def _content(mask: BoolArray) -> Hashable:
    """The content of a mask; large ones with different rows equal themselves only."""
    if mask.strides[0] == 0 or len(mask) == 1:
        return len(mask), np.packbits(mask[0]).tobytes()
    return np.packbits(mask).tobytes() if mask.size <= MOST_COMPARED else id(mask)


def _runners(snapshot: Snapshot, state: State) -> Sequence[Runner]:
    jobs: dict[str, list[tuple[Group, RunningFacts | None]]] = {}
    for name, group in state.groups.items():
        if group.state is not GroupState.PREEMPTING:
            facts = snapshot.running.get(name)
            jobs.setdefault(facts.job if facts is not None else name, []).append((group, facts))
    return [_runner(name, jobs[name], state, snapshot.at) for name in sorted(jobs)]


def _runner(name: str, groups: Sequence[tuple[Group, RunningFacts | None]], state: State, at: float) -> Runner:
    first = groups[0][0]
    known = [facts for _, facts in groups if facts is not None]
    started = [facts.started_s for facts in known if facts.started_s is not None]
    lefts = [None if facts is None else _left_s(facts, at) for _, facts in groups]
    limited = [left for left in lefts if left is not None]
    return Runner(
        name=name,
        groups=tuple(group.name for group, _ in groups),
        vc=first.spec.virtual_cluster,
        priority=first.priority if has_own_cells(first) else OPPORTUNISTIC_PRIORITY,
        leaves=sum(len(group.physical) for group, _ in groups),
        age_s=max(at - min(started, default=at), 0.0),
        left_s=max(limited) if len(limited) == len(lefts) else None,
        grace_s=max((facts.grace_s for facts in known), default=GRACE_S),
        is_leaving=len(known) == len(groups) and all(facts.is_leaving for facts in known),
        gone_s=max(_gone_s(group, facts, state, at) for group, facts in groups),
    )


def _gone_s(group: Group, facts: RunningFacts | None, state: State, at: float) -> float:
    """Seconds until a group is gone that has to leave now; infinite once that moment is over, or with a bad node, where
    pods may never end.
    """
    leaves = group.physical[group.physical != NO_CELL]
    if facts is None or facts.gone_s < at or bool(state.cells.node_bad[state.arrays.node[leaves]].any()):
        return math.inf
    return facts.gone_s - at


def _left_s(facts: RunningFacts, at: float) -> float | None:
    """Return how long a group still has its cells at the most; None once it has stayed longer than it or Kubernetes
    said.
    """
    ends = [end - at for end in (facts.ends_s, facts.leaves_s if facts.is_leaving else None) if end is not None]
    left_s = min(ends, default=-1.0)
    return left_s if left_s >= 0 else None


MOST_ENDS = 4000
"""Jobs that end in one play."""

MOST_ASKS = 6000
"""Questions to the core in one play."""


class _Act(IntEnum):
    """Of one moment, lower numbers come first: cells come free before they are asked for."""

    END = 0  # of a job that ran at the beginning
    END_OF_WAITER = 1
    EMPTIED = 2  # the cells that a job reserves


class Play:
    """One future. `starts[number]` is when a waiting job starts, in seconds from now; infinite if it does not.

    `reserved_s[number]` is when the cells are free at the latest that a job could reserve at once: infinite if
    unknown, None if it could not.
    """

    def __init__(
        self, scene: Scene, ends: Sequence[float], lengths: Sequence[float], spare: Scenario | None = None
    ) -> None:
        """`ends`: seconds until each running job ends; `lengths`: how long each waiting one then runs. Infinite: never.

        `spare` is the scenario of an earlier play that is over.
        """
        self.scenario = Scenario.copied(scene.state, room=spare)
        self.state = self.scenario.state
        self.starts = [math.inf] * len(scene.waiters)
        self.reserved_s: list[float | None] = [None] * len(scene.waiters)
        self.asks = 0
        self._scene = scene
        self._ends = ends
        self._lengths = lengths
        self._now_s = 0.0
        self._is_better = scene.state.spec.rules is Rules.BETTER
        self._agenda = Agenda()
        self._runs = [True] * len(scene.runners)
        self._taken: dict[int, dict[PodRequest, bool]] = {}  # requests with cells, by waiter: are they bound?
        self._waiter_of: dict[str, int] = {}  # by group, of those
        self._usage = Occupancy()
        self._waiting = {number for number, waiter in enumerate(scene.waiters) if waiter.is_asked}
        self._lineup = Lineup[int](self._waiting.__contains__)
        self._opened: BoolArray | None = None  # nodes that groups have left
        for group in self.state.groups.values():
            if has_own_cells(group) and group.state is not GroupState.BEING_PREEMPTED:
                self._usage.add(group.name, group.spec.virtual_cluster, group.priority, len(group.physical))
        for number, end_s in enumerate(ends):
            if end_s < math.inf:
                self._agenda.add(max(end_s, 0.0), _Act.END, number)
        for number in self._waiting:
            self._lineup.add(scene.waiters[number].kind, number)
        self._set_clock()

    def run(self, target: int | None = None) -> None:
        """Go on until a waiting job has started, or all that can. Work is bounded by MOST_ENDS and MOST_ASKS."""
        self._try_all()
        for _ in range(MOST_ENDS):
            is_over = not self._waiting and not self._taken if target is None else self.starts[target] < math.inf
            if is_over or not self._agenda or self.asks >= MOST_ASKS:
                return
            self.step()

    def step(self) -> None:
        """Go on to the next moment at which something happens, and try those that wait."""
        due = self._agenda.pop_next()
        self._now_s = due[0].at_s
        self._set_clock()
        for _, act, number, _ in due:
            if act is _Act.END:
                self._end(number)
            elif act is _Act.END_OF_WAITER:
                self._release(number)
            elif number in self._taken and self.starts[number] == math.inf:
                self._take(number)
        self._try_all()

    def _try_all(self) -> None:
        """All that wait, in their order, one of each kind until it is refused."""
        while self.asks < MOST_ASKS and (number := self._lineup.first()) is not None:
            if self._lacks_leaves(number) or not self._try(number):
                self._lineup.refuse(self._scene.waiters[number].kind)

    def _lacks_leaves(self, number: int) -> bool:
        """A quick look: do others of its virtual cluster that it cannot evict leave it too few leaf cells?"""
        waiter = self._scene.waiters[number]
        if waiter.is_opportunistic:
            return False
        entry = waiter.entry
        used = self._usage.count_used(entry.vc, entry.priority, [one.spec.group.name for one in entry.requests])
        return used + waiter.leaves > self._scene.promised.get(entry.vc, 0)

    def _try(self, number: int) -> bool:
        """Start a waiting job, or reserve its cells; False if it has no room, and nothing has changed."""
        waiter = self._scene.waiters[number]
        try:
            if len(waiter.entry.parts) > 1:
                asked = waiter.asked(self._opened)
                self.asks += len(asked)
                if not waiter.has_place(self.scenario, asked):
                    return False
            is_taken = self._take(number)
        except UserError:
            is_taken = True
        if is_taken:
            self._waiting.discard(number)
        return is_taken

    def _take(self, number: int) -> bool:
        """Have every part of a job bound or its cells reserved; else all are released, and False is returned."""
        entry = self._scene.waiters[number].entry
        taken = self._taken.setdefault(number, {})
        emptied_s = latest_s = self._now_s
        for asked in self._scene.waiters[number].asked(self._opened):
            request = asked.pod
            if taken.get(request):
                continue
            decision = self._ask(entry, asked, is_reserving=request in taken)
            self._take_back(decision.cancelled, number)
            if isinstance(decision, Wait):
                if taken:
                    self._let_go(number)
                else:
                    del self._taken[number]
                return False
            self._waiter_of[request.spec.group.name] = number
            if isinstance(decision, Bind):
                allocated = PodAllocated(request, decision.bind_info, decision.lazily_preempted)
                applied = self.scenario.apply(allocated)
                taken[request] = True
                self._take_back(applied.cancelled, number)
                lent = (*decision.lazily_preempted, *applied.lazily_preempted)
            else:
                taken[request] = False
                gone_s, by_s = self._evict(request.spec.group.name)
                emptied_s, latest_s = max(emptied_s, gone_s), max(latest_s, by_s)
                lent = decision.lazily_preempted
            for name in lent:
                self._usage.remove(name)
            self._usage.add(request.spec.group.name, entry.vc, entry.priority, count_leaves(request.spec.group.members))
        if all(taken.values()):
            self.starts[number] = self._now_s
            if self._lengths[number] < math.inf:
                self._agenda.add(self._now_s + self._lengths[number], _Act.END_OF_WAITER, number)
        else:
            if self._now_s == 0:
                self.reserved_s[number] = latest_s
            self._agenda.add(max(emptied_s, self._now_s + 1.0), _Act.EMPTIED, number)
        return True

    def _ask(self, entry: WaitingEntry, asked: Asked, *, is_reserving: bool) -> Bind | Preempt | Wait:
        """The core's answer; cells are reserved for whom others have to leave."""
        phases = [Phase.PREEMPTING] if is_reserving else [Phase.FILTERING, Phase.PREEMPTING]
        for phase in phases:
            self.asks += 1
            decision = self.scenario.ask(asked, phase)
            if not isinstance(decision, Preempt):
                break
            if phase is Phase.FILTERING and not may_have(self.state, entry, decision):
                return Wait(NEVER_PREEMPTS)
        assert isinstance(decision, Bind | Preempt | Wait)
        return decision

    def _set_clock(self) -> None:
        self.scenario.now_s = self._scene.at + self._now_s if self._is_better else None

    def _evict(self, preemptor: str) -> tuple[float, float]:
        """The groups in the cells that a group reserves leave; returns when they have, and when at the latest.

        The first one counts their time to leave alone. The other one is told people, and is for the first round.
        """
        gone_s = by_s = self._now_s
        numbers = self.state.victims[self.state.groups[preemptor].number].groups
        for name in sorted(self.state.group_by_number[number].name for number in numbers):
            self._usage.remove(name)
            runner = self._scene.runner_of.get(name)
            if runner is None:
                leaves_s, by_s = self._now_s + GRACE_S, math.inf
                self._agenda.add(leaves_s, _Act.END_OF_WAITER, self._waiter_of[name])
            else:
                one = self._scene.runners[runner]
                leaves_s = one.left_s if one.is_leaving and one.left_s is not None else self._now_s + one.grace_s
                leaves_s = max(min(leaves_s, self._ends[runner]), self._now_s)
                by_s = max(by_s, one.gone_s)
                self._agenda.add(leaves_s, _Act.END, runner)
            gone_s = max(gone_s, leaves_s)
        return gone_s, by_s

    def _end(self, runner: int) -> None:
        """A job that ran at the beginning is over."""
        if not self._runs[runner]:
            return  # evicted before
        self._runs[runner] = False
        for name in self._scene.runners[runner].groups:
            self._open_nodes(self.state.groups.get(name))
            self.scenario.leave(pods_of(self.state, [name]))
            self._usage.remove(name)
        self._reopen(self._scene.runners[runner].vc)

    def _release(self, number: int) -> None:
        """A job that waited at the beginning is over, or gives up the cells that it reserves."""
        for request in self._taken.pop(number, ()):
            self._open_nodes(self.state.groups.get(request.spec.group.name))
            self._delete(request)
            self._usage.remove(request.spec.group.name)
            self._waiter_of.pop(request.spec.group.name, None)
        self._reopen(self._scene.waiters[number].entry.vc)

    def _let_go(self, number: int) -> None:
        """A job has lost room for a part: it gives the rest back, and waits."""
        self._release(number)
        self._waiting.add(number)
        self._lineup.add(self._scene.waiters[number].kind, number)

    def _reopen(self, vc: str) -> None:
        """Cells of a virtual cluster are free: those that they may help are tried again.

        By VC safety they help its own guaranteed jobs alone, where every node is healthy and offered.
        """

        def helps(number: int) -> bool:
            one = self._scene.waiters[number]
            return not self._scene.is_whole or one.entry.vc == vc or one.is_opportunistic or one.is_restricted

        self._lineup.reopen(helps)

    def _take_back(self, groups: Iterable[str], but: int) -> None:
        """These groups reserve cells no more, and their jobs wait again."""
        for name in groups:
            number = self._waiter_of.get(name)
            if number is not None and number != but and self.starts[number] == math.inf:
                self._let_go(number)

    def _open_nodes(self, group: Group | None) -> None:
        """Pods leave the nodes of a group, so that others fit there."""
        left = [group.name] if group is not None and group.state is not GroupState.PREEMPTING else []
        opened = nodes_of(self.state, left)
        self._opened = opened if self._opened is None else self._opened | opened

    def _delete(self, pod: PodRequest) -> None:
        self._take_back(self.scenario.apply(PodDeleted(pod)).cancelled, -1)
