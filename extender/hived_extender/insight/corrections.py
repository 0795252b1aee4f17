"""What earlier forecasts were worth: factors that make later ones hold as often as they say.

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
"""

import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from hived_extender.insight.store import Seconds, Store

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

_TABLE = """CREATE TABLE IF NOT EXISTS outcomes (
    id INTEGER PRIMARY KEY, vc TEXT NOT NULL, is_opportunistic INTEGER NOT NULL, likely_s REAL NOT NULL,
    by_s REAL NOT NULL, actual_s REAL NOT NULL)"""
_INSERT = "INSERT INTO outcomes (vc, is_opportunistic, likely_s, by_s, actual_s) VALUES (?, ?, ?, ?, ?)"
_SELECT = "SELECT vc, is_opportunistic, likely_s, by_s, actual_s FROM outcomes ORDER BY id"
_TRIM = "DELETE FROM outcomes WHERE id <= (SELECT MAX(id) FROM outcomes) - ?"
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
    """See the module; kept in a store over restarts. Not thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self._store = store
        self._pools: dict[str, _Pool] = {}
        if store is not None:
            store.define(_TABLE)
            for vc, is_opportunistic, *waits in store.read(_SELECT, tuple[str, int, Seconds, Seconds, Seconds]):
                self._remember(Outcome(vc, bool(is_opportunistic), *waits))

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Jobs with a forecast have started."""
        for one in outcomes:
            self._remember(one)
        if self._store is not None and outcomes:
            self._store.write(_INSERT, [msgspec.structs.astuple(one) for one in outcomes])
            self._store.write(_TRIM, [(_KEPT,)])

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


def _quantile(ended: Iterable[float], still: Iterable[float], share: float) -> float:
    """The least value that this share of all, and of one more to come, do not exceed; `still` are at least so large.

    The largest value if no value is that large for sure.
    """
    marks: list[tuple[float, bool]] = [(each, False) for each in ended]
    marks = sorted(marks + [(each, True) for each in still])
    at_risk, above = len(marks) + 1, 1.0
    for value, alike in itertools.groupby(marks, key=lambda mark: mark[0]):
        group = [is_open for _, is_open in alike]
        above *= 1 - (len(group) - sum(group)) / at_risk
        if above <= 1 - share + 1e-9:
            return float(value)
        at_risk -= len(group)
    return marks[-1][0]
