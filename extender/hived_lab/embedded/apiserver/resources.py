"""The table of everything served: one row per resource, from which paths, kubectl's tables and discovery follow.

The OpenAPI document says which paths, verbs and parameters exist, which is what kubectl needs to send
`fieldValidation`; it has no schemas of the objects.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from hived_extender.api.inspection import duration, parse_time
from hived_extender.jobs.kinds.kubeflow import REPLICA_SPECS
from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import (
    ConfigMapStrategy,
    EventStrategy,
    JobStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PodStrategy,
    PriorityClassStrategy,
    StatusStrategy,
    Strategy,
)
from hived_lab.embedded.apiserver.models import View

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of one kind and how to fill them from a view."""

    columns: list[Body]
    cells: Callable[[Any], Cells]


def table(printer: Printer, objects: Iterable[tuple[View, Body]], include: str, metadata: Body) -> Body:
    """Return `objects` (view and body) as a `Table`.

    `include` says what a row carries beside its cells: "Object", "Metadata" or "None".
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": printer.columns,
        "rows": [_row(printer, view, body, include) for view, body in objects],
    }


def _row(printer: Printer, view: View, body: Body, include: str) -> Body:
    row: Body = {"cells": printer.cells(view)}
    if include == "Object":
        row["object"] = body
    elif include != "None":
        metadata = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": body["metadata"]}
        row["object"] = metadata
    return row


def age(since: str) -> str:
    """Return the time since an RFC 3339 `since` as Kubernetes shortens it, "<unknown>" if there is none."""
    moment = parse_time(since)
    return "<unknown>" if moment is None else duration((datetime.now(UTC) - moment).total_seconds())


def _or_none(text: str) -> str:
    return text or "<none>"


def _pod_state(pod: View) -> str:
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    if pod.spec.scheduling_gates and not pod.spec.node_name:
        return "SchedulingGated"
    for container in pod.status.container_statuses:
        state = container.state.waiting or container.state.terminated
        if state is not None and state.reason:
            return str(state.reason)
    return str(pod.status.reason or pod.status.phase or "Unknown")


def _node_state(node: View) -> str:
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "Unknown")
    is_known = ready != "Unknown" or node.status.conditions
    state = ("Ready" if ready == "True" else "NotReady") if is_known else "Unknown"
    return ",".join((state, "SchedulingDisabled") if node.spec.unschedulable else (state,))


def _node_roles(node: View) -> str:
    prefix = "node-role.kubernetes.io/"
    return _or_none(
        ",".join(sorted(key.removeprefix(prefix) for key in node.metadata.labels if key.startswith(prefix)))
    )


def _node_address(node: View) -> str:
    return _or_none(next((one.address for one in node.status.addresses if one.type == "InternalIP"), ""))


def _event_source(event: View) -> str:
    source = event.source.component or event.reporting_component
    return ", ".join(part for part in (source, event.source.host) if part)


def _first_seen(event: View) -> str:
    return str(event.first_timestamp or event.event_time)


def _last_seen(event: View) -> str:
    return str(event.series.last_observed_time if event.series else event.last_timestamp or _first_seen(event))


Column = tuple[str, Callable[[Any], Any]]


def _table(*plain: Column, wide: Iterable[Column] = ()) -> Printer:
    """A printer of columns: each its name, with a type after a colon if it is no string, and its cell of a view.

    The `wide` ones are for -o wide.
    """
    columns: list[Body] = []
    for priority, some in enumerate((plain, wide := tuple(wide))):
        for text, _ in some:
            name, _, kind = text.partition(":")
            form = "name" if name == "Name" else ""
            column = {"name": name, "type": kind or "string", "format": form, "description": name, "priority": priority}
            columns.append(column)
    return Printer(columns, lambda view: [cell(view) for _, cell in (*plain, *wide)])


_NAME = ("Name", lambda one: one.metadata.name)
_AGE = ("Age", lambda one: age(one.metadata.creation_timestamp))
POD = _table(
    _NAME,
    ("Ready", lambda pod: f"{sum(one.ready for one in pod.status.container_statuses)}/{len(pod.spec.containers)}"),
    ("Status", _pod_state),
    ("Restarts", lambda pod: str(sum(one.restart_count for one in pod.status.container_statuses))),
    _AGE,
    wide=(
        ("IP", lambda pod: _or_none(pod.status.pod_ip)),
        ("Node", lambda pod: _or_none(pod.spec.node_name)),
        ("Nominated Node", lambda pod: _or_none(pod.status.nominated_node_name)),
        ("Readiness Gates", lambda pod: "<none>"),
    ),
)
NODE = _table(
    _NAME,
    ("Status", _node_state),
    ("Roles", _node_roles),
    _AGE,
    ("Version", lambda node: node.status.node_info.kubelet_version),
    wide=(
        ("Internal-IP", _node_address),
        ("External-IP", lambda node: "<none>"),
        ("OS-Image", lambda node: node.status.node_info.os_image or "<unknown>"),
        ("Kernel-Version", lambda node: node.status.node_info.kernel_version or "<unknown>"),
        ("Container-Runtime", lambda node: node.status.node_info.container_runtime_version or "<unknown>"),
    ),
)
EVENT = _table(
    ("Last Seen", lambda event: age(_last_seen(event))),
    ("Type", lambda event: event.type),
    ("Reason", lambda event: event.reason),
    ("Object", lambda event: f"{event.involved_object.kind.lower()}/{event.involved_object.name}"),
    ("Message", lambda event: event.message.strip()),
    wide=(
        ("Subobject", lambda event: event.involved_object.field_path),
        ("Source", _event_source),
        ("First Seen", lambda event: age(_first_seen(event))),
        ("Count:integer", lambda event: event.series.count if event.series else event.count or 1),
        _NAME,
    ),
)
PLAIN = _table(_NAME, _AGE)
NAMESPACE = _table(_NAME, ("Status", lambda one: one.status.phase), _AGE)
LEASE = _table(_NAME, ("Holder", lambda one: one.spec.holder_identity), _AGE)
CONFIG_MAP = _table(_NAME, ("Data:integer", lambda one: len(one.data) + len(one.binary_data)), _AGE)
PRIORITY_CLASS = _table(
    _NAME,
    ("Value:integer", lambda one: one.value),
    ("Global-Default:boolean", lambda one: one.global_default),
    _AGE,
    ("PreemptionPolicy", lambda one: one.preemption_policy),
)
QUEUE = _table(
    _NAME,
    ("Policy", lambda one: one.spec.get("queuePolicy")),
    ("Priority:integer", lambda one: one.spec.get("priority")),
    _AGE,
)
QUEUE_UNIT = _table(
    _NAME,
    ("Phase", lambda one: one.status.get("phase")),
    ("Priority:integer", lambda one: one.spec.get("priority")),
    ("JobType", lambda one: one.spec.get("consumerRef", {}).get("kind")),
    ("Queue", lambda one: one.spec.get("queue")),
    _AGE,
)
POD_GROUP = _table(
    _NAME,
    ("Phase", lambda one: one.status.phase),
    ("MinMember:integer", lambda one: one.spec.min_member),
    ("Running:integer", lambda one: one.status.running),
    ("Succeeded:integer", lambda one: one.status.succeeded),
    ("Failed:integer", lambda one: one.status.failed),
    _AGE,
)
VOLCANO_POD_GROUP = _table(
    _NAME,
    ("Status", lambda one: one.status.phase),
    ("minMember:integer", lambda one: one.spec.min_member),
    ("Runnings:integer", lambda one: one.status.running),
    _AGE,
    wide=(("Queue", lambda one: one.spec.queue),),
)


JOB_STATE = _table(_NAME, ("State", lambda one: (one.status.get("conditions") or [{}])[-1].get("type")), _AGE)
ELASTIC_JOB = _table(_NAME, ("Phase", lambda one: one.status.get("phase")), _AGE)
VOLCANO_JOB = _table(
    _NAME,
    ("Status", lambda one: one.status.get("state", {}).get("phase")),
    ("minAvailable:integer", lambda one: one.spec.get("minAvailable")),
    ("Runnings:integer", lambda one: one.status.get("running")),
    _AGE,
    wide=(("Queue", lambda one: one.spec.get("queue")),),
)


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
    """The form of a resource for clients, where it differs from the stored form."""

    to_wire: Callable[[Body], Body]
    from_wire: Callable[[Body], Body]


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource of one API version; `storage` names the collection, which several versions may share."""

    group: str
    version: str
    plural: str
    kind: str
    view: type[Any]
    strategy: Strategy
    printer: Printer
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

    def to_wire(self, body: Body) -> Body:
        """Return a stored object as clients have it."""
        return self.wire.to_wire(body) if self.wire else body

    def from_wire(self, body: Body) -> Body:
        """Return an object of a client as it is stored."""
        return self.wire.from_wire(body) if self.wire else body

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
    "", "v1", "namespaces", "Namespace", models.Namespace, NamespaceStrategy(), NAMESPACE, is_namespaced=False,
    short_names=("ns",), subresources=(_status("Namespace"),),
)  # fmt: skip
NODES = ResourceType(
    "", "v1", "nodes", "Node", models.Node, NodeStrategy(), NODE, is_namespaced=False, short_names=("no",),
    subresources=(_status("Node"),),
)  # fmt: skip
PODS = ResourceType(
    "", "v1", "pods", "Pod", models.Pod, PodStrategy(), POD, short_names=("po",), categories=("all",),
    subresources=(
        _status("Pod"),
        Subresource("binding", "Binding", ("create",)),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        Subresource("log", "Pod", ("get",)),
    ),
)  # fmt: skip
CONFIG_MAPS = ResourceType(
    "", "v1", "configmaps", "ConfigMap", models.ConfigMap, ConfigMapStrategy(), CONFIG_MAP, short_names=("cm",)
)
CORE_EVENTS = ResourceType(
    "", "v1", "events", "Event", models.Event, EventStrategy(), EVENT, short_names=("ev",), storage="events"
)
EVENTS = replace(CORE_EVENTS, group="events.k8s.io", wire=Wire(_event_to_wire, _event_from_wire))
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease", models.Lease, LeaseStrategy(), LEASE)
PRIORITY_CLASSES = ResourceType(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", models.PriorityClass, PriorityClassStrategy(),
    PRIORITY_CLASS, is_namespaced=False, short_names=("pc",),
)  # fmt: skip


