"""Plain pod manifests: only what is missing is filled in."""

import json
from dataclasses import replace

import pytest

from hived.errors import UserError
from hived_extender.annotations import SCHEDULING_SPEC
from hived_extender.jobs import plan_file

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: notebook
spec:
  containers:
  - name: main
    image: example/notebook
    resources: {limits: {nvidia.com/gpu: "2"}}
"""
ANNOTATED = POD.replace(
    "  name: notebook\n",
    f"  name: notebook\n  annotations:\n    {SCHEDULING_SPEC}: |\n"
    "      virtualCluster: research\n      priority: 5\n      leafCellNumber: 1\n",
)


def planned(file, submission):
    pods, _ = plan_file(file, submission)
    manifest = pods[0].manifest
    return manifest, json.loads(manifest["metadata"]["annotations"][SCHEDULING_SPEC])


def test_a_bare_pod_gets_its_spec_from_the_command_line_and_its_limits(write, submission):
    manifest, spec = planned(write(POD), replace(submission, virtual_cluster="research", priority=-1, cluster=None))
    assert spec == {"virtualCluster": "research", "priority": -1, "leafCellNumber": 2}
    assert manifest["spec"]["schedulerName"] == "hivedscheduler-ds-research"
    assert manifest["spec"]["priorityClassName"] == "hived-opportunistic"
    assert manifest["spec"]["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "2",
        "hivedscheduler.microsoft.com/pod-scheduling-enable": 1,
    }


def test_an_annotated_pod_keeps_what_its_author_wrote(write, submission):
    file = write(ANNOTATED.replace("spec:\n  cont", "spec:\n  schedulerName: own\n  priorityClassName: urgent\n  cont"))
    manifest, spec = planned(file, submission)
    assert spec == {"virtualCluster": "research", "priority": 5, "leafCellNumber": 1}
    assert (manifest["spec"]["schedulerName"], manifest["spec"]["priorityClassName"]) == ("own", "urgent")


def test_the_command_line_wins_over_the_annotation(write, submission):
    _, spec = planned(write(ANNOTATED), replace(submission, virtual_cluster="product", priority=9))
    assert (spec["virtualCluster"], spec["priority"]) == ("product", 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POD, "no virtual cluster: write it into the annotation"),
        (POD.replace("  name: notebook\n", "  labels: {}\n"), "metadata.name: missing; expected a text"),
        (POD.replace("containers:", "initContainers:"), "spec.containers: missing"),
        (ANNOTATED.replace("priority: 5", "priority: 1001"), "Priority is greater than 1000"),
        (ANNOTATED.replace("priority: 5", "priority: [5"), "not valid YAML"),
        (
            ANNOTATED.replace("leafCellNumber: 1", "leafCellType: X").replace("nvidia.com/gpu", "cpu"),
            "no leafCellNumber in the annotation, and no limit such as nvidia.com/gpu",
        ),
    ],
)
def test_a_pod_that_cannot_be_scheduled_is_refused_before_it_exists(text, message, write, submission):
    file = write(text)
    with pytest.raises(UserError) as caught:
        plan_file(file, submission)
    assert caught.value.message.startswith(f"{file}:1: ")
    assert message in caught.value.message


def test_documents_of_one_file_are_planned_in_order(write, submission):
    file = write(ANNOTATED + "---\n" + ANNOTATED.replace("notebook", "second"))
    pods, _ = plan_file(file, submission)
    assert [pod.manifest["metadata"]["name"] for pod in pods] == ["notebook", "second"]
