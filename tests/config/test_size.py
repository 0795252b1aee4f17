"""How large a configuration may be: counted before anything is built, and said with a place and a remedy."""

import time

import pytest

from hived_config.chains import MAX_CELL_COUNT, MAX_CHILD_COUNT, MAX_NODE_COUNT, MAX_PAIR_COUNT
from hived_config.loader import load_text
from tests.config.sound_file import mistakes_of

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
