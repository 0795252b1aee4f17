"""The Flask application: every path, working alone under the test client or any WSGI server (`hived_cli.wsgi`).

Under `hived serve` the shim (`shim.py`) stands before it and answers the hot verbs itself, from the same functions and
behind the same gate. Alone it refuses the same browsers and bodies, and its verbs wait for the same things, each on the
thread of its call.
"""

import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress

from flask import Flask, Response, current_app, g, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import PathConverter

from hived.values.errors import UserError
from hived_extender.api.paths import (
    CONFIG_PATH,
    DEFRAG_PATH,
    INPUTS_PATH,
    MOVES_PATH,
    QUEUE_PATHS,
    STATUS_PATH,
)
from hived_extender.api.waiting import Job
from hived_extender.http.access import CALLER, GATE, Call, Gate, browser_refusal, gate_of, refused
from hived_extender.http.answers import JSON, PREMATURE_WAIT_S, Answer, Question
from hived_extender.http.bodies import BODY_LIMIT, CLOSE
from hived_extender.http.browsers import shown
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.http.masking import Masking
from hived_extender.http.pages.blueprint import accepted, front_page, pages, wants_page
from hived_extender.http.pages.site import FRAGMENT, Site
from hived_extender.http.routes import ROUTES, answer, bind_call, explain, limit_of
from hived_extender.http.routing import Backend, Handler
from hived_extender.insight.answering import Answering
from hived_extender.insight.defrag.desk import DefragDesk
from hived_extender.insight.history import HistoryRings
from hived_extender.insight.overview import Overview
from hived_extender.jobs.wire import BindArgs, decode_args, encode
from hived_extender.kube.client import KubeClient
from hived_extender.machine.acceptance import HELD_S
from hived_extender.machine.service import Service
from hived_extender.queues.answering import QueueAnswers


class _RestOfPath(PathConverter):
    """Any text at all: names of affinity groups may contain, begin or end with slashes."""

    regex = ".+"
    part_isolating = False


def create_app(
    service: Service,
    gate: Gate | None = None,
    config_pushes: ConfigPushes | None = None,
    defrag: DefragDesk | None = None,
    history: HistoryRings | None = None,
    insight: Answering | None = None,
    queues: QueueAnswers | None = None,
    as_bearer: Callable[[str], KubeClient] | None = None,
    overview: Overview | None = None,
    *,
    as_anyone: Callable[[], KubeClient] | None = None,
    unwatched_jobs: Callable[[KubeClient], list[Job]] | None = None,
) -> Flask:
    """An application that serves `service` to callers whom `gate` lets in; without one, to all callers. Cheap.

    `config_pushes` answers for its configuration, `defrag` for moves, `queues` about queues, `overview` for the state
    of the service; without these, their paths do not exist. `history` has the past; without it there is none to be
    shown. `insight` answers about jobs, a new one by default. Pages act for their viewers by `as_bearer`, with the
    viewers' own tokens, or by `as_anyone`, where the API server lets everybody do everything; so they read
    `unwatched_jobs`.
    """
    app = Flask(__name__, static_folder=None)
    app.extensions[GATE] = gate or Gate()
    app.before_request(_refuse)
    app.after_request(_in_one_order)
    app.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.url_map.converters["rest"] = _RestOfPath
    masking = Masking(gate_of(app))
    insight = insight or Answering(service)
    parts = service, config_pushes, defrag, history, insight, masking, queues, as_bearer, overview
    backend = Backend(*parts, as_anyone, unwatched_jobs)
    site = pages(backend, gate_of(app))
    app.register_blueprint(site.blueprint)
    missing = _missing(config_pushes, defrag, queues, overview)
    for route in ROUTES:
        if not route.path.startswith(missing):
            rule, view = route.path.replace("{name}", "<rest:name>"), _view(route.handler, backend)
            view = view if rule != "/" else _page_or(view, site)
            app.add_url_rule(rule, f"{route.method} {rule}", view, methods=[route.method])
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unforeseen_error)
    return app


