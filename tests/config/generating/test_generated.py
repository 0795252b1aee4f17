"""Machines -> a configuration: types, trees, names, order."""

import random
from dataclasses import replace

import pytest
import yaml

from hived.cells.layout import build_topology
from hived.values.errors import UserError
from hived_config.access import Access
from hived_config.generating.generate import Generated, generated
from hived_config.generating.machines import DeviceGroups, Machine
from hived_config.generating.nodes import Reading, machines_of
from hived_config.generating.shares import Shares
from hived_config.loader import load_text
from tests.config.generating import machine_room as room

LEVELS = (room.ZONE, room.BLOCK, room.RACK)


def of_nodes(nodes: list[room.Node], *shares: str, levels: tuple[str, ...] = LEVELS, pads: bool = False) -> Generated:
    machines = machines_of(nodes, Reading(levels=levels)).machines
    return generated(machines, levels, Shares.parse(shares), pads)


def types_of(made: Generated) -> dict[str, tuple[str, int]]:
    return {name: (spec.child_type, spec.child_count) for name, spec in made.cluster.cell_types.items()}


def promised(made: Generated) -> dict[str, dict[str, int]]:
    return {
        name: {cell.cell_type: cell.cell_count for cell in vc.virtual_cells}
        for name, vc in made.cluster.virtual_clusters.items()
    }


def test_a_cluster_of_1024_nodes_becomes_a_topology_of_1024_nodes() -> None:
    made = of_nodes(room.hall(), "research=60%", "prod=40%")
    assert types_of(made) == {
        "A100-NODE": ("A100", 8),
        "A100-RACK": ("A100-NODE", 16),
        "A100-BLOCK": ("A100-RACK", 8),
        "A100-ZONE": ("A100-BLOCK", 4),
        "V100-NODE": ("V100", 8),
        "V100-RACK": ("V100-NODE", 16),
        "V100-BLOCK": ("V100-RACK", 8),
        "V100-ZONE": ("V100-BLOCK", 4),
    }
    topology = build_topology(load_text(made.text, "f", environ={}).cluster)
    assert len(topology.node_names) == 1024
    assert set(topology.node_names) == {node["metadata"]["name"] for node in room.hall()}
    assert made.notes == ()


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes = [*room.hall(blocks=2, racks=3, nodes=4), room.node("alone"), room.node("odd", gpus=4, rack="r")]
    mixed = list(nodes)
    random.Random(1).shuffle(mixed)
    for pads in (False, True):
        assert of_nodes(mixed, "a=1", "b=2", pads=pads).text == of_nodes(nodes, "a=1", "b=2", pads=pads).text


def test_names_are_in_natural_order() -> None:
    made = of_nodes([room.node(f"n{i}") for i in (10, 9, 1, 2, 100)], levels=())
    assert [cell.address for cell in made.cluster.physical_cells] == ["n1", "n2", "n9", "n10", "n100"]


def test_the_file_is_pleasant_to_read() -> None:
    inner = DeviceGroups((("SWITCH", 2),), (0, 2, 1, 3))
    labels = {"nvidia.com/gpu.product": room.V100}
    machine = Machine("n1", room.V100, 4, 23.5, 90_000.9, ("rack 1",), inner, node_labels=labels)
    smaller = replace(machine, name="10", cpu=20, inner=DeviceGroups(inner.levels), groups=("",))
    assert (
        generated([machine, smaller], ("rack",), source="a layout").text
        == """\
# Made by `hived config generate` from 2 machines of a layout, grouped by rack.
# A virtual cluster is for the pods of its `namespaces`: write there who may use it.
# `hived config sync` keeps the nodes up to date; what virtual clusters are promised stays as written here.
rules: 2
access: namespaces
physicalCluster:
  skuTypes:
    V100: {gpu: 1, cpu: 5, memory: 22500Mi, nodeLabels: {nvidia.com/gpu.product: Tesla-V100-SXM2-32GB}}
  cellTypes:
    V100-SWITCH: {childCellType: V100, childCellNumber: 2}
    V100-NODE: {childCellType: V100-SWITCH, childCellNumber: 2, isNodeLevel: true}
    V100-RACK: {childCellType: V100-NODE, childCellNumber: 1}
  physicalCells:
  - {cellType: V100-NODE, cellAddress: "10"}
  - cellType: V100-RACK
    cellAddress: rack 1
    cellChildren:
    - {cellAddress: n1, cellChildren: [{cellChildren: [{cellAddress: 0}, {cellAddress: 2}]}, \
{cellChildren: [{cellAddress: 1}, {cellAddress: 3}]}]}
virtualClusters:
  default:
    namespaces: [default]
    virtualCells:
    - {cellType: V100-NODE, cellNumber: 1}
    - {cellType: V100-RACK, cellNumber: 1}
"""
    )


