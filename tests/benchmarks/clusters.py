"""The clusters that are measured: 8-GPU nodes in racks and pools, promised to three virtual clusters to the last node.

    pool (128 nodes, top cell) > rack (16 nodes) > node > PCIe pair > GPU

Half of the pools, rounded down, are promised as whole pools. Of the racks in the other pools three quarters are
promised as racks and one quarter as single nodes. `SHARES` says who gets how much of each.
"""

from collections.abc import Iterator

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, Rules, VirtualCellSpec, VirtualClusterSpec

GPUS_PER_NODE = 8
NODES_PER_RACK = 16
RACKS_PER_POOL = 8
NODES_PER_POOL = NODES_PER_RACK * RACKS_PER_POOL

CELL_TYPES = (
    CellTypeSpec("POOL", "RACK", RACKS_PER_POOL),
    CellTypeSpec("RACK", "NODE", NODES_PER_RACK),
    CellTypeSpec("NODE", "PCIE", 4, is_node_level=True),
    CellTypeSpec("PCIE", "GPU", 2),
)

SHARES = {
    "POOL": {"alpha": 0.5, "beta": 0.25, "gamma": 0.25},
    "POOL.RACK": {"alpha": 0.5, "beta": 0.35, "gamma": 0.15},
    "POOL.RACK.NODE": {"alpha": 0.0, "beta": 0.5, "gamma": 0.5},
}
"""Which part of the cells promised at each level goes to which VC."""

VC_NAMES = ("alpha", "beta", "gamma")


def promised_cells(node_count: int) -> dict[str, dict[str, int]]:
    """How many cells each VC is promised: VC -> dotted cell type -> number, nothing left over.

    `node_count` is a positive multiple of NODES_PER_POOL, else ValueError.
    """
    pools, rest = divmod(node_count, NODES_PER_POOL)
    if rest or not pools:
        raise ValueError(f"{node_count} nodes do not make whole pools of {NODES_PER_POOL}")
    racks = RACKS_PER_POOL * (pools - pools // 2)
    totals = {"POOL": pools // 2, "POOL.RACK": racks - racks // 4, "POOL.RACK.NODE": racks // 4 * NODES_PER_RACK}
    promised: dict[str, dict[str, int]] = {vc: {} for vc in VC_NAMES}
    for cell_type, total in totals.items():
        bound = 0.0
        given = 0
        for vc in VC_NAMES:
            bound += SHARES[cell_type][vc] * total
            count = round(bound) - given
            given += count
            if count:
                promised[vc][cell_type] = count
    return promised


def cluster_spec(node_count: int, rules: Rules = Rules.HIVED) -> ClusterSpec:
    """The cluster as the configuration's loader would give it."""
    pools = tuple(
        PhysicalCellSpec("POOL", pool, children=tuple(
            PhysicalCellSpec(address=rack, children=tuple(
                PhysicalCellSpec(address=node) for node in nodes
            )) for rack, nodes in racks
        )) for pool, racks in _pools(node_count)
    )  # fmt: skip
    return ClusterSpec(
        cell_types={cell_type.name: cell_type for cell_type in CELL_TYPES},
        physical_cells=pools,
        virtual_clusters={
            vc: VirtualClusterSpec(vc, tuple(VirtualCellSpec(*promise) for promise in cells.items()))
            for vc, cells in promised_cells(node_count).items()
        },
        rules=rules,
    )


def config_text(node_count: int, rules: Rules = Rules.HIVED) -> str:
    """The same cluster as a configuration file that spells out every node."""
    lines = ["rules: 2"] if rules is Rules.BETTER else []
    lines += ["physicalCluster:", "  cellTypes:"]
    for cell_type in CELL_TYPES:
        lines += [f"    {cell_type.name}:", f"      childCellType: {cell_type.child_type}"]
        lines += [f"      childCellNumber: {cell_type.child_count}"]
        lines += ["      isNodeLevel: true"] if cell_type.is_node_level else []
    lines += ["  physicalCells:"]
    for pool, racks in _pools(node_count):
        lines += ["  - cellType: POOL", f"    cellAddress: {pool}", "    cellChildren:"]
        for rack, nodes in racks:
            lines += [f"    - cellAddress: {rack}", "      cellChildren:"]
            lines += [f"      - cellAddress: {node}" for node in nodes]
    lines += ["virtualClusters:"]
    for vc, cells in promised_cells(node_count).items():
        lines += [f"  {vc}:", "    virtualCells:"]
        for name, count in cells.items():
            lines += [f"    - cellType: {name}", f"      cellNumber: {count}"]
    return "\n".join(lines) + "\n"


def _pools(node_count: int) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Pool name, and for each rack its name and those of its nodes."""
    for pool in range(node_count // NODES_PER_POOL):
        racks = []
        for rack in range(pool * RACKS_PER_POOL, (pool + 1) * RACKS_PER_POOL):
            first = rack * NODES_PER_RACK
            racks.append((f"rack-{rack:04}", [f"gpu-node-{first + i:05}" for i in range(NODES_PER_RACK)]))
        yield f"pool-{pool:03}", racks
