"""The past as forecasts need it, learned by looking at one snapshot after the other.

A job that runs in one snapshot and not in the next has ended in between, or was preempted: the service says so. It
also says which pods ended, so that jobs are learned from that began and ended between two looks. A job that waits gets
a forecast, and again each time it has waited twice as long; once it runs, the forecasts are compared with the actual
wait.

What earlier forecasts were worth: factors that make later ones hold as often as they say.

A play knows nothing of jobs that come later, of users who give up, or of work that changes. So the actual waits of jobs
with a forecast are compared with it: ratios of actual / forecast, over a window of the latest ones. As long as the next
jobs are like these, the quantile of the ratios corrects the next forecast (split conformal prediction).

Jobs that still wait count as "at least so long" (Kaplan and Meier). Without them a queue that grows would seem to be
short, as those that wait longest are not among the outcomes. Guaranteed jobs are compared within their virtual cluster,
opportunistic ones with each other, as they share the idle cells of all.

Jobs that wait together fare alike, so a lucky spell says little of the next one. So the later moment is made earlier
only if it has held too often for long (LONG_WINDOW), and by half of the way.

The factor of the likely moment takes a small step with each outcome: up after a late start, down after an early one
(stochastic approximation of a quantile, as in adaptive conformal inference). In the long run half of the outcomes are
on either side, however they come in spells. A median over a window follows each spell, and errs to one side for weeks.

How long jobs run: the past of each virtual cluster, and draws of how long a running group still has its cells.

The curve of a virtual cluster is the estimate of Kaplan and Meier: jobs that ended, with jobs that still run or were
evicted as "at least so long". Without those, a young history would know short jobs only. Beyond the longest one, the
chance to run twice as long is a half each time. Nothing here knows a clock.
"""

import bisect
import itertools
import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from hived.cells.state import GroupState
from hived_extender.insight.forward import Runner, Scene, Waiter
from hived_extender.insight.store import Seconds, Store
from hived_extender.machine.counts import PodEnd

WINDOW = 200
"""Forecasts that are looked back upon, of each pool; and as many of jobs that still wait."""

LEAST = 20
"""With fewer in a virtual cluster, those of all guaranteed jobs count, then all; with fewer of all, FIRST_FACTORS."""

MOST_FACTOR = 100.0
_MOST_LOG = math.log(MOST_FACTOR)

STEP = 0.02
"""Of the logarithm of the factor of the likely moment, after each outcome; the first steps are larger."""

LONG_WINDOW = 4000
"""Forecasts of a pool that have to be known before the later moment is made earlier."""

LEAST_FACTOR = 0.5
"""Of the later moment."""

OFFSET_S = 60.0
"""Added to both waits: whether a job waits one second or ten is no matter of factors."""

MOST_POOLS = 256
"""Of jobs that are compared with each other: one for each virtual cluster, and three more."""

_FORECASTS_TABLE = """CREATE TABLE IF NOT EXISTS outcomes (
    id INTEGER PRIMARY KEY, vc TEXT NOT NULL, is_opportunistic INTEGER NOT NULL, likely_s REAL NOT NULL,
    by_s REAL NOT NULL, actual_s REAL NOT NULL)"""
_FORECASTS_INSERT = "INSERT INTO outcomes (vc, is_opportunistic, likely_s, by_s, actual_s) VALUES (?, ?, ?, ?, ?)"
_FORECASTS_SELECT = "SELECT vc, is_opportunistic, likely_s, by_s, actual_s FROM outcomes ORDER BY id"
_FORECASTS_TRIM = "DELETE FROM outcomes WHERE id <= (SELECT MAX(id) FROM outcomes) - ?"
_KEPT = 20_000


class Factors(NamedTuple):
    """By how much the waits of a forecast are multiplied; or actual / forecast of one that is over."""

    likely: float
    by: float

    def corrected(self, likely_s: float, by_s: float) -> tuple[float, float]:
        """Seconds from now by which a job starts in half of the cases, and in 9 of 10, from those of a play."""
        # As `Outcome.ratios` compares; a moment that is made earlier does not become one in the past by that.
        likely_s = max((likely_s + OFFSET_S) * self.likely - OFFSET_S, likely_s * self.likely)
        return min(likely_s, by_s * self.by), by_s * self.by


