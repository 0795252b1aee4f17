"""Deployments: gates on every pod, removed from each (rule 24.11)."""

from hived_extender.jobs.document import Part
from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import gates, marks, table
from hived_extender.jobs.kinds.kind import Verb
from tests.extender.jobs.kinds.api import patched
from tests.extender.jobs.kinds.documents import DEPLOYMENT, UID, job_object, template

HELD = {marks.HELD: "true"}


def test_a_deployment_has_the_pods_of_its_replicas() -> None:
    assert [role.count for role in table.read(job_object(*DEPLOYMENT)).roles] == [2]


def test_a_deployment_is_born_with_the_gate_in_its_template_beside_those_of_others() -> None:
    document = job_object(*DEPLOYMENT)
    document["spec"] = {**document["spec"], "template": template()}
    document["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    made = patched(document, table.hold_at_creation(document))
    assert made["spec"]["template"]["spec"]["schedulingGates"] == [{"name": "example.com/quota"}, {"name": gates.GATE}]
    assert gates.is_gated(Part("spec.", made["spec"]["template"]["spec"]))


def test_a_held_deployment_is_leaving_while_pods_of_it_are_ready() -> None:
    held = job_object(*DEPLOYMENT, {"replicas": 2, "readyReplicas": 1}, annotations=HELD)
    assert table.read(held).state is JobState.LEAVING


def test_a_gate_is_lifted_by_its_name_and_only_from_that_very_pod() -> None:
    write = gates.remove_gate("team", "serve-0", UID)
    assert (write.verb, write.path) == (Verb.PATCH_LISTS, "/api/v1/namespaces/team/pods/serve-0")
    assert write.body["metadata"] == {"uid": UID}
    assert write.body["spec"] == {"schedulingGates": [{"name": gates.GATE, "$patch": "delete"}]}


def test_a_pod_that_is_called_back_may_be_gone_already() -> None:
    write = gates.delete_pod("team", "serve-0", UID)
    assert (write.verb, write.uid, write.may_be_missing) == (Verb.DELETE, UID, True)
