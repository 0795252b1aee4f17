"""Job objects as the watches tell of them: read at once, kept as values, handed over to whoever takes them.

A job is read on the thread of its watch, so that the desk never parses. Objects are not kept: 50,000 of them would take
hundreds of megabytes. Jobs that another job made have no turn of their own. Where the pods of a job stand in an object
that its controller makes, the job is read anew with that. A JobSet is read anew when a Job that it has made needs fewer
pods than before: so the documents of those that run are kept.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.job_kinds import kinds
from hived_extender.job_kinds.batch import JOB
from hived_extender.job_kinds.job import Job, JobName, JobState
from hived_extender.job_kinds.jobset import JOB_SET, Child, child_of
from hived_extender.job_kinds.kind import Kind
from hived_extender.job_kinds.needs import Need
from hived_extender.job_kinds.owners import names_another

log = logging.getLogger(__name__)

Object = dict[str, Any]

NOT_UNDERSTOOD = "hived has failed to read it, and its log says how: please tell the maintainers"
"""Why a job is in no queue that shows a mistake of ours. It is that job's trouble alone."""


class Seen(msgspec.Struct, frozen=True):
    """A job as it was seen last. `need` is None if it is not for us to queue, or, as `problem` says, cannot be."""

    job: Job
    need: Need | None
    problem: str = ""


