"""Physical cells as they are written: what is kept, what is inferred, what contradicts (rules 1.5 to 1.7)."""

import pytest

from hived.values.specs import PhysicalCellSpec
from tests.config.sound_file import SOUND, changed, cluster_of, mistakes_of

FIRST = "    - cellAddress: n0\n"
CELL = "physicalCluster.physicalCells[0].cellChildren[0]"


def node_with(children: str) -> str:
    """The sound file with these children of node n0, a NODE of two PAIRs of two GPUs."""
    return changed(FIRST, f"    - {{cellAddress: n0, cellChildren: {children}}}\n")


def node_spec(children: str) -> PhysicalCellSpec:
    """Node n0 with these children, as it is read."""
    return cluster_of(node_with(children)).physical_cells[0].children[0]


def test_cells_are_read_as_written_and_generated_children_are_left_out() -> None:
    assert cluster_of(SOUND).physical_cells == (
        PhysicalCellSpec(
            "RACK", "", "", (PhysicalCellSpec(address="n0"), PhysicalCellSpec(address="n1", pinned_cell_id="pin"))
        ),
        PhysicalCellSpec("NODE", "n2"),
    )


@pytest.mark.parametrize(
    "children",
    [
        "null",
        "[]",
        "[{}, {}]",
        "[{cellAddress: 0}, {cellAddress: 1}]",
        "[{cellType: PAIR, cellChildren: [{}, {}]}, {cellChildren: [{}, {cellAddress: 3, cellType: GPU}]}]",
    ],
)
def test_children_that_would_be_generated_anyway_are_dropped(children: str) -> None:
    assert node_spec(children) == PhysicalCellSpec(address="n0")


def test_children_that_say_something_of_their_own_are_kept_with_their_places() -> None:
    assert node_spec("[{}, {cellChildren: [{cellAddress: 9}, {pinnedCellId: p}]}]").children == (
        PhysicalCellSpec(),
        PhysicalCellSpec(children=(PhysicalCellSpec(address="9"), PhysicalCellSpec(pinned_cell_id="p"))),
    )


def test_default_indices_follow_the_place_of_the_parent_and_not_its_address() -> None:
    spec = node_spec("[{cellAddress: 7, cellChildren: [{cellAddress: 0}, {cellAddress: 1}]}, {}]")
    assert spec.children == (PhysicalCellSpec(address="7"), PhysicalCellSpec())


@pytest.mark.parametrize(
    "written", ["no", "010", "1e3", "12:30:45", "0x10", "2026-01-01", "1.0.0.2", "1_000", "yes", ".inf", "null-1", "<<"]
)
def test_a_node_name_is_the_text_as_written(written: str) -> None:
    cluster = cluster_of(changed("cellAddress: n0", f"cellAddress: {written}"))
    assert cluster.physical_cells[0].children[0].address == written


@pytest.mark.parametrize("written", ["~", "null", "", "''"])
def test_an_absent_address_is_generated(written: str) -> None:
    cluster = cluster_of(changed("cellAddress: n0", f"cellAddress: {written}"))
    assert cluster.physical_cells[0].children[0] == PhysicalCellSpec()


@pytest.mark.parametrize("written", ["'~'", "'null'", '"no"', "'010'"])
def test_a_quoted_name_is_the_text_between_the_quotes(written: str) -> None:
    cluster = cluster_of(changed("cellAddress: n0", f"cellAddress: {written}"))
    assert cluster.physical_cells[0].children[0].address == written[1:-1]


def test_a_cell_type_that_contradicts_its_parent_is_a_mistake() -> None:
    listed = mistakes_of(changed(FIRST, "    - {cellAddress: n0, cellType: PAIR}\n"))
    assert listed == [
        f"f:9: {CELL}.cellType: found cell type 'PAIR' below a cell of type RACK, expected NODE, its childCellType"
    ]


