"""Decides which PodGroups of Volcano hived lets in while they have no pods.

Some controllers, such as Volcano's own and Kubeflow's training-operator, create no pods before their PodGroup has left
the phase Pending. The scheduler of the pods has to let it in: hived if the owner's pod templates name one of hived's
schedulers, else Volcano's, where PodGroups wait in queues first. One that is marked as held waits in a queue of ours.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from hived_extender.job_kinds import marks
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.pods.dialects import volcano

Object = Mapping[str, Any]

FORBIDDEN = 403
PENDING = (None, "", "Pending")


def waits_for_us(kube: KubeClient, serves: Callable[[str], bool], group: Object) -> bool:
    """Whether this PodGroup of Volcano, which has no pods, is to be let in by us. Raises KubeError.

    An owner that we have no right to read decides nothing. Its PodGroup is let in where the API server has no queues of
    Volcano: then nobody else does it.
    """
    owner = _owner(group)
    if (group["metadata"].get("annotations") or {}).get(marks.HELD) == "true":
        return False
    if owner is None or (group.get("status") or {}).get("phase") not in PENDING:
        return False
    try:
        spec: Object = _read(kube, owner, group["metadata"]["namespace"]).get("spec") or {}
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return "queues" not in _plurals(kube, f"/apis/{volcano.KIND.group}/{volcano.KIND.versions[0]}").values()
    return any(serves(name) for name in _scheduler_names(spec))


def _owner(group: Object) -> Object | None:
    """The controller that made the PodGroup for pods to come; none if Volcano's made it for pods that exist."""
    owners = group["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), next(iter(owners), None))
    is_made = owner is not None and group["metadata"]["name"] == volcano.MADE.format(owner.get("uid"))
    return None if is_made else owner


def _read(kube: KubeClient, owner: Object, namespace: str) -> Object:
    version = owner["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _plurals(kube, base).get(owner["kind"])
    if plural is None:  # its kind was deleted this moment
        return {}
    return kube.get(f"{base}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(owner['name'], safe='')}")


def _plurals(kube: KubeClient, base: str) -> dict[str, str]:
    """The plural of each kind that the API server has in this version of a group."""
    resources = kube.get(base).get("resources") or ()
    return {one["kind"]: one["name"] for one in resources if "/" not in one["name"]}


def _scheduler_names(spec: Object) -> set[str]:
    """The schedulerName of the pods that an owner will make: the template's, else the owner's, else Volcano's."""
    default = spec.get("schedulerName") or volcano.SCHEDULER
    return {pod.get("schedulerName") or default for pod in _pod_specs(spec)} or {default}


def _pod_specs(spec: Object) -> Iterator[Object]:
    left: list[Any] = [spec]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            if isinstance(part.get("containers"), list):
                yield part
            else:
                left += part.values()
