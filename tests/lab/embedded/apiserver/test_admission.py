"""Only hived writes its parts of pods, by the table of the policy; the webhook is asked about jobs and quota trees."""

import re
import stat
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived_config.loader import load_text
from hived_extender.jobs.admission import Admission
from hived_extender.kube.client import KubeClient, KubeError
from hived_lab.embedded.apiserver.admission import WRITTEN_BY_HIVED
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.queues.embedded_jobs import CONFIG, JOBS, PYTORCH_JOBS, TREES, template
from tests.lab.embedded.helpers import Http, pod
from tests.places import ROOT
from tests.pod_writes import ADMIN, CASES, HIVED, NODE, TENANT, Case, Writes, check

SPEC = ClusterSpec({"NODE": CellTypeSpec("NODE", "GPU", 4, True)}, (PhysicalCellSpec("NODE", NODE),), {})
POLICY = ROOT / "config" / "deploy" / "base" / "pod-policy.yaml"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SPEC) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def writes(cluster: EmbeddedCluster) -> Iterator[Writes]:
    tenant = KubeClient.connect(kubeconfig=str(cluster.kubeconfig))
    hived = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    # Nobody has rights here; the table's administrator is one who may do all that hived may.
    yield Writes({TENANT: tenant, HIVED: hived, ADMIN: hived})
    tenant.close()
    hived.close()


@pytest.mark.sample(20)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_embedded_api_server_answers_as_the_policy_does(writes: Writes, case: Case) -> None:
    check(writes, case)


def test_the_policy_lists_the_annotations_of_the_twin() -> None:
    policy = next(each for each in yaml.safe_load_all(POLICY.read_text()) if each["metadata"]["name"] == "hived-pods")
    (listed,) = [each["expression"] for each in policy["spec"]["variables"] if each["name"] == "written"]
    assert re.findall(r"'([^']+)'", listed.partition("].filter")[0]) == list(WRITTEN_BY_HIVED)


def test_nobody_else_can_read_the_token_of_hived(cluster: EmbeddedCluster) -> None:
    assert stat.S_IMODE(cluster.hived_kubeconfig.stat().st_mode) == 0o600
    (user,) = yaml.safe_load(cluster.hived_kubeconfig.read_text())["users"]
    assert user["user"]["token"] not in cluster.kubeconfig.read_text()


@pytest.mark.parametrize("header", ["Bearer ", "Bearer x", "bearer", "Basic x", "Bearer \u00e9"])
def test_no_other_token_is_that_of_hived(cluster: EmbeddedCluster, header: str) -> None:
    http = Http(int(cluster.api_url.rpartition(":")[2]))
    body = pod("forged", annotations={WRITTEN_BY_HIVED[0]: "1"})
    status, answer = http.call("POST", PODS, body, {"Authorization": header})
    assert (status, answer["reason"]) == (403, "Forbidden")


def test_the_scheme_of_a_token_has_any_case_as_with_a_real_api_server(cluster: EmbeddedCluster) -> None:
    (user,) = yaml.safe_load(cluster.hived_kubeconfig.read_text())["users"]
    http = Http(int(cluster.api_url.rpartition(":")[2]))
    body = pod("proved", annotations={WRITTEN_BY_HIVED[0]: "1"})
    assert http.call("POST", PODS, body, {"Authorization": f"bearer {user['user']['token']}"})[0] == 201


def test_a_stale_write_is_a_conflict_before_it_is_forbidden(cluster: EmbeddedCluster) -> None:
    """Its writer reads the pod again and tries again, as with a real API server."""
    tenant = KubeClient.connect(kubeconfig=str(cluster.kubeconfig))
    hived = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
    stale = tenant.create(PODS, pod("stale"))
    hived.patch(f"{PODS}/stale", {"metadata": {"annotations": {WRITTEN_BY_HIVED[0]: "1"}}})
    with pytest.raises(KubeError) as caught:
        tenant.replace(f"{PODS}/stale", stale)
    tenant.close()
    hived.close()
    assert caught.value.is_conflict


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeClient]:
    configuration = load_text(CONFIG, "hivedscheduler.yaml")
    admission = Admission(configuration.cluster, configuration.rules, serves_every_name=True)
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
