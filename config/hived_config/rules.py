"""How to read pods that do not ask in HiveD's own words."""

from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec
import yaml

from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.access import AccessRules
from hived_config.chains import CellTypes
from hived_config.grace import GRACE_KEYS, LENT_KEY, PREEMPTED_KEY, Grace
from hived_config.kinds import Choice, Given, Integer, Key, ListOf, MapOf, Schema, Text, ValueKind, name_text
from hived_config.moving import Moving
from hived_config.queueing import Queueing
from hived_config.reader import Reader, closest, shorten
from hived_config.skus import GPU_DEVICE_CLASS, GPU_RESOURCE, RESOURCE

SCHEDULER_NAMES = ("hived", "hived-{vc}", "hivedscheduler-ds-{vc}")
"""The default names that pods may have as schedulerName: ours, and those of `hived submit` and OpenPAI."""

PRIORITY_WORDS = {"crit": 120, "prod": 100, "test": 10, "oppo": OPPORTUNISTIC_PRIORITY}
"""OpenPAI's words for priorities."""

PREEMPTIBLE = "preemptible"
"""Of a PriorityClass: opportunistic."""


class Foreign(Enum):
    """How devices are treated that pods use without having got them from hived."""

    OCCUPY = "occupy"
    IGNORE = "ignore"
    REFUSE = "refuse"


_WORDS = PRIORITY_WORDS | {PREEMPTIBLE: OPPORTUNISTIC_PRIORITY}


class Priority(ValueKind):
    """A priority as a number or one of the known words."""

    what = f"{', '.join(_WORDS)} or a number from {OPPORTUNISTIC_PRIORITY} to {MAX_GUARANTEED_PRIORITY}"
    words = "word or whole number"

    def read(self, reader: Reader, node: yaml.Node) -> int:
        """The number; 0 after noting why it is neither."""
        if isinstance(node, yaml.ScalarNode) and node.value in _WORDS:
            return _WORDS[node.value]
        return _PRIORITY.read(reader, node) or 0

    def schema(self) -> Schema:
        """Either of them."""
        return {"anyOf": [{"enum": [*_WORDS]}, _PRIORITY.schema()]}


_PRIORITY = Integer(Priority.what, OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY)


_SCHEDULER_NAMES = ListOf(
    "a list of names",
    name_text("a name that pods have as schedulerName, such as hived or gpus-{vc}", r"(\{vc\}|[^{}])+"),
    is_never_empty=True,
)
_FOREIGN = Choice(Foreign)
_LEVELS = MapOf("cell types by what a level is called", Text("a cell type of cellTypes"))
_HIGH_WORDS = ", ".join(f"`{word}` ({number})" for word, number in PRIORITY_WORDS.items() if number > 0)

POD_RULE_KEYS = (
    Key(
        "schedulerNames",
        _SCHEDULER_NAMES,
        "what pods have as schedulerName if they are for hived; `{vc}` stands for each virtual cluster in lower case",
        SCHEDULER_NAMES,
    ),
    Key(
        "priorityClasses",
        MapOf("priorities by the name of a PriorityClass", Priority()),
        f"by name of a PriorityClass, the priority: `{OPPORTUNISTIC_PRIORITY}` (opportunistic, also `{PREEMPTIBLE}` or "
        f"`oppo`) to `{MAX_GUARANTEED_PRIORITY}`, or {_HIGH_WORDS}",
    ),
    Key(
        "topologyLevels",
        _LEVELS,
        "by what topology wishes call a level, the cell type: see [topology wishes](#topology-wishes)",
    ),
    Key(
        "foreignDevices",
        MapOf(f"{_FOREIGN.what} by device resource", _FOREIGN, "resource", RESOURCE),
        "by device resource, how pods are treated that did not get it from hived: `refuse` (default), `occupy` or "
        "`ignore`, see [devices](devices.md#settings)",
    ),
    *GRACE_KEYS,
)


class PodRules(msgspec.Struct, frozen=True):
    """See the module.

    Attributes
    ----------
    resources : by leaf cell type, the device resource that one leaf cell is one of; see `resources_in`
    device_classes : by leaf cell type, the DeviceClass of its devices; see `device_classes_in`
    foreign_devices : by device resource, how to treat its use by pods that hived has not placed
    grace : the most time that pods have to leave
    node_labels : by leaf cell type, labels that its nodes have and that pods choose it by
    access : who may use which VC, and which VC the pods of a namespace are of unless they say otherwise
    packed : VCs whose gangs are not kept near together unless they say so
    moving : VCs whose groups may be moved to make room
    queueing : whether and how jobs wait in queues
    priority_classes : by PriorityClass, the priority
    topology_levels : by the name of a level in topology wishes (a node label, "volcano-tier-2"), the cell type
    scheduler_names : the schedulerName of pods that are for us; with {vc} in it, one name for each VC
    """

    resources: Mapping[str, str] = msgspec.field(default_factory=dict)
    device_classes: Mapping[str, str] = msgspec.field(default_factory=dict)
    foreign_devices: Mapping[str, Foreign] = msgspec.field(default_factory=dict)
    grace: Grace = Grace()
    node_labels: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    access: AccessRules = msgspec.field(default_factory=AccessRules)
    packed: frozenset[str] = frozenset()
    moving: Moving = msgspec.field(default_factory=Moving)
    queueing: Queueing = Queueing()
    priority_classes: Mapping[str, int] = msgspec.field(default_factory=dict)
    topology_levels: Mapping[str, str] = msgspec.field(default_factory=dict)
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
        return self.foreign_devices.get(resource, Foreign.REFUSE)

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


def read_pod_rules(given: Given, types: CellTypes) -> PodRules:
    """The rules that stand in the document itself; the others stand with cells and virtual clusters."""
    return PodRules(
        scheduler_names=_read_scheduler_names(given),
        priority_classes=given.value("priorityClasses", {}),
        topology_levels={
            name: _read_cell_type(given.reader, value, types)
            for name, _, value in _LEVELS.fields(given.reader, given.nodes.get("topologyLevels"))
        },
        foreign_devices=given.value("foreignDevices", {}),
        grace=Grace(given.value(LENT_KEY), given.value(PREEMPTED_KEY)),
    )


def check_foreign(reader: Reader, node: yaml.Node | None, rules: PodRules, cluster: ClusterSpec) -> None:
    """Warn of resources under `foreignDevices` that no leaf cell type means: nothing follows from them."""
    known = set(rules.resources_in(cluster).values())
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        name = getattr(key, "value", "")
        if name in rules.foreign_devices and name not in known:
            expected = "the resource of a leaf cell type, or nothing follows from it"
            reader.note(key, f"resource {shorten(name)}", expected, closest(name, known), is_warning=True)


def _read_scheduler_names(given: Given) -> tuple[str, ...]:
    node = given.nodes.get("schedulerNames")
    if isinstance(node, yaml.SequenceNode) and not node.value:
        expected = f"{_SCHEDULER_NAMES.item.what}; leave the key out for {', '.join(SCHEDULER_NAMES)}"
        given.reader.note(node, "no name", expected)
    return tuple(given.value("schedulerNames"))


def _read_cell_type(reader: Reader, node: yaml.Node, types: CellTypes) -> str:
    name: str = _LEVELS.values.read(reader, node)
    is_noted = not isinstance(node, yaml.ScalarNode)
    if types.is_given and not is_noted and name not in types.names:
        reader.note(node, f"cell type {shorten(name)}", _LEVELS.values.what, closest(name, types.names))
    return name
