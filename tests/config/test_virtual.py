"""Virtual clusters: names, paths, pinned cells, and whether the promised cells exist (rules 1.8 to 1.11)."""

import pytest

from hived.values.specs import VirtualCellSpec, VirtualClusterSpec
from hived_config.document import ConfigError
from hived_config.loader import load_text
from tests.config.sound_file import SOUND, changed, cluster_of, mistakes_of

A_CELL = "{cellType: RACK.NODE, cellNumber: 1}"
B_CELL = "{cellType: NODE.PAIR, cellNumber: 2}"
PIN = "    - pinnedCellId: pin\n"
B_PLACE = "f:19: virtualClusters.b.virtualCells[0]"
NAMESPACE = "the name of a namespace: at most 63 of a-z, 0-9 and '-'"
B_PIN = "virtualClusters.b.pinnedCells[0]"


def test_virtual_clusters_are_kept_in_file_order() -> None:
    assert list(cluster_of(SOUND).virtual_clusters.values()) == [
        VirtualClusterSpec("a", (VirtualCellSpec("RACK.NODE", 1),)),
        VirtualClusterSpec("b", (VirtualCellSpec("NODE.PAIR", 2),), ("pin",)),
    ]


@pytest.mark.parametrize("written", ["  b:\n", "  b: null\n", "  b: {virtualCells: [], pinnedCells: }\n"])
def test_a_virtual_cluster_may_be_empty(written: str) -> None:
    text = SOUND[: SOUND.index("  b:\n")] + written
    assert cluster_of(text).virtual_clusters["b"] == VirtualClusterSpec("b")


def test_there_may_be_no_virtual_cluster_at_all() -> None:
    assert cluster_of(SOUND[: SOUND.index("virtualClusters")] + "virtualClusters: {}\n").virtual_clusters == {}


@pytest.mark.parametrize("name", ["no", "010", "1e3", "12:30:45", "~", "null", "a.b", "a|b", "研究"])
def test_the_name_of_a_virtual_cluster_is_the_text_as_written(name: str) -> None:
    assert name in cluster_of(changed("  b:\n", f"  {name}:\n")).virtual_clusters


@pytest.mark.parametrize("name", ["''", "b/c", "/", "'b '", '"b\\tc"'])
def test_a_virtual_cluster_without_a_proper_name_is_a_mistake(name: str) -> None:
    (mistake,) = mistakes_of(changed("  b:\n", f"  {name}:\n"))
    assert mistake.startswith("f:17: virtualClusters[")
    assert mistake.endswith(", expected a name, printable, without '/' and without blanks around it")


def test_a_virtual_cluster_given_twice_is_a_mistake() -> None:
    listed = mistakes_of(changed("  b:\n", "  a:\n"))
    assert listed == ["f:17: virtualClusters.a: found 'a' given twice (first on line 14), expected each key once"]


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("{cellNumber: 2}", ": found no cellType, expected a path of cell types, such as CHAIN.TYPE"),
        ("{cellType: NODE.PAIR}", ": found no cellNumber, expected a whole number of cells"),
        ("{cellType: NODE, cellNumber: -1}", ".cellNumber: found -1, expected a whole number of cells, at least 0"),
        ("{cellType: NODE, cellNumber: 0.5}", ".cellNumber: found 0.5, expected a whole number of cells"),
        ("NODE", ": found NODE, expected a virtual cell (a mapping)"),
    ],
)
def test_a_virtual_cell_that_is_incomplete_is_a_mistake(written: str, mistake: str) -> None:
    assert mistakes_of(changed(B_CELL, written)) == [B_PLACE + mistake]


CHAIN_FIRST = "expected the cell type of a top-level physical cell as the first part"
A_PATH = "expected a path of cell types, such as CHAIN.TYPE"


@pytest.mark.parametrize(
    ("path", "mistake"),
    [
        ("NODES", f"found unknown chain 'NODES', {CHAIN_FIRST} (did you mean NODE?)"),
        ("rack.NODE", f"found unknown chain 'rack', {CHAIN_FIRST} (did you mean RACK?)"),
        ("PAIR", f"found unknown chain 'PAIR', {CHAIN_FIRST} (did you mean RACK.NODE.PAIR?)"),
        ("XYZ", f"found unknown chain 'XYZ', {CHAIN_FIRST}"),
        (".NODE", f"found .NODE, {A_PATH}"),
        (
            "RACK.PAIRS",
            "found cell type 'PAIRS', which is not below RACK in chain RACK, "
            "expected a path down RACK.NODE.PAIR.GPU (did you mean PAIR?)",
        ),
        (
            "RACK.PAIR.NODE",
            "found cell type 'NODE', which is not below PAIR in chain RACK, expected a path down RACK.NODE.PAIR.GPU",
        ),
        (
            "RACK.NODE.",
            f"found RACK.NODE., {A_PATH}",
        ),
    ],
)
def test_a_path_that_does_not_lead_down_a_chain_is_a_mistake(path: str, mistake: str) -> None:
    assert mistakes_of(changed(B_CELL, f"{{cellType: {path}, cellNumber: 1}}")) == [f"{B_PLACE}.cellType: {mistake}"]


