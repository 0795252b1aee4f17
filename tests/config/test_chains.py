"""Cell types, the chains that they make (rules 1.1 to 1.3), and how large a configuration may be."""

import time

import pytest

from hived.values.specs import CellTypeSpec
from hived_config.chains import MAX_CELL_COUNT, MAX_CHILD_COUNT, MAX_LEVELS, MAX_NODE_COUNT, MAX_PAIR_COUNT, Chain
from hived_config.loader import load_text
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
        "f:5: physicalCluster.cellTypes.RACK.childCellType: found chain RACK without a node level, "
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


ENTRY = "physicalCluster.physicalCells[{}]"
FEWER_CELLS = "lower childCellNumber of P or a type below it, or remove cells"


def text_of(racks: int, nodes: int, devices: int, *, entries: int = 1, virtual: str = "", other: str = "") -> str:
    """Entries of chain P: racks of nodes with devices. `virtual` and `other` are cells of the VCs a and b."""
    cells = "".join("  - cellType: P\n" for _ in range(entries))
    return f"""\
physicalCluster:
  cellTypes:
    NODE: {{childCellType: GPU, childCellNumber: {devices}, isNodeLevel: true}}
    RACK: {{childCellType: NODE, childCellNumber: {nodes}}}
    P: {{childCellType: RACK, childCellNumber: {racks}}}
  physicalCells:
{cells}virtualClusters:
  a:
    virtualCells: [{virtual}]
  b:
    virtualCells: [{other}]
"""


def test_sixteen_thousand_nodes_with_one_cell_each_are_well_within_the_limits() -> None:
    text = text_of(128, 128, 8, virtual="{cellType: P.RACK.NODE, cellNumber: 16384}")
    assert load_text(text, "f", environ={}).cluster.virtual_clusters["a"].virtual_cells[0].cell_count == 16384


@pytest.mark.parametrize(
    ("text", "place", "found", "most"),
    [
        (text_of(1000, 100, 20), (7, 0), f"{1 + 1000 * (1 + 100 * 21)} physical cells", MAX_CELL_COUNT),
        (text_of(999, 95, 20), (7, 0), f"{1 + 999 * (1 + 95 * 21)} physical cells", None),
        (text_of(1000, 95, 20, entries=3), (8, 1), f"{3 * (1 + 1000 * (1 + 95 * 21))} physical cells", MAX_CELL_COUNT),
        (text_of(1000, 201, 1), (7, 0), "201000 nodes", MAX_NODE_COUNT),
        (text_of(1000, 200, 1), (7, 0), "200000 nodes", None),
        (
            text_of(1, 5, MAX_CHILD_COUNT),
            (7, 0),
            f"{1 + 5**2 + 5 * MAX_CHILD_COUNT**2} pairs of cells with the same parent",
            MAX_PAIR_COUNT,
        ),
        (text_of(1, 4, MAX_CHILD_COUNT), (7, 0), "pairs", None),
    ],
)
def test_hardware_beyond_a_limit_is_refused_at_its_first_entry_that_is(
    text: str, place: tuple[int, int], found: str, most: int | None
) -> None:
    if most is None:
        assert load_text(text, "f", environ={}).cluster.physical_cells
        return
    line, entry = place
    wanted = f"f:{line}: {ENTRY.format(entry)}: found {found} in all, expected at most {most}: {FEWER_CELLS}"
    assert wanted in mistakes_of(text)


def test_hardware_of_any_size_is_counted_in_no_time() -> None:
    started = time.process_time()
    most = MAX_CHILD_COUNT
    mistakes = mistakes_of(text_of(most, most, most, entries=2))
    assert [each.split(" in all, expected ")[1] for each in mistakes[:3]] == [
        f"at most {limit}: {FEWER_CELLS}" for limit in (MAX_CELL_COUNT, MAX_NODE_COUNT, MAX_PAIR_COUNT)
    ]
    assert time.process_time() - started < 1


def claims_of(number: int, path: str = "P.RACK") -> str:
    return f"{{cellType: {path}, cellNumber: {number}}}"


@pytest.mark.parametrize("number", [2**31 - 1, MAX_CELL_COUNT])
def test_virtual_cells_beyond_the_limit_are_refused_where_they_are_promised(number: int) -> None:
    text = text_of(8, 16, 8, virtual=claims_of(1), other=claims_of(number))
    total = (1 + number) * (1 + 16 * 9)
    assert (
        f"f:12: virtualClusters.b.virtualCells[0].cellType: found {total} virtual cells in all, "
        f"expected at most {MAX_CELL_COUNT}: lower cellNumber"
    ) in mistakes_of(text)


def test_cells_of_one_vc_and_type_are_counted_together() -> None:
    half = claims_of(50_000, "P.RACK.NODE")
    pairs = f"{100_000**2} pairs of virtual cells of one VC and type in all"
    mistakes = mistakes_of(text_of(1000, 120, 1, virtual=f"{half}, {half}"))
    assert mistakes == [
        f"f:10: virtualClusters.a.virtualCells[1].cellType: found {pairs}, expected at most {MAX_PAIR_COUNT}: "
        "lower cellNumber, or promise cells of a higher level"
    ]
    assert load_text(text_of(1000, 120, 1, virtual=half, other=half), "f", environ={}).cluster.virtual_clusters
