"""Every kind of expectation holds where it should, and names what it found where it does not."""

from datetime import UTC, datetime

import pytest

from hived_extender.api.cells import AffinityGroup, Cell, GroupMetadata, GroupStatus, LazyPreemption
from hived_lab.demo.experiment import JobState, Step
from hived_lab.demo.observer import DONE, EVICTED, RUNNING, WAITING, Moment, Observer, PodHistory, failures


def pod(name: str, state: str, node: str = "", job: str = "A", **more) -> PodHistory:
    return PodHistory(job=job, name=name, uid=f"uid-{name}", group=f"group-{job}", state=state, node=node, **more)


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def moment(**group: object) -> Moment:
    health = {"n0": "Bad", "n1": "Healthy"}
    cells = tuple(
        Cell(
            cell_type="NODE", cell_address=name, is_node_level=True, cell_state="Free", cell_healthiness=seen,
            cell_priority=-2,
        )
        for name, seen in health.items()
    )  # fmt: skip
    status = {"vc": "v", "priority": 0, "state": "Allocated"} | group
    groups = {"group-A": AffinityGroup(GroupMetadata("group-A"), GroupStatus(**status))} if group else {}
    return Moment(0.0, cells, groups)


PODS = [
    pod("a-0", RUNNING, "n0", started_at=at(9)),
    pod("a-1", RUNNING, "n1", started_at=at(2)),
    pod("a-2", WAITING, reason="insufficient capacity when scheduling in VC v"),
    pod("a-3", DONE, "n0", started_at=at(0)),
    pod("a-4", EVICTED, "n0", started_at=at(0), eviction_count=1),
    pod("b-0", RUNNING, "n1", job="B", started_at=at(1)),
    pod("b-1", RUNNING, "n1", job="B", started_at=at(2)),
]
GUARANTEED = {"physical_placement": {"n0": [0, 1], "n1": [0]}, "virtual_placement": {"v/0": ["v/0/0"]}}
OPPORTUNISTIC = {"physical_placement": {"n0": [0]}, "lazy_preemption_status": LazyPreemption("group-B")}


def found(job: str, expected: JobState, now: Moment) -> list[str]:
    return failures(Step(expect="x", jobs={job: expected}), Observer(None, None, list(PODS)), now)


@pytest.mark.parametrize(
    ("job", "expected", "group"),
    [
        ("A", {"running": 2, "waiting": 1, "done": 1, "evicted": 1}, {}),
        ("A", {"nodes": ("n0", "n1", "n2"), "node_count": 2}, {}),
        ("A", {"reason": "insufficient capacity"}, {}),
        ("A", {"cells": 3, "guaranteed": True, "lazily_preempted": False}, GUARANTEED),
        ("A", {"cells": 1, "guaranteed": False, "lazily_preempted": True}, OPPORTUNISTIC),
        ("A", {"cells": 0}, {}),
        ("B", {"together": True, "untouched": True}, {}),
    ],
)
def test_an_expectation_that_holds_finds_nothing(job, expected, group):
    assert found(job, JobState(**expected), moment(**group)) == []


@pytest.mark.parametrize(
    ("job", "expected", "group", "text"),
    [
        ("A", {"running": 3}, {}, "2 of A running, expected 3"),
        ("A", {"waiting": 0}, {}, "1 of A waiting, expected 0"),
        ("A", {"done": 2}, {}, "1 of A done, expected 2"),
        ("A", {"evicted": 0}, {}, "1 of A evicted, expected 0"),
        ("A", {"nodes": ("n0",)}, {}, "A is on n0, n1, expected n0"),
        ("A", {"node_count": 1}, {}, "A is on 2 nodes (n0, n1), expected 1"),
        (
            "A",
            {"reason": "bad node"},
            {},
            "a-2 is told 'insufficient capacity when scheduling in VC v', expected 'bad node' in it",
        ),
        ("A", {"cells": 2}, GUARANTEED, "A holds 3 cells, expected 2"),
        ("A", {"guaranteed": False}, GUARANTEED, "A is guaranteed, expected opportunistic"),
        ("A", {"guaranteed": True}, OPPORTUNISTIC, "A is opportunistic, expected guaranteed"),
        ("A", {"guaranteed": True}, {}, "A is not known to the service, expected guaranteed"),
        ("A", {"lazily_preempted": True}, GUARANTEED, "A is not lazily preempted, expected otherwise"),
        ("A", {"lazily_preempted": False}, OPPORTUNISTIC, "A is lazily preempted, expected otherwise"),
        ("A", {"together": True}, {}, "the pods of A did not start together"),
        ("A", {"untouched": True}, {}, "a-4 was evicted"),
    ],
)
def test_an_expectation_that_does_not_hold_says_what_is_so_instead(job, expected, group, text):
    assert found(job, JobState(**expected), moment(**group)) == [text]


def test_bad_nodes_are_compared_with_the_service():
    observer = Observer(None, None)
    assert failures(Step(expect="x", bad_nodes=("n0",)), observer, moment()) == []
    assert failures(Step(expect="x", bad_nodes=()), observer, moment()) == ["bad nodes are n0, expected none"]


def test_a_pod_submitted_again_is_counted_once_but_its_eviction_is_remembered():
    observer = Observer(
        None, None, [pod("a-0", EVICTED, eviction_count=1), pod("a-0", RUNNING, "n1", started_at=at(2))]
    )
    step = Step(expect="x", jobs={"A": JobState(running=1, evicted=0, untouched=True)})
    assert failures(step, observer, moment()) == ["a-0 was evicted"]
