"""The text of a configuration follows the nodes of the cluster, and nothing else of it changes."""

import difflib
import json
import os
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.cells.layout import build_topology
from hived.values.errors import UserError
from hived_config.document import ConfigError
from hived_config.generating.generate import generated
from hived_config.generating.nodes import Reading, machines_of
from hived_config.generating.shares import Shares
from hived_config.generating.sync import Synced, synced
from hived_config.loader import load_text
from tests.config.generating import machine_room as room

FLAT = """\
# The cluster of the second floor.
physicalCluster:
  cellTypes:
    DGX: {childCellType: V100, childCellNumber: 8, isNodeLevel: true}   # eight GPUs
  physicalCells:
  - {cellType: DGX, cellAddress: n0}   # bought in spring
  - cellType: DGX
    cellAddress: 'n1'
    cellChildren: [{cellAddress: 0}, {cellAddress: 2}, {cellAddress: 1}, {cellAddress: 3},
      {cellAddress: 4}, {cellAddress: 5}, {cellAddress: 6}, {cellAddress: 7}]
  # more to come

virtualClusters:
  a: {virtualCells: [{cellType: DGX, cellNumber: 2}]}
"""
RACKS = """\
physicalCluster:
  skuTypes:
    V100: {gpu: 1, nodeLabels: {nvidia.com/gpu.product: Tesla-V100-SXM2-32GB}}
  cellTypes:
    NODE: {childCellType: V100, childCellNumber: 8, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellAddress: r0, cellChildren: [{cellAddress: n0}, {cellAddress: placeholder-r0-1}]}
  - {cellType: RACK, cellAddress: r1, cellChildren: [{cellAddress: n2}, {cellAddress: n3}]}
virtualClusters:
  a: {virtualCells: [{cellType: RACK, cellNumber: 2}]}
"""
EXAMPLES = int(os.environ.get("HIVED_SYNCS", "50"))
BY_RACK = Reading(levels=(room.RACK,))


def nodes(*names: str, **options: str) -> list[room.Node]:
    return [room.node(name, **options) for name in names]


def in_racks(**racks: str) -> list[room.Node]:
    """Nodes by rack: r0="n0 n1"."""
    return [node for rack, names in racks.items() for node in nodes(*names.split(), rack=rack)]


