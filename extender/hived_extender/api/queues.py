"""JSON of queues: how many jobs wait and run in each, and the jobs with their places and reasons."""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from hived_extender.api.waiting import PodCounts, Preempted, When

QueueAction = Literal["hold", "release", "move"]

NOW = "now"
"""A release to this moment, whatever its author says of its start."""

HELD_LATER = "; is held once it waits again"
"""The end of the reason of a job that runs, and that its owner holds."""


class QueuedJob(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A job in a queue.

    Attributes
    ----------
    name : "Kind/namespace/name"
    api_version : of the job object; "" of a gang of plain pods, which is none
    priority : None if hived cannot read what it asks for
    is_borrowed : it has cells, and borrows them
    position : 1 for the first that waits, 0 for one that does not, or never starts
    state : "Waiting", "Held" (by hived hold), "Starting" (its pods are yet to take its cells, or all wait again),
        "Running", "Leaving" or "Refused" (in no queue, or can never start, see `reason`)
    since : seconds since 1970, of its state
    asks : what it asks for, as in "2 pods of 8 H100 each at once"
    cause : why it waits, one of `CauseName`; "" for one that does not
    when : when it starts, None for one that does not wait
    counts : its pods; of one that waits, those that it wants, and those of them that have ended
    part_of : of a gang that is a part of another job in the list of all jobs, such as a pod of a StatefulSet, that job,
        whose `counts` it has
    preempted : when its cells were reclaimed last and for which job, until it has cells again
    """

    name: str
    namespace: str
    queue: str
    vc: str
    user: str
    priority: int | None
    position: int
    state: str
    since: float
    reason: str
    gpus: int
    api_version: str = ""
    asks: str = ""
    cause: str = ""
    when: When | None = None
    preempted: Preempted | None = None
    counts: PodCounts = PodCounts()
    part_of: str = ""
    is_borrowed: bool = False


def folded(jobs: Iterable[QueuedJob]) -> list[QueuedJob]:
    """The jobs with all parts of one in a queue as one row, with the place and the state of the first one."""
    found: list[QueuedJob] = []
    rows: dict[tuple[str, str], int] = {}
    for job in jobs:
        row = rows.setdefault((job.part_of, job.queue), len(found)) if job.part_of else len(found)
        if row == len(found):
            found.append(replace(job, name=job.part_of or job.name))
        else:
            found[row] = replace(found[row], gpus=found[row].gpus + job.gpus)
    return found


class QueueReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A queue. Amounts are by resource: `used`, `guaranteed`, and `max`, as far as that is bounded.

    `max` has the number of jobs as well. Limits of a quota are `oversell` times these. `over` is how much it uses above
    a quota that was lowered. `share` orders queues, and `borrowed` counts jobs whose turn has not come.
    """

    name: str
    vc: str
    policy: str
    waiting: int
    running: int
    borrowed: int
    share: float
    used: dict[str, float]
    guaranteed: dict[str, float]
    over: dict[str, float]
    max: dict[str, float] = msgspec.field(default_factory=dict)
    oversell: float = 1.0


class QueueList(msgspec.Struct, frozen=True):
    """All queues, by name."""

    items: list[QueueReport]


class QueuedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue: those that wait in their order, then the others.

    `total` counts them all. If there are more than `items`, `continue` of the next question gives those that follow.
    """

    items: list[QueuedJob]
    total: int = 0
    next: str = msgspec.field(name="continue", default="")


class QueueArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of one job's place. `to` is for moves: "front", "back", or the name of a job that waits in its queue.

    A release `to` "now" removes its author's words about its start as well.
    """

    job: str
    action: QueueAction
    to: str = ""
