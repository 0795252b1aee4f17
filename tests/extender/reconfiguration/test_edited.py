"""Configurations that somebody changes by hand: in the ConfigMap, or in a file; on a real (embedded) API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import KubeClient, pod_path
from hived_extender.reconfiguration import configurations, stores
from hived_extender.reconfiguration.stores import ConfigMapName
from hived_extender.reconfiguration.versions import ALLOW_DOWNGRADE, ALLOW_UNCERTIFIED, REFUSED, TEXT_KEY
from hived_extender.running import Extender, start_extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.e2e.pods import POD_LIST, pod
from tests.extender.machine.small_cluster import CONFIG, PATIENCE_S, cluster_spec, wait_until

pytestmark = pytest.mark.sample(4)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CONFIG_MAP = f"{CONFIG_MAPS}/hived-config"
EVENTS = "/api/v1/namespaces/default/events"
MORE_FOR_B = CONFIG.replace("cellNumber: 1}]", "cellNumber: 2}]")
NOTHING_FOR_A = CONFIG.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]")
BROKEN = CONFIG.replace("cellType: RACK\n", "cellType: RAKC\n")

Json = dict[str, Any]


class Edited:
    """A cluster with a service, whose configuration others change."""

    def __init__(self, kube: KubeClient, extender: Extender) -> None:
        self.kube = kube
        self.extender = extender

    @property
    def current(self) -> Json:
        """The configuration in force."""
        return self.extender.configurations.describe()

    def edit(self, text: str, **annotations: str) -> None:
        """As kubectl edit does."""
        self.kube.patch(CONFIG_MAP, {"data": {TEXT_KEY: text}, "metadata": {"annotations": annotations}})

    def metric(self, name: str, **labels: str) -> float | None:
        """A figure of /metrics."""
        return self.extender.metrics.registry.get_sample_value(name, labels)

    def events(self) -> list[tuple[str, str]]:
        """Reason and message of every event about the ConfigMap."""
        listed = self.kube.list_objects(EVENTS, Json).items
        return [(one["reason"], one["message"]) for one in listed if one["involvedObject"]["kind"] == "ConfigMap"]

    def run(self, name: str, vc: str) -> None:
        """A guaranteed pod that has all of a node."""
        self.kube.create(POD_LIST, pod(name, vc=vc, gpus=4))
        wait_until(lambda: self.kube.get(pod_path("default", name))["spec"].get("nodeName"))

    def place_of(self, name: str) -> Json:
        """The service's answer about the pod's group."""
        group: Json = self.extender.service.reader.affinity_group(f"default/{name}")
        return group["status"]


def put(file: Path, text: str) -> None:
    """Give a file another text at once: no reader finds it empty on the way."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.replace(file)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "LONGEST_RETRY_S", 0.2)
    monkeypatch.setattr(stores, "POLL_S", 0.05)


@contextmanager
def edited(config: Path | ConfigMapName, cluster: EmbeddedCluster) -> Iterator[Edited]:
    kube, client = KubeClient.connect(cluster.api_url), KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    with start_extender(config, client, listen="127.0.0.1:0", serves_every_name=True) as on:
        assert on.wait_ready(PATIENCE_S)
        cluster.start_scheduler(on.url)
        yield Edited(kube, on)
        cluster.stop_scheduler()
    kube.close()


@pytest.fixture
def stored() -> Iterator[Edited]:
    """With a ConfigMap that an administrator has made from a file."""
    with EmbeddedCluster(cluster_spec()) as cluster:
        kube = KubeClient.connect(cluster.api_url)
        kube.create(CONFIG_MAPS, {"metadata": {"name": "hived-config"}, "data": {TEXT_KEY: CONFIG}})
        kube.close()
        with edited(ConfigMapName("default", "hived-config"), cluster) as one:
            wait_until(lambda: one.extender.configurations.store.read().stored.versions)
            yield one


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[tuple[Edited, Path]]:
    """With a file."""
    file = tmp_path / "hivedscheduler.yaml"
    put(file, CONFIG)
    with EmbeddedCluster(cluster_spec()) as cluster, edited(file, cluster) as one:
        yield one, file


def test_an_edited_text_becomes_a_version(stored: Edited) -> None:
    stored.run("p", "a")
    stored.edit(MORE_FOR_B)
    wait_until(lambda: stored.current.version == 2)
    current = stored.current
    assert (current.text, current.refused) == (MORE_FOR_B, None)
    assert current.why == "edited in the ConfigMap default/hived-config"
    assert stored.place_of("p")["virtualPlacement"]
    assert [version.version for version in stored.extender.configurations.versions()] == [2, 1]
    wait_until(lambda: "ConfigApplied" in dict(stored.events()))
    assert stored.metric("hived_config_version") == 2


def test_an_earlier_config_map_that_is_brought_back_is_in_force(stored: Edited) -> None:
    """docs/backup.md: with its versions, and without their plans."""
    kept = {key: found for key, found in stored.kube.get(CONFIG_MAP).items() if key != "metadata"}
    stored.edit(MORE_FOR_B)
    wait_until(lambda: stored.current.version == 2)
    stored.kube.delete(CONFIG_MAP)
    stored.kube.create(CONFIG_MAPS, {**kept, "metadata": {"name": "hived-config"}})
    wait_until(lambda: stored.current.version == 1)
    assert stored.current.text == CONFIG


