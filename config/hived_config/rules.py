"""What a configuration says of pods that do not ask in HiveD's own words: how to read them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hived.specs import ClusterSpec

GPU_RESOURCE = "nvidia.com/gpu"
"""What a leaf cell is to Kubernetes, unless its SKU type says otherwise."""

SCHEDULER_NAMES = ("hived", "hived-{vc}", "hivedscheduler-ds-{vc}")
"""What pods may ask for as schedulerName, by default: names of ours, and those that `hived submit` and OpenPAI use."""

PREEMPTIBLE = -1
"""Of `PodRules.priority_classes`: opportunistic."""


@dataclass(frozen=True, slots=True)
class PodRules:
    """See the module.

    Attributes
    ----------
    resources : by leaf cell type, the device resource that one leaf cell is one of; see `resources_in`
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

    def resources_in(self, cluster: ClusterSpec) -> dict[str, str]:
        """The device resource of each leaf cell type that stands for devices, by its name."""
        leaf_types = {each.child_type for each in cluster.cell_types.values()} - cluster.cell_types.keys()
        return {
            name: self.resources.get(name, GPU_RESOURCE)
            for name in sorted(leaf_types)
            if name not in cluster.sku_types or cluster.sku_types[name].gpu
        }

    def serves(self, scheduler_name: str, virtual_clusters: Iterable[str]) -> bool:
        """Whether a pod with this schedulerName is for us."""
        return scheduler_name in names_for(self.scheduler_names, virtual_clusters)


def names_for(scheduler_names: Iterable[str], virtual_clusters: Iterable[str]) -> list[str]:
    """The names, each once; one with {vc} for each virtual cluster, in lower case as `hived submit` has it."""
    vcs = [vc.lower() for vc in virtual_clusters]
    named = [[name.replace("{vc}", vc) for vc in vcs] if "{vc}" in name else [name] for name in scheduler_names]
    return list(dict.fromkeys(name for names in named for name in names))
