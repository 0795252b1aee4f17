"""The paths about jobs and nodes: why jobs wait, what would help, and what is free. Not for the event loop.

Names of other tenants' jobs are masked before anything is chosen by a name, so that nobody finds a name by guessing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs

from hived.errors import UserError
from hived_extender.api.waiting import MASKED, FreeCells, IfArgs, Job
from hived_extender.http.answers import Answer, Question
from hived_extender.http.dumps import item_list, separated, tagged
from hived_extender.http.masking import Mask
from hived_extender.http.routing import Backend
from hived_extender.insight.answering import NOT_FOUND, View, unknown
from hived_extender.pods.wire import decode_args, encode

Filters = Mapping[str, list[str]]

_CHOOSING: dict[str, Callable[[Job], Iterable[str]]] = {
    "vc": lambda job: (job.vc,),
    "state": lambda job: (job.state,),
    "user": lambda job: (job.user,),
    "namespace": lambda job: (job.namespace,),
    "node": lambda job: job.nodes,
}
"""By key of the query, the values of a job, one of which has to be one that is asked for."""

TEXT = "q"
JOB_KEYS = (*_CHOOSING, TEXT)


def jobs(backend: Backend, question: Question) -> Answer:
    """The jobs: waiting ones first, in the order in which they are served, each with its cause; then others by name."""
    filters = _filters(question, JOB_KEYS)
    view, mask = backend.insight.view(), backend.mask(question)
    at_s = view.snapshot.at
    shown = (mask.listed(one.job, view.certificates.get(one.job.name), at_s) for one in view.jobs)
    return tagged(question, item_list(encode(job) for job in shown if _is_chosen(job, filters)))


def why(backend: Backend, question: Question) -> Answer:
    """Why a job waits: its certificate, with changes that would help, and when it starts."""
    view, mask = _view_of(backend, question, question.name)
    found = backend.insight.why(question.name)
    return _one(question, mask.why(found, view.snapshot.at, view.namespaces))


def try_changes(backend: Backend, question: Question) -> Answer:
    """Whether a waiting job would start with these changes. Nothing is changed."""
    args = decode_args(question.body, IfArgs)
    view, mask = _view_of(backend, question, args.name)
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


def _view_of(backend: Backend, question: Question, name: str) -> tuple[View, Mask]:
    """The view and the mask, if the caller may see this job. Raises UserError (404), as for one that does not exist."""
    (view, listed), mask = backend.insight.find(name), backend.mask(question)
    if not mask.shows(listed.namespace):
        raise UserError(unknown(name), NOT_FOUND)
    return view, mask


def _filters(question: Question, known: Iterable[str]) -> Filters:
    """The query by key, with states as they are spelt. Raises UserError for a key that means nothing here."""
    found = parse_qs(question.query, keep_blank_values=True)
    if "state" in found:
        found["state"] = [state.capitalize() for state in found["state"]]
    if wrong := sorted(found.keys() - set(known)):
        raise UserError(f"{wrong[0]!r} means nothing here; the query may have {', '.join(known)}")
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
