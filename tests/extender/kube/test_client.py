"""The client against a real HTTP server on loopback that plays back prepared answers."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from msgspec.structs import replace

from hived_extender.kube.client import NODES, PODS, KubeClient, KubeError, load_configuration
from hived_extender.kube.endpoint import Credentials, Identity
from tests.expecting import PATIENCE_S
from tests.stub_server import Request, StubServer


class Thing(msgspec.Struct):
    metadata: dict[str, Any]
    annotations: dict[str, str] | None = None


class Server(StubServer):
    """Plays back `answers` and keeps requests: method, path, query, headers, body."""

    def __init__(self) -> None:
        super().__init__(self._next)
        self.seen: list[tuple[str, str, dict[str, str], dict[str, str], bytes]] = []
        self.answers: list[tuple[int, list[bytes]]] = []

    def _next(self, request: Request) -> tuple[int, list[bytes]]:
        url = urlsplit(request.target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        self.seen.append((request.method, url.path, query, request.headers, request.body))
        return self.answers.pop(0)

    def will_answer(self, body: object, status: int = 200) -> None:
        self.answers.append((status, [json.dumps(body).encode()]))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def client(server: Server) -> KubeClient:
    return KubeClient(load_configuration(server.url), request_timeout_s=PATIENCE_S)


def thing(name: str, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": "5"}, **more}


def test_a_list_is_fetched_page_by_page(server: Server, client: KubeClient) -> None:
    server.will_answer({"metadata": {"continue": "next", "resourceVersion": "7"}, "items": [thing("a")]})
    server.will_answer({"metadata": {"resourceVersion": "7"}, "items": [thing("b")]})
    listing = client.list_objects(NODES, Thing, field_selector="x=y")
    assert [item.metadata["name"] for item in listing.items] == ["a", "b"]
    assert listing.resource_version == "7"
    assert [query for _, _, query, _, _ in server.seen] == [
        {"fieldSelector": "x=y", "limit": "500"},
        {"fieldSelector": "x=y", "limit": "500", "continue": "next"},
    ]


def test_an_item_that_cannot_be_decoded_does_not_hide_the_others(server: Server, client: KubeClient) -> None:
    server.will_answer({"metadata": {}, "items": [thing("a", annotations={"x": 1}), thing("b")]})
    assert [item.metadata["name"] for item in client.list_objects(PODS, Thing).items] == ["b"]


def test_an_empty_list_may_be_null(server: Server, client: KubeClient) -> None:
    server.will_answer({"metadata": {"resourceVersion": "3"}, "items": None})
    assert client.list_objects(PODS, Thing).items == []


def test_watch_lines_may_be_cut_anywhere(server: Server, client: KubeClient) -> None:
    lines = json.dumps({"type": "ADDED", "object": thing("a")}).encode() + b"\n"
    lines += json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}).encode() + b"\n"
    server.answers.append((200, [lines[:10], lines[10:90], lines[90:]]))
    events = list(client.watch(PODS, Thing, "4"))
    assert [(event.type, event.resource_version) for event in events] == [("ADDED", "5"), ("BOOKMARK", "9")]
    assert events[0].object is not None
    assert events[0].object.metadata["name"] == "a"
    assert events[1].object is None
    assert server.seen[0][2]["resourceVersion"] == "4"


def test_an_expired_watch_is_an_error_that_says_gone(server: Server, client: KubeClient) -> None:
    server.will_answer({"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
    server.answers[0][1].append(b"\n")
    with pytest.raises(KubeError, match="too old") as caught:
        list(client.watch(PODS, Thing, "1"))
    assert caught.value.status == 410


@pytest.mark.parametrize("body", [b"not json", b"[" * 100_000, b'{"items": 3}'])
def test_an_answer_that_is_not_a_list_is_an_error(server: Server, client: KubeClient, body: bytes) -> None:
    server.answers.append((200, [body]))
    with pytest.raises(KubeError, match="cannot be decoded"):
        client.list_objects(PODS, Thing)


def test_a_refusal_carries_status_and_reason(server: Server, client: KubeClient) -> None:
    server.will_answer({"kind": "Status", "code": 409, "reason": "Conflict", "message": "already assigned"}, status=409)
    with pytest.raises(KubeError, match="already assigned") as caught:
        client.bind_pod("ns", "p", "u", "n", {"a": "b"})
    assert caught.value.is_conflict


BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"namespace": "ns", "name": "p", "uid": "u", "annotations": {"a": "b"}},
    "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
}
DELETION = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}, "gracePeriodSeconds": 0}
POD = "/api/v1/namespaces/ns/pods/p"
NULLED = {"metadata": {"annotations": {"a": None}}}


@pytest.mark.parametrize(
    ("call", "method", "path", "sent"),
    [
        (lambda client: client.bind_pod("ns", "p", "u", "n", {"a": "b"}), "POST", f"{POD}/binding", BINDING),
        (lambda client: client.delete_pod("ns", "p", uid="u", grace_period_s=0), "DELETE", POD, DELETION),
        (lambda client: client.evict_pod("ns", "p"), "POST", f"{POD}/eviction", {"apiVersion": "policy/v1"}),
        (lambda client: client.patch(POD, NULLED), "PATCH", POD, NULLED),
    ],
)
def test_a_call_sends_what_it_is_about(
    server: Server, client: KubeClient, call: Callable[[KubeClient], object], method: str, path: str, sent: Any
) -> None:
    server.will_answer(thing("p"))
    call(client)
    (seen,) = server.seen
    assert (seen[0], seen[1], sent.items() <= json.loads(seen[4]).items()) == (method, path, True)
    assert method != "PATCH" or seen[3]["Content-Type"] == "application/merge-patch+json"


def test_no_server_at_all_is_an_error_with_status_zero() -> None:
    with pytest.raises(KubeError) as caught:
        KubeClient(load_configuration("http://127.0.0.1:9"), request_timeout_s=1).get(NODES)
    assert caught.value.status == 0


def test_an_address_overrides_the_one_in_the_kubeconfig(server: Server, tmp_path: Any) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
            }
        )
    )
    client = KubeClient.connect(server.url, str(kubeconfig))
    for _ in range(2):
        server.will_answer(thing("n"))
        assert client.get("/api/v1/nodes/n", Thing).metadata["name"] == "n"
    assert server.seen[1][3]["Authorization"] == "Bearer secret"


def test_a_missing_kubeconfig_is_a_clear_error(tmp_path: Any) -> None:
    with pytest.raises(KubeError, match="cannot find a Kubernetes API server"):
        load_configuration(kubeconfig=str(tmp_path / "absent"))


@pytest.mark.parametrize("text", [b"", b"[", b"- 1", b"kind: Config", b"clusters: 7\ncurrent-context: c", b"\x93\xff"])
def test_a_kubeconfig_that_is_none_is_a_clear_error(tmp_path: Any, text: bytes) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_bytes(text)
    with pytest.raises(KubeError, match=f"cannot find a Kubernetes API server: .* {kubeconfig}: "):
        load_configuration(kubeconfig=str(kubeconfig))


@pytest.mark.parametrize("address", ["http://[", "http://a b:1", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none_is_a_clear_error(address: str) -> None:
    with pytest.raises(KubeError, match="expected http"):
        KubeClient.connect(address)


def bearer(token: Callable[[], str]) -> Credentials:
    """Credentials whose token is asked for anew each time."""
    return Credentials(lambda: (Identity(f"Bearer {token()}"), 0.0))


def test_a_token_from_a_file_with_a_line_break_is_sent_without_it(server: Server) -> None:
    configuration = replace(load_configuration(server.url), credentials=bearer(lambda: "secret\n"))
    server.will_answer({})
    KubeClient(configuration).get("/api")
    assert server.seen[0][3]["Authorization"] == "Bearer secret"


def test_a_token_is_renewed_once_for_many_calls_and_at_once_when_it_is_refused(server: Server) -> None:
    """Rule 34.4."""
    numbers = itertools.count(1)
    client = KubeClient(replace(load_configuration(server.url), credentials=bearer(lambda: str(next(numbers)))))
    for status in (200, 200, 401, 200):
        server.will_answer({}, status=status)
        with suppress(KubeError):
            client.get("/api")
    assert [headers["Authorization"] for _, _, _, headers, _ in server.seen] == ["Bearer 1"] * 3 + ["Bearer 2"]


@pytest.mark.parametrize("is_proxied", [False, True])
@pytest.mark.parametrize("is_watch", [False, True])
def test_credentials_that_are_refused_are_renewed_for_the_next_call(
    server: Server, *, is_proxied: bool, is_watch: bool
) -> None:
    numbers = itertools.count(1)
    renewed = Credentials(lambda: (Identity(f"Bearer {next(numbers)}"), math.inf))
    proxy = server.url if is_proxied else ""
    client = KubeClient(replace(load_configuration(server.url), credentials=renewed, proxy=proxy))
    for status in (401, 200):
        server.will_answer({}, status=status)
        with suppress(KubeError):
            client.watch(PODS, Thing, "1") if is_watch else client.get("/api")
    assert [headers["Authorization"] for _, _, _, headers, _ in server.seen] == ["Bearer 1", "Bearer 2"]


def test_calls_go_through_the_proxy_that_is_configured(server: Server) -> None:
    configuration = replace(load_configuration("http://nowhere.example:1"), proxy=server.url)
    server.will_answer({"kind": "Status", "reason": "NotFound", "message": "no"}, status=404)
    server.will_answer({})
    client = KubeClient(configuration, request_timeout_s=PATIENCE_S)
    with pytest.raises(KubeError, match="NotFound"):
        client.get("/api")
    assert client.get("/api") == {}
    assert server.seen[0][3]["Host"] == "nowhere.example:1"


def test_a_token_that_cannot_be_sent_is_an_error_without_it(server: Server) -> None:
    configuration = replace(load_configuration(server.url), credentials=bearer(lambda: "secret\nX-Other: 1"))
    with pytest.raises(KubeError, match="control character") as caught:
        KubeClient(configuration).get("/api")
    assert "secret" not in str(caught.value)
    assert server.seen == []


@pytest.mark.parametrize("is_proxied", [False, True])
def test_a_token_may_have_any_letters_and_is_sent_in_utf8(server: Server, is_proxied: bool) -> None:
    proxy = server.url if is_proxied else ""
    configuration = replace(load_configuration(server.url), credentials=bearer(lambda: "t\u00f6k\u20acn"), proxy=proxy)
    server.will_answer({})
    KubeClient(configuration, request_timeout_s=PATIENCE_S).get("/api")
    assert server.seen[0][3]["Authorization"].encode("latin-1").decode() == "Bearer t\u00f6k\u20acn"


def test_a_token_that_cannot_be_read_anew_is_an_error_like_any_other(server: Server) -> None:
    def renew() -> str:
        raise FileNotFoundError("no such file: /var/run/token")

    configuration = replace(load_configuration(server.url), credentials=bearer(renew))
    with pytest.raises(KubeError, match="credentials for the API server cannot be renewed: no such file"):
        KubeClient(configuration).get("/api")
    assert server.seen == []
