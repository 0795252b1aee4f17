"""Rules of pods: requests in other dialects, grace periods, moves, and the queues of jobs."""

from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec
import yaml

from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.access import PREEMPTIBLE, PRIORITY_WORDS, AccessRules, Priority
from hived_config.chains import CellTypes
from hived_config.reader import (
    Boolean,
    Choice,
    Given,
    Integer,
    Key,
    ListOf,
    MapOf,
    Number,
    Reader,
    StructOf,
    Text,
    closest,
    name_text,
    shorten,
)
from hived_config.skus import GPU_DEVICE_CLASS, GPU_RESOURCE, RESOURCE

LENT_KEY, PREEMPTED_KEY = "lentGraceSeconds", "preemptionGraceSeconds"
_SECONDS = Integer("a whole number", 0, 86_400)


class Grace(msgspec.Struct, frozen=True):
    """Ceilings in seconds: of opportunistic pods, by virtual cluster where given, and of guaranteed pods."""

    lent_s: int = 300
    preempted_s: int = 3_600
    lent_of_vc: Mapping[str, int] = msgspec.field(default_factory=dict)

    def ceiling_s(self, vc: str, *, is_lent: bool) -> int:
        """The most seconds that a pod of a virtual cluster has to leave; `is_lent` if it runs opportunistically."""
        return self.lent_of_vc.get(vc, self.lent_s) if is_lent else self.preempted_s


DEFAULT = Grace()

GRACE_KEYS = (
    Key(
        LENT_KEY,
        _SECONDS,
        "the most seconds that an opportunistic pod has to leave; a shorter `terminationGracePeriodSeconds` "
        "counts; see [time to leave](preemption.md#time-to-leave)",
        DEFAULT.lent_s,
    ),
    Key(PREEMPTED_KEY, _SECONDS, "the same for a guaranteed pod that is preempted or moved", DEFAULT.preempted_s),
)

LENT_OF_VC_KEY = Key(
    LENT_KEY, _SECONDS, "`lentGraceSeconds` of its opportunistic pods", rule="that of all", is_nullable=False
)


class Budget(msgspec.Struct, frozen=True):
    """The most that moves for one virtual cluster may cost in an hour. `groups` is None for no limit."""

    gpu_hours: float
    groups: int | None = None


class Moving(msgspec.Struct, frozen=True):
    """`movable` are the virtual clusters whose groups may all be moved; `automatic` has the budgets of those in which
    the service makes room by itself.
    """

    movable: frozenset[str] = frozenset()
    automatic: Mapping[str, Budget] = msgspec.field(default_factory=dict)

    def of(self, vc: str) -> tuple[bool, Budget | None]:
        """Both, of one virtual cluster."""
        return vc in self.movable, self.automatic.get(vc)


DEFRAG = StructOf(
    "defrag",
    "how much room may be made by moving (a mapping)",
    "How much work the service may lose to make room in a virtual cluster by itself.",
    (
        Key(
            "maxGpuHours",
            Number("a number of GPU-hours"),
            "the most work that moves may lose in an hour, in GPU-hours; `0`: only groups that lose none are moved",
            is_required=True,
        ),
        Key(
            "maxGroups",
            Integer("a whole number of groups", 1),
            "the most groups that may be moved in an hour",
            rule="no limit",
        ),
    ),
    Budget,
)

MOVING_KEYS = (
    Key(
        "movable",
        Boolean(),
        "all its groups may be [moved](defrag.md) to make room; without it, only groups whose pods say `may-move`",
        False,
        is_nullable=False,
    ),
    Key(
        "defrag",
        DEFRAG,
        "the service [makes room](defrag.md#by-itself) for guaranteed jobs of this virtual cluster by itself",
        rule="it does not",
        is_nullable=False,
    ),
)


START_S = 600


class QueuePolicy(Enum):
    """The order of a queue: hived's, or Kube Queue's."""

    HIVED = "hived"
    PRIORITY = "Priority"
    BLOCK = "Block"
    ROUND = "Round"


class QueueOfVc(msgspec.Struct, frozen=True):
    """The queue of one virtual cluster. Limits are None for any number."""

    borrows: bool = False
    weight: float = 1.0
    most_running: int | None = None
    most_waiting: int | None = None


class Queueing(msgspec.Struct, frozen=True):
    """The rules of queues. `half_life_s`: borrowed use of the past counts less with time; 0 for present use alone.

    `start_s`: a resumed job has a pod with a node after so long, or waits again.
    """

    is_enabled: bool = False
    policy: QueuePolicy = QueuePolicy.HIVED
    half_life_s: float = 0.0
    start_s: float = START_S
    virtual_clusters: Mapping[str, QueueOfVc] = msgspec.field(default_factory=dict)

    def of(self, vc: str) -> QueueOfVc:
        """The queue of one virtual cluster."""
        return self.virtual_clusters.get(vc, QueueOfVc())


