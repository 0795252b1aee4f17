"""Workloads of Kubernetes 1.35: a pod names one and which of its pod groups it is of.

Each replica of a pod group is a gang by itself.
"""

from hived.values.errors import UserError
from hived_extender.jobs.dialects.description import Description, GangKey, Kind, Lookup, find
from hived_extender.jobs.dialects.vocabulary import reads
from hived_extender.jobs.dialects.words import Words, count, name
from hived_extender.jobs.wire import Pod

NAME = "Workload"
KIND = Kind("scheduling.k8s.io", "workloads", ("v1alpha1",))
KEYS: frozenset[str] = frozenset()
VOCABULARY = (*reads("Pod field", "workloadRef"), *reads("Workload field", "podGroups"))


def describe(pod: Pod, objects: Lookup) -> Description | None:
    """The gang of the Workload that is the pod's `spec.workloadRef`."""
    wanted = pod.spec.workload_ref if pod.spec else None
    if wanted is None:
        return None
    parts = (wanted.name, wanted.pod_group, wanted.pod_group_replica_key)
    gang = GangKey(pod.metadata.namespace, "/".join(part for part in parts if part))
    source = KIND.ref(pod.metadata.namespace, wanted.name)
    found = find(objects, source)
    if found is None:
        return Description(NAME, gang=gang, source=source, missing=True)
    groups = {each.read("name", name): each for each in Words(f"{source}: spec.", found.get("spec")).parts("podGroups")}
    if wanted.pod_group not in groups:
        known = ", ".join(str(group) for group in groups) or "none"
        raise UserError(f"{source} has no pod group {wanted.pod_group!r}, which the pod is of: it has {known}")
    minimum = groups[wanted.pod_group].part("policy").part("gang").read("minCount", count)
    return Description(NAME, gang=None if minimum is None else gang, minimum=minimum, source=source)
