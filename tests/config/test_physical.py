"""Physical cells: how they are written, and the names that no two of them share (rules 1.3, 1.5 to 1.7, 1.14)."""

import pytest

from hived.values.specs import PhysicalCellSpec
from hived_config.chains import MAX_CHILD_COUNT
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
        "found a list",
        "found a mapping",
        "found 'a/b'",
    ]


CELLS = "physicalCluster.physicalCells"
RULE = "expected another name; or, as a part of a node, a cell type between it and its leaf cells"


def two_chains(first: str, second: str) -> str:
    """Two chains, A and B, of two-GPU nodes A-NODE and B-NODE; one entry of each, as written here."""
    return f"""\
physicalCluster:
  cellTypes:
    A-NODE: {{childCellType: A-GPU, childCellNumber: 2, isNodeLevel: true}}
    B-NODE: {{childCellType: B-GPU, childCellNumber: 2, isNodeLevel: true}}
    A-RACK: {{childCellType: A-NODE, childCellNumber: 2}}
    B-RACK: {{childCellType: B-NODE, childCellNumber: 3}}
  physicalCells:
  - {first}
  - {second}
virtualClusters: {{vc: }}
"""


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        (
            "- cellType: NOED",
            "[1].cellType: found unknown cell type 'NOED', expected a type of cellTypes (did you mean NODE?)",
        ),
        ("- cellAddress: n2", "[1]: found no cellType, expected the cell type of a top-level cell"),
        ("- cellType: ''", "[1].cellType: found the text '', expected the cell type of a top-level cell"),
        ("- n2", "[1]: found n2, expected a physical cell (a mapping)"),
        ("-", "[1]: found nothing, expected a physical cell (a mapping)"),
    ],
)
def test_a_top_level_cell_without_a_known_type_is_a_mistake(written: str, mistake: str) -> None:
    assert mistakes_of(changed("- {cellType: NODE, cellAddress: n2}", written)) == [f"f:12: {CELLS}{mistake}"]


def test_a_list_without_cells_is_a_mistake() -> None:
    cells = SOUND[SOUND.index("  physicalCells") : SOUND.index("virtualClusters")]
    assert mistakes_of(changed(cells, "  physicalCells: []\n")) == [
        f"f:6: {CELLS}: found an empty list, expected at least one physical cell"
    ]


def test_what_a_misunderstood_cell_explains_is_not_reported_again() -> None:
    (mistake,) = mistakes_of(changed("  - cellType: RACK\n", "  - cellType: ROCK\n"))
    assert "unknown cell type 'ROCK'" in mistake


@pytest.mark.parametrize(
    ("old", "new", "line", "place"),
    [
        ("cellAddress: n1", "cellAddress: n0", 10, "[0].cellChildren[1]"),
        (
            "cellType: NODE, cellAddress: n2}",
            "cellType: NODE, cellAddress: n2}\n  - {cellType: NODE, cellAddress: n2}",
            13,
            "[2]",
        ),
    ],
)
def test_a_node_given_twice_in_a_chain_is_a_mistake(old: str, new: str, line: int, place: str) -> None:
    (mistake,) = mistakes_of(changed(old, new))
    assert mistake.startswith(f"f:{line}: {CELLS}{place}: found node ")
    assert mistake.endswith(f"given twice (first on line {line - 1}), {RULE}")


def test_a_node_may_not_be_split_over_two_cells_of_a_chain() -> None:
    low, high = "{cellAddress: 0}, {cellAddress: 1}", "{cellAddress: 2}, {cellAddress: 3}"
    text = two_chains(
        f"{{cellType: A-NODE, cellAddress: n, cellChildren: [{low}]}}",
        f"{{cellType: A-NODE, cellAddress: n, cellChildren: [{high}]}}",
    )
    assert mistakes_of(text) == [f"f:9: {CELLS}[1]: found node 'n' given twice (first on line 8), {RULE}"]


def test_a_node_may_be_in_two_chains_with_different_devices() -> None:
    text = two_chains(
        "{cellType: A-NODE, cellAddress: n}",
        "{cellType: B-NODE, cellAddress: n, cellChildren: [{cellAddress: 8}, {cellAddress: 9}]}",
    )
    assert len(cluster_of(text).physical_cells) == 2


def test_a_device_in_two_chains_is_a_mistake() -> None:
    text = two_chains(
        "{cellType: A-NODE, cellAddress: n}",
        "{cellType: B-NODE, cellAddress: n, cellChildren: [{cellAddress: 8}, {cellAddress: 1}]}",
    )
    assert mistakes_of(text) == [
        f"f:9: {CELLS}[1].cellChildren[1]: found device 1 of node 'n' given twice (first on line 8), "
        "expected one leaf cell for each device of nvidia.com/gpu: another cellAddress, or leaf cells that skuTypes "
        "give another resource or gpu: 0"
    ]


def with_skus(skus: str, text: str) -> str:
    return text.replace("physicalCluster:\n", f"physicalCluster:\n  skuTypes: {{{skus}}}\n")


SAME_NODE = two_chains("{cellType: A-NODE, cellAddress: n}", "{cellType: B-NODE, cellAddress: n}")


