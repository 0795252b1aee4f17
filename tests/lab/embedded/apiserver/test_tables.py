"""How tables shorten times and say what state a pod or a node is in."""

from typing import Any

import pytest
import yaml

from hived_lab.embedded.apiserver import models, resources
from hived_lab.embedded.apiserver.bodies import view_of
from tests.places import ROOT


@pytest.mark.parametrize("since", ["", "yesterday", "2026-01-01T00:00:00"])
def test_an_age_that_is_not_known_is_said_so(since: str) -> None:
    assert resources.age(since) == "<unknown>"


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"status": {"phase": "Pending"}}, "Pending"),
        ({"status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}}, "Running"),
        ({"status": {"containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]}}, "Completed"),
        ({"status": {"containerStatuses": [{"state": {"waiting": {"reason": "BadImage"}}}]}}, "BadImage"),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}}, "Terminating"),
        ({"spec": {"schedulingGates": [{"name": "x"}]}, "status": {"phase": "Pending"}}, "SchedulingGated"),
        ({}, "Unknown"),
    ],
)
def test_the_state_of_a_pod_is_one_word(body: dict[str, Any], state: str) -> None:
    assert resources.POD.cells(view_of(body, models.Pod))[2] == state


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "Ready"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "NotReady"),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "NotReady"),
        ({}, "Unknown"),
        (
            {"spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            "Ready,SchedulingDisabled",
        ),
    ],
)
def test_the_state_of_a_node_says_whether_pods_may_come(body: dict[str, Any], state: str) -> None:
    assert resources.NODE.cells(view_of(body, models.Node))[1] == state


@pytest.mark.parametrize(("file", "printer"), [("queues", resources.QUEUE), ("queueunits", resources.QUEUE_UNIT)])
def test_objects_of_queues_have_the_columns_of_their_custom_resource_definition(
    file: str, printer: resources.Printer
) -> None:
    text = (ROOT / "config" / "deploy" / "queues" / f"{file}.yaml").read_text()
    columns = yaml.safe_load(text)["spec"]["versions"][0]["additionalPrinterColumns"]
    said = {"spec": {"consumerRef": {"kind": "Job"}, "queuePolicy": "Block", "queue": "a", "priority": 3}}
    for body in (said | {"status": {"phase": "Running"}}, {}):
        view = view_of({"metadata": {"name": "x"}, **body}, models.OpenObject)
        assert [one["name"] for one in printer.columns] == ["Name", *(one["name"] for one in columns)]
        assert printer.cells(view)[1:-1] == [_at(body, one["jsonPath"]) for one in columns[:-1]]


def _at(body: dict[str, Any], path: str) -> Any:
    """What is there; None where the API server leaves a cell blank."""
    for key in path.split(".")[1:]:
        body = body.get(key, {})
    return body or None
