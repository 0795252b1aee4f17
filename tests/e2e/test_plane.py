"""The harness itself: its nodes act as the embedded cluster's, and its parts survive what tests do to them."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from hived_extender.kube.client import NODES, PODS, KubeClient, KubeError, pod_path
from hived_lab.embedded.nodes import EXIT_CODE, READY, RUN_SECONDS, STOP_SECONDS, Machine
from tests.e2e.machines import node_path
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import POD_LIST, pod
from tests.e2e.processes import StartError

MACHINE = Machine("gpu-a", {"cpu": "8", "memory": "64Gi", "pods": "110"})


@pytest.fixture(autouse=True)
def one_node(plane: ControlPlane) -> None:
    """The only node of each test, Ready."""
    plane.clear()
    plane.add_nodes([MACHINE])


def run_pod(plane: ControlPlane, **annotations: str) -> str:
    """A pod bound to the node, as a scheduler would leave it; returns its name."""
    keys = {"run": RUN_SECONDS, "code": EXIT_CODE, "stop": STOP_SECONDS}
    named = {keys[key]: value for key, value in annotations.items()}
    plane.kube.create(POD_LIST, pod("pod", annotations=named, fields={"nodeName": MACHINE.name}))
    return "pod"


def status(plane: ControlPlane) -> dict[str, Any]:
    return dict(plane.kube.get(pod_path("default", "pod"))["status"])


def phase_is(plane: ControlPlane, phase: str) -> Callable[[], bool]:
    return lambda: status(plane)["phase"] == phase


def annotate_node(plane: ControlPlane, ready: str | None) -> None:
    plane.kube.patch(node_path(MACHINE.name), {"metadata": {"annotations": {READY: ready}}})


def ready_condition(plane: ControlPlane) -> str:
    conditions = plane.kube.get(node_path(MACHINE.name))["status"]["conditions"]
    return str(next(one["status"] for one in conditions if one["type"] == "Ready"))


def test_a_pod_runs_until_it_is_deleted(plane: ControlPlane) -> None:
    run_pod(plane)
    plane.wait_for("the pod to run", phase_is(plane, "Running"))
    plane.kube.delete_pod("default", "pod")
    plane.wait_for("the pod to be gone", lambda: not plane.kube.list_objects(PODS, dict[str, Any]).items)
    assert status_code(plane.kube, pod_path("default", "pod")) == 404


def test_a_pod_ends_after_its_seconds_with_its_exit_code(plane: ControlPlane) -> None:
    run_pod(plane, run="1", code="3")
    plane.wait_for("the pod to end", phase_is(plane, "Failed"))
    assert status(plane)["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_running_pod_ends_now_if_its_seconds_become_zero(plane: ControlPlane) -> None:
    run_pod(plane)
    plane.wait_for("the pod to run", phase_is(plane, "Running"))
    plane.kube.patch(pod_path("default", "pod"), {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
    plane.wait_for("the pod to end", phase_is(plane, "Succeeded"))
    assert status(plane)["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_a_pod_whose_annotation_cannot_be_read_fails(plane: ControlPlane) -> None:
    run_pod(plane, run="soon")
    plane.wait_for("the pod to fail", phase_is(plane, "Failed"))
    assert status(plane)["reason"] == "InvalidAnnotation"


def test_a_deleted_pod_takes_its_time_to_stop(plane: ControlPlane) -> None:
    run_pod(plane, stop="20")
    plane.wait_for("the pod to run", phase_is(plane, "Running"))
    plane.kube.delete_pod("default", "pod")
    stopping = plane.kube.get(pod_path("default", "pod"))
    assert stopping["metadata"]["deletionTimestamp"]
    assert stopping["status"]["phase"] == "Running"


def test_a_kubelet_that_is_not_ready_still_runs_pods(plane: ControlPlane) -> None:
    annotate_node(plane, "false")
    plane.wait_for("the node not to be ready", lambda: ready_condition(plane) == "False")
    run_pod(plane)
    plane.wait_for("the pod to run", phase_is(plane, "Running"))
    assert ready_condition(plane) == "False"


def test_nothing_starts_or_stops_on_a_node_that_is_gone_until_it_is_back(plane: ControlPlane) -> None:
    annotate_node(plane, "unknown")
    plane.wait_for("the node to be unknown", lambda: ready_condition(plane) == "Unknown")
    time.sleep(1)  # kwok has been told
    run_pod(plane)
    with pytest.raises(StartError, match="waited 2 s"):
        plane.wait_for("what must not happen", phase_is(plane, "Running"), timeout_s=2)
    annotate_node(plane, None)
    plane.wait_for("the pod to run", phase_is(plane, "Running"))
    assert ready_condition(plane) == "True"


def test_a_killed_api_server_comes_back_with_its_objects_after_compaction(plane: ControlPlane) -> None:
    uid = plane.kube.get(node_path(MACHINE.name))["metadata"]["uid"]
    revision = plane.compact()
    plane.apiserver.kill()
    with pytest.raises(KubeError):
        plane.kube.get(node_path(MACHINE.name))
    plane.apiserver.start()
    assert plane.kube.get(node_path(MACHINE.name))["metadata"]["uid"] == uid
    with pytest.raises(KubeError) as caught:
        list(plane.kube.watch(NODES, dict[str, Any], str(revision // 2)))
    assert caught.value.status == 410


def test_a_frozen_api_server_answers_when_it_thaws(plane: ControlPlane) -> None:
    impatient = KubeClient.connect(kubeconfig=str(plane.admin_kubeconfig), request_timeout_s=0.5)
    plane.apiserver.freeze()
    try:
        with pytest.raises(KubeError):
            impatient.get(node_path(MACHINE.name))
    finally:
        plane.apiserver.thaw()
        impatient.close()
    assert plane.kube.get(node_path(MACHINE.name))["metadata"]["name"] == MACHINE.name


def test_a_certificate_brings_no_rights_but_those_of_its_user(plane: ControlPlane) -> None:
    stranger = KubeClient.connect(kubeconfig=str(plane.kubeconfig("stranger", ["visitors"])))
    found = status_code(stranger, NODES)
    stranger.close()
    assert found == 403


def test_a_service_account_is_known_by_its_token(plane: ControlPlane) -> None:
    account = KubeClient.connect(kubeconfig=str(plane.service_account_kubeconfig("default", "default")))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    account.close()
    assert answer["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"


def test_kubectl_and_the_api_server_are_of_the_pinned_version(plane: ControlPlane) -> None:
    kubectl = [plane.tools / "kubectl", f"--kubeconfig={plane.admin_kubeconfig}", "version"]
    said = subprocess.run(kubectl, capture_output=True, text=True, check=True).stdout
    assert said.count(plane.tools.version) == 2


def status_code(kube: KubeClient, path: str) -> int:
    """With what the API server refuses a GET."""
    with pytest.raises(KubeError) as caught:
        kube.get(path)
    return caught.value.status
