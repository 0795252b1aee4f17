"""Tasks: a gang as a whole, or one pod of an elastic job; what happened to each so far, and its pods as the core asks.

    FUTURE -> WAITING -> RUNNING -> ENDED         an eviction leads from RUNNING back to WAITING
                 |  ^
                 v  |
              RESERVING    cells are reserved, and their users have to leave first

A task that no cell of its virtual cluster can ever take is REFUSED.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from msgspec.structs import replace

from hived.values.specs import (
    MAX_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    GroupSpec,
    MemberSpec,
    PodRequest,
    PodSpec,
)
from hived_simulator.traces.jobs import Job

NEVER = -1.0

FIRST_REST_S, REST_FACTOR = 900.0, 4.0
"""A task that was evicted from idle cells of others rests so long before it takes some again, and longer each time."""


class Phase(IntEnum):
    """The phase of a task."""

    FUTURE = 0
    WAITING = 1
    RESERVING = 2
    RUNNING = 3
    ENDED = 4
    REFUSED = 5


class Cause(IntEnum):
    """The cause of a wait. Order is that of columns in results."""

    BEHIND = 0  # others of its virtual cluster come first
    FULL = 1  # its virtual cluster has too few free leaf cells
    FRAGMENTED = 2  # its virtual cluster has enough of them, and not together
    BAD = 3  # too many cells of its virtual cluster are bad
    VICTIMS = 4  # others have to leave its cells
    NO_ROOM = 5  # an opportunistic task: no idle cells
    REFUSED = 6  # it can never run as it is


CAUSE_NAMES = ("behind-others", "vc-full", "fragmented", "bad-hardware", "victims-leaving", "no-idle-cells", "refused")


class Shape(NamedTuple):
    """The request of a task; a scheduler cannot tell tasks of one shape apart. `pods` is (count, leaves) pairs."""

    pods: tuple[tuple[int, int], ...]
    leaf_type: str
    within_cell: str
    is_elastic: bool

    @property
    def leaf_count(self) -> int:
        """Leaf cells of all its pods."""
        return sum(count * leaves for count, leaves in self.pods)


class Task:
    """One task; times are seconds since the trace's start, NEVER if that has not happened.

    place : (job, part), its place in every queue
    priority : as asked for; `runs_as` is the priority that it runs with now
    saved_s : work that a restart need not do again; done_s is `saved_s` when the present run began
    lost_s : work that evictions undid
    lent_from_s : since when the present run is opportunistic
    borrows_from_s : before that it does not run over quota, as it was evicted when it did, `lent_eviction_count` times.
        A rest is at least as long as the work that the eviction undid, so at most half of the time is lost
    waited_s : seconds by cause
    """

    __slots__ = (
        "borrows_from_s", "cause", "checkpoint_s", "duration_s", "ended_s", "eviction_count", "first_s", "group",
        "is_guaranteed_start", "lent_eviction_count", "lent_from_s", "level", "lost_s", "phase", "place", "priority",
        "reason", "run", "runs_as", "saved_s", "shape", "since_s", "started_s", "submitted_s", "ticket", "vc",
        "waited_s",
    )  # fmt: skip

    def __init__(self, job: Job, group: str, place: tuple[int, int], vc: str, shape: Shape) -> None:
        self.place = place
        self.vc = vc
        self.shape = shape
        self.group = group
        self.priority = 0 if job.priority is None else job.priority
        self.duration_s = job.duration_s
        self.submitted_s = job.submitted_s
        self.checkpoint_s = job.checkpoint_s
        self.phase = Phase.FUTURE
        self.runs_as = self.priority
        self.run = 0
        self.ticket = 0
        self.first_s = self.started_s = self.ended_s = NEVER
        self.is_guaranteed_start = False
        self.lent_from_s = self.borrows_from_s = NEVER
        self.lent_eviction_count = 0
        self.saved_s = self.lost_s = 0.0
        self.eviction_count = 0
        self.level = 0
        self.cause = Cause.BEHIND
        self.reason = ""
        self.since_s = self.submitted_s
        self.waited_s = [0.0] * len(Cause)

    @property
    def is_opportunistic(self) -> bool:
        """True if it asks for idle cells of others only."""
        return self.priority == OPPORTUNISTIC_PRIORITY

    @property
    def rank(self) -> tuple[int, tuple[int, int]]:
        """Order in queues: falling priority, then place."""
        return -self.priority, self.place

    def wait(self, now_s: float, cause: Cause) -> None:
        """It waits from now on, for another reason than before."""
        self.waited_s[self.cause] += now_s - self.since_s
        self.cause, self.since_s = cause, now_s

    def start(self, now_s: float, priority: int, level: int) -> float:
        """It runs from now on; returns when it would end. `level` is that of the lowest cell that holds all of it."""
        self.waited_s[self.cause] += now_s - self.since_s
        self.since_s = self.started_s = now_s
        if self.first_s == NEVER:
            self.first_s, self.level = now_s, level
            self.is_guaranteed_start = priority != OPPORTUNISTIC_PRIORITY
        self.phase, self.runs_as = Phase.RUNNING, priority
        self.lent_from_s = now_s
        self.run += 1
        return now_s + self.duration_s - self.saved_s

    def lend(self, now_s: float) -> bool:
        """It goes on as an opportunistic one; returns whether it was none before."""
        if self.phase is not Phase.RUNNING or self.runs_as == OPPORTUNISTIC_PRIORITY:
            return False
        self.runs_as, self.lent_from_s = OPPORTUNISTIC_PRIORITY, now_s
        return True

    def own(self, now_s: float) -> float:
        """It goes on as a guaranteed one; returns for how long it was lent cells."""
        lent_s, self.lent_from_s = now_s - self.lent_from_s, now_s
        self.runs_as = self.priority
        return lent_s

    def end(self, now_s: float) -> None:
        """It is done."""
        self.phase, self.ended_s = Phase.ENDED, now_s

    def evict(self, now_s: float) -> None:
        """It has to start again, from its last checkpoint or from the beginning."""
        done_s = self.saved_s + now_s - self.started_s
        saved_s = done_s // self.checkpoint_s * self.checkpoint_s if self.checkpoint_s > 0 else 0.0
        self.lost_s += done_s - saved_s
        self.saved_s = saved_s
        self.eviction_count += 1
        if self.runs_as == OPPORTUNISTIC_PRIORITY and not self.is_opportunistic:
            least_s = FIRST_REST_S * REST_FACTOR**self.lent_eviction_count
            self.borrows_from_s = now_s + max(least_s, done_s - saved_s)
            self.lent_eviction_count += 1
        self.phase, self.cause, self.since_s = Phase.WAITING, Cause.BEHIND, now_s
        self.run += 1


def tasks_of(job: Job, number: int, vc: str) -> list[Task]:
    """The tasks of a job: one of a gang, one for each pod of an elastic job, the ones with fewer leaf cells first."""
    wishes = (job.leaf_type, job.within_cell)
    if job.is_gang or sum(pods.count for pods in job.pods) == 1:
        shape = Shape(tuple((pods.count, pods.leaf_count) for pods in job.pods), *wishes, False)
        return [Task(job, f"job-{number}", (number, 0), vc, shape)]
    singles = [Shape(((1, pods.leaf_count),), *wishes, True) for pods in job.pods for _ in range(pods.count)]
    return [Task(job, f"job-{number}-{part}", (number, part), vc, shape) for part, shape in enumerate(singles)]


NAMESPACE = "simulated"


def pod_spec(task: Task, priority: int, is_lazy: bool, leaf_count: int = 0) -> PodSpec:
    """The request of a pod of a task; with `leaf_count` leaf cells, 0 for those of the first pod."""
    shape = task.shape
    members = tuple(MemberSpec(*pods) for pods in shape.pods)
    return PodSpec(
        task.vc, priority, leaf_count or shape.pods[0][1], GroupSpec(task.group, members),
        leaf_cell_type=shape.leaf_type, lazy_preemption=is_lazy, within_cell=shape.within_cell,
        elastic=shape.is_elastic,
    )  # fmt: skip


def pod_of(task: Task, spec: PodSpec, slot: int) -> PodRequest:
    """The pod in a slot of a task; its uid begins with the task's group."""
    return PodRequest(f"{task.group}/{slot}", f"{task.group}-{slot}", NAMESPACE, spec)


def within_bounds(jobs: Iterable[Job]) -> list[Job]:
    """The jobs with priorities that the scheduler knows."""
    return [
        job
        if job.priority is None
        else replace(job, priority=max(OPPORTUNISTIC_PRIORITY, min(job.priority, MAX_GUARANTEED_PRIORITY)))
        for job in jobs
    ]