def difference(old: str, new: str) -> list[str]:
    """The lines that were taken away (-) and added (+)."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def done(text: str, present: Iterable[room.Node], reading: Reading | None = None, **options: object) -> Synced:
    """The outcome of syncing, after syncing again, which does nothing."""
    present = list(present)
    result = synced(text, present, reading, **options)  # passed on as they are
    again = synced(result.text, present, reading, **options)
    assert (again.text, again.changes) == (result.text, ())
    return result


def test_nothing_is_done_if_all_nodes_are_there() -> None:
    assert done(FLAT, nodes("n1", "n0")) == Synced(FLAT)


def test_a_node_that_is_gone_keeps_its_place() -> None:
    result = done(FLAT, nodes("n1"))
    assert result == Synced(FLAT, (), ("1 node of the file not in the cluster, their places kept: n0",))


def test_a_new_node_takes_the_place_of_a_gone_one_in_the_way_it_was_written() -> None:
    result = done(FLAT, nodes("n0", "n2"))
    assert difference(FLAT, result.text) == ["-    cellAddress: 'n1'", "+    cellAddress: 'n2'"]
    assert result.changes == ("n2 takes the place of n1 (DGX)",)


def test_rules_stay_as_they_are_written() -> None:
    text = f"rules:  '2'  # since spring\n{FLAT}"
    assert difference(text, done(text, nodes("n0", "n2")).text) == ["-    cellAddress: 'n1'", "+    cellAddress: 'n2'"]


def test_a_place_where_work_still_counts_is_not_taken() -> None:
    result = done(FLAT, nodes("n0", "n2"), in_use=["n1"])
    assert result.changes == ("a new DGX for n2",)


def test_a_node_without_devices_for_now_is_not_gone() -> None:
    result = done(FLAT, [*nodes("n0", "n2"), room.node("n1", gpus=0)])
    assert result.changes == ("a new DGX for n2",)


def test_a_node_that_was_left_out_while_it_had_no_devices_comes_with_them() -> None:
    amounts = {"cpu": "63500m", "memory": "515Gi", "nvidia.com/gpu": "0"}
    reading = Reading(with_cpus=True)
    found = machines_of([*nodes("n0"), room.node("n1", allocatable=amounts), room.node("c", gpus=0)], reading)
    text = generated(found.machines).text
    assert "n1" not in text
    assert done(text, [*nodes("n0", "n1"), room.node("c", gpus=0)], reading).changes == ("a new V100-NODE for n1",)


def test_a_named_resource_that_no_node_has_is_told() -> None:
    told = done(FLAT, nodes("n0", "n1"), Reading(resources=("nvidia.com/gpuu",))).notes
    assert told == ("no node has nvidia.com/gpuu (--resource); nodes have nvidia.com/gpu",)


def test_a_new_tree_stands_before_the_comments_after_the_list_and_has_devices_like_its_kind() -> None:
    text = FLAT.replace("  - {cellType: DGX, cellAddress: n0}   # bought in spring\n", "").replace("r: 2}]}", "r: 1}]}")
    result = done(text, nodes("n1", "n2"))
    at = result.text.split("\n").index("  # more to come")
    devices = ", ".join(f"{{cellAddress: {device}}}" for device in (0, 2, 1, 3, 4, 5, 6, 7))
    assert result.text.split("\n")[at - 1] == f"  - {{cellType: DGX, cellAddress: n2, cellChildren: [{devices}]}}"


def test_a_placeholder_goes_before_a_gone_node_and_only_nodes_of_the_rack_take_it() -> None:
    result = done(RACKS, in_racks(r0="n0 new", r1="n2 newer"), BY_RACK)
    assert result.changes == ("new takes the place of placeholder-r0-1 (NODE)", "newer takes the place of n3 (NODE)")


def test_without_levels_any_place_will_do() -> None:
    result = done(RACKS, nodes("n0", "n2", "x1", "x2"))
    assert result.changes == ("x1 takes the place of placeholder-r0-1 (NODE)", "x2 takes the place of n3 (NODE)")


def test_a_rack_is_known_by_its_nodes_whatever_its_address() -> None:
    result = done(RACKS.replace("cellAddress: r0", "cellAddress: first"), in_racks(r0="n0 new", r1="n2 n3"), BY_RACK)
    assert result.changes == ("new takes the place of placeholder-r0-1 (NODE)",)


def test_a_new_rack_is_a_new_tree_filled_up_with_placeholders() -> None:
    result = done(RACKS, in_racks(r0="n0", r1="n2 n3", r2="n4", r10="n5 n6 n7"), BY_RACK)
    assert result.changes == ("a new RACK for n4 and 1 placeholder", "a new RACK for n5, n6")
    assert result.notes == ("1 node left out, as their group has no room, or their labels do not say which it is: n7",)
    assert difference(RACKS, result.text) == [
        "+  - cellType: RACK",
        "+    cellAddress: r2",
        "+    cellChildren:",
        "+    - {cellAddress: n4}",
        "+    - {cellAddress: placeholder-r2-1}",
        "+  - cellType: RACK",
        "+    cellAddress: r10",
        "+    cellChildren:",
        "+    - {cellAddress: n5}",
        "+    - {cellAddress: n6}",
    ]


def test_a_full_rack_takes_no_more() -> None:
    result = done(RACKS, in_racks(r0="n0", r1="n2 n3 n4"), BY_RACK)
    assert (result.text, result.notes[0].split(":")[1]) == (RACKS, " n4")


def test_places_for_nodes_to_come_are_placeholders() -> None:
    result = done(FLAT, nodes("n0", "n1"), at_least={"DGX": 4})
    assert result.changes == ("2 new DGX for 2 placeholders",)
    names = build_topology(load_text(result.text, "f", environ={}).cluster).node_names
    assert sorted(names) == ["n0", "n1", "placeholder-dgx-1", "placeholder-dgx-2"]
    grown = done(result.text, nodes("n0", "n1", "n2"), at_least={"DGX": 4})
    assert grown.changes == ("n2 takes the place of placeholder-dgx-1 (DGX)",)


def test_a_rack_to_come_is_given_to_a_rack_that_comes() -> None:
    result = done(RACKS, in_racks(r0="n0", r1="n2 n3"), BY_RACK, at_least={"NODE": 5})
    assert result.changes == ("a new RACK for 2 placeholders",)
    assert "cellAddress: placeholder-node-1\n" in result.text
    grown = done(result.text, in_racks(r0="n0", r1="n2 n3", r7="n8"), BY_RACK, at_least={"NODE": 5})
    assert grown.changes == ("n8 takes the place of placeholder-node-1-1 (NODE)",)
    assert difference(result.text, grown.text)[:2] == [
        "-    cellAddress: placeholder-node-1",
        "+    cellAddress: r7",
    ]


def test_a_type_that_is_not_at_node_level_cannot_be_asked_for() -> None:
    with pytest.raises(UserError, match="no cell type 'RACK' at node level: expected one of NODE"):
        synced(RACKS, [], at_least={"RACK": 4})


def test_machines_of_another_kind_are_left_out_and_told() -> None:
    others = [room.node("few", gpus=4), room.node("other", product=room.A100)]
    result = done(RACKS, [*nodes("n0", "n2", "n3"), *others])
    assert result == Synced(
        RACKS, (), ("2 nodes left out, as no cell type is of their product and number of devices: few, other",)
    )


def test_a_node_with_another_number_of_devices_is_told() -> None:
    result = done(RACKS, [room.node("n0", gpus=7), *nodes("n2", "n3")])
    assert result.notes == ("1 node with another number of devices than their cell type has: n0 (7)",)


def test_the_kind_is_learnt_from_the_nodes_of_the_file_or_else_known_by_its_name() -> None:
    known = FLAT.replace("V100", "DT")
    assert done(known, nodes("n0", "n1", "n2")).changes == ("a new DGX for n2",)
    assert "no cell type" in done(known, nodes("n2")).notes[1]
    assert done(FLAT, nodes("n2")).changes == ("n2 takes the place of n0 (DGX)",)


def test_what_could_be_of_two_kinds_is_left_out_and_told() -> None:
    text = FLAT.replace("  physicalCells:\n", "    OTHER: {childCellType: T4, childCellNumber: 8, isNodeLevel: true}\n"
                        "  physicalCells:\n  - {cellType: OTHER, cellAddress: t0}\n")  # fmt: skip
    result = done(text, nodes("n0", "n1", "t0", "n2", product=""))
    assert (result.text, result.notes[0].split(" (")[0]) == (
        text,
        "1 node left out, as several leaf cell types could be theirs",
    )


def test_cells_that_an_alias_shares_are_not_written_to() -> None:
    text = FLAT.replace("cellAddress: n0}", "cellAddress: &name n0}").replace("'n1'", "n1")
    pinned = text.replace("cellType: DGX, cellAddress: &name n0}", "cellType: &t DGX, cellAddress: n0}")
    assert done(pinned, nodes("n0", "n2")).changes == ("n2 takes the place of n1 (DGX)",)


def test_json_stays_json() -> None:
    text = (
        '{"physicalCluster": {"cellTypes": {"DGX": {"childCellType": "V100", "childCellNumber": 8, "isNodeLevel": true'
        '}}, "physicalCells": [{"cellType": "DGX", "cellAddress": "n0"}]}, "virtualClusters": {}}'
    )
    result = done(text, nodes("n1", "n2"))
    assert '[{"cellType": "DGX", "cellAddress": "n1"}, {"cellType": "DGX", "cellAddress": "n2"}]' in result.text


def test_line_ends_stay_as_they_are() -> None:
    text = FLAT.replace("\n", "\r\n")
    result = done(text, nodes("n0", "n1", "n2"))
    assert "\n" not in result.text.replace("\r\n", "")
    assert "  - {cellType: DGX, cellAddress: n2," not in text
    assert "\r\n  - {cellType: DGX, cellAddress: n2" in result.text


def openpai(text: str) -> str:
    inner = "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines())
    return f"rest-server:\n  password: hunter2   # secret\nhivedscheduler:\n  config: |\n{inner}\nalert-manager: {{}}\n"


def test_an_openpai_file_keeps_what_belongs_to_others() -> None:
    result = done(openpai(FLAT), nodes("n0", "n1", "n2"))
    assert result.text == openpai(done(FLAT, nodes("n0", "n1", "n2")).text)


def test_an_openpai_file_without_a_literal_block_is_refused() -> None:
    folded = 'hivedscheduler:\n  config: "' + FLAT.replace("\n", "\\n").replace("'", "\\'") + '"\n'
    folded = folded.replace("\\'", "'")
    with pytest.raises(ConfigError, match=r"expected a literal block \(config: \|\)"):
        synced(folded, nodes("n0", "n1", "n2"))


def test_a_text_with_mistakes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"f:4: .* found 0, expected a whole number of children"):
        synced(FLAT.replace("childCellNumber: 8", "childCellNumber: 0"), [], file="f")


# ---- any cluster, any change

HALL = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(["z0", "z1", ""]),
        st.sampled_from(["r0", "r1", "r2", ""]),
        st.sampled_from([room.V100, room.A100, ""]),
        st.sampled_from([8, 8, 8, 4, 0]),
    ),
    min_size=1,
    max_size=14,
    unique_by=lambda each: each[0],
)


def made_of(cells: list[tuple[int, str, str, str, int]]) -> list[room.Node]:
    return [room.node(f"n{n}", product, gpus, zone=zone, rack=rack) for n, zone, rack, product, gpus in cells]


@settings(max_examples=EXAMPLES, deadline=None)
@given(before=HALL, after=HALL, pads=st.booleans(), with_levels=st.booleans(), minimum=st.integers(0, 20))
def test_syncing_twice_is_syncing_once_and_changes_physical_cells_only(
    before: list[tuple[int, str, str, str, int]],
    after: list[tuple[int, str, str, str, int]],
    pads: bool,
    with_levels: bool,
    minimum: int,
) -> None:
    reading = Reading(levels=(room.ZONE, room.RACK) if with_levels else ())
    machines = machines_of(made_of(before), reading).machines
    if not machines:
        return
    text = generated(machines, reading.levels, Shares.parse(["a=2", "b=1"]), pads).text
    text = text.replace("virtualClusters:", "# what we promised\nvirtualClusters:")
    node_type = next(name for name, spec in load_text(text, "f").cluster.cell_types.items() if spec.is_node_level)
    result = done(text, made_of(after), reading, at_least={node_type: minimum})
    head, tail = "  physicalCells:", "# what we promised"
    assert result.text.split(head)[0] == text.split(head)[0]
    assert result.text.split(tail)[1] == text.split(tail)[1]
    old = build_topology(load_text(text, "f").cluster).node_names
    new = build_topology(load_text(result.text, "f").cluster).node_names
    assert len(new) >= len(old)
    present = {node["metadata"]["name"] for node in made_of(after)}
    assert set(old) & present <= set(new)
    told = " ".join(result.notes)
    for machine in machines_of(made_of(after), reading).machines:
        assert machine.name in new or "left out" in told
    reversed_result = synced(text, list(reversed(made_of(after))), reading, at_least={node_type: minimum})
    assert reversed_result == result


@pytest.mark.parametrize("seed", range(max(8, EXAMPLES // 20)))
def test_nodes_may_come_and_go_for_as_long_as_they_like(seed: int) -> None:
    chance = random.Random(seed)
    reading = Reading(levels=chance.choice([(), (room.RACK,), (room.ZONE, room.RACK)]))

    def new(number: int) -> room.Node:
        product, gpus = chance.choice([room.V100, room.A100]), chance.choice([8, 8, 4])
        zone, rack = chance.choice(["z0", "z1"]), chance.choice(["r0", "r1", "r2", ""])
        return room.node(f"n{number}", product, gpus, zone=zone, rack=rack)

    present = {number: new(number) for number in range(chance.randint(1, 12))}
    machines = machines_of(present.values(), reading).machines
    text = generated(machines, reading.levels, pads=chance.random() < 0.5).text
    for _ in range(6):
        present = {number: node for number, node in present.items() if chance.random() < 0.75}
        for number in chance.sample(range(60), chance.randint(0, 4)):
            present.setdefault(number, new(number))
        text = done(text, present.values(), reading).text
        names = build_topology(load_text(text, "f", environ={}).cluster).node_names
        assert len(set(names)) == len(names)


GENERATED = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: V100, childCellNumber: 8, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
    ROOM: {childCellType: RACK, childCellNumber: 2}
  physicalCells:
  - {cellType: NODE}
  - cellType: ROOM
    cellChildren: [{cellAddress: left}, {cellAddress: right, cellChildren: [{}, {cellAddress: n9}]}]
virtualClusters:
  a: {virtualCells: [{cellType: ROOM, cellNumber: 1}]}
"""