def _object(
    group: str,
    version: str,
    kind: str,
    view: type[Any] = models.OpenObject,
    printer: Printer = PLAIN,
    **more: Any,
) -> ResourceType:
    plural, below = f"{kind.lower()}s", (_status(kind, group, version),)
    return ResourceType(group, version, plural, kind, view, StatusStrategy(), printer, subresources=below, **more)


VOLCANO_POD_GROUPS = _object("scheduling.volcano.sh", "v1beta1", "PodGroup", models.PodGroup, VOLCANO_POD_GROUP)
OLD_POD_GROUPS = _object("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", models.PodGroup, POD_GROUP)
GANG_OBJECTS = (
    _object("scheduling.x-k8s.io", "v1alpha1", "PodGroup", models.PodGroup, POD_GROUP),
    OLD_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    _object("scheduling.k8s.io", "v1alpha2", "PodGroup"),
    _object("scheduling.k8s.io", "v1alpha1", "Workload"),
)
JOBS = ResourceType(
    "batch", "v1", "jobs", "Job", models.Job, JobStrategy(), PLAIN, subresources=(_status("Job", "batch"),)
)
JOB_SETS = _object("jobset.x-k8s.io", "v1alpha2", "JobSet", models.JobSet)
RAY_CLUSTERS = _object("ray.io", "v1", "RayCluster")
JOB_OBJECTS = (
    JOBS,
    JOB_SETS,
    *(_object("kubeflow.org", "v1", kind, printer=JOB_STATE) for kind in REPLICA_SPECS),
    _object("kubeflow.org", "v2beta1", "MPIJob", printer=JOB_STATE),
    _object("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    _object("elastic.iml.github.io", "v1alpha1", "ElasticJob", printer=ELASTIC_JOB),
    _object("batch.volcano.sh", "v1alpha1", "Job", printer=VOLCANO_JOB, short_names=("vcjob", "vj")),
    _object("ray.io", "v1", "RayJob"),
    RAY_CLUSTERS,
)
REPLICA_SETS = _object("apps", "v1", "ReplicaSet", short_names=("rs",))
CRON_JOBS = _object("batch", "v1", "CronJob", short_names=("cj",))
POD_SETS = (
    _object("apps", "v1", "Deployment", short_names=("deploy",)),
    REPLICA_SETS,
    _object("apps", "v1", "StatefulSet", short_names=("sts",)),
    _object("ray.io", "v1", "RayService"),
    CRON_JOBS,
    _object("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", short_names=("lws",)),
)
"""Kinds of others whose controllers keep pods, or objects that have pods."""

VOLCANO_COMMANDS = _object("bus.volcano.sh", "v1alpha1", "Command")
QUOTA_TREES = _object("scheduling.sigs.k8s.io", "v1beta1", "ElasticQuotaTree", short_names=("eqtree",))
QUEUE_UNITS = _object("scheduling.x-k8s.io", "v1alpha1", "QueueUnit", printer=QUEUE_UNIT, short_names=("qu", "qus"))
QUEUE_OBJECTS = (QUOTA_TREES, _object("scheduling.x-k8s.io", "v1alpha1", "Queue", printer=QUEUE), QUEUE_UNITS)
KUEUE_OBJECTS = (
    _object("kueue.x-k8s.io", "v1beta2", "Workload"),
    _object("kueue.x-k8s.io", "v1beta2", "AdmissionCheck", is_namespaced=False),
    _object("kueue.x-k8s.io", "v1beta2", "ResourceFlavor", is_namespaced=False),
    _object("kueue.x-k8s.io", "v1beta2", "ClusterQueue", is_namespaced=False),
)
RESOURCES = (
    NAMESPACES, NODES, PODS, CONFIG_MAPS, CORE_EVENTS, EVENTS, LEASES, PRIORITY_CLASSES, *GANG_OBJECTS, *JOB_OBJECTS,
    *POD_SETS, VOLCANO_COMMANDS, *QUEUE_OBJECTS, *KUEUE_OBJECTS,
)  # fmt: skip
# Exists for discovery alone: kubectl evicts only where it finds this group.
EVICTION_GROUP_VERSION = ("policy", "v1")


VERSION: Body = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0+hived",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "hived/embedded",
}
_HEALTH_PATHS = ("healthz", "livez", "readyz")
# kubectl distrusts a group without resources; one without verbs is nothing that it would list or ask for.
_UNSERVED_BUDGETS: Body = {
    "name": "poddisruptionbudgets",
    "singularName": "poddisruptionbudget",
    "namespaced": True,
    "kind": "PodDisruptionBudget",
    "verbs": [],
}
_NAMED_VERBS = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_COLLECTION_VERBS = {"get": "list", "post": "create", "delete": "deletecollection"}
_LIST_PARAMETERS = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_DELETE_PARAMETERS = ("dryRun", "gracePeriodSeconds", "propagationPolicy")