def test_pushed_rules_are_in_force_and_told(stored: Edited) -> None:
    assert stored.metric("hived_rules") == 1
    stored.run("p", "a")
    stored.edit(f"rules: 2\n{CONFIG}")
    wait_until(lambda: stored.current.version == 2)
    assert stored.metric("hived_rules") == 2
    assert stored.place_of("p")["virtualPlacement"]


def test_a_node_that_cannot_be_is_refused_with_the_one_that_was_meant(stored: Edited) -> None:
    stored.kube.create("/api/v1/nodes", {"metadata": {"name": "gpu-4"}})

    def has_joined() -> bool:
        with stored.extender.service.runner.look() as machine:
            return "gpu-4" in machine.cache.nodes.names

    wait_until(has_joined)
    stored.edit(MORE_FOR_B.replace("n3", "GPU_04"))
    wait_until(lambda: stored.current.refused)
    reason = stored.current.refused.reason
    assert "node name 'GPU_04'" in reason
    assert reason.endswith("(did you mean gpu-4?)")
    assert stored.current.version == 1


def test_an_unsound_text_is_refused_until_it_is_mended(stored: Edited) -> None:
    stored.edit(BROKEN)
    wait_until(lambda: stored.current.refused)
    assert "RAKC" in stored.current.refused.reason
    assert (stored.current.version, stored.current.text) == (1, CONFIG)
    found = stored.kube.get(CONFIG_MAP)
    assert "RAKC" in found["metadata"]["annotations"][REFUSED]
    assert found["data"][TEXT_KEY] == BROKEN
    wait_until(lambda: "RAKC" in dict(stored.events()).get("ConfigRefused", ""))
    assert stored.metric("hived_config_changes_total", outcome="refused") == 1

    stored.edit(MORE_FOR_B)
    wait_until(lambda: stored.current.version == 2)
    assert REFUSED not in (stored.kube.get(CONFIG_MAP)["metadata"].get("annotations") or {})


def test_a_text_that_is_taken_back_needs_no_version(stored: Edited) -> None:
    stored.edit(BROKEN)
    wait_until(lambda: stored.current.refused)
    stored.edit(CONFIG)
    wait_until(lambda: not stored.current.refused)
    assert stored.current.version == 1
    assert REFUSED not in (stored.kube.get(CONFIG_MAP)["metadata"].get("annotations") or {})


def test_locking_out_guaranteed_work_takes_an_annotation_which_counts_once(stored: Edited) -> None:
    """Rule 33.1."""
    stored.run("p", "a")
    stored.edit(NOTHING_FOR_A)
    wait_until(lambda: stored.current.refused)
    assert ALLOW_DOWNGRADE in stored.current.refused.reason
    assert stored.place_of("p")["virtualPlacement"]

    stored.kube.patch(CONFIG_MAP, {"metadata": {"annotations": {ALLOW_DOWNGRADE: "true"}}})
    wait_until(lambda: stored.current.version == 2)
    assert not stored.place_of("p").get("virtualPlacement")
    assert stored.kube.get(pod_path("default", "p"))["spec"]["nodeName"]
    assert ALLOW_DOWNGRADE not in (stored.kube.get(CONFIG_MAP)["metadata"].get("annotations") or {})

    stored.edit(CONFIG)
    wait_until(lambda: stored.place_of("p").get("virtualPlacement"))
    stored.edit(NOTHING_FOR_A)
    wait_until(lambda: stored.current.refused)
    assert stored.current.version == 3


def test_a_changed_file_is_taken_up_without_a_restart(filed: tuple[Edited, Path]) -> None:
    one, file = filed
    one.run("p", "a")
    put(file, MORE_FOR_B)
    wait_until(lambda: one.current.text == MORE_FOR_B)
    assert (one.current.version, one.current.source) == (2, f"file {file}")
    assert one.place_of("p")["virtualPlacement"]
    one.run("q", "b")


def test_a_broken_file_is_refused_and_the_old_one_stays_in_force(filed: tuple[Edited, Path]) -> None:
    one, file = filed
    put(file, BROKEN)
    wait_until(lambda: one.metric("hived_config_changes_total", outcome="refused") == 1)
    wait_until(lambda: one.current.refused)
    assert "RAKC" in one.current.refused.reason
    assert (one.current.version, one.current.text) == (1, CONFIG)
    one.run("p", "a")

    file.unlink()
    put(file, MORE_FOR_B)
    wait_until(lambda: one.current.text == MORE_FOR_B)
    assert one.current.refused is None


def test_a_file_that_locks_out_guaranteed_work_waits_for_a_restart(filed: tuple[Edited, Path]) -> None:
    one, file = filed
    one.run("p", "a")
    put(file, NOTHING_FOR_A)
    wait_until(lambda: one.current.refused)
    assert "restart the service" in one.current.refused.reason
    assert one.place_of("p")["virtualPlacement"]


def test_where_certificates_are_demanded_an_edit_takes_an_annotation_which_counts_once(stored: Edited) -> None:
    stored.edit(f"certify: {{days: 14}}\n{CONFIG}")
    wait_until(lambda: stored.current.version == 2)
    stored.edit(MORE_FOR_B)
    wait_until(lambda: stored.current.refused)
    assert stored.current.version == 2
    assert ALLOW_UNCERTIFIED in stored.current.refused.reason
    stored.kube.patch(CONFIG_MAP, {"metadata": {"annotations": {ALLOW_UNCERTIFIED: "true"}}})
    wait_until(lambda: stored.current.version == 3)
    assert (stored.current.text, stored.current.refused) == (MORE_FOR_B, None)
    assert ALLOW_UNCERTIFIED not in (stored.kube.get(CONFIG_MAP)["metadata"].get("annotations") or {})
