"""What a configuration says of pods that do not ask in HiveD's own words: how to read them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import yaml

from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.chains import CellTypes
from hived_config.reader import Reader, closest, describe, is_null, shorten

POD_RULE_KEYS = ("schedulerNames", "priorityClasses", "topologyLevels")

GPU_RESOURCE = "nvidia.com/gpu"
"""What a leaf cell is to Kubernetes, unless its SKU type says otherwise."""

SCHEDULER_NAMES = ("hived", "hived-{vc}", "hivedscheduler-ds-{vc}")
"""What pods may ask for as schedulerName, by default: names of ours, and those that `hived submit` and OpenPAI use."""

PRIORITY_WORDS = {"crit": 120, "prod": 100, "test": 10, "oppo": OPPORTUNISTIC_PRIORITY}
"""OpenPAI's words for priorities."""

PREEMPTIBLE = "preemptible"
"""Of a PriorityClass: opportunistic."""


@dataclass(frozen=True, slots=True)
class PodRules:
    """See the module.

    Attributes
    ----------
    resources : by leaf cell type, the device resource that one leaf cell is one of; see `resources_in`
    node_labels : by leaf cell type, labels that its nodes have and that pods choose it by
    vc_of_namespace : which VC the pods of a namespace are of, unless they say otherwise
    priority_classes : by PriorityClass, the priority
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


def read_pod_rules(reader: Reader, fields: Mapping[str, yaml.Node], types: CellTypes) -> PodRules:
    """What the top-level `fields` of a document say; the rest of `PodRules` stands with cells and virtual clusters."""
    names, classes, levels = (fields.get(key) for key in POD_RULE_KEYS)
    return PodRules(
        scheduler_names=_read_scheduler_names(reader, names),
        priority_classes={
            name: _read_priority(reader, value)
            for name, _, value in reader.fields(classes, "priorities by the name of a PriorityClass")
        },
        topology_levels={
            name: _read_cell_type(reader, value, types)
            for name, _, value in reader.fields(levels, "cell types by what a level is called")
        },
    )


def _read_scheduler_names(reader: Reader, node: yaml.Node | None) -> tuple[str, ...]:
    if node is None or is_null(node):
        return SCHEDULER_NAMES
    expected = "a name that pods have as schedulerName, such as hived or gpus-{vc}"
    items = reader.items(node, "a list of names", expected)
    names = [reader.name(item, expected) for item in items]
    for name, item in zip(names, items, strict=True):
        if isinstance(item, yaml.ScalarNode) and (not name or set("{}") & set(name.replace("{vc}", ""))):
            reader.note(item, describe(item), expected)
    if not items and isinstance(node, yaml.SequenceNode):
        reader.note(node, "no name", f"{expected}; leave the key out for {', '.join(SCHEDULER_NAMES)}")
    return tuple(names)


def _read_priority(reader: Reader, node: yaml.Node) -> int:
    words = PRIORITY_WORDS | {PREEMPTIBLE: OPPORTUNISTIC_PRIORITY}
    if isinstance(node, yaml.ScalarNode) and node.value in words:
        return words[node.value]
    expected = f"{', '.join(words)} or a number from {OPPORTUNISTIC_PRIORITY} to {MAX_GUARANTEED_PRIORITY}"
    return reader.integer(node, expected, OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY) or 0


def _read_cell_type(reader: Reader, node: yaml.Node, types: CellTypes) -> str:
    expected = "a cell type of cellTypes"
    name = reader.text(node, expected)
    is_noted = not isinstance(node, yaml.ScalarNode)
    if types.is_given and not is_noted and name not in types.names:
        reader.note(node, f"cell type {shorten(name)}", expected, closest(name, types.names))
    return name
