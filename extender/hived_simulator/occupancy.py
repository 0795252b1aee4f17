"""Leaf cells in use by guaranteed tasks, by virtual cluster and priority."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from hived.specs import OPPORTUNISTIC_PRIORITY
from hived_simulator.tasks import Task


class Occupancy:
    """See the module. A group counts once, from when cells are reserved for it.

    Victims on their way out do not count: their cells are those of the groups that reserve them.
    """

    def __init__(self) -> None:
        self._by_vc: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._counted: dict[str, tuple[str, int, int]] = {}
        self._lent: list[str] = []
        self._victims: dict[str, set[str]] = {}  # by the group that reserves their cells

    def of(self, vc: str, priority: int) -> int:
        """Leaf cells that tasks of at least this priority have. Cost O(priorities + victims)."""
        count = sum(count for level, count in self._by_vc[vc].items() if level >= priority)
        return count - self._leaving(vc, priority) if self._victims else count

    def _leaving(self, vc: str, priority: int) -> int:
        """The part of that which victims have."""
        groups = set().union(*self._victims.values())
        counted = (self._counted[group] for group in groups if group in self._counted)
        return sum(count for owner, level, count in counted if owner == vc and level >= priority)

    def reserve(self, task: Task, priority: int, victims: Iterable[str]) -> None:
        """A task has cells of its virtual cluster from now on, which victims are about to leave."""
        self.count(task, priority)
        self._victims[task.group] = set(victims)

    def count(self, task: Task, priority: int) -> None:
        """A task has cells of its virtual cluster from now on, unless it runs opportunistically."""
        self._victims.pop(task.group, None)
        if task.group not in self._counted and priority != OPPORTUNISTIC_PRIORITY:
            self._counted[task.group] = (task.vc, priority, task.shape.leaf_count)
            self._by_vc[task.vc][priority] += task.shape.leaf_count

    def uncount(self, group: str) -> bool:
        """A group has none any more; returns whether it had some."""
        self._victims.pop(group, None)
        for victims in self._victims.values():
            victims.discard(group)
        if group not in self._counted:
            return False
        vc, priority, count = self._counted.pop(group)
        self._by_vc[vc][priority] -= count
        return True

    def lend(self, groups: Iterable[str]) -> None:
        """Groups go on as opportunistic ones."""
        self._lent += [group for group in groups if self.uncount(group)]

    def take_lent(self) -> tuple[str, ...]:
        """The groups that do so since this was asked last."""
        lent = tuple(self._lent)
        self._lent.clear()
        return lent
