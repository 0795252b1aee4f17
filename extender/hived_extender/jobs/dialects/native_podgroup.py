"""PodGroups of Kubernetes 1.36 and later, which pods name in their spec.

Pods of a group with the basic policy start one by one; they are a gang only to be placed near each other. Whether pods
are disrupted one by one or all together is not read: a gang keeps its minimum or leaves as a whole.

Kubernetes 1.36 has version `v1alpha2` alone, 1.37 and later have others. So the version of an object tells which
kube-scheduler reads it.
"""

from collections.abc import Mapping
from typing import Any

from hived_extender.jobs.dialects.description import Description, GangKey, Kind, Lookup, Within, find
from hived_extender.jobs.dialects.vocabulary import ignores, reads, refuses
from hived_extender.jobs.dialects.words import Words, count, level, name
from hived_extender.jobs.wire import Pod

NAME = "PodGroup (scheduling.k8s.io)"
KIND = Kind("scheduling.k8s.io", "podgroups", ("v1beta1", "v1alpha3", "v1alpha2"))
KEYS: frozenset[str] = frozenset()
FIELD = "PodGroup field"
PARENT = "parentCompositePodGroupName"
(_COMPOSITE,) = refuses(FIELD, "PodGroups that start together", PARENT)
VOCABULARY = (
    *reads("Pod field", "schedulingGroup"),
    *reads(FIELD, "schedulingPolicy", "schedulingConstraints", "priorityClassName"),
    _COMPOSITE,
    *ignores(FIELD, "a gang keeps its minimum or leaves as a whole", "disruptionMode"),
    *ignores(FIELD, "kube-scheduler allocates them", "resourceClaims"),
    *ignores(FIELD, "where the PodGroup comes from", "workloadRef"),
)

CONDITION = "PodGroupInitiallyScheduled"
FORMER_CONDITION = "PodGroupScheduled"
"""Its name up to Kubernetes 1.36."""

_FORMER_VERSION = f"{KIND.group}/v1alpha2"


def is_former(group: Mapping[str, Any]) -> bool:
    """Is a PodGroup of Kubernetes 1.36? Also if it does not say of which version it is."""
    return bool(group.get("apiVersion", _FORMER_VERSION) == _FORMER_VERSION)


def describe(pod: Pod, objects: Lookup) -> Description | None:
    """The gang of the PodGroup that is the pod's `spec.schedulingGroup`."""
    group = pod.spec.scheduling_group.pod_group_name if pod.spec and pod.spec.scheduling_group else None
    if not group:
        return None
    gang = GangKey(pod.metadata.namespace, group)
    source = KIND.ref(gang.namespace, gang.name)
    found = find(objects, source)
    if found is None:
        return Description(NAME, gang=gang, source=source, missing=True)
    spec = Words(f"{source}: spec.", found.get("spec"))
    minimum = spec.part("schedulingPolicy").part("gang").read("minCount", count)
    keys = [each.read("key", level) for each in spec.part("schedulingConstraints").parts("topology")]
    parent = spec.read(PARENT, name)
    within = next((Within(key, is_required=True) for key in keys if key is not None), None)
    return Description(
        NAME,
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