class WatchedJobs:
    """See the module. Every method may be called from any thread.

    `read_need` gives the needs of a job, None if it is not ours; it raises UserError. `wake` is called after each fact,
    `made` at once with a job and the one that made it, None if it is gone: its pods come in the next moment. A job has
    made itself if only the labels of its pods name another one.
    """

    def __init__(
        self,
        read_need: Callable[[Job], Need | None],
        wake: Callable[[], None],
        made: Callable[[JobName, JobName | None], None],
    ) -> None:
        self._read_need = read_need
        self._wake = wake
        self._made_by = made
        self._lock = threading.Lock()
        self._jobs: dict[JobName, Seen] = {}
        self._managers: dict[JobName, JobName] = {}
        self._made: dict[JobName, Job] = {}  # jobs whose roles others need
        self._news: dict[JobName, None] = {}
        self._sets_lock = threading.RLock()  # the older reading of a JobSet is never kept last
        self._sets: dict[JobName, Object] = {}  # those that run
        self._children: dict[JobName, dict[JobName, Child]] = {}  # by JobSet

    # Told by the watches

    def listed(self, kind: Kind, items: list[Object]) -> None:
        """See `optional_kinds.Told`."""
        there = set()
        while items:
            there.add(self._take(kind, items.pop()))
        with self._lock:
            known = dict.fromkeys([*self._jobs, *(name for each in self._children.values() for name in each)])
            gone = [name for name in known if _is_of(kind, name) and name not in there]
        for name in gone:
            self.forget(name)

    def seen(self, kind: Kind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        self._take(kind, item)

    def gone(self, kind: Kind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        metadata = item["metadata"]
        self.forget(kind.name(metadata.get("namespace", ""), metadata["name"]))

    def unserved(self, kind: Kind) -> None:
        """See `optional_kinds.Told`."""
        with self._lock:
            left = [name for name in self._jobs if _is_of(kind, name)]
        for name in left:
            self.forget(name)

    def keep(self, name: JobName, job: Job) -> None:
        """A job was read. A gang of plain pods has no object, and is read by `gangs`."""
        maker = job.manager or (name if names_another(job) else None)
        with self._lock:
            is_new = maker is not None and self._managers.get(name) != maker
            self._managers.pop(name, None)
            if maker is not None:
                self._managers[name] = maker
            if job.manager is not None and self._jobs.pop(name, None) is not None:
                self._news[name] = None
        if is_new:
            self._made_by(name, maker)
        if job.manager is not None:
            return
        seen = self._judged(job)
        with self._lock:
            before = self._jobs.get(name)
            if before != seen:
                self._jobs[name] = seen
                self._news[name] = None
        if before != seen:
            self._wake()

    def forget(self, name: JobName) -> None:
        """A job is not there any more."""
        manager = self._managers.get(name)
        if manager is not None or _is_of(JOB_SET, name):
            with self._sets_lock:
                self._sets.pop(name, None)
                if manager is not None:
                    self._put_child(name, manager, None)
        with self._lock:
            maker = self._managers.pop(name, None)
            self._made.pop(name, None)
            was_known = self._jobs.pop(name, None) is not None
            if was_known:
                self._news[name] = None
        if maker is not None:
            self._made_by(name, None)
        if was_known:
            self._wake()

    # Taken by the desk

    def take_news(self) -> dict[JobName, Seen | None]:
        """The jobs that have changed since the last call, None for one that is gone, in the order of their news."""
        with self._lock:
            news, self._news = self._news, {}
            return {name: self._jobs.get(name) for name in news}

    def tell_again(self) -> None:
        """All jobs are news, as something else says other things about them."""
        with self._lock:
            self._news |= dict.fromkeys(self._jobs)

    def everything(self) -> dict[JobName, Seen]:
        """All jobs, as they were seen last; the next news follow after them."""
        with self._lock:
            self._news.clear()
            return dict(self._jobs)

    def has_problem(self, name: JobName) -> bool:
        """Is it in no queue, for something that others may put right?"""
        seen = self._jobs.get(name)
        return seen is not None and bool(seen.problem)

    def _take(self, kind: Kind, item: Object) -> JobName:
        metadata: Mapping[str, Any] = item.get("metadata") or {}
        name = kind.name(str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        item.setdefault("apiVersion", kind.api_versions[0])  # items of a list lack these
        item.setdefault("kind", kind.kind)
        if kind is not JOB_SET:
            return self._take_read(name, item, self._read(item))
        with self._sets_lock:
            job = self._read(item, self._children.get(name, {}).values())
            if job is not None and job.state in (JobState.LET_GO, JobState.LEAVING):
                self._sets[name] = item
            else:
                self._sets.pop(name, None)
            return self._take_read(name, item, job)

    def _take_read(self, name: JobName, item: Object, job: Job | None) -> JobName:
        metadata: Mapping[str, Any] = item.get("metadata") or {}
        if job is None or (metadata.get("deletionTimestamp") and job.manager is None):
            self.forget(name)  # one on its way out makes no pods any more, and waits for nothing
            return name
        with self._lock:
            made = self._made.get(job.roles_in) if job.roles_in is not None else None
        if made is not None:
            job = replace(job, roles=made.roles, min_count=made.min_count)
        self.keep(name, job)
        if job.manager is not None and kinds.has_roles_elsewhere(job.manager):
            self._read_maker_again(name, job, job.manager)
        if job.manager is not None and _is_of(JOB_SET, job.manager) and _is_of(JOB, name):
            child = child_of(item, job)
            with self._sets_lock:
                needs_less = (child.spared or child.has_succeeded) and not metadata.get("deletionTimestamp")
                self._put_child(name, job.manager, child if needs_less else None)
        return name

    def _put_child(self, name: JobName, maker: JobName, child: Child | None) -> None:
        """A Job of a JobSet needs fewer pods, as this says; all of them if it is None."""
        children = self._children.setdefault(maker, {})
        before = children.pop(name, None)
        if child is not None:
            children[name] = child
        if not children:
            del self._children[maker]
        if before != child and maker in self._sets:
            self._take(JOB_SET, self._sets[maker])

    def _read(self, item: Object, children: Iterable[Child] = ()) -> Job | None:
        try:
            return kinds.read(item, children=tuple(children))
        except UserError as error:
            log.warning("a job cannot be read", extra={"fields": {"reason": error.message}})
        except Exception:
            log.exception("a job cannot be read")
        return None

    def _judged(self, job: Job) -> Seen:
        try:
            return Seen(_light(job), self._read_need(job))
        except UserError as error:
            return Seen(_light(job), None, error.message)
        except Exception:
            log.exception("the needs of a job cannot be read", extra={"fields": {"job": str(job.ref)}})
            return Seen(_light(job), None, NOT_UNDERSTOOD)

    def _read_maker_again(self, name: JobName, job: Job, maker: JobName) -> None:
        """A job that has its pods in this object can be read now."""
        with self._lock:
            self._made[name] = job
            seen = self._jobs.get(maker)
        if seen is not None and seen.job.roles_in == name:
            self.keep(maker, replace(seen.job, roles=job.roles, min_count=job.min_count))


def _light(job: Job) -> Job:
    """The job without its templates."""
    return replace(job, roles=())


def _is_of(kind: Kind, name: JobName) -> bool:
    return (name.group, name.kind) == (kind.group, kind.kind)