def test_nodes_whose_names_are_generated_are_those_of_the_scheduler() -> None:
    topology = build_topology(load_text(GENERATED, "", environ={}).cluster)
    assert sorted(topology.node_names) == ["0", "4", "5", "6", "n9"]
    every = synced(GENERATED, nodes("0", "4", "5", "6", "n9"))
    assert (every.text, every.changes, every.notes) == (GENERATED, (), ())


def test_nodes_whose_names_are_generated_are_told_when_they_are_gone() -> None:
    result = synced(GENERATED, nodes("0", "5", "n9"))
    assert result.text == GENERATED
    assert result.notes == (
        "2 nodes of the file without names, for which the cluster has no node; a new node takes such a place: 4, 6",
    )


def test_a_new_node_takes_a_place_without_a_name_and_all_children_are_written() -> None:
    result = done(GENERATED, nodes("n1", "n9"))
    assert result.changes == ("n1 takes the place without a name, called 0 for now (NODE)",)
    assert difference(GENERATED, result.text) == ["-  - {cellType: NODE}", "+  - {cellType: NODE, cellAddress: n1}"]
    again = done(result.text, nodes("n1", "n2", "n3", "n9"))
    assert again.changes == (
        "n2 takes the place without a name, called 4 for now (NODE)",
        "n3 takes the place without a name, called 5 for now (NODE)",
    )
    assert difference(result.text, again.text)[1:] == [
        "+    cellChildren: [{cellAddress: left, cellChildren: [{cellAddress: n2}, {cellAddress: n3}]}, "
        "{cellAddress: right, cellChildren: [{}, {cellAddress: n9}]}]",
    ]
    last = done(again.text, nodes("n1", "n2", "n3", "n4", "n9"))
    assert "cellChildren: [{cellAddress: n4}, {cellAddress: n9}]" in last.text


