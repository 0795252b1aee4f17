"""The rules of each kind: defaults, validation, selectable fields, deletion. Pods have a file of their own."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from hived_config.quantities import canonical
from hived_extender.kube_rules.resource_rules import quantity_faults
from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.models import KubeObject
from hived_lab.embedded.apiserver.statuses import Cause
from hived_lab.embedded.apiserver.store import Revision

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PERMANENT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-queue", "kube-system")


View = TypeVar("View", bound=KubeObject)


class Lookup(Protocol):
    """The part of the registry that defaults may depend on."""

    def priority_classes(self) -> Mapping[str, Revision]:
        """Return the priority classes by name."""


def timestamp() -> str:
    """Return the present moment as `metav1.Time` writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Return the present moment as `metav1.MicroTime` writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def with_text_quantities(quantities: Mapping[str, Any]) -> dict[str, str]:
    """Return `quantities` in the form in which Kubernetes always answers."""
    return {name: canonical(value) for name, value in quantities.items()}


def set_condition(status: Body, condition: Body) -> Body:
    """Return `status` with `condition` in place of the one of its type; lastTransitionTime moves with the status."""
    conditions: list[Body] = list(status.get("conditions", []))
    place = next((i for i, old in enumerate(conditions) if old.get("type") == condition["type"]), None)
    if place is None:
        conditions.append({"lastTransitionTime": timestamp(), **condition})
    else:
        old = conditions[place]
        is_same = old.get("status") == condition["status"]
        since = old.get("lastTransitionTime", timestamp()) if is_same else timestamp()
        conditions[place] = {"lastTransitionTime": since, **condition}
    return {**status, "conditions": conditions}


def turn_condition(status: Body, kind: str, value: str, reason: str, message: str) -> Body:
    """Return `status` with the condition, or as it is if that has this value; one that is not there is False."""
    known = next((one["status"] for one in status.get("conditions", ()) if one.get("type") == kind), "False")
    if known == value:
        return status
    return set_condition(status, {"type": kind, "status": value, "reason": reason, "message": message})


class Strategy(Generic[View]):
    """The rules of a kind that has none of its own; subclasses say what differs."""

    has_label_name = False

    def fields(self, view: View) -> dict[str, str]:
        """Return the fields that selectors see, the same ones for every object of the kind."""
        return {"metadata.name": view.metadata.name, "metadata.namespace": view.metadata.namespace}

    def default(self, body: Body) -> Body:
        """Return an object as sent (readable as its view) with the defaults of its kind."""
        return body

    def admit(self, body: Body, lookup: Lookup) -> Body:
        """Return a new object with what the server decides for it; may raise ApiError (403)."""
        return body

    def carry_over(self, old: Body, new: Body) -> Body:
        """Return an updated object with what an update of the main resource does not touch taken from `old`."""
        return new

    def causes(self, view: View, old: View | None) -> Iterator[Cause]:
        """Yield the rules of the kind that `view` breaks; `old` is the object it replaces, if any."""
        yield from ()

    def change_causes(self, old: Body, new: Body) -> Iterator[Cause]:
        """Yield what an update of the main resource changes though it may not."""
        yield from ()

    def grace_s(self, view: View, requested: int | None) -> int:
        """Return how many seconds a deletion waits for a node to stop the object; 0 removes it at once."""
        return 0


class StatusStrategy(Strategy[View]):
    """A kind whose status is written through the subresource alone."""

    def carry_over(self, old: Body, new: Body) -> Body:
        kept = {key: value for key, value in new.items() if key != "status"}
        return {**kept, "status": old["status"]} if "status" in old else kept


