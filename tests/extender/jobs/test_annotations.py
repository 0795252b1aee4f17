"""Pod annotations: what is read, what is refused and with which text, and that nothing at all can break the reader."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived.values.specs import BindInfo, GroupSpec, MemberSpec, PodRequest, PodSpec
from hived_extender.jobs import annotations as a
from hived_extender.jobs.annotations import USUAL
from hived_extender.jobs.bind_info import bind_info
from tests.property.examples import examples

MINIMAL = {"virtualCluster": "VC1", "leafCellNumber": 1}


def read(spec: str | dict[str, object]) -> PodSpec:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    return a.pod_request("u", "p", "ns", {a.SCHEDULING_SPEC: text}).spec


def refusal(spec: str | dict[str, object]) -> str:
    with pytest.raises(UserError) as caught:
        read(spec)
    assert caught.value.code == 400
    return caught.value.message


class TestSpec:
    def test_defaults_are_filled_in(self) -> None:
        assert read(MINIMAL) == PodSpec(
            "VC1", 0, 1, GroupSpec("ns/p", (MemberSpec(1, 1),)), ignore_suggested_nodes=False
        )

    def test_every_field_is_read(self) -> None:
        spec = read(
            {
                "virtualCluster": "VC1",
                "priority": -1,
                "pinnedCellId": "pin",
                "leafCellType": "V100",
                "leafCellNumber": 2,
                "gangReleaseEnable": True,
                "lazyPreemptionEnable": True,
                "ignoreK8sSuggestedNodes": False,
                "affinityGroup": {"name": "g", "members": [{"podNumber": 3, "leafCellNumber": 2}]},
            }
        )
        assert spec == PodSpec("VC1", -1, 2, GroupSpec("g", (MemberSpec(3, 2),)), "pin", "V100", True, True, False)

    def test_yaml_and_json_read_the_same(self) -> None:
        text = (
            "virtualCluster: VC1\npriority: 5\nleafCellNumber: 2\nlazyPreemptionEnable: yes\naffinityGroup:\n"
            "  name: 007\n  members:\n  - {podNumber: 1, leafCellNumber: 4}\n  - {podNumber: 0x2, leafCellNumber: 2}\n"
        )
        assert read(text) == PodSpec(
            "VC1",
            5,
            2,
            GroupSpec("007", (MemberSpec(2, 2), MemberSpec(1, 4))),
            lazy_preemption=True,
            ignore_suggested_nodes=False,
        )

    def test_names_are_kept_as_written(self) -> None:
        spec = read("virtualCluster: no\nleafCellType: 1e3\nleafCellNumber: 1\npinnedCellId: 12:30:45")
        assert (spec.virtual_cluster, spec.leaf_cell_type, spec.pinned_cell_id) == ("no", "1e3", "12:30:45")

    def test_old_spellings_mean_the_same(self) -> None:
        new = read({"virtualCluster": "V", "leafCellType": "K80", "leafCellNumber": 3})
        assert read({"virtualCluster": "V", "gpuType": "K80", "gpuNumber": 3}) == new
        assert read("virtualCluster: V\ngpuType: K80\ngpuNumber: 3\n") == new

    def test_members_of_one_size_are_merged_in_ascending_size(self) -> None:
        members = [(1, 4), (2, 1), (5, 4)]
        group = {"name": "g", "members": [{"podNumber": n, "leafCellNumber": s} for n, s in members]}
        assert read(MINIMAL | {"affinityGroup": group}).group.members == (MemberSpec(2, 1), MemberSpec(6, 4))

    def test_merged_sizes_saturate(self) -> None:
        members = [{"podNumber": a.MAX_COUNT, "leafCellNumber": 1}] * 3
        group = {"name": "g", "members": members}
        assert read(MINIMAL | {"affinityGroup": group}).group.members == (MemberSpec(a.MAX_COUNT, 1),)

    def test_merge_keys_and_anchors_are_followed(self) -> None:
        text = "base: &b {virtualCluster: V, priority: 3}\n<<: *b\npriority: 4\nleafCellNumber: 1"
        assert (read(text).virtual_cluster, read(text).priority) == ("V", 4)

    def test_unknown_keys_and_nulls_are_ignored(self) -> None:
        text = "virtualCluster: V\nleafCellNumber: 1\nfuture: {a: [1]}\npriority: null\naffinityGroup: ~\n"
        assert read(text) == PodSpec("V", 0, 1, GroupSpec("ns/p", (MemberSpec(1, 1),)), ignore_suggested_nodes=False)

    @pytest.mark.parametrize(
        ("wish", "meaning"),
        [
            ("RACK", ("RACK", True)),
            ({"required": "RACK"}, ("RACK", True)),
            ({"preferred": "RACK"}, ("RACK", False)),
            ({"preferred": ""}, ("", False)),
            ("", ("", True)),
        ],
    )
    def test_a_wish_to_be_within_a_cell(self, wish: object, meaning: tuple[str, bool]) -> None:
        for spec in (read(MINIMAL | {"withinCell": wish}), read(yaml.safe_dump(MINIMAL | {"withinCell": wish}))):
            assert (spec.within_cell, spec.within_is_required) == meaning

    @pytest.mark.parametrize("text", ["true", "yes"])
    def test_an_elastic_pod(self, text: str) -> None:
        assert read(f"virtualCluster: V\nleafCellNumber: 1\nelastic: {text}").elastic
        assert not read(MINIMAL).elastic

    @pytest.mark.parametrize("wish", [{}, {"required": ""}, {"required": "RACK", "preferred": "NODE"}])
    def test_a_wish_that_says_nothing_or_two_things_is_refused(self, wish: object) -> None:
        assert refusal(MINIMAL | {"withinCell": wish}).endswith(
            "WithinCell has to be a cell type, {required: a cell type} or {preferred: a cell type}"
        )

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"virtualCluster": ""}, "VirtualCluster is empty"),
            ({"priority": -2}, "Priority is less than -1"),
            ({"priority": 1001}, "Priority is greater than 1000"),
            ({"leafCellNumber": 0}, "LeafCellNumber is non-positive"),
            ({"affinityGroup": {"name": ""}}, "AffinityGroup.Name is empty"),
            ({"affinityGroup": {"name": "g"}}, "AffinityGroup.Members does not contains current Pod"),
            (
                {"affinityGroup": {"name": "g", "members": [{"podNumber": 0, "leafCellNumber": 0}]}},
                "AffinityGroup.Members has non-positive PodNumber",
            ),
            (
                {"affinityGroup": {"name": "g", "members": [{"podNumber": 1, "leafCellNumber": -1}]}},
                "AffinityGroup.Members has non-positive LeafCellNumber",
            ),
            (
                {"affinityGroup": {"name": "g", "members": [{"podNumber": 1, "leafCellNumber": 2}]}},
                "AffinityGroup.Members does not contains current Pod",
            ),
        ],
    )
    def test_a_spec_that_breaks_a_rule_is_refused_in_the_known_words(
        self, change: dict[str, object], text: str
    ) -> None:
        assert refusal(MINIMAL | change) == f"Pod annotation {a.SCHEDULING_SPEC}: {text}"

    @pytest.mark.parametrize("text", ["null", "{}", "", "~", "# nothing\n"])
    def test_an_empty_spec_is_refused(self, text: str) -> None:
        problem = "VirtualCluster is empty" if text else "Annotation does not exist or is empty"
        assert refusal(text) == f"Pod annotation {a.SCHEDULING_SPEC}: {problem}"

    def test_a_missing_annotation_is_refused(self) -> None:
        with pytest.raises(UserError, match="does not exist or is empty"):
            a.pod_request("u", "p", "ns", {})

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            "[]",
            "leafCellNumber: abc",
            'leafCellNumber: "1"',
            "virtualCluster: [1",
            "leafCellNumber: 2147483648",
            "leafCellNumber: 1.5",
            "virtualCluster: *nowhere",
            "? [a]: b",
            "a: 1\n---\nb: 2",
            "gangReleaseEnable: maybe",
            "\ud800",
            'virtualCluster: "\\ud800"\nleafCellNumber: 1',
            "\0",
            "[" * 100_000,
            '{"a":' * 100_000,
            "- " * 1000 + "x",
            "x" * (USUAL.size + 1),
        ],
    )
    def test_what_is_no_such_yaml_is_refused(self, text: str) -> None:
        message = refusal(text)
        assert message.startswith("Failed to unmarshal YAML")
        message.encode()

    def test_an_alias_bomb_is_refused(self) -> None:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
        assert "nodes" in refusal("\n".join(lines))


KEYS = [
    "virtualCluster",
    "leafCellNumber",
    "gpuNumber",
    "priority",
    "affinityGroup",
    "members",
    "podNumber",
    "name",
    "node",
    "leafCellIsolation",
    "affinityGroupBindInfo",
    "podPlacements",
    "physicalNode",
    "physicalLeafCellIndices",
    "preassignedCellTypes",
    "<<",
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=5),
    max_leaves=15,
)


@settings(max_examples=examples(300))
@given(st.text() | st.text(alphabet="{}[]:&*!|>'\"%@-,?# \n\tab01~<") | values.map(json.dumps))
def test_any_text_gives_a_value_or_a_user_error(text: str) -> None:
    annotations = {a.SCHEDULING_SPEC: text, a.BIND_INFO: text, a.LEAF_CELL_ISOLATION: text}
    for result_type, call in (
        (PodRequest, lambda: a.pod_request("u", "p", "ns", annotations)),
        (BindInfo, lambda: bind_info(annotations)),
    ):
        try:
            assert isinstance(call(), result_type)
        except UserError as error:
            error.message.encode()
