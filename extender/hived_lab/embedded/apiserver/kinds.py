"""The rules of each kind: defaults, validation, selectable fields, allowed changes, deletion; binding of pods."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import msgspec

from hived_config.quantities import canonical
from hived_extender.kube.clocks import timestamp
from hived_extender.kube_rules.nodes import CORDON
from hived_extender.kube_rules.resource_rules import Fault, quantity_faults, resource_faults
from hived_lab.embedded.apiserver.bodies import Body, conflict, forbidden
from hived_lab.embedded.apiserver.models import DNS_LABEL_RULE, View, is_dns_label, label_causes
from hived_lab.embedded.apiserver.store import Revision

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PERMANENT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-queue", "kube-system")


class Lookup(Protocol):
    """The part of the registry that defaults may depend on."""

    def priority_classes(self) -> Mapping[str, Revision]:
        """Return the priority classes by name."""


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


def turn_condition(status: Body, kind: str, value: str, reason: str, message: str, **more: str) -> Body:
    """Return `status` with the condition, or as it is if that has this value; one that is not there is False."""
    known = next((one["status"] for one in status.get("conditions", ()) if one.get("type") == kind), "False")
    if known == value:
        return status
    return set_condition(status, {"type": kind, "status": value, **more, "reason": reason, "message": message})


class Strategy:
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

    def causes(self, view: View, old: View | None) -> Iterator[Fault]:
        """Yield the rules of the kind that `view` breaks; `old` is the object it replaces, if any."""
        yield from ()

    def change_causes(self, old: Body, new: Body) -> Iterator[Fault]:
        """Yield what an update of the main resource changes though it may not."""
        yield from ()

    def grace_s(self, view: View, requested: int | None) -> int:
        """Return how many seconds a deletion waits for a node to stop the object; 0 removes it at once."""
        return 0


class StatusStrategy(Strategy):
    """A kind whose status is written through the subresource alone."""

    def carry_over(self, old: Body, new: Body) -> Body:
        kept = {key: value for key, value in new.items() if key != "status"}
        return {**kept, "status": old["status"]} if "status" in old else kept


def _cordons(node: Body) -> list[Body]:
    return [one for one in node.get("spec", {}).get("taints", []) if one["key"] == CORDON.key]


class NodeStrategy(StatusStrategy):
    """Nodes: created with their status, as kubelets do, and scheduled upon by it.

    A cordoned one has the taint of that, with its moment: elsewhere the node lifecycle controller writes it.
    """

    def carry_over(self, old: Body, new: Body) -> Body:
        body = super().carry_over(old, new)
        spec, before = body.get("spec", {}), _cordons(old)
        others = [one for one in spec.get("taints", []) if one["key"] != CORDON.key]
        if spec.get("unschedulable"):
            others += before or [{"key": CORDON.key, "effect": CORDON.effect, "timeAdded": timestamp()}]
        kept = {field: value for field, value in spec.items() if field != "taints"}
        return {**body, "spec": kept | ({"taints": others} if others else {})}

    def fields(self, node: View) -> dict[str, str]:
        return {**super().fields(node), "spec.unschedulable": "true" if node.spec.unschedulable else "false"}

    def default(self, body: Body) -> Body:
        status = dict(body.get("status", {}))
        for field in ("capacity", "allocatable"):
            if field in status:
                status[field] = with_text_quantities(status[field])
        return {**body, "spec": body.get("spec", {}), "status": status}

    def causes(self, node: View, old: View | None) -> Iterator[Fault]:
        for index, taint in enumerate(node.spec.taints):
            if taint.effect not in TAINT_EFFECTS:
                message = f"Unsupported value: {taint.effect!r}"
                yield Fault(f"spec.taints[{index}].effect", message, "FieldValueNotSupported")
        for field, quantities in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
            for name, value in quantities.items():
                yield from quantity_faults(f"status.{field}[{name}]", name, value)


class NamespaceStrategy(StatusStrategy):
    """Namespaces: Active from the start."""

    has_label_name = True

    def fields(self, view: View) -> dict[str, str]:
        return {**super().fields(view), "status.phase": view.status.phase}

    def admit(self, body: Body, lookup: Lookup) -> Body:
        return {**body, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


class EventStrategy(Strategy):
    """Events: found by the object that they are about, in whose namespace they live."""

    def fields(self, event: View) -> dict[str, str]:
        return {
            **super().fields(event),
            **{f"involvedObject.{key}": value for key, value in msgspec.to_builtins(event.involved_object).items()},
            "reason": event.reason,
            "reportingComponent": event.reporting_component,
            "source": event.source.component,
            "type": event.type,
        }

    def causes(self, event: View, old: View | None) -> Iterator[Fault]:
        namespace, about = event.metadata.namespace, event.involved_object.namespace
        if namespace != (about or "default"):
            yield Fault("involvedObject.namespace", f"Invalid value: {about!r}: does not match event.namespace")


class LeaseStrategy(Strategy):
    """Leases: durations and transitions are not negative."""

    def causes(self, view: View, old: View | None) -> Iterator[Fault]:
        spec = view.spec
        if spec.lease_duration_seconds is not None and spec.lease_duration_seconds <= 0:
            yield Fault("spec.leaseDurationSeconds", "Invalid value: must be greater than 0")
        if spec.lease_transitions < 0:
            yield Fault("spec.leaseTransitions", "Invalid value: must be greater than or equal to 0")


class ConfigMapStrategy(Strategy):
    """Config maps: keys are file names, and data may be sealed."""

    _KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
    _DATA = attrgetter("data", "binary_data", "immutable")

    def causes(self, config_map: View, before: View | None) -> Iterator[Fault]:
        for key in [*config_map.data, *config_map.binary_data]:
            if not self._KEY.fullmatch(key):
                yield Fault(f"data[{key}]", f"Invalid value: {key!r}: not a valid config key")
        for key in config_map.data.keys() & config_map.binary_data.keys():
            yield Fault(f"data[{key}]", f"Invalid value: {key!r}: duplicate of key present in binaryData")
        if before is not None and before.immutable and self._DATA(config_map) != self._DATA(before):
            yield Fault("data", "Forbidden: field is immutable when `immutable` is set", "FieldValueForbidden")


class PriorityClassStrategy(Strategy):
    """Priority classes: a value for ever, below those of the system."""

    def default(self, body: Body) -> Body:
        return {"preemptionPolicy": "PreemptLowerPriority", "value": 0, **body}

    def causes(self, view: View, old: View | None) -> Iterator[Fault]:
        name, value = view.metadata.name, view.value
        if value > HIGHEST_USER_PRIORITY and SYSTEM_PRIORITY_CLASSES.get(name) != value:
            yield Fault(
                "value", f"Forbidden: maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            )
        if value < -(2**31):
            yield Fault("value", f"Invalid value: {value}: must fit in 32 bits")
        if view.preemption_policy not in ("PreemptLowerPriority", "Never"):
            yield Fault("preemptionPolicy", f"Unsupported value: {view.preemption_policy!r}")
        if old is not None and old.value != value:
            yield Fault("value", "Forbidden: may not be changed in an update.", "FieldValueForbidden")


_SPEC_DEFAULTS: Body = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "securityContext": {},
}
_CONTAINER_DEFAULTS: Body = {
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_ADMITTED_FIELDS = ("priority", "preemptionPolicy", "priorityClassName")
_MUTABLE_SPEC_FIELDS = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds")


class PodStrategy(StatusStrategy):
    """Pods: defaults, admission by priority class, a spec that hardly changes, graceful deletion."""

    def fields(self, pod: View) -> dict[str, str]:
        return {
            **super().fields(pod),
            "spec.nodeName": pod.spec.node_name,
            "spec.restartPolicy": pod.spec.restart_policy,
            "spec.schedulerName": pod.spec.scheduler_name,
            "spec.serviceAccountName": pod.spec.service_account_name,
            "status.phase": pod.status.phase,
            "status.podIP": pod.status.pod_ip,
            "status.nominatedNodeName": pod.status.nominated_node_name,
        }

    def default(self, body: Body) -> Body:
        return {**body, "spec": _with_requests(with_spec_defaults(body.get("spec", {})))}

    def admit(self, body: Body, lookup: Lookup) -> Body:
        spec = {**body["spec"], **_admitted_priority(body["metadata"]["name"], body["spec"], lookup)}
        return {**body, "spec": spec, "status": {"phase": "Pending", "qosClass": _qos_class(spec)}}

    def carry_over(self, old: Body, new: Body) -> Body:
        kept = super().carry_over(old, new)
        admitted = {field: old["spec"][field] for field in _ADMITTED_FIELDS if field in old["spec"]}
        return {**kept, "spec": {**admitted, **kept["spec"]}}

    def causes(self, view: View, old: View | None) -> Iterator[Fault]:
        yield from spec_causes(view.spec, "spec")

    def change_causes(self, old: Body, new: Body) -> Iterator[Fault]:
        if _fixed_part(old["spec"]) != _fixed_part(new["spec"]):
            allowed = ", ".join(f"spec.{field}" for field in ("containers[*].image", *_MUTABLE_SPEC_FIELDS))
            message = f"Forbidden: pod updates may not change fields other than {allowed}"
            yield Fault("spec", message, "FieldValueForbidden")

    def grace_s(self, pod: View, requested: int | None) -> int:
        """As requested, else as the pod asks; nothing to wait for when no node runs it (any more)."""
        if not pod.spec.node_name or is_finished(pod):
            return 0
        return pod.spec.termination_grace_period_seconds if requested is None else max(0, requested)


def is_finished(pod: View) -> bool:
    """True if all containers of a pod have ended."""
    return pod.status.phase in ("Succeeded", "Failed")


def with_spec_defaults(spec: Body) -> Body:
    """Return the spec of a pod, or of a template of pods, with defaults."""
    spec = {**_SPEC_DEFAULTS, **spec}
    for field in ("containers", "initContainers"):
        if field in spec:
            is_of_host = bool(spec.get("hostNetwork"))
            spec[field] = [_completed_container(container, is_of_host) for container in spec[field]]
    return spec


def _with_requests(spec: Body) -> Body:
    """Return the spec of a pod whose containers request what they have a limit for; a template does not say so."""
    spec = dict(spec)
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            if "limits" in (resources := container["resources"]):
                requests = {**resources["limits"], **resources.get("requests", {})}
                spec[field][index] = {**container, "resources": {**resources, "requests": requests}}
    return spec


def spec_causes(spec: View, path: str) -> Iterator[Fault]:
    """Yield the rules that the spec of a pod, or of a template of pods, breaks."""
    if not spec.containers:
        yield Fault(f"{path}.containers", "Required value", "FieldValueRequired")
    if spec.restart_policy not in ("Always", "OnFailure", "Never"):
        supported = 'supported values: "Always", "OnFailure", "Never"'
        message = f'Unsupported value: "{spec.restart_policy}": {supported}'
        yield Fault(f"{path}.restartPolicy", message, "FieldValueNotSupported")
    if spec.termination_grace_period_seconds < 0:
        message = f"Invalid value: {spec.termination_grace_period_seconds}: must be greater than or equal to 0"
        yield Fault(f"{path}.terminationGracePeriodSeconds", message)
    seen: set[str] = set()
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            yield from _container_causes(f"{path}.{field}[{index}]", container, seen)
            seen.add(container.name)


def _fixed_part(spec: Body) -> Body:
    fixed = {key: value for key, value in spec.items() if key not in _MUTABLE_SPEC_FIELDS}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{key: value for key, value in one.items() if key != "image"} for one in fixed[field]]
    return fixed


def bound(revision: Revision, binding: View) -> Body:
    """Return the pod bound to the node of `binding`, which also hands over its annotations and labels.

    Raises ApiError (409) if the pod already has a node (even that one), is being deleted, or has a scheduling gate. It
    is raised as well if the binding is for another pod or version.
    """
    pod, name = revision.view, revision.key.name
    if binding.metadata.uid and binding.metadata.uid != pod.metadata.uid:
        why = f"Precondition failed: UID in precondition: {binding.metadata.uid}, UID in object meta: "
        raise conflict("pods", name, why + pod.metadata.uid)
    version = binding.metadata.resource_version
    if version and version != pod.metadata.resource_version:
        why = f"Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: "
        raise conflict("pods", name, why + pod.metadata.resource_version)
    if pod.metadata.deletion_timestamp:
        raise conflict("pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod.spec.node_name:
        raise conflict("pods/binding", name, f'pod {name} is already assigned to node "{pod.spec.node_name}"')
    if pod.spec.scheduling_gates:
        raise conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    body = revision.body
    metadata = dict(body["metadata"])
    for field, given in (("annotations", binding.metadata.annotations), ("labels", binding.metadata.labels)):
        if given:
            metadata[field] = {**metadata.get(field, {}), **given}
    status = set_condition(body.get("status", {}), {"type": "PodScheduled", "status": "True"})
    return {**body, "metadata": metadata, "spec": {**body["spec"], "nodeName": binding.target.name}, "status": status}


def marked_for_eviction(body: Body) -> Body:
    """Return the pod with the condition that says why it is about to go."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return {**body, "status": set_condition(body.get("status", {}), condition)}


