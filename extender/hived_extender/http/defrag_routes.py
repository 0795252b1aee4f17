"""The paths of defragmentation: the inputs of a plan, carrying one out, and how far that has come."""

from hived.values.errors import UserError
from hived_extender.api.defrag import DefragArgs
from hived_extender.http.answers import Answer, Question
from hived_extender.http.routing import Backend
from hived_extender.pods.wire import decode_args, encode


def inputs(backend: Backend, question: Question) -> Answer:
    """All that a plan for defragmentation depends on. Nothing is changed."""
    backend.refuse_strangers(question, "the input of a plan")
    return Answer(encode(backend.defrag.inputs()))


def moves(backend: Backend, question: Question) -> Answer:
    """The moves under way, or the last ones."""
    return Answer(encode(backend.mask(question).moves(backend.defrag.report())))


def apply(backend: Backend, question: Question) -> Answer:
    """Carry out a plan for defragmentation, if it still holds."""
    who = _who(backend, question)
    return Answer(encode(backend.defrag.apply(decode_args(question.body, DefragArgs), who)))


def stop(backend: Backend, question: Question) -> Answer:
    """Move nobody else, and give back what is held."""
    return Answer(encode(backend.defrag.stop_moving(_who(backend, question))))


def _who(backend: Backend, question: Question) -> str:
    """The name of the caller, who has the right to change the configuration. Raises UserError (403)."""
    if question.is_from_page:  # browsers let any page post to a loopback address, and show it a client certificate
        raise UserError("a page in a browser may not move groups: it says Origin", 403)
    return backend.config_pushes.name_of(question.caller, "move groups")
