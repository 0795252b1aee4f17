"""The commands against a secured service: `hived get` with credentials, and logs that hold none."""

import json
import logging
import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.api.paths import FILTER_PATH
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.expecting import expect_soon
from tests.extender.http.secured import Files, ReviewServer, Secured, bearer
from tests.extender.machine.small_cluster import CONFIG, PATIENCE_S, cluster_spec
from tests.programs import hived

pytestmark = pytest.mark.sample(5)

CLUSTER = "/v1/inspect/clusterstatus"
GOOD, POOR, BAD = "good-token-5a1f", "poor-token-77b2", "bad-token-c09e"
TLS = ["--tls-cert-file", "tls.crt", "--tls-private-key-file", "tls.key"]
TOKENS = (GOOD, POOR, BAD)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    files = Files(tmp_path_factory.mktemp("certificates"))
    files.client("operator", "olga", groups=("viewers",))
    return files


@pytest.fixture
def reviews() -> Iterator[ReviewServer]:
    users = {GOOD: {"username": "vera", "groups": ["viewers"]}, POOR: {"username": "paul", "groups": []}}
    with ReviewServer.running(users, {("viewers", "get", "/v1/inspect/*")}) as reviews:
        yield reviews


@pytest.fixture
def secured(files: Files, reviews: ReviewServer) -> Iterator[Secured]:
    with Secured.running(files, reviews) as secured:
        yield secured


def get(secured: Secured, *options: str, **environment: str) -> Result:
    words = ["get", "groups", "--server", secured.server.url, *options]
    environment.setdefault("HIVED_CERTIFICATE_AUTHORITY", str(secured.files.ca))
    result = CliRunner().invoke(main, words, env=environment)
    assert not any(token in result.output for token in TOKENS)
    return result


