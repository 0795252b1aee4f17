"""Pods that were seen one by one, put together to jobs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from hived_traces.jobs import Job, Pods


class SeenPod(msgspec.Struct, frozen=True):
    """A pod that ran from `started_s` to `ended_s`, and was created at `created_s`, in seconds since 1970.

    gang : the name that all pods of its gang have; "" for a pod by itself
    shape : the pods of the whole gang, if the pod tells them
    """

    name: str
    tenant: str
    leaf_count: int
    created_s: float
    started_s: float
    ended_s: float
    gang: str = ""
    shape: tuple[Pods, ...] = ()
    user: str = ""
    leaf_type: str = ""
    priority: int | None = None
    within_cell: str = ""
    status: str = ""
    is_gang: bool = True


def jobs_of(pods: Iterable[SeenPod]) -> Iterator[Job]:
    """A job for each gang, and for each pod that is in none, in the order of their first pods.

    A gang runs from the start of its first pod to the end of its last one. Where no pod tells its shape, it has as many
    pods as ran at once: a pod that took another one's place does not count twice.
    """
    gangs: dict[str, list[SeenPod]] = defaultdict(list)
    for number, pod in enumerate(pods):
        gangs[pod.gang or f"\n{number}"].append(pod)
    for members in gangs.values():
        first = min(members, key=lambda pod: (pod.created_s, pod.name))
        started = min(pod.started_s for pod in members)
        yield Job(
            first.gang or first.name,
            first.tenant,
            first.created_s,
            round(max(pod.ended_s for pod in members) - started, 6),
            first.shape or _at_once(members),
            user=first.user,
            started_s=started,
            leaf_type=first.leaf_type,
            priority=first.priority,
            is_gang=first.is_gang,
            within_cell=first.within_cell,
            status=first.status,
        )


def _at_once(members: list[SeenPod]) -> tuple[Pods, ...]:
    """By size, the most pods that ran at one moment; a pod that ends when another one starts is gone."""
    sizes: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for pod in members:
        sizes[pod.leaf_count] += [(pod.started_s, 1), (pod.ended_s, -1)]
    return tuple(Pods(_most(changes), size) for size, changes in sorted(sizes.items()))


def _most(changes: list[tuple[float, int]]) -> int:
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return max(most, 1)
