"""The paths of queues. Names of other tenants' jobs are masked, as everywhere."""

from collections.abc import Mapping

import msgspec

from hived.values.errors import UserError
from hived_extender.api.queues import QueueArgs, QueueList
from hived_extender.http.answers import Answer, Question
from hived_extender.http.change_rights import QueueChanges
from hived_extender.http.dumps import item_list, tagged
from hived_extender.http.insight_routes import wanted_of, with_caller
from hived_extender.http.routing import Backend, number, query_of
from hived_extender.insight.queued import with_counts
from hived_extender.jobs.wire import decode_args, encode
from hived_extender.queues.answering import Wanted

LIST_KEYS = ("limit", "continue", "vc", "user", "me", "namespace", "prefix", "selector", "waiting")


class Asked(msgspec.Struct, frozen=True):
    """A question for jobs: which ones, from which one on, and how many; None for all."""

    wanted: Wanted
    start: int = 0
    limit: int | None = None


def queues(backend: Backend, question: Question) -> Answer:
    """The queues: how many jobs wait, run and borrow in each, and what it uses."""
    return tagged(question, [encode(QueueList(backend.queues.queues()))])


def jobs(backend: Backend, question: Question) -> Answer:
    """The jobs of a queue, or a part of them: those that wait in their order with their reasons, then the others."""
    asked = _asked(question)
    mask = backend.mask(question)
    seen = mask.seen(backend.queues.namespaces())
    total, found = backend.queues.some_jobs(asked.wanted, seen, asked.start, asked.limit)
    found = with_counts(found, backend.answering, mask.listed)
    end = asked.start + len(found)
    more = b',"total":%d,"continue":"%s"' % (total, b"%d" % end if found and end < total else b"")
    return tagged(question, item_list((encode(mask.queued(one)) for one in found), more))


def job(backend: Backend, question: Question) -> Answer:
    """A job in its queue: its place, its state and the reason."""
    mask = backend.mask(question)
    found = backend.queues.job(question.name, mask.seen(backend.queues.namespaces()))
    if found is None:
        raise UserError(f"no job {question.name!r} is in a queue", 404)
    return Answer(encode(with_counts([found], backend.answering, mask.listed)[0]))


def act(backend: Backend, question: Question) -> Answer:
    """Hold a job, release it, or give it another place in its queue."""
    if question.is_from_page:  # browsers let any page post to a loopback address
        raise UserError("a page in a browser may not change queues: it says Origin", 403)
    changes = QueueChanges(backend.queues, backend.config_desk)
    args = decode_args(question.body, QueueArgs)
    if args.action == "move" and not args.to:
        raise UserError('"to" is missing: a move expects "front", "back", or the name of the job that it goes before')
    return Answer(encode(changes.make(args, question.caller, backend.mask(question))))


def _asked(question: Question) -> Asked:
    """The jobs of one queue, or of all, that a query chooses. Raises UserError (400)."""
    filters = with_caller(query_of(question, LIST_KEYS), question)
    given = {name: texts[-1] for name, texts in filters.items()}
    wanted = wanted_of(filters, question.name, prefix=given.get("prefix", ""), is_waiting="waiting" in given)
    limit = _given(given, "limit", "a number of jobs, such as 500")
    start = _given(given, "continue", 'the "continue" of the answer before')
    if limit == 0:
        raise UserError("limit=0: expected a number of jobs, such as 500; without a limit all are told")
    return Asked(wanted, start or 0, limit)


def _given(given: Mapping[str, str], name: str, expected: str) -> int | None:
    text = given.get(name, "")
    return number(text, name, expected) if text else None
