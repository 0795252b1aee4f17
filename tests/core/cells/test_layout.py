"""Configurations that would corrupt the arrays are refused; the smallest and the oddest valid ones work."""

import contextlib

import pytest

from hived.cells.layout import build_topology
from hived.life import status
from hived.scheduler import check_invariants, handle, new_state
from hived.values.errors import UserError
from hived.values.events import PodAllocated
from hived.values.specs import MAX_LEVELS, BindInfo, CellTypeSpec, ClusterSpec, PhysicalCellSpec, VirtualClusterSpec
from tests.core.builders import bind_info, healthy_state, placement, pod, quota, rack_cluster, request, run

NODE = CellTypeSpec("NODE", "GPU", 2, is_node_level=True)
RACK = CellTypeSpec("RACK", "NODE", 2)


def cluster(*types: CellTypeSpec, top: PhysicalCellSpec | None = None, **vcs: VirtualClusterSpec) -> ClusterSpec:
    """One top cell of the last type, unless one is given."""
    return ClusterSpec({t.name: t for t in types}, (top or PhysicalCellSpec(types[-1].name, "top"),), vcs)


def node_of(*devices: str) -> PhysicalCellSpec:
    return PhysicalCellSpec("NODE", "n", children=tuple(PhysicalCellSpec(address=device) for device in devices))


def rack_of(*nodes: PhysicalCellSpec, pin: str = "") -> PhysicalCellSpec:
    return PhysicalCellSpec("RACK", pinned_cell_id=pin, children=nodes)


def levels(count: int) -> list[CellTypeSpec]:
    """Cell types that make a chain of so many levels."""
    names = ["GPU", *(f"L{level}" for level in range(2, count + 1))]
    return [CellTypeSpec(names[i + 1], names[i], 1, i == 0) for i in range(count - 1)]


A, B = PhysicalCellSpec(address="a"), PhysicalCellSpec(address="b")
PINNED_A, PINNED_B = (
    PhysicalCellSpec(address="a", pinned_cell_id="p"),
    PhysicalCellSpec(address="b", pinned_cell_id="p"),
)

