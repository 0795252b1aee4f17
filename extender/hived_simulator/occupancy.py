"""Leaf cells in use by guaranteed tasks, by virtual cluster and priority."""

from collections import Counter, defaultdict

from hived.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.tasks import Task


class Occupancy:
    """See the module. A group counts once, from when cells are reserved for it."""

    def __init__(self) -> None:
        self._by_vc: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._counted: dict[str, tuple[str, int, int]] = {}

    def of(self, vc: str, priority: int) -> int:
        """Leaf cells that tasks of at least this priority have."""
        return sum(count for level, count in self._by_vc[vc].items() if level >= priority)

    def count(self, task: Task, priority: int) -> None:
        """A task has cells of its virtual cluster from now on, unless it runs opportunistically."""
        if task.group not in self._counted and priority != OPPORTUNISTIC_PRIORITY:
            self._counted[task.group] = (task.vc, priority, task.shape.leaf_count)
            self._by_vc[task.vc][priority] += task.shape.leaf_count

    def uncount(self, group: str) -> None:
        """A group has none any more."""
        if group in self._counted:
            vc, priority, count = self._counted.pop(group)
            self._by_vc[vc][priority] -= count
