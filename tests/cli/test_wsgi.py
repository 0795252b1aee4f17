"""The whole endpoint under a WSGI server, as a process of its own: a cluster is scheduled, and answers are the same."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from hived_cli.wsgi import VARIABLE
from hived_extender.api import paths
from hived_extender.http.routes import SMALL_LIMIT
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.cases.played import PATHS, pod
from tests.e2e.processes import free_port
from tests.expecting import expect_soon
from tests.extender.machine.small_cluster import CONFIG, NODES, cluster_spec
from tests.programs import hived

pytestmark = pytest.mark.sample(4)

HOST = "127.0.0.1"
WERKZEUG = (
    "from sys import argv; from werkzeug.serving import run_simple; from hived_cli.wsgi import create_app; "
    "run_simple(argv[1], int(argv[2]), create_app(), {})"
)
OURS = {"connection", "content-length", "date", "etag", "keep-alive", "server", "transfer-encoding"}
"""Headers of a server, or of one process, and not of the application."""
TIME = re.compile(rb"20[0-9-]+T[0-9:.]+Z")


def flask(port: int) -> list[str]:
    return [sys.executable, "-m", "flask", "--app", "hived_cli.wsgi", "run", "--host", HOST, "--port", str(port)]


def werkzeug(port: int, options: str = "threaded=True") -> list[str]:
    return [sys.executable, "-c", WERKZEUG.format(options), HOST, str(port)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "hivedscheduler.yaml"
    file.write_text(f"rules: 2\n{CONFIG}")
    return file


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(cluster_spec()) as running:
        yield running


def environment(cluster: EmbeddedCluster, options: str) -> dict[str, str]:
    where = {"KUBE_APISERVER_ADDRESS": "", "KUBECONFIG": str(cluster.hived_kubeconfig), "NUMBA_DISABLE_JIT": "1"}
    return {**os.environ, **where, VARIABLE: options, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@contextmanager
def served(command: list[str], cluster: EmbeddedCluster, options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A WSGI server with these options of `hived serve`; killed at the end if it still runs."""
    with subprocess.Popen(command, env=environment(cluster, options), stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers of the application, and body of an answer without times; status 0 if there is none."""
    with closing(HTTPConnection(HOST, port, timeout=60)) as connection, suppress(OSError, HTTPException):
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, {name: found[name] for name in sorted(found.keys() - OURS)}, TIME.sub(b"", answer.read())
    return 0, {}, b""


def is_ready(port: int) -> bool:
    return ask(port, "GET", paths.READINESS_PATH)[0] == 200


Question = tuple[str, str, bytes, dict[str, str]]

READ = (
    "/", paths.HEALTH_PATH, paths.READINESS_PATH, paths.CLUSTER_PATH, f"{paths.CLUSTER_PATH}/", paths.RULES_PATH,
    paths.PHYSICAL_CLUSTER_PATH, paths.VIRTUAL_CLUSTERS_PATH, f"{paths.VIRTUAL_CLUSTERS_PATH}a",
    f"{paths.VIRTUAL_CLUSTERS_PATH}nobody", paths.FREE_CELLS_PATH, paths.CONFIG_PATH, paths.CONFIG_VERSIONS_PATH,
    paths.QUEUES_PATH, paths.MOVES_PATH, "/v1/nothing", paths.FILTER_PATH, f"{paths.PAGE_PATH}/help",
)  # fmt: skip
QUESTIONS: list[Question] = [
    *(("GET", path, b"", {}) for path in READ),
    ("GET", "/", b"", {"Accept": "text/html"}),
    ("GET", f"{paths.PAGE_PATH}/vcs", b"", {"Accept": "text/html"}),
    ("POST", paths.FILTER_PATH, b"{", {}),
    ("POST", paths.BIND_PATH, b"[]", {}),
    ("POST", paths.PREEMPT_PATH, b"{}", {}),
    ("DELETE", paths.CLUSTER_PATH, b"", {}),
    ("OPTIONS", paths.CLUSTER_PATH, b"", {}),
    ("GET", paths.CLUSTER_PATH, b"", {"Host": "example.com"}),
    ("POST", paths.CONFIG_PLAN_PATH, b"{}", {"Origin": "http://example.com"}),
    ("POST", paths.CONFIG_PLAN_PATH, b'{"text": "rules: 2"}', {}),
]


def verbs(kube: KubeClient) -> list[Question]:
    """What kube-scheduler asks: about a pod that gets cells, one that preempts, and a binding once more."""
    pods = {one["metadata"]["name"]: one for one in kube.get(PATHS["Pod"].format("default"))["items"]}
    first, node = pods["first"]["metadata"], pods["first"]["spec"]["nodeName"]
    victims = {name: {"Pods": []} for name in NODES}
    binding = {"PodName": "first", "PodNamespace": "default", "PodUID": first["uid"], "Node": node}
    asked = [
        (paths.FILTER_PATH, {"Pod": pods["later"], "NodeNames": list(NODES)}),
        (paths.FILTER_PATH, {"Pod": pods["never"], "NodeNames": list(NODES)}),
        (paths.PREEMPT_PATH, {"Pod": pods["later"], "NodeNameToVictims": victims}),
        (paths.BIND_PATH, binding),
        (paths.WHAT_IF_PATH, {"pods": [pod("new", 4, vc="b")]}),
    ]
    return [("POST", path, json.dumps(body).encode(), {}) for path, body in asked]


@pytest.mark.parametrize("command", [flask, werkzeug])
def test_a_wsgi_server_schedules_a_cluster_and_answers_as_hived_serve_does(
    cluster: EmbeddedCluster, file: Path, command: Any
) -> None:
    port = free_port()
    options = f"--config {file} --listen {HOST}:{port}"
    with closing(KubeClient.connect(cluster.api_url)) as kube:
        with served(command(port), cluster, options) as process:
            expect_soon(lambda: is_ready(port), every_s=0.05)
            cluster.start_scheduler(f"http://{HOST}:{port}")
            kube.create(PATHS["Pod"].format("default"), pod("first", 4, vc="b"))
            expect_soon(lambda: kube.get(f"{PATHS['Pod'].format('default')}/first")["status"].get("phase") == "Running")
            cluster.stop_scheduler()
            for one in (pod("later", 2, vc="a", priority=5), pod("never", 8, vc="a")):
                kube.create(PATHS["Pod"].format("default"), one)
            questions = [*QUESTIONS, *verbs(kube)]
            found = [ask(port, *question[:3], **question[3]) for question in questions]
            assert ask(port, "POST", paths.IF_PATH, b" " * (SMALL_LIMIT + 1))[0] == 413
            process.terminate()
            assert process.wait(60) == 0, "SIGTERM ends it in order"
        with hived("serve", *options.split(), env=environment(cluster, ""), stderr=subprocess.DEVNULL):
            expect_soon(lambda: is_ready(port), every_s=0.05)
            expected = [ask(port, *question[:3], **question[3]) for question in questions]
    for question, ours, theirs in zip(questions, found, expected, strict=True):
        assert ours == theirs, question


def test_a_gang_is_bound_as_a_whole_by_calls_side_by_side(cluster: EmbeddedCluster, file: Path) -> None:
    port, prefix = free_port(), "gang.scheduling.koordinator.sh/"
    notes = {f"{prefix}name": "g", f"{prefix}min-available": "2"}
    collection = PATHS["Pod"].format("default")
    with (
        closing(KubeClient.connect(cluster.api_url)) as kube,
        served(flask(port), cluster, f"--config {file}"),
    ):
        expect_soon(lambda: is_ready(port), every_s=0.05)
        cluster.start_scheduler(f"http://{HOST}:{port}")
        for name in ("g-0", "g-1"):
            kube.create(collection, pod(name, 4, vc="a", annotations=notes))
        expect_soon(lambda: all(one["spec"].get("nodeName") for one in kube.get(collection)["items"]))
        cluster.stop_scheduler()
        nodes = {one["spec"]["nodeName"] for one in kube.get(collection)["items"]}
    assert len(nodes) == 2


@pytest.mark.parametrize(
    ("options", "words"), [("threaded=False", "side by side, with threads"), ("processes=2", "one, with threads")]
)
def test_a_server_that_cannot_be_one_scheduler_is_told_what_it_needs(
    cluster: EmbeddedCluster, file: Path, options: str, words: str
) -> None:
    port = free_port()
    with served(werkzeug(port, options), cluster, f"--config {file}"):
        expect_soon(lambda: ask(port, "GET", paths.HEALTH_PATH)[0], every_s=0.05)
        for path in (paths.HEALTH_PATH, paths.FILTER_PATH):
            status, headers, body = ask(port, "GET", path)
            assert (status, headers, words in json.loads(body)) == (503, {"content-type": "application/json"}, True)


def test_an_embedded_cluster_runs_under_a_wsgi_server_too(cluster: EmbeddedCluster, file: Path) -> None:
    port = free_port()
    options = f"--embedded {file} --listen {HOST}:{port}"
    with subprocess.Popen(flask(port), env=environment(cluster, options), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = next(line.split()[-1] for line in process.stdout if "API server" in line)
            with closing(KubeClient.connect(url)) as kube:
                kube.create(PATHS["Pod"].format("default"), pod("one", 4, vc="b"))
                one = f"{PATHS['Pod'].format('default')}/one"
                expect_soon(lambda: kube.get(one)["status"].get("phase") == "Running")
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--config gone.yaml", 1, "gone.yaml: found no readable file"),
        ("--tls-cert-file a --tls-private-key-file b", 2, "--tls-cert-file is for the server of hived serve"),
        ("--webhook-port 1", 2, "--webhook-port is for the server of hived serve"),
        ("--sync-nodes 5", 2, "--sync-nodes needs --config-map or --embedded"),
        ("--nothing", 2, "No such option '--nothing'"),
    ],
)
def test_options_that_cannot_be_are_told_before_anything_begins(
    cluster: EmbeddedCluster, tmp_path: Path, options: str, code: int, words: str
) -> None:
    command = [sys.executable, "-m", "flask", "--app", "hived_cli.wsgi", "routes"]
    result = subprocess.run(
        command, env=environment(cluster, options), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, words in result.stderr) == (code, True), result.stderr
