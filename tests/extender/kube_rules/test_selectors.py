"""Labels meet selectors, or do not."""

import pytest

from hived_config.selectors import Requirement, matches
from hived_extender.kube_rules.selectors import (
    MOST,
    NodeTermSpec,
    RequirementSpec,
    node_matches,
    of_labels,
    units,
)


@pytest.mark.parametrize(
    ("operator", "values", "label", "expected"),
    [
        ("In", ("a", "b"), "b", True),
        ("In", ("a",), "c", False),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), "c", True),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "a", False),
        ("Gt", ("4",), "5", True),
        ("Gt", ("4",), "4", False),
        ("Gt", ("4",), "many", False),
        ("Gt", ("4", "5"), "9", False),
        ("Gt", ("4",), "99999999999999999999", False),
        ("Lt", ("4",), "-1", True),
        ("Lt", ("4",), None, False),
        ("Between", ("4",), "4", False),
    ],
)
def test_a_requirement_holds_as_kubernetes_has_it(
    operator: str, values: tuple[str, ...], label: str | None, expected: bool
) -> None:
    assert Requirement("key", operator, values).holds(label) is expected


def test_all_requirements_of_a_selector_have_to_hold() -> None:
    assert matches(of_labels({"a": "1", "b": "2"}), {"a": "1", "b": "2", "c": "3"})
    assert not matches(of_labels({"a": "1", "b": "2"}), {"a": "1"})


def test_an_empty_selector_means_everything_and_none_means_nothing() -> None:
    assert matches((), {})
    assert not matches(None, {"a": "1"})


def term(*, labels: list[RequirementSpec] | None = None, fields: list[RequirementSpec] | None = None) -> NodeTermSpec:
    return NodeTermSpec(labels, fields)


def test_a_node_meets_affinity_by_any_of_its_terms() -> None:
    terms = [
        term(labels=[RequirementSpec("disk", "Exists")]).read(),
        term(fields=[RequirementSpec("metadata.name", "In", ["n1"])]).read(),
    ]
    known = [each for each in terms if each is not None]
    assert node_matches(known, "n0", {"disk": "fast"})
    assert node_matches(known, "n1", {})
    assert not node_matches(known, "n2", {})


def test_no_node_meets_affinity_without_terms() -> None:
    assert not node_matches((), "n0", {})
    assert node_matches(None, "n0", {})


@pytest.mark.parametrize(
    "spec",
    [
        term(),
        term(fields=[RequirementSpec("metadata.uid", "In", ["x"])]),
        term(fields=[RequirementSpec("metadata.name", "In", ["n1", "n2"])]),
        term(fields=[RequirementSpec("metadata.name", "Exists")]),
    ],
)
def test_a_term_that_kubernetes_does_not_answer_is_met_by_no_node(spec: NodeTermSpec) -> None:
    assert spec.read() is None


# ---- quantities as whole numbers


@pytest.mark.parametrize(
    ("resource", "quantity", "expected"),
    [
        ("cpu", "100m", 100),
        ("cpu", "0.1", 100),
        ("cpu", 2, 2000),
        ("cpu", 0.5, 500),
        ("cpu", "1n", 1),
        ("memory", "1Ki", 1024),
        ("memory", "1.5Gi", 1610612736),
        ("memory", "1e3", 1000),
        ("memory", "128974848000m", 128974848),
        ("memory", "100M", 100_000_000),
        ("nvidia.com/gpu", "8", 8),
        ("memory", "1.", 1),
        ("memory", "1e999999999", MOST),
        ("memory", "8Ei", MOST),
        ("memory", "many", 0),
        ("memory", "-1", 0),
        ("cpu", "1." + "0" * 62, 1000),
        ("cpu", "1." + "0" * 63, 0),
        ("cpu", "1." + "0" * 5000 + "1", 0),
    ],
)
def test_a_quantity_is_a_whole_number_of_its_resource_rounded_up(
    resource: str, quantity: str | int | float, expected: int
) -> None:
    assert units(resource, quantity) == expected
