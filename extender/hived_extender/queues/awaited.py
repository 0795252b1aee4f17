"""Jobs that others wait for and that no watch has told of: the API server says whether they are there (rule 24.16).

Each kind has a watch of its own, which may be behind that of the job that waits; jobs that another job made, or that
cannot be read, are in no table; and hived may be allowed to read an object that it may not list. So a job is gone only
if the API server says so. It is asked off the lock, about a few jobs at once, later each time while nothing changes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.job import Job, JobName, JobState
from hived_extender.jobs.kinds import gangs, table
from hived_extender.jobs.kinds.kind import path_of
from hived_extender.jobs.starts import Awaited, is_seen
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import Backoff
from hived_extender.queues.watched import WatchedJobs

QUESTIONS = 20
"""Jobs that the API server is asked about in one go."""

MOST_GONE = 10_000
"""Jobs that are known to be gone, the latest ones."""

NOT_YET = "which is not there yet"
_UNSEEN = "of which hived has not heard yet"
_UNREAD = "which hived cannot read"

log = logging.getLogger(__name__)

Question = tuple[JobName, str]
"""A job and its uid."""


class Answer(msgspec.Struct, frozen=True):
    """The API server's answer about a job: `why` it may be there, "" if it is gone; and the job if it has ended."""

    why: str
    ended: Job | None = None


class AwaitedJobs:
    """The jobs that are followed, and what is known of others that are waited for: a `starts.Jobs`.

    Only `ask` may be called off the lock.
    """

    def __init__(self, jobs: WatchedJobs) -> None:
        self._jobs = jobs
        self._gone: dict[Question, None] = {}
        self._unseen: dict[Question, tuple[str, Backoff]] = {}
        self._wanted: dict[Question, None] = {}

    def job_of(self, name: JobName) -> Job | None:
        """See `starts.Jobs`."""
        return self._jobs.job_of(name)

    def maker_of(self, name: JobName) -> JobName | None:
        """See `starts.Jobs`."""
        return self._jobs.maker_of(name)

    def end_of(self, name: JobName, uid: str) -> JobState | None:
        """See `starts.Jobs`."""
        return self._jobs.end_of(name, uid)

    def unseen(self, name: JobName, uid: str) -> str:
        """See `starts.Jobs`."""
        if not uid:
            return NOT_YET
        return "" if (name, uid) in self._gone else self._unseen.get((name, uid), (_UNSEEN,))[0]

    def want(self, job: Job, left: Iterable[Awaited]) -> None:
        """A job waits for these: have the API server asked about those that are not seen."""
        for one in left:
            if one.uid and not is_seen(one, job, self):
                self._wanted[one.job_name(job.ref.namespace), one.uid] = None

    def take_questions(self, now: float) -> list[Question]:
        """The next questions, about jobs that are wanted since the last call; what is known of others is dropped."""
        wanted, self._wanted = self._wanted, {}
        self._unseen = {each: known for each, known in self._unseen.items() if each in wanted}
        due = [each for each in wanted if each not in self._gone and self._is_due(each, now)]
        return due[:QUESTIONS]

    def _is_due(self, question: Question, now: float) -> bool:
        known = self._unseen.get(question)
        return known is None or known[1].at_s <= now

    def take_answers(self, answers: Mapping[Question, Answer], now: float) -> None:
        """Take in the results of `ask`."""
        for question, answer in answers.items():
            if answer.ended is not None:
                self._jobs.keep_end(answer.ended)
            if answer.why:
                _, backoff = self._unseen.pop(question, ("", Backoff()))
                backoff.failed(now)
                self._unseen[question] = answer.why, backoff
            else:
                self._gone[question] = None
                if len(self._gone) > MOST_GONE:
                    del self._gone[next(iter(self._gone))]


def ask(kube: KubeClient, questions: Iterable[Question]) -> dict[Question, Answer]:
    """Ask the API server whether jobs are there. Raises nothing: an object that trips a bug leaves the others alone."""
    found, pods_in = {}, cache(partial(_pods_in, kube))
    for name, uid in questions:
        try:
            found[name, uid] = _ask(kube, name, uid, pods_in)
        except KubeError as error:
            found[name, uid] = Answer(
                f"of which the API server does not say whether it is there ({error.reason or error.status})"
            )
        except Exception:
            log.exception("a job that is waited for cannot be read", extra={"fields": {"job": str(name)}})
            found[name, uid] = Answer(_UNREAD)
    return found


def _pods_in(kube: KubeClient, namespace: str) -> list[Pod]:
    return kube.list_objects(path_of("v1", "pods", namespace), Pod).items


def _ask(kube: KubeClient, name: JobName, uid: str, pods_in: Callable[[str], list[Pod]]) -> Answer:
    """Raises KubeError."""
    if (name.group, name.kind) == ("", gangs.KIND):
        pods = [pod for pod in pods_in(name.namespace) if gangs.gang_of(pod) == name]
        return Answer(_UNSEEN if any(uid in gangs.uids_of(pod) for pod in pods) else "")
    kind = table.kind_called(name.group, name.kind)
    if kind is None:
        return Answer("of a kind that hived does not follow")
    for version in kind.api_versions:
        try:
            item = kube.get(path_of(version, kind.plural, name.namespace, name.name))
        except KubeError as error:
            if error.is_not_found:
                continue
            raise
        return _answer({"apiVersion": version, "kind": kind.kind, **item}, uid)
    return Answer("")


def _answer(item: dict[str, Any], uid: str) -> Answer:
    metadata = item.get("metadata") or {}
    if metadata.get("uid") != uid:
        return Answer("")
    is_leaving = bool(metadata.get("deletionTimestamp"))
    try:
        job = table.read(item)
    except UserError:  # its watch says in the log how it cannot be read
        return Answer("" if is_leaving else _UNREAD)
    return Answer("" if is_leaving else _UNSEEN, job if job.state.is_over else None)