REFUSED = {
    "no children": (cluster(CellTypeSpec("NODE", "GPU", 0, is_node_level=True)), "at least one child, it has 0"),
    "fewer than no children": (cluster(CellTypeSpec("NODE", "GPU", -2, is_node_level=True)), "it has -2"),
    "a type in itself": (cluster(NODE, CellTypeSpec("LOOP", "LOOP", 2)), "cell type LOOP contains itself"),
    "no node level": (cluster(CellTypeSpec("NODE", "GPU", 2)), "exactly one node level, it has 0"),
    "two node levels": (cluster(NODE, CellTypeSpec("RACK", "NODE", 2, is_node_level=True)), "it has 2"),
    "too many levels": (cluster(*levels(MAX_LEVELS + 1)), "65 levels, at most 64"),
    "too many cells": (
        cluster(*(CellTypeSpec(t.name, t.child_type, 256, t.is_node_level) for t in levels(5))),
        "has too many cells",
    ),
    "too few children given": (cluster(NODE, RACK, top=rack_of(A)), "must have 2 children"),
    "another type than the parent has": (
        cluster(NODE, RACK, top=rack_of(A, PhysicalCellSpec("RACK"))),
        "cell type RACK found where NODE was expected",
    ),
    "a device that is no number": (cluster(NODE, top=node_of("0", "x")), "'x' is not a device index"),
    "a negative device": (cluster(NODE, top=node_of("0", "-1")), "'-1' is not a device index"),
    "a device beyond 32 bits": (cluster(NODE, top=node_of("0", str(2**31))), "is not a device index"),
    "a device twice": (cluster(NODE, top=node_of("7", "7")), "two physical cells for leaf cell 7 of node n"),
    "a node twice": (cluster(NODE, RACK, top=rack_of(A, A)), "two physical cells for leaf cell 0 of node a"),
    "an unknown chain": (cluster(NODE, A=quota("A", {"NOCHAIN": 1})), "NOCHAIN does not name a chain"),
    "an unknown type": (cluster(NODE, A=quota("A", {"NODE.NOTYPE": 1})), "NODE.NOTYPE does not name a chain"),
    "a pin defined twice": (cluster(NODE, RACK, top=rack_of(PINNED_A, PINNED_B)), "pinned cell p is defined twice"),
    "an unknown pin": (cluster(NODE, A=quota("A", {}, ("p",))), "pinned cell p of VC A is unknown or used twice"),
    "a pin used twice": (
        cluster(NODE, RACK, top=rack_of(PINNED_A, B), A=quota("A", {}, ("p",)), B=quota("B", {}, ("p",))),
        "pinned cell p of VC B is unknown or used twice",
    ),
    "a pin in a pin": (
        cluster(NODE, RACK, top=rack_of(PINNED_A, B, pin="q"), A=quota("A", {}, ("p", "q"))),
        "lies inside another pinned cell",
    ),
    "a pin in a pin, in the other order": (
        cluster(NODE, RACK, top=rack_of(PINNED_A, B, pin="q"), A=quota("A", {}, ("q",)), B=quota("B", {}, ("p",))),
        "lies inside another pinned cell",
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_configuration_is_refused_that_has(mistake: str) -> None:
    spec, message = REFUSED[mistake]
    with pytest.raises(UserError, match=message):
        build_topology(spec)


@pytest.mark.parametrize(
    "spec",
    [
        ClusterSpec({}, (), {}),
        ClusterSpec({}, (), {"A": quota("A", {})}),
        cluster(NODE),
        cluster(NODE, A=quota("A", {})),
        cluster(NODE, A=quota("A", {"NODE": 0})),
    ],
    ids=["nothing at all", "a VC without hardware", "hardware without a VC", "a VC without cells", "a VC with 0 cells"],
)
def test_an_empty_cluster_answers_everything(spec: ClusterSpec) -> None:
    state = healthy_state(spec)
    check_invariants(state)
    for wanted in (pod("g"), pod("o", priority=-1), pod("p", pinned_cell_id="p"), pod("t", leaf_cell_type="T")):
        with contextlib.suppress(UserError):
            request(state, wanted)
    handle(state, PodAllocated(pod("b"), bind_info((placement("nowhere", 0, 1),))))
    check_invariants(state)
    assert status.affinity_group(state, "b")["status"]["allocatedPods"] == ["b"]
    assert len(status.physical_cluster(state)) == len(spec.physical_cells)


def test_addresses_are_kept_as_written() -> None:
    """Names that a careless reader would take for numbers or truths (rules 1.6, 1.7)."""
    top = PhysicalCellSpec("RACK", "010", children=(PhysicalCellSpec(address="1e3"), PhysicalCellSpec(address="no")))
    state = new_state(cluster(NODE, RACK, top=top))
    assert state.topology.node_names == ("1e3", "no")
    assert state.topology.address(2) == "010/no"


def test_devices_may_have_any_numbers() -> None:
    state = healthy_state(cluster(NODE, top=node_of("9", str(2**31 - 1)), A=quota("A", {"NODE": 1})))
    assert run(state, pod("g")).bind_info.leaf_cell_indices == (9, 2**31 - 1)


def test_cells_that_the_file_leaves_out_are_numbered_through() -> None:
    """Below a node the count starts again at 0 (rule 1.6)."""
    pair = CellTypeSpec("PAIR", "GPU", 2)
    node = CellTypeSpec("NODE", "PAIR", 2, is_node_level=True)
    spec = ClusterSpec({t.name: t for t in (pair, node, RACK)}, (PhysicalCellSpec("RACK"),) * 2, {})
    topology = build_topology(spec)
    assert topology.node_names == ("0", "1", "2", "3")
    assert topology.address(int(topology.arrays.node_leaf[-1])) == "1/3/1/3"


def test_two_chains_may_share_a_node() -> None:
    cpu = CellTypeSpec("HOST", "CPU", 2, is_node_level=True)
    rows = CellTypeSpec("ROW", "HOST", 1)
    gpus = PhysicalCellSpec("RACK", "r", children=(A, B))
    devices = tuple(PhysicalCellSpec(address=str(8 + i)) for i in range(2))
    cpus = PhysicalCellSpec("ROW", "s", children=(PhysicalCellSpec(address="a", children=devices),))
    topology = build_topology(ClusterSpec({t.name: t for t in (NODE, RACK, cpu, rows)}, (cpus, gpus), {}))
    own = topology.arrays.node_leaf[: topology.arrays.node_leaf_start[1]].tolist()
    assert [topology.address(leaf) for leaf in own] == ["r/a/0", "r/a/1", "s/a/8", "s/a/9"]


def test_a_bind_info_may_name_a_chain_that_is_gone() -> None:
    state = healthy_state(rack_cluster())
    handle(state, PodAllocated(pod("g"), BindInfo("n0", (0, 1), "GONE", ((placement("n0", 0, 1),),))))
    check_invariants(state)
    assert state.groups["g"].virtual is not None
