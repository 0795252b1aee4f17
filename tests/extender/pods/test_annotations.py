"""Pod annotations: what is read, what is refused and with which text, and that nothing at all can break the reader."""

import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.errors import UserError
from hived.specs import BindInfo, GroupSpec, MemberSpec, PodPlacement, PodRequest, PodSpec
from hived_extender.pods import annotations as a
from hived_extender.pods.annotation_yaml import USUAL
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


def bound(text: str, **more: str) -> BindInfo:
    return a.bind_info({a.BIND_INFO: text, **{a.PREFIX + k.replace("_", "-"): v for k, v in more.items()}}, "p(ns/p)")


def bind_refusal(text: str) -> str:
    with pytest.raises(UserError) as caught:
        bound(text)
    return caught.value.message


INFO = BindInfo(
    "n1",
    (0, 1),
    "RACK",
    ((PodPlacement("n1", (9,), ("NODE",)),), (PodPlacement("n1", (0, 1), ("NODE", "")),)),
)


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


class TestBindInfo:
    def test_what_is_written_is_read_back(self) -> None:
        assert a.bind_info(a.bind_annotations(INFO)) == INFO

    def test_the_written_annotations_have_the_known_keys(self) -> None:
        written = a.bind_annotations(INFO)
        assert written["hivedscheduler.microsoft.com/pod-leaf-cell-isolation"] == "0,1"
        assert json.loads(written["hivedscheduler.microsoft.com/pod-bind-info"]) == {
            "node": "n1",
            "leafCellIsolation": [0, 1],
            "cellChain": "RACK",
            "affinityGroupBindInfo": [
                {
                    "podPlacements": [
                        {"physicalNode": "n1", "physicalLeafCellIndices": [9], "preassignedCellTypes": ["NODE"]}
                    ]
                },
                {
                    "podPlacements": [
                        {"physicalNode": "n1", "physicalLeafCellIndices": [0, 1], "preassignedCellTypes": ["NODE", ""]}
                    ]
                },
            ],
        }

    def test_pods_of_a_group_share_the_placements_they_are_read_with(self) -> None:
        other = BindInfo("n2", (3,), "RACK", INFO.members)
        first, second = (a.bind_info(a.bind_annotations(info)) for info in (INFO, other))
        assert first.members is second.members

    def test_yaml_and_old_spellings_are_read(self) -> None:
        text = (
            "node: n1\ngpuIsolation: [0, 1]\ncellChain: RACK\naffinityGroupBindInfo:\n"
            "- podPlacements:\n  - {physicalNode: n1, physicalGpuIndices: [9], preassignedCellTypes: [NODE]}\n"
            '- podPlacements:\n  - {physicalNode: n1, physicalGpuIndices: [0, 1], preassignedCellTypes: [NODE, ""]}\n'
        )
        assert bound(text) == INFO

    def test_members_are_put_in_ascending_size(self) -> None:
        wire = json.loads(a.bind_annotations(INFO)[a.BIND_INFO])
        wire["affinityGroupBindInfo"].reverse()
        assert bound(json.dumps(wire)) == INFO

    @pytest.mark.parametrize("key", ["pod_leaf_cell_isolation", "pod_gpu_isolation"])
    def test_indices_missing_in_the_bind_info_come_from_the_isolation_annotation(self, key: str) -> None:
        wire = json.loads(a.bind_annotations(INFO)[a.BIND_INFO])
        del wire["leafCellIsolation"]
        assert bound(json.dumps(wire), **{key: "0,1"}) == INFO

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("", "Pod does not contain or contains empty annotation: hivedscheduler.microsoft.com/pod-bind-info"),
            ("{", "Failed to unmarshal YAML"),
            ("null", "no members"),
            ("node: n\naffinityGroupBindInfo: 5", "affinityGroupBindInfo: "),
            ("node: n\nleafCellIsolation: [0]\naffinityGroupBindInfo: [{podPlacements: []}]", "member without pod"),
            ("affinityGroupBindInfo: [{podPlacements: [{physicalNode: n}]}]", "pod placements of one member"),
            (
                "affinityGroupBindInfo: [{podPlacements: [{physicalNode: n, physicalLeafCellIndices: [0]}]}]",
                "preassignedCellTypes and",
            ),
            (
                "affinityGroupBindInfo: [{podPlacements: [{physicalNode: n, physicalLeafCellIndices: [0],"
                " preassignedCellTypes: [N]}, {physicalNode: n, physicalLeafCellIndices: [1, 2],"
                " preassignedCellTypes: [N, N]}]}]",
                "pod placements of one member",
            ),
        ],
    )
    def test_what_says_nothing_useful_is_refused(self, text: str, problem: str) -> None:
        assert bind_refusal(text).startswith(f"[p(ns/p)]: Invalid pod bind info: {problem}")

    @pytest.mark.parametrize("field", ["node", "leafCellIsolation"])
    def test_a_bind_info_without_node_or_indices_is_refused(self, field: str) -> None:
        wire = json.loads(a.bind_annotations(INFO)[a.BIND_INFO])
        del wire[field]
        assert bind_refusal(json.dumps(wire)) == f"[p(ns/p)]: Invalid pod bind info: {field} is empty"


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
        (BindInfo, lambda: a.bind_info(annotations)),
    ):
        try:
            assert isinstance(call(), result_type)
        except UserError as error:
            error.message.encode()


