"""From what a pod asks of Kubernetes to what it asks of HiveD: which virtual cluster, priority, cells."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod of a dialect asks for, its gang left aside.

    `leaf_cell_count` is 0 for a pod without devices: it takes no cells, but may belong to a gang. Empty text means that
    nothing was said. The other fields are those of `hived.specs.PodSpec`.
    """

    virtual_cluster: str
    priority: int
    leaf_cell_count: int
    leaf_cell_type: str = ""
    pinned_cell_id: str = ""
    lazy_preemption: bool = False
    ignore_suggested_nodes: bool = True
    within_cell: str = ""
    within_is_required: bool = True
