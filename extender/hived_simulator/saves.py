"""When running tasks save their work, for a core that chooses victims by lost work (rule 8.12)."""

import heapq
from collections.abc import Iterator

from hived.specs import NO_TIMES, WorkTimes
from hived_simulator.tasks import Task


class Saves:
    """The times of tasks that run. A task saves its work each `checkpoint_s` seconds after its start; seconds are those
    of the trace.
    """

    def __init__(self) -> None:
        self._started: dict[str, tuple[float, float]] = {}  # by group: start, and time between saves
        self._saved: dict[str, float] = {}
        self._due: list[tuple[float, str, float]] = []  # moment, group, start of its run

    def started(self, task: Task, now_s: float) -> WorkTimes:
        """A task runs from now on. Cost O(log tasks)."""
        self._started[task.group] = now_s, task.checkpoint_s
        if task.checkpoint_s > 0:
            heapq.heappush(self._due, (now_s + task.checkpoint_s, task.group, now_s))
        return self.times(task.group)

    def ended(self, group: str) -> None:
        """A task runs no more."""
        self._started.pop(group, None)
        self._saved.pop(group, None)

    def times(self, group: str) -> WorkTimes:
        """The times of a task as they were told last; none of a task that does not run."""
        if group not in self._started:
            return NO_TIMES
        return WorkTimes(self._started[group][0], self._saved.get(group))

    def due(self, now_s: float) -> Iterator[str]:
        """The groups that have saved their work since they were asked for last. Cost O(log tasks) for each."""
        while self._due and self._due[0][0] <= now_s:
            _, group, started_s = heapq.heappop(self._due)
            start_s, every_s = self._started.get(group, (-1.0, 0.0))
            if start_s != started_s:
                continue  # that run is over
            count = max(1.0, (now_s - started_s) // every_s)
            if started_s + (count + 1) * every_s <= now_s:  # a difference of moments can be rounded down
                count += 1
            self._saved[group] = started_s + count * every_s
            heapq.heappush(self._due, (started_s + (count + 1) * every_s, group, started_s))
            yield group
