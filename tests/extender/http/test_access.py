"""The rights of callers: every path with every method, in the real server behind TLS and in Flask alone; browsers."""

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hived_extender.api.paths import (
    BIND_PATH,
    CONFIG_PATH,
    DEFRAG_PATH,
    FILTER_PATH,
    HEALTH_PATH,
    HISTORY_PATH,
    IF_PATH,
    INPUTS_PATH,
    MOVES_PATH,
    PREEMPT_PATH,
    QUEUE_PATHS,
    READINESS_PATH,
    RECORD_PATH,
    STATUS_PATH,
    WHAT_IF_PATH,
    why_path,
)
from hived_extender.http import access as asking
from hived_extender.http.access import (
    ACCESS_REVIEWS,
    ALLOWED_HOSTS,
    CALLER,
    GRANTED,
    TOKEN_REVIEWS,
    Call,
    Gate,
    Reviews,
    browser_refusal,
)
from hived_extender.http.answers import AUTHENTICATED, Identity, identity_of
from hived_extender.http.browsers import HTML, POLICY
from hived_extender.http.routes import ROUTES
from hived_extender.kube.client import KubeClient, load_configuration
from tests.extender.http.secured import Files, ReviewServer, Secured, bearer, call_on
from tests.extender.machine.small_cluster import filter_body, preempt_body, wait_until

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
VERBS = (FILTER_PATH, PREEMPT_PATH, BIND_PATH)
OPEN = (HEALTH_PATH, READINESS_PATH)
WITH_PARTS = (CONFIG_PATH, DEFRAG_PATH, INPUTS_PATH, MOVES_PATH, *QUEUE_PATHS)
PATHS = [route.path.replace("{name}", "x") for route in ROUTES if not route.path.startswith(WITH_PARTS)]
UNKNOWN = ["/v1/extender/prioritize", "/v1/admin/configuration", "/v2", "//v1/inspect/clusterstatus", "/healthz/x"]
CLOSED = [path for path in PATHS + UNKNOWN if path not in OPEN]
CLUSTER = "/v1/inspect/clusterstatus"
BIND = b'{"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "n0"}'
VIEWER, NOBODY = "token-of-a-viewer", "token-of-nobody"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    files = Files(tmp_path_factory.mktemp("certificates"))
    files.client("intruder", "somebody-else")
    files.client("operator", "olga", groups=("operators",))
    return files


def start_reviews() -> Any:
    return ReviewServer.running(
        {
            VIEWER: {"username": "vera", "uid": "7", "groups": ["viewers"], "extra": {"k": ["v"]}},
            NOBODY: {"username": "norbert", "groups": []},
        },
        {("viewers", "get", path) for path in ("/", "/metrics", "/openapi.json", "/v1/inspect/*")},
    )


@pytest.fixture
def reviews() -> Iterator[ReviewServer]:
    with start_reviews() as reviews:
        yield reviews


@pytest.fixture
def secured(files: Files, reviews: ReviewServer) -> Iterator[Secured]:
    with Secured.running(files, reviews) as secured:
        yield secured


@pytest.fixture(scope="module")
def refusing(files: Files) -> Iterator[Secured]:
    """One for all tests in which nobody gets in."""
    with start_reviews() as reviews, Secured.running(files, reviews) as secured:
        yield secured


def open_flask(secured: Secured, method: str, path: str, caller: Identity | None = None, **headers: str) -> Any:
    """Call the application without the server; the path as it is, where the client would take //host for an address."""
    environ = {"PATH_INFO": path, CALLER: caller}
    return secured.flask.test_client().open("/", method=method, data=b"{}", environ_overrides=environ, headers=headers)


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", CLOSED)
def test_without_credentials_every_path_is_refused_with_every_method(refusing: Secured, path: str) -> None:
    secured, asked = refusing, len(refusing.reviews.asked)
    before = secured.cluster.snapshot()
    connection = secured.connect()
    for method in METHODS:
        status, message, headers = call_on(connection, method, path, b"{}")
        assert (method, status) == (method, 401)
        assert "realm" in headers["WWW-Authenticate"]
        alone = open_flask(secured, method, path)
        assert (method, alone.status_code, alone.headers["WWW-Authenticate"]) == (
            method,
            401,
            headers["WWW-Authenticate"],
        )
        if method != "HEAD":
            assert message.startswith("who is calling?")
            assert alone.json == message
    connection.close()
    assert len(secured.reviews.asked) == asked
    assert secured.cluster.snapshot() == before


