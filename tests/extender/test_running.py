"""The whole extender against the embedded API server: recovery, restarts and outages."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.groundwork import BindingSecretName
from hived_extender.jobs.annotations import BIND_INFO
from hived_extender.kube.client import KubeClient, pod_path
from hived_extender.running import start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.machine.small_cluster import CONFIG, cluster_spec, filter_body, spec_text, wait_until
from tests.extender.replica import DEADLINE_S, connect, create_pod, metric, place, post, reason_of, start, status_of

pytestmark = pytest.mark.sample(6)


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


def snapshot_once_started(extender: Any) -> Any:
    """The state, once the start of every pod is known: the kubelet tells it after the binding."""

    def is_told() -> bool:
        groups = extender.service.reader.snapshot()[2].values()
        return all(set(group["allocated"]) == set(group.get("times", ())) for group in groups)

    wait_until(is_told)
    return extender.service.reader.snapshot()


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
        before = snapshot_once_started(extender)
    assert len(before[2]) == 3
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        assert extender.service.reader.snapshot() == before
        assert metric(extender, "hived_pods", state="Bound") == 4


def test_one_bad_pod_never_stops_recovery(config: Path, cluster: EmbeddedCluster, kube: KubeClient) -> None:
    with start(config, cluster) as extender:
        assert extender.wait_ready(DEADLINE_S)
        good = place(extender, create_pod(kube, "m-good"))
        before = snapshot_once_started(extender)
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

    monkeypatch.setattr("hived_extender.running.load_kernels", compile_for_long)
    told = "kernels are being loaded: 3 of 20 are ready"
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

    monkeypatch.setattr("hived_extender.machine.service.Service.lead", explode)
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
    monkeypatch.setattr("hived_extender.machine.writes.binding_secret.BindingSecret.keys", lambda _: [b"k" * 32])
    monkeypatch.setattr("hived_extender.machine.writes.binding_secret.BindingSecret.changed", lambda _: {})
    with start(config, cluster, binding_secret=BindingSecretName("ns", "keys", moment)):
        pass
    assert is_warned is any("until a time to come" in record.getMessage() for record in caplog.records)
