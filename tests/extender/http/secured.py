"""A secured extender on loopback, its certificates, and an API server that reviews tokens and rights."""

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from flask import Flask

from hived_deploy.certificates import Authority, KeyPair
from hived_extender.http.access import ACCESS_REVIEWS, DEFAULT_VERB_CALLERS, TOKEN_REVIEWS, Gate, Security
from hived_extender.http.app import create_app
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.shim import Shim
from hived_extender.http.tls import ServerTls
from hived_extender.kube.client import KubeClient, load_configuration
from tests.extender.machine.small_cluster import SmallCluster
from tests.stub_server import Request, StubServer

HOSTS = ["localhost", "127.0.0.1"]
TIMEOUT_S = 60.0


class ReviewServer(StubServer):
    """TokenReview and SubjectAccessReview over real HTTP; nothing else exists.

    `users` are by token. `rights` are triples (user or group, verb, path), a path ending in `*` standing for all that
    begin so, as in a ClusterRole. `asked` has every review, answers wait for `go_on`, `failure` is a status
    that every call is answered with.
    """

    def __init__(self, users: dict[str, dict[str, Any]], rights: set[tuple[str, str, str]]) -> None:
        super().__init__(self._review)
        self.users = users
        self.rights = rights
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.failure = 0
        self.kube = KubeClient(load_configuration(self.url), request_timeout_s=TIMEOUT_S)

    @classmethod
    @contextmanager
    def running(cls, users: dict[str, dict[str, Any]], rights: set[tuple[str, str, str]]) -> Iterator["ReviewServer"]:
        """Served until the end."""
        with cls(users, rights) as server, closing(server.kube):
            yield server

    def _review(self, request: Request) -> tuple[int, dict[str, Any]]:
        review = json.loads(request.body)
        self.asked.append((request.target, review["spec"]))
        self.go_on.wait(TIMEOUT_S)
        if self.failure:
            return self.failure, {"reason": "Forbidden", "message": f"no: {json.dumps(review)}", "code": 403}
        judge = {TOKEN_REVIEWS: self.review_token, ACCESS_REVIEWS: self.review_access}[request.target]
        return 201, {**review, "status": judge(review["spec"])}

    def review_token(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The status of a TokenReview; an error quotes the token, as one could."""
        user = self.users.get(spec["token"])
        return {"authenticated": True, "user": user} if user else {"error": f"invalid token {spec['token']}"}

    def review_access(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The status of a SubjectAccessReview."""
        what = spec.get("nonResourceAttributes")

        if what is None:  # the names of other tenants are asked for by namespaces
            return {"allowed": False}
        return {"allowed": any(
            who in (spec["user"], *spec["groups"]) and verb == what["verb"] and _matches(path, what["path"])
            for who, verb, path in self.rights
        )}  # fmt: skip


def _matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


class Files:
    """Certificates in a folder: `ca.crt`, `tls.*` for the server, `scheduler.*` for kube-scheduler."""

    def __init__(self, folder: Path, authority: Authority | None = None) -> None:
        self.folder = folder
        self.authority = authority or Authority.create()
        self.certificate, self.key, self.ca = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self.ca.write_bytes(self.authority.pair.certificate)
        self.renew()
        self.client("scheduler", DEFAULT_VERB_CALLERS[1])

    def renew(self) -> None:
        """Write another certificate for the server."""
        pair = self.authority.server(HOSTS, 1)
        self.key.write_bytes(pair.key)
        self.certificate.write_bytes(pair.certificate)

    def client(
        self, file: str, name: str, *, groups: tuple[str, ...] = (), days: int = 1, by: Authority | None = None
    ) -> str:
        """Write a certificate for a client; returns `file`."""
        return self.write(file, (by or self.authority).client(name, days, groups))

    def write(self, file: str, pair: KeyPair) -> str:
        """Write a pair; returns `file`."""
        (self.folder / f"{file}.crt").write_bytes(pair.certificate)
        (self.folder / f"{file}.key").write_bytes(pair.key)
        return file

    def tls(self) -> ServerTls:
        """The server's side, which asks clients for certificates of this CA."""
        return ServerTls(self.certificate, self.key, self.ca)

    def context(self, client: str = "") -> ssl.SSLContext:
        """A client's side, with the certificate of that name."""
        context = ssl.create_default_context(cafile=self.ca)
        if client:
            context.load_cert_chain(self.folder / f"{client}.crt", self.folder / f"{client}.key")
        return context


class Secured:
    """A small cluster behind TLS and a gate; `flask` is the same application alone."""

    def __init__(self, files: Files, reviews: ReviewServer | None, **options: Any) -> None:
        self.files = files
        self.reviews: Any = reviews
        self.cluster = SmallCluster(**options)
        security = Security(files.tls(), has_reviews=reviews is not None)
        gate = security.gate(reviews.kube) if reviews else Gate(DEFAULT_VERB_CALLERS)
        self.flask: Flask = create_app(self.cluster.service, gate)
        self.server = HttpServer(Shim(self.flask, self.cluster.service), listen("127.0.0.1:0"), security.tls)
        self.port = int(self.server.url.rsplit(":", 1)[1])
        self.server.start()

    @classmethod
    @contextmanager
    def running(cls, files: Files, reviews: ReviewServer | None = None, **options: Any) -> Iterator["Secured"]:
        """Stopped at the end."""
        secured = cls(files, reviews, **options)
        try:
            yield secured
        finally:
            secured.server.stop()

    def connect(self, client: str = "", context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        """A keep-alive connection with the client certificate of that name."""
        context = context or self.files.context(client)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT_S, context=context)

    def call(
        self, method: str, path: str, body: bytes = b"", *, client: str = "", **headers: str
    ) -> tuple[int, Any, Any]:
        """Status, JSON and headers of one call on a connection of its own."""
        connection = self.connect(client)
        try:
            return call_on(connection, method, path, body, **headers)
        finally:
            connection.close()


def call_on(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any, Any]:
    """Status, JSON (bytes if it is none) and headers of one call."""
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    content = response.read()
    is_json = response.getheader("Content-Type") == "application/json" and content
    return response.status, json.loads(content) if is_json else content, response.headers


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {token}"}
