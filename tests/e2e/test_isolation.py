"""The admission webhook on a real API server, which accepts its configuration and asks it about pods for hived."""

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest
import yaml

from hived_extender.http.webhook import MUTATE_PATH
from hived_extender.jobs.amounts import DEVICE_REQUESTS
from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION
from hived_extender.jobs.device_words import VARIABLES
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import pod_path
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import POD_LIST, Json, configuration, is_bound, pod
from tests.e2e.webhooks import webhook

GPU = "nvidia.com/gpu"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hived"


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path) -> Iterator[RealCluster]:
    """A cluster with the webhook."""
    file = configuration(tmp_path, {"a": 1}, gpus=4, of_vcs={"a": {"namespaces": ["default"]}})
    document, options = webhook("MutatingWebhookConfiguration", MUTATE_PATH, file, tmp_path / "certificates")
    with RealCluster(plane, file, serve_options=options) as running:
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(document))
        try:
            plane.wait_for("the webhook to be asked", lambda: is_asked(plane))
            yield running
        finally:
            plane.kube.delete(CONFIGURATION)
            plane.wait_for("nobody to be asked", lambda: not is_asked(plane))


def with_devices(name: str, count: int = 2, **fields: Any) -> Json:
    """A pod as a controller makes it: nothing of hived's in it but the scheduler's name."""
    made = pod(name)
    del made["metadata"]["annotations"]
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(count)}}
    made["spec"] |= fields
    return made


def is_asked(plane: ControlPlane) -> bool:
    """Configurations of webhooks take the API server a moment to notice."""
    made = plane.kube.create(f"{POD_LIST}?dryRun=All", with_devices("trial"))
    return DEVICE_REQUESTS in made["metadata"].get("annotations", {})


def test_a_pod_gets_the_devices_of_its_cells_and_none_of_the_device_plugin(
    plane: ControlPlane, cluster: RealCluster
) -> None:
    cluster.kube.create(POD_LIST, pod("p", gpus=2, limits={GPU: "2"}))
    plane.wait_for("the pod to be bound", lambda: is_bound(cluster.kube, "p"))
    bound = cluster.kube.get(pod_path("default", "p"))
    (container,) = bound["spec"]["containers"]
    assert container["resources"] == {key: {ENABLE_LIMIT: "1"} for key in ("limits", "requests")}
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{LEAF_CELL_ISOLATION}']"}}
    assert container["env"] == [{"name": name, "valueFrom": source} for name in VARIABLES]
    annotations = bound["metadata"]["annotations"]
    assert json.loads(annotations[DEVICE_REQUESTS]) == {"resource": GPU, "total": 2, "containers": {"main": 2}}
    assert annotations[LEAF_CELL_ISOLATION] == "0,1"


def test_so_does_a_gang_without_a_word_of_hived(plane: ControlPlane, cluster: RealCluster) -> None:
    labels = {"pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
    for name in ("p", "q"):
        made = with_devices(name)
        made["metadata"]["labels"] = labels
        cluster.kube.create(POD_LIST, made)
    plane.wait_for("the gang to be bound", lambda: all(is_bound(cluster.kube, name) for name in ("p", "q")))
    given = []
    for name in ("p", "q"):
        bound = cluster.kube.get(pod_path("default", name))
        (container,) = bound["spec"]["containers"]
        assert container["resources"]["limits"] == {ENABLE_LIMIT: "1"}
        assert [each["name"] for each in container["env"]] == list(VARIABLES)
        given += bound["metadata"]["annotations"][LEAF_CELL_ISOLATION].split(",")
    assert sorted(given) == ["0", "1", "2", "3"]


def test_a_pod_without_a_word_of_hived_is_changed_and_its_author_is_told_of_mistakes(
    plane: ControlPlane, cluster: RealCluster
) -> None:
    made = with_devices("p")
    made["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io/name": "g",
                                  "pod-group.scheduling.sigs.k8s.io/min-available": "many"}  # fmt: skip
    made["spec"]["containers"][0]["env"] = [{"name": VARIABLES[0], "value": "all"}]
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", **made})
    created = plane.kubectl("create", "-f", "-", "-o", "json", "--dry-run=server", stdin=text)
    (container,) = json.loads(created.stdout)["spec"]["containers"]
    assert container["resources"]["limits"] == {ENABLE_LIMIT: "1"}
    assert [each["name"] for each in container["env"]] == list(VARIABLES)
    assert "Warning: hived: container main: NVIDIA_VISIBLE_DEVICES" in created.stderr
    assert "many" in created.stderr


def test_what_kubernetes_refuses_it_goes_on_to_refuse(plane: ControlPlane, cluster: RealCluster) -> None:
    made = with_devices("p")
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: "2"}, "requests": {GPU: "1"}}
    with pytest.raises(CalledProcessError) as caught:
        plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", **made}))
    assert "must be equal to nvidia.com/gpu limit" in caught.value.stderr


def test_while_nobody_answers_only_pods_for_hived_cannot_be_created(plane: ControlPlane, cluster: RealCluster) -> None:
    cluster.services[0].stop()
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", **with_devices("p")})
    with pytest.raises(CalledProcessError) as caught:
        plane.kubectl("create", "-f", "-", stdin=text)
    assert "devices.hivedscheduler.microsoft.com" in caught.value.stderr
    other = cluster.kube.create(POD_LIST, with_devices("other", schedulerName="somebody-elses"))
    assert other["spec"]["containers"][0]["resources"]["limits"] == {GPU: "2"}
    cluster.services[0].start()
    assert is_asked(plane)
