"""Bind info in annotations: what is written is read back, and what is refused and with which text."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived.values.specs import BindInfo, PodPlacement
from hived_extender.jobs import bind_info as b
from hived_extender.jobs.annotations import BIND_INFO, PREFIX
from tests.property.examples import examples


def bound(text: str, **more: str) -> BindInfo:
    return b.bind_info({BIND_INFO: text, **{PREFIX + k.replace("_", "-"): v for k, v in more.items()}}, "p(ns/p)")


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


class TestBindInfo:
    def test_what_is_written_is_read_back(self) -> None:
        assert b.bind_info(b.bind_annotations(INFO)) == INFO

    def test_the_written_annotations_have_the_known_keys(self) -> None:
        written = b.bind_annotations(INFO)
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
        first, second = (b.bind_info(b.bind_annotations(info)) for info in (INFO, other))
        assert first.members is second.members

    def test_the_group_part_is_parsed_once_for_all_pods_of_a_group(self, monkeypatch: pytest.MonkeyPatch) -> None:
        parsed: list[bytes] = []
        parse = b._decode_members
        monkeypatch.setattr(b, "_decode_members", lambda text: parsed.append(text) or parse(text))
        members = ((PodPlacement("parsed-once", (9,), ("NODE",)),),)
        for number in range(3):
            b.bind_info(b.bind_annotations(BindInfo(f"n{number}", (9,), "RACK", members)))
        assert len(parsed) == 1

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("", ""),
            ('"n1"', '"n2"'),
            ('"RACK"', '"a\\",\\"affinityGroupBindInfo\\":[{}"'),
            ('"cellChain"', '"a\\",\\"affinityGroupBindInfo"'),
            ('"cellChain"', '"affinityGroupBindInfo"'),
            ("}]}]}", '}]}],"cellChain":"OTHER"}'),
            ("}]}]}", '}]}],"affinityGroupBindInfo":[]}'),
            ("}]}]}", "}]}]}}"),
            ("}]}]}", "}]}]"),
            ("}]}]}", "}]}] }"),
            ("physicalLeafCellIndices", "physicalGpuIndices"),
            ("leafCellIsolation", "gpuIsolation"),
            ("[0,1]", "[0,1.5]"),
            ("[0,1]", "[]"),
            (",", " ,"),
        ],
    )
    def test_text_as_hived_writes_it_is_read_as_any_other(
        self, monkeypatch: pytest.MonkeyPatch, old: str, new: str
    ) -> None:
        text = b.bind_annotations(INFO)[BIND_INFO].replace(old, new)
        quickly = outcome(text)
        monkeypatch.setattr(b, "_decode_written", lambda text: None)
        assert quickly == outcome(text)

    def test_yaml_and_old_spellings_are_read(self) -> None:
        text = (
            "node: n1\ngpuIsolation: [0, 1]\ncellChain: RACK\naffinityGroupBindInfo:\n"
            "- podPlacements:\n  - {physicalNode: n1, physicalGpuIndices: [9], preassignedCellTypes: [NODE]}\n"
            '- podPlacements:\n  - {physicalNode: n1, physicalGpuIndices: [0, 1], preassignedCellTypes: [NODE, ""]}\n'
        )
        assert bound(text) == INFO

    def test_members_are_put_in_ascending_size(self) -> None:
        wire = json.loads(b.bind_annotations(INFO)[BIND_INFO])
        wire["affinityGroupBindInfo"].reverse()
        assert bound(json.dumps(wire)) == INFO

    @pytest.mark.parametrize("key", ["pod_leaf_cell_isolation", "pod_gpu_isolation"])
    def test_indices_missing_in_the_bind_info_come_from_the_isolation_annotation(self, key: str) -> None:
        wire = json.loads(b.bind_annotations(INFO)[BIND_INFO])
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
        wire = json.loads(b.bind_annotations(INFO)[BIND_INFO])
        del wire[field]
        assert bind_refusal(json.dumps(wire)) == f"[p(ns/p)]: Invalid pod bind info: {field} is empty"


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
        parts = b._parted(text)
        assert parts is not None
        assert parts[1] == "".join(lines[5:])

    @pytest.mark.parametrize(
        "change", ["node: *x", "node: 'n1'", "--- n1", "node: n1 # one", "affinityGroupBindInfo: []"]
    )
    def test_not_if_other_parts_are_more_than_plain(self, change: str) -> None:
        assert b._parted(AS_THE_REFERENCE_WRITES.replace("node: n1", change, 1)) is None

    @settings(max_examples=examples(500), deadline=None)
    @given(changes)
    def test_the_outcome_is_that_of_reading_all_of_it(self, edits: list[tuple[int, int, str]]) -> None:
        text = AS_THE_REFERENCE_WRITES
        for place, length, inserted in edits:
            text = text[:place] + inserted + text[place + length :]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(b, "_parted", lambda _: None)
            whole = outcome(text)
        assert outcome(text) == whole
