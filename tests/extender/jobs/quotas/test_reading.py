"""Trees of quotas as read, and the quota of a job (rules 25.1, 25.2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived_extender.jobs.quotas.tree import (
    DRAIN,
    LABELS,
    LEND_LIMIT,
    MOST_LEAVES_COMPARED,
    MOST_MISTAKES,
    OVERSELL,
    VIRTUAL_CLUSTER,
    misspelt_in,
    quota_of,
    read_tree,
)
from tests.extender.jobs.quotas.trees import GPU, document, quota, tree


def refused(*children: dict[str, Any], **more: Any) -> str:
    with pytest.raises(UserError) as error:
        read_tree(document(*children, **more))
    return error.value.message


def test_full_names_are_paths_whatever_the_root_is_called() -> None:
    found = tree(quota("team", children=[quota("a"), quota("b")]))
    assert list(found.quotas) == ["root", "root/team", "root/team/a", "root/team/b"]
    assert [leaf.name for leaf in found.leaves()] == ["root/team/a", "root/team/b"]


def test_quantities_are_in_base_units() -> None:
    large = {"cpu": 8, "memory": "64Gi"}
    child = quota("a", {"cpu": "1500m", "memory": "2Gi"}, {"memory": "4Gi"})
    found = read_tree({"spec": {"root": quota("root", large, large, children=[child])}}).quotas["root/a"]
    assert (found.min["cpu"], found.min["memory"], found.max["memory"]) == (1.5, 2 * 2**30, 4 * 2**30)


@pytest.mark.parametrize("value", [2147483647, "2147483647", "9999999999"])
def test_the_largest_number_and_more_is_no_limit(value: Any) -> None:
    assert tree(quota("a", {}, {"cpu": value})).quotas["root/a"].max == {}


def test_the_number_of_jobs_is_a_limit_of_its_own() -> None:
    found = tree(quota("a", {}, {"kube-queue/max-jobs": 1})).quotas["root/a"]
    assert (found.max_jobs, found.max) == (1, {})


def test_an_unlimited_number_of_jobs_is_none() -> None:
    assert tree(quota("a", {}, {"kube-queue/max-jobs": 2147483647})).quotas["root/a"].max_jobs is None


def test_attributes_are_read() -> None:
    attributes = {LEND_LIMIT: f'{{"{GPU}": 4}}', VIRTUAL_CLUSTER: "vision", DRAIN: "preempt-newest"}
    found = tree(quota("a", {GPU: 8}, {GPU: 8}, attributes=attributes)).quotas["root/a"]
    assert (found.lend_limit, found.vc, found.drain) == ({GPU: 4.0}, "vision", "preempt-newest")


def test_children_are_backed_by_the_virtual_cluster_of_their_parent() -> None:
    found = tree(quota("team", attributes={VIRTUAL_CLUSTER: "vision"}, children=[quota("a")]))
    assert found.quotas["root/team/a"].vc == "vision"


def test_the_oversell_rate_is_the_roots() -> None:
    assert tree(quota("a"), attributes={OVERSELL: "1.5"}).oversell == 1.5


def test_the_fleet_documents_example_is_read() -> None:
    large = {"cpu": 999900, "memory": "9999Gi", GPU: 999900}
    child = quota("child-2", {}, {"kube-queue/max-jobs": 1, "cpu": 10000, GPU: 10000}, namespaces=["default"])
    found = read_tree({"spec": {"root": quota("root", large, large, children=[child])}})
    assert found.quotas["root/child-2"].max_jobs == 1
    assert found.quotas["root/child-2"].namespaces == ("default",)


@pytest.mark.parametrize(
    ("children", "said"),
    [
        ([quota("a"), quota("a")], "unique"),
        ([quota("a", children=[quota("b")]), quota("b")], "unique"),
        ([quota("a", namespaces=["x"]), quota("b", namespaces=["x"])], "each namespace in one quota"),
        ([quota("a", namespaces=["x"], children=[quota("b")])], "leaves only"),
        ([quota("a", {GPU: 9}, {GPU: 8})], "min nvidia.com/gpu is 9, more than max 8"),
        ([quota("a", {GPU: 60}), quota("b", {GPU: 60})], "120 together, its own is 100"),
        (
            [quota("a", {GPU: 4}, {GPU: 4}, children=[quota("b", {}, {GPU: 5})])],
            "max nvidia.com/gpu is 5, its parent's 4",
        ),
        ([quota("a", children=[quota("b", {GPU: 8})])], "8 together, its own is absent"),
        ([quota("a", {f"{GPU}s": 8})], f"8 together, its own is absent, did they mean {GPU}?"),
        ([quota("a", {}, {"kube-queue/max-jobs": 1.5})], "max.kube-queue/max-jobs: found 1.5; expected a whole number"),
        ([quota("a/b")], "without '/'"),
        ([quota("")], "a name"),
        ([{"min": {}}], "a name"),
        ([quota("a", {GPU: "many"})], "a quantity of at least 0"),
        ([quota("a", {GPU: -1})], "a quantity of at least 0"),
        ([quota("a", {GPU: 4}, attributes={LEND_LIMIT: "no"})], "JSON such as"),
        ([quota("a", {GPU: 4}, attributes={LEND_LIMIT: f'{{"{GPU}": 5}}'})], "at most min"),
        ([quota("a", attributes={DRAIN: "now"})], "preempt-newest"),
        ([quota("a", namespaces="x")], "a list of names"),
        ([quota("a", children="b")], "a list"),
        ([quota("a", children=["b"])], "an object"),
    ],
)
def test_a_broken_rule_is_told(children: list[dict[str, Any]], said: str) -> None:
    text = refused(*children)
    assert said in text
    assert "spec.root" in text


@pytest.mark.parametrize(
    ("least", "most", "counts", "said"),
    [
        ({GPU: 8}, {GPU: 9}, 9, f"spec.root: min {GPU} is 8 and max 9: the max counts for both; make them equal"),
        ({GPU: 9}, {GPU: 8}, 8, f"spec.root: min {GPU} is 9 and max 8: the max counts for both; make them equal"),
        ({}, {GPU: 8}, 8, f"spec.root: min {GPU} is absent and max 8: the max counts for both; make them equal"),
        (
            {GPU: 8},
            {},
            8,
            f"spec.root: min {GPU} is 8 and max absent: without a max there is no limit; make them equal",
        ),
        ({GPU: "8k"}, {GPU: 8000}, 8000, ""),
    ],
)
def test_the_max_of_the_root_counts_for_both(
    least: dict[str, Any], most: dict[str, Any], counts: int, said: str
) -> None:
    given = {"spec": {"root": quota("root", least, most, children=[quota("a", {GPU: counts})])}}
    root = read_tree(given).quotas["root"]
    assert (root.min[GPU], root.max.get(GPU, 0)) == (counts, counts if most else 0)
    assert misspelt_in(given) == ([said] if said else [])


def test_the_children_of_the_root_share_its_max() -> None:
    with pytest.raises(UserError, match="a min of at least the sum of its children's"):
        read_tree({"spec": {"root": quota("root", {GPU: 9}, {GPU: 8}, children=[quota("a", {GPU: 9})])}})


@pytest.mark.parametrize(
    ("root", "child"),
    [
        (quota("root", {GPU: -1}, {GPU: 8}), quota("a", {GPU: 8})),
        (quota("root", {GPU: 8}, {GPU: -1}), quota("a", {GPU: 8})),
        (quota("root", {GPU: 8}, {GPU: 8}), quota("a", {GPU: -1}, attributes={LEND_LIMIT: f'{{"{GPU}": 4}}'})),
    ],
)
def test_an_amount_that_is_none_is_told_once_and_compared_with_no_other(
    root: dict[str, Any], child: dict[str, Any]
) -> None:
    with pytest.raises(UserError) as refusal:
        read_tree({"spec": {"root": {**root, "children": [child]}}})
    (line,) = refusal.value.message.splitlines()
    assert "found -1; expected a quantity of at least 0" in line


def test_every_mistake_is_told_at_once() -> None:
    text = refused(quota("a", {GPU: 9}, {GPU: 8}), quota("a", {GPU: "many"}))
    assert len(text.splitlines()) == 3


def test_very_many_mistakes_are_told_by_their_number() -> None:
    lines = refused(*(quota("a") for _ in range(2000))).splitlines()
    assert len(lines) == MOST_MISTAKES + 1
    assert lines[-1] == f"and {1999 - MOST_MISTAKES} more mistakes"


def test_a_place_names_the_quota() -> None:
    assert "spec.root.children[1] (b).min.nvidia.com/gpu" in refused(quota("a"), quota("b", {GPU: "many"}))


@pytest.mark.parametrize(
    ("children", "said"),
    [
        ([quota("a", mix={GPU: 8})], "spec.root.children[0] (a).mix: means nothing, did you mean min?"),
        (
            [quota("t", children=[quota("a", namespace=["x"])])],
            "spec.root.children[0] (t).children[0] (a).namespace: means nothing, did you mean namespaces?",
        ),
        ([quota("a", weight=2)], "spec.root.children[0] (a).weight: means nothing, expected one of name, "),
        (
            [quota("a", attributes={"alibabacloud.com/lendlimits": "{}"})],
            "spec.root.children[0] (a).attributes.alibabacloud.com/lendlimits: means nothing, did you mean "
            + LEND_LIMIT,
        ),
        (
            [quota("a", {}, {"nvida.com/gpu": 8})],
            "spec.root.children[0] (a).max.nvida.com/gpu: means nothing, did you mean nvidia.com/gpu?",
        ),
        (
            [quota("a", {}, {"kube-queue/max-job": 8})],
            "spec.root.children[0] (a).max.kube-queue/max-job: means nothing, did you mean kube-queue/max-jobs?",
        ),
    ],
)
def test_a_word_that_means_nothing_is_named_in_a_tree_that_is_read(children: list[dict[str, Any]], said: str) -> None:
    given = document(*children)
    read_tree(given)
    (found,) = misspelt_in(given)
    assert found.startswith(said)


def test_words_of_others_are_left_alone() -> None:
    attributes = {
        "resourceflavors": "a",
        "preempt-policy": "PreemptLowerPriority",
        "example.com/owner": "x",
        OVERSELL: "1",
    }
    child = quota("a", {}, {"cpu": 8, "amd.com/gpu": 4, "kube-queue/max-jobs": 1}, attributes=attributes)
    assert misspelt_in(document(child, attributes=attributes)) == []


def test_very_many_words_are_told_by_the_first_ones() -> None:
    words: dict[str, Any] = {f"word-{number}": 1 for number in range(9_000)}
    assert len(misspelt_in(document(quota("a", **words)))) == MOST_MISTAKES
    assert misspelt_in(document(quota("a", {}, words, attributes=words))) == []


def test_a_tree_that_is_too_deep_is_refused() -> None:
    deep = quota("q0")
    for number in range(1, 60):
        deep = quota(f"q{number}", children=[deep])
    assert "too deep" in refused(deep)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "min", "max", "children", "namespaces", "attributes", "x"]), inner, max_size=5
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_anything_is_read_or_refused(root: Any) -> None:
    try:
        said = str(len(read_tree({"spec": {"root": root}}).quotas))
        misspelt_in({"spec": {"root": root}})
    except UserError as error:
        said = error.message
    assert said.isdigit() or said.startswith("spec.root")


# ---- the quota of a job: by its labels, else by its namespace


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
