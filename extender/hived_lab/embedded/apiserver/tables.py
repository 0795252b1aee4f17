"""The tables of `kubectl get`: objects as rows of a `Table`, with the columns of the real API server."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hived_extender.client.moments import duration, parse_time
from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.models import KubeObject

Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of one kind and how to fill them from a view."""

    columns: list[Body]
    cells: Callable[[Any], Cells]


def table(printer: Printer, objects: Iterable[tuple[KubeObject, Body]], include: str, metadata: Body) -> Body:
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


def _row(printer: Printer, view: KubeObject, body: Body, include: str) -> Body:
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


def _pod_cells(pod: models.Pod) -> Cells:
    containers = pod.status.container_statuses
    ready = f"{sum(one.ready for one in containers)}/{len(pod.spec.containers)}"
    restarts = str(sum(one.restart_count for one in containers))
    wide = [
        _or_none(pod.status.pod_ip),
        _or_none(pod.spec.node_name),
        _or_none(pod.status.nominated_node_name),
        "<none>",
    ]
    return [pod.metadata.name, ready, _pod_state(pod), restarts, age(pod.metadata.creation_timestamp), *wide]


def _pod_state(pod: models.Pod) -> str:
    if pod.metadata.deletion_timestamp:
        return "Terminating"
    if pod.spec.scheduling_gates and not pod.spec.node_name:
        return "SchedulingGated"
    for container in pod.status.container_statuses:
        state = container.state.waiting or container.state.terminated
        if state is not None and state.reason:
            return state.reason
    return pod.status.reason or pod.status.phase or "Unknown"


def _node_cells(node: models.Node) -> Cells:
    ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "Unknown")
    states = (
        ["Ready" if ready == "True" else "NotReady"] if ready != "Unknown" or node.status.conditions else ["Unknown"]
    )
    if node.spec.unschedulable:
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(key.removeprefix(prefix) for key in node.metadata.labels if key.startswith(prefix)))
    internal_ip = next((one.address for one in node.status.addresses if one.type == "InternalIP"), "")
    info = node.status.node_info
    return [
        node.metadata.name,
        ",".join(states),
        _or_none(roles),
        age(node.metadata.creation_timestamp),
        info.kubelet_version,
        _or_none(internal_ip),
        "<none>",
        info.os_image or "<unknown>",
        info.kernel_version or "<unknown>",
        info.container_runtime_version or "<unknown>",
    ]


def _event_cells(event: models.Event) -> Cells:
    about = event.involved_object
    first = event.first_timestamp or event.event_time
    last = event.series.last_observed_time if event.series else event.last_timestamp or first
    count = event.series.count if event.series else event.count or 1
    source = event.source.component or event.reporting_component
    return [
        age(last),
        event.type,
        event.reason,
        f"{about.kind.lower()}/{about.name}",
        event.message.strip(),
        about.field_path,
        ", ".join(part for part in (source, event.source.host) if part),
        age(first),
        count,
        event.metadata.name,
    ]


def _columns(plain: str, wide: str = "") -> list[Body]:
    """Columns from their names, each with its type after a colon if that is no string; `wide` ones are for -o wide."""
    columns: list[Body] = []
    for priority, names in enumerate((plain, wide)):
        for text in filter(None, names.split(", ")):
            name, _, kind = text.partition(":")
            form = "name" if name == "Name" else ""
            column = {"name": name, "type": kind or "string", "format": form, "description": name, "priority": priority}
            columns.append(column)
    return columns


POD = Printer(_columns("Name, Ready, Status, Restarts, Age", "IP, Node, Nominated Node, Readiness Gates"), _pod_cells)
NODE = Printer(
    _columns(
        "Name, Status, Roles, Age, Version", "Internal-IP, External-IP, OS-Image, Kernel-Version, Container-Runtime"
    ),
    _node_cells,
)
EVENT = Printer(
    _columns("Last Seen, Type, Reason, Object, Message", "Subobject, Source, First Seen, Count:integer, Name"),
    _event_cells,
)


def _table(*columns: tuple[str, Callable[[Any], Any]], wide: str = "") -> Printer:
    """A printer of columns, each with the function from a view to its cell; those named in `wide` are for -o wide."""
    plain = [name for name, _ in columns if name.partition(":")[0] != wide]
    return Printer(_columns(", ".join(plain), wide), lambda view: [cell(view) for _, cell in columns])


_NAME = ("Name", lambda one: one.metadata.name)
_AGE = ("Age", lambda one: age(one.metadata.creation_timestamp))
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
    ("Queue", lambda one: one.spec.queue),
    wide="Queue",
)