@pytest.mark.parametrize(("token", "status", "title"), [("", 401, "Not signed in"), (NOBODY, 403, "Not allowed")])
def test_a_browser_that_is_refused_gets_a_page_on_any_path(
    refusing: Secured, token: str, status: int, title: str
) -> None:
    connection = refusing.connect()
    for path in (CLUSTER, "/", "/page/cluster", "/nothing"):
        connection.request("GET", path, headers={"Accept": "text/html,*/*;q=0.8"} | (bearer(token) if token else {}))
        answer = connection.getresponse()
        text = answer.read().decode()
        assert (answer.status, answer.headers["Content-Type"]) == (status, HTML)
        assert answer.headers["Content-Security-Policy"] == POLICY
        assert f"<h1>{title}</h1>" in text
        assert ("hived-viewer" in text, "client certificate" in text) == (status == 403, status == 401)
    connection.close()


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", CLOSED)
def test_a_wrong_role_is_refused_on_every_path_with_every_method(refusing: Secured, path: str) -> None:
    secured = refusing
    connection = secured.connect("intruder")
    for method in METHODS:
        status, message, _ = call_on(connection, method, path, b"{}")
        alone = open_flask(secured, method, path, Identity("somebody-else", (AUTHENTICATED,)))
        assert (method, status, alone.status_code) == (method, 403, 403)
        if method != "HEAD":
            assert message.startswith("somebody-else may not")
            assert alone.json == message
    connection.close()


@pytest.mark.sample(8)
@pytest.mark.parametrize("path", [path for path in CLOSED if not path.startswith("/v1/extender/")])
def test_a_token_without_the_right_is_refused_on_every_path(refusing: Secured, path: str) -> None:
    """Rule 34.2."""
    secured = refusing
    connection = secured.connect()
    for method in METHODS:
        assert call_on(connection, method, path, **bearer(NOBODY))[0] == 403
        assert open_flask(secured, method, path, **bearer(NOBODY)).status_code == 403
    connection.close()


@pytest.mark.parametrize("path", VERBS)
def test_a_token_opens_no_verb_whatever_its_rights(secured: Secured, reviews: ReviewServer, path: str) -> None:
    """Rule 34.1."""
    reviews.rights.add(("viewers", "post", "*"))
    assert secured.call("POST", path, b"{}", **bearer(VIEWER))[0] == 401
    assert secured.flask.test_client().post(path, data=b"{}", headers=bearer(VIEWER)).status_code == 401


@pytest.mark.parametrize("path", OPEN)
def test_health_is_for_everybody(secured: Secured, reviews: ReviewServer, path: str) -> None:
    """Rule 34.2."""
    for place in (path, path + "/"):
        assert secured.call("GET", place)[0] == 200
        assert secured.flask.test_client().get(place).status_code == 200
    assert reviews.asked == []


def test_kube_scheduler_schedules_with_its_certificate_while_the_api_server_answers_nothing(
    secured: Secured, reviews: ReviewServer
) -> None:
    """Rule 34.1."""
    reviews.failure = 500
    pod = secured.cluster.create("p")
    status, answer, _ = secured.call("POST", FILTER_PATH, filter_body(pod), client="scheduler")
    assert (status, answer["NodeNames"]) == (200, ["n0"])
    assert reviews.asked == []


