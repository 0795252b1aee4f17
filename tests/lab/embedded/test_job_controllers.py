"""Job objects of an embedded cluster: suspended ones have no pods, others have them until they are done."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_lab.embedded.apiserver.models import DeleteOptions
from hived_lab.embedded.apiserver.resources import JOB_SETS as JOB_SET_TYPE
from hived_lab.embedded.apiserver.resources import JOBS as JOB_TYPE
from hived_lab.embedded.apiserver.resources import ResourceType
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.apiserver.store import Key
from hived_lab.embedded.job_controllers import JobControllers
from hived_lab.embedded.nodes import RUN_SECONDS, Machine, Nodes, Timing
from tests.expecting import expect_soon
from tests.lab.embedded.helpers import Http, api_server

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB_SET_UID = "jobset.sigs.k8s.io/jobset-uid"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """A cluster with one node and controllers."""
    with api_server() as running:
        nodes = Nodes(running.registry, Timing())
        running.call(lambda: nodes.register([Machine("n1", {"cpu": "8", "nvidia.com/gpu": "8"})]))
        running.spawn(nodes.run)
        running.spawn(JobControllers(running.registry).run)
        yield running


@pytest.fixture(scope="module")
def http(server: ApiServer) -> Http:
    """A client of it."""
    return Http(server.port)


def template(**annotations: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container], "restartPolicy": "Never"}}


def job(name: str, *, suspend: bool, count: int = 2, **annotations: str) -> dict[str, Any]:
    spec = {"suspend": suspend, "parallelism": count, "completions": count, "template": template(**annotations)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def job_set(name: str) -> dict[str, Any]:
    roles = [{"name": "a", "replicas": 2, "template": {"spec": {"template": template()}}}]
    return {"metadata": {"name": name}, "spec": {"replicatedJobs": roles}}


def pytorch_job(name: str, *, suspend: bool) -> dict[str, Any]:
    roles = {"Master": {"replicas": 1, "template": template()}, "Worker": {"replicas": 2, "template": template()}}
    spec = {"runPolicy": {"suspend": suspend}, "pytorchReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def pods_of(http: Http, name: str) -> list[dict[str, Any]]:
    items = http.ok("GET", PODS)["items"]
    return [one for one in items if any(o["name"] == name for o in one["metadata"].get("ownerReferences", []))]


def pod_owner(pod: dict[str, Any]) -> str:
    uid: str = pod["metadata"]["ownerReferences"][0]["uid"]
    return uid


def condition(http: Http, path: str, kind: str) -> str:
    conditions = http.ok("GET", path).get("status", {}).get("conditions", [])
    return next((one["status"] for one in conditions if one["type"] == kind), "")


@pytest.mark.parametrize(
    ("collection", "made", "patch", "count"),
    [
        (JOBS, job("a", suspend=True), {"spec": {"suspend": False}}, 2),
        (PYTORCH_JOBS, pytorch_job("b", suspend=True), {"spec": {"runPolicy": {"suspend": False}}}, 3),
    ],
    ids=["Job", "PyTorchJob"],
)
def test_a_suspended_job_has_its_pods_once_it_is_resumed(
    http: Http, collection: str, made: dict[str, Any], patch: dict[str, Any], count: int
) -> None:
    name = made["metadata"]["name"]
    http.ok("POST", collection, made)
    expect_soon(lambda: condition(http, f"{collection}/{name}", "Suspended") == "True")
    assert pods_of(http, name) == []
    http.patch(f"{collection}/{name}", patch)
    expect_soon(lambda: len(pods_of(http, name)) == count)
    expect_soon(lambda: condition(http, f"{collection}/{name}", "Suspended") == "False")


def test_a_job_that_is_suspended_again_loses_its_pods(http: Http) -> None:
    http.ok("POST", JOBS, job("again", suspend=False))
    expect_soon(lambda: len(pods_of(http, "again")) == 2)
    http.patch(f"{JOBS}/again", {"spec": {"suspend": True}})
    expect_soon(lambda: pods_of(http, "again") == [])


def test_a_job_whose_pods_have_all_succeeded_is_complete(http: Http) -> None:
    http.ok("POST", JOBS, job("done", suspend=False, **{RUN_SECONDS: "0"}))
    expect_soon(lambda: len(pods_of(http, "done")) == 2)
    for pod in pods_of(http, "done"):
        name = pod["metadata"]["name"]
        http.ok(
            "POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
        )
    expect_soon(lambda: condition(http, f"{JOBS}/done", "Complete") == "True")
    assert http.ok("GET", f"{JOBS}/done")["status"]["succeeded"] == 2


def test_the_pods_of_a_deleted_job_go_with_it(http: Http) -> None:
    http.ok("POST", JOBS, job("gone", suspend=False))
    expect_soon(lambda: len(pods_of(http, "gone")) == 2)
    http.ok("DELETE", f"{JOBS}/gone")
    expect_soon(lambda: pods_of(http, "gone") == [])


def test_a_pod_that_is_deleted_is_made_again(http: Http) -> None:
    http.ok("POST", JOBS, job("lost", suspend=False, count=1))
    expect_soon(lambda: len(pods_of(http, "lost")) == 1)
    first = pods_of(http, "lost")[0]["metadata"]
    http.ok("DELETE", f"{PODS}/{first['name']}")
    expect_soon(lambda: [one["metadata"]["uid"] for one in pods_of(http, "lost")] not in ([], [first["uid"]]))


def test_a_unit_goes_with_its_job(http: Http) -> None:
    units = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/queueunits"
    uid = http.ok("POST", JOBS, job("with-unit", suspend=True))["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "with-unit", "uid": uid}
    foreign = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "elsewhere", "uid": "u"}
    http.ok("POST", units, {"metadata": {"name": "with-unit", "ownerReferences": [owner]}})
    http.ok("POST", units, {"metadata": {"name": "kept", "ownerReferences": [foreign]}})
    http.ok("DELETE", f"{JOBS}/with-unit")
    expect_soon(lambda: [one["metadata"]["name"] for one in http.ok("GET", units)["items"]] == ["kept"])


@pytest.mark.parametrize(
    "spec",
    [
        {"replicatedJobs": [{"name": "a"}]},
        {"replicatedJobs": [{"name": "a", "template": {"spec": {}}, "replicas": -1}]},
        {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": "x"}}}}]},
        {"failurePolicy": {"rules": [{"action": "Other"}]}},
        {"successPolicy": {"operator": 1}},
    ],
)
def test_a_job_set_that_cannot_be_is_refused(http: Http, spec: dict[str, Any]) -> None:
    code, reason, _ = http.refused("POST", JOB_SETS, {"metadata": {"name": "wrong"}, "spec": spec})
    assert (code, reason) == (400, "BadRequest")


def test_a_job_set_whose_jobs_are_refused_keeps_no_other_from_going_on(http: Http) -> None:
    """Somebody's own Jobs below the sets do not either."""
    for name, child in (("refused", {}), ("next", {"template": template()})):
        roles = [{"name": "a", "template": {"spec": child}}]
        made = http.ok("POST", JOB_SETS, {"metadata": {"name": name}, "spec": {"replicatedJobs": roles}})
        owner = {"apiVersion": made["apiVersion"], "kind": "JobSet", "name": name, "uid": made["metadata"]["uid"]}
        foreign = job(f"of-{name}", suspend=True)
        foreign["metadata"]["ownerReferences"] = [owner]
        http.ok("POST", JOBS, foreign)
    expect_soon(lambda: len(pods_of(http, "next-a-0")) == 1)
    expect_soon(lambda: http.ok("GET", f"{JOB_SETS}/next").get("status", {}).get("replicatedJobsStatus"))
    assert http.refused("GET", f"{JOBS}/refused-a-0")[0] == 404


@pytest.mark.parametrize(
    ("resource", "made"), [(JOB_TYPE, job("twice", suspend=False)), (JOB_SET_TYPE, job_set("set-twice"))]
)
def test_a_job_in_the_place_of_another_has_its_own_pods(
    server: ApiServer, http: Http, resource: ResourceType, made: dict[str, Any]
) -> None:
    """It is there before anybody has seen that the first has gone."""
    name = made["metadata"]["name"]
    body = {**made, "metadata": {"name": name, "namespace": "default"}}

    def replace() -> str:
        server.registry.delete(resource, Key("default", name), DeleteOptions())
        return server.registry.create(resource, body).view.metadata.uid

    def owners() -> list[str]:
        pods = [one for one in http.ok("GET", PODS)["items"] if one["metadata"]["name"].startswith(f"{name}-")]
        return [one["metadata"]["labels"].get(JOB_SET_UID, pod_owner(one)) for one in pods]

    first = server.call(lambda: server.registry.create(resource, body)).view.metadata.uid
    expect_soon(lambda: owners() == [first, first])
    second = server.call(replace)
    expect_soon(lambda: owners() == [second, second])
