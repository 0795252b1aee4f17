"""A cluster and a pod's request: the plain values that enter the core.

Everything here is immutable and free of YAML, JSON and Kubernetes. `hived_config` makes a `ClusterSpec` from a file and
has then checked it; the core checks again only input that would corrupt its arrays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

# priorities (rule 2.4)
OPPORTUNISTIC_PRIORITY = -1
MIN_GUARANTEED_PRIORITY = 0
MAX_GUARANTEED_PRIORITY = 1000
FREE_PRIORITY = -2
MAX_LEVELS = 64  # of a cell chain


class Rules(IntEnum):
    """The set of rules of a cluster: the reference's, or the better ones (rules 18)."""

    HIVED = 1
    BETTER = 2


@dataclass(frozen=True, slots=True)
class SkuTypeSpec:
    """The devices, CPUs and memory of one leaf cell for submitted jobs; placement never reads it (rule 1.4)."""

    gpu: int = 0
    cpu: float = 0.0
    memory_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class CellTypeSpec:
    """A cell type above the leaf level: `child_count` cells of `child_type` (rule 1.1)."""

    name: str
    child_type: str
    child_count: int
    is_node_level: bool = False


@dataclass(frozen=True, slots=True)
class PhysicalCellSpec:
    """A physical cell as written: an empty `cell_type`, `address` or `children` is inferred (rule 1.5)."""

    cell_type: str = ""
    address: str = ""
    pinned_cell_id: str = ""
    children: tuple["PhysicalCellSpec", ...] = ()


@dataclass(frozen=True, slots=True)
class VirtualCellSpec:
    """`cell_count` preassigned cells; `cell_type` is a dotted path, chain first, preassigned type last (rule 1.8)."""

    cell_type: str
    cell_count: int


@dataclass(frozen=True, slots=True)
class VirtualClusterSpec:
    """The cells that one virtual cluster is promised, in file order.

    `packs_by_topology`: gangs that wish for nothing are kept as near together as can be, not as the reference does it.

    `combines`: a pod that is larger than one cell of the VC may take several, if they are one cell physically
    (rule 18.3).

    `spares`: cells without victims go before the cells that the VC would take in a private cluster. So its jobs may
    start later than in a private cluster (rule 18.4).
    """

    name: str
    virtual_cells: tuple[VirtualCellSpec, ...] = ()
    pinned_cell_ids: tuple[str, ...] = ()
    packs_by_topology: bool = False
    combines: bool = False
    spares: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A whole configuration: cell types, physical trees in file order, virtual clusters in file order."""

    cell_types: Mapping[str, CellTypeSpec]
    physical_cells: tuple[PhysicalCellSpec, ...]
    virtual_clusters: Mapping[str, VirtualClusterSpec]
    sku_types: Mapping[str, SkuTypeSpec] = field(default_factory=dict)
    rules: Rules = Rules.HIVED


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """`pod_count` pods of an affinity group that each want `leaf_cell_count` leaf cells."""

    pod_count: int
    leaf_cell_count: int


def count_pods(members: Iterable[MemberSpec]) -> int:
    """The pods of a group."""
    return sum(member.pod_count for member in members)


def count_leaves(members: Iterable[MemberSpec]) -> int:
    """The leaf cells of all its pods."""
    return sum(member.pod_count * member.leaf_cell_count for member in members)


def sizes_of(members: Iterable[MemberSpec]) -> list[int]:
    """The leaf cells of the pod of each slot, in slot order."""
    return [member.leaf_cell_count for member in members for _ in range(member.pod_count)]


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """An affinity group: members merged by size, ascending `leaf_cell_count` (rule 2.6)."""

    name: str
    members: tuple[MemberSpec, ...]


@dataclass(frozen=True, slots=True)
class PodSpec:
    """A pod's scheduling spec with every default filled in (rules 2.2, 2.5); empty text means "not given".

    Beyond the reference: `within_cell` is a cell type, one cell of which all pods of the group shall be below; where
    that is not required, the lowest level from it upwards that has room. With `beside`, the name of a group that has
    its cells, it is the cell which these are in. Cells of an `elastic` pod are the first that others take.
    """

    virtual_cluster: str
    priority: int
    leaf_cell_count: int
    group: GroupSpec
    pinned_cell_id: str = ""
    leaf_cell_type: str = ""
    gang_release: bool = False
    lazy_preemption: bool = False
    ignore_suggested_nodes: bool = True
    within_cell: str = ""
    within_is_required: bool = True
    beside: str = ""
    elastic: bool = False

    def of_group(self, name: str, ignores: bool | None = None) -> "PodSpec":
        """The same request for a group of another name, which may ignore suggested nodes or not.

        `replace` would take twice as long, and every pod needs this.
        """
        group = GroupSpec(name, self.group.members)
        ignores = self.ignore_suggested_nodes if ignores is None else ignores
        return PodSpec(
            self.virtual_cluster, self.priority, self.leaf_cell_count, group, self.pinned_cell_id, self.leaf_cell_type,
            self.gang_release, self.lazy_preemption, ignores, self.within_cell,
            self.within_is_required, self.beside, self.elastic,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PodRequest:
    """One pod of ours: its identity and its request."""

    uid: str
    name: str
    namespace: str
    spec: PodSpec

    @property
    def label(self) -> str:
        """The pod as error messages print it: `uid(namespace/name)`."""
        return f"{self.uid}({self.namespace}/{self.name})"


@dataclass(frozen=True, slots=True)
class WorkTimes:
    """The start of a pod and its last checkpoint: seconds since 1970, None if unknown (rule 8.12)."""

    started_s: float | None = None
    saved_s: float | None = None


NO_TIMES = WorkTimes()


@dataclass(frozen=True, slots=True)
class GangLimit:
    """At most `spare` pods of these groups of a gang may leave; below 0 none can, as too few are there already."""

    groups: tuple[str, ...]
    spare: int


@dataclass(frozen=True, slots=True)
class Gang:
    """Allocated groups that depend on each other: if more pods leave than a limit allows, all of them do (rule 8.14).

    A group of which no limit speaks may leave by itself.
    """

    name: str
    groups: tuple[str, ...]
    limits: tuple[GangLimit, ...]


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """The place of one pod of a group: node, device indices, and each leaf's preassigned cell type ("" if none)."""

    node: str
    leaf_cell_indices: tuple[int, ...]
    preassigned_cell_types: tuple[str, ...]


Placements = tuple[tuple[PodPlacement, ...], ...]  # per member, per pod of it


@dataclass(frozen=True, slots=True)
class BindInfo:
    """A pod's binding: the content of its bind-info annotation (rule 2.10).

    `members` holds one tuple of placements per distinct leaf cell count, ascending; all pods of a group share that one
    object, so it can be serialised once per group.
    """

    node: str
    leaf_cell_indices: tuple[int, ...]
    cell_chain: str
    members: tuple[tuple[PodPlacement, ...], ...]
