"""Jobs go through every situation as with their own controllers; none keeps others from going on."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from hived_extender.kube.client import KubeClient
from hived_lab.embedded.apiserver.models import DeleteOptions
from hived_lab.embedded.apiserver.resources import JOB_SETS as JOB_SET_TYPE
from hived_lab.embedded.apiserver.resources import JOBS as JOB_TYPE
from hived_lab.embedded.apiserver.resources import ResourceType
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.embedded.apiserver.store import Key
from hived_lab.embedded.job_controllers import JobControllers
from hived_lab.embedded.nodes import Machine, Nodes, Timing
from tests.expecting import expect_soon
from tests.lab.embedded.helpers import Http, api_server
from tests.lab.embedded.job_situations import JOB_SETS, KUBEFLOW, NODE, SITUATIONS, TEMPLATE, Situation, play

KUBERNETES = "/apis/batch/v1/namespaces/{}/jobs"
JOB_SET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
PYTORCH = "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
UNITS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/queueunits"
JOB_SET_UID = "jobset.sigs.k8s.io/jobset-uid"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with one node and controllers."""
    with api_server() as running:
        nodes = Nodes(running.registry, Timing())
        running.call(lambda: nodes.register([Machine(NODE, {"cpu": "8"})]))
        running.spawn(nodes.run)
        running.spawn(JobControllers(running.registry).run)
        yield running


@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(situation, id=f"{situation.kind}: {name}")
        for table in (SITUATIONS, KUBEFLOW, JOB_SETS)
        for name, situation in table.items()
    ],
)
def test_a_job_goes_on_as_with_its_own_controller(server: ApiServer, namespace: str, situation: Situation) -> None:
    with closing(KubeClient.connect(server.url)) as kube:
        play(situation, kube, namespace)


def job(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"suspend": True, "template": TEMPLATE}}


def owner(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": made["apiVersion"], "kind": kind, **{key: made["metadata"][key] for key in ("name", "uid")}}


def pods_of(http: Http, namespace: str, name: str) -> list[dict[str, Any]]:
    items = http.ok("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [one for one in items if one["metadata"]["name"].startswith(f"{name}-")]


def test_a_unit_goes_with_its_job(http: Http, namespace: str) -> None:
    jobs, units = KUBERNETES.format(namespace), UNITS.format(namespace)
    made = http.ok("POST", jobs, job("with-unit"))
    foreign = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "elsewhere", "uid": "u"}
    for name, its in (("with-unit", owner("Job", made)), ("kept", foreign)):
        http.ok("POST", units, {"metadata": {"name": name, "ownerReferences": [its]}})
    http.ok("DELETE", f"{jobs}/with-unit")
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
def test_a_job_set_that_cannot_be_is_refused(http: Http, namespace: str, spec: dict[str, Any]) -> None:
    code, reason, _ = http.refused("POST", JOB_SET.format(namespace), {"metadata": {"name": "wrong"}, "spec": spec})
    assert (code, reason) == (400, "BadRequest")


@pytest.mark.parametrize("path", [JOB_SET, PYTORCH])
def test_a_job_without_a_spec_keeps_no_other_from_going_on(http: Http, namespace: str, path: str) -> None:
    http.ok("POST", path.format(namespace), {"metadata": {"name": "bare"}})
    http.ok("POST", KUBERNETES.format(namespace), {"metadata": {"name": "next"}, "spec": {"template": TEMPLATE}})
    expect_soon(lambda: len(pods_of(http, namespace, "next")) == 1)


def test_a_job_set_whose_jobs_are_refused_keeps_no_other_from_going_on(http: Http, namespace: str) -> None:
    """Foreign Jobs below the sets do not either."""
    jobs, sets = KUBERNETES.format(namespace), JOB_SET.format(namespace)
    for name, child in (("refused", {}), ("next", {"template": TEMPLATE})):
        roles = [{"name": "a", "template": {"spec": child}}]
        made = http.ok("POST", sets, {"metadata": {"name": name}, "spec": {"replicatedJobs": roles}})
        http.ok("POST", jobs, job(f"of-{name}", ownerReferences=[owner("JobSet", made)]))
    expect_soon(lambda: len(pods_of(http, namespace, "next-a-0")) == 1)
    expect_soon(lambda: http.ok("GET", f"{sets}/next").get("status", {}).get("replicatedJobsStatus"))
    assert http.refused("GET", f"{jobs}/refused-a-0")[0] == 404


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        (JOB_TYPE, {"parallelism": 2, "completions": 2, "template": TEMPLATE}),
        (
            JOB_SET_TYPE,
            {"replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}]},
        ),
    ],
    ids=["Job", "JobSet"],
)
def test_a_job_in_the_place_of_another_has_its_own_pods(
    server: ApiServer, http: Http, namespace: str, resource: ResourceType, spec: dict[str, Any]
) -> None:
    """The second is there before a controller has seen that the first has gone."""
    body = {"metadata": {"name": "twice", "namespace": namespace}, "spec": spec}

    def create() -> str:
        return server.registry.create(resource, body).view.metadata.uid

    def replace() -> str:
        server.registry.delete(resource, Key(namespace, "twice"), DeleteOptions())
        return create()

    def owners() -> list[str]:
        found = [one["metadata"] for one in pods_of(http, namespace, "twice")]
        return [one["labels"].get(JOB_SET_UID, one["ownerReferences"][0]["uid"]) for one in found]

    for make in (create, replace):
        uid = server.call(make)
        expect_soon(lambda uid=uid: owners() == [uid, uid])
