"""The paths of queues. Names of other tenants' jobs are masked, as everywhere."""

from hived.errors import UserError
from hived_extender.api.queues import QueueArgs, QueuedJobs, QueueList
from hived_extender.http.answers import Answer, Question
from hived_extender.http.routing import Backend
from hived_extender.pods.wire import decode_args, encode


def queues(backend: Backend, question: Question) -> Answer:
    """The queues: how many jobs wait, run and borrow in each, and what it uses."""
    return Answer(encode(QueueList(backend.queues.queues())))


def jobs(backend: Backend, question: Question) -> Answer:
    """The jobs of a queue: those that wait in their order with their reasons, then the others."""
    mask = backend.mask(question)
    found = backend.queues.jobs(question.name, mask.seen(backend.queues.namespaces()))
    return Answer(encode(QueuedJobs([mask.queued(one) for one in found])))


def job(backend: Backend, question: Question) -> Answer:
    """A job in its queue: its place, its state and the reason."""
    found = backend.queues.job(question.name, backend.mask(question).seen(backend.queues.namespaces()))
    if found is None:
        raise UserError(f"no job {question.name!r} is in a queue", 404)
    return Answer(encode(found))


def act(backend: Backend, question: Question) -> Answer:
    """Hold a job, release it, or give it another place in its queue."""
    if question.is_from_page:  # browsers let any page post to a loopback address
        raise UserError("a page in a browser may not change queues: it says Origin", 403)
    backend.config_pushes.name_of(question.caller)
    return Answer(encode(backend.queues.act(decode_args(question.body, QueueArgs))))
