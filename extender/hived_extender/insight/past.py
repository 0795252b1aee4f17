"""The past as forecasts need it, learned by looking at one snapshot after the other.

A job that runs in one snapshot and not in the next has ended in between, or was preempted: the service says so. It
also says which pods ended, so that jobs are learned from that began and ended between two looks. A job that waits gets
a forecast, and again each time it has waited twice as long; once it runs, the forecasts are compared with the actual
wait.
"""

import math
from collections.abc import Collection, Iterator, Mapping

import msgspec

from hived.cells.state import GroupState
from hived_extender.insight.corrections import Corrections, Corrector, Outcome
from hived_extender.insight.durations import Durations, Ended
from hived_extender.insight.scene import Runner, Scene, Waiter
from hived_extender.insight.store import Store
from hived_extender.service.tallies import PodEnd

MOST_OPEN = 2000
"""Forecasts that wait for their outcome. Virtual clusters share them, and each forgets its oldest ones first."""

SPARE = 500
"""So many more are kept until some are forgotten at once."""

JUMP_S = 30.0
"""Clocks that part by more than that between two looks: one of them was set."""

FIRST_AGAIN_S = 300.0
MOST_DOUBLINGS = 20


class Raw(msgspec.Struct, frozen=True):
    """A forecast in seconds from now, before it is corrected. Infinite: it is not known.

    `bound_s` follows from declared limits. `reserved_s` is when the cells are free at the latest that can be reserved
    at once; None if others have to end first.
    """

    likely_s: float = math.inf
    by_s: float = math.inf
    bound_s: float = math.inf
    reserved_s: float | None = None
    is_now: bool = False


class _Running(msgspec.Struct, frozen=True):
    vc: str
    leaves: int
    groups: tuple[str, ...]
    since_s: float
    is_dated: bool
    is_evicted: bool
    has_lost: bool

    def ended(self, at_s: float, lost: Collection[str]) -> Ended:
        """The job is over, of whose groups some may have been `lost` since the last look."""
        is_whole = not (self.is_evicted or self.has_lost or any(group in lost for group in self.groups))
        return Ended(self.vc, self.leaves, max(at_s - self.since_s, 0.0), is_whole, at_s)


class _Open(msgspec.Struct, frozen=True):
    """A forecast, in seconds from when it was made."""

    vc: str
    is_opportunistic: bool
    made_s: float
    likely_s: float
    by_s: float
    order: int

    def outcome(self, at_s: float) -> Outcome:
        return Outcome(self.vc, self.is_opportunistic, self.likely_s, self.by_s, at_s - self.made_s)


class _Waiting(msgspec.Struct):
    """A waiting job: when it gets its next forecast, and those that will be judged: the first one, how many, and those
    that are not forgotten.
    """

    next_s: float = 0.0
    first_s: float = math.inf
    count: int = 0
    made: list[_Open] = msgspec.field(default_factory=list)