QUEUES = StructOf(
    "queues",
    "how jobs wait in queues (a mapping)",
    "Jobs wait as jobs: they are suspended until cells for all of their pods are held.",
    (
        Key("enabled", Boolean(), "jobs wait in queues until it is their turn; see [queues](queues.md)", False),
        Key(
            "policy",
            Choice(QueuePolicy),
            "the order: `hived` reserves a start for the first job and lets others past that do not delay it; "
            "`Priority`, `Block` and `Round` are Kube Queue's",
            QueuePolicy.HIVED,
        ),
        Key(
            "halfLifeMinutes",
            Number("a number of minutes", unit=60),
            "borrowed use of the past counts in the order of borrowers, half after so long",
            0.0,
            rule="present use alone counts",
        ),
        Key(
            "startMinutes",
            Number("a number of minutes", "a number of minutes above 0", 60),
            "a resumed job without a pod on a node after so long is suspended; it goes to the end of its queue and "
            "rests as long, and [longer each time](queued-jobs.md)",
            START_S,
        ),
    ),
    Queueing,
)
QUEUES_KEY = Key("queues", QUEUES, "jobs wait in [queues](queues.md)", rule="they do not", is_nullable=False)

QUEUE_OF_VC = StructOf(
    "queue",
    "the queue of a virtual cluster (a mapping)",
    "The queue of a virtual cluster's jobs, where `queues` is enabled.",
    (
        Key(
            "borrow",
            Boolean(),
            "its guaranteed jobs may borrow idle cells of others before their turn, which are reclaimed; with a "
            "quota tree its `max` decides",
            False,
        ),
        Key("weight", Number("a number", "a weight above 0"), "of its share of cells that are borrowed", 1.0),
        Key(
            "maxRunningPerUser",
            Integer("a whole number of jobs", 1),
            "the most jobs of one user of a namespace that run at a time",
            rule="no limit",
        ),
        Key(
            "maxWaitingPerUser",
            Integer("a whole number of jobs", 1),
            "the most waiting jobs of one user that take part in the order; the others do once some have started",
            rule="no limit",
        ),
    ),
    QueueOfVc,
)
QUEUE_OF_VC_KEY = Key(
    "queue", QUEUE_OF_VC, "its queue, where `queues` is enabled", rule="as by default", is_nullable=False
)


SCHEDULER_NAMES = ("hived", "hived-{vc}", "hivedscheduler-ds-{vc}")
"""The default schedulerNames of pods: of hived, `hived submit` and OpenPAI."""


class Foreign(Enum):
    """The treatment of devices that pods use without an allocation by hived."""

    OCCUPY = "occupy"
    IGNORE = "ignore"
    REFUSE = "refuse"


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
        "the values of schedulerName by which a pod is for hived; `{vc}` stands for each virtual cluster in lower case",
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
        "the cell type by the name of a level in topology wishes; see [topology wishes](#topology-wishes)",
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
    """The rules of pods of one configuration.

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
        """The treatment of this resource in pods that hived has not placed."""
        return self.foreign_devices.get(resource, Foreign.REFUSE)

    def refused_in(self, cluster: ClusterSpec) -> list[str]:
        """The device resources that pods of other schedulers are refused, ascending."""
        means = sorted(set(self.resources_in(cluster).values()))
        return [resource for resource in means if self.foreign(resource) is Foreign.REFUSE]

    def serves(self, scheduler_name: str, virtual_clusters: Iterable[str]) -> bool:
        """True if a pod with this schedulerName is scheduled by hived."""
        return scheduler_name in names_for(self.scheduler_names, virtual_clusters)


def names_for(scheduler_names: Iterable[str], virtual_clusters: Iterable[str]) -> list[str]:
    """The schedulerNames, each once; one with {vc} for each virtual cluster, in lower case as in `hived submit`."""
    vcs = [vc.lower() for vc in virtual_clusters]
    named = [[name.replace("{vc}", vc) for vc in vcs] if "{vc}" in name else [name] for name in scheduler_names]
    return list(dict.fromkeys(name for names in named for name in names))


def read_pod_rules(given: Given, types: CellTypes) -> PodRules:
    """Read the rules in the document itself; the others stand with cells and virtual clusters."""
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
    """Warn of resources under `foreignDevices` that no leaf cell type means: they have no effect."""
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