FIRST_FACTORS = Factors(1.0, 2.0)


class Outcome(msgspec.Struct, frozen=True):
    """A forecast without correction and what came of it: seconds from when it was made. Of a job that still waits,
    `actual_s` is how long it has waited since.
    """

    vc: str
    is_opportunistic: bool
    likely_s: float
    by_s: float
    actual_s: float

    @property
    def ratios(self) -> Factors:
        """Actual / forecast."""
        actual_s = self.actual_s + OFFSET_S
        return Factors(actual_s / (self.likely_s + OFFSET_S), actual_s / (self.by_s + OFFSET_S))


class _Pool:
    """The latest ratios of jobs that are compared with each other."""

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=WINDOW)
        self.long: deque[float] = deque(maxlen=LONG_WINDOW)
        self.likely = 0.0  # the logarithm of the factor
        self._count = 0

    def add(self, ratios: Factors) -> None:
        self.latest.append(ratios.by)
        self.long.append(ratios.by)
        self._count += 1
        step = max(STEP, 1 / self._count)
        is_late = math.log(ratios.likely) > self.likely
        self.likely = min(max(self.likely + (step if is_late else -step), -_MOST_LOG), _MOST_LOG)

    def factors(self, waiting: Sequence[float]) -> Factors | None:
        """None if too few are known; a job that still waits and has failed its forecast is known.

        `waiting` : how long they have waited by now, in terms of the later moment
        """
        if len(self.latest) + sum(each > 1 for each in waiting) < LEAST:
            return None
        by = _quantile(self.latest, waiting, 0.9)
        return Factors(math.exp(self.likely), min(by, MOST_FACTOR) if by >= 1 else self._lower_by())

    def _lower_by(self) -> float:
        if len(self.long) < LONG_WINDOW:
            return 1.0
        return min(max(math.sqrt(_quantile(self.long, (), 0.9)), LEAST_FACTOR), 1.0)


class Corrections:
    """Corrects estimates by how earlier ones turned out; kept in a store over restarts. Not thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self._store = store
        self._pools: dict[str, _Pool] = {}
        if store is not None:
            store.define(_FORECASTS_TABLE)
            for vc, is_opportunistic, *waits in store.read(
                _FORECASTS_SELECT, tuple[str, int, Seconds, Seconds, Seconds]
            ):
                self._remember(Outcome(vc, bool(is_opportunistic), *waits))

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Jobs with a forecast have started."""
        for one in outcomes:
            self._remember(one)
        if self._store is not None and outcomes:
            self._store.write(_FORECASTS_INSERT, [msgspec.structs.astuple(one) for one in outcomes])
            self._store.write(_FORECASTS_TRIM, [(_KEPT,)])

    def at(self, waiting: Iterable[Outcome]) -> "Corrector":
        """The factors of now. `waiting` are forecasts of jobs that still wait, with how long by now, oldest first."""
        return Corrector(self._pools, waiting)

    def _remember(self, one: Outcome) -> None:
        for name in _pools(one.vc, one.is_opportunistic):
            pool = self._pools.pop(name, None) or _Pool()
            self._pools[name] = pool  # the last one to be forgotten
            pool.add(one.ratios)
        while len(self._pools) > MOST_POOLS:
            del self._pools[next(iter(self._pools))]


class Corrector:
    """The factors of one moment, worked out when they are first asked for."""

    def __init__(self, pools: Mapping[str, _Pool], waiting: Iterable[Outcome]) -> None:
        """See `Corrections.at`."""
        self._pools = pools
        self._waiting: dict[str, deque[float]] = {}
        for one in waiting:
            for name in _pools(one.vc, one.is_opportunistic):
                self._waiting.setdefault(name, deque(maxlen=WINDOW)).append(one.ratios.by)
        self._found: dict[str, Factors | None] = {}

    def of(self, vc: str, is_opportunistic: bool) -> Factors:
        """The factors for a job: those of the first pool in which enough is known. Cost O(LONG_WINDOW) at first."""
        for name in _pools(vc, is_opportunistic):
            if name not in self._found:
                self._found[name] = self._pools.get(name, _Pool()).factors(self._waiting.get(name, deque()))
            if (found := self._found[name]) is not None:
                return found
        return FIRST_FACTORS


