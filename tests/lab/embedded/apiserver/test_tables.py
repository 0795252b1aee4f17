"""How tables shorten times and say what state a pod or a node is in."""

from typing import Any

import pytest

from hived_lab.embedded.apiserver import tables
from hived_lab.embedded.apiserver.bodies import view_of
from hived_lab.embedded.apiserver.models import Node, Pod


@pytest.mark.parametrize("since", ["", "yesterday", "2026-01-01T00:00:00"])
def test_an_age_that_is_not_known_is_said_so(since: str) -> None:
    assert tables.age(since) == "<unknown>"


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"status": {"phase": "Pending"}}, "Pending"),
        ({"status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}}, "Running"),
        ({"status": {"containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]}}, "Completed"),
        (
            {"status": {"containerStatuses": [{"state": {"waiting": {"reason": "BadImage"}}}]}},
            "BadImage",
        ),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}}, "Terminating"),
        ({"spec": {"schedulingGates": [{"name": "x"}]}, "status": {"phase": "Pending"}}, "SchedulingGated"),
        ({}, "Unknown"),
    ],
)
def test_the_state_of_a_pod_is_one_word(body: dict[str, Any], state: str) -> None:
    assert tables.POD.cells(view_of(body, Pod))[2] == state


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
    assert tables.NODE.cells(view_of(body, Node))[1] == state
