"""Cell types: counts, cycles, and the node level of each chain (rules 1.1 to 1.3)."""

import pytest

from hived.values.specs import CellTypeSpec
from hived_config.chains import MAX_LEVELS, Chain
from tests.config.sound_file import SOUND, changed, cluster_of, mistakes_of

PAIR = "PAIR: {childCellType: GPU, childCellNumber: 2}"
RACK = "RACK: {childCellType: NODE, childCellNumber: 2}"
TYPES = "physicalCluster.cellTypes"
CELLS = "physicalCluster.physicalCells"


def test_cell_types_are_kept_in_file_order() -> None:
    assert list(cluster_of(SOUND).cell_types.values()) == [
        CellTypeSpec("PAIR", "GPU", 2),
        CellTypeSpec("NODE", "PAIR", 2, is_node_level=True),
        CellTypeSpec("RACK", "NODE", 2),
    ]


def test_a_chain_counts_leaves_and_cells_by_depth() -> None:
    chain = Chain(("RACK", "NODE", "GPU"), (3, 4, 0), node_depth=1)
    assert chain.leaf_counts == (12, 4, 1)
    assert chain.cell_counts == (16, 5, 1)
    assert [chain.level(depth) for depth in range(3)] == [3, 2, 1]


@pytest.mark.parametrize(
    ("written", "mistakes"),
    [
        ("PAIR: {childCellNumber: 2}", [": found no childCellType, expected the name of the children's cell type"]),
        (
            "PAIR: {childCellType: '', childCellNumber: 2}",
            [".childCellType: found the text '', expected the name of the children's cell type"],
        ),
        ("PAIR: {childCellType: GPU}", [": found no childCellNumber, expected a whole number of children"]),
        ("PAIR:", [": found nothing, expected a cell type (a mapping)"]),
        ("PAIR: [GPU, 2]", [": found a list, expected a cell type (a mapping)"]),
    ],
)
def test_a_cell_type_that_is_incomplete_is_a_mistake(written: str, mistakes: list[str]) -> None:
    assert mistakes_of(changed(PAIR, written)) == [f"f:3: {TYPES}.PAIR{mistake}" for mistake in mistakes]


@pytest.mark.parametrize(("written", "shown"), [("''", "''"), ("' PAIR'", "' PAIR'"), ('"PA\\nIR"', "'PA\\nIR'")])
def test_a_cell_type_without_a_proper_name_is_a_mistake(written: str, shown: str) -> None:
    listed = mistakes_of(changed(PAIR, f"{written}: {{childCellType: GPU, childCellNumber: 2}}"))
    assert f"found cell type {shown}, expected a name, printable and without blanks around it" in listed[0]


@pytest.mark.parametrize(
    ("child", "cycle"), [("PAIR", "PAIR > PAIR"), ("NODE", "PAIR > NODE > PAIR"), ("RACK", "PAIR > RACK > NODE > PAIR")]
)
def test_cell_types_in_a_cycle_are_a_mistake(child: str, cycle: str) -> None:
    listed = mistakes_of(changed(PAIR, f"PAIR: {{childCellType: {child}, childCellNumber: 2}}"))
    assert listed == [
        f"f:3: {TYPES}.PAIR: found a cycle of cell types ({cycle}), expected children that do not contain their parents"
    ]


def test_each_cycle_is_reported_also_where_no_cell_uses_it() -> None:
    extra = "".join(f"    {a}: {{childCellType: {b}, childCellNumber: 1}}\n" for a, b in ["AB", "BA", "CD", "DC", "EA"])
    listed = mistakes_of(SOUND.replace("  physicalCells:", extra.rstrip("\n") + "\n  physicalCells:"))
    assert [mistake.split(",")[0] for mistake in listed] == [
        f"f:6: {TYPES}.A: found a cycle of cell types (A > B > A)",
        f"f:8: {TYPES}.C: found a cycle of cell types (C > D > C)",
    ]


def test_a_chain_without_a_node_level_is_a_mistake() -> None:
    listed = mistakes_of(changed(", isNodeLevel: true", ""))
    assert listed == [
        f"f:7: {CELLS}[0].cellType: found chain RACK without a node level, "
        "expected isNodeLevel: true once in RACK > NODE > PAIR > GPU",
        f"f:12: {CELLS}[1].cellType: found chain NODE without a node level, "
        "expected isNodeLevel: true once in NODE > PAIR > GPU",
    ]


def test_a_misspelt_child_that_cuts_a_chain_off_its_nodes_is_suggested() -> None:
    listed = mistakes_of(changed(RACK, "RACK: {childCellType: NODES, childCellNumber: 2}"))
    assert listed[0] == (
        f"f:7: {CELLS}[0].cellType: found chain RACK without a node level, "
        "expected isNodeLevel: true once in RACK > NODES (did you mean NODE?)"
    )


def test_a_chain_with_two_node_levels_is_a_mistake() -> None:
    listed = mistakes_of(changed(RACK, RACK.replace("}", ", isNodeLevel: true}")))
    assert listed == [
        f"f:4: {TYPES}.NODE: found 2 node levels in chain RACK: RACK, NODE, "
        "expected isNodeLevel once in RACK > NODE > PAIR > GPU"
    ]


def test_a_top_cell_below_node_level_is_a_mistake() -> None:
    listed = mistakes_of(changed("{cellType: NODE, cellAddress: n2}", "{cellType: PAIR}"))
    assert listed == [
        f"f:12: {CELLS}[1].cellType: found top cell type PAIR, which is below node level (NODE), "
        "expected a cell type at node level or above"
    ]


def test_a_leaf_cell_type_at_the_top_is_a_mistake() -> None:
    listed = mistakes_of(changed("{cellType: NODE, cellAddress: n2}", "{cellType: GPU}"))
    assert listed == [
        f"f:12: {CELLS}[1].cellType: found top cell type 'GPU', which is a leaf cell type, "
        "expected a cell type at node level or above"
    ]


def test_a_chain_with_absurdly_many_levels_is_a_mistake() -> None:
    tower = "".join(f"    T{i}: {{childCellType: T{i + 1}, childCellNumber: 1}}\n" for i in range(MAX_LEVELS))
    text = changed("  physicalCells:", f"{tower}  physicalCells:").replace(f"T{MAX_LEVELS},", "NODE,")
    (mistake,) = mistakes_of(text.replace("- {cellType: NODE, cellAddress: n2}", "- {cellType: T0}"))
    assert mistake.endswith(f"found chain 'T0' of {MAX_LEVELS + 3} levels, expected at most {MAX_LEVELS} levels")


def test_types_that_no_cell_uses_may_be_anything_sound() -> None:
    assert cluster_of(changed(PAIR, f"{PAIR}\n    LOOSE: {{childCellType: X, childCellNumber: 3}}"))
