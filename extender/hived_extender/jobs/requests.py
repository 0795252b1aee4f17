"""The amounts of resources that Kubernetes sets aside for a pod."""

import re
from collections.abc import Callable, Iterable, Iterator, Set

from hived_config.quantities import amount
from hived_extender.jobs.wire import Container, Pod, PodSpec

_OF_PODS = re.compile(r"cpu|memory|hugepages-.*")
"""Resources that a pod may ask for as a whole; only containers ask for devices."""


def requested(pod: Pod, resource: str) -> float:
    """How much of a resource Kubernetes sets aside for a pod; see `all_requested`."""
    return all_requested(pod, {resource}).get(resource, 0.0)


def all_requested(pod: Pod, names: Set[str]) -> dict[str, float]:
    """How much of each of these resources Kubernetes sets aside for a pod: its overhead, and the pod's own request.
    Without one, the sum of its containers counts; and where these name no request either, the pod's own limit.

    Cost O(containers + resources that they name): both are the author's to choose.
    """

    def amounts_of(container: Container) -> Iterator[tuple[str, float]]:
        own = own_requests(container)
        return ((name, amount(own[name])) for name in own.keys() & names)

    spec = pod.spec or PodSpec()
    found = most_at_once(spec, amounts_of)
    if spec.resources is not None:
        limits = {name: limit for name, limit in (spec.resources.limits or {}).items() if name not in found}
        said = limits | (spec.resources.requests or {})
        found |= {name: amount(said[name]) for name in said.keys() & names if _OF_PODS.fullmatch(name)}
    overhead = spec.overhead or {}
    for name in overhead.keys() & names:
        found[name] = found.get(name, 0.0) + amount(overhead[name])
    return found


def most_at_once(spec: PodSpec, amounts_of: Callable[[Container], Iterable[tuple[str, float]]]) -> dict[str, float]:
    """The sums of all containers that run at once, or of an init container and those that run on beside it."""
    running: dict[str, float] = {}
    peak: dict[str, float] = {}
    for each in spec.init_containers or ():
        for name, own in amounts_of(each):
            peak[name] = max(peak.get(name, 0.0), running.get(name, 0.0) + own)
            if each.restart_policy == "Always":
                running[name] = running.get(name, 0.0) + own
    for each in spec.containers or ():
        for name, own in amounts_of(each):
            running[name] = running.get(name, 0.0) + own
    return {name: max(running.get(name, 0.0), peak.get(name, 0.0)) for name in running.keys() | peak.keys()}


def own_requests(container: Container) -> dict[str, str | int | float]:
    """The requests of a container; a limit stands for a request that is missing."""
    resources = container.resources
    return {} if resources is None else (resources.limits or {}) | (resources.requests or {})