def _missing(
    config: ConfigPushes | None, defrag: DefragDesk | None, queues: QueueAnswers | None, overview: Overview | None
) -> tuple[str, ...]:
    """The beginnings of paths that need a part which is not there."""
    needed = (
        (config, (CONFIG_PATH,)),
        (defrag, (DEFRAG_PATH, INPUTS_PATH, MOVES_PATH)),
        (queues, QUEUE_PATHS),
        (overview, (STATUS_PATH,)),
    )
    return tuple(path for part, paths in needed if part is None for path in paths)


def _refuse() -> Response | None:
    """Runs before Flask says whether the path exists."""
    call = Call(request.method, request.path, request.environ.get(CALLER), request.headers.get("Authorization"))
    request.max_content_length = min(current_app.config["MAX_CONTENT_LENGTH"], limit_of(call.place.rstrip("/")))
    gate = gate_of(current_app)
    if gate.is_open(call.place) and (why := browser_refusal(call.method, _browser_headers())):
        verdict = refused(403, why)
    else:
        verdict = gate.decide(call)
    g.caller = verdict.caller
    if verdict.refusal is None:
        return None
    return _respond(verdict.refusal)


def _in_one_order(response: Response) -> Response:
    """The methods of a path in the same order in every process: werkzeug has them as a set."""
    if response.allow:
        response.headers["Allow"] = ", ".join(sorted(response.allow))
    return response


def _browser_headers() -> list[tuple[bytes, bytes]]:
    """The headers by which a browser is known, as bytes: see `browser_refusal`."""
    return [(name.encode(), request.headers.get(name, "").encode("latin-1")) for name in ("host", "origin")]


def _view(handler: Handler, backend: Backend) -> Callable[..., Response]:
    def view(name: str = "") -> Response:
        question = Question(
            request.get_data(),
            name,
            g.caller,
            "Origin" in request.headers,
            if_none_match=request.headers.get("If-None-Match", ""),
            query=request.query_string.decode("latin-1"),
            takes_gzip=request.accept_encodings["gzip"] > 0,
        )
        return _respond(_ask(handler, backend, question))

    return view


def _ask(handler: Handler, backend: Backend, question: Question) -> Answer:
    """The answer of a path. A verb waits for what it waits for under the shim, which is to be had in a moment."""
    if handler is bind_call:
        _wait_for_mates(backend.service, question.body)
    reply, tries = answer(handler, backend, question), 0
    while reply.may_change(tries):
        tries += 0 if reply.is_growing else 1
        time.sleep(PREMATURE_WAIT_S)
        reply = answer(handler, backend, question)
    return reply


def _wait_for_mates(service: Service, body: bytes) -> None:
    """Hold a binding back until kube-scheduler has accepted all pods that start together (rule 26.8)."""
    with suppress(UserError):  # the answer says so
        hold = service.hold_of(decode_args(body, BindArgs).pod_uid)
        if hold is not None:
            wait([hold], timeout=HELD_S)


def _page_or(view: Callable[..., Response], site: Site) -> Callable[..., Response]:
    """The page of the cluster for browsers, the list of all paths for programs."""

    def page_or_list() -> Response:
        response = front_page(site) if wants_page() else view()
        response.headers["Vary"] = ", ".join({**dict.fromkeys(response.vary), "Accept": None, FRAGMENT: None})
        return response

    return page_or_list


def _respond(reply: Answer) -> Response:
    reply = shown(reply, accepted())
    if reply.delay_s:
        time.sleep(reply.delay_s)
    if reply.is_elsewhere:
        request.environ[CLOSE] = True
    return Response(reply.body, reply.status, reply.headers, content_type=reply.content_type)


def _http_error(error: HTTPException) -> Response:
    """Unknown path, wrong method, body too large: a JSON string, like every other error."""
    message = f"{error.name}: {request.method} {request.path}"
    response = Response(encode(message), error.code or 500, content_type=JSON)
    for name, value in error.get_headers():
        if name != "Content-Type":
            response.headers[name] = value
    return response


def _unforeseen_error(error: Exception) -> Response:
    message, status = explain(error)
    return Response(encode(message), status, content_type=JSON)