def test_a_path_may_leave_out_levels_as_only_its_ends_count() -> None:
    assert cluster_of(changed(B_CELL, "{cellType: NODE.GPU, cellNumber: 4}"))


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        (
            "    - pinnedCellId: pim\n",
            f"f:21: {B_PIN}.pinnedCellId: found unknown pinned cell 'pim', "
            "expected a pinnedCellId of physicalCells (did you mean pin?)",
        ),
        (
            "    - pinnedCellId:\n",
            f"f:21: {B_PIN}.pinnedCellId: found nothing, expected the id of a physical cell",
        ),
        ("    - {}\n", f"f:21: {B_PIN}: found no pinnedCellId, expected the id of a physical cell"),
        ("    - pin\n", f"f:21: {B_PIN}: found pin, expected a pinned cell (a mapping)"),
        (
            PIN + PIN,
            "f:22: virtualClusters.b.pinnedCells[1].pinnedCellId: found pinned cell 'pin', already of b (line 21), "
            "expected each pinned cell used once",
        ),
    ],
)
def test_a_pinned_cell_that_is_unknown_or_used_twice_is_a_mistake(written: str, mistake: str) -> None:
    assert mistakes_of(changed(PIN, written)) == [mistake]


def test_a_pinned_cell_of_two_virtual_clusters_is_a_mistake() -> None:
    listed = mistakes_of(changed(A_CELL, A_CELL + "\n    pinnedCells: [{pinnedCellId: pin}]"))
    assert listed == [
        f"f:22: {B_PIN}.pinnedCellId: found pinned cell 'pin', already of a (line 17), "
        "expected each pinned cell used once"
    ]


def test_a_pinned_cell_inside_another_one_is_a_mistake_if_both_are_used() -> None:
    nested = changed("  - cellType: RACK\n", "  - cellType: RACK\n    pinnedCellId: rack\n")
    nested = nested.replace(f"\n    - {A_CELL}", "")
    assert cluster_of(nested)
    listed = mistakes_of(nested.replace(PIN, PIN + "    - pinnedCellId: rack\n"))
    assert listed[0] == (
        "f:12: physicalCluster.physicalCells[0].cellChildren[1].pinnedCellId: "
        "found pinned cell 'pin' inside pinned cell 'rack', both in use, expected pinned cells apart from each other"
    )


def test_a_pinned_cell_that_nobody_uses_is_an_ordinary_cell() -> None:
    text = SOUND.replace("    pinnedCells:\n", "").replace(PIN, "")
    assert cluster_of(text.replace("RACK.NODE, cellNumber: 1", "RACK.NODE, cellNumber: 2"))


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        (
            B_CELL,
            "{cellType: NODE.PAIR, cellNumber: 3}",
            f"{B_PLACE}.cellType: found 3 PAIR cells of chain NODE promised (b 3), "
            "expected at most the 2 that there are",
        ),
        (
            A_CELL,
            "{cellType: RACK.NODE, cellNumber: 2}",
            f"f:21: {B_PIN}.pinnedCellId: found 3 NODE cells of chain RACK promised (a 2, b 1), "
            "expected at most the 2 that there are",
        ),
        (
            A_CELL,
            A_CELL + "\n    - {cellType: RACK.NODE.PAIR.GPU, cellNumber: 1}",
            f"f:22: {B_PIN}.pinnedCellId: found 9 GPU cells of chain RACK promised (a 5, b 4), "
            "expected at most the 8 that there are",
        ),
        (
            A_CELL,
            "{cellType: RACK, cellNumber: 1}",
            f"f:21: {B_PIN}.pinnedCellId: found 3 NODE cells of chain RACK promised (a 2, b 1), "
            "expected at most the 2 that there are",
        ),
    ],
)
def test_cells_that_do_not_fit_are_a_mistake(old: str, new: str, mistake: str) -> None:
    assert mistakes_of(changed(old, new)) == [mistake]


MANY = """
physicalCluster:
  cellTypes:
    A100-NODE: {childCellType: A100, childCellNumber: -4, isNodeLevel: true}
  physicalCells:
  - {cellType: A100-NODE, cellAddress: node-1}
  - {cellType: A100-NODE, cellAddress: Node_2}
  - {cellType: A100-NODE, cellAddress: node-1}
virtualClusters:
  research: {virtualCells: [{cellType: A100-NODE, cellNumber: 3}]}
  product: {virtualCells: [{cellType: A100-NODE, cellNumber: 2}]}
"""


