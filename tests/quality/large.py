"""Large clusters: 312 nodes of 8 GPUs in 13 rows of 3 racks, shared by VCs that are promised nodes, racks or rows."""

from hived.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, Rules, VirtualCellSpec, VirtualClusterSpec

ROWS, RACKS_PER_ROW, NODES_PER_RACK, GPUS = 13, 3, 8, 8
NODES = ROWS * RACKS_PER_ROW * NODES_PER_RACK
_TYPES = (
    CellTypeSpec("ROW", "RACK", RACKS_PER_ROW),
    CellTypeSpec("RACK", "NODE", NODES_PER_RACK),
    CellTypeSpec("NODE", "PAIR", GPUS // 2, is_node_level=True),
    CellTypeSpec("PAIR", "GPU", 2),
)
_PATHS = {"row": "ROW", "rack": "ROW.RACK", "node": "ROW.RACK.NODE"}
_NODES = {"row": RACKS_PER_ROW * NODES_PER_RACK, "rack": NODES_PER_RACK, "node": 1}

# VC -> cells; each kind promises the whole cluster
PROMISES: dict[str, dict[str, dict[str, int]]] = {
    "N": {"a": {"node": 96}, "b": {"node": 72}, "c": {"node": 64}, "d": {"node": 48}, "e": {"node": 32}},
    "R": {
        "a": {"rack": 10, "node": 16}, "b": {"rack": 8, "node": 8}, "c": {"rack": 6, "node": 16},
        "d": {"rack": 4, "node": 16}, "e": {"rack": 3, "node": 8},
    },
    "P": {
        "a": {"row": 3, "rack": 2, "node": 8}, "b": {"row": 2, "rack": 2, "node": 8},
        "c": {"row": 1, "rack": 3, "node": 16}, "d": {"row": 1, "rack": 2, "node": 8}, "e": {"rack": 2, "node": 16},
    },
}  # fmt: skip


def large_cluster(
    promises: dict[str, dict[str, int]], rules: Rules, topology: bool = False, spares: bool = False
) -> ClusterSpec:
    """The cluster with these promises: VC -> kind of cell (row, rack, node) -> number."""
    names = [PhysicalCellSpec(address=f"n{i:03}") for i in range(NODES)]
    racks = [PhysicalCellSpec(children=tuple(names[i : i + NODES_PER_RACK])) for i in range(0, NODES, NODES_PER_RACK)]
    rows = tuple(
        PhysicalCellSpec("ROW", children=tuple(racks[i : i + RACKS_PER_ROW]))
        for i in range(0, len(racks), RACKS_PER_ROW)
    )
    vcs = {
        name: VirtualClusterSpec(
            name,
            tuple(VirtualCellSpec(_PATHS[kind], count) for kind, count in cells.items() if count),
            packs_by_topology=topology,
            spares=spares,
        )
        for name, cells in promises.items()
    }
    return ClusterSpec({each.name: each for each in _TYPES}, rows, vcs, rules=rules)


def node_quotas(promises: dict[str, dict[str, int]]) -> dict[str, int]:
    """VC -> nodes that it is promised, in cells of any kind."""
    return {vc: sum(_NODES[kind] * count for kind, count in cells.items()) for vc, cells in promises.items()}


def with_surplus(promises: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The same promises without the last VC, so that its cells are nobody's."""
    return dict(list(promises.items())[:-1])


def as_racks(nodes: dict[str, int]) -> dict[str, dict[str, int]]:
    """Node quotas as whole racks and loose nodes."""
    return {vc: {"rack": count // NODES_PER_RACK, "node": count % NODES_PER_RACK} for vc, count in nodes.items()}