def test_racks_of_other_sizes_are_chains_of_their_own() -> None:
    nodes = [room.node(f"n{i}", rack=f"r{i // 4}") for i in range(11)]
    made = of_nodes(nodes, levels=(room.RACK,))
    assert types_of(made) == {"V100-NODE": ("V100", 8), "V100-RACK": ("V100-NODE", 4), "V100-RACK-3": ("V100-NODE", 3)}
    assert made.notes == (
        "groups are not all alike, so there are 2 cell chains (V100-RACK, V100-RACK-3); no gang spans two of them. To "
        "have fewer, leave an outer level out, or fill groups up with placeholders (--pad)",
    )


def test_padding_makes_all_racks_alike_and_promises_no_placeholder() -> None:
    nodes = [room.node(f"n{i}", rack=f"r{i // 4}", zone="z") for i in range(11)] + [room.node("m", zone="y", rack="r")]
    made = of_nodes(nodes, levels=(room.ZONE, room.RACK), pads=True)
    names = build_topology(made.cluster).node_names
    assert sorted(name for name in names if name.startswith("placeholder-")) == [
        *(f"placeholder-y-{rack}-{i}" for rack in (1, 2) for i in range(1, 5)),
        *(f"placeholder-y-r-{i}" for i in range(1, 4)),
        "placeholder-z-r2-1",
    ]
    assert promised(made) == {"default": {"V100-ZONE.V100-RACK": 2, "V100-ZONE.V100-RACK.V100-NODE": 4}}


def test_a_rack_with_two_products_is_a_cell_of_each() -> None:
    nodes = [room.node(f"n{i}", (room.V100, room.A100)[i % 2], rack="r") for i in range(4)]
    made = of_nodes(nodes, levels=(room.RACK,))
    assert [(cell.cell_type, cell.address) for cell in made.cluster.physical_cells] == [
        ("A100-RACK", "r"),
        ("V100-RACK", "r"),
    ]


def test_a_node_without_a_label_is_a_top_cell_and_said_to_be() -> None:
    made = of_nodes([room.node("n0", rack="r"), room.node("n1")], levels=(room.RACK,))
    assert [cell.cell_type for cell in made.cluster.physical_cells] == ["V100-NODE", "V100-RACK"]
    assert made.notes[0] == "1 machine without label example.com/rack: n1"


def test_nodes_with_other_numbers_of_devices_are_other_types() -> None:
    made = of_nodes([room.node("n0"), room.node("n1", gpus=4)], levels=())
    assert types_of(made) == {"V100x8-NODE": ("V100", 8), "V100x4-NODE": ("V100", 4)}


@pytest.mark.parametrize(
    ("products", "names"),
    [
        (["Tesla-V100-SXM2-32GB"], ["V100"]),
        (["Tesla-V100-SXM2-32GB", "Tesla-V100-SXM2-16GB"], ["V100-SXM2-16GB", "V100-SXM2-32GB"]),
        (["NVIDIA-GeForce-RTX-3090"], ["RTX-3090"]),
        (["NVIDIA-H100-80GB-HBM3"], ["H100"]),
        (["NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"], ["A100-MIG-1g-10gb"]),
        (["AMD_Instinct_MI300X_OAM"], ["MI300X"]),
        (["nvidia.com/gpu"], ["GPU"]),
        (["...", "nvidia"], ["DEVICE", "nvidia"]),
    ],
)
def test_leaf_cells_are_called_after_their_product(products: list[str], names: list[str]) -> None:
    made = generated([Machine(f"n{i}", product, 1) for i, product in enumerate(products)])
    assert list(made.cluster.sku_types) == names


