"""The table of routes: a path, the function that answers it from the parts of a replica, and the JSON over it."""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from hived.values.errors import UserError
from hived_extender.defrag.desk import DefragDesk
from hived_extender.http.access import Gate
from hived_extender.http.answers import Answer, Question
from hived_extender.http.config_pushes import ConfigPushes
from hived_extender.http.masking import Mask, Masking
from hived_extender.insight.answering import Answering
from hived_extender.insight.history import HistoryRings
from hived_extender.queues.answering import QueueAnswers
from hived_extender.service.service import Service


class Backend(msgspec.Struct, frozen=True):
    """A service, the pushes of its configurations, its plans for moves, and its answers about jobs; without one of
    these, its paths do not exist. `past` is its history, None where it keeps none. `masking` hides names of other
    tenants' jobs.
    """

    service: Service
    config_desk: ConfigPushes | None = None
    defrag_desk: DefragDesk | None = None
    past: HistoryRings | None = None
    answering: Answering | None = None
    masking: Masking | None = None
    queue_answers: QueueAnswers | None = None

    @property
    def config_pushes(self) -> ConfigPushes:
        """The pushes, on paths that exist only with one."""
        assert self.config_desk is not None
        return self.config_desk

    @property
    def defrag(self) -> DefragDesk:
        """The plans for moves, on paths that exist only with them."""
        assert self.defrag_desk is not None
        return self.defrag_desk

    @property
    def queues(self) -> QueueAnswers:
        """The answers about queues, on paths that exist only with them."""
        assert self.queue_answers is not None
        return self.queue_answers

    @property
    def insight(self) -> Answering:
        """The answers about jobs, on paths that exist only with them."""
        assert self.answering is not None
        return self.answering

    def mask(self, question: Question) -> Mask:
        """What the caller of a question may see: everything where nobody is asked who they are."""
        return (self.masking or Masking(Gate())).of(question.caller)

    def refuse_strangers(self, question: Question, what: str) -> None:
        """An answer that names jobs of all namespaces is for callers who may see these. Raises UserError (403)."""
        if not self.mask(question).shows_all:
            raise UserError(f"{what} names jobs of all namespaces: it takes a role that allows 'get' on all pods", 403)

    @property
    def history(self) -> HistoryRings:
        """The history. Raises UserError (404) if there is none."""
        if self.past is None:
            raise UserError("this service keeps no history", 404)
        return self.past


Handler: TypeAlias = Callable[[Backend, Question], Answer]
"""Answers one request; raises HivedError."""


class Route(msgspec.Struct, frozen=True):
    """A path as OpenAPI writes it; `{name}` stands for the whole rest of the path, slashes included.

    Attributes
    ----------
    gives : the type of the answer as msgspec describes it; None for plain text
    takes : the type of the body; None where the path needs no body
    errors : statuses that are answered with a JSON string
    refusals : statuses that are answered with a `Refusal`
    fails_alike : statuses that are answered in the form of `gives`
    query : keys that may stand behind the path
    """

    method: str
    path: str
    handler: Handler
    gives: Any = None
    takes: type[Any] | None = None
    errors: tuple[int, ...] = ()
    refusals: tuple[int, ...] = ()
    fails_alike: tuple[int, ...] = ()
    query: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first words on the path, in OpenAPI and in the documentation."""
        return (self.handler.__doc__ or "").strip()
