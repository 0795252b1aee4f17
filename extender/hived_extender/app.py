"""The Flask application: every path, working alone under the test client or any WSGI server.

In production `server.py` stands before it and answers the hot verbs itself, from the same functions.
"""

import time
from collections.abc import Callable

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import PathConverter

from hived_extender.routes import JSON, ROUTES, Answer, Handler, answer, explain
from hived_extender.service import Service
from hived_extender.wire import encode

BODY_LIMIT = 32 * 1024 * 1024
"""Bytes. A filter call for 16,000 nodes with names of the longest kind is 4 MB."""


class _RestOfPath(PathConverter):
    """Any text at all: names of affinity groups may contain, begin or end with slashes."""

    regex = ".+"
    part_isolating = False


def create_app(service: Service) -> Flask:
    """An application that serves `service`. Cheap; it holds no state of its own."""
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.url_map.converters["rest"] = _RestOfPath
    for number, route in enumerate(ROUTES):
        view = _view(route.handler, service)
        app.add_url_rule(route.path.replace("{name}", "<rest:name>"), str(number), view, methods=[route.method])
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unforeseen_error)
    return app


def _view(handler: Handler, service: Service) -> Callable[..., Response]:
    def view(name: str = "") -> Response:
        return _respond(answer(handler, service, request.get_data(), name))

    return view


def _respond(reply: Answer) -> Response:
    if reply.delay_s:
        time.sleep(reply.delay_s)
    return Response(reply.body, reply.status, content_type=reply.content_type)


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
