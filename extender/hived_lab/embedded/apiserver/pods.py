"""Pods: defaults and admission, what an update may change, binding, eviction and graceful deletion."""

from collections.abc import Iterator
from typing import Any, cast

from hived_extender.kube_rules.resource_rules import resource_faults
from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import Lookup, StatusStrategy, set_condition, with_text_quantities
from hived_lab.embedded.apiserver.statuses import Cause, conflict, forbidden
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.apiserver.validation import DNS_LABEL_RULE, is_dns_label

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


class PodStrategy(StatusStrategy[models.Pod]):
    """Pods: defaults, admission by priority class, a spec that hardly changes, graceful deletion."""

    def fields(self, pod: models.Pod) -> dict[str, str]:
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

    def causes(self, view: models.Pod, old: models.Pod | None) -> Iterator[Cause]:
        yield from spec_causes(view.spec, "spec")

    def change_causes(self, old: Body, new: Body) -> Iterator[Cause]:
        if _fixed_part(old["spec"]) != _fixed_part(new["spec"]):
            allowed = ", ".join(f"spec.{field}" for field in ("containers[*].image", *_MUTABLE_SPEC_FIELDS))
            message = f"Forbidden: pod updates may not change fields other than {allowed}"
            yield Cause("spec", message, "FieldValueForbidden")

    def grace_s(self, pod: models.Pod, requested: int | None) -> int:
        """As requested, else as the pod asks; nothing to wait for when no node runs it (any more)."""
        if not pod.spec.node_name or pod.is_finished:
            return 0
        return pod.spec.termination_grace_period_seconds if requested is None else max(0, requested)


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


def spec_causes(spec: models.PodSpec, path: str) -> Iterator[Cause]:
    """Yield the rules that the spec of a pod, or of a template of pods, breaks."""
    if not spec.containers:
        yield Cause(f"{path}.containers", "Required value", "FieldValueRequired")
    if spec.restart_policy not in ("Always", "OnFailure", "Never"):
        supported = 'supported values: "Always", "OnFailure", "Never"'
        message = f'Unsupported value: "{spec.restart_policy}": {supported}'
        yield Cause(f"{path}.restartPolicy", message, "FieldValueNotSupported")
    if spec.termination_grace_period_seconds < 0:
        message = f"Invalid value: {spec.termination_grace_period_seconds}: must be greater than or equal to 0"
        yield Cause(f"{path}.terminationGracePeriodSeconds", message)
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


def bound(revision: Revision, binding: models.Binding) -> Body:
    """Return the pod bound to the node of `binding`, which also hands over its annotations and labels.

    Raises ApiError (409) if the pod already has a node (even that one), is being deleted, or has a scheduling gate. It
    is raised as well if the binding is for another pod or version.
    """
    pod, name = cast(models.Pod, revision.view), revision.key.name
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


def logs(pod: models.Pod) -> str:
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


def _container_causes(path: str, container: models.Container, seen: set[str]) -> Iterator[Cause]:
    if not container.name:
        yield Cause(f"{path}.name", "Required value", "FieldValueRequired")
    elif not is_dns_label(container.name):
        yield Cause(f"{path}.name", f'Invalid value: "{container.name}": {DNS_LABEL_RULE}')
    elif container.name in seen:
        yield Cause(f"{path}.name", f'Duplicate value: "{container.name}"', "FieldValueDuplicate")
    if not container.image:
        yield Cause(f"{path}.image", "Required value", "FieldValueRequired")
    for fault in resource_faults(f"{path}.resources", container.resources.limits, container.resources.requests):
        yield Cause(*fault)