def _pools(vc: str, is_opportunistic: bool) -> tuple[str, ...]:
    """The jobs that a job is compared with, those most like it first."""
    return ("lent", "all") if is_opportunistic else (f"of {vc}", "guaranteed", "all")


def _quantile(ended: Collection[float], still: Collection[float], share: float) -> float:
    """The least value that this share of all, and of one more to come, do not exceed; `still` are at least so large.

    The largest value if no value is that large for sure.
    """
    for value, above in _survivors(ended, still, beyond=1):
        if above <= 1 - share + 1e-9:
            return float(value)
    return max((*ended, *still))


def _survivors(ended: Iterable[float], still: Iterable[float], beyond: int = 0) -> Iterator[tuple[float, float]]:
    """The estimate of Kaplan and Meier: (value, share of all that is larger) for each of `ended`, ascending.

    `still` are at least so large, and so many more lie `beyond` all. Cost O(n log n).
    """
    marks = sorted([(each, False) for each in ended] + [(each, True) for each in still])
    at_risk, share = len(marks) + beyond, 1.0
    for value, group in itertools.groupby(marks, key=lambda mark: mark[0]):
        alike = [is_open for _, is_open in group]
        count = len(alike) - sum(alike)
        if count:
            share *= 1 - count / at_risk
            yield value, share
        at_risk -= len(alike)


LEAST_ENDS = 10
"""Groups of a virtual cluster that have to have ended before anything is estimated."""

LEAST_ALIKE = 30
"""Groups of a size that have to have ended before they have a curve of their own."""

MOST_ENDS = 2000
"""Groups remembered of each virtual cluster, the latest ones."""

MOST_CLUSTERS = 256
"""Virtual clusters that are remembered: those whose groups ended last."""

LONGEST_S = 90 * 86_400.0
"""No group is thought to run longer from now on."""

_TABLE = """CREATE TABLE IF NOT EXISTS durations (
    id INTEGER PRIMARY KEY, vc TEXT NOT NULL, leaves INTEGER NOT NULL, seconds REAL NOT NULL,
    is_whole INTEGER NOT NULL, ended_s REAL NOT NULL)"""
_INDEX = "CREATE INDEX IF NOT EXISTS durations_by_vc ON durations (vc, id)"
_INSERT = "INSERT INTO durations (vc, leaves, seconds, is_whole, ended_s) VALUES (?, ?, ?, ?, ?)"
_SELECT = "SELECT vc, leaves, seconds, is_whole, ended_s FROM durations ORDER BY id"
_TRIM = """DELETE FROM durations WHERE vc = ? AND id <= (
    SELECT id FROM durations WHERE vc = ? ORDER BY id DESC LIMIT 1 OFFSET ?)"""
_FORGET = "DELETE FROM durations WHERE vc = ?"
_TRIM_EVERY = 100

_Row = tuple[str, Annotated[int, Meta(ge=0)], Seconds, int, Seconds]


class Ended(msgspec.Struct, frozen=True):
    """A group that had so many leaf cells for so long. Not `is_whole`: it was evicted, and would have run longer."""

    vc: str
    leaves: int
    seconds: float
    is_whole: bool = True
    ended_s: float = 0.0


class Curve:
    """The share of groups that run longer than a time, as steps: `shares[i]` run longer than `times[i]`."""

    def __init__(self, ends: Iterable[float], still: Iterable[float]) -> None:
        """`ends` are whole durations, `still` are those that were at least so long; seconds. Cost O(n log n)."""
        found = list(_survivors(ends, still))
        self.times = [seconds for seconds, _ in found]
        self.shares = [share for _, share in found]
        self._falling = [-share for share in self.shares]

    def remaining(self, elapsed_s: float, draw: float) -> float:
        """Seconds that a group still runs that has run for `elapsed_s`; `draw` is uniform in (0, 1). Cost O(log n)."""
        index = bisect.bisect_right(self.times, elapsed_s)
        alive = self.shares[index - 1] if index else 1.0
        last_s = self.times[-1] if self.times else 1.0
        if alive > 0 and elapsed_s < last_s:
            wanted = alive * (1 - draw)
            found = bisect.bisect_left(self._falling, -wanted)
            if found < len(self.times):
                return min(max(self.times[found] - elapsed_s, 1.0), LONGEST_S)
            draw = 1 - wanted / self.shares[-1]
        from_s = max(elapsed_s, last_s, 1.0)
        return min(from_s / max(1 - draw, 1e-6) - elapsed_s, LONGEST_S)


