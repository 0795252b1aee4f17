"""What earlier forecasts were worth: factors that make later ones hold as often as they say.

A play knows nothing of jobs that come later, of users who give up, or of work that changes. So the actual waits of jobs
with a forecast are compared with it. The factor of a virtual cluster is the quantile of actual / forecast over its
latest forecasts, split conformal prediction over a window: as long as the next jobs are like these, 9 of 10 start by
the corrected moment. Forecasts of jobs that still wait count as soon as they have failed. The later moment is never
corrected downwards: jobs that wait together fare alike, so a lucky spell says little of the next one.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hived_extender.insight.store import Store

WINDOW = 200
"""Forecasts that are looked back upon, of each virtual cluster."""

LEAST = 20
"""With fewer of a virtual cluster, those of all count; with fewer of all, FIRST_FACTORS."""

MOST_FACTOR = 100.0

OFFSET_S = 60.0
"""Added to both waits: whether a job waits one second or ten is no matter of factors."""

MOST_CLUSTERS = 256

_TABLE = """CREATE TABLE IF NOT EXISTS forecasts (
    id INTEGER PRIMARY KEY, vc TEXT NOT NULL, likely_s REAL NOT NULL, by_s REAL NOT NULL, actual_s REAL NOT NULL)"""
_INSERT = "INSERT INTO forecasts (vc, likely_s, by_s, actual_s) VALUES (?, ?, ?, ?)"
_SELECT = "SELECT vc, likely_s, by_s, actual_s FROM forecasts ORDER BY id"
_TRIM = "DELETE FROM forecasts WHERE id <= (SELECT MAX(id) FROM forecasts) - ?"
_KEPT = 20_000


class Factors(NamedTuple):
    """By how much the waits of a forecast are multiplied."""

    likely: float
    by: float


FIRST_FACTORS = Factors(1.0, 2.0)


class Outcome(msgspec.Struct, frozen=True):
    """A forecast and what came of it: seconds from when it was made. It had no correction yet."""

    vc: str
    likely_s: float
    by_s: float
    actual_s: float

    @property
    def ratios(self) -> Factors:
        """Actual / forecast."""
        actual_s = self.actual_s + OFFSET_S
        return Factors(actual_s / (self.likely_s + OFFSET_S), actual_s / (self.by_s + OFFSET_S))


class Corrections:
    """See the module; kept in a store over restarts. Not thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self._store = store
        self._windows: dict[str, deque[Factors]] = {}
        self._all: deque[Factors] = deque(maxlen=WINDOW)
        if store is not None:
            store.define(_TABLE)
            for vc, likely_s, by_s, actual_s in store.read(_SELECT):
                self._remember(Outcome(str(vc), float(likely_s), float(by_s), float(actual_s)))

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Jobs with a forecast have started."""
        for one in outcomes:
            self._remember(one)
        if self._store is not None and outcomes:
            self._store.write(_INSERT, [(one.vc, one.likely_s, one.by_s, one.actual_s) for one in outcomes])
            self._store.write(_TRIM, [(_KEPT,)])

    def of(self, vc: str, open_ones: Sequence[Outcome] = ()) -> Factors:
        """The factors for a virtual cluster. `open_ones` are forecasts of jobs that still wait, with how long by now;
        they count if the forecast has failed already.
        """
        failed = [one for one in open_ones if one.actual_s > one.by_s]
        known = [*self._windows.get(vc, ()), *(one.ratios for one in failed if one.vc == vc)]
        if len(known) < LEAST:
            known = [*self._all, *(one.ratios for one in failed)]
        if len(known) < LEAST:
            return FIRST_FACTORS
        likely = _quantile(sorted(each.likely for each in known), 0.5)
        by = _quantile(sorted(each.by for each in known), 0.9)
        return Factors(_bounded(likely), max(_bounded(by), 1.0))

    def _remember(self, one: Outcome) -> None:
        window = self._windows.pop(one.vc, None) or deque(maxlen=WINDOW)
        self._windows[one.vc] = window  # the last one to be forgotten
        window.append(one.ratios)
        self._all.append(one.ratios)
        if len(self._windows) > MOST_CLUSTERS:
            del self._windows[next(iter(self._windows))]


def _quantile(ascending: Sequence[float], share: float) -> float:
    """The least value that this share of all, and of one more to come, do not exceed."""
    return ascending[min(math.ceil((len(ascending) + 1) * share), len(ascending)) - 1]


def _bounded(factor: float) -> float:
    return min(max(factor, 1 / MOST_FACTOR), MOST_FACTOR)
