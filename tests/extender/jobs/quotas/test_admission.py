"""Quota trees at their admission: rules refuse, and everything that is hardly meant is warned of."""

import json
from typing import Any

import pytest

from hived_extender.jobs.admission import Admission, review
from hived_extender.jobs.quotas.backing import MOST_WARNINGS, Verdict, judge
from tests.extender.jobs.kinds.test_admission import CLUSTER, QUEUES, RULES
from tests.extender.jobs.quotas.trees import GPU, document, quota

RESOURCES = QUEUES.resources_in(CLUSTER)
LARGE = 2**31 - 1


def judged(given: dict[str, Any], old: dict[str, Any] | None = None) -> Verdict:
    return judge(given, old, CLUSTER, RESOURCES)


def answered(given: Any, old: Any = None, *, operation: str = "CREATE", rules: Any = QUEUES) -> dict[str, Any]:
    """The response to the API server."""
    request = {"uid": "u", "kind": {"kind": "ElasticQuotaTree"}, "operation": operation, "object": given}
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | {"oldObject": old}}
    found: dict[str, Any] = json.loads(review(Admission(CLUSTER, rules), json.dumps(asked).encode()))["response"]
    return found


BROKEN = document(quota("a", {GPU: 9}, {GPU: 8}), quota("a", {}, {GPU: 200}))


def test_a_sound_tree_is_admitted_without_words() -> None:
    assert judged(document(quota("a", {}, {}), total=LARGE)) == Verdict()


def test_every_rule_that_a_tree_breaks_is_named_with_its_place() -> None:
    first, second = "spec.root.children[0] (a)", "spec.root.children[1] (a)"
    assert judged(BROKEN).refusal.splitlines() == [
        "the quota tree breaks rules, and is not stored:",
        f"{second}.name: 'a' stands at {first} as well; expected names that are unique",
        f"{first}: min {GPU} is 9, more than max 8; expected min of at most max",
        f"{second}: max {GPU} is 200, its parent's 100; expected a max of at most the parent's",
    ]


@pytest.mark.parametrize(
    "given", [{}, {"spec": None}, {"spec": {"root": []}}, {"spec": {"root": {"children": 3}}, "metadata": [3]}]
)
def test_whatever_is_no_tree_is_refused(given: dict[str, Any]) -> None:
    assert "; expected " in judged(given).refusal


def test_a_change_beside_the_tree_passes_even_if_it_breaks_rules() -> None:
    assert judged({**BROKEN, "metadata": {"labels": {"a": "b"}}}, BROKEN) == Verdict()


def test_a_tree_is_not_changed_into_one_that_breaks_rules() -> None:
    assert judged(BROKEN, document(quota("a"))).refusal


def test_a_root_larger_than_the_cluster_is_warned_of() -> None:
    found = judged(document(quota("a"), total=100_000))
    assert not found.refusal
    assert any(each.startswith("root: max is 100000 nvidia.com/gpu, and the cluster has ") for each in found.warnings)


def test_a_min_that_is_no_sum_of_cells_is_warned_of_with_the_nearest() -> None:
    vc = next(iter(CLUSTER.virtual_clusters))
    (found,) = judged(document(quota(vc, {GPU: 0.5}, {}), total=LARGE)).warnings
    assert found.startswith(f"root/{vc}: min is 0.5 nvidia.com/gpu, and virtual cluster {vc} is promised cells of")
    assert "nearest " in found


def test_a_tree_of_another_namespace_is_not_read_and_warned_of() -> None:
    found = judged({**BROKEN, "metadata": {"namespace": "team"}})
    assert found == Verdict(warnings=("trees count in namespace kube-system only, so this one changes nothing",))


def test_a_word_that_means_nothing_is_warned_of() -> None:
    found = judged(document(quota("a", {}, {}, namespace=["x"]), total=LARGE))
    said = "spec.root.children[0] (a).namespace: means nothing, did you mean namespaces?"
    assert found == Verdict(warnings=(said,))


def test_warnings_are_few() -> None:
    name = "hivedscheduler.microsoft.com/virtual-cluster"
    many = document(*(quota(f"q{number}", attributes={name: "none"}) for number in range(100)), total=LARGE)
    found = judged(many).warnings
    assert (len(found), found[-1]) == (MOST_WARNINGS + 1, "and 80 more warnings")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_the_api_server_is_told_that_a_tree_is_refused(operation: str) -> None:
    found = answered(BROKEN, operation=operation)
    assert not found["allowed"]
    assert found["status"]["message"].startswith("hived: the quota tree breaks rules, and is not stored:\nspec.root")


def test_the_api_server_is_given_the_warnings() -> None:
    found = answered(document(quota("a"), total=100_000), operation="UPDATE")
    assert found["allowed"]
    assert found["warnings"][0].startswith("hived: root: max is 100000 nvidia.com/gpu")


def test_a_tree_that_is_deleted_is_not_looked_at() -> None:
    assert answered(None, BROKEN, operation="DELETE") == {"uid": "u", "allowed": True}


def test_without_queues_trees_are_somebody_elses() -> None:
    assert answered(BROKEN, rules=RULES) == {"uid": "u", "allowed": True}