def test_get_shows_a_token_or_a_certificate(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(GOOD + "\n")
    pair = [str(secured.files.folder / f"operator.{ending}") for ending in ("crt", "key")]
    for result in (
        get(secured, "--token", GOOD),
        get(secured, "--token-file", str(file)),
        get(secured, HIVED_TOKEN=GOOD),
        get(secured, HIVED_TOKEN_FILE=str(file)),
        get(secured, "--client-certificate", pair[0], "--client-key", pair[1]),
    ):
        assert (result.exit_code, result.output) == (0, "No group holds or awaits cells.\n")


def test_get_without_the_right_says_what_is_missing(secured: Secured, tmp_path: Path) -> None:
    nothing, empty = tmp_path / "nothing", tmp_path / "empty"
    empty.write_text("\n")
    for options, message in (
        ([], "who is calling?"),
        (["--token", BAD], "the token is not valid"),
        (["--token", POOR], "paul may not do this"),
        (["--token", f"{BAD}\nX-Header: 1"], "the token is none"),
        (["--token-file", str(empty)], "the token is none"),
        (["--token-file", str(nothing)], "No such file"),
        (["--client-key", str(secured.files.key)], "give both"),
        (["--client-certificate", str(empty)], "expected PEM files"),
        (["--certificate-authority", str(nothing)], "No such file"),
    ):
        result = get(secured, *options)
        assert (options, result.exit_code, message in result.output) == (options, 1, True)


def test_get_trusts_only_the_ca_it_is_told_and_sends_no_token_in_the_clear(secured: Secured) -> None:
    result = get(secured, "--token", GOOD, HIVED_CERTIFICATE_AUTHORITY="")
    assert (result.exit_code, "give the file of its CA with --certificate-authority FILE" in result.output) == (1, True)
    result = get(secured, "--token", GOOD, "--server", f"http://127.0.0.1:{secured.port}")
    assert (result.exit_code, "over https only" in result.output) == (1, True)
    assert secured.reviews.asked == []


def test_no_log_line_holds_a_token_whatever_goes_wrong(
    secured: Secured, reviews: ReviewServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    context = ssl.create_default_context(cafile=secured.files.ca)

    def send_raw(head: str) -> None:
        with (
            socket.create_connection(("127.0.0.1", secured.port), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(head.encode() + b"\r\nConnection: close\r\n\r\n")
            answers.append(b"".join(iter(lambda: connection.recv(1000), b"")))

    answers: list[bytes] = []
    for token in TOKENS:
        for failure in (403, 422, 500, 0):
            reviews.failure = failure
            for path in (CLUSTER, "/metrics", "/nothing", f"{CLUSTER}?access_token={token}", FILTER_PATH):
                secured.call("GET", path, **bearer(token))
                secured.call("POST", path, f'{{"token": "{token}"'.encode(), **bearer(token))
        for header in (f"Bearer: {token}", f"Bearer {token} x", f"Basic {token}", token, f"Bearer \x01{token}"):
            send_raw(f"GET {CLUSTER} HTTP/1.1\r\nHost: x\r\nAuthorization: {header}")
        send_raw(f"GET {CLUSTER} HTTP/1.1\r\nHost: x\r\nAuthorization {token}")
        send_raw(f"GET http://{token}@[/ HTTP/1.1\r\nHost: x")
        send_raw(f"{token} / HTTP/1.1\r\nHost: x")
    logs = "\n".join([*map(str, (vars(record) for record in caplog.records)), caplog.text])
    assert "access cannot be checked" in logs
    assert len(reviews.asked) > len(TOKENS)
    assert len(answers) == 8 * len(TOKENS)
    for token in TOKENS:
        assert token not in logs
        assert all(token.encode() not in answer for answer in answers)


def test_the_command_serves_what_it_is_told_and_logs_no_token(files: Files, tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG)
    options = ["--config", str(config), "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "DEBUG"]
    options += ["--tls-cert-file", str(files.certificate), "--tls-private-key-file", str(files.key)]
    options += ["--client-ca-file", str(files.ca), "--authorize", "--allowed-client-name", "olga"]
    with (
        EmbeddedCluster(cluster_spec()) as cluster,
        hived(
            "serve",
            *options,
            env=os.environ | {"KUBE_APISERVER_ADDRESS": cluster.api_url, "KUBECONFIG": ""},
            stderr=subprocess.PIPE,
        ) as process,
    ):
        assert process.stderr is not None
        lines: list[str] = []
        while not lines or json.loads(lines[-1])["message"] != "listening":
            lines.append(process.stderr.readline())
        url = json.loads(lines[-1])["url"]
        assert url.startswith("https://")
        served = Served(files, int(url.rsplit(":", 1)[1]))
        expect_soon(lambda: served.call("GET", "/readyz")[0] == 200, every_s=0.1)
        # The embedded API server knows no reviews: then nobody comes in.
        assert [served.call("GET", CLUSTER, **bearer(token))[0] for token in TOKENS] == [503, 503, 503]
        assert served.call("GET", CLUSTER)[0] == 401
        assert served.call("POST", FILTER_PATH, b"{", client="scheduler")[0] == 403
        assert "not valid" in served.call("POST", FILTER_PATH, b"{", client="operator")[1]["Error"]
        process.terminate()
        lines += process.stderr.readlines()
    assert process.returncode == 0
    assert not [line for line in lines for token in TOKENS if token in line]


class Served(Secured):
    """A server that runs elsewhere."""

    def __init__(self, files: Files, port: int) -> None:
        self.files = files
        self.port = port


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--tls-cert-file", "tls.crt"], 2, "go together"),
        (["--tls-private-key-file", "tls.key"], 2, "go together"),
        (["--client-ca-file", "ca.crt"], 2, "needs --tls-cert-file"),
        (["--authorize"], 2, "needs --client-ca-file"),
        ([*TLS, "--authorize"], 2, "needs --client-ca-file"),
        (["--embedded", "x.yaml", *TLS], 2, "loopback"),
        ([*TLS, "--allowed-client-name", "x"], 2, "--allowed-client-name has no effect without --client-ca-file"),
        (["--lease-duration", "9"], 2, "--lease-duration has no effect without --leader-elect"),
        (["--embedded", "x.yaml", "--lease-name", "x"], 2, "--lease-name has no effect without --leader-elect"),
        (["--tls-cert-file", "gone.crt", "--tls-private-key-file", "tls.key"], 1, "--tls-cert-file gone.crt"),
        (["--tls-cert-file", "tls.crt", "--tls-private-key-file", "scheduler.key"], 1, "another certificate"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused_at_start(
    files: Files, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(files.folder)
    monkeypatch.setattr("hived_extender.kube.logs.configure", lambda *_, **__: None)
    result = CliRunner().invoke(main, ["serve", *options])
    assert (result.exit_code, message in result.output) == (code, True), result.output
