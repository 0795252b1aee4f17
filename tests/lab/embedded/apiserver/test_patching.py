"""Patches as pure functions, then by HTTP."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived_lab.embedded.apiserver.bodies import ApiError
from hived_lab.embedded.apiserver.patches import json_patch, merge_patch, strategic_merge_patch
from tests.lab.embedded.helpers import Http, config_map, pod

# The examples of RFC 7386, appendix A.
RFC_7386 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), RFC_7386)
def test_a_merge_patch_does_as_the_rfc_says(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


STRATEGIC = {
    "lists of objects merge by key": (
        {"containers": [{"name": "a", "image": "x", "tty": True}, {"name": "b"}]},
        {"containers": [{"name": "a", "image": "y"}, {"name": "c"}]},
        {"containers": [{"name": "a", "image": "y", "tty": True}, {"name": "b"}, {"name": "c"}]},
    ),
    "conditions merge by type": (
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]},
        {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]},
    ),
    "nested lists merge too": (
        {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]},
        {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
        {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]},
    ),
    "other lists are replaced": ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]},
                                 {"tolerations": [{"key": "b"}]}),
    "finalizers are joined": ({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, {"finalizers": ["a", "b", "c"]}),
    "null deletes": ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
    "an item is deleted": (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"name": "a", "$patch": "delete"}, {"name": "nobody", "$patch": "delete"}]},
        {"containers": [{"name": "b"}]},
    ),
    "a list is replaced on demand": (
        {"containers": [{"name": "a"}, {"name": "b"}]},
        {"containers": [{"$patch": "replace"}, {"name": "c"}]},
        {"containers": [{"name": "c"}]},
    ),
    "an object is replaced on demand": ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
    "an object is emptied on demand": ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
    "items of a plain list are deleted": (
        {"finalizers": ["a", "b", "c"]},
        {"$deleteFromPrimitiveList/finalizers": ["b"]},
        {"finalizers": ["a", "c"]},
    ),
    "items are put in order": (
        {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]},
        {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]},
        {"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]},
    ),
    "keys are retained": ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c", "d"], "d": 3}}, {"a": {"c": 2, "d": 3}}),
    "the list does not exist yet": ({}, {"containers": [{"name": "a"}]}, {"containers": [{"name": "a"}]}),
}  # fmt: skip


@pytest.mark.parametrize(("target", "patch", "expected"), STRATEGIC.values(), ids=STRATEGIC)
def test_a_strategic_merge_patch_knows_lists(target: Any, patch: Any, expected: Any) -> None:
    assert strategic_merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "burn"},
        {"containers": [{"image": "x"}]},
        {"containers": ["x"]},
        {"$retainKeys": "x"},
        {"$deleteFromPrimitiveList/finalizers": "x"},
    ],
)
def test_a_malformed_strategic_patch_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(ApiError) as refusal:
        strategic_merge_patch({"containers": [{"name": "a"}], "finalizers": ["a"]}, patch)
    assert refusal.value.code == 400


JSON_PATCHES = {
    "add a member": ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    "add an item": ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    "append an item": ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    "remove": ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
    "remove an item": ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/1"}], {"a": [1, 3]}),
    "replace": ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
    "replace an item": ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 3}], {"a": [3, 2]}),
    "replace everything": ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    "move": ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
    "copy": ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    "test": ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    "escapes": ({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], {}),
}


@pytest.mark.parametrize(("target", "patch", "expected"), JSON_PATCHES.values(), ids=JSON_PATCHES)
def test_a_json_patch_does_as_the_rfc_says(target: Any, patch: Any, expected: Any) -> None:
    assert json_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"op": "add"}, 400),
        (["add"], 400),
        ([{"op": "add", "path": "/a"}], 400),
        ([{"op": "fly", "path": "/a"}], 400),
        ([{"op": "remove", "path": "a"}], 400),
        ([{"op": "remove", "path": 1}], 400),
        ([{"op": "move", "path": "/a"}], 400),
        ([{"op": "remove", "path": ""}], 422),
        ([{"op": "move", "from": "", "path": "/a"}], 422),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "remove", "path": "/nothing"}], 422),
        ([{"op": "add", "path": "/list/9", "value": 1}], 422),
        ([{"op": "add", "path": "/list/01x", "value": 1}], 422),
        ([{"op": "add", "path": "/a/b", "value": 1}], 422),
        ([{"op": "add", "path": "/nothing/b", "value": 1}], 422),
        ([{"op": "test", "path": "/a", "value": 1}] * 10_001, 400),
    ],
)
def test_a_json_patch_that_does_not_fit_is_refused(patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as refusal:
        json_patch({"a": 1, "list": []}, patch)
    assert refusal.value.code == code


keys = st.sampled_from(["a", "b", "containers", "finalizers", "name", "env"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)
directives = st.sampled_from(
    ["$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers"]
)
operations = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "fly"]),
        "path": st.sampled_from(
            ["", "/", "/a", "/a/0", "/a/-", "/b/a", "/containers/0/name", "x", "/~", "/a/99999999999"]
        ),
        "from": st.sampled_from(["", "/a", "/b/a"]),
        "value": values,
    },
)
patches = st.one_of(
    st.tuples(st.just(merge_patch), values),
    st.tuples(st.just(strategic_merge_patch), st.dictionaries(keys | directives, values, max_size=4)),
    st.tuples(st.just(json_patch), st.lists(operations, max_size=4)),
)


@given(target=st.dictionaries(keys, values, max_size=4), function_and_patch=patches)
def test_any_patch_is_applied_or_refused_and_changes_nothing_in_place(
    target: dict[str, Any], function_and_patch: Any
) -> None:
    apply, patch = function_and_patch
    before = copy.deepcopy((target, patch))
    codes: set[int] = set()
    try:
        apply(target, patch)
    except ApiError as refusal:
        codes.add(refusal.code)
    assert codes <= {400, 422}
    assert (target, patch) == before


def test_a_merge_patch_changes_a_stored_object(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, config_map("one", a="1", b="2"))
    status, patched = http.patch(f"{config_maps}/one", {"data": {"a": None, "c": "3"}})
    assert (status, patched["data"]) == (200, {"b": "2", "c": "3"})
    assert http.ok("GET", f"{config_maps}/one") == patched


def test_a_strategic_patch_changes_one_container(http: Http, pods: str) -> None:
    http.ok("POST", pods, pod("one"))
    patch = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    status, patched = http.patch(f"{pods}/one", patch, "strategic-merge-patch", fieldValidation="Strict")
    assert (status, patched["spec"]["containers"][0]["image"]) == (200, "other")


def test_a_json_patch_changes_a_stored_object(http: Http, config_maps: str) -> None:
    http.ok("POST", config_maps, config_map("one", a="1"))
    patch = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/data/b", "value": "2"}]
    assert http.patch(f"{config_maps}/one", patch, "json-patch")[1]["data"] == {"a": "1", "b": "2"}
    assert http.patch(f"{config_maps}/one", [{"op": "remove", "path": "/data/x"}], "json-patch")[0] == 422


def test_a_patch_with_a_version_is_refused_when_that_is_old(http: Http, config_maps: str) -> None:
    version = http.ok("POST", config_maps, config_map("one"))["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "data": {"a": "b"}}
    assert http.patch(f"{config_maps}/one", patch)[0] == 200
    assert http.patch(f"{config_maps}/one", patch)[0] == 409
