"""What a configuration says of pods that do not ask in HiveD's own words: how to read them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

GPU_RESOURCE = "nvidia.com/gpu"
"""What a leaf cell is to Kubernetes, unless its SKU type says otherwise."""

SCHEDULER_NAMES = ("hived", "hivedscheduler-ds-{vc}")
"""What pods may ask for as schedulerName, by default: names of ours, and those that `hived submit` and OpenPAI use."""

PREEMPTIBLE = -1
"""Of `PodRules.priority_classes`: opportunistic."""


@dataclass(frozen=True, slots=True)
class PodRules:
    """See the module.

    Attributes
    ----------
    resources : by leaf cell type, the device resource that one leaf cell is one of
    node_labels : by leaf cell type, labels that its nodes have and that pods choose it by
    vc_of_namespace : which VC the pods of a namespace are of, unless they say otherwise
    priority_classes : by PriorityClass, the priority (-1 opportunistic to 1000)
    topology_levels : by what topology wishes call a level (a node label, "volcano-tier-2"), the cell type
    scheduler_names : what pods have as schedulerName if they are for us; with {vc} in it, one name for each VC
    """

    resources: Mapping[str, str] = field(default_factory=dict)
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    vc_of_namespace: Mapping[str, str] = field(default_factory=dict)
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    topology_levels: Mapping[str, str] = field(default_factory=dict)
    scheduler_names: tuple[str, ...] = SCHEDULER_NAMES
