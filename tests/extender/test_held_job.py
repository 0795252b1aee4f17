"""A suspended Job on an embedded cluster: cells are held for it, it is resumed, and its pods get just these."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_extender.jobs.job import JobRef
from hived_extender.kube.client import KubeClient
from hived_extender.machine.holds import HeldBind
from hived_extender.machine.stimuli import Hold, HoldAsked, HoldsLookedAt, HoldState
from hived_lab.start import Embedded, start_embedded
from tests.expecting import expect_soon
from tests.extender.machine.small_cluster import CONFIG

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Embedded]:
    config = tmp_path / "hivedscheduler.yaml"
    config.write_text(CONFIG + "rules: 2\n")
    with start_embedded(config) as running:
        yield running


def pod_spec(**more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 4}}}
    return {"schedulerName": "hived", "containers": [container], "restartPolicy": "Never", **more}


def notes(priority: int) -> dict[str, str]:
    prefix = "hivedscheduler.microsoft.com/"
    return {prefix + "virtual-cluster": "a", prefix + "priority": str(priority)}


def suspended(name: str, count: int) -> dict[str, Any]:
    template = {"metadata": {"annotations": notes(0)}, "spec": pod_spec()}
    spec = {"suspend": True, "parallelism": count, "completions": count, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def nodes_by_pod(kube: KubeClient) -> dict[str, str]:
    items: list[dict[str, Any]] = kube.list_objects(PODS, dict).items
    return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in items}


def test_the_pods_of_a_resumed_job_get_the_cells_that_were_held(running: Embedded) -> None:
    kube = KubeClient.connect(kubeconfig=str(running.cluster.kubeconfig))
    tell = running.extender.service.runner.handle
    made = kube.create(JOBS, suspended("train", 2))
    job = JobRef("batch/v1", "Job", "default", "train", made["metadata"]["uid"])
    gang = GroupSpec(job.key, (MemberSpec(2, 4),))
    spec = PodSpec("a", -1, 4, gang, leaf_cell_type="GPU", ignore_suggested_nodes=False)
    held = tell(HoldAsked(Hold(job.key, job, spec)))
    assert isinstance(held, HeldBind)
    wanted = sorted(pod.node for member in held.bind_info.members for pod in member)
    for number in range(4):
        about = {"name": f"rival-{number}", "annotations": notes(-1)}
        kube.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": pod_spec()})
    expect_soon(lambda: sum(bool(node) for node in nodes_by_pod(kube).values()) == 2)
    assert set(nodes_by_pod(kube).values()) & set(wanted) == set()
    kube.patch(f"{JOBS}/train", {"spec": {"suspend": False}})

    def of_job() -> list[str]:
        return sorted(node for name, node in nodes_by_pod(kube).items() if name.startswith("train") and node)

    expect_soon(lambda: len(of_job()) == 2)
    assert of_job() == wanted
    expect_soon(lambda: tell(HoldsLookedAt())[job.key] == HoldState(2, 0, 2, 2))
    kube.close()
