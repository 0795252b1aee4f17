"""Time series of a cluster: rings in memory, and the same rows in a small file.

Samples of a minute become one row of the finest ring; five of its rows one of the next, and twelve of these one of the
coarsest. A row of a ring lies where its moment says, `moment // step % rows`, in memory as in the file: the newest rows
overwrite the oldest, nothing grows, and a clock that jumps spoils at most the rows it jumps to. A row that is written
again, after a restart within its minute, is joined with the earlier one. Invariant: a row of a coarser ring equals the
mean or sum of the rows below it that the finer ring had when it was written last.

A sample is taken every few seconds, for the history and for metrics that are too dear for each question. It is taken
outside the lock but for a copy of the cells, and for short looks at pods that wait. Cells are copied and counted only
if the state has changed since the last sample. A replica that does not lead samples nothing, and its metrics show no
earlier sample; one that begins to lead takes in whatever a former leader has written to the file.

Waiting pods are counted by virtual cluster and cause, and pods that jobs in queues will have apart. The cause of a
refusal is that of the last certificate that was told for the pod. A pod that was not refused has the cause that its own
state, or its gang's, shows.
"""

import logging
import math
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.life.status import CellStatus
from hived.life.victims import victims_of
from hived.values.errors import HivedError, UserError
from hived.values.specs import PodRequest, Rules
from hived_extender.api.past import History, Series
from hived_extender.api.waiting import CauseName, FreeCells, leaf_rows
from hived_extender.insight.free_cells import free_cells
from hived_extender.insight.store import Store
from hived_extender.kube.clocks import CLOCK, wall_s
from hived_extender.kube.metrics import Sampled, Tally
from hived_extender.machine.machine import Machine
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.machine.service import Service

log = logging.getLogger(__name__)

FloatArray = npt.NDArray[np.float32]

Key = tuple[str, ...]
"""A metric and the values of its labels, in the order of `LABELS`."""

LABELS: dict[str, tuple[str, ...]] = {
    "leaf_cells": (),
    "leaf_cells_bad": (),
    "leaf_cells_promised": ("vc",),
    "leaf_cells_used": ("vc",),
    "leaf_cells_short": ("vc",),
    "leaf_cells_borrowed": ("vc",),
    "free_cells": ("vc", "chain", "level"),
    "waiting_pods": ("vc", "cause"),
    "queued_pods": ("vc",),
    "started_pods": ("vc",),
    "start_delay_seconds": ("vc",),
    "preempted_pods": ("vc",),
    "preempted_gpu_hours": ("vc",),
}
"""The metrics, each with its labels."""

SUMS = frozenset({"started_pods", "start_delay_seconds", "preempted_pods", "preempted_gpu_hours"})
"""Metrics that count events: rows have their sums, those of all others the mean."""

MINUTE_S = 60
RINGS = ((MINUTE_S, 1500), (300, 2304), (3600, 2208))
"""(seconds, rows): 25 hours of minutes, 8 days of five minutes, 92 days of hours."""

MOST_SERIES = 2048
"""Series beyond that are not kept. Memory: 24 KiB each."""

MOST_POINTS = 500
"""A question that names no step gets the finest with at most so many points, else the coarsest."""

LATEST_S = 2.0**33

_TABLES = (
    "CREATE TABLE IF NOT EXISTS series (number INTEGER PRIMARY KEY, name TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS samples (step INTEGER, slot INTEGER, at INTEGER NOT NULL, body BLOB NOT NULL, "
    "PRIMARY KEY (step, slot)) WITHOUT ROWID",
)
_Sample = tuple[int, Annotated[int, Meta(ge=0, le=int(LATEST_S))], bytes]
_PUT = "INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)"
_NAME = "INSERT OR REPLACE INTO series VALUES (?, ?)"