def test_names_are_written_in_blocks_where_the_file_is_in_blocks_and_other_nodes_are_to_come() -> None:
    text = GENERATED[: GENERATED.index("  - {cellType: NODE}")] + BLOCKS
    present = [*nodes("n1", "n2", zone="hall", rack="r1"), *nodes("n3", zone="hall", rack="r2")]
    result = done(text, present, Reading(levels=(room.ZONE, room.RACK)))
    assert difference(text, result.text) == [
        "+    cellChildren:",
        "+    - cellChildren:",
        "+      - {cellAddress: n1}",
        "+      - {cellAddress: n2}",
        "+    - cellChildren:",
        "+      - {cellAddress: n3}",
        "+      - {cellAddress: placeholder-hall-1}",
    ]
    topology = build_topology(load_text(result.text, "f", environ={}).cluster)
    assert {topology.address(cell) for cell in range(7)} == {
        "hall", "hall/0", "hall/1", "hall/0/n1", "hall/0/n2", "hall/1/n3", "hall/1/placeholder-hall-1",
    }  # fmt: skip


def test_a_node_whose_name_is_a_number_keeps_it_when_others_get_names() -> None:
    text = GENERATED[: GENERATED.index("  - {cellType: NODE}")] + BLOCKS
    result = done(text, nodes("1", "n7"))
    names = build_topology(load_text(result.text, "f", environ={}).cluster).node_names
    assert names == ("1", "2", "3", "n7")
    assert '- {cellAddress: "1"}' in result.text


