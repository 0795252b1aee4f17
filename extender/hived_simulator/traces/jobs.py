"""A trace: the jobs that a cluster was asked for, in one form for all formats."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec


class Pods(msgspec.Struct, frozen=True):
    """`count` pods of `leaf_count` leaf cells each."""

    count: int
    leaf_count: int


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job of a trace.

    tenant : virtual cluster, queue or team, as the trace names it; "" if it names none
    submitted_s : seconds since the trace's start, which is its first submission
    duration_s : how long it ran, all attempts together, without waiting
    pods : what it asks for, ascending by leaf cells; a job of one pod has one entry with count 1
    started_s : when it started in the trace, if that is known; only for comparison
    leaf_type : model of GPU that it asks for; "" for any
    priority : -1 opportunistic, 0 and more guaranteed; None if the trace does not say
    is_gang : do its pods start together? An elastic job's pods start one by one
    within_cell : cell type that all of it shall be below; "" for no wish
    checkpoint_s : seconds between checkpoints; 0 if it keeps nothing when it is evicted
    """

    name: str
    tenant: str
    submitted_s: float
    duration_s: float
    pods: tuple[Pods, ...]
    user: str = ""
    started_s: float | None = None
    leaf_type: str = ""
    priority: int | None = None
    is_gang: bool = True
    within_cell: str = ""
    checkpoint_s: float = 0.0
    status: str = ""

    @property
    def leaf_count(self) -> int:
        """Leaf cells of all pods together."""
        return sum(pods.count * pods.leaf_count for pods in self.pods)


class Trace(msgspec.Struct, frozen=True):
    """Jobs ascending by (submitted_s, name), and the time of their start.

    start : seconds since 1970 (UTC) of submitted_s == 0; None if the trace tells no date
    notes : what the reader left out or guessed, with counts, for people
    """

    name: str
    jobs: tuple[Job, ...]
    start: float | None = None
    notes: tuple[str, ...] = ()

    def date(self, seconds: float) -> datetime | None:
        """The date of a moment, None if the trace tells no date."""
        return None if self.start is None else datetime.fromtimestamp(self.start + seconds, UTC)


def most_at_once(spans: Iterable[tuple[float, float, int]]) -> int:
    """The highest sum of counts at one moment, of (start, end, count); a span ends before another one starts."""
    changes = [change for start, end, count in spans for change in ((start, count), (end, -count))]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most
