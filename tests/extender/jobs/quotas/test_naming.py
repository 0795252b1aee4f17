"""The quota of a job: by its labels, else by its namespace."""

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.quotas.tree import LABELS, MOST_LEAVES_COMPARED, quota_of
from tests.extender.jobs.quotas.trees import quota, tree

TREE = tree(
    quota("team", children=[quota("red", namespaces=["a"]), quota("blue")]), quota("green", namespaces=["b", "c"])
)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("name", ["blue", "root/team/blue"])
def test_a_label_names_a_leaf(label: str, name: str) -> None:
    found = quota_of(TREE, {label: name}, "a")
    assert found is not None
    assert found.name == "root/team/blue"


def test_the_leaf_of_the_namespace_comes_next() -> None:
    found = quota_of(TREE, {}, "a")
    assert found is not None
    assert found.name == "root/team/red"


def test_a_job_of_another_namespace_has_none() -> None:
    assert quota_of(TREE, {}, "elsewhere") is None


@pytest.mark.parametrize(("namespace", "remedy"), [("a", "name root/team/red"), ("x", "leave the label out")])
def test_a_job_charges_no_leaf_that_lists_other_namespaces(namespace: str, remedy: str) -> None:
    with pytest.raises(UserError, match=f"green does not list namespace {namespace}: {remedy}"):
        quota_of(TREE, {LABELS[0]: "green"}, namespace)


def test_a_job_may_name_the_leaf_that_lists_its_namespace() -> None:
    found = quota_of(TREE, {LABELS[0]: "green"}, "c")
    assert found is not None
    assert found.name == "root/green"


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'blue'"):
        quota_of(TREE, {LABELS[0]: "bleu"}, "a")


def test_one_of_very_many_leaves_is_not_looked_for() -> None:
    many = tree(*(quota(f"q{number}") for number in range(MOST_LEAVES_COMPARED + 1)))
    with pytest.raises(UserError, match="name one of root/q0, root/q1"):
        quota_of(many, {LABELS[0]: "q00"}, "a")


def test_a_quota_with_children_has_no_jobs() -> None:
    with pytest.raises(UserError, match="name one of its leaves"):
        quota_of(TREE, {LABELS[0]: "team"}, "a")