@pytest.mark.sample(6)
@pytest.mark.parametrize("path", [path for path in PATHS if path not in (*VERBS, *OPEN, WHAT_IF_PATH, IF_PATH)])
def test_a_viewers_token_reads_every_path_and_changes_none(secured: Secured, path: str) -> None:
    flask = secured.flask.test_client()
    is_there = path not in {HISTORY_PATH, RECORD_PATH, STATUS_PATH, why_path("x")}  # none is kept, and no job waits
    expected = 404 if not is_there else 400 if path.endswith("/x") else 200
    assert secured.call("GET", path, **bearer(VIEWER))[0] == expected
    assert flask.get(path, headers=bearer(VIEWER)).status_code == expected
    assert secured.call("DELETE", path, **bearer(VIEWER))[0] == 403


def test_who_may_call_a_path_that_does_not_exist_is_told_so(secured: Secured) -> None:
    assert secured.call("GET", "/v1/inspect/nothing", **bearer(VIEWER))[0] == 404
    assert secured.call("GET", "/nothing", **bearer(VIEWER))[0] == 403


def test_a_client_certificate_is_a_user_with_groups(secured: Secured, reviews: ReviewServer) -> None:
    reviews.rights.add(("operators", "get", CLUSTER))
    assert secured.call("GET", CLUSTER, client="operator")[0] == 200
    assert secured.call("GET", "/metrics", client="operator")[0] == 403
    (path, spec), _ = reviews.asked
    assert (path, spec["user"], spec["groups"]) == (ACCESS_REVIEWS, "olga", ["operators", "system:authenticated"])


def test_the_review_of_access_says_all_that_is_known_of_the_user(secured: Secured, reviews: ReviewServer) -> None:
    assert secured.call("GET", f"{CLUSTER}?a=b", **bearer(VIEWER))[0] == 200
    assert reviews.asked == [
        (TOKEN_REVIEWS, {"token": VIEWER}),
        (
            ACCESS_REVIEWS,
            {
                "user": "vera",
                "uid": "7",
                "groups": ["viewers"],
                "extra": {"k": ["v"]},
                "nonResourceAttributes": {"path": CLUSTER, "verb": "get"},
            },
        ),
    ]


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic dmVyYQ==", f"Token {VIEWER}", VIEWER, f"Bearer {VIEWER} x", "Bearer \xfc",
     f"Bearer{VIEWER}", "Bearer " + "x" * (asking.TOKEN_LIMIT + 1)],
)  # fmt: skip
def test_a_header_that_is_no_token_is_refused_without_a_question(
    secured: Secured, reviews: ReviewServer, header: str
) -> None:
    assert secured.call("GET", CLUSTER, Authorization=header)[0] == 401
    assert secured.flask.test_client().get(CLUSTER, headers={"Authorization": header}).status_code == 401
    assert reviews.asked == []


def test_a_token_that_nobody_knows_is_refused(secured: Secured) -> None:
    status, message, headers = secured.call("GET", CLUSTER, **bearer("forged"))
    assert (status, message) == (401, "who is calling? the token is not valid")
    assert 'error="invalid_token"' in headers["WWW-Authenticate"]