AS_THE_REFERENCE_WRITES = """\
node: n1
leafCellIsolation:
- 0
- 1
cellChain: RACK-1.V100
affinityGroupBindInfo:
- podPlacements:
  - physicalNode: n1
    physicalLeafCellIndices:
    - 9
    preassignedCellTypes:
    - NODE
- podPlacements:
  - physicalNode: n1
    physicalLeafCellIndices:
    - 0
    - 1
    preassignedCellTypes:
    - NODE
    - ""
"""

lines = AS_THE_REFERENCE_WRITES.splitlines(keepends=True)
changes = st.lists(
    st.tuples(
        st.integers(0, len(AS_THE_REFERENCE_WRITES)),
        st.integers(0, 3),
        st.text(alphabet="affinityGroupBindInfo:&*!|>'\"%@-,?# \n\tab01~<", max_size=3) | st.sampled_from(lines),
    ),
    max_size=3,
)


def outcome(text: str) -> object:
    try:
        return bound(text)
    except UserError as error:
        return error.message


class TestGroupPartByItself:
    """The group part of bind info in YAML is read once for all pods of the group, with the same outcome."""

    @pytest.mark.parametrize("is_first", [False, True])
    def test_it_is_read_by_itself_as_the_reference_writes_it(self, is_first: bool) -> None:
        text = "".join(lines[5:] + lines[:5]) if is_first else AS_THE_REFERENCE_WRITES
        assert bound(text) == replace(INFO, cell_chain="RACK-1.V100")
        assert bound(text).members is bound(text.replace("node: n1", "node: n2", 1)).members
        parts = a._parted(text)
        assert parts is not None
        assert parts[1] == "".join(lines[5:])

    @pytest.mark.parametrize(
        "change", ["node: *x", "node: 'n1'", "--- n1", "node: n1 # one", "affinityGroupBindInfo: []"]
    )
    def test_not_if_other_parts_are_more_than_plain(self, change: str) -> None:
        assert a._parted(AS_THE_REFERENCE_WRITES.replace("node: n1", change, 1)) is None

    @settings(max_examples=examples(500), deadline=None)
    @given(changes)
    def test_the_outcome_is_that_of_reading_all_of_it(self, edits: list[tuple[int, int, str]]) -> None:
        text = AS_THE_REFERENCE_WRITES
        for place, length, inserted in edits:
            text = text[:place] + inserted + text[place + length :]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(a, "_parted", lambda _: None)
            whole = outcome(text)
        assert outcome(text) == whole