def logs(pod: View) -> str:
    """Return the answer to a request for logs: what is known of the containers, which run no process."""
    lines = [f"pod {pod.metadata.namespace}/{pod.metadata.name}: {pod.status.phase or 'Pending'}"]
    if pod.spec.node_name:
        lines.append(f"node: {pod.spec.node_name}")
    lines.append("The embedded cluster runs no processes, so its containers write no logs.")
    return "\n".join(lines) + "\n"


def _completed_container(container: Body, is_of_host: bool) -> Body:
    resources = dict(container.get("resources", {}))
    for field in ("limits", "requests"):
        if field in resources:
            resources[field] = with_text_quantities(resources[field])
    completed = {**_CONTAINER_DEFAULTS, **container, "resources": resources}
    if "ports" in container:
        completed["ports"] = [_completed_port(port, is_of_host) for port in container["ports"]]
    return completed


def _completed_port(port: Body, is_of_host: bool) -> Body:
    own = {"hostPort": port["containerPort"]} if is_of_host and "containerPort" in port else {}
    return {"protocol": "TCP", **own, **port}


def _admitted_priority(name: str, spec: Body, lookup: Lookup) -> dict[str, Any]:
    """Return priority, class and policy as admission sets them; ApiError (403) for a class that does not exist, or a
    priority or policy that contradicts it."""
    classes = lookup.priority_classes()
    wanted = spec.get("priorityClassName", "")
    if not wanted:
        wanted = next((key for key, item in classes.items() if item.body.get("globalDefault")), "")
    if wanted and wanted not in classes:
        raise forbidden("pods", name, f"no PriorityClass with name {wanted} was found")
    value = int(classes[wanted].body["value"]) if wanted else 0
    computed = "must not be provided in pod spec; priority admission controller computed"
    if spec.get("priority", value) != value:
        why = f"the integer value of priority ({spec['priority']}) {computed} {value} from the given PriorityClass name"
        raise forbidden("pods", name, why)
    policy = classes[wanted].body.get("preemptionPolicy", "") if wanted else "PreemptLowerPriority"
    own = spec.get("preemptionPolicy") or policy
    if policy and own != policy:
        why = f"the string value of PreemptionPolicy ({own}) {computed} {policy} from the given PriorityClass name"
        raise forbidden("pods", name, why)
    admitted = {"priority": value, "preemptionPolicy": policy}
    return {**admitted, "priorityClassName": wanted} if wanted else admitted