class Past:
    """See the module. Not thread-safe: whoever shares it takes a lock."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self.durations = Durations(store)
        self.corrections = Corrections(store)
        self._running: dict[str, _Running] = {}
        self._at_s = self._clock_s = -math.inf
        self._known_until_s = self.durations.latest_s  # of an earlier process or term
        self._lost = self._ended = 0
        self._waiting: dict[str, _Waiting] = {}
        self._open_count = self._noted = 0

    def look(self, scene: Scene, clock_s: float | None = None) -> None:
        """Learn from a snapshot, which is later than the one before.

        `clock_s` is the time of a clock that nobody sets. If the snapshot's was set since the last look, ends and
        starts of the meantime are not counted.
        """
        at_s = scene.at
        if clock_s is not None:
            if abs((at_s - self._at_s) - (clock_s - self._clock_s)) > JUMP_S:  # never at the first look: not a number
                self._running.clear()
                self._waiting.clear()
                self._open_count = 0
                self._ended = max((one.number for one in scene.ends), default=0)
            self._clock_s = clock_s
        lost = {group for number, group in scene.lost if number > self._lost}
        self._lost = max((number for number, _ in scene.lost), default=0)
        now = {one.name: one for one in scene.runners}
        ended = []
        for name, known in self._running.items():
            one = now.get(name)
            if one is None:
                ended.append(known.ended(at_s, lost))
            elif self._is_another(known, one, at_s):
                ended.append(known.ended(at_s - one.age_s, lost))
        self.durations.add([*ended, *self._unseen(scene, now)])
        groups, before = scene.state.groups, self._running
        self._running = {
            name: _Running(
                one.vc,
                one.leaves,
                one.groups,
                at_s - one.age_s,
                one.age_s > 0,
                any(groups[group].state is GroupState.BEING_PREEMPTED for group in one.groups),
                name in before
                and not self._is_another(before[name], one, at_s)
                and (before[name].has_lost or any(group in lost for group in one.groups)),
            )
            for name, one in now.items()
        }
        started = {name: at_s - one.age_s for name, one in now.items()}
        waiting = {waiter.entry.name for waiter in scene.waiters}
        for job in [job for job in self._waiting if job not in waiting]:
            made = self._waiting.pop(job).made
            self._open_count -= len(made)
            if job in started:
                self.corrections.add([one.outcome(max(started[job], one.made_s)) for one in made])
        self._at_s = at_s

    def _unseen(self, scene: Scene, now: Mapping[str, Runner]) -> Iterator[Ended]:
        """The jobs that began and ended since the last look; a job of several pods is over with the last one.

        A pod of a job that ran at the last look, or runs now, is a part of it.
        """
        by_job: dict[str, list[PodEnd]] = {}
        for one in scene.ends:
            is_new = one.number > self._ended and one.ended_s > self._known_until_s
            has_begun_since = one.started_s is not None and one.started_s >= self._at_s
            if is_new and has_begun_since and one.job not in self._running:
                by_job.setdefault(one.job, []).append(one)
        self._ended = max((one.number for one in scene.ends), default=0)
        self._known_until_s = -math.inf
        for job, pods in by_job.items():
            last_s = max(one.ended_s for one in pods)
            if job in now and scene.at - now[job].age_s <= last_s:
                continue
            first_s = min(one.started_s for one in pods if one.started_s is not None)
            is_whole = not any(one.is_preempted for one in pods)
            leaves = sum(one.leaves for one in pods)
            yield Ended(pods[0].vc, leaves, max(last_s - first_s, 0.0), is_whole, last_s)

    def _is_another(self, known: _Running, one: Runner, at_s: float) -> bool:
        """Is a job that runs not the one of the same name that ran at the last look? It started since."""
        return known.is_dated and one.age_s > 0 and at_s - one.age_s > self._at_s

    def wants_forecast(self, job: str, at_s: float) -> bool:
        """Should a forecast of a waiting job be made and noted now?

        At first, and each time it has waited twice as long; one that is not judged is made anew after FIRST_AGAIN_S.
        """
        known = self._waiting.get(job)
        return known is None or at_s >= known.next_s

    def note(self, waiter: Waiter, at_s: float, raw: Raw) -> None:
        """A forecast was made. Only those that were played are judged: others do not depend on the past.

        Cost O(1), and O(MOST_OPEN) once in SPARE times.
        """
        known = self._waiting.setdefault(waiter.entry.name, _Waiting())
        known.next_s = at_s + FIRST_AGAIN_S
        if raw.by_s < math.inf and raw.reserved_s is None and not raw.is_now:
            one = _Open(waiter.entry.vc, waiter.is_opportunistic, at_s, raw.likely_s, raw.by_s, self._noted)
            known.made.append(one)
            known.first_s, known.count = min(known.first_s, at_s), known.count + 1
            known.next_s = known.first_s + FIRST_AGAIN_S * 2.0 ** min(known.count - 1, MOST_DOUBLINGS)
            self._noted += 1
            self._open_count += 1
            if self._open_count >= MOST_OPEN + SPARE:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        """MOST_OPEN are kept. Virtual clusters with few forecasts keep all, the others as many as each other."""
        orders: dict[str, list[int]] = {}
        for known in self._waiting.values():
            for one in known.made:
                orders.setdefault(one.vc, []).append(one.order)
        left, kept = MOST_OPEN, dict[str, set[int]]()
        for count, (vc, own) in enumerate(sorted(orders.items(), key=lambda item: (len(item[1]), item[0]))):
            share = min(left // (len(orders) - count), len(own))
            kept[vc] = set(sorted(own)[len(own) - share :])
            left -= share
        for known in self._waiting.values():
            known.made = [one for one in known.made if one.order in kept[one.vc]]
        self._open_count = MOST_OPEN - left

    def corrector(self, at_s: float) -> Corrector:
        """The corrections of now."""
        made = sorted((one for each in self._waiting.values() for one in each.made), key=lambda one: one.made_s)
        return self.corrections.at(one.outcome(at_s) for one in made)
