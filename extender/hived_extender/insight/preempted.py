"""Jobs that were preempted lately, so that their owners find out after the pods are gone: when, and for whom.

The service says which pods had to leave. Here they are put together as jobs, kept for a day, and in the file of the
history where there is one. A job that waits or runs again keeps the news for as long. Thread-safe.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from hived_extender.insight.store import Seconds, Store
from hived_extender.service.tallies import PodEnd

KEPT_S = 86_400.0
MOST = 500
"""Jobs that are kept, the latest ones."""

MOST_PODS = 256
"""Pods of a job that are kept by name."""

TOGETHER_S = 600.0
"""Pods of a job that leave within so many seconds leave together."""

_TABLE = "CREATE TABLE IF NOT EXISTS preempted (job TEXT PRIMARY KEY, at_s REAL NOT NULL, body BLOB NOT NULL)"
_PUT = "INSERT OR REPLACE INTO preempted (job, at_s, body) VALUES (?, ?, ?)"
_READ = "SELECT at_s, body FROM preempted ORDER BY at_s, job"
_DROP = "DELETE FROM preempted WHERE at_s < ?"
_MOST_BODY = 1 << 20

_Row = tuple[Seconds, Annotated[bytes, Meta(max_length=_MOST_BODY)]]


class PreemptedJob(msgspec.Struct, frozen=True):
    """A job of which all or some pods had to leave, from `at_s` on, for the job `by`; "" if nobody knows.

    Moments are in seconds since 1970. `leaves` and `pods` are those that have left.
    """

    job: str
    namespace: str
    user: str
    vc: str
    priority: int
    leaves: int
    pods: tuple[str, ...]
    at_s: Seconds
    by: str = ""
    by_namespace: str = ""


class PreemptedJobs:
    """See the module."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self._store = store
        self._lock = threading.Lock()
        self._jobs: dict[str, PreemptedJob] | None = None  # by name, the latest one last
        self._learned = 0
        if store is not None:
            store.define(_TABLE)

    def learn(self, ends: Sequence[PodEnd]) -> None:
        """The pods that were preempted lately, of a service that leads; earlier ones may be among them."""
        with self._lock:
            jobs = self._known()
            changed: dict[str, None] = {}
            for one in ends:
                if one.number > self._learned and one.is_preempted:
                    self._learned = one.number
                    jobs[one.job] = _with(jobs.pop(one.job, None), one)
                    changed[one.job] = None
            if self._store is not None and changed:
                rows = [(jobs[job].job, jobs[job].at_s, msgspec.msgpack.encode(jobs[job])) for job in changed]
                self._store.write(_PUT, rows)
                self._store.write(_DROP, [(max(one.at_s for one in jobs.values()) - KEPT_S,)])
            while len(jobs) > MOST:
                del jobs[next(iter(jobs))]

    def latest(self, at_s: float) -> list[PreemptedJob]:
        """The jobs that were preempted within KEPT_S before `at_s`, the latest one first."""
        with self._lock:
            return [one for one in reversed(self._known().values()) if one.at_s >= at_s - KEPT_S]

    def forget(self) -> None:
        """Another replica leads, and writes the file: it is read anew when this one leads again."""
        with self._lock:
            self._jobs, self._learned = None, 0

    def _known(self) -> dict[str, PreemptedJob]:
        if self._jobs is None:
            rows = [] if self._store is None else self._store.read(_READ, _Row)
            self._jobs = {one.job: one for one in _read(body for _, body in rows[-MOST:])}
        return self._jobs


def _with(known: PreemptedJob | None, one: PodEnd) -> PreemptedJob:
    """A job with a pod that had to leave; not with those that left long before."""
    if known is None or one.ended_s - known.at_s > TOGETHER_S:
        return PreemptedJob(
            one.job, one.namespace, one.user, one.vc, one.priority, one.leaves, (one.pod,), one.ended_s, one.by,
            one.by_namespace,
        )  # fmt: skip
    if one.pod in known.pods:
        return known
    pods = (*known.pods, one.pod)[:MOST_PODS]
    return replace(known, leaves=known.leaves + one.leaves, pods=pods)


def _read(bodies: Iterable[bytes]) -> Iterable[PreemptedJob]:
    """Rows that another program wrote, and that are no rows of ours, are skipped."""
    for body in bodies:
        try:
            yield msgspec.msgpack.decode(body, type=PreemptedJob)
        except msgspec.DecodeError:
            continue
