"""The embedded API server asks the admission about jobs and quota trees, as one with the webhook does."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_config.loader import load_text
from hived_extender.job_kinds.admission import JobAdmission
from hived_extender.kube.client import KubeClient, KubeError
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.queues.embedded_jobs import CONFIG, JOBS, PYTORCH_JOBS, TREES, template


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeClient]:
    configuration = load_text(CONFIG, "hivedscheduler.yaml")
    admission = JobAdmission(configuration.cluster, configuration.rules, serves_every_name=True)
    with EmbeddedCluster(configuration.cluster, admission=admission) as cluster:
        kube = KubeClient.connect(cluster.api_url)
        yield kube
        kube.close()


def tree(least: int) -> dict[str, Any]:
    leaf = {"name": "a", "min": {"nvidia.com/gpu": least}, "max": {"nvidia.com/gpu": 8}}
    root = {"name": "root", "min": {"nvidia.com/gpu": 16}, "max": {"nvidia.com/gpu": 16}, "children": [leaf]}
    return {"metadata": {"name": "tree"}, "spec": {"root": root}}


def test_a_job_is_born_held(kube: KubeClient) -> None:
    created = kube.create(JOBS, {"metadata": {"name": "born"}, "spec": {"template": template("a", 8, "10", "9")}})
    assert created["spec"]["suspend"]
    assert created["metadata"]["annotations"]["hivedscheduler.microsoft.com/queue-held"] == "true"


def test_a_job_of_kubeflow_is_born_held(kube: KubeClient) -> None:
    roles = {"Master": {"template": template("a", 8, "10", "9")}}
    created = kube.create(PYTORCH_JOBS, {"metadata": {"name": "born"}, "spec": {"pytorchReplicaSpecs": roles}})
    assert created["spec"]["runPolicy"]["suspend"]


def test_a_change_of_a_job_is_nobody_s_business(kube: KubeClient) -> None:
    kube.create(JOBS, {"metadata": {"name": "changed"}, "spec": {"template": template("a", 8, "10", "9")}})
    assert not kube.patch(f"{JOBS}/changed", {"spec": {"suspend": False}})["spec"]["suspend"]


def test_a_tree_that_breaks_rules_is_not_stored(kube: KubeClient) -> None:
    with pytest.raises(KubeError, match=r"min nvidia\.com/gpu is 9, more than max 8"):
        kube.create(TREES, tree(9))
    assert kube.get(TREES)["items"] == []


def test_a_tree_is_not_changed_into_one_that_breaks_rules(kube: KubeClient) -> None:
    kube.create(TREES, tree(8))
    with pytest.raises(KubeError, match=r"min nvidia\.com/gpu is 9, more than max 8"):
        kube.patch(f"{TREES}/tree", {"spec": tree(9)["spec"]})
    assert kube.get(f"{TREES}/tree")["spec"] == tree(8)["spec"]
