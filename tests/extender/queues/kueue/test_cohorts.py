"""ClusterQueues that may borrow quota, and the words of the check about them."""

from typing import Any

import pytest

from hived_extender.queues.kueue.controller import AT_WORK
from hived_extender.queues.kueue.workloads import MOST_NAMED, ClusterQueue, cluster_queue_of, warning
from tests.expecting import expect_soon
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.queues.kueue.workload_objects import CHECK, GPU, cluster_queue

DEVICES = (GPU,)


@pytest.mark.parametrize(
    ("spec", "limit", "may"),
    [
        ({}, None, False),
        ({"cohortName": "all"}, None, True),
        ({"cohort": "all"}, None, True),
        ({"cohortName": "all"}, "8", True),
        ({"cohortName": "all"}, 0, False),
        ({"cohortName": "all"}, "0", False),
    ],
)
def test_a_queue_of_a_cohort_may_borrow_unless_its_limit_is_zero(spec: dict[str, Any], limit: Any, may: bool) -> None:
    found = cluster_queue_of(cluster_queue("a", limit=limit, **spec))
    assert (found.name, found.checks, GPU in found.may_borrow) == ("a", (CHECK,), may)


def test_checks_are_named_in_the_older_way_too() -> None:
    item = cluster_queue("a", admissionChecks=["one"], cohort="all")
    del item["spec"]["admissionChecksStrategy"]
    assert cluster_queue_of(item).checks == ("one",)


def test_the_warning_names_queues_with_the_check_that_may_borrow_devices() -> None:
    mine = ClusterQueue("a", (CHECK,), frozenset({GPU, "cpu"}))
    others = [
        ClusterQueue("b", (CHECK,), frozenset({"cpu"})),
        ClusterQueue("c", ("theirs",), frozenset({GPU})),
        ClusterQueue("d", (CHECK,)),
    ]
    assert warning(CHECK, others, DEVICES) == ""
    assert warning(CHECK, [*others, mine], DEVICES).startswith("ClusterQueues a may borrow quota of their cohort")


def test_the_warning_is_short() -> None:
    many = [ClusterQueue(f"q{number}", (CHECK,), frozenset({GPU})) for number in range(MOST_NAMED + 2)]
    assert " and 2 more may borrow" in warning(CHECK, many, DEVICES)


def test_the_condition_of_the_check_warns_for_as_long_as_a_queue_may_borrow(kueue: KueueByHand) -> None:
    kueue.declare()
    expect_soon(kueue.is_active)
    path = f"{kueue.collection.rpartition('/')[0]}/clusterqueues"
    kueue.kube.create(path, cluster_queue("a", cohortName="all"))
    expect_soon(lambda: "ClusterQueues a may borrow" in kueue.says_active())
    kueue.kube.delete(f"{path}/a")
    expect_soon(lambda: kueue.says_active() == AT_WORK)