def test_a_mistake_in_a_type_hides_none_that_does_not_depend_on_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(MANY, "f")
    assert [str(one).partition(": found ")[2] for one in caught.value.mistakes] == [
        "-4, expected a whole number of children, at least 1",
        "node name 'Node_2', expected a name that a Kubernetes node can have (at most 253 of a-z, 0-9, '-' and "
        "'.') (did you mean node-2?)",
        "node 'node-1' given twice (first on line 6), expected another name; or, as a part of a node, a cell type "
        "between it and its leaf cells",
        "5 A100-NODE cells of chain A100-NODE promised (research 3, product 2), expected at most the 3 that there are",
    ]
    assert caught.value.left_out == "what is below cells of type A100-NODE, and promises of it"


RACKS = """physicalCluster:
  cellTypes:
    A-NODE: {childCellType: A, childCellNumber: 8, isNodeLevel: true}
    A-RACK: {childCellType: A-NODE, childCellNumber: 2}
    H-NODE: {childCellType: H, childCellNumber: 8, isNodeLevel: true}
    H-RACK: {childCellType: H-NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: A-RACK, cellChildren: [{cellAddress: a1}, {cellAddress: a2}]}
  - {cellType: A-RACK, cellChildren: [{cellAddress: b1}, {cellAddress: b2}]}
  - {cellType: H-RACK, cellChildren: [{cellAddress: c1}, {cellAddress: c2}]}
virtualClusters:
  research: {virtualCells: [{cellType: A-RACK, cellNumber: 2}]}
  product: {virtualCells: [{cellType: A-RACK.A-NODE, cellNumber: 1}, {cellType: H-RACK, cellNumber: 1}]}
"""


def test_all_promises_of_a_chain_are_one_mistake_that_blames_nobody_for_the_cells_of_others() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(RACKS.replace("cellNumber: 2}", "cellNumber: 9}"), "f")
    assert [str(one).partition(": found ")[2] for one in caught.value.mistakes] == [
        "19 A-NODE cells of chain A-RACK promised (research 18, product 1), expected at most the 4 that there are"
    ]


def test_promises_of_a_sound_chain_are_checked_though_another_chain_is_not() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(RACKS.replace("childCellType: H-NODE", "childCellType: H-NOD"), "f")
    assert [str(one).partition(", expected")[0] for one in caught.value.mistakes] == [
        "f:6: physicalCluster.cellTypes.H-RACK.childCellType: found chain H-RACK without a node level",
        "f:13: virtualClusters.product.virtualCells[0].cellType: found 5 A-NODE cells of chain A-RACK promised "
        "(research 4, product 1)",
    ]
    assert caught.value.left_out == "what is below cells of type H-RACK, and promises of it"


def test_promises_that_wait_for_the_type_of_a_cell_are_said_to_be_unchecked() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(RACKS.replace("- {cellType: A-RACK", "- {cellType: A-RAK", 1), "f")
    assert [one.found for one in caught.value.mistakes] == ["unknown cell type 'A-RAK'"]
    assert caught.value.left_out == "whether there are enough cells for all promises"


def test_a_leaf_cell_type_that_is_almost_a_defined_type_is_a_warning() -> None:
    types = "    RACK: {childCellType: A100-NOD, childCellNumber: 2}\n    A100-NODE: {childCellType: A100,"
    text = MANY.replace("    A100-NODE: {childCellType: A100,", types, 1).replace("-4", "4").replace("Node_2", "node-2")
    text = text.replace("node-1}\nv", "node-3}\nv").replace("cellNumber: 3", "cellNumber: 1")
    (warning,) = load_text(text, "f").warnings
    assert "leaf cell type 'A100-NOD', which is not defined" in str(warning)
    assert "(did you mean A100-NODE?)" in str(warning)


def test_every_chain_that_is_short_is_one_mistake() -> None:
    cells = "\n    - ".join(f"{{cellType: {path}, cellNumber: 2}}" for path in ("RACK", "RACK.NODE", "NODE"))
    text = changed(A_CELL, cells).replace(PIN, "").replace("    pinnedCells:\n", "")
    assert [mistake.split(" promised")[0].split("found ")[1] for mistake in mistakes_of(text)] == [
        "6 NODE cells of chain RACK",
        "6 PAIR cells of chain NODE",
    ]


def test_what_is_left_at_a_level_is_split_into_the_next() -> None:
    cells = "{cellType: RACK.NODE.PAIR, cellNumber: 1}\n    - {cellType: RACK.NODE.PAIR.GPU, cellNumber: 2}"
    assert cluster_of(changed(A_CELL, cells))