def test_a_number_where_work_still_counts_is_kept() -> None:
    text = GENERATED[: GENERATED.index("  - {cellType: NODE}")] + BLOCKS
    result = done(text, nodes("n7"), in_use=["0"])
    names = build_topology(load_text(result.text, "f", environ={}).cluster).node_names
    assert names == ("0", "n7", "placeholder-hall-1", "placeholder-hall-2")


def test_json_without_names_stays_json() -> None:
    text = (
        '{"physicalCluster": {"cellTypes": {"DGX": {"childCellType": "V100", "childCellNumber": 8, "isNodeLevel": true'
        '}, "RACK": {"childCellType": "DGX", "childCellNumber": 2}}, "physicalCells": [{"cellType": "DGX"}, '
        '{"cellType": "RACK"}]}, "virtualClusters": {}}'
    )
    result = done(text, nodes("n1", "n2"))
    cells = json.loads(result.text)["physicalCluster"]["physicalCells"]
    assert cells == [
        {"cellType": "DGX", "cellAddress": "n1"},
        {"cellType": "RACK", "cellChildren": [{"cellAddress": "n2"}, {"cellAddress": "placeholder-dgx-1"}]},
    ]


@pytest.mark.parametrize("cell", ["{cellType: RACK, cellChildren: }", "{cellType: RACK, cellChildren: []}"])
def test_a_place_without_a_name_that_cannot_be_written_to_is_told(cell: str) -> None:
    text = GENERATED[: GENERATED.index("  - {cellType: NODE}")] + f"  - {cell}\nvirtualClusters: {{}}\n"
    result = done(text, [])
    assert result.notes == (
        "2 nodes of the file without names, for which the cluster has no node; no other node takes their places until "
        "each is written with a cellAddress of its own: 0, 1",
    )


