"""With which pods a job may start: a number of them, by kinds of pods that are alike."""

from collections.abc import Mapping, Sequence

import msgspec

from hived_extender.job_kinds.job import Job, Role
from hived_extender.pods.dialects.description import Description
from hived_extender.pods.wire import Pod


class PodKind(msgspec.Struct, frozen=True):
    """Pods of a unit that are alike: how many there are, how many of them are needed, leaf cells and amounts of each.

    `templates` are their places among the templates of the job's pods with cells.
    """

    count: int
    least: int
    leaf_count: int
    templates: tuple[int, ...]
    request: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """All that a choice of pods depends on."""
        return self.count, self.least, self.leaf_count


class Minimum(msgspec.Struct, frozen=True):
    """So many pods of these kinds, which are in the order of the pods, have to start together.

    `others` are the amounts of all pods without cells.
    """

    count: int
    kinds: tuple[PodKind, ...]
    others: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many pods there are."""
        return sum(kind.count for kind in self.kinds)

    @property
    def shape(self) -> tuple[int, tuple[tuple[int, int, int], ...]]:
        """All that a choice of pods depends on."""
        return self.count, tuple(kind.shape for kind in self.kinds)


def minimum_of(
    job: Job, ours: Sequence[tuple[Role, Pod, int, Mapping[str, float]]], others: Mapping[str, float],
    said: Sequence[Description | None], places: Sequence[int],
) -> Minimum | None:  # fmt: skip
    """With which of its pods a job may start, None for all of them.

    ours : each role of pods with cells, with its pod, leaf cells and amounts of one pod, in the order of the job
    others : the amounts of all pods without cells
    said : the gang of each role's pods with cells, as they say
    places : where each of `ours` is among the templates
    """
    total = sum(role.count for role in job.roles)
    least, tasks = _said(job, said)
    if least is None or least >= total:
        return None
    kinds: dict[tuple[object, ...], list[tuple[int, int, int, int, Mapping[str, float]]]] = {}
    for (role, pod, leaf_count, request), place in zip(ours, places, strict=True):
        needed = min(tasks.get(role.name, role.least), role.count)
        key = leaf_count, role.name if needed else "", msgspec.json.encode(pod.spec)
        kinds.setdefault(key, []).append((role.count, needed, leaf_count, place, request))
    found = tuple(
        PodKind(sum(one[0] for one in each), sum(one[1] for one in each), each[0][2], tuple(one[3] for one in each),
                each[0][4])
        for each in kinds.values()
    )  # fmt: skip
    count = sum(kind.count for kind in found)
    needed = max(least - (total - count), sum(kind.least for kind in found), 1)
    return Minimum(needed, found, others) if needed < count else None


def _said(job: Job, said: Sequence[Description | None]) -> tuple[int | None, Mapping[str, int]]:
    """How many pods start together, and of each task: by the words of all pods, which are one gang, or of the job."""
    gangs = {one.gang if one is not None else None for one in said}
    if None in gangs:
        return (job.min_count, {}) if gangs == {None} else (None, {})
    if len(gangs) > 1 or any(one is not None and len(one.groups or ()) > 1 for one in said):
        return None, {}
    tasks = {task: least for one in said if one is not None for task, least in (one.task_minimums or {}).items()}
    return max((one.minimum or 1 for one in said if one is not None), default=None), tasks
