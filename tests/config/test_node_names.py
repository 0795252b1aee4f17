"""Names of nodes that no Kubernetes node can have, names that nobody wrote, and the name that was meant."""

import pytest

from hived_config.document import ConfigError
from hived_config.loader import load_text
from hived_config.node_names import GeneratedNames, Likely, is_possible, made_possible

TEXT = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: V100, childCellNumber: 8, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 18}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: RACK}
  - {cellType: RACK}
  - cellType: RACK
    cellAddress: r3
    cellChildren: [{cellAddress: a}, {cellAddress: b}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}]
virtualClusters: {}
"""


def warnings(text: str) -> list[str]:
    return list(map(str, load_text(text, "f", environ={}).warnings))


@pytest.mark.parametrize("name", ["n0", "0", "10.0.0.7", "a-b.example.com", "x" * 253])
def test_a_dns_subdomain_is_a_possible_name(name: str) -> None:
    assert is_possible(name)


@pytest.mark.parametrize("name", ["N0", "a_b", "-a", "a-", "a..b", ".a", "a.", "a b", "é", "", "x" * 254, "n0\n"])
def test_nothing_else_is(name: str) -> None:
    assert not is_possible(name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("DGX_3", "dgx-3"), ("-a-.Example", "a.example"), ("a b", "a-b"), ("___", ""), ("é", ""), ("X" * 254, "")],
)
def test_an_impossible_name_has_a_nearest_possible_one(name: str, nearest: str) -> None:
    assert made_possible(name) == nearest


def test_an_impossible_name_is_a_warning_where_it_stands() -> None:
    assert warnings(TEXT.replace("cellAddress: n0", "cellAddress: DGX_3"))[0] == (
        "f:6: warning: physicalCluster.physicalCells[0]: found node name 'DGX_3', expected a name that a "
        "Kubernetes node can have (at most 253 of a-z, 0-9, '-' and '.') (did you mean dgx-3?)"
    )


def test_an_impossible_name_is_warned_of_beside_mistakes() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("rules: 7\n" + TEXT.replace("cellAddress: n0", "cellAddress: DGX_3"), "f", environ={})
    assert [(each.line, each.is_warning) for each in caught.value.mistakes] == [(1, False), (7, True)]


def test_names_that_nobody_wrote_are_warned_of_where_they_begin() -> None:
    assert warnings(TEXT) == [
        "f:7: warning: physicalCluster.physicalCells[1]: found 36 nodes without names, called 18 to 53 for now, "
        "expected a cellAddress for each, the name of its Kubernetes node",
        "f:11: warning: physicalCluster.physicalCells[3].cellChildren[2]: found 16 nodes without names, called 56 to "
        "71 for now, expected a cellAddress for each, the name of its Kubernetes node",
    ]


def test_a_configuration_knows_the_names_of_its_nodes_and_their_lines() -> None:
    names = load_text(TEXT, "f", environ={}).node_names
    assert names.written == {"n0": 6, "a": 11, "b": 11}
    assert names.generated == (GeneratedNames(18, 54, 7), GeneratedNames(56, 72, 11))
    assert list(names.all())[2:5] == ["b", "18", "19"]


def test_a_number_that_somebody_wrote_is_a_name() -> None:
    assert warnings(TEXT.replace("{}, " * 15 + "{}", ", ".join(f"{{cellAddress: {i}}}" for i in range(56, 72)))) == [
        "f:7: warning: physicalCluster.physicalCells[1]: found 36 nodes without names, called 18 to 53 for now, "
        "expected a cellAddress for each, the name of its Kubernetes node",
    ]


NODES = ("dgx-3", "dgx-18", "storage", "gpu-a.example.com", "10.0.0.7")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("dgx-03", "dgx-3"),
        ("DGX_3", "dgx-3"),
        ("dgx3", "dgx-3"),
        ("dxg-3", "dgx-3"),
        ("dgx-3.example.com", "dgx-3"),
        ("gpu-a", "gpu-a.example.com"),
        ("stroage", "storage"),
        ("10.0.0.07", "10.0.0.7"),
        ("dgx-17", ""),
        ("10.0.0.8", ""),
        ("n0", ""),
    ],
)
def test_a_name_is_meant_that_differs_in_letters_signs_or_domain_but_not_in_numbers(written: str, meant: str) -> None:
    assert Likely(NODES).meant_by(written) == meant