def test_cells_without_names_that_an_alias_shares_are_not_written_to() -> None:
    text = GENERATED[: GENERATED.index("  - {cellType: NODE}")]
    text += "  - {cellType: ROOM, cellChildren: [&empty {}, *empty]}\nvirtualClusters: {}\n"
    result = synced(text, nodes("n1"))
    assert "no other node takes their places" in " ".join(result.notes)


BLOCKS = """\
  - cellType: ROOM
    cellAddress: hall
virtualClusters:
  a: {virtualCells: [{cellType: ROOM, cellNumber: 1}]}
"""


def test_a_new_node_beside_generated_ones_is_known_by_them_and_takes_no_place_of_theirs() -> None:
    text = GENERATED[: GENERATED.index("  - cellType: ROOM")] + GENERATED[GENERATED.index("virtualClusters") :]
    text = text.replace("cellType: ROOM, cellNumber", "cellType: NODE, cellNumber")
    result = synced(text, nodes("0", "n7"))
    assert result.changes == ("a new NODE for n7",)
    assert result.text == text.replace(
        "{cellType: NODE}\n", "{cellType: NODE}\n  - {cellType: NODE, cellAddress: n7}\n"
    )


RACK_FORMS = {
    "named": "{{cellType: RACK, cellAddress: r{i}, cellChildren: [{{cellAddress: a{i}}}, {{cellAddress: b{i}}}]}}",
    "half": "cellType: RACK\n    cellAddress: r{i}  # half\n    cellChildren:\n    - {{cellAddress: a{i}}}\n    - {{}}",
    "flow": "{{cellType: RACK, cellAddress: r{i}}}",
    "bare": "{{cellType: RACK}}",
    "block": "cellType: RACK  # empty yet\n    cellAddress: 'r{i}'",
    "pinned": "cellType: RACK\n    pinnedCellId: p{i}\n  # a comment between",
}


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    forms=st.lists(st.sampled_from(sorted(RACK_FORMS)), min_size=1, max_size=6),
    written=st.sets(st.sampled_from([f"{side}{i}" for side in "ab" for i in range(6)]), max_size=12),
    others=st.sets(st.integers(0, 14).map(str) | st.integers(0, 9).map("new{}".format), max_size=12),
)
def test_whatever_is_left_out_every_node_gets_a_place_while_there_is_one(
    forms: list[str], written: set[str], others: set[str]
) -> None:
    cells = "".join(f"  - {RACK_FORMS[form].format(i=i)}\n" for i, form in enumerate(forms))
    text = GENERATED.split("    ROOM", maxsplit=1)[0] + f"  physicalCells:\n{cells}virtualClusters: {{}}\n"
    present = nodes(*sorted(written | others))
    result = done(text, present)
    names = build_topology(load_text(result.text, "f", environ={}).cluster).node_names
    assert {node["metadata"]["name"] for node in present} <= set(names)
    assert len(names) == max(2 * len(forms), 2 * -(-len(present) // 2))
    assert [line for line in result.text.splitlines() if "#" in line] == [
        line for line in text.splitlines() if "#" in line
    ]
    assert synced(text, list(reversed(present))) == result
