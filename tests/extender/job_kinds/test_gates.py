"""Deployments and gangs of plain pods: gates, once on every pod, then lifted from each."""

from typing import Any

import pytest

from hived_extender.job_kinds import gates, kinds, marks
from hived_extender.job_kinds.job import JobState
from hived_extender.job_kinds.writes import Verb
from tests.extender.job_kinds.api import patched
from tests.extender.job_kinds.documents import CREATED, DEPLOYMENT, UID, job_object, template

HELD = {marks.HELD: "true"}


def pod(name: str, phase: str = "Pending", created: str = CREATED, is_gated: bool = True, **metadata: Any) -> Any:
    """A plain pod."""
    made = job_object("v1", "Pod", dict(template()["spec"]), {"phase": phase}, name=name, uid=name, **metadata)
    made["metadata"]["creationTimestamp"] = created
    if is_gated:
        made["spec"]["schedulingGates"] = [{"name": gates.GATE}]
    return made


def test_a_deployment_has_the_pods_of_its_replicas() -> None:
    assert [role.count for role in kinds.read(job_object(*DEPLOYMENT)).roles] == [2]


def test_a_deployment_is_born_with_the_gate_in_its_template_beside_those_of_others() -> None:
    document = job_object(*DEPLOYMENT)
    document["spec"] = {**document["spec"], "template": template()}
    document["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    made = patched(document, kinds.hold_at_creation(document))
    assert made["spec"]["template"]["spec"]["schedulingGates"] == [{"name": "example.com/quota"}, {"name": gates.GATE}]
    assert gates.has_gate(made["spec"]["template"])


def test_a_held_deployment_is_leaving_while_pods_of_it_are_ready() -> None:
    held = job_object(*DEPLOYMENT, {"replicas": 2, "readyReplicas": 1}, annotations=HELD)
    assert kinds.read(held).state is JobState.LEAVING


def test_a_gate_is_lifted_by_its_name_and_only_from_that_very_pod() -> None:
    write = gates.lift("team", "serve-0", UID)
    assert (write.verb, write.path) == (Verb.PATCH_LISTS, "/api/v1/namespaces/team/pods/serve-0")
    assert write.body["metadata"] == {"uid": UID}
    assert write.body["spec"] == {"schedulingGates": [{"name": gates.GATE, "$patch": "delete"}]}


def test_a_pod_that_is_called_back_may_be_gone_already() -> None:
    write = gates.remove("team", "serve-0", UID)
    assert (write.verb, write.uid, write.may_be_missing) == (Verb.DELETE, UID, True)


def test_a_gang_of_plain_pods_is_a_job_of_its_oldest_pod() -> None:
    job = gates.gang_of(
        "team", "ring", [pod("b", labels={"a": "b"}), pod("c"), pod("a", created="2026-11-23T15:04:04Z")]
    )
    assert (job.ref.kind, job.ref.name, job.ref.uid) == (gates.GANG, "ring", "a")
    assert [(role.name, role.count) for role in job.roles] == [("a", 1), ("b", 1), ("c", 1)]
    assert job.roles[1].template["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    ("pods", "state"),
    [
        ([pod("a"), pod("b")], "HELD"),
        ([pod("a"), pod("b", is_gated=False)], "LET_GO"),
        ([pod("a", "Running", is_gated=False), pod("b", "Succeeded", is_gated=False)], "LET_GO"),
        ([pod("a", "Succeeded", is_gated=False), pod("b", "Succeeded", is_gated=False)], "SUCCEEDED"),
        ([pod("a", "Succeeded", is_gated=False), pod("b", "Failed", is_gated=False)], "FAILED"),
    ],
)
def test_a_gang_is_held_while_all_its_pods_are(pods: Any, state: str) -> None:
    assert gates.gang_of("team", "ring", pods).state is JobState[state]