def test_pinned_cells_in_several_racks_leave_no_rack_whole() -> None:
    """Counted by levels alone there is room for the rack: two racks less one leave two nodes for two pinned cells."""
    second = "  - cellType: RACK\n    cellChildren: [{cellAddress: m0, pinnedCellId: pin2}, {cellAddress: m1}]\n"
    text = changed("  - cellType: RACK\n", second + "  - cellType: RACK\n")
    text = text.replace(A_CELL, "{cellType: RACK, cellNumber: 1}").replace(PIN, PIN + "    - pinnedCellId: pin2\n")
    assert mistakes_of(text) == [
        "f:18: virtualClusters.a.virtualCells[0].cellType: found 1 RACK cells of chain RACK promised (a 1), "
        "expected at most the 0 that there are besides 2 with pinned cells inside"
    ]


# ---- whose pods, and how they are placed


def test_namespaces_belong_to_virtual_clusters() -> None:
    rules = load_text(changed("  a:\n", "  a:\n    namespaces: [labs, team-1]\n"), "f", environ={}).rules
    assert [rules.access.default_virtual_cluster(name, {}) for name in ("labs", "team-1", "b")] == ["a", "a", None]


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("[labs, labs]", "[1]: found namespace 'labs' given twice (first on line 15), expected each namespace once"),
        ("[Labs]", f"[0]: found Labs, expected {NAMESPACE}"),
        ("['']", f"[0]: found the text '', expected {NAMESPACE}"),
        ("[~]", f"[0]: found nothing, expected {NAMESPACE}"),
        ("[[a]]", f"[0]: found a list, expected {NAMESPACE}"),
        ("labs", ": found labs, expected a list of namespaces"),
    ],
)
def test_namespaces_that_cannot_be_told_apart_are_mistakes(written: str, mistake: str) -> None:
    text = changed("  a:\n", f"  a:\n    namespaces: {written}\n")
    assert mistakes_of(text) == [f"f:15: virtualClusters.a.namespaces{mistake}"]


def test_a_virtual_cluster_may_be_packed_as_hived_does_it() -> None:
    configuration = load_text(changed("  a:\n", "  a:\n    placement: packed\n"), "f", environ={})
    assert configuration.rules.packed == {"a"}
    assert not configuration.cluster.virtual_clusters["a"].packs_by_topology


@pytest.mark.parametrize(("written", "expected"), [("topology", True), ("", False)])
def test_a_virtual_cluster_may_be_packed_by_topology(written: str, expected: bool) -> None:
    clusters = cluster_of(changed("  a:\n", f"  a:\n    placement: {written}\n")).virtual_clusters
    assert [clusters[name].packs_by_topology for name in "ab"] == [expected, False]


@pytest.mark.parametrize(
    ("written", "found"), [("spread", "spread"), ("[topology]", "a list"), ("true", "the boolean true")]
)
def test_another_placement_is_a_mistake(written: str, found: str) -> None:
    assert mistakes_of(changed("  a:\n", f"  a:\n    placement: {written}\n")) == [
        f"f:15: virtualClusters.a.placement: found {found}, expected topology or packed, or no such key"
    ]


BOTH = "    combine: true\n    sparing: true\n"


def with_keys(rules: str, keys: str = BOTH) -> str:
    return rules + changed("  a:\n", f"  a:\n{keys}")


def test_a_virtual_cluster_of_better_rules_may_combine_cells_and_be_sparing() -> None:
    clusters = cluster_of(with_keys("rules: 2\n")).virtual_clusters
    assert [(clusters[name].combines, clusters[name].spares) for name in "ab"] == [(True, True), (False, False)]


@pytest.mark.parametrize(("rules", "line"), [("", 15), ("rules: hived\n", 16)])
def test_keys_of_the_better_rules_are_mistakes_without_them(rules: str, line: int) -> None:
    assert mistakes_of(with_keys(rules)) == [
        f"f:{line + i}: virtualClusters.a.{key}: found {key}: true with rules: hived, expected {key} only in a file "
        "with rules: 2 at its top, or no such key"
        for i, key in enumerate(["combine", "sparing"])
    ]


def test_keys_of_the_better_rules_may_be_false_without_them() -> None:
    clusters = cluster_of(with_keys("", "    combine: false\n    sparing: no\n")).virtual_clusters
    assert (clusters["a"].combines, clusters["a"].spares) == (False, False)


def test_keys_of_the_better_rules_are_true_or_false() -> None:
    assert mistakes_of(with_keys("rules: 2\n", "    combine: pairs\n")) == [
        "f:16: virtualClusters.a.combine: found pairs, expected true or false"
    ]


def test_unknown_rules_are_the_only_mistake_of_a_file_that_has_keys_of_the_better_ones() -> None:
    assert mistakes_of(with_keys("rules: 3\n")) == ["f:1: rules: found 3, expected hived or 2"]
