"""Keys, kinds of values and numbers: what is the same wherever it stands in the file."""

import pytest

from hived_config.document import ConfigError
from hived_config.loader import load_text
from tests.config.sound_file import SOUND, changed, cluster_of, mistakes_of

COUNT = "PAIR: {childCellType: GPU, childCellNumber: 2}"
CELL_TYPE = "physicalCluster.cellTypes.PAIR"
CELL = "physicalCluster.physicalCells[0].cellChildren[0]"


def with_count(written: str) -> str:
    """The sound file with this as a child count."""
    return changed(COUNT, f"PAIR: {{childCellType: GPU, childCellNumber: {written}}}")


def test_the_sound_file_has_no_mistakes() -> None:
    assert cluster_of(SOUND).virtual_clusters.keys() == {"a", "b"}


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        (
            "  physicalCells:",
            "  physicalCell:",
            "f:6: physicalCluster.physicalCell: found unknown key 'physicalCell', "
            "expected one of cellTypes, physicalCells, skuTypes (did you mean physicalCells?)",
        ),
        (
            "cellAddress: n0",
            "cellAdress: n0",
            f"f:9: {CELL}.cellAdress: found unknown key 'cellAdress', "
            "expected one of cellType, cellAddress, pinnedCellId, cellChildren (did you mean cellAddress?)",
        ),
        (
            "cellNumber: 1",
            "CELLNUMBER: 1",
            "f:16: virtualClusters.a.virtualCells[0].CELLNUMBER: found unknown key 'CELLNUMBER', "
            "expected one of cellType, cellNumber (did you mean cellNumber?)",
        ),
        (
            "childCellNumber: 2, isNodeLevel: true",
            "childCellNumber: 2, isNodeLevel: true, zone: 1",
            "f:4: physicalCluster.cellTypes.NODE.zone: found unknown key 'zone', "
            "expected one of childCellType, childCellNumber, isNodeLevel",
        ),
    ],
)
def test_an_unknown_key_is_a_mistake_and_what_was_meant_is_suggested(old: str, new: str, mistake: str) -> None:
    assert mistakes_of(changed(old, new)) == [mistake]


def test_an_unknown_key_is_only_a_warning_when_lenient() -> None:
    configuration = load_text(changed("cellAddress: n0", "cellAdress: n0"), "f", lenient=True, environ={})
    warning, nameless = configuration.warnings
    assert nameless.found == "a node without a name, called 0 for now"
    assert warning.is_warning
    assert str(warning).startswith(f"f:9: warning: {CELL}.cellAdress: found unknown key 'cellAdress'")


def test_a_misspelt_key_that_is_needed_is_still_missing_when_lenient() -> None:
    listed = mistakes_of(changed("  physicalCells:", "  physicalCell:"), lenient=True)
    assert [line.split(", expected")[0] for line in listed] == [
        "f:2: physicalCluster: found no physicalCells",
        "f:6: warning: physicalCluster.physicalCell: found unknown key 'physicalCell'",
    ]


def test_a_key_given_twice_is_a_mistake() -> None:
    listed = mistakes_of(changed("cellAddress: n0", "cellAddress: n0\n      cellAddress: n3"))
    assert listed == [
        f"f:10: {CELL}.cellAddress: found 'cellAddress' given twice (first on line 9), expected each key once"
    ]


def test_a_key_that_is_no_scalar_is_a_mistake() -> None:
    listed = mistakes_of(changed("cellAddress: n0", "[cellAddress]: n0"))
    assert listed == [f"f:9: {CELL}['?']: found a list as a key, expected a name"]


@pytest.mark.parametrize(
    ("written", "found", "expected"),
    [
        ("0", "0", "at least 1"),
        ("-2", "-2", "at least 1"),
        ("32769", "32769", "at most 32768"),
        ("9" * 5000, "9" * 55 + "...", "at most 32768"),
        ("-" + "9" * 5000, "-" + "9" * 54 + "...", "at least 1"),
    ],
)
def test_a_number_out_of_bounds_is_a_mistake(written: str, found: str, expected: str) -> None:
    (mistake,) = mistakes_of(with_count(written))
    assert mistake == (
        f"f:3: {CELL_TYPE}.childCellNumber: found {found}, expected a whole number of children, {expected}"
    )


@pytest.mark.parametrize(
    ("written", "found", "meant"),
    [
        ("2.0", "2.0", "2"),
        ("1.5", "1.5", ""),
        ("1e3", "1e3", ""),
        ("010", "010", "10"),
        ("+2", "+2", "2"),
        ("0x10", "0x10", ""),
        ("1_000", "1_000", ""),
        (".inf", ".inf", ""),
        ("\u0662", "\u0662", ""),
        ("yes", "the boolean yes", ""),
        ("true", "the boolean true", ""),
        ("many", "many", ""),
        ('"2"', "the text '2'", "2"),
        ("~", "nothing", ""),
        ("", "nothing", ""),
        ("[2]", "a list", ""),
        ("{a: 2}", "a mapping", ""),
        ("!!float 2", "a value tagged 'tag:yaml.org,2002:float'", "2"),
    ],
)
def test_a_number_that_is_no_decimal_integer_is_a_mistake(written: str, found: str, meant: str) -> None:
    hint = f" (did you mean {meant}?)" if meant else ""
    (mistake,) = mistakes_of(with_count(written))
    assert mistake == f"f:3: {CELL_TYPE}.childCellNumber: found {found}, expected a whole number of children{hint}"


