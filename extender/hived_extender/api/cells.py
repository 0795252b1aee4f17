"""Cells, groups, lost devices and shortages, as the inspect paths answer them. Empty fields are left out.

The core makes cells and groups as plain mappings in these shapes (`hived.life.status`), since it knows no JSON library;
a test decodes and encodes every answer and finds the same bytes.
"""

from typing import Annotated, Literal

import msgspec

from hived.values.specs import FREE_PRIORITY, MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY


class Cell(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A physical or virtual cell with everything below it.

    `vc` and `virtual_cell` are of physical cells, `physical_cell` is of virtual ones. Priority -2 is a free cell, -1
    opportunistic use.
    """

    cell_type: str
    leaf_cell_type: str = ""
    is_node_level: bool = False
    cell_address: str
    cell_state: Literal["Free", "Used", "Reserving", "Reserved"]
    cell_healthiness: Literal["Healthy", "Bad"]
    cell_priority: Annotated[int, msgspec.Meta(ge=FREE_PRIORITY, le=MAX_GUARANTEED_PRIORITY)]
    vc: str = ""
    cell_children: "list[Cell]" = []
    virtual_cell: "Cell | None" = None
    physical_cell: "Cell | None" = None

    def leaves(self) -> "list[Cell]":
        """The leaf cells below this one, or the cell itself, in tree order."""
        if not self.cell_children:
            return [self]
        return [leaf for child in self.cell_children for leaf in child.leaves()]

    def nodes(self) -> "list[Cell]":
        """The node-level cells at or below this one, in tree order."""
        if self.is_node_level or not self.cell_children:
            return [self]
        return [node for child in self.cell_children for node in child.nodes()]

    def subtree(self) -> "list[Cell]":
        """The cell itself and all cells below it, in tree order."""
        return [self, *(cell for child in self.cell_children for cell in child.subtree())]

    @property
    def name(self) -> str:
        """The last part of the address: a node's name, a leaf's device index."""
        return self.cell_address.rsplit("/", 1)[-1]

    @property
    def is_bad(self) -> bool:
        """True if any leaf below is on a bad node."""
        return self.cell_healthiness == "Bad"

    @property
    def is_used(self) -> bool:
        """True if a group runs here, or is to run here once its victims are gone."""
        return self.cell_priority > FREE_PRIORITY

    @property
    def is_opportunistic(self) -> bool:
        """True if the group that runs here has no claim to stay."""
        return self.cell_priority == OPPORTUNISTIC_PRIORITY


class Cluster(msgspec.Struct, rename="camel"):
    """The top physical cells, in file order, and the cells of each virtual cluster."""

    physical_cluster: list[Cell]
    virtual_clusters: dict[str, list[Cell]]


class LazyPreemption(msgspec.Struct, rename="camel"):
    """The group that took another one's place in its virtual cluster, and when."""

    preemptor: str = ""
    preemption_time: str = ""


class GroupWork(msgspec.Struct, rename="camel", omit_defaults=True):
    """The times of a group, in RFC 3339: the earliest start of its pods, and the latest checkpoint.

    The work since `since` would be lost if the group had to leave: `leaf_cells` times as many seconds.
    """

    started_at: str
    since: str
    leaf_cells: int
    checkpointed_at: str = ""


class GroupStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """The cells and pods of a group.

    Placements: node -> device indices, preassigned cell -> leaf cells. `leaf_cell_types` are those of its leaf cells; a
    service of an older version leaves them out. `held_for` is the group on the move, or
    the key of the queued job, that its cells are held for: then this group has no pods in Kubernetes, whatever
    `allocated_pods` says.
    """

    vc: str
    priority: int
    state: Literal["Allocated", "Preempting", "BeingPreempted"]
    physical_placement: dict[str, list[int]] = {}
    virtual_placement: dict[str, list[str]] = {}
    allocated_pods: list[str] = []
    preempting_pods: list[str] = []
    lazy_preemption_status: LazyPreemption | None = None
    leaf_cell_types: list[str] = []
    work: GroupWork | None = None
    held_for: str = ""


class GroupMetadata(msgspec.Struct):
    """A group's name."""

    name: str


class AffinityGroup(msgspec.Struct):
    """A group that holds or awaits cells."""

    metadata: GroupMetadata
    status: GroupStatus

    @property
    def name(self) -> str:
        """The group's name."""
        return self.metadata.name


class AffinityGroups(msgspec.Struct):
    """All groups by name; null if there are none."""

    items: list[AffinityGroup] | None = None


class DeviceUser(msgspec.Struct, rename="camel"):
    """A pod or claim that uses devices without having been placed by hived."""

    name: str
    devices: int
    by_claim: bool


class LostDevices(msgspec.Struct, rename="camel"):
    """Leaf cells of one type that a node has lost, and why. `known_devices` are certainly among them."""

    node: str
    leaf_cell_type: str
    resource: str
    leaf_cells: int
    lost_leaf_cells: int
    known_devices: list[int]
    missing_devices: int
    used_by: list[DeviceUser]
    reason: str


class RulesInForce(msgspec.Struct):
    """The rules of decisions, as a configuration spells them."""

    rules: Literal["hived", 2]


class Shortage(msgspec.Struct, rename="camel"):
    """Promises of a chain that can each be kept, but not all together.

    `short_cells` counts, by cell type, the cells that are missing once the larger ones are given.
    """

    chain: str
    virtual_clusters: list[str]
    short_cells: dict[str, int]
    message: str
    reasons: list[str]