class _Ring:
    """Rows of one step. `values` has a column for each series; NaN where nothing was sampled."""

    def __init__(self, step: int, rows: int) -> None:
        self.step = step
        self.at = np.full(rows, -1, np.int64)
        self.values: FloatArray = np.full((rows, 0), np.nan, np.float32)

    def slot(self, at: int) -> int:
        """Return the index of the row of a moment."""
        return at // self.step % len(self.at)

    def widen(self, columns: int) -> None:
        """Have room for so many series."""
        have = self.values.shape[1]
        if columns > have:
            room = max(columns, min(2 * have, MOST_SERIES))
            more = np.full((len(self.at), room - have), np.nan, np.float32)
            self.values = np.concatenate([self.values, more], axis=1)

    def put(self, at: int, row: FloatArray) -> None:
        """The row of a moment from now on."""
        slot = self.slot(at)
        self.at[slot] = at
        self.values[slot] = np.nan
        self.values[slot, : len(row)] = row

    def row(self, at: int) -> FloatArray | None:
        """The row that begins at a moment, None if there is none."""
        slot = self.slot(at)
        return self.values[slot] if self.at[slot] == at else None

    def between(self, first: int, last: int) -> npt.NDArray[np.int64]:
        """Slots of the rows that begin at `first` or later and not after `last`, in order of time."""
        found = np.flatnonzero((self.at >= first) & (self.at <= last))
        return found[np.argsort(self.at[found])]


