"""The whole extender against the embedded API server: recovery, restarts, outages, and the command that serves."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from hived.errors import UserError
from hived_extender.annotations import BIND_INFO, SCHEDULING_SPEC
from hived_extender.embedded.cluster import EmbeddedCluster
from hived_extender.kube import KubeClient, pod_path
from hived_extender.running import BindingSecretName, Embedded, Extender, start_embedded, start_extender
from hived_extender.wire import ENABLE_LIMIT
from tests.extender.world import CONFIG, NODES, cluster_spec, filter_body, spec_text, wait_until
from tests.programs import HIVED, hived

DEADLINE_S = 60.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(cluster_spec()) as cluster:
        yield cluster


@pytest.fixture
def kube(cluster: EmbeddedCluster) -> Iterator[KubeClient]:
    client = connect(cluster)
    yield client
    client.close()


def connect(cluster: EmbeddedCluster) -> KubeClient:
    """A client that may write what only hived writes, such as the annotations of pods that it bound before."""
    client = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    return client


def start(config: Path, cluster: EmbeddedCluster, **options: Any) -> Any:
    client = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    return start_extender(config, client, listen="127.0.0.1:0", **options)


def create_pod(kube: KubeClient, name: str, spec: str | None = None, node: str = "", **annotations: str) -> Any:
    notes = {SCHEDULING_SPEC: spec_text() if spec is None else spec, **annotations}
    return kube.create(
        "/api/v1/namespaces/ns/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "annotations": notes},
            "spec": {
                **({"nodeName": node} if node else {}),
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"limits": {ENABLE_LIMIT: "1"}, "requests": {ENABLE_LIMIT: "1"}},
                    }
                ],
            },
        },
    )


def post(extender: Extender, verb: str, body: bytes) -> Any:
    with urlopen(Request(f"{extender.url}/v1/extender/{verb}", body, method="POST")) as response:
        return json.load(response)


def filter_pod(extender: Extender, pod: Any) -> Any:
    """Call filter until the extender has been told of the pod."""
    answers: list[Any] = []

    def is_known() -> bool:
        answers.append(post(extender, "filter", filter_body(pod)))
        return "is not known" not in answers[-1]["Error"]

    wait_until(is_known)
    return answers[-1]


def place(extender: Extender, pod: Any) -> str:
    (node,) = filter_pod(extender, pod)["NodeNames"]
    meta = pod["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
    assert post(extender, "bind", json.dumps(body).encode()) == {"Error": ""}
    return str(node)


def status_of(url: str) -> int:
    try:
        with urlopen(url) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code


def reason_of(extender: Extender) -> str:
    """Why it is not ready, as everybody can read it."""
    try:
        with urlopen(f"{extender.url}/readyz") as response:
            return f"status {response.status}"
    except HTTPError as error:
        return str(json.load(error)["reason"])


def metric(extender: Extender, name: str, **labels: str) -> float | None:
    return extender.service.metrics.registry.get_sample_value(name, labels)


def test_a_restarted_extender_has_the_state_of_the_one_before(
    config: Path, cluster: EmbeddedCluster, kube: KubeClient
) -> None:
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        for name, spec in (
            ("gang-0", spec_text(leaf_cells=2, group="g", pods=2)),
            ("gang-1", spec_text(leaf_cells=2, group="g", pods=2)),
            ("spare", spec_text(vc="b", leaf_cells=1, priority=-1)),
            ("other", spec_text(vc="b", leaf_cells=4)),
        ):
            place(extender, create_pod(kube, name, spec))
        before = extender.service.reader.snapshot()
    assert len(before[2]) == 3
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        assert extender.service.reader.snapshot() == before
        assert metric(extender, "hived_pods", state="Bound") == 4


def test_one_bad_pod_never_stops_recovery(config: Path, cluster: EmbeddedCluster, kube: KubeClient) -> None:
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        good = place(extender, create_pod(kube, "m-good"))
        before = extender.service.reader.snapshot()
    create_pod(kube, "a-garbage", "{", good, **{BIND_INFO: "[" * 50_000})
    create_pod(kube, "b-nothing", "", good)
    stolen = kube.get(pod_path("ns", "m-good"))["metadata"]["annotations"][BIND_INFO]
    create_pod(kube, "z-thief", spec_text(group="thief"), "n3", **{BIND_INFO: stolen})
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        assert extender.service.reader.snapshot() == before
        assert metric(extender, "hived_recovery_failures_total") == 3


def test_nodes_and_pods_are_followed_after_recovery(config: Path, cluster: EmbeddedCluster, kube: KubeClient) -> None:
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        empty = extender.service.reader.snapshot()
        kube.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
        wait_until(lambda: metric(extender, "hived_bad_nodes") == 1)
        kube.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
        wait_until(lambda: metric(extender, "hived_bad_nodes") == 0)
        place(extender, create_pod(kube, "p"))
        wait_until(lambda: metric(extender, "hived_pods", state="Bound") == 1)
        kube.delete_pod("ns", "p", grace_period_s=0)
        wait_until(lambda: metric(extender, "hived_pods", state="Bound") == 0)
        assert extender.service.reader.snapshot() == empty


def test_a_pod_that_completes_gives_its_cells_back(config: Path, cluster: EmbeddedCluster, kube: KubeClient) -> None:
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        empty = extender.service.reader.snapshot()
        place(extender, create_pod(kube, "p"))
        kube.patch(pod_path("ns", "p") + "/status", {"status": {"phase": "Succeeded"}})
        wait_until(lambda: extender.service.reader.snapshot() == empty)
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        assert extender.service.reader.snapshot() == empty


def test_the_extender_answers_but_is_not_ready_while_the_api_server_is_away(config: Path) -> None:
    with start_extender(config, KubeClient.connect("http://127.0.0.1:9"), listen="127.0.0.1:0") as extender:
        assert status_of(f"{extender.url}/healthz") == 200
        assert status_of(f"{extender.url}/readyz") == 503
        wait_until(lambda: reason_of(extender) == "waiting for the API server to list nodes and pods")
        answer = post(extender, "filter", filter_body({"metadata": {"uid": "u"}}))
        assert "waiting for the API server" in answer["Error"]


def test_while_kernels_are_compiled_everybody_is_told_so(
    config: Path, cluster: EmbeddedCluster, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_told, may_go_on = threading.Event(), threading.Event()

    def compile_for_long(tell: Callable[[int, int], None]) -> None:
        tell(3, 20)
        has_told.set()
        may_go_on.wait(DEADLINE_S)

    monkeypatch.setattr("hived_extender.running.compile_kernels", compile_for_long)
    told = (
        "kernels are being loaded; once after an installation they are compiled, which takes about a minute: "
        "3 of 20 are ready"
    )
    with start(config, cluster) as extender:
        assert has_told.wait(DEADLINE_S)
        assert reason_of(extender) == told
        assert told in post(extender, "filter", filter_body({"metadata": {"uid": "u"}}))["Error"]
        may_go_on.set()
        assert extender.wait_ready(DEADLINE_S)
        assert reason_of(extender) == "status 200"


def test_stopping_does_not_wait_for_silent_watches(config: Path, cluster: EmbeddedCluster) -> None:
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        started = time.monotonic()
    assert time.monotonic() - started < DEADLINE_S / 2


def test_a_recovery_that_fails_is_noticed(
    config: Path, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise IndexError("list out of range")

    monkeypatch.setattr("hived_extender.service.Service.lead", explode)
    with start(config, cluster) as extender:
        assert not extender.wait_ready(DEADLINE_S)
        assert not extender.is_serving


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "203.0.113.1:80"])
def test_an_address_that_cannot_be_used_is_the_users_error(config: Path, cluster: EmbeddedCluster, listen: str) -> None:
    with (
        pytest.raises(UserError, match="cannot listen on"),
        start_extender(config, KubeClient.connect(cluster.api_url), listen=listen),
    ):
        pass


def test_a_place_that_cannot_hold_records_is_the_users_error(config: Path, cluster: EmbeddedCluster) -> None:
    with (
        pytest.raises(UserError, match=r"cannot record to .*: File exists; --record wants a folder"),
        start_extender(config, KubeClient.connect(cluster.api_url), listen="127.0.0.1:0", record_dir=config),
    ):
        pass


def test_a_secret_that_cannot_be_used_is_named(config: Path, cluster: EmbeddedCluster) -> None:
    with (
        pytest.raises(UserError, match=r"Secret ns/keys, which --binding-secret names: .*404"),
        start(config, cluster, binding_secret=BindingSecretName("ns", "keys")),
    ):
        pass


@pytest.mark.parametrize(("moment", "is_warned"), [("2099-01-01T00:00:00Z", True), ("2020-01-01T00:00:00Z", False)])
def test_a_time_to_come_is_warned_of(
    config: Path,
    cluster: EmbeddedCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    moment: str,
    is_warned: bool,
) -> None:
    monkeypatch.setattr("hived_extender.binding_secret.BindingSecret.keys", lambda _: [b"k" * 32])
    monkeypatch.setattr("hived_extender.binding_secret.BindingSecret.changed", lambda _: {})
    with start(config, cluster, binding_secret=BindingSecretName("ns", "keys", moment)):
        pass
    assert is_warned is any("until a time to come" in record.getMessage() for record in caplog.records)


def test_an_embedded_cluster_whose_extender_fails_does_not_start(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived_extender.service.Service.lead", lambda *_: 1 / 0)
    with pytest.raises(UserError, match="the extender has not become ready"), start_embedded(config):
        pass


def test_an_embedded_cluster_runs_the_pods_it_is_given(config: Path) -> None:
    with start_embedded(config) as running:
        kube = connect(running.cluster)
        create_pod(kube, "p")
        wait_until(lambda: kube.get(pod_path("ns", "p"))["status"].get("phase") == "Running")
        assert kube.get(pod_path("ns", "p"))["spec"]["nodeName"] in NODES
        kube.close()


def test_a_pod_that_is_refused_again_and_again_is_warned_of_once(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with start_embedded(config) as running:
        kube = connect(running.cluster)
        create_pod(kube, "p", spec_text(vc="nowhere"))
        wait_until(
            lambda: (metric(running.extender, "hived_decisions_total", verb="filter", outcome="error") or 0) >= 3
        )
        kube.close()
    told = [record.levelname for record in caplog.records if "scheduling ns/p failed" in record.getMessage()]
    assert told[:3] == ["WARNING", "INFO", "INFO"]


def test_an_embedded_cluster_that_is_told_to_stop_does_not_wait_until_it_is_ready(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, has_ended = threading.Event(), threading.Event()

    def compile_for_long(tell: Callable[[int, int], None]) -> None:
        stop.set()
        has_ended.wait(DEADLINE_S)

    monkeypatch.setattr("hived_extender.running.compile_kernels", compile_for_long)
    began = time.monotonic()
    with start_embedded(config, stop=stop) as running:
        assert not running.extender.service.is_ready
    has_ended.set()
    assert time.monotonic() - began < DEADLINE_S / 2


def test_where_an_embedded_cluster_answers_is_told_before_it_is_ready(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    told: list[tuple[bool, bool, int]] = []

    def note(running: Embedded) -> None:
        extender = running.extender
        told.append(
            (running.cluster.kubeconfig.exists(), extender.service.is_ready, status_of(f"{extender.url}/healthz"))
        )
        may_go_on.set()

    monkeypatch.setattr("hived_extender.running.compile_kernels", lambda tell: may_go_on.wait(DEADLINE_S))
    with start_embedded(config, on_answering=note) as running:
        assert running.extender.service.is_ready
    assert told == [(True, False, 200)]


def test_the_command_serves_until_sigterm_and_exits_with_zero(config: Path, tmp_path: Path) -> None:
    words = ["serve", "--embedded", str(config), "--listen", "127.0.0.1:0"]
    words += ["--record", str(tmp_path / "records"), "--log-format", "json"]
    with hived(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [line.split() for line in takewhile(lambda line: not line.startswith("Ready"), process.stdout)]
        addresses = {words[0]: words[-1] for words in lines if words}
        assert status_of(f"{addresses['extender']}/readyz") == 200
        assert status_of(f"{addresses['API']}/api/v1/nodes/n0") == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert all(json.loads(line)["level"] in {"info", "warning"} for line in log.splitlines())
    assert len(list((tmp_path / "records").glob("*-0001.jsonl"))) == 1


def test_a_configuration_that_refuses_pods_in_vain_is_warned_of(config: Path) -> None:
    config.write_text(f"foreignDevices: {{nvidia.com/gpu: refuse}}\n{config.read_text()}")
    words = ["serve", "--embedded", str(config), "--listen", "127.0.0.1:0", "--log-format", "json"]
    with hived(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        told = json.loads(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert told["level"] == "warning"
    assert "refuses pods that ask for nvidia.com/gpu, and there is none: add --webhook;" in told["message"]


def test_the_command_refuses_two_configurations() -> None:
    words = ["serve", "--config", "a", "--embedded", "b"]
    result = subprocess.run([*HIVED, *words], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert result.returncode == 2
    assert "exclude each other" in result.stderr
