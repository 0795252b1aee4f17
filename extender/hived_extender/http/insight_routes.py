"""The paths about jobs and nodes: why jobs wait, what would help, and what is free. Not for the event loop.

Names of other tenants' jobs are masked before anything is chosen by a name, so that no name can be found by guessing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from hived.values.errors import UserError
from hived_extender.api.waiting import MASKED, FreeCells, IfArgs, Job, Why
from hived_extender.http.answers import Answer, Question
from hived_extender.http.dumps import item_list, separated, tagged
from hived_extender.http.masking import Mask
from hived_extender.http.routing import Backend, number, query_of
from hived_extender.insight.answering import NOT_FOUND, View, unknown
from hived_extender.insight.queued import job_of, try_on_queued, why_queued
from hived_extender.jobs.kinds.gangs import KIND as GANG
from hived_extender.jobs.wire import decode_args, encode
from hived_extender.queues.answering import Wanted

Filters = Mapping[str, list[str]]

_CHOOSING: dict[str, Callable[[Job], Iterable[str]]] = {
    "vc": lambda job: (job.vc,),
    "state": lambda job: (job.state,),
    "user": lambda job: (job.user,),
    "namespace": lambda job: (job.namespace,),
    "node": lambda job: job.nodes,
}
"""By key of the query, the values of a job, one of which has to be one that is asked for."""

TEXT, QUEUED = "q", "queued"
JOB_KEYS = (*_CHOOSING, TEXT, QUEUED)


def jobs(backend: Backend, question: Question) -> Answer:
    """The jobs: waiting ones first, in the order in which they are served, each with its cause; then others by name."""
    filters = _filters(question, JOB_KEYS)
    view, mask = backend.insight.view(), backend.mask(question)
    at_s = view.snapshot.at
    shown = [mask.listed(one.job, view.certificates.get(one.job.name), at_s) for one in view.jobs]
    if QUEUED in filters:
        queued = jobs_in_queues(backend, mask, filters)
        gangs = {one.name.replace(GANG, "podgroup", 1) for one in queued}  # whose pods are there, with a gate
        shown = [one for one in shown if one.name not in gangs]
        waiting = sum(one.state in ("Waiting", "Preempting") for one in shown)
        shown[waiting:waiting] = queued
    return tagged(question, item_list(encode(job) for job in shown if _is_chosen(job, filters)))


def jobs_in_queues(backend: Backend, mask: Mask, filters: Filters) -> list[Job]:
    """The first jobs that wait in queues, without pods; as many as `queued` says, in the order of each queue."""
    queues = backend.queue_answers
    if queues is None or not queues.is_enabled:
        return []
    given = {name: filters.get(name, [""])[-1] for name in ("vc", "user", "namespace")}
    count = number(filters[QUEUED][-1], QUEUED, "a number of jobs, such as 100")
    seen = mask.seen(queues.namespaces())
    return [mask.job(job_of(one)) for one in queues.some_jobs(Wanted(is_waiting=True, **given), seen, 0, count)[1]]


def why(backend: Backend, question: Question) -> Answer:
    """Why a job waits: its certificate, with changes that would help, and when it starts."""
    try:
        view, mask = _view_of(backend, question, question.name)
    except UserError as error:
        if error.code != NOT_FOUND or (queued := why_in_queue(backend, question)) is None:
            raise
        return _one(question, queued)
    found = backend.insight.why(question.name)
    return _one(question, mask.why(found, view.snapshot.at, view.namespaces))


def try_changes(backend: Backend, question: Question) -> Answer:
    """Whether a waiting job would start with these changes. Nothing is changed."""
    args = decode_args(question.body, IfArgs)
    try:
        view, mask = _view_of(backend, question, args.name)
    except UserError as error:
        if error.code != NOT_FOUND or (tried := _tried_in_queue(backend, question, args)) is None:
            raise
        return tried
    found = backend.insight.try_changes(args.name, args.changes, mask.shows)
    namespace = view.find(args.name).namespace
    return Answer(encode(mask.outcome(found, view.snapshot.at, namespace, view.namespaces)))


def nodes(backend: Backend, question: Question) -> Answer:
    """The configured nodes with their jobs; with `?bad`, those that cannot be used, or not wholly."""
    is_bad = "bad" in _filters(question, ("bad",))
    view, found = backend.insight.nodes(is_bad=is_bad)
    mask = backend.mask(question)
    return _array(question, (encode(mask.node(node, view.namespaces)) for node in found))


def free_cells(backend: Backend, question: Question) -> Answer:
    """The cells of each level: promised, in use, lent, and free for jobs that start at once."""
    found: list[FreeCells] = backend.insight.free_cells()
    return _array(question, (encode(one) for one in found))


def why_in_queue(backend: Backend, question: Question) -> Why | None:
    """The same of a job that waits in a queue, without pods; None if there is none, or the caller may not see it."""
    queues, mask = backend.queue_answers, backend.mask(question)
    if queues is None:
        return None
    found = why_queued(queues, backend.insight, question.name, mask.seen(queues.namespaces()))
    if found is None:
        return None
    view = backend.insight.view()
    return mask.why(found, view.snapshot.at, view.namespaces)


def _tried_in_queue(backend: Backend, question: Question, args: IfArgs) -> Answer | None:
    queues, mask = backend.queue_answers, backend.mask(question)
    if queues is None:
        return None
    seen = mask.seen(queues.namespaces())
    found = try_on_queued(queues, backend.insight, args.name, seen, args.changes, mask.shows)
    if found is None:
        return None
    view = backend.insight.view()
    return Answer(encode(mask.outcome(found[0], view.snapshot.at, found[1], view.namespaces)))


def _view_of(backend: Backend, question: Question, name: str) -> tuple[View, Mask]:
    """The view and the mask, if the caller may see this job. Raises UserError (404), as for one that does not exist."""
    (view, listed), mask = backend.insight.find(name), backend.mask(question)
    if not mask.shows(listed.namespace):
        raise UserError(unknown(name), NOT_FOUND)
    return view, mask


def _filters(question: Question, known: Collection[str]) -> Filters:
    """The query by key, with states as they are spelt. Raises UserError for a key that means nothing here."""
    found = query_of(question, known)
    if "state" in found:
        found["state"] = [state.capitalize() for state in found["state"]]
    return found


def _is_chosen(job: Job, filters: Filters) -> bool:
    for key, values_of in _CHOOSING.items():
        if key in filters and set(filters[key]).isdisjoint(values_of(job)):
            return False
    words = " ".join(filters.get(TEXT, ())).lower().split()
    if not words:
        return True
    text = " ".join((job.name, job.namespace, job.user, job.vc, job.state, job.sentence, *job.pods, *job.nodes)).lower()
    return job.name != MASKED and all(word in text for word in words)


def _array(question: Question, items: Iterable[bytes]) -> Answer:
    return tagged(question, [b"[", *separated(items), b"]"])


def _one(question: Question, value: Any) -> Answer:
    return tagged(question, [encode(value)])