def document(parts: tuple[str, ...]) -> Body | str | None:
    """Return what a GET of the path `parts` finds: an object, plain text, or None if there is nothing."""
    match parts:
        case ("version",):
            return VERSION
        case (health,) if health in _HEALTH_PATHS:
            return "ok"
        case ("api",):
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ("apis",):
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _group_names()]}
        case ("apis", group) if group in _group_names():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ("api", version):
            return _resource_list("", version)
        case ("apis", group, version):
            return _resource_list(group, version)
        case ("openapi", "v3"):
            return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in _group_version_paths()}}
        case ("openapi", "v3", *rest) if "/".join(rest) in _group_version_paths():
            return _openapi("/".join(rest))
    return None


@cache
def _group_versions() -> tuple[tuple[str, str], ...]:
    served = [(resource.group, resource.version) for resource in RESOURCES]
    return tuple(dict.fromkeys([*served, EVICTION_GROUP_VERSION]))


def _group_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(group for group, _ in _group_versions() if group))


def _group_version_paths() -> tuple[str, ...]:
    return tuple(f"apis/{group}/{version}" if group else f"api/{version}" for group, version in _group_versions())


def _group(name: str) -> Body:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for group, version in _group_versions()
        if group == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, version: str) -> Body | None:
    if (group, version) not in _group_versions():
        return None
    rows: list[Body] = []
    for resource in RESOURCES:
        if (resource.group, resource.version) == (group, version):
            rows.extend(_resource_rows(resource))
    if (group, version) == EVICTION_GROUP_VERSION:
        rows.append(_UNSERVED_BUDGETS)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": rows,
    }


