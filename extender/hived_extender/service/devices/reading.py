"""Nodes and pods as facts about devices."""

from collections.abc import Mapping
from math import ceil

from hived_config.quantities import amount
from hived_extender.pods.annotations import MAX_COUNT, PREFIX
from hived_extender.pods.requests import all_requested
from hived_extender.pods.wire import Node, Pod
from hived_extender.service.devices.table import PodUse

_NO_DEVICES = ("kubernetes.io/", PREFIX)


def allocatable_of(node: Node) -> Mapping[str, int] | None:
    """How much a node offers of each extended resource; None if it has not reported any resource at all."""
    allocatable = node.status.allocatable if node.status is not None else None
    if not allocatable:
        return None
    return {
        name: int(min(amount(quantity), MAX_COUNT)) for name, quantity in allocatable.items() if _may_be_device(name)
    }


def use_of(pod: Pod) -> PodUse | None:
    """The devices that a pod uses of its node, of whichever resource; None if it has no node, has ended, or uses none.

    Cost for a pod without extended resources: a look at the names of its resources.
    """
    spec = pod.spec
    if spec is None or not spec.node_name or pod.has_completed:
        return None
    names: set[str] = set()
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        resources = container.resources
        if resources is not None:
            names.update(filter(_may_be_device, (*(resources.limits or ()), *(resources.requests or ()))))
    if not names:
        return None
    found = sorted(all_requested(pod, names).items())
    requests = {name: ceil(min(count, MAX_COUNT)) for name, count in found if count}
    meta = pod.metadata
    return PodUse(meta.uid, meta.namespace, meta.name, requests) if requests else None


def _may_be_device(resource: str) -> bool:
    return "/" in resource and not resource.startswith(_NO_DEVICES)
