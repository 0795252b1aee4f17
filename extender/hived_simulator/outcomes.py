"""The outcome of each job of a run, from its tasks, and how that differs from its private cluster."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from hived_simulator.tasks import CAUSE_NAMES, NEVER, Cause, Phase, Task

HOUR_S = 3600.0


class JobKind(StrEnum):
    """One pod, several that start together, or several that start one by one."""

    POD = "pod"
    GANG = "gang"
    ELASTIC = "elastic"


class Outcome(NamedTuple):
    """One job of one run. Seconds since the trace's start; None if that has not happened.

    started_s, ended_s : of its first pod, of its last pod
    delay_s : from submission to start
    stretch_s : from submission to end, without the time that it needs to run
    waited_s : all waiting, that after evictions included; of the pod that waited longest
    lost_leaf_s : leaf-seconds of work that evictions undid
    kind : whether its pods start together
    level, best_level : of the lowest cell that held all pods of a gang at its first start, and that could at best; 0 if
        it never started; of an elastic job those of its first pod
    cause : why it waited longest, by the name of `Cause`; "" if it never waited
    """

    job: int
    vc: str
    leaf_count: int
    pod_count: int
    kind: JobKind
    priority: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    delay_s: float | None
    stretch_s: float | None
    waited_s: float
    is_guaranteed_start: bool
    eviction_count: int
    lost_leaf_s: float
    level: int
    best_level: int
    cause: str
    reason: str


class Excess(NamedTuple):
    """By how much a job starts and ends later than in its private cluster, in seconds; below 0 if earlier.

    None where it does so in one of the two only, or in none.
    """

    start_s: float | None
    end_s: float | None


def outcomes(tasks: Sequence[Task], best_levels: Sequence[int]) -> list[Outcome]:
    """The outcome of each job, by the order of the trace. `best_levels` is by task."""
    numbered = zip(tasks, best_levels, strict=True)
    return [_outcome(list(parts)) for _, parts in groupby(numbered, key=lambda each: each[0].place[0])]


def _outcome(parts: Sequence[tuple[Task, int]]) -> Outcome:
    tasks = [task for task, _ in parts]
    first, longest = tasks[0], max(tasks, key=lambda task: sum(task.waited_s))
    starts = [task.first_s for task in tasks if task.first_s != NEVER]
    started_s = min(starts, default=None)
    is_over = all(task.phase is Phase.ENDED for task in tasks)
    ended_s = max(task.ended_s for task in tasks) if is_over else None
    waits = longest.waited_s[: Cause.REFUSED]
    refused = next((task for task in tasks if _is_refused(task)), None)
    cause = CAUSE_NAMES[Cause.REFUSED] if refused is not None else ""
    if not cause and any(waits):
        cause = CAUSE_NAMES[max(range(len(waits)), key=lambda each: waits[each])]
    return Outcome(
        job=first.place[0],
        vc=first.vc,
        leaf_count=sum(task.shape.leaf_count for task in tasks),
        pod_count=sum(count for task in tasks for count, _ in task.shape.pods),
        kind=_kind(first),
        priority=first.priority,
        submitted_s=first.submitted_s,
        started_s=started_s,
        ended_s=ended_s,
        delay_s=None if started_s is None else started_s - first.submitted_s,
        stretch_s=None if ended_s is None else max(0.0, ended_s - first.submitted_s - first.duration_s),
        waited_s=sum(waits),
        is_guaranteed_start=first.is_guaranteed_start,
        eviction_count=sum(task.eviction_count for task in tasks),
        lost_leaf_s=sum(task.lost_s * task.shape.leaf_count for task in tasks),
        level=first.level,
        best_level=parts[0][1] if starts else 0,
        cause=cause,
        reason="" if refused is None else refused.reason,
    )


def _kind(first: Task) -> JobKind:
    """The kind of a job by its first task."""
    if first.shape.is_elastic:
        return JobKind.ELASTIC
    return JobKind.GANG if sum(count for count, _ in first.shape.pods) > 1 else JobKind.POD


def _is_refused(task: Task) -> bool:
    """Can it not run in its virtual cluster, and has it not run elsewhere?"""
    is_waiting = task.phase is Phase.WAITING and task.cause is Cause.REFUSED
    return task.phase is Phase.REFUSED or is_waiting


def excesses(found: Sequence[Outcome], private: Sequence[Outcome]) -> Iterator[Excess]:
    """By how much each job is later than in its private cluster, in the order of the trace."""
    for own, other in zip(found, private, strict=True):
        yield Excess(_later(own.started_s, other.started_s), _later(own.ended_s, other.ended_s))


def _later(own_s: float | None, other_s: float | None) -> float | None:
    return None if own_s is None or other_s is None else own_s - other_s