@pytest.mark.parametrize(("written", "count"), [("", 1), (FIRST + "    - cellAddress: n9\n", 3)])
def test_a_wrong_number_of_children_is_a_mistake(written: str, count: int) -> None:
    assert mistakes_of(changed(FIRST, written)) == [
        f"f:9: physicalCluster.physicalCells[0].cellChildren: found {count} children of a cell of type RACK, "
        "expected 2 (its childCellNumber), or none to have them generated"
    ]


def test_a_wrong_number_of_children_does_not_make_their_devices_mistakes_too() -> None:
    (mistake,) = mistakes_of(node_with("[{cellChildren: [{}, {}, {}]}, {}]"))
    assert "found 3 children of a cell of type PAIR" in mistake


def test_a_leaf_cell_with_children_is_a_mistake() -> None:
    listed = mistakes_of(node_with("[{}, {cellChildren: [{cellChildren: [{cellChildren: [{}]}]}, {}]}]"))
    place = f"{CELL}.cellChildren[1].cellChildren[0].cellChildren"
    assert listed == [f"f:9: {place}: found children of the leaf cell type GPU, expected no children"]


@pytest.mark.parametrize("address", ["r/n0", "/", "n0/"])
def test_a_slash_in_an_address_is_a_mistake(address: str) -> None:
    assert mistakes_of(changed("cellAddress: n0", f"cellAddress: {address}")) == [
        f"f:9: {CELL}.cellAddress: found '{address}', "
        "expected an address without '/', which joins the levels of a full one"
    ]


@pytest.mark.parametrize("index", ["a", "-1", "1.5", "2147483648", "99999999999", "+1", "0x1", "\u0661"])
def test_a_device_index_that_is_no_whole_number_is_a_mistake(index: str) -> None:
    listed = mistakes_of(node_with(f"[{{}}, {{cellChildren: [{{cellAddress: {index}}}, {{}}]}}]"))
    assert listed == [
        f"f:9: {CELL}.cellChildren[1].cellChildren[0].cellAddress: found '{index}', "
        "expected a device index (0 to 2147483647) as a leaf cell's address"
    ]


@pytest.mark.parametrize("index", ["8", "2147483647", "007"])
def test_a_device_index_need_not_be_the_usual_one(index: str) -> None:
    spec = node_spec(f"[{{}}, {{cellChildren: [{{cellAddress: {index}}}, {{}}]}}]")
    assert spec.children[1].children[0].address == index


def test_a_pinned_cell_id_given_twice_is_a_mistake() -> None:
    listed = mistakes_of(changed("cellAddress: n0", "cellAddress: n0\n      pinnedCellId: pin"))
    assert listed == [
        "f:12: physicalCluster.physicalCells[0].cellChildren[1].pinnedCellId: found pinnedCellId 'pin' given twice "
        "(first on line 10), expected an id of its own for each pinned cell"
    ]


def test_one_pinned_cell_that_is_aliased_is_given_twice() -> None:
    text = SOUND.replace("- cellAddress: n1\n      pinnedCellId: pin", "- &n {pinnedCellId: pin}").replace(FIRST, "", 1)
    listed = mistakes_of(text.replace("- &n {pinnedCellId: pin}", "- &n {pinnedCellId: pin}\n    - *n"))
    assert "found pinnedCellId 'pin' given twice (first on line 9)" in listed[0]


def test_cells_of_an_unknown_chain_are_still_checked_for_keys_and_kinds() -> None:
    text = changed("  - cellType: RACK\n", "  - cellType: ROCK\n").replace("cellAddress: n0", "cellAdress: [n0]")
    text = text.replace("cellAddress: n1", "cellAddress: {n1: 1}").replace("cellAddress: n2", "cellAddress: a/b")
    assert [mistake.split(": ", 2)[2].split(",")[0] for mistake in mistakes_of(text)] == [
        "found unknown cell type 'ROCK'",
        "found unknown key 'cellAdress'",
        "found a mapping",
        "found 'a/b'",
    ]
