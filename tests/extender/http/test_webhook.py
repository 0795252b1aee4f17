"""The admission webhook on real sockets, beside the extender, and what stands for it in the embedded cluster."""

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hived.values.errors import UserError
from hived_cli import main
from hived_config.loader import load_text
from hived_extender.groundwork import WebhookPort
from hived_extender.http.server import HttpServer, listen
from hived_extender.http.tls import ServerTls
from hived_extender.http.webhook import BODY_LIMIT, MUTATE_PATH, Webhook
from hived_extender.jobs.admission import Admission
from hived_extender.jobs.amounts import DEVICE_REQUESTS
from hived_extender.jobs.device_words import VARIABLES
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.running import start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.start import start_embedded
from tests.extender.http.secured import Files
from tests.extender.machine.small_cluster import CONFIG, PATIENCE_S, cluster_spec, spec_text, wait_until

GPU = "nvidia.com/gpu"


def pod(count: int = 2, **metadata: Any) -> dict[str, Any]:
    """A pod as its author writes it."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: count}}}
    return {"metadata": {"name": "p", **metadata}, "spec": {"schedulerName": "hived", "containers": [container]}}


def review(given: object) -> bytes:
    request = {"uid": "u", "operation": "CREATE", "namespace": "default", "object": given}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def tls(files: Files) -> ServerTls:
    return ServerTls(files.certificate, files.key)


@pytest.fixture
def served(tls: ServerTls, request: pytest.FixtureRequest) -> Iterator[HttpServer]:
    """The webhook; a parameter is how many seconds a body may take."""
    configuration = load_text(CONFIG, "hivedscheduler.yaml")
    timeout_s = getattr(request, "param", PATIENCE_S)
    application = Webhook(Admission(configuration.cluster, configuration.rules), body_timeout_s=timeout_s)
    server = HttpServer(application, listen("127.0.0.1:0"), tls, name="webhook")
    server.start()
    yield server
    server.stop()


Connect = Callable[[], http.client.HTTPSConnection]


@pytest.fixture
def connect(served: HttpServer, files: Files) -> Connect:
    port = int(served.url.rsplit(":", 1)[1])
    return lambda: http.client.HTTPSConnection("localhost", port, context=files.context(), timeout=PATIENCE_S)


def call(connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_a_review_over_tls_is_answered_with_a_patch(connect: Connect) -> None:
    with closing(connect()) as connection:
        status, answer = call(connection, "POST", MUTATE_PATH, review(pod()))
    assert status == 200
    patch = json.loads(base64.b64decode(answer["response"]["patch"]))
    assert {each["path"] for each in patch} == {
        "/metadata/annotations", "/spec/containers/0/env", "/spec/containers/0/resources",
    }  # fmt: skip


def test_one_connection_serves_review_after_review(connect: Connect) -> None:
    with closing(connect()) as connection:
        connection.connect()
        port = connection.sock.getsockname()[1]
        for body, expected in ((review(pod()), 200), (b"{", 400), (review("no pod"), 400), (review(pod()), 200)):
            assert call(connection, "POST", MUTATE_PATH, body)[0] == expected
        assert connection.sock.getsockname()[1] == port


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/healthz", 200),
        ("GET", MUTATE_PATH, 405),
        ("POST", "/healthz", 405),
        ("POST", "/v1/extender/filter", 404),
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
    ],
)
def test_there_is_nothing_else_at_this_port(connect: Connect, method: str, path: str, expected: int) -> None:
    with closing(connect()) as connection:
        assert call(connection, method, path)[0] == expected


def test_who_speaks_in_the_clear_is_not_answered(served: HttpServer) -> None:
    port = int(served.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in connection.recv(1000)


@pytest.mark.parametrize(
    ("served", "length", "expected"), [(PATIENCE_S, BODY_LIMIT + 1, 413), (0.1, 10, 408)], indirect=["served"]
)
def test_a_body_that_is_too_large_or_never_comes_ends_its_connection(
    connect: Connect, length: int, expected: int
) -> None:
    with closing(connect()) as connection:
        connection.putrequest("POST", MUTATE_PATH)
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        response = connection.getresponse()
        assert (response.status, response.getheader("Connection")) == (expected, "close")


def test_a_renewed_certificate_is_shown(connect: Connect, files: Files) -> None:
    def serial() -> object:
        with closing(connect()) as connection:
            connection.connect()
            return connection.sock.getpeercert()["serialNumber"]

    before = serial()
    files.renew()
    assert serial() != before


def test_the_extender_serves_it_from_its_start_on_whether_it_leads_or_not(
    files: Files, tls: ServerTls, tmp_path: Path
) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG)
    with closing(listen("127.0.0.1:0")) as free:
        port = free.getsockname()[1]
    nobody = KubeClient.connect("http://127.0.0.1:9")
    with start_extender(config, nobody, listen="127.0.0.1:0", webhook=WebhookPort(port, tls)) as extender:
        assert not extender.service.is_ready
        with closing(
            http.client.HTTPSConnection("localhost", port, context=files.context(), timeout=PATIENCE_S)
        ) as connection:
            assert call(connection, "POST", MUTATE_PATH, review(pod()))[0] == 200
        assert extender.is_serving
    with pytest.raises((OSError, ssl.SSLError)):
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def test_a_port_that_is_taken_is_an_error(tls: ServerTls, tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG)
    with closing(listen("127.0.0.1:0")) as taken:
        port = WebhookPort(taken.getsockname()[1], tls)
        starting = start_extender(config, KubeClient.connect("http://127.0.0.1:9"), listen="127.0.0.1:0", webhook=port)
        with pytest.raises(UserError, match="cannot listen"), starting:
            pass


PAIR = ["--webhook-tls-cert-file", "none.crt", "--webhook-tls-private-key-file", "none.key"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--webhook-port", "9443"], "--webhook-port needs --webhook-tls-cert-file"),
        (["--webhook-port", "9443", *PAIR], "--webhook-tls-cert-file none.crt: expected a file that can be read"),
        (PAIR, "has no effect without --webhook-port"),
        (["--webhook"], "--webhook goes with --embedded"),
        (["--embedded", "x", "--webhook-port", "9443"], "give --webhook instead of --webhook-port"),
    ],
)
def test_options_that_do_not_make_a_webhook_are_refused(options: list[str], expected: str) -> None:
    result = CliRunner().invoke(main, ["serve", *options])
    assert result.exit_code != 0
    assert expected in result.output


def test_the_embedded_cluster_changes_pods_as_the_webhook_does(tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG)
    with start_embedded(config, has_webhook=True) as running:
        kube = KubeClient.connect(running.cluster.api_url)
        annotations = {"hivedscheduler.microsoft.com/pod-scheduling-spec": spec_text()}
        created = kube.create("/api/v1/namespaces/default/pods", {**pod(1, annotations=annotations), "kind": "Pod"})
        (container,) = created["spec"]["containers"]
        assert container["resources"] == {key: {ENABLE_LIMIT: "1"} for key in ("limits", "requests")}
        assert [each["name"] for each in container["env"]] == list(VARIABLES)
        assert json.loads(created["metadata"]["annotations"][DEVICE_REQUESTS])["total"] == 1
        wait_until(lambda: kube.get(pod_path("default", "p"))["spec"].get("nodeName"))
        with pytest.raises(Exception, match="containers"):
            kube.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "q"}, "spec": {"containers": 1}})
        kube.close()


def test_the_embedded_cluster_refuses_pods_as_the_webhook_does() -> None:
    configuration = load_text(f"foreignDevices: {{{GPU}: refuse}}\n{CONFIG}", "hivedscheduler.yaml")
    admission = Admission(configuration.cluster, configuration.rules, serves_every_name=True)
    with EmbeddedCluster(configuration.cluster, admission=admission) as cluster:
        kube = KubeClient.connect(cluster.api_url)
        given = pod()
        given["spec"]["nodeName"] = "n0"
        with pytest.raises(KubeError, match=f"asks for {GPU}, which hived gives away on node n0: leave nodeName out"):
            kube.create("/api/v1/namespaces/default/pods", given)
        kube.close()


def test_the_embedded_cluster_refuses_pods_by_the_labels_of_their_namespace(tmp_path: Path) -> None:
    config = tmp_path / "hivedscheduler.yaml"
    listed = "  a:\n    namespaces: [{matchLabels: {team: blue}}]\n"
    config.write_text("access: namespaces\n" + CONFIG.replace("  a:\n", listed))
    with start_embedded(config, has_webhook=True) as running:
        kube = KubeClient.connect(running.cluster.api_url)
        for name, labels in (("blue", {"team": "blue"}), ("red", {})):
            kube.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        given = pod(1, annotations={"hivedscheduler.microsoft.com/pod-scheduling-spec": spec_text()})
        assert kube.create("/api/v1/namespaces/blue/pods", given)
        with pytest.raises(KubeError, match="namespace red may not use virtual cluster a"):
            kube.create("/api/v1/namespaces/red/pods", given)
        kube.close()


def test_without_it_the_embedded_cluster_leaves_pods_alone() -> None:
    with EmbeddedCluster(cluster_spec()) as cluster:
        kube = KubeClient.connect(cluster.api_url)
        created = kube.create("/api/v1/namespaces/default/pods", pod())
        assert created["spec"]["containers"][0]["resources"]["limits"] == {GPU: "2"}
        kube.close()
