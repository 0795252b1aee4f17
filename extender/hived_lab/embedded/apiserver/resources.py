"""The table of everything served: one row per resource, from which paths, discovery and OpenAPI follow."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hived_lab.embedded.apiserver import models, tables
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.jobs import JobStrategy
from hived_lab.embedded.apiserver.kinds import (
    ConfigMapStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PriorityClassStrategy,
    StatusStrategy,
    Strategy,
)
from hived_lab.embedded.apiserver.models import KubeObject
from hived_lab.embedded.apiserver.pods import PodStrategy

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object: the kind that is exchanged there and what can be done with it."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = "v1"


@dataclass(frozen=True, slots=True)
class Wire:
    """How a resource is written when that is not the form in which it is stored."""

    to_wire: Callable[[Body], Body]
    from_wire: Callable[[Body], Body]


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource of one API version; `storage` names the collection, which several versions may share."""

    group: str
    version: str
    plural: str
    kind: str
    view: type[KubeObject]
    strategy: Strategy[Any]
    printer: tables.Printer
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    categories: tuple[str, ...] = ()
    storage: str = ""
    wire: Wire | None = None

    @property
    def api_version(self) -> str:
        """Group and version as objects write them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def base_path(self) -> str:
        """The path that all resources of the group version are below."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def label(self) -> str:
        """The resource as messages name it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def collection_name(self) -> str:
        """The name of the collection in the store."""
        return self.storage or self.label


# events.k8s.io/v1 name -> core/v1 name; everything else is the same in both.
_EVENT_FIELDS = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_EVENT_FIELDS = {core: new for new, core in _EVENT_FIELDS.items()}


def _event_to_wire(body: Body) -> Body:
    renamed = {_CORE_EVENT_FIELDS.get(key, key): value for key, value in body.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def _event_from_wire(body: Body) -> Body:
    return {**{_EVENT_FIELDS.get(key, key): value for key, value in body.items()}, "apiVersion": "v1"}


def _status(kind: str, group: str = "", version: str = "v1") -> Subresource:
    return Subresource("status", kind, ("get", "patch", "update"), group, version)


NAMESPACES = ResourceType(
    "", "v1", "namespaces", "Namespace", models.Namespace, NamespaceStrategy(), tables.NAMESPACE, is_namespaced=False,
    short_names=("ns",), subresources=(_status("Namespace"),),
)  # fmt: skip
NODES = ResourceType(
    "", "v1", "nodes", "Node", models.Node, NodeStrategy(), tables.NODE, is_namespaced=False, short_names=("no",),
    subresources=(_status("Node"),),
)  # fmt: skip
PODS = ResourceType(
    "", "v1", "pods", "Pod", models.Pod, PodStrategy(), tables.POD, short_names=("po",), categories=("all",),
    subresources=(
        _status("Pod"),
        Subresource("binding", "Binding", ("create",)),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        Subresource("log", "Pod", ("get",)),
    ),
)  # fmt: skip
CONFIG_MAPS = ResourceType(
    "", "v1", "configmaps", "ConfigMap", models.ConfigMap, ConfigMapStrategy(), tables.CONFIG_MAP, short_names=("cm",)
)
CORE_EVENTS = ResourceType(
    "", "v1", "events", "Event", models.Event, EventStrategy(), tables.EVENT, short_names=("ev",), storage="events"
)
EVENTS = replace(CORE_EVENTS, group="events.k8s.io", wire=Wire(_event_to_wire, _event_from_wire))
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease", models.Lease, LeaseStrategy(), tables.LEASE)
PRIORITY_CLASSES = ResourceType(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", models.PriorityClass, PriorityClassStrategy(),
    tables.PRIORITY_CLASS, is_namespaced=False, short_names=("pc",),
)  # fmt: skip


def _gang_object(group: str, version: str, kind: str, view: type[KubeObject], printer: tables.Printer) -> ResourceType:
    status = _status(kind, group, version)
    plural = f"{kind.lower()}s"
    return ResourceType(group, version, plural, kind, view, StatusStrategy(), printer, subresources=(status,))


GANG_OBJECTS = (
    _gang_object("scheduling.x-k8s.io", "v1alpha1", "PodGroup", models.PodGroup, tables.POD_GROUP),
    _gang_object("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", models.PodGroup, tables.POD_GROUP),
    _gang_object("scheduling.volcano.sh", "v1beta1", "PodGroup", models.PodGroup, tables.VOLCANO_POD_GROUP),
    _gang_object("scheduling.k8s.io", "v1alpha2", "PodGroup", models.OpenObject, tables.PLAIN),
    _gang_object("scheduling.k8s.io", "v1alpha1", "Workload", models.OpenObject, tables.PLAIN),
)


def _object(
    group: str,
    version: str,
    kind: str,
    view: type[KubeObject] = models.OpenObject,
    printer: tables.Printer = tables.PLAIN,
    **more: Any,
) -> ResourceType:
    status = _status(kind, group, version)
    return ResourceType(
        group, version, f"{kind.lower()}s", kind, view, StatusStrategy(), printer, subresources=(status,), **more
    )


JOBS = ResourceType(
    "batch", "v1", "jobs", "Job", models.Job, JobStrategy(), tables.PLAIN, subresources=(_status("Job", "batch"),)
)
JOB_SETS = _object("jobset.x-k8s.io", "v1alpha2", "JobSet", models.JobSet)
JOB_OBJECTS = (
    JOBS,
    JOB_SETS,
    _object("kubeflow.org", "v1", "PyTorchJob"),
    _object("kubeflow.org", "v1", "TFJob"),
    _object("kubeflow.org", "v1", "MPIJob"),
)
QUOTA_TREES = _object("scheduling.sigs.k8s.io", "v1beta1", "ElasticQuotaTree", short_names=("eqtree",))
QUEUE_UNITS = _object(
    "scheduling.x-k8s.io", "v1alpha1", "QueueUnit", printer=tables.QUEUE_UNIT, short_names=("qu", "qus")
)
QUEUE_OBJECTS = (QUOTA_TREES, _object("scheduling.x-k8s.io", "v1alpha1", "Queue", printer=tables.QUEUE), QUEUE_UNITS)
KUEUE_OBJECTS = (
    _object("kueue.x-k8s.io", "v1beta2", "Workload"),
    _object("kueue.x-k8s.io", "v1beta2", "AdmissionCheck", is_namespaced=False),
    _object("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", is_namespaced=False),
    _object("kueue.x-k8s.io", "v1beta2", "ClusterQueue", is_namespaced=False),
)
RESOURCES = (
    NAMESPACES, NODES, PODS, CONFIG_MAPS, CORE_EVENTS, EVENTS, LEASES, PRIORITY_CLASSES, *GANG_OBJECTS, *JOB_OBJECTS,
    *QUEUE_OBJECTS, *KUEUE_OBJECTS,
)  # fmt: skip
# Exists for discovery alone: kubectl evicts only where it finds this group.
EVICTION_GROUP_VERSION = ("policy", "v1")
