"""Requests of a client: through proxies, after redirects, for names with dots, and odd answers."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.api.inspection import ConfigClient, Inspector, OlderError
from hived_extender.api.paths import GROUPS_PATH, group_path, virtual_cluster_path
from tests.stub_server import Request, StubServer

ELSEWHERE = "http://hived.example:9096"


class Recording(StubServer):
    """Answers everything with an empty list, but for /moved, which is elsewhere; keeps the targets asked for."""

    def __init__(self) -> None:
        super().__init__(self._keep)
        self.targets: list[str] = []

    def _keep(self, request: Request) -> tuple[Any, ...]:
        self.targets.append(request.target)
        return (302, [], ("Location", "/here")) if request.target == "/moved" else (200, [])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Recording() as server:
        yield server


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_the_proxy_of_the_environment_is_asked(server: Recording, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("http_proxy", f"{scheme}127.0.0.1:{server.server_port}")
    assert Inspector(ELSEWHERE).fetch("/v1/config") == b"[]"
    assert server.targets == [f"{ELSEWHERE}/v1/config"]


def test_a_server_that_needs_no_proxy_is_asked_itself(server: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Inspector(server.url).fetch("/v1/config")
    assert server.targets == ["/v1/config"]


def test_a_redirect_is_followed(server: Recording) -> None:
    assert Inspector(server.url).fetch("/moved") == b"[]"
    assert server.targets == ["/moved", "/here"]


@pytest.mark.parametrize(
    ("name", "quoted"), [("..", "%2E."), ("a/../b", "a/%2E./b"), ("ns/p.q", "ns/p.q"), ("./x", "%2E/x")]
)
def test_a_group_may_be_called_anything(server: Recording, name: str, quoted: str) -> None:
    Inspector(server.url).fetch(group_path(name))
    assert server.targets == [GROUPS_PATH + quoted]


def test_the_name_of_a_virtual_cluster_is_one_segment() -> None:
    assert virtual_cluster_path("a/b").endswith("/a%2Fb")


class Tagged(StubServer):
    """Answers `value` with its tag, or that it is the same."""

    def __init__(self) -> None:
        super().__init__(self._tell)
        self.value: Any = [1]
        self.told: list[int] = []

    def _tell(self, request: Request) -> tuple[Any, ...]:
        tag = f'W/"{self.value}"'
        is_known = request.headers.get("If-None-Match") == tag
        self.told.append(304 if is_known else 200)
        return self.told[-1], b"" if is_known else self.value, ("ETag", tag)


def test_an_answer_that_has_not_changed_is_not_sent_again() -> None:
    with Tagged() as server:
        inspector = Inspector(server.url)
        inspector.remember()
        answers = [inspector.fetch("/a"), inspector.fetch("/a")]
        server.value = [2]
        answers += [inspector.fetch("/a"), inspector.fetch("/b")]
    assert answers == [b"[1]", b"[1]", b"[2]", b"[2]"]
    assert (server.told, inspector.change_count) == ([200, 304, 200, 200], 3)


def test_answers_are_not_kept_unless_that_is_wished() -> None:
    with Tagged() as server:
        inspector = Inspector(server.url)
        assert [inspector.fetch("/a") for _ in range(2)] == [b"[1]", b"[1]"]
    assert (server.told, inspector.change_count) == ([200, 200], 0)


def test_a_path_that_an_older_service_lacks_is_told_from_a_thing_that_is_not_there() -> None:
    answers: dict[str, Any] = {
        "/old": "Not Found: GET /v1/x",
        "/new": "no such job",
        "/foreign?x=1": b"404 page not found",
    }
    with StubServer(lambda request: (404, answers[request.target])) as server:
        with pytest.raises(OlderError, match="its version of hived is older"):
            Inspector(server.url).fetch("/old")
        with pytest.raises(UserError, match="no such job"):
            Inspector(server.url).fetch("/new")
        with pytest.raises(OlderError, match=r"/foreign does not exist: it is no hived, .* give its address with --s"):
            Inspector(server.url).fetch("/foreign?x=1")


NO_REPORT = b'{"groups": 3}'


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, b'{"version": 2, "outcome": %b}' % NO_REPORT),
        (409, b'{"message": "another version", "plan": %b}' % NO_REPORT),
    ],
)
def test_a_push_whose_answer_holds_no_report_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: int, answer: bytes
) -> None:
    monkeypatch.setattr(Inspector, "ask", lambda *_, **__: (status, answer))
    with pytest.raises(UserError, match="does not answer as hived does"):
        ConfigClient(Inspector()).push(ConfigPushArgs("text"))


def test_a_plan_that_is_no_report_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inspector, "ask", lambda *_, **__: (200, NO_REPORT))
    with pytest.raises(UserError, match="does not answer as hived does"):
        ConfigClient(Inspector()).plan("text", "file")
