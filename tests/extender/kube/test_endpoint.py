"""The way to the API server: client certificates that are renewed, against a server that asks for them."""

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.endpoint import Configuration, Credentials, Endpoint, Identity, Tls
from tests.expecting import PATIENCE_S
from tests.extender.http.secured import Files
from tests.stub_server import Request, StubServer

LATER = 32503680000.0
"""The year 3000, in s since 1970."""


class Server(StubServer):
    """Asks clients for certificates, whose names it keeps: one for each connection. It refuses the second request."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(self._answer)
        self._context = context
        self.names: list[str] = []
        self.request_count = 0

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        secured = self._context.wrap_socket(connection, server_side=True)
        certificate: Any = secured.getpeercert()
        self.names.append(dict(entry[0] for entry in certificate["subject"])["commonName"])
        return secured, address

    def _answer(self, _: Request) -> tuple[int, Any]:
        self.request_count += 1
        return (401 if self.request_count == 2 else 200), {}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_calls_after_a_refusal_show_the_new_certificate_on_new_connections(files: Files) -> None:
    folder = files.folder
    for name in ("first", "second"):
        files.client(name, name)
    found = iter([Identity("", f"{folder / name}.crt", f"{folder / name}.key") for name in ("first", "second")])
    with Server(files.tls().context) as server:
        url = server.url.replace("http://", "https://")
        configuration = Configuration(
            url, Tls(ca_file=str(files.ca)), proxy="", credentials=Credentials(lambda: (next(found), LATER))
        )
        client = KubeClient(configuration, request_timeout_s=PATIENCE_S)
        for _ in range(4):
            with suppress(KubeError):
                client.get("/api")
        client.close()
    assert (server.names, server.request_count) == (["first", "second"], 4)


def test_a_token_is_not_in_the_text_of_a_way() -> None:
    way = Endpoint(
        Configuration("http://127.0.0.1:1", credentials=Credentials(lambda: (Identity("Bearer secret"), 0.0)))
    ).way()
    assert (way.token, "secret" in repr(way)) == ("Bearer secret", False)