def test_names_can_be_given() -> None:
    machines = [Machine("n0", room.V100, 8), Machine("n1", "K80", 4)]
    made = generated(machines, names={room.V100: "DT"}, prefix="east-")
    assert list(made.cluster.cell_types) == ["east-K80-NODE", "east-DT-NODE"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"K81": "X"}, "no machine has 'K81'; expected one of K80, V100"),
        ({"K80": "a.b"}, "name 'a.b' of K80: expected letters, digits"),
        ({"K80": "X", "V100": "X"}, "the same name for two products"),
    ],
)
def test_names_that_cannot_be_are_refused(names: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        generated([Machine("n0", "K80", 1), Machine("n1", "V100", 1)], names=names)


def test_a_prefix_has_to_fit_into_names() -> None:
    with pytest.raises(UserError, match=r"prefix 'x\.y' of names: expected letters, digits"):
        generated([Machine("n0", "K80", 1)], prefix="x.y")


def test_names_that_look_like_values_are_in_quotes_wherever_they_stand() -> None:
    made = generated([Machine("n0", "K80", 1), Machine("n1", "V100", 1)], names={"K80": "null", "V100": "7"})
    document = yaml.safe_load(made.text)
    assert list(document["physicalCluster"]["skuTypes"]) == ["null", "7"]
    assert '{cellType: "7-NODE", cellNumber: 1}' in made.text


def test_a_name_that_a_label_takes_is_not_given_twice() -> None:
    inner = DeviceGroups((("SWITCH", 2),))
    machines = [Machine(f"n{i}", "V100", 4, groups=("s", "s", "s"), inner=inner) for i in range(2)]
    made = generated(machines, ("a/switch", "b/switch", "node"))
    assert list(made.cluster.cell_types) == [
        "V100-SWITCH",
        "V100-NODE",
        "V100-NODE-2",
        "V100-SWITCH-2",
        "V100-SWITCH-3",
    ]


def test_no_machine_and_equal_machines_are_refused() -> None:
    with pytest.raises(UserError, match="no machine with devices"):
        generated([])
    with pytest.raises(UserError, match="machines given twice: n; expected each once"):
        generated([Machine("n", "V100", 8), Machine("n", "V100", 4)])


# ---- shares


def test_shares_are_whole_racks_then_whole_nodes() -> None:
    nodes = [room.node(f"n{i}", rack=f"r{i // 4}") for i in range(40)]
    made = of_nodes(nodes, "research=55%", "prod=40%", levels=(room.RACK,))
    assert promised(made) == {
        "research": {"V100-RACK": 5, "V100-RACK.V100-NODE": 2},
        "prod": {"V100-RACK": 4},
    }
    assert made.notes == ("16 leaf cells of Tesla-V100-SXM2-32GB belong to no virtual cluster",)


def test_the_largest_remainder_gets_the_last_node() -> None:
    made = of_nodes([room.node(f"n{i}") for i in range(10)], "a=1", "b=1", "c=1", levels=())
    assert promised(made) == {"a": {"V100-NODE": 4}, "b": {"V100-NODE": 3}, "c": {"V100-NODE": 3}}


def test_what_a_share_lacks_in_one_chain_it_gets_in_the_next() -> None:
    """Five racks of as many sizes: each by itself would round to the larger share's favour."""
    nodes = [room.node(f"n{rack}-{i}", rack=f"r{rack}") for rack in range(1, 6) for i in range(rack)]
    made = of_nodes(nodes, "a=60%", "b=40%", levels=(room.RACK,))
    topology = made.cluster.cell_types
    sizes = {name: spec.child_count if name != "V100-NODE" else 1 for name, spec in topology.items()}
    counts = {
        vc: sum(sizes[path.split(".")[-1]] * count for path, count in cells.items())
        for vc, cells in promised(made).items()
    }
    assert counts == {"a": 9, "b": 6}


def test_a_share_of_less_than_a_node_is_told() -> None:
    made = of_nodes([room.node("n0"), room.node("n1")], "a=90%", "b=10%", levels=())
    assert promised(made) == {"a": {"V100-NODE": 2}, "b": {}}
    assert made.notes == ("virtual cluster b gets nothing of Tesla-V100-SXM2-32GB: its share is less than a node",)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["a"], "--vc 'a': expected NAME=SHARE"),
        (["a=x"], "--vc 'a=x': expected NAME=SHARE"),
        (["=1"], "--vc '=1': expected NAME=SHARE"),
        (["a/b=1"], "--vc 'a/b=1': expected NAME=SHARE"),
        (["a=1", "a=2"], "--vc 'a' given twice"),
        (["a=1", "b=2%"], "expected all shares in percent, or all as plain numbers"),
        (["a=70%", "b=40%"], "shares of 110%, expected at most 100% together"),
        (["a=0"], "no share above 0"),
    ],
)
def test_shares_that_cannot_be_are_refused(written: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Shares.parse(written)


@pytest.mark.parametrize(
    ("vc", "namespaces"),
    [
        ("default", ["default"]),
        ("Team A_1", ["default", "team-a-1"]),
        ("7", ["default", "7"]),
        ("v" * 80, ["default", "v" * 63]),
        ("研究", ["default"]),
    ],
)
def test_a_virtual_cluster_is_for_its_own_namespace_and_the_usual_one(vc: str, namespaces: list[str]) -> None:
    machine = Machine("n1", room.V100, 4, 20, 90_000)
    text = generated([machine], shares=Shares.parse([f"{vc}=1"])).text
    access = load_text(text, "f", environ={}).rules.access
    assert access.access is Access.NAMESPACES
    assert [entry.name for entry in access.virtual_clusters[vc].namespaces] == namespaces
