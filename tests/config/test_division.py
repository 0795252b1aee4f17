"""The share of each VC in a chain and the spare cells, by hand for small clusters and by sums for any."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hived.cells.layout import build_topology
from hived.values.specs import ClusterSpec
from hived_config.division import divide
from hived_config.document import ConfigError
from tests.config.sound_file import SOUND, cluster_of

RACKS = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: RACK}, {cellType: RACK}, {cellType: RACK, cellChildren: [{pinnedCellId: p}, {}]}]
virtualClusters:
"""


def spare(virtual_clusters: str) -> list[int]:
    """Whole cells that are left of three racks, by level from the top, one node of the last rack being pinned as p."""
    (chain,) = divide(cluster_of(RACKS + virtual_clusters))
    return [level.spare for level in chain.levels]


@pytest.mark.parametrize(
    ("virtual_clusters", "left"),
    [
        ("  a:", [3, 0, 0]),
        ("  a: {virtualCells: [{cellType: RACK, cellNumber: 2}]}", [1, 0, 0]),
        ("  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 3}]}", [1, 1, 0]),
        ("  a: {virtualCells: [{cellType: RACK.GPU, cellNumber: 5}]}", [2, 0, 3]),
        ("  a: {virtualCells: [{cellType: RACK.GPU, cellNumber: 3}]}", [2, 1, 1]),
        ("  a: {pinnedCells: [{pinnedCellId: p}]}", [2, 1, 0]),
        ("  a: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}], pinnedCells: [{pinnedCellId: p}]}", [2, 0, 0]),
    ],
)
def test_as_few_cells_are_split_as_can_be(virtual_clusters: str, left: list[int]) -> None:
    assert spare(virtual_clusters) == left


def test_levels_say_what_each_virtual_cluster_has() -> None:
    rack, node = divide(cluster_of(SOUND))
    assert [(level.cell_type, dict(level.promised), dict(level.pinned)) for level in rack.levels] == [
        ("RACK", {}, {}),
        ("NODE", {"a": 1}, {"b": 1}),
        ("PAIR", {}, {}),
        ("GPU", {}, {}),
    ]
    assert (rack.leaves_of("a"), rack.leaves_of("b"), rack.spare_leaf_count) == (4, 4, 0)
    assert (node.name, node.node_count, node.tops, node.leaves_of("b")) == ("NODE", 1, ("n2",), 4)


def test_a_pinned_cell_has_its_address_and_owner() -> None:
    (pin,) = divide(cluster_of(SOUND))[0].pinned_cells
    assert (pin.pin_id, pin.cell_type, pin.address, pin.vc) == ("pin", "NODE", "0/n1", "b")


def test_pinned_cells_have_the_addresses_that_the_core_gives_them() -> None:
    text = RACKS.replace("{cellType: RACK}, ", "{cellType: RACK, cellAddress: r, pinnedCellId: q}, ", 1)
    cluster = cluster_of(text.replace("{}]", "{cellChildren: [{}, {pinnedCellId: s}, {}, {}]}]") + "  a:")
    topology = build_topology(cluster)
    (chain,) = divide(cluster)
    assert {pin.pin_id: pin.address for pin in chain.pinned_cells} == {
        name: topology.address(cell) for name, cell in topology.pinned_cells.items()
    }


def check_sums(cluster: ClusterSpec) -> None:
    """No cell is lost or given twice."""
    for chain in divide(cluster):
        assert all(level.spare >= 0 for level in chain.levels)
        promised = sum(chain.leaves_of(vc) for vc in cluster.virtual_clusters)
        assert promised + chain.spare_leaf_count == chain.leaf_count
        assert sum(level.is_node_level for level in chain.levels) == 1


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["RACK", "RACK.NODE", "RACK.NODE.GPU", "pin"]), st.integers(0, 4)),
        max_size=5,
    )
)
def test_what_is_promised_and_what_is_spare_is_all_there_is(wishes: list[tuple[str, int]]) -> None:
    text = RACKS
    for i, (wish, count) in enumerate(wishes):
        cell = "pinnedCells: [{pinnedCellId: p}]" if wish == "pin" else (
            f"virtualCells: [{{cellType: {wish}, cellNumber: {count}}}]"
        )  # fmt: skip
        text += f"  vc{i}: {{{cell}}}\n"
    try:
        cluster = cluster_of(text if wishes else text.replace("virtualClusters:", "virtualClusters: {}"))
    except ConfigError:
        return
    check_sums(cluster)
