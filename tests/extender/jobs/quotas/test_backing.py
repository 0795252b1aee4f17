"""The virtual clusters that back quotas, and the admission of trees (rules 25.7, 25.8)."""

import json
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from hived_config.loader import load_text
from hived_extender.jobs.admission import Admission, review
from hived_extender.jobs.quotas.backing import (
    MOST_WARNINGS,
    Verdict,
    cells_of,
    devices_of,
    fit_warnings,
    judge,
    shape_warnings,
)
from hived_extender.jobs.quotas.tree import VIRTUAL_CLUSTER, read_tree
from tests.extender.jobs.kinds.test_admission import CLUSTER, QUEUES, RULES
from tests.extender.jobs.quotas.trees import GPU, document, quota, tree

CELLS = {"vision": {GPU: {8: 3}}, "mixed": {GPU: {8: 1, 4: 1, 2: 1}}}

CONFIG = """
physicalCluster:
  skuTypes: {PAIR: {gpu: 2, resource: amd.com/gpu}}
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
    BOX: {childCellType: PAIR, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: n1, pinnedCellId: own}, {cellAddress: n2}]}
  - {cellType: RACK, cellChildren: [{cellAddress: n3}, {cellAddress: n4}]}
  - {cellType: BOX, cellAddress: n5}
virtualClusters:
  vision:
    virtualCells: [{cellType: RACK.NODE.GPU, cellNumber: 3}, {cellType: RACK.NODE, cellNumber: 1}]
    pinnedCells: [{pinnedCellId: own}]
  audio:
    virtualCells: [{cellType: BOX, cellNumber: 1}]
  idle: {virtualCells: []}
"""


def test_a_sum_of_cells_is_no_warning() -> None:
    assert shape_warnings(tree(quota("vision", {GPU: 16}), quota("mixed", {GPU: 10})), CELLS) == []


def test_another_amount_names_the_nearest_sums() -> None:
    (warning,) = shape_warnings(tree(quota("vision", {GPU: 12})), CELLS)
    assert warning == (
        "root/vision: min is 12 nvidia.com/gpu, and virtual cluster vision is promised cells of 3 x 8: "
        "nearest are 8 and 16"
    )


def test_more_than_all_cells_is_told() -> None:
    found = shape_warnings(tree(quota("vision", {GPU: 32})), CELLS)
    assert found[-1] == "the min of the quotas of virtual cluster vision are 32 nvidia.com/gpu, it has 24"


def test_quotas_without_cells_are_left_alone() -> None:
    assert shape_warnings(tree(quota("other", {GPU: 3})), CELLS) == []


def test_fractions_have_nearest_sums_too() -> None:
    (warning,) = shape_warnings(tree(quota("mixed", {GPU: 2.5})), CELLS)
    assert warning.endswith("nearest are 2 and 4")


def test_cells_are_counted_by_their_devices_pinned_ones_included() -> None:
    found = load_text(CONFIG, "test.yaml")
    assert cells_of(found.cluster, found.rules.resources_in(found.cluster)) == {
        "vision": {GPU: {8: 2, 1: 3}},
        "audio": {"amd.com/gpu": {8: 1}},
        "idle": {},
    }


def test_leaf_cells_that_are_no_devices_are_not_counted() -> None:
    assert cells_of(load_text(CONFIG, "test.yaml").cluster, {"GPU": GPU})["audio"] == {}


def test_a_virtual_cluster_that_does_not_exist_is_told_with_the_nearest_name() -> None:
    (warning,) = shape_warnings(tree(quota("a", attributes={VIRTUAL_CLUSTER: "visoin"})), CELLS)
    assert warning == "root/a: virtual cluster 'visoin' is not in the configuration, did you mean 'vision'?"


def fits(*leaves: dict[str, Any], resource: str = GPU) -> list[str]:
    """The warnings about a tree whose root has 16 of a resource."""
    amounts = {resource: 16}
    root = {"name": "root", "min": amounts, "max": amounts, "children": list(leaves)}
    found = read_tree({"spec": {"root": root}})
    return fit_warnings(found, load_text(CONFIG, "test.yaml").cluster, {"GPU": GPU})


def test_a_resource_of_the_whole_tree_that_no_cell_has_is_told_with_the_nearest_one() -> None:
    odd = "nvidia.com/gpus"
    (warning,) = fits(quota("vision", {odd: 8}), resource=odd)
    assert warning == "root: no cell has nvidia.com/gpus, did you mean nvidia.com/gpu?"
    assert fits(quota("vision", {"cpu": 0}), resource="cpu") == [], "cells are not counted by it"


def test_a_root_that_is_oversold_has_more_than_the_cluster() -> None:
    found = read_tree({"spec": {"root": {"name": "root", "min": {GPU: 16}, "max": {GPU: 16}}}})
    cluster = load_text(CONFIG, "test.yaml").cluster
    count = devices_of(cluster, {"GPU": GPU})[GPU]
    before = fit_warnings(found, cluster, {"GPU": GPU})
    (warning,) = [one for one in fit_warnings(replace(found, oversell=4.0), cluster, {"GPU": GPU}) if one not in before]
    assert warning.startswith(f"root: max is 16 {GPU}, times the oversellrate 4, and the cluster has {count}: ")
    assert warning.endswith(f"give {count // 4}")


def test_leaves_that_no_virtual_cluster_backs_are_told_together_with_the_nearest_names() -> None:
    backed = quota("other", attributes={VIRTUAL_CLUSTER: "vision"})
    (warning,) = fits(quota("visoin", {GPU: 8}), quota("team-7", {GPU: 4}), quota("free"), backed)
    assert warning.startswith("root/visoin (did you mean vision?), root/team-7: no virtual cluster has this name")


def test_more_than_a_sum_of_all_cells_has_one_nearest_sum() -> None:
    assert shape_warnings(tree(quota("vision", {GPU: 32})), CELLS)[0].endswith("nearest is 24")


@pytest.mark.parametrize("seed", range(30))
def test_the_nearest_sums_are_those_of_all_choices_of_cells(seed: int) -> None:
    random = Random(seed)
    sizes = {size: random.randint(1, 5) for size in random.sample(range(1, 12), 3)}
    sums = {0}
    for size, count in sizes.items():
        sums = {one + size * number for one in sums for number in range(count + 1)}
    for amount in range(1, 80):
        found = shape_warnings(tree(quota("vc", {GPU: amount})), {"vc": {GPU: sizes}})
        below = max(one for one in sums if one <= amount)
        above = min((one for one in sums if one >= amount), default=None)
        if below == amount:
            assert found == []
        elif above is None:
            assert found[0].endswith(f"nearest is {below}")
        else:
            assert found[0].endswith(f"nearest are {below} and {above}")


# ---- quota trees at their admission: rules refuse, and everything that is hardly meant is warned of


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