class HistoryRings:
    """Rings of samples, from minutes to hours. Without a `store`, they are in memory only. Thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store or Store()
        self._lock = threading.Lock()
        self._store.define(*_TABLES)
        self._sums: dict[Key, float] = {}
        self._sample_count = 0
        self._minute = -1
        self._is_full_told = False
        self._begin()
        self.load()

    def _begin(self) -> None:
        self._rings = [_Ring(step, rows) for step, rows in RINGS]
        self._keys: list[Key | None] = []  # by number; None where a number may not, or may again, be given
        self._numbers: dict[Key, int] = {}
        self._unused: list[int] = []

    def load(self) -> None:
        """Take the rows of the file in place of those in memory: another process may have led, and written it.

        Without a file nothing happens.
        """
        if not self._store.where:
            return
        names = self._store.read("SELECT number, name FROM series ORDER BY number", tuple[int, str])
        rows = self._store.read("SELECT step, at, body FROM samples", _Sample)
        with self._lock:
            self._begin()
            for number, name in names:
                if 0 <= number < MOST_SERIES:
                    self._keys += [None] * (number + 1 - len(self._keys))
                    key = self._keys[number] = _key_of(name)
                    if key is not None:
                        self._numbers[key] = number
            for ring in self._rings:
                ring.widen(len(self._keys))
                for step, at, body in rows:
                    if step == ring.step and (row := _row_of(body)) is not None:
                        ring.put(at, row[: len(self._keys)])
            self._forget_unused()

    def _forget_unused(self) -> None:
        """Series that are 0 all the time, such as those of former virtual clusters, leave their place to others."""
        is_used = np.zeros(len(self._keys), np.bool_)
        for ring in self._rings:
            is_used |= np.nan_to_num(ring.values[:, : len(self._keys)]).any(axis=0)
        for key, number in list(self._numbers.items()):
            if not is_used[number]:
                del self._numbers[key]
                self._keys[number] = None
                self._unused.append(number)

    def record(self, at_s: float, sample: Mapping[Key, float]) -> None:
        """Take in a sample of all metrics that are not 0, at a moment in seconds since 1970.

        A moment in another minute than that of the last sample, earlier or later, ends that minute's row.
        """
        if not 0 <= at_s < LATEST_S:
            return
        minute = int(at_s) // MINUTE_S * MINUTE_S
        with self._lock:
            if minute != self._minute:
                self._end_minute()
                self._minute = minute
            self._sample_count += 1
            for key, value in sample.items():
                if math.isfinite(value):
                    self._sums[key] = self._sums.get(key, 0.0) + value

    def flush(self) -> None:
        """Write the row of the minute that has begun, as this process ends, or another one may lead and write."""
        with self._lock:
            self._end_minute()
        self._store.release()

    def query(
        self,
        first_s: float,
        last_s: float,
        step: int | None = None,
        metrics: Collection[str] = (),
        vc: str | None = None,
    ) -> History:
        """All series of these metrics, or of all, between two moments; of one virtual cluster, or of all.

        Raises UserError for a metric or a step that there is not. Cost O(rows x series).
        """
        if unknown := sorted(set(metrics) - LABELS.keys()):
            raise UserError(f"there is no series {unknown[0]}; there are {', '.join(LABELS)}")
        if step is not None and step not in {ring.step for ring in self._rings}:
            steps = ", ".join(str(ring.step) for ring in self._rings)
            raise UserError(f"step is {step}; there are series in steps of {steps} seconds")
        with self._lock:
            ring = self._ring(first_s, last_s, step)
            first = math.ceil(max(first_s, 0) / ring.step) * ring.step
            slots = ring.between(first, math.floor(max(last_s, -1)))
            times = ring.at[slots].tolist()
            found = []
            for key in sorted(self._numbers):
                if (metrics and key[0] not in metrics) or not _is_of(key, vc):
                    continue
                values = ring.values[slots, self._numbers[key]]
                if np.nan_to_num(values).any() or (len(values) and key[0] == "leaf_cells"):
                    found.append((key, values))
        series = [
            Series(key[0], dict(zip(LABELS[key[0]], key[1:], strict=True)), _rounded(values))  # type: ignore[arg-type]  # keys of the ring are names of metrics
            for key, values in found
        ]
        return History(step=ring.step, times=times, series=series, is_kept=bool(self._store.where))

    def _ring(self, first_s: float, last_s: float, step: int | None) -> _Ring:
        if step is not None:
            return next(ring for ring in self._rings if ring.step == step)
        span = max(last_s - first_s, 0.0)
        return next((ring for ring in self._rings if span / ring.step <= MOST_POINTS), self._rings[-1])

    def _end_minute(self) -> None:
        """The samples of the last minute become a row, and parts of the rows above it."""
        if not self._sample_count:
            return
        numbers = {key: number for key in self._sums if (number := self._number(key)) is not None}
        row = np.zeros(len(self._keys), np.float32)
        for key, number in numbers.items():
            row[number] = self._sums[key] / (1 if key[0] in SUMS else self._sample_count)
        self._sums.clear()
        self._sample_count = 0
        is_sum = np.array([key is not None and key[0] in SUMS for key in self._keys], np.bool_)
        before = self._rings[0].row(self._minute)
        if before is not None:
            row = _joined(np.stack([before[: len(row)], row]), is_sum)
        self._rings[0].put(self._minute, row)
        written = [(self._rings[0], self._minute, row)]
        for below, ring in zip(self._rings, self._rings[1:], strict=False):
            at = self._minute // ring.step * ring.step
            rows = [below.row(one) for one in range(at, at + ring.step, below.step)]
            row = _joined(np.stack([one[: len(is_sum)] for one in rows if one is not None]), is_sum)
            ring.put(at, row)
            written.append((ring, at, row))
        self._write(written)

    def _write(self, written: Sequence[tuple[_Ring, int, FloatArray]]) -> None:
        """Write rows to the file, and the names of series if it has fewer, as when it was begun anew."""
        if not self._store.where:
            return
        names = [(number, msgspec.json.encode(key).decode()) for key, number in self._numbers.items()]
        if self._store.read("SELECT count(*) FROM series") != [(len(names),)]:
            self._store.write("DELETE FROM series WHERE number >= ?", [(0,)])
            self._store.write(_NAME, names)
        bodies = [
            (ring.step, ring.slot(at), at, zlib.compress(row.astype("<f4").tobytes(), 1)) for ring, at, row in written
        ]
        self._store.write(_PUT, bodies)

    def _number(self, key: Key) -> int | None:
        """The column of a series, which is made if there is none; None beyond MOST_SERIES."""
        number = self._numbers.get(key)
        if number is not None:
            return number
        if not self._unused and len(self._keys) >= MOST_SERIES:
            if not self._is_full_told:
                self._is_full_told = True
                log.warning("history keeps no more series", extra={"fields": {"first_left_out": "/".join(key)}})
            return None
        if self._unused:
            number = self._unused.pop()
        else:
            number = len(self._keys)
            self._keys.append(None)
            for ring in self._rings:
                ring.widen(number + 1)
        self._keys[number] = key
        self._numbers[key] = number
        return number


def _joined(rows: FloatArray, is_sum: npt.NDArray[np.bool_]) -> FloatArray:
    """One row for several: sums, or means; NaN where all are."""
    is_known = ~np.isnan(rows)
    totals, counts = np.where(is_known, rows, 0).sum(axis=0), is_known.sum(axis=0)
    values = np.where(is_sum, totals, totals / np.maximum(counts, 1))
    found: FloatArray = np.where(counts > 0, values, np.nan).astype(np.float32)
    return found


def _is_of(key: Key, vc: str | None) -> bool:
    """Does a series concern the virtual cluster? Those of the cluster concern each."""
    labels = LABELS[key[0]]
    return vc is None or not labels or key[1] == vc


def _rounded(values: Iterable[np.float32]) -> list[float | None]:
    """To six digits, as more are noise and take room."""
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in map(float, values)]


def _key_of(name: str) -> Key | None:
    """A series by its name in the file; None if this version knows no such metric."""
    try:
        key = msgspec.json.decode(name, type=tuple[str, ...])
    except (msgspec.DecodeError, UnicodeError):
        return None
    return key if key and key[0] in LABELS and len(key) == 1 + len(LABELS[key[0]]) else None


def _row_of(body: bytes) -> FloatArray | None:
    try:
        return np.frombuffer(zlib.decompress(body), "<f4")
    except (zlib.error, ValueError):
        return None


AT_ONCE = 500
"""Pods looked at under the lock; others are served in between."""

NO_VC = ""
"""Stands for the virtual cluster of pods that name none, or one that there is not."""


def waiting_causes(service: Service) -> Counter[tuple[str, str]]:
    """The number of pods that wait, by virtual cluster and `api.waiting.CauseName`.

    Cost: a list of all pods under the lock at once, then a look at each that waits, in slices.
    """
    with service.runner.look() as machine:
        core, records = machine.cache.core, list(machine.cache.pods)
        vcs = frozenset(core.state.topology.vc_names) if core is not None else frozenset()
    waiting = [record for record in records if record.state in (PodState.WAITING, PodState.HELD)]
    found: Counter[tuple[str, str]] = Counter()
    for first in range(0, len(waiting), AT_ONCE):
        time.sleep(0)  # let another waiter have the lock first
        with service.runner.look() as machine:
            for record in waiting[first : first + AT_ONCE]:
                if machine.cache.pods.get(record.uid) is record and not record.state.is_placed:
                    vc, _ = record.claim
                    found[vc if vc in vcs else NO_VC, cause_of(machine, record)] += 1
    return found


def cause_of(machine: Machine, record: PodRecord) -> str:
    """Return why a pod waits, as far as that is known without asking the core. Cost: a look into tables."""
    cache, request = machine.cache, record.request
    if record.state is PodState.HELD:
        return "incomplete"
    if record.gang is not None:
        plan = cache.gangs.plan(record.gang)
        if plan.refusal or plan.forming:
            return "invalid" if plan.refusal else "incomplete"
    has_mistake = record.reading is not None and isinstance(record.reading.spec, UserError) and record.reading.is_own
    if record.translation.mistake or (request is None and has_mistake):
        return "invalid"
    if request is not None and cache.core is not None and cache.core.reserves(request):
        return _reclaimed_from(machine, cache.core.state, request)
    return record.cause or "unknown"


def _reclaimed_from(machine: Machine, state: State, request: PodRequest) -> CauseName:
    """From whom the cells are reclaimed that a request reserves."""
    for uids in victims_of(state, state.groups[request.spec.group.name]).values():
        for uid in uids:
            victim = machine.cache.pods.get(uid)
            if victim is None or victim.request is None:
                continue
            group = state.groups.get(victim.request.spec.group.name)
            if group is not None and group.virtual is not None:
                return "preempting"
    return "lent"


EVERY_S = 15.0
"""Between two samples: four make a row of the history."""


class Sampler:
    """Takes samples of a service, one after the other. `now` has seconds since 1970.

    `queued` counts by virtual cluster the pods that jobs which wait in queues will have.
    """

    def __init__(
        self,
        service: Service,
        history: HistoryRings,
        *,
        now: Callable[[], float] = wall_s,
        queued: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._service, self._history, self._now, self._queued = service, history, now, queued
        self._sampled = Sampled()
        self._seen = ""
        self._cells: Counter[Key] = Counter()
        self._free: dict[tuple[str, str, str], int] = {}
        self._counted: dict[str, Tally] = {}
        self._has_led = False
        self._has_failed = False
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="sampling", daemon=True)
        service.metrics.observe_samples(lambda: self._sampled)

    def start(self) -> None:
        """Take samples from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Take no samples any more, and write what is not written yet."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._history.flush()

    def look(self) -> None:
        """Take a sample, if this replica leads. Cost: see `free_cells` and `waiting_causes`."""
        CLOCK.tell_jumps()
        if not self._service.is_ready:
            if self._has_led:
                self._history.flush()
            self._sampled, self._has_led, self._seen = Sampled(), False, ""
            return
        if not self._has_led:
            self._history.load()
            self._has_led = True
        reader = self._service.reader
        if reader.version() != self._seen:
            rules = reader.rules()
            self._seen, cells = reader.versioned_cells()
            self._count(cells, free_cells(cells, releases_doomed=rules is Rules.BETTER))
        waiting = waiting_causes(self._service)
        sample: Counter[Key] = Counter(self._cells)
        for (vc, cause), count in waiting.items():
            sample["waiting_pods", vc, cause] = count
        for vc, count in self._queued().items():
            sample["queued_pods", vc] = count
        self._add_tallies(sample)
        self._history.record(self._now(), sample)
        self._sampled = Sampled(free_cells=self._free, waiting_pods=dict(waiting))

    def _follow(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self.look()
                self._has_failed = False
            except HivedError:  # the term has ended meanwhile, or the service has stopped and said so
                self._seen = ""
            except Exception:
                if not self._has_failed:
                    log.critical("a sample has failed, and others are tried", exc_info=True)
                self._has_failed = True
            self._is_stopping.wait(EVERY_S)

    def _count(self, cells: CellStatus, rows: list[FreeCells]) -> None:
        """The part of a sample that follows from the cells; pinned cells count with the others."""
        topology, found = cells.topology, Counter[Key]()
        free: Counter[tuple[str, str, str]] = Counter()
        for row in rows:
            free[row.vc, row.chain, row.level] += row.free
        for row in leaf_rows(rows):
            found["leaf_cells_promised", row.vc] += row.promised
            found["leaf_cells_used", row.vc] += row.in_use
            found["leaf_cells_short", row.vc] += row.bad
            found["leaf_cells_borrowed", row.vc] += row.borrowed
        for key, count in free.items():
            found["free_cells", *key] = count
        for forest in topology.forests:
            if forest.vc == NO_CELL:
                size = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
                first = forest.bases[1]
                found["leaf_cells",] += size
                found["leaf_cells_bad",] += int((cells.bad[first : first + size] != 0).sum())
        self._cells, self._free = found, dict(free)

    def _add_tallies(self, sample: Counter[Key]) -> None:
        """Starts and preemptions since the last sample."""
        for vc, tally in list(self._service.metrics.tallies.items()):
            before = self._counted.get(vc, Tally())
            now = self._counted[vc] = Tally(
                tally.started_pods, tally.start_delay_s, tally.preempted_pods, tally.preempted_gpu_hours
            )
            events = {
                "started_pods": now.started_pods - before.started_pods,
                "start_delay_seconds": now.start_delay_s - before.start_delay_s,
                "preempted_pods": now.preempted_pods - before.preempted_pods,
                "preempted_gpu_hours": now.preempted_gpu_hours - before.preempted_gpu_hours,
            }
            for metric, count in events.items():
                if count:
                    sample[metric, vc] = count  # type: ignore[assignment]  # keys above are names of metrics
