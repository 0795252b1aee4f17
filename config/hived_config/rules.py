"""What a configuration says of pods that do not ask in HiveD's own words: how to read them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import yaml

from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.access import AccessRules
from hived_config.chains import CellTypes
from hived_config.reader import Reader, closest, describe, is_null, shorten
from hived_config.skus import A_RESOURCE, RESOURCE

POD_RULE_KEYS = ("schedulerNames", "priorityClasses", "topologyLevels", "foreignDevices")

GPU_RESOURCE = "nvidia.com/gpu"
"""What a leaf cell is to Kubernetes, unless its SKU type says otherwise."""

GPU_DEVICE_CLASS = "gpu.nvidia.com"
"""The DeviceClass of leaf cells that are `nvidia.com/gpu`, unless their SKU type says otherwise."""

SCHEDULER_NAMES = ("hived", "hived-{vc}", "hivedscheduler-ds-{vc}")
"""What pods may ask for as schedulerName, by default: names of ours, and those that `hived submit` and OpenPAI use."""

PRIORITY_WORDS = {"crit": 120, "prod": 100, "test": 10, "oppo": OPPORTUNISTIC_PRIORITY}
"""OpenPAI's words for priorities."""

PREEMPTIBLE = "preemptible"
"""Of a PriorityClass: opportunistic."""


class Foreign(Enum):
    """How devices are treated that pods use without having got them from hived."""

    OCCUPY = "occupy"
    IGNORE = "ignore"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class PodRules:
    """See the module.

    Attributes
    ----------
    resources : by leaf cell type, the device resource that one leaf cell is one of; see `resources_in`
    device_classes : by leaf cell type, the DeviceClass of its devices; see `device_classes_in`
    foreign_devices : by device resource, how its use by pods is treated that hived has not placed
    node_labels : by leaf cell type, labels that its nodes have and that pods choose it by
    access : who may use which VC, and which VC the pods of a namespace are of unless they say otherwise
    packed : VCs whose gangs are not kept near together unless they say so
    priority_classes : by PriorityClass, the priority
    topology_levels : by what topology wishes call a level (a node label, "volcano-tier-2"), the cell type
    scheduler_names : what pods have as schedulerName if they are for us; with {vc} in it, one name for each VC
    """

    resources: Mapping[str, str] = field(default_factory=dict)
    device_classes: Mapping[str, str] = field(default_factory=dict)
    foreign_devices: Mapping[str, Foreign] = field(default_factory=dict)
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    access: AccessRules = field(default_factory=AccessRules)
    packed: frozenset[str] = frozenset()
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

    def device_classes_in(self, cluster: ClusterSpec) -> dict[str, str]:
        """The DeviceClass of each leaf cell type that has one, by its name."""
        found = {
            name: self.device_classes.get(name, GPU_DEVICE_CLASS if resource == GPU_RESOURCE else "")
            for name, resource in self.resources_in(cluster).items()
        }
        return {name: device_class for name, device_class in found.items() if device_class}

    def foreign(self, resource: str) -> Foreign:
        """How use of this resource by pods is treated that hived has not placed."""
        return self.foreign_devices.get(resource, Foreign.OCCUPY)

    def refused_in(self, cluster: ClusterSpec) -> list[str]:
        """The device resources that pods of other schedulers are refused, ascending."""
        means = sorted(set(self.resources_in(cluster).values()))
        return [resource for resource in means if self.foreign(resource) is Foreign.REFUSE]

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
    names, classes, levels, foreign = (fields.get(key) for key in POD_RULE_KEYS)
    return PodRules(
        scheduler_names=_read_scheduler_names(reader, names),
        priority_classes={
            name: read_priority(reader, value)
            for name, _, value in reader.fields(classes, "priorities by the name of a PriorityClass")
        },
        topology_levels={
            name: _read_cell_type(reader, value, types)
            for name, _, value in reader.fields(levels, "cell types by what a level is called")
        },
        foreign_devices=_read_foreign(reader, foreign),
    )


def check_foreign(reader: Reader, node: yaml.Node | None, rules: PodRules, cluster: ClusterSpec) -> None:
    """Warn of resources under `foreignDevices` that no leaf cell type means: nothing follows from them."""
    known = set(rules.resources_in(cluster).values())
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        name = getattr(key, "value", "")
        if name in rules.foreign_devices and name not in known:
            expected = "the resource of a leaf cell type, or nothing follows from it"
            reader.note(key, f"resource {shorten(name)}", expected, closest(name, known), is_warning=True)


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


def _read_foreign(reader: Reader, node: yaml.Node | None) -> dict[str, Foreign]:
    choices = {str(choice.value): choice for choice in Foreign}
    expected = " or ".join(choices)
    found = {}
    for name, key, value in reader.fields(node, f"{expected} by device resource"):
        if not RESOURCE.fullmatch(name):
            reader.note(key, f"resource {shorten(name)}", A_RESOURCE)
        word = reader.text(value, expected)
        if word not in choices and isinstance(value, yaml.ScalarNode):
            reader.note(value, describe(value), expected)
        found[name] = choices.get(word, Foreign.OCCUPY)
    return found


def read_priority(reader: Reader, node: yaml.Node) -> int:
    """A priority as a number or one of the known words; 0 after noting why it is neither."""
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
