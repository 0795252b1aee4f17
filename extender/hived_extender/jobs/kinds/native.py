"""Kubernetes' own gangs, which pods name in their spec: Workloads of 1.35, PodGroups of 1.36 and later.

Pods of a PodGroup with the basic policy start one by one; they are a gang only to be placed near each other. The
disruption mode is not read: a gang keeps its minimum or leaves as a whole. Kubernetes 1.36 has version `v1alpha2`
alone, 1.37 and later have others. So the version of an object tells which kube-scheduler reads it.

A Workload has several pod groups. Each replica of one is a gang by itself.
"""

from collections.abc import Mapping
from typing import Any

from hived.values.errors import UserError
from hived_extender.jobs.document import Part, count, name
from hived_extender.jobs.kinds.description import Description, GangKey, Lookup, ObjectKind, Within, find, level
from hived_extender.jobs.kinds.kind import Dialect, Source, ignores, reads, refuses
from hived_extender.jobs.wire import Pod

PODGROUPS = ObjectKind("scheduling.k8s.io", "podgroups", ("v1beta1", "v1alpha3", "v1alpha2"))
WORKLOADS = ObjectKind("scheduling.k8s.io", "workloads", ("v1alpha1",))
_FIELD = "PodGroup field"
_PARENT = "parentCompositePodGroupName"
(_COMPOSITE,) = refuses(_FIELD, "PodGroups that start together", _PARENT)
_VOCABULARY = (
    *reads("Pod field", "schedulingGroup"),
    *reads(_FIELD, "schedulingPolicy", "schedulingConstraints", "priorityClassName"),
    _COMPOSITE,
    *ignores(_FIELD, "a gang keeps its minimum or leaves as a whole", "disruptionMode"),
    *ignores(_FIELD, "kube-scheduler allocates them", "resourceClaims"),
    *ignores(_FIELD, "where the PodGroup comes from", "workloadRef"),
)

CONDITION = "PodGroupInitiallyScheduled"
FORMER_CONDITION = "PodGroupScheduled"
"""Its name up to Kubernetes 1.36."""

_FORMER_VERSION = f"{PODGROUPS.group}/v1alpha2"


def is_former(group: Mapping[str, Any]) -> bool:
    """Is a PodGroup of Kubernetes 1.36? One without a version counts as such."""
    return bool(group.get("apiVersion", _FORMER_VERSION) == _FORMER_VERSION)


def _describe(pod: Pod, objects: Lookup) -> Description | None:
    group = pod.spec.scheduling_group.pod_group_name if pod.spec and pod.spec.scheduling_group else None
    if not group:
        return None
    gang = GangKey(pod.metadata.namespace, group)
    source = PODGROUPS.ref(gang.namespace, gang.name)
    found = find(objects, source)
    if found is None:
        return Description(POD_GROUP.name, gang=gang, source=source, missing=True)
    spec = Part(f"{source}: spec.", found.get("spec"))
    minimum = spec.part("schedulingPolicy").part("gang").read("minCount", count)
    keys = [each.read("key", level) for each in spec.part("schedulingConstraints").parts("topology")]
    parent = spec.read(_PARENT, name)
    within = next((Within(key, is_required=True) for key in keys if key is not None), None)
    return Description(
        POD_GROUP.name,
        gang=None if minimum is None and within is None else gang,
        minimum=minimum,
        within=within,
        priority_class=spec.read("priorityClassName", name),
        kube_priority=None if is_former(found) else spec.read("priority", _priority) or 0,
        source=source,
        refused=None if parent is None else _COMPOSITE.refusal(f"{source}: spec.", parent),
    )


def _priority(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a whole number")
    return value


def _describe_workload(pod: Pod, objects: Lookup) -> Description | None:
    wanted = pod.spec.workload_ref if pod.spec else None
    if wanted is None:
        return None
    parts = (wanted.name, wanted.pod_group, wanted.pod_group_replica_key)
    gang = GangKey(pod.metadata.namespace, "/".join(part for part in parts if part))
    source = WORKLOADS.ref(pod.metadata.namespace, wanted.name)
    found = find(objects, source)
    if found is None:
        return Description(WORKLOAD.name, gang=gang, source=source, missing=True)
    groups = {each.read("name", name): each for each in Part(f"{source}: spec.", found.get("spec")).parts("podGroups")}
    if wanted.pod_group not in groups:
        known = ", ".join(str(group) for group in groups) or "none"
        raise UserError(f"{source} has no pod group {wanted.pod_group!r}, which the pod is of: it has {known}")
    minimum = groups[wanted.pod_group].part("policy").part("gang").read("minCount", count)
    return Description(WORKLOAD.name, gang=None if minimum is None else gang, minimum=minimum, source=source)


POD_GROUP = Dialect("PodGroup (scheduling.k8s.io)", _VOCABULARY, _describe, objects=PODGROUPS)
WORKLOAD = Dialect(
    "Workload",
    (*reads("Pod field", "workloadRef"), *reads("Workload field", "podGroups")),
    _describe_workload,
    objects=WORKLOADS,
)
SOURCE = Source(dialects=(POD_GROUP, WORKLOAD))
