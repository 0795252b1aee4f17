"""Forecasts for a running service: one past for all, which learns from a snapshot every minute.

Outside the lock of the service but for the snapshots. A replica that does not lead learns nothing; one that begins to
lead goes on with what a former leader has written to the file. Futures are played in a process of its own, which has
the past as it was when the process was made. So a question waits for no other one. Thread-safe.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from msgspec.msgpack import Decoder, encode

from hived.values.errors import HivedError
from hived_extender.api.waiting import When
from hived_extender.insight.forecast import PLAYS_OF_ALL, ages, forecast_all, forecast_of, forecasts_from, play
from hived_extender.insight.listing import PreemptedJobs
from hived_extender.insight.past import Curves, Past, Raw
from hived_extender.insight.scene import scene_of
from hived_extender.insight.snapshot import Snapshot, WaitingEntry, take
from hived_extender.insight.store import Store
from hived_extender.machine.apart import compute_apart
from hived_extender.machine.service import Service

log = logging.getLogger(__name__)

MEDIAN, LATE = 0.5, 0.9

EVERY_S = 60.0
"""Between two looks: how exactly durations are known."""

_WHEN, _WHENS, _RAWS = Decoder(When), Decoder(dict[str, When]), Decoder(list[Raw])


class Forecaster:
    """See the module."""

    def __init__(self, service: Service, store: Store | None = None, preempted: PreemptedJobs | None = None) -> None:
        """Without a store everything is forgotten at the end of the process. `preempted` learns from each look too."""
        self._service, self._store = service, store
        self._preempted = preempted or PreemptedJobs()
        self._lock = threading.RLock()  # of the past and the last list; nobody plays while holding it
        self._playing = threading.Lock()  # one list at a time; taken before the other one
        self._past: Past | None = None
        self._all: tuple[Snapshot, dict[str, When]] | None = None
        self._curves: Curves | None = None  # as of the last look
        self._has_failed = False
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="forecasting", daemon=True)

    def start(self) -> None:
        """Learn from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Learn nothing any more."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def of(self, snapshot: Snapshot, entry: WaitingEntry) -> When:
        """When a waiting job of the snapshot starts; see `forecast_of`. The forecast of all is used if there is one."""
        known = self._all
        if known is not None and known[0] is snapshot and entry.name in known[1]:
            return known[1][entry.name]
        return _WHEN.decode(self._apart(lambda: encode(forecast_of(snapshot, entry, self._known())), snapshot.lock))

    def all(self, snapshot: Snapshot) -> dict[str, When]:
        """When each waiting job starts, by name; worked out once for a snapshot. See `forecast_all`."""
        with self._playing:
            known = self._all
            if known is None or known[0] is not snapshot:
                found = self._apart(lambda: encode(forecast_all(snapshot, self._known())), snapshot.lock)
                self._all = known = snapshot, _WHENS.decode(found)
            return known[1]

    def left_s(self, vc: str, leaves: int, ran_s: float) -> tuple[float, float] | None:
        """How many seconds more a job runs that has had so many leaf cells for `ran_s`: median and 90th percentile.

        None if too few jobs of its virtual cluster have ended. To be asked while this replica leads. Cost O(log n).
        """
        with self._lock:
            if self._curves is None:  # before the first look of a term
                self._curves = self._known().durations.at(())
            curve = self._curves.of(vc, leaves)
            return None if curve is None else (curve.remaining(ran_s, MEDIAN), curve.remaining(ran_s, LATE))

    def look(self) -> None:
        """Learn from the service as it is now, if this replica leads, and note forecasts to be judged later."""
        if not self._service.is_ready:
            with self._lock:
                self._past = self._curves = None  # another replica writes the file now
                if self._store is not None:
                    self._store.release()
            self._preempted.forget()
            return
        snapshot = take(self._service)
        self._preempted.learn(snapshot.ends)
        scene = scene_of(snapshot)
        with self._lock:
            past = self._known()
            past.look(scene, self._service.runner.clock_s)
            self._curves = past.durations.at(ages(scene))
            names = [waiter.entry.name for waiter in scene.waiters]
            wanted = [number for number, name in enumerate(names) if past.wants_forecast(name, scene.at)]
        if not wanted:
            return
        played = self._apart(lambda: encode(play(scene, past.durations.at(ages(scene)), PLAYS_OF_ALL)), nullcontext())
        found = _RAWS.decode(played)
        with self._lock:
            self._all = snapshot, forecasts_from(scene, found, past)
            for number in wanted:
                past.note(scene.waiters[number], scene.at, found[number])

    def _apart(self, compute: Callable[[], bytes], lock: AbstractContextManager[object]) -> bytes:
        """See `compute_apart`. Both locks are held while the process is made, but not until its result is there."""
        return compute_apart(compute, self._held_with(lock))

    @contextmanager
    def _held_with(self, lock: AbstractContextManager[object]) -> Iterator[None]:
        with lock, self._lock:
            self._known()  # reads the file, which the other process must not
            yield

    def _known(self) -> Past:
        if self._past is None:
            self._past = Past(self._store)
        return self._past

    def _follow(self) -> None:
        while not self._is_stopping.wait(EVERY_S):
            try:
                self.look()
                self._has_failed = False
            except HivedError:  # the term has ended meanwhile, or the service has stopped and said so
                pass
            except Exception:
                if not self._has_failed:
                    log.critical("a forecast has failed, and others are tried", exc_info=True)
                self._has_failed = True
