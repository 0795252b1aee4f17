"""The admission webhook over HTTP: an ASGI application for a port of its own.

Every replica answers, from its start on, whether it leads or not: the answer depends on the configuration alone. The
caller is not checked, since the answer holds nothing but the question's own content.
"""

import logging

from hived.values.errors import UserError
from hived_extender.api.paths import HEALTH_PATH, Health
from hived_extender.http.answers import Answer
from hived_extender.http.bodies import BODY_TIMEOUT_S, Body, Budget, Receive, Scope, Send, Share, send_answer
from hived_extender.http.routes import explain
from hived_extender.jobs.admission import Admission, review
from hived_extender.jobs.wire import encode

log = logging.getLogger(__name__)

MUTATE_PATH = "/mutate"
VALIDATE_PATH = "/validate"
"""For objects that are refused or warned of, and never changed."""

BODY_LIMIT = 3 * 1024 * 1024
"""Bytes. The API server stores objects of at most 1.5 MiB, and a review of a new pod holds one."""

BUDGET = 4 * BODY_LIMIT
SMALL_BODY = 64 * 1024
SMALL_BUDGET = 4 * 1024 * 1024
"""For reviews of pods of the usual size, which do not wait for large ones."""


class Webhook:
    """POST /mutate and /validate take an AdmissionReview, GET /healthz answers that the server runs."""

    def __init__(self, admission: Admission, *, body_timeout_s: float = BODY_TIMEOUT_S) -> None:
        self._admission = admission
        self._body_timeout_s = body_timeout_s
        self._share = Share(Budget(BUDGET), Budget(SMALL_BUDGET), SMALL_BODY)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        async with Body(scope, receive, send, BODY_LIMIT, self._share, self._body_timeout_s) as body:
            if body is not None:
                await send_answer(send, self._answer(scope["method"], scope["path"], body))

    def close(self) -> None:
        """Nothing is left to be done."""

    def _answer(self, method: str, path: str, body: bytes) -> Answer:
        methods = {MUTATE_PATH: "POST", VALIDATE_PATH: "POST", HEALTH_PATH: "GET"}
        if path not in methods:
            return Answer(encode(f"Not Found: {method} {path}"), 404)
        if method != methods[path]:
            return Answer(encode(f"Method Not Allowed: {method} {path}"), 405, headers=(("Allow", methods[path]),))
        if path == HEALTH_PATH:
            return Answer(encode(Health("ok")))
        try:
            return Answer(review(self._admission, body))
        except Exception as error:  # the edge: a review that fails must not end the connection
            message, status = explain(error)
            if isinstance(error, UserError):
                log.warning("a review is not answered", extra={"fields": {"error": message}})
            return Answer(encode(message), status)
