"""The clusters and the jobs that are measured.

    pool (128 nodes, top cell) > rack (16 nodes) > node > PCIe pair > GPU

The cluster is promised to three virtual clusters to the last node. Half of the pools, rounded down, are promised as
whole pools. Of the racks in the other pools three quarters are promised as racks and one quarter as single nodes.
`SHARES` has the part of each VC. Jobs are drawn with a seed, so that each kind gets its share of the GPUs, not of the
jobs.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hived.values.specs import (
    OPPORTUNISTIC_PRIORITY,
    CellTypeSpec,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PhysicalCellSpec,
    PodRequest,
    PodSpec,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
)

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


def with_rack_moved(text: str, giver: str = "alpha") -> str:
    """The same configuration, in which beta has a rack of another virtual cluster."""
    for vc, change in ((giver, -1), ("beta", 1)):
        head, _, tail = text.partition(f"\n  {vc}:\n")
        before, key, rest = tail.partition("    - cellType: POOL.RACK\n      cellNumber: ")
        number, _, rest = rest.partition("\n")
        text = f"{head}\n  {vc}:\n{before}{key}{int(number) + change}\n{rest}"
    return text


def _pools(node_count: int) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """Pool name, and for each rack its name and those of its nodes."""
    for pool in range(node_count // NODES_PER_POOL):
        racks = []
        for rack in range(pool * RACKS_PER_POOL, (pool + 1) * RACKS_PER_POOL):
            first = rack * NODES_PER_RACK
            racks.append((f"rack-{rack:04}", [f"gpu-node-{first + i:05}" for i in range(NODES_PER_RACK)]))
        yield f"pool-{pool:03}", racks


LOW_PRIORITY, HIGH_PRIORITY = 0, 100


@dataclass(frozen=True, slots=True)
class JobKind:
    """`pod_count` pods of `gpus_per_pod`; `share` is the part of all GPUs that jobs of this kind get."""

    pod_count: int
    gpus_per_pod: int
    share: float

    @property
    def label(self) -> str:
        """As rows of the table name it."""
        return f"{self.pod_count}x{self.gpus_per_pod}"

    @property
    def gpu_count(self) -> int:
        """GPUs of the whole job."""
        return self.pod_count * self.gpus_per_pod


KINDS = (
    JobKind(1, 1, 0.08),
    JobKind(1, 2, 0.08),
    JobKind(1, 4, 0.10),
    JobKind(1, 8, 0.16),
    JobKind(8, 8, 0.20),
    JobKind(32, 8, 0.20),
    JobKind(128, 8, 0.18),
)
"""Ascending size: a job that does not fit is replaced by one of the next smaller kind."""

SMALLEST = KINDS[0]
GANGS = tuple(kind for kind in KINDS if kind.pod_count > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One affinity group and its pods, in the order in which they are scheduled."""

    kind: JobKind
    vc: str
    priority: int
    pods: tuple[PodRequest, ...]

    @property
    def is_guaranteed(self) -> bool:
        """Does it count against its VC?"""
        return self.priority != OPPORTUNISTIC_PRIORITY


class JobSource:
    """Makes jobs; the same seed makes the same jobs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._made = 0

    def make(self, kind: JobKind, vc: str, priority: int) -> Job:
        """A job with a name of its own."""
        name = f"job-{self._made}"
        self._made += 1
        spec = PodSpec(
            virtual_cluster=vc,
            priority=priority,
            leaf_cell_count=kind.gpus_per_pod,
            group=GroupSpec(f"bench/{name}", (MemberSpec(kind.pod_count, kind.gpus_per_pod),)),
        )
        return Job(
            kind, vc, priority,
            tuple(PodRequest(f"{name}-{i}", f"{name}-{i}", "bench", spec) for i in range(kind.pod_count)),
        )  # fmt: skip

    def pick_kind(self, gpu_limit: int) -> JobKind:
        """A kind that needs at most `gpu_limit` (> 0) GPUs, by its share."""
        fitting = fitting_kinds(gpu_limit)
        return self.random.choices(fitting, [kind.share / kind.gpu_count for kind in fitting])[0]

    def pick_priority(self) -> int:
        """One of the two guaranteed priorities."""
        return self.random.choice((LOW_PRIORITY, HIGH_PRIORITY))


def fitting_kinds(gpu_limit: int) -> Sequence[JobKind]:
    """The kinds that need at most `gpu_limit` GPUs, ascending."""
    return [kind for kind in KINDS if kind.gpu_count <= gpu_limit]


def spec_document(pod: PodRequest) -> dict[str, Any]:
    """The scheduling spec of a pod, as its annotation has it in JSON or YAML."""
    spec = pod.spec
    members = [{"podNumber": one.pod_count, "leafCellNumber": one.leaf_cell_count} for one in spec.group.members]
    asked = {
        "virtualCluster": spec.virtual_cluster,
        "priority": spec.priority,
        "leafCellNumber": spec.leaf_cell_count,
        "affinityGroup": {"name": spec.group.name, "members": members},
    }
    return asked | ({"lazyPreemptionEnable": True} if spec.lazy_preemption else {})
