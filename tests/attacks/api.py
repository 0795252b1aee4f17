"""The embedded API server as a process, without hived: `python -m tests.attacks.api --config FILE --port N`.

It answers TokenReview and SubjectAccessReview from a file too, which the embedded API server does not by itself.
"""

import argparse
import json
from fnmatch import fnmatchcase
from pathlib import Path
from shutil import copy
from typing import Any

from hived_cli.helpers.progress import stop_signal
from hived_config.loader import load_cluster
from hived_extender.http.access import ACCESS_REVIEWS, TOKEN_REVIEWS
from hived_extender.http.bodies import Receive, Scope, Send
from hived_extender.http.server import Application
from hived_lab.embedded.cluster import EmbeddedCluster

Json = dict[str, Any]


class Reviewing:
    """An ASGI application with reviews in front of another one. `users` are by token, `rights` by user's name.

    A right is a verb and a path, as in "get /page/*", or a verb, a resource and a namespace, as in "get pods team".
    """

    def __init__(self, inner: Application, users: Json, rights: dict[str, list[str]]) -> None:
        self._inner = inner
        self._users = users
        self._rights = rights

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["path"] not in (TOKEN_REVIEWS, ACCESS_REVIEWS):
            await self._inner(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        review = json.loads(body)
        judge = self._token if scope["path"] == TOKEN_REVIEWS else self._access
        text = json.dumps({**review, "status": judge(review["spec"])}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def close(self) -> None:
        """As the inner application."""
        self._inner.close()

    def _token(self, spec: Json) -> Json:
        user = self._users.get(spec["token"])
        return {"authenticated": True, "user": user} if user else {"error": "invalid token"}

    def _access(self, spec: Json) -> Json:
        of_path, of_object = spec.get("nonResourceAttributes"), spec.get("resourceAttributes") or {}
        keys = ("verb", "resource", "namespace")
        asked = [of_path["verb"], of_path["path"]] if of_path else [of_object.get(key, "") for key in keys]
        rights = self._rights.get(spec["user"], [])
        return {"allowed": any(fnmatchcase(" ".join(asked), right) for right in rights)}


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kubeconfig", type=Path, help="where to put hived's, once it can be used")
    parser.add_argument("--extender", help="address of the extender that a scheduler loop asks; without, none runs")
    parser.add_argument("--users", type=Path, help="JSON: users by token, and rights by user")
    options = parser.parse_args()
    known = json.loads(options.users.read_text()) if options.users else {"users": {}, "rights": {}}
    cluster = EmbeddedCluster(load_cluster(options.config), api_port=options.port)
    server = cluster._server._serving
    server._application = Reviewing(server._application, **known)
    with stop_signal() as stop, cluster:
        if options.kubeconfig:
            copy(cluster.hived_kubeconfig, options.kubeconfig)
        if options.extender:
            cluster.start_scheduler(options.extender)
        stop.wait()


if __name__ == "__main__":
    main()
