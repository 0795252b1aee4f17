"""Answers about jobs and nodes, for many callers at once, outside of the lock and of the event loop."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from hived.errors import UserError
from hived.explaining import Possible
from hived.specs import ClusterSpec
from hived_extender.api.waiting import Certificate, NodeView, Why
from hived_extender.insight.certificates import Judge
from hived_extender.insight.listing import ListedJob, node_views, running_jobs, waiting_job
from hived_extender.insight.sharing import SharedAnswers
from hived_extender.insight.snapshot import Snapshot, WaitingEntry, take
from hived_extender.service.service import Service

FRESH_S = 2.0
"""How old an answer may be. Pages ask again every few seconds."""


class View(msgspec.Struct, frozen=True, eq=False):
    """A snapshot, and all that was found out about it. `turn` is taken to ask the core, which tries on the state."""

    snapshot: Snapshot
    judge: Judge
    turn: threading.Lock
    jobs: tuple[ListedJob, ...]
    certificates: Mapping[str, Certificate]


class ListedWhy(msgspec.Struct, frozen=True):
    """The answer why a job waits, with the namespace that decides who may see it."""

    why: Why
    namespace: str


class InsightDesk:
    """See the module. Thread-safe; equal questions of a moment are answered once."""

    def __init__(
        self, service: Service, *, clock: Callable[[], float] = time.monotonic, fresh_s: float = FRESH_S
    ) -> None:
        self._service = service
        self._views: SharedAnswers[View] = SharedAnswers(fresh_s, clock)
        self._answers: SharedAnswers[object] = SharedAnswers(fresh_s, clock)
        self._possible: tuple[ClusterSpec, Possible] | None = None

    def view(self) -> View:
        """The service as it is now, or was a moment ago. Raises NotLeadingError."""
        return self._views.get("view", self._look)

    def _look(self) -> View:
        snapshot = take(self._service)
        judge = Judge(snapshot, self._possible_in(snapshot.state.spec))
        certificates = {entry.name: judge.certificate(entry) for entry in snapshot.waiting}
        waiting = [waiting_job(snapshot, entry, certificates[entry.name]) for entry in snapshot.waiting]
        return View(snapshot, judge, threading.Lock(), (*waiting, *running_jobs(snapshot)), certificates)