class NodeStrategy(StatusStrategy[models.Node]):
    """Nodes: created with their status, as kubelets do, and scheduled upon by it."""

    def fields(self, node: models.Node) -> dict[str, str]:
        return {**super().fields(node), "spec.unschedulable": "true" if node.spec.unschedulable else "false"}

    def default(self, body: Body) -> Body:
        status = dict(body.get("status", {}))
        for field in ("capacity", "allocatable"):
            if field in status:
                status[field] = with_text_quantities(status[field])
        return {**body, "spec": body.get("spec", {}), "status": status}

    def causes(self, node: models.Node, old: models.Node | None) -> Iterator[Cause]:
        for index, taint in enumerate(node.spec.taints):
            if taint.effect not in TAINT_EFFECTS:
                message = f"Unsupported value: {taint.effect!r}"
                yield Cause(f"spec.taints[{index}].effect", message, "FieldValueNotSupported")
        for field, quantities in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
            for name, value in quantities.items():
                for fault in quantity_faults(f"status.{field}[{name}]", name, value):
                    yield Cause(*fault)


class NamespaceStrategy(StatusStrategy[models.Namespace]):
    """Namespaces: Active from the start."""

    has_label_name = True

    def fields(self, view: models.Namespace) -> dict[str, str]:
        return {**super().fields(view), "status.phase": view.status.phase}

    def admit(self, body: Body, lookup: Lookup) -> Body:
        return {**body, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


class EventStrategy(Strategy[models.Event]):
    """Events: found by the object that they are about, in whose namespace they live."""

    def fields(self, event: models.Event) -> dict[str, str]:
        return {
            **super().fields(event),
            **{f"involvedObject.{key}": value for key, value in msgspec.to_builtins(event.involved_object).items()},
            "reason": event.reason,
            "reportingComponent": event.reporting_component,
            "source": event.source.component,
            "type": event.type,
        }

    def causes(self, event: models.Event, old: models.Event | None) -> Iterator[Cause]:
        namespace, about = event.metadata.namespace, event.involved_object.namespace
        if namespace != (about or "default"):
            yield Cause("involvedObject.namespace", f"Invalid value: {about!r}: does not match event.namespace")


class LeaseStrategy(Strategy[models.Lease]):
    """Leases: durations and transitions are not negative."""

    def causes(self, view: models.Lease, old: models.Lease | None) -> Iterator[Cause]:
        spec = view.spec
        if spec.lease_duration_seconds is not None and spec.lease_duration_seconds <= 0:
            yield Cause("spec.leaseDurationSeconds", "Invalid value: must be greater than 0")
        if spec.lease_transitions < 0:
            yield Cause("spec.leaseTransitions", "Invalid value: must be greater than or equal to 0")


class ConfigMapStrategy(Strategy[models.ConfigMap]):
    """Config maps: keys are file names, and data may be sealed."""

    _KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
    _DATA = attrgetter("data", "binary_data", "immutable")

    def causes(self, config_map: models.ConfigMap, before: models.ConfigMap | None) -> Iterator[Cause]:
        for key in [*config_map.data, *config_map.binary_data]:
            if not self._KEY.fullmatch(key):
                yield Cause(f"data[{key}]", f"Invalid value: {key!r}: not a valid config key")
        for key in config_map.data.keys() & config_map.binary_data.keys():
            yield Cause(f"data[{key}]", f"Invalid value: {key!r}: duplicate of key present in binaryData")
        if before is not None and before.immutable and self._DATA(config_map) != self._DATA(before):
            yield Cause("data", "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden")


class PriorityClassStrategy(Strategy[models.PriorityClass]):
    """Priority classes: a value for ever, below those of the system."""

    def default(self, body: Body) -> Body:
        return {"preemptionPolicy": "PreemptLowerPriority", "value": 0, **body}

    def causes(self, view: models.PriorityClass, old: models.PriorityClass | None) -> Iterator[Cause]:
        name, value = view.metadata.name, view.value
        if value > HIGHEST_USER_PRIORITY and SYSTEM_PRIORITY_CLASSES.get(name) != value:
            yield Cause(
                "value", f"Forbidden: maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            )
        if value < -(2**31):
            yield Cause("value", f"Invalid value: {value}: must fit in 32 bits")
        if view.preemption_policy not in ("PreemptLowerPriority", "Never"):
            yield Cause("preemptionPolicy", f"Unsupported value: {view.preemption_policy!r}")
        if old is not None and old.value != value:
            yield Cause("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")
