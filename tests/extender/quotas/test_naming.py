"""The quota of a job: by its labels, else by its namespace."""

import pytest

from hived.errors import UserError
from hived_extender.quotas.naming import LABELS, quota_of
from tests.extender.quotas.trees import quota, tree

TREE = tree(quota("team", children=[quota("red", namespaces=["a"]), quota("blue", namespaces=["b"])]))


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


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'blue'"):
        quota_of(TREE, {LABELS[0]: "bleu"}, "a")


def test_a_quota_with_children_has_no_jobs() -> None:
    with pytest.raises(UserError, match="name one of its leaves"):
        quota_of(TREE, {LABELS[0]: "team"}, "a")
