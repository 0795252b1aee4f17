"""How tables shorten times and say what state a pod or a node is in."""

from typing import Any

import pytest

from hived_lab.embedded.apiserver import tables
from hived_lab.embedded.apiserver.bodies import view_of
from hived_lab.embedded.apiserver.models import Node, Pod


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (0, "0s"), (1.9, "1s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (599, "9m59s"), (600, "10m"),
        (10_799, "179m"), (10_800, "3h"), (12_345, "3h25m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d"),
        (180_000, "2d2h"), (691_200, "8d"), (63_072_000, "2y"), (64_072_000, "2y11d"),
    ],
)  # fmt: skip
def test_a_duration_is_told_as_kubernetes_does(seconds: float, text: str) -> None:
    assert tables.duration(seconds) == text


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