def _qos_class(spec: Body) -> str:
    resources = [container.get("resources", {}) for container in spec.get("containers", [])]
    if not any(resource.get("limits") or resource.get("requests") for resource in resources):
        return "BestEffort"
    for resource in resources:
        limits, requests = resource.get("limits", {}), resource.get("requests", {})
        if any(name not in limits or limits[name] != requests.get(name) for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def _container_causes(path: str, container: View, seen: set[str]) -> Iterator[Fault]:
    if not container.name:
        yield Fault(f"{path}.name", "Required value", "FieldValueRequired")
    elif not is_dns_label(container.name):
        yield Fault(f"{path}.name", f'Invalid value: "{container.name}": {DNS_LABEL_RULE}')
    elif container.name in seen:
        yield Fault(f"{path}.name", f'Duplicate value: "{container.name}"', "FieldValueDuplicate")
    if not container.image:
        yield Fault(f"{path}.image", "Required value", "FieldValueRequired")
    yield from resource_faults(f"{path}.resources", container.resources.limits, container.resources.requests)


_JOB_NAME, _CONTROLLER_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
_OLD_JOB_NAME, _OLD_CONTROLLER_UID = "job-name", "controller-uid"
_OWN_LABELS = {_JOB_NAME, _CONTROLLER_UID, _OLD_JOB_NAME, _OLD_CONTROLLER_UID}
_FAILURES, _ANY_FAILURES = 6, 2**31 - 1

Spec = Mapping[str, Any]
"""A Job's spec as JSON has it, None for what it does not say."""


class _Rule(NamedTuple):
    """A rule of a Job's spec: the field, when it is broken, and what is said then; `{}` stands for the value."""

    field: str
    is_broken: Callable[[Spec], bool]
    message: str
    reason: str = "FieldValueInvalid"


def _not_negative(field: str) -> _Rule:
    message = "Invalid value: {}: must be greater than or equal to 0"
    return _Rule(field, lambda spec: (spec[field] or 0) < 0, message)


def _needs_indexes(field: str) -> _Rule:
    message = "Invalid value: {}: requires indexed completion mode"
    return _Rule(field, lambda spec: spec[field] is not None and spec["completionMode"] == "NonIndexed", message)


def _one_of(field: str, *values: str) -> _Rule:
    supported = ", ".join(f'"{value}"' for value in values)
    message = f"Unsupported value: {{}}: supported values: {supported}"
    return _Rule(field, lambda spec: spec[field] not in values, message, "FieldValueNotSupported")


def _required(field: str, message: str, is_missing: Callable[[Spec], bool]) -> _Rule:
    return _Rule(field, is_missing, f"Required value: {message}", "FieldValueRequired")


def _labels(spec: Spec) -> Mapping[str, str]:
    labels: Mapping[str, str] = spec["template"]["metadata"]["labels"]
    return labels


_RULES = (
    *map(_not_negative, ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit")),
    *map(_not_negative, ("ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes")),
    *map(_needs_indexes, ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")),
    _one_of("completionMode", "NonIndexed", "Indexed"),
    _one_of("podReplacementPolicy", "Failed", "TerminatingOrFailed"),
    _required(
        "backoffLimitPerIndex",
        "when maxFailedIndexes is specified",
        lambda spec: spec["maxFailedIndexes"] is not None and spec["backoffLimitPerIndex"] is None,
    ),
    _required(
        "completions",
        "when completion mode is Indexed",
        lambda spec: spec["completionMode"] == "Indexed" and spec["completions"] is None,
    ),
    _required(
        "template.spec.restartPolicy",
        'valid values: "OnFailure", "Never"',
        lambda spec: spec["template"]["spec"]["restartPolicy"] == "Always",
    ),
    _Rule(
        "maxFailedIndexes",
        lambda spec: (
            None not in (spec["maxFailedIndexes"], spec["completions"])
            and spec["maxFailedIndexes"] > spec["completions"]
            and spec["completionMode"] == "Indexed"
        ),
        "Invalid value: {}: must be less than or equal to completions",
    ),
    _Rule(
        "selector",
        lambda spec: not (spec["manualSelector"] or spec["selector"].get("matchLabels", {}).keys() <= _OWN_LABELS),
        "Invalid value: {}: `selector` not auto-generated",
    ),
    _Rule(
        "template.metadata.labels",
        lambda spec: not spec["selector"].get("matchLabels", {}).items() <= _labels(spec).items(),
        "Invalid value: {}: `selector` does not match template `labels`",
    ),
)
_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_MUTABLE_AT_REST = ("nodeSelector", "tolerations", "schedulingGates")
"""Of the pods of a suspended Job that has none, beside their labels, annotations, node affinity and resources."""


class JobStrategy(StatusStrategy):
    """Jobs of Kubernetes: a selector of the server's own, a template that hardly changes."""

    def default(self, body: Body) -> Body:
        spec = {"suspend": False, "manualSelector": False, "completionMode": "NonIndexed", **body.get("spec", {})}
        if "parallelism" not in spec:
            spec = {"completions": 1, **spec, "parallelism": 1}
        spec.setdefault("backoffLimit", _ANY_FAILURES if "backoffLimitPerIndex" in spec else _FAILURES)
        spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
        template = spec.get("template", {})
        spec["template"] = {**template, "spec": with_spec_defaults(template.get("spec", {}))}
        return {**body, "spec": spec}

    def admit(self, body: Body, lookup: Lookup) -> Body:
        spec, name, uid = dict(body["spec"]), body["metadata"]["name"], body["metadata"]["uid"]
        if not spec["manualSelector"]:
            own = {_OLD_JOB_NAME: name, _JOB_NAME: name, _OLD_CONTROLLER_UID: uid, _CONTROLLER_UID: uid}
            metadata = spec["template"].get("metadata", {})
            labelled = {**metadata, "labels": {**own, **metadata.get("labels", {})}}
            spec["template"] = {**spec["template"], "metadata": labelled}
            selector = spec.get("selector", {})
            spec["selector"] = {**selector, "matchLabels": {_CONTROLLER_UID: uid, **selector.get("matchLabels", {})}}
        return {**body, "spec": spec, "status": {}}

    def causes(self, view: View, old: View | None) -> Iterator[Fault]:
        spec = msgspec.to_builtins(view.spec)
        for rule in _RULES:
            if rule.is_broken(spec):
                value = reduce(lambda part, key: part[key], rule.field.split("."), spec)
                yield Fault(f"spec.{rule.field}", rule.message.format(_written(value)), rule.reason)
        yield from label_causes(view.spec.template.metadata, "spec.template.metadata")
        yield from spec_causes(view.spec.template.spec, "spec.template.spec")

    def change_causes(self, old: Body, new: Body) -> Iterator[Fault]:
        before, after = old["spec"], new["spec"]
        completions = after.get("completions")
        if completions != before.get("completions"):
            if after["completionMode"] != "Indexed":
                yield _immutable("completions", completions)
            elif completions is not None and completions != after["parallelism"]:
                message = f"Invalid value: {completions}: can only be modified in tandem with spec.parallelism"
                yield Fault("spec.completions", message)
        for field in _IMMUTABLE:
            if before.get(field) != after.get(field):
                yield _immutable(field, after.get(field))
        may_change = _is_at_rest(old)
        if _fixed_template(before["template"], may_change) != _fixed_template(after["template"], may_change):
            yield _immutable("template", after["template"])


def _immutable(field: str, value: object) -> Fault:
    return Fault(f"spec.{field}", f"Invalid value: {_written(value)}: field is immutable")


def _written(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _is_at_rest(job: Body) -> bool:
    """True if a Job is suspended, and its controller has seen that."""
    status = job.get("status", {})
    is_seen = any(one["type"] == "Suspended" and one["status"] == "True" for one in status.get("conditions", ()))
    return bool(job["spec"]["suspend"] and not status.get("active") and (is_seen or "startTime" not in status))


def _fixed_template(template: Body, may_change: bool) -> Body:
    """Return what an update has to leave of a template."""
    if not may_change:
        return template
    metadata = {
        key: value for key, value in template.get("metadata", {}).items() if key not in ("labels", "annotations")
    }
    spec = {key: value for key, value in template["spec"].items() if key not in _MUTABLE_AT_REST}
    affinity = {key: value for key, value in spec.pop("affinity", {}).items() if key != "nodeAffinity"}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [{key: value for key, value in one.items() if key != "resources"} for one in spec[field]]
    return {"metadata": metadata, "spec": spec, "affinity": affinity}
