"""The paths about jobs and nodes: why jobs wait, what would help, and what is free. Not for the event loop.

Names of other tenants' jobs are masked before anything is chosen by a name, so that no name can be found by guessing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_config.selectors import Selector, matches, read_selector
from hived_extender.api.waiting import MASKED, FreeCells, IfArgs, Job, Why
from hived_extender.http.answers import Answer, Question
from hived_extender.http.dumps import item_list, separated, tagged
from hived_extender.http.masking import Mask
from hived_extender.http.routing import Backend, number, query_of
from hived_extender.insight.answering import NOT_FOUND, View, unknown
from hived_extender.insight.holding import nodes_meeting
from hived_extender.insight.listing import ListedJob, held_as, members_of, with_queued
from hived_extender.insight.queued import jobs_without_rows, try_on_queued, why_queued
from hived_extender.jobs.progress import read_duration
from hived_extender.jobs.wire import decode_args, encode
from hived_extender.queues.answering import Wanted

Filters = Mapping[str, list[str]]


def states_of(job: Job) -> tuple[str, ...]:
    """The states by which a job is found: one for which others leave waits, and one that waits in part runs as well."""
    waits = ("Waiting",) if job.state == "Preempting" else ()
    runs = ("Running",) if job.state in ("Waiting", "Preempting", "Held") and job.counts.running else ()
    return job.state, *waits, *runs


_CHOOSING: dict[str, Callable[[Job], Iterable[str]]] = {
    "vc": lambda job: (job.vc,),
    "state": states_of,
    "user": lambda job: (job.user,),
    "namespace": lambda job: (job.namespace,),
    "node": lambda job: job.nodes,
}
"""By key of the query, the values of a job, one of which has to be one that is asked for."""

TEXT, QUEUED, PODS, ENDED, ME, SELECTOR, NEW = "q", "queued", "pods", "ended", "me", "selector", "new"
DRAINED = "drained"
JOB_KEYS = (*_CHOOSING, TEXT, QUEUED, PODS, ENDED, ME, SELECTOR, NEW)
NODE_KEYS = ("bad", SELECTOR, DRAINED)


def jobs(backend: Backend, question: Question) -> Answer:
    """The jobs: waiting ones first, in the order in which they are served, each with its cause; then others by name."""
    filters = with_caller(_filters(question, JOB_KEYS), question)
    if ENDED in filters:
        if _selector(filters):
            raise UserError(f"{SELECTOR} and {ENDED} exclude each other: no labels of ended jobs are kept")
        shown = ended_jobs(backend, backend.mask(question), filters[ENDED][-1])
        return tagged(question, item_list(encode(job) for job in shown if _is_chosen(job, filters)))
    shown = rows_of(backend, backend.mask(question), filters)
    return tagged(question, item_list(encode(job) for job in shown if _is_chosen(job, filters)))


def rows_of(backend: Backend, mask: Mask, filters: Filters) -> list[Job]:
    """The rows of all jobs, as a caller sees them; labels, pods and jobs of queues as the query asks for them."""
    view, selector = backend.insight.view(is_new=NEW in filters), _selector(filters)
    at_s = view.snapshot.at
    listed = [one for one in view.jobs if not selector or _meets(one, selector, mask)]
    jobs = [_opened(view, one) for one in listed] if PODS in filters else [one.job for one in listed]
    shown = [mask.listed(job, one.certificate, at_s) for job, one in zip(jobs, listed, strict=True)]
    if QUEUED in filters:
        shown = with_queued(listed, shown, jobs_in_queues(backend, mask, filters))
    return shown


def with_caller(filters: Filters, question: Question) -> Filters:
    """The query, with `me` as users: what the caller calls itself, and its name as the API server knows it.

    Raises UserError if neither is known.
    """
    if ME not in filters:
        return filters
    known = [name for name in filters[ME] if name] + ([question.caller.name] if question.caller is not None else [])
    if not known:
        raise UserError("me='': expected a user, as nobody knows who asks")
    return {**filters, "user": [*filters.get("user", ()), *known]}


def wanted_of(filters: Filters, queue: str = "", *, prefix: str = "", is_waiting: bool = False) -> Wanted:
    """The jobs of queues that a query chooses. Raises UserError (400)."""
    vcs, users, namespaces = ([*filter(None, filters.get(name, ()))] for name in ("vc", "user", "namespace"))
    return Wanted(queue, vcs, users, namespaces, prefix, is_waiting, _selector(filters))


def _selector(filters: Filters) -> Selector:
    """The labels that are asked for, of all keys together. Raises UserError (400)."""
    return tuple(each for text in filters.get(SELECTOR, ()) for each in read_selector(text))


def _meets(listed: ListedJob, selector: Selector, mask: Mask) -> bool:
    """Are the labels of a job known, shown to the caller, and those that are asked for?"""
    return listed.labels is not None and matches(selector, listed.labels) and mask.shows(listed.job.namespace)


def _opened(view: View, listed: ListedJob) -> Job:
    """A job with its pods one by one."""
    return replace(listed.job, members=members_of(view.snapshot, listed))


def ended_jobs(backend: Backend, mask: Mask, since: str) -> list[Job]:
    """The jobs that ended within a length of time such as 1d, "" for all that are known; the latest first.

    Raises UserError (400).
    """
    now_s = backend.insight.view().snapshot.at
    try:
        since_s = now_s - read_duration(since) if since else 0.0
    except UserError as error:
        raise UserError(f"{ENDED}: {error.message}") from None
    return [mask.listed(job, None, now_s) for job in backend.insight.ended(since_s)]


def jobs_in_queues(backend: Backend, mask: Mask, filters: Filters) -> list[Job]:
    """The first jobs of queues without pods; as many as `queued` says, in the order of each queue."""
    queues = backend.queue_answers
    if queues is None or not queues.is_enabled:
        return []
    count = number(filters[QUEUED][-1], QUEUED, "a number of jobs, such as 100")
    seen, view = mask.seen(queues.namespaces()), backend.insight.view()
    return [mask.job(job) for job in jobs_without_rows(queues, view, wanted_of(filters), seen, count)]


def why(backend: Backend, question: Question) -> Answer:
    """Return why a job waits: its certificate, with changes that would help, and when it starts."""
    try:
        view, mask = _view_of(backend, question, question.name)
    except UserError as error:
        if error.code != NOT_FOUND:
            raise
        known = why_in_queue(backend, question) or why_ended(backend, question)
        if known is None:
            raise
        return _one(question, known)
    found = _why_gated(backend, question.name, mask) or backend.insight.why(question.name)
    return _one(question, mask.why(found, view.snapshot.at, view.namespaces))


def _why_gated(backend: Backend, name: str, mask: Mask) -> Why | None:
    """Return why a job waits whose pods are there, and wait in a queue behind our gate; None of any other."""
    queues = backend.queue_answers
    if queues is None or not queues.is_enabled:
        return None
    _, listed = backend.insight.find(name)
    seen, first = mask.seen(queues.namespaces()), queues.first_of(listed.queues_as)
    found = why_queued(queues, backend.insight, first, seen) if first else None
    return None if found is None else replace(found, job=held_as(listed.job, found.job))


def try_changes(backend: Backend, question: Question) -> Answer:
    """Answers if a waiting job would start with these changes. Changes nothing."""
    args = decode_args(question.body, IfArgs)
    try:
        view, mask = _view_of(backend, question, args.name)
    except UserError as error:
        if error.code != NOT_FOUND or (tried := _tried_in_queue(backend, question, args)) is None:
            raise
        return tried
    found = backend.insight.try_changes(args.name, args.changes, mask.shows)
    namespace = view.namespaces.get(args.name, "")
    return Answer(encode(mask.outcome(found, view.snapshot.at, namespace, view.namespaces)))


def nodes(backend: Backend, question: Question) -> Answer:
    """The configured nodes with their jobs; with `?bad`, those that cannot be used, or not wholly.

    With `?drained=NODE` that one alone, and what the jobs on it would do if it were drained.
    """
    filters = _filters(question, NODE_KEYS)
    selector = _selector(filters)
    if DRAINED in filters:
        view, node = backend.insight.drained(filters[DRAINED][-1])
        return _array(question, [encode(backend.mask(question).node(node, view.namespaces))])
    view, found = backend.insight.nodes(is_bad="bad" in filters)
    if selector:
        chosen = nodes_meeting(backend.service, selector)
        found = [one for one in found if one.node in chosen]
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


def why_ended(backend: Backend, question: Question) -> Why | None:
    """The same of a job that has ended; None if none is known, or the caller may not see it."""
    found, mask = backend.insight.ended_job(question.name), backend.mask(question)
    if found is None or not mask.shows(found.namespace):
        return None
    return mask.why(Why(job=found), backend.insight.view().snapshot.at, {})


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
    if not mask.shows(listed.job.namespace):
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
    names = job.name, *job.aliases, *job.pods, *job.nodes
    text = " ".join((*names, job.namespace, job.user, job.vc, job.state, job.sentence)).lower()
    return job.name != MASKED and all(word in text for word in words)


def _array(question: Question, items: Iterable[bytes]) -> Answer:
    return tagged(question, [b"[", *separated(items), b"]"])


def _one(question: Question, value: Any) -> Answer:
    return tagged(question, [encode(value)])
