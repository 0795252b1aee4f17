"""The table of routes: a path, the function that answers it, the JSON over it, its rights; and OpenAPI made from it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeAlias, TypedDict
from urllib.parse import parse_qs

import msgspec

from hived.values.errors import UserError
from hived_extender.api.configuration import Refusal
from hived_extender.api.waiting import Job
from hived_extender.http.access import Gate
from hived_extender.http.answers import Answer, Question
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.http.masking import Mask, Masking
from hived_extender.insight.answering import Answering
from hived_extender.insight.defrag.desk import DefragDesk
from hived_extender.insight.history import HistoryRings
from hived_extender.insight.overview import Overview
from hived_extender.kube.client import KubeClient
from hived_extender.machine.service import Service
from hived_extender.queues.answering import QueueAnswers

MOST_DIGITS = 9


def query_of(question: Question, known: Collection[str]) -> dict[str, list[str]]:
    """The query by key. Raises UserError (400) for a key that means nothing here."""
    found = parse_qs(question.query, keep_blank_values=True)
    if wrong := sorted(found.keys() - set(known)):
        raise UserError(f"{wrong[0][:40]!r} means nothing here; the query may have {', '.join(known)}")
    return found


def number(text: str, name: str, expected: str) -> int:
    """A number of a query. Raises UserError (400), which says what was `expected` of this key."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise UserError(f"{name}={text[:40]!r}: expected {expected}")
    return int(text)


class Backend(msgspec.Struct, frozen=True):
    """A service, the pushes of its configurations, its plans for moves, and its answers about jobs; without one of
    these, its paths do not exist. `past` is its history, None where it keeps none. `masking` hides names of other
    tenants' jobs. `as_bearer` gives the API server as the bearer of a token sees it, `as_anyone` one that lets
    everybody do everything. `unwatched_jobs` lists the jobs that the service does not watch and a viewer may read.
    """

    service: Service
    config_desk: ConfigPushes | None = None
    defrag_desk: DefragDesk | None = None
    past: HistoryRings | None = None
    answering: Answering | None = None
    masking: Masking | None = None
    queue_answers: QueueAnswers | None = None
    as_bearer: Callable[[str], KubeClient] | None = None
    state: Overview | None = None
    as_anyone: Callable[[], KubeClient] | None = None
    unwatched_jobs: Callable[[KubeClient], list[Job]] | None = None

    @property
    def overview(self) -> Overview:
        """The state of the whole service, on a path that exists only with it."""
        assert self.state is not None
        return self.state

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
        """The view of the caller of a question: everything where callers are not known."""
        return (self.masking or Masking(Gate())).of(question.caller)

    def refuse_strangers(self, question: Question, what: str) -> None:
        """An answer that names jobs of all namespaces is for callers who may see these. Raises UserError (403)."""
        if not self.mask(question).shows_all:
            raise UserError(
                f"{what} names jobs of all namespaces: this needs a role that allows 'get' on all pods", 403
            )

    @property
    def history(self) -> HistoryRings:
        """The history. Raises UserError (404) if there is none."""
        if self.past is None:
            raise UserError("this service keeps no history", 404)
        return self.past


Handler: TypeAlias = Callable[[Backend, Question], Answer]
"""Answers one request; raises HivedError."""


class Role(Enum):
    """The callers of a path."""

    ALL = "any caller"
    SCHEDULER = "kube-scheduler, by its certificate"
    VIEWER = "`hived-viewer`"
    OWNER = "`hived-viewer`, and `update` on the configuration; to hold and release, `update` on the job"
    PUSHER = "`hived-viewer`, and `update` on the configuration"


class Names(Enum):
    """The treatment of names of jobs whose pods a caller may not get."""

    NONE = "has no names of jobs"
    MASKED = "masked"
    REFUSED = "403 without `get` on all pods"
    REPORT = "masked, unless the caller may push"
    SHOWN = "shown"


class Rights(TypedDict):
    """The rights on a path, for a `Route`."""

    role: Role
    names: Names


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
    role : the callers of the path
    names : the names of other tenants' jobs in its answers
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
    role: Role = Role.VIEWER
    names: Names = Names.NONE

    @property
    def summary(self) -> str:
        """The first words on the path, in OpenAPI and in the documentation."""
        return (self.handler.__doc__ or "").strip()


def rights_table(routes: Iterable[Route]) -> str:
    """The table of rights in the documentation."""
    rows = [f"| `{one.method} {one.path}` | {one.role.value} | {one.names.value} |" for one in routes]
    return "\n".join(["| path | role | names of other tenants' jobs |", "|---|---|---|", *rows])


_REF = "#/components/schemas/{name}"
_TEXT = {"type": "string"}


def openapi_document(version: str, routes: Sequence[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes."""
    bodies = [body for route in routes for body in (route.takes, route.gives) if body is not None]
    schemas, components = msgspec.json.schema_components([*bodies, Refusal], ref_template=_REF)
    components["FilterArgs"]["properties"]["NodeNames"] = {"type": "array", "items": _TEXT}
    schema_of = {repr(body): schema for body, schema in zip(bodies, schemas, strict=False)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "HiveD scheduler extender", "version": version, "license": {"name": "MIT"}},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    if route.gives is None:
        content: dict[str, Any] = {"text/plain": {"schema": _TEXT}}
    else:
        content = _json(schema_of[repr(route.gives)])
    answers = {"200": {"description": "The answer.", "content": content}}
    for status in route.fails_alike:
        answers[str(status)] = {"description": "Not now.", "content": content}
    for status in route.errors:
        answers[str(status)] = {"description": "What is wrong.", "content": _json(_TEXT)}
    for status in route.refusals:
        answers[str(status)] = {"description": "Refused.", "content": _json({"$ref": _REF.format(name="Refusal")})}
    operation: dict[str, Any] = {"summary": route.summary, "responses": answers}
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": _json(schema_of[repr(route.takes)])}
    parameters = [{"name": key, "in": "query", "required": False, "schema": _TEXT} for key in route.query]
    if "{name}" in route.path:
        parameters = [{"name": "name", "in": "path", "required": True, "schema": _TEXT}, *parameters]
    if parameters:
        operation["parameters"] = parameters
    return operation


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