def turned_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Answers are remembered by a clock that only goes on when it is turned, by so many seconds."""
    passed = [0.0]
    monkeypatch.setattr(asking, "time", SimpleNamespace(monotonic=lambda: passed[0], time=time.time))

    def turn(seconds: float) -> None:
        passed[0] += seconds

    return turn


class TestMemory:
    """Answers are remembered, for a time."""

    def test_a_grant_is_asked_for_once_and_again_when_it_is_old(
        self, secured: Secured, reviews: ReviewServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turn = turned_clock(monkeypatch)
        for _ in range(3):
            assert secured.call("GET", CLUSTER, **bearer(VIEWER))[0] == 200
        assert len(reviews.asked) == 2
        reviews.rights.clear()
        assert secured.call("GET", CLUSTER, **bearer(VIEWER))[0] == 200
        turn(asking.REMEMBER_GRANTED_S)
        assert secured.call("GET", CLUSTER, **bearer(VIEWER))[0] == 403

    def test_a_refusal_is_forgotten_sooner(self, reviews: ReviewServer, monkeypatch: pytest.MonkeyPatch) -> None:
        turn = turned_clock(monkeypatch)
        gate = Gate(reviews=Reviews(reviews.kube))
        for token in (NOBODY, "forged"):
            call = Call("GET", CLUSTER, authorization=f"Bearer {token}")
            assert gate.decide(call).refusal is not None
            asked = len(reviews.asked)
            assert gate.decide(call).refusal is not None
            assert len(reviews.asked) == asked
        reviews.users["forged"] = reviews.users[VIEWER]
        turn(asking.REMEMBER_REFUSED_S)
        assert gate.decide(call).refusal is None
        assert asking.REMEMBER_REFUSED_S < asking.REMEMBER_GRANTED_S <= 10

    def test_it_is_bounded_and_holds_no_token(self, reviews: ReviewServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asking, "REMEMBERED_COUNT", 5)
        memory = Reviews(reviews.kube)
        for i in range(20):
            memory.ask(Call("GET", f"/{i}", authorization=f"Bearer {VIEWER}"))
            memory.ask(Call("GET", "/", authorization=f"Bearer forged-{i}"))
        assert (len(memory._users._kept), len(memory._grants._kept)) == (5, 5)
        assert "token" not in repr(memory._users._kept)
        assert VIEWER not in repr(Call("GET", "/", authorization=f"Bearer {VIEWER}"))

    def test_an_expired_certificate_counts_no_more_on_a_connection_that_is_open(self, reviews: ReviewServer) -> None:
        reviews.rights.add(("olga", "get", CLUSTER))
        gate = Gate(["olga"], Reviews(reviews.kube))
        for path in (CLUSTER, FILTER_PATH):
            assert gate.decide(Call("GET", path, Identity("olga", expires_at=time.time() + 60))).refusal is None
            refusal = gate.decide(Call("GET", path, Identity("olga", expires_at=time.time() - 1))).refusal
            assert refusal is not None
            assert refusal.status == 401


class TestWithoutAnApiServer:
    """No review, no entry; and whoever waits for one holds nobody else up."""

    @pytest.mark.parametrize("failure", [403, 429, 500])
    def test_a_failing_review_is_answered_with_503_and_its_cause(
        self, secured: Secured, reviews: ReviewServer, failure: int
    ) -> None:
        reviews.failure = failure
        status, message, _ = secured.call("GET", CLUSTER, **bearer(VIEWER))
        assert status == 503
        assert f"the API server answered {failure}" in message
        assert VIEWER not in message
        assert ("needs 'create' on tokenreviews" in message) == (failure == 403)
        reviews.failure = 0
        assert secured.call("GET", CLUSTER, **bearer(VIEWER))[0] == 200

    def test_nobody_there_is_503(self) -> None:
        gate = Gate(reviews=Reviews(KubeClient(load_configuration("http://127.0.0.1:1"))))
        for call in (Call("GET", "/", authorization="Bearer x"), Call("GET", "/", Identity("olga"))):
            refusal = gate.decide(call).refusal
            assert refusal is not None
            assert (refusal.status, b"gave no answer" in bytes(refusal.body)) == (503, True)

    @pytest.mark.parametrize("answer", [{}, {"status": None}, {"status": {"authenticated": "yes"}}, {"status": []}])
    def test_an_answer_that_is_no_review_lets_nobody_in(self, answer: dict[str, Any]) -> None:
        class Odd:
            def create(self, path: str, body: Any) -> dict[str, Any]:
                return answer

        refusal = Gate(reviews=Reviews(Odd())).decide(Call("GET", "/", authorization="Bearer x")).refusal
        assert refusal is not None
        assert refusal.status in (401, 503)

    def test_slow_reviews_hold_up_neither_filter_nor_bind_nor_health(
        self, secured: Secured, reviews: ReviewServer
    ) -> None:
        reviews.go_on.clear()
        waiting = [
            threading.Thread(target=secured.call, args=("GET", CLUSTER), kwargs=bearer(f"slow-{i}")) for i in range(30)
        ]
        for thread in waiting:
            thread.start()
        wait_until(lambda: reviews.asked)
        connection = secured.connect("scheduler")
        call_on(connection, "GET", HEALTH_PATH)
        pod = secured.cluster.create("p")
        assert call_on(connection, "POST", FILTER_PATH, filter_body(pod))[1]["NodeNames"] == ["n0"]
        assert call_on(connection, "POST", BIND_PATH, BIND)[1] == {"Error": ""}
        assert call_on(connection, "GET", HEALTH_PATH)[0] == 200
        connection.close()
        reviews.go_on.set()
        for thread in waiting:
            thread.join()


def test_a_caller_without_access_is_refused_before_the_body_arrives(secured: Secured) -> None:
    connection = secured.connect()
    connection.putrequest("POST", FILTER_PATH)
    connection.putheader("Content-Length", "1000000")
    connection.endheaders()
    assert connection.getresponse().status == 401  # 408 if the body had been waited for
    connection.close()


def test_without_a_gate_everything_is_open() -> None:
    for path in (*CLOSED, *OPEN):
        assert Gate().decide(Call("GET", path)) is GRANTED


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ([("commonName", "a")], ("a", (AUTHENTICATED,))),
        ([("organizationName", "g"), ("commonName", "a"), ("organizationName", "h")], ("a", ("g", "h", AUTHENTICATED))),
        ([("commonName", "a"), ("commonName", "hived-kube-scheduler")], None),
        ([("organizationName", "g")], None),
        ([("commonName", "")], None),
        ([], None),
    ],
)  # fmt: skip
def test_the_subject_of_a_certificate_names_a_user(subject: list[tuple[str, str]], expected: Any) -> None:
    identity = identity_of({"subject": tuple((pair,) for pair in subject), "notAfter": "Jan  1 00:00:00 2100 GMT"})
    assert (identity and (identity.name, identity.groups)) == expected


def test_a_verb_that_is_refused_here_and_not_elsewhere_ends_the_connection(files: Files) -> None:
    with Secured.running(files, is_leading=False) as secured:
        pod = secured.cluster.create("p")
        for path, body in ((FILTER_PATH, filter_body(pod)), (PREEMPT_PATH, preempt_body(pod)), (BIND_PATH, BIND)):
            status, answer, headers = secured.call("POST", path, body, client="scheduler")
            assert (path, headers["Connection"]) == (path, "close")
            assert status == (503 if path == PREEMPT_PATH else 200)
            assert "not ready" in (answer if path == PREEMPT_PATH else answer["Error"])
        secured.cluster.lead()
        for path, body in ((FILTER_PATH, filter_body(pod)), (PREEMPT_PATH, b"{"), (BIND_PATH, b"{")):
            assert secured.call("POST", path, body, client="scheduler")[2]["Connection"] is None
        secured.cluster.has_lease = False
        assert secured.call("POST", BIND_PATH, BIND, client="scheduler")[2]["Connection"] == "close"


@pytest.mark.parametrize(
    "host",
    ["hived:9096", "127.0.0.1:9096", "[::1]:9096", "localhost", "10.0.0.7", "hived.hived-system.svc:9096",
     "hived.hived-system.svc.cluster.local", "gpus.internal", ""],
)  # fmt: skip
def test_kube_scheduler_and_command_lines_are_answered(host: str) -> None:
    assert browser_refusal("POST", [(b"host", host.encode())]) == ""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9096", "hived.evil.example.", "127.0.0.1.evil.example"])
def test_a_public_name_is_no_name_of_the_service(host: str) -> None:
    assert "is no name of this service" in browser_refusal("GET", [(b"host", host.encode())], {})
    assert browser_refusal("GET", [(b"host", b"gpus.example:80")], {ALLOWED_HOSTS: "a.example,gpus.example"}) == ""


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_site_changes_nothing(origin: str) -> None:
    headers = [(b"host", b"127.0.0.1:9096"), (b"origin", origin.encode())]
    assert "Origin is not this host" in browser_refusal("POST", headers)
    assert browser_refusal("GET", headers) == ""


def test_a_page_of_the_service_may_send_its_form() -> None:
    assert browser_refusal("POST", [(b"host", b"127.0.0.1:9096"), (b"origin", b"http://127.0.0.1:9096")]) == ""