class Curves:
    """The curves of one moment, made when they are first asked for."""

    def __init__(self, ended: dict[str, list[Ended]], running: Iterable[tuple[str, int, float]]) -> None:
        """`running` are virtual cluster, leaf cells and age in seconds of groups that run."""
        self._ended = ended
        self._running: dict[str, list[tuple[int, float]]] = {}
        for vc, leaves, age_s in running:
            self._running.setdefault(vc, []).append((leaves, max(age_s, 0.0)))
        self._curves: dict[tuple[str, int], Curve | None] = {}

    def of(self, vc: str, leaves: int) -> Curve | None:
        """For a group of so many leaf cells: that of groups of its size if there are enough, else of all of the virtual
        cluster; None if too few have ended.
        """
        size = leaves.bit_length()
        for key in ((vc, size), (vc, 0)):
            if key not in self._curves:
                self._curves[key] = self._curve(*key)
            if (curve := self._curves[key]) is not None:
                return curve
        return None

    def count(self, vc: str) -> int:
        """Groups of a virtual cluster that are known to have ended."""
        return sum(one.is_whole for one in self._ended.get(vc, ()))

    def _curve(self, vc: str, size: int) -> Curve | None:
        alike = [one for one in self._ended.get(vc, ()) if size in (0, one.leaves.bit_length())]
        ends = [one.seconds for one in alike if one.is_whole]
        if len(ends) < (LEAST_ALIKE if size else LEAST_ENDS):
            return None
        still = [one.seconds for one in alike if not one.is_whole]
        still += [age_s for leaves, age_s in self._running.get(vc, ()) if size in (0, leaves.bit_length())]
        return Curve(ends, still)


class Durations:
    """The past, kept in a store over restarts. Not thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self._store = store
        self._ended: dict[str, list[Ended]] = {}  # by virtual cluster, oldest first
        self._added = 0
        if store is not None:
            store.define(_TABLE, _INDEX)
            for vc, leaves, seconds, is_whole, ended_s in store.read(_SELECT, _Row):
                self._remember(Ended(vc, leaves, seconds, bool(is_whole), ended_s))

    def add(self, ended: Sequence[Ended]) -> None:
        """These groups have ended, or were evicted."""
        for one in ended:
            self._remember(one)
        if self._store is not None and ended:
            self._store.write(
                _INSERT, [(one.vc, one.leaves, one.seconds, int(one.is_whole), one.ended_s) for one in ended]
            )
            self._added += len(ended)
            if self._added >= _TRIM_EVERY:
                self._added = 0
                self._store.write(_TRIM, [(vc, vc, MOST_ENDS) for vc in self._ended])

    @property
    def latest_s(self) -> float:
        """The end of the last known group, in seconds since 1970; -infinity for none."""
        return max((one.ended_s for ended in self._ended.values() for one in ended), default=-math.inf)

    def at(self, running: Iterable[tuple[str, int, float]]) -> Curves:
        """The curves of now; see `Curves`."""
        return Curves(dict(self._ended), running)

    def _remember(self, one: Ended) -> None:
        ended = self._ended.pop(one.vc, [])
        self._ended[one.vc] = ended  # the last one to be forgotten
        ended.append(one)
        if len(ended) > MOST_ENDS + _TRIM_EVERY:
            del ended[: len(ended) - MOST_ENDS]
        while len(self._ended) > MOST_CLUSTERS:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            if self._store is not None:
                self._store.write(_FORGET, [(oldest,)])


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
    """Durations of ended jobs, and what earlier forecasts were worth. Not thread-safe: users share a lock."""

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

        `clock_s` is the time of a clock that is never set. If the snapshot's was set since the last look, ends and
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
