"""How long jobs run: the past of each virtual cluster, and draws of how long a running group still has its cells.

The curve of a virtual cluster is the estimate of Kaplan and Meier: jobs that ended, with jobs that still run or were
evicted as "at least so long". Without those, a young history would know short jobs only. Beyond the longest one, the
chance to run twice as long is a half each time. Nothing here knows a clock.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from hived_extender.insight.store import Seconds, Store

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
        marks = sorted([(each, False) for each in ends] + [(each, True) for each in still])
        self.times: list[float] = []
        self.shares: list[float] = []
        at_risk, share = len(marks), 1.0
        for seconds, group in itertools.groupby(marks, key=lambda mark: mark[0]):
            alike = [is_open for _, is_open in group]
            ended = len(alike) - sum(alike)
            if ended:
                share *= 1 - ended / at_risk
                self.times.append(seconds)
                self.shares.append(share)
            at_risk -= len(alike)
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
        """When the last group that is known ended, in seconds since 1970; earlier than any moment if none has."""
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
