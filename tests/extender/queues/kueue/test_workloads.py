"""Workloads, AdmissionChecks and ResourceFlavors as Kueue writes them, read."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.job import JobRef
from hived_extender.queues.kueue.workloads import check_of, flavor_labels, workload_of
from tests.extender.queues.kueue.workload_objects import (
    AT,
    admission_check,
    check_state,
    condition,
    flavor,
    pod_set,
    workload,
)

RESERVED = condition("QuotaReserved")


def test_a_workload_knows_its_name_and_its_quota() -> None:
    found = workload_of(workload(priority=7))
    assert found.job == JobRef("kueue.x-k8s.io/v1beta2", "Workload", "ns", "job-train", "uid-job-train")
    assert (found.queue, found.cluster_queue, found.priority) == ("main", "research", 7)
    assert [(each.name, each.count, each.flavors) for each in found.pod_sets] == [("main", 2, ("a100",))]
    assert found.reserved_s == found.created_s > 0


@pytest.mark.parametrize(
    ("conditions", "spec", "wants"),
    [
        ((), {}, False),
        ((RESERVED,), {}, True),
        ((RESERVED,), {"active": False}, False),
        ((condition("QuotaReserved", is_true=False),), {}, False),
        ((RESERVED, condition("Admitted")), {}, True),
        ((RESERVED, condition("Evicted")), {}, False),
        ((RESERVED, condition("Evicted", is_true=False)), {}, True),
        ((RESERVED, condition("Finished")), {}, False),
    ],
)
def test_cells_are_for_workloads_with_quota_that_nobody_takes_back(
    conditions: tuple[Any, ...], spec: dict[str, Any], wants: bool
) -> None:
    assert workload_of(workload(conditions=conditions, **spec)).wants_cells is wants


def test_a_workload_that_is_being_deleted_wants_no_cells() -> None:
    item = workload()
    item["metadata"]["deletionTimestamp"] = AT
    assert not workload_of(item).wants_cells


def test_partial_admission_counts_the_pods_that_have_quota() -> None:
    item = workload("job-train", pod_set(count=8))
    item["status"]["admission"]["podSetAssignments"][0]["count"] = 5
    assert workload_of(item).pod_sets[0].count == 5


@pytest.mark.parametrize(
    ("spec", "name", "is_of_kueue"),
    [
        (
            {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}},
            "high",
            True,
        ),
        ({"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "prod"}}, "prod", False),
        ({"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}, "high", True),
        ({"priorityClassName": "prod", "priorityClassSource": "scheduling.k8s.io/priorityclass"}, "prod", False),
        ({}, "", False),
    ],
)
def test_the_priority_class_is_read_in_both_versions(spec: dict[str, Any], name: str, is_of_kueue: bool) -> None:
    found = workload_of(workload(**spec))
    assert (found.class_name, found.has_workload_class) == (name, is_of_kueue)


def test_the_states_of_checks_are_read() -> None:
    found = workload_of(workload(checks=(check_state("other", "Ready"), check_state(state="Retry", retryCount=3))))
    state = found.check("hived-cells")
    assert state is not None
    assert (state.state, state.retry_count) == ("Retry", 3)
    assert found.check_names == ("other", "hived-cells")


@pytest.mark.parametrize("change", ["count", "topology", "values"])
def test_a_workload_that_is_not_understood_says_so_and_still_waits(change: str) -> None:
    item = workload()
    (assigned,) = item["status"]["admission"]["podSetAssignments"]
    if change == "count":
        item["spec"]["podSets"][0]["count"] = "two"
    elif change == "topology":
        assigned["topologyAssignment"] = {"levels": ["rack"], "slices": [{"domains": 1}]}
    else:
        values = {"domainCount": 1, "valuesPerLevel": [{}], "podCounts": {"universal": 1}}
        assigned["topologyAssignment"] = {"levels": ["rack"], "slices": [values]}
    found = workload_of(item)
    assert found.wants_cells
    assert found.check("hived-cells") is not None
    words = "pod set main: its topology assignment has" if change == "values" else "as Kueue's v1beta1 and v1beta2"
    assert words in found.mistake


def test_what_is_no_workload_is_refused_by_name() -> None:
    item = workload()
    item["status"]["conditions"] = "all"
    with pytest.raises(UserError, match="Workload 'job-train' is not as Kueue's v1beta1 and v1beta2 have it"):
        workload_of(item)


def test_a_check_of_our_controller_is_ours() -> None:
    assert check_of(admission_check()).is_ours
    assert not check_of(admission_check(controller="kueue.x-k8s.io/provisioning-request")).is_ours
    assert [check_of(admission_check(is_active=each)).is_active for each in (False, True)] == [False, True]


def test_a_flavor_has_labels_of_nodes() -> None:
    assert flavor_labels(flavor(gpu="a100")) == ("a100", {"gpu": "a100"})