def _resource_rows(resource: ResourceType) -> list[Body]:
    row: Body = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.is_namespaced,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    if resource.categories:
        row["categories"] = list(resource.categories)
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    rows = [row]
    for sub in resource.subresources:
        below: Body = {
            "name": f"{resource.plural}/{sub.name}",
            "singularName": "",
            "namespaced": resource.is_namespaced,
            "kind": sub.kind,
            "verbs": list(sub.verbs),
        }
        if sub.group:
            below |= {"group": sub.group, "version": sub.version}
        rows.append(below)
    return rows


def _openapi(group_version_path: str) -> Body:
    paths: dict[str, Body] = {}
    for resource in RESOURCES:
        if resource.base_path == f"/{group_version_path}":
            prefix = f"{resource.base_path}/namespaces/{{namespace}}" if resource.is_namespaced else resource.base_path
            paths[f"{prefix}/{resource.plural}"] = _operations(resource, _COLLECTION_VERBS)
            paths[f"{prefix}/{resource.plural}/{{name}}"] = _operations(resource, _NAMED_VERBS)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes, embedded", "version": "v1.32.0"},
        "paths": paths,
        "components": {"schemas": {}},
    }


def _operations(resource: ResourceType, verbs: dict[str, str]) -> Body:
    return {method: _operation(resource, method, action) for method, action in verbs.items()}


def _operation(resource: ResourceType, method: str, action: str) -> Body:
    names = {"list": _LIST_PARAMETERS, "get": (), "delete": _DELETE_PARAMETERS, "deletecollection": _DELETE_PARAMETERS}
    return {
        "operationId": f"{action}{resource.kind}{resource.group.partition('.')[0]}{resource.version}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string"}} for name in names.get(action, _WRITE_PARAMETERS)
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "post" if method == "post" else method,
        "x-kubernetes-group-version-kind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
    }