@pytest.mark.parametrize(
    ("written", "found"),
    [("1", "1"), ("'true'", "the text 'true'"), ("maybe", "maybe"), ("[true]", "a list")],
)
def test_a_boolean_that_is_none_is_a_mistake(written: str, found: str) -> None:
    listed = mistakes_of(changed("isNodeLevel: true", f"isNodeLevel: {written}"))
    assert listed == [f"f:4: physicalCluster.cellTypes.NODE.isNodeLevel: found {found}, expected true or false"]


@pytest.mark.parametrize("written", ["true", "True", "TRUE", "yes", "on", "y"])
def test_a_boolean_has_every_spelling_of_yaml(written: str) -> None:
    assert cluster_of(changed("isNodeLevel: true", f"isNodeLevel: {written}")).cell_types["NODE"].is_node_level


@pytest.mark.parametrize(
    ("written", "mistake"),
    [
        ("[n0]", "found a list, expected an address"),
        ("{n0: 1}", "found a mapping, expected an address"),
        ("!odd n0", "found a value tagged '!odd', expected an address"),
        ("'n0 '", "found 'n0 ', expected an address, printable and without blanks around it"),
        ('"n\\t0"', "found 'n\\t0', expected an address, printable and without blanks around it"),
    ],
)
def test_text_that_is_none_or_cannot_be_told_apart_is_a_mistake(written: str, mistake: str) -> None:
    assert mistakes_of(changed("cellAddress: n0", f"cellAddress: {written}")) == [f"f:9: {CELL}.cellAddress: {mistake}"]


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("  a:\n    virtualCells:", "  a:\n    virtualCells: all\n    x:", "virtualClusters.a.virtualCells: found all"),
        ("    - pinnedCellId: pin\n", "    - pin\n", "virtualClusters.b.pinnedCells[0]: found pin"),
        ("    - cellAddress: n0\n", "    -\n", f"{CELL}: found nothing"),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_mistake(old: str, new: str, mistake: str) -> None:
    assert mistake in mistakes_of(changed(old, new))[0]


def test_merge_keys_count_as_in_yaml() -> None:
    merged = SOUND.replace("PAIR: {", "PAIR: &pair {").replace(
        "RACK: {childCellType: NODE, childCellNumber: 2}", "RACK: {<<: *pair, childCellType: NODE}"
    )
    assert cluster_of(merged) == cluster_of(SOUND)


def test_the_first_of_several_merged_mappings_counts() -> None:
    anchors = "x: &x {childCellNumber: 2}\ny: &y {childCellNumber: 9, childCellType: NODE}\n"
    merged = anchors + changed("RACK: {childCellType: NODE, childCellNumber: 2}", "RACK: {<<: [*x, *y]}")
    configuration = load_text(merged, "f", lenient=True, environ={})
    assert configuration.cluster == cluster_of(SOUND)


def test_merging_what_is_no_mapping_is_a_mistake() -> None:
    listed = mistakes_of(changed("- cellAddress: n0", "- <<: [1]\n      cellAddress: n0"))
    assert listed == [f"f:9: {CELL}['<<'][0]: found 1, expected a mapping to merge"]


def test_an_aliased_mistake_is_reported_once_where_it_is_written() -> None:
    twice = changed("    - cellAddress: n0\n", "    - cellAddress: n0\n      cellChildren: &x [{}, {}, {}]\n").replace(
        "      pinnedCellId: pin\n", "      pinnedCellId: pin\n      cellChildren: *x\n"
    )
    (mistake,) = mistakes_of(twice)
    assert mistake.startswith(f"f:10: {CELL}.cellChildren: found 3 children")


def test_every_mistake_is_listed_in_the_order_of_the_file() -> None:
    text = SOUND.replace("childCellNumber", "childcellnumber", 1).replace("n0", "a/b").replace("cellNumber: 1", "x: 1")
    assert [mistake.split(":")[1] for mistake in mistakes_of(text)] == ["3", "9", "16", "16"]


def test_a_mistake_stays_on_one_line_whatever_names_contain() -> None:
    text = changed("  b:\n", '  "b\\nc":\n')
    with pytest.raises(ConfigError) as caught:
        load_text(text, "f", environ={})
    assert len(caught.value.message.splitlines()) == len(caught.value.mistakes) == 1