@pytest.mark.parametrize(
    "skus",
    [
        "A-GPU: {gpu: 1}, B-GPU: {gpu: 0}",
        "A-GPU: {gpu: 1, cpu: 4}, B-GPU: {cpu: 1, memory: 4Gi}",
        "A-GPU: {gpu: 0}, B-GPU: {gpu: 0}",
        "B-GPU: {resource: nvidia.com/mig-1g.10gb}",
        "A-GPU: {resource: example.com/a}, B-GPU: {resource: example.com/b}",
    ],
)
def test_chains_whose_leaf_cells_are_no_devices_of_one_resource_number_them_apart(skus: str) -> None:
    assert len(cluster_of(with_skus(skus, SAME_NODE)).physical_cells) == 2


@pytest.mark.parametrize(
    "skus",
    [
        "A-GPU: {gpu: 1}",
        "A-GPU: {gpu: 1, cpu: 4}, B-GPU: {gpu: 2, cpu: 4}",
        "A-GPU: {resource: example.com/a}, B-GPU: {resource: example.com/a, cpu: 1}",
    ],
)
def test_leaf_cells_of_one_resource_are_numbered_together_whatever_their_types(skus: str) -> None:
    twice = mistakes_of(with_skus(skus, SAME_NODE))
    assert len(twice) == 1
    assert twice[0].startswith(f"f:10: {CELLS}[1]: found device 0 of node 'n' given twice (first on line 9)")


def test_a_node_without_devices_is_once_in_a_chain_too() -> None:
    one = "{cellType: A-NODE, cellAddress: n}"
    assert mistakes_of(with_skus("A-GPU: {gpu: 0}", two_chains(one, one))) == [
        f"f:10: {CELLS}[1]: found node 'n' given twice (first on line 9), {RULE}"
    ]


def test_generated_nodes_may_have_one_name_if_their_devices_are_of_two_resources() -> None:
    text = two_chains("{cellType: B-RACK}", "{cellType: A-RACK}")
    assert len(cluster_of(with_skus("A-GPU: {gpu: 0}", text)).physical_cells) == 2
    given = two_chains("{cellType: A-RACK}", "{cellType: B-NODE, cellAddress: 1}")
    assert len(cluster_of(with_skus("B-GPU: {gpu: 0}", given)).physical_cells) == 2


@pytest.mark.parametrize("index", ["3", "03"])
def test_a_device_given_twice_in_a_node_is_a_mistake(index: str) -> None:
    children = f"[{{cellChildren: [{{cellAddress: {index}}}, {{}}]}}, {{}}]"
    (mistake,) = mistakes_of(changed("- cellAddress: n0", f"- {{cellAddress: n0, cellChildren: {children}}}"))
    assert "found device 3 of node 'n0' given twice (first on line 9)" in mistake


def test_generated_nodes_may_not_have_the_name_of_a_given_one() -> None:
    text = two_chains("{cellType: A-RACK}", "{cellType: A-NODE, cellAddress: 1}")
    assert mistakes_of(text) == [f"f:9: {CELLS}[1]: found node '1' given twice (first on line 8), {RULE}"]


def test_generated_nodes_of_two_chains_may_not_have_one_name() -> None:
    # Entry 0 makes nodes 0 and 1; entry 1 would make 3, 4 and 5, and as a B-RACK first of its list 0, 1 and 2.
    assert cluster_of(two_chains("{cellType: A-RACK}", "{cellType: B-RACK}"))
    text = two_chains("{cellType: B-RACK}", "{cellType: A-RACK}")
    assert mistakes_of(text) == [f"f:9: {CELLS}[1]: found node '2' given twice (first on line 8), {RULE}"]


def test_a_given_node_may_share_a_generated_name_with_other_devices() -> None:
    other = "{cellType: B-NODE, cellAddress: 1, cellChildren: [{cellAddress: 8}, {cellAddress: 9}]}"
    assert cluster_of(two_chains("{cellType: A-RACK}", other))


def test_a_name_that_only_looks_like_a_generated_one_is_another_node() -> None:
    assert cluster_of(two_chains("{cellType: A-RACK}", "{cellType: B-NODE, cellAddress: '01'}"))


def test_racks_of_a_chain_with_one_address_are_a_mistake() -> None:
    children = "cellChildren: [{cellAddress: %s}, {cellAddress: %s}]"
    first = "{cellType: A-RACK, cellAddress: 1, " + children % ("a", "b") + "}"
    second = "{cellType: A-RACK, " + children % ("c", "d") + "}"
    assert mistakes_of(two_chains(first, second)) == [
        f"f:9: {CELLS}[1]: found address '1' given twice (first on line 8), "
        "expected an address of its own for each cell"
    ]


def test_sockets_of_a_node_with_one_address_are_a_mistake() -> None:
    children = "[{cellAddress: x}, {cellAddress: x}]"
    (mistake,) = mistakes_of(changed("- cellAddress: n0", f"- {{cellAddress: n0, cellChildren: {children}}}"))
    assert "cellChildren[1]: found address 'x' given twice (first on line 9)" in mistake


@pytest.mark.parametrize("fan_out", [MAX_CHILD_COUNT + 1, 2**31 - 1])
def test_a_cell_with_absurdly_many_children_is_refused(fan_out: int) -> None:
    listed = mistakes_of(
        changed(
            "RACK: {childCellType: NODE, childCellNumber: 2}",
            f"RACK: {{childCellType: NODE, childCellNumber: {fan_out}}}",
        )
    )
    assert f"RACK.childCellNumber: found {fan_out}, expected a whole number of children" in listed[0]
