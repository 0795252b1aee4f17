"""Questions about queues, as of the last turn. Nothing changes."""

from collections.abc import Collection, Iterable, Mapping

from hived_extender.queues import explaining
from hived_extender.queues.reasons import Reason
from hived_extender.queues.room import Lent
from hived_extender.queues.table import Table
from hived_extender.queues.units import OtherUse, Unit


class Questions:
    """See the module. `Queues` are asked."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._now_s = 0.0  # of the last turn

    def order(self, queue: str) -> list[str]:
        """The keys of the units of a queue that wait, first first. Cost O(n log n)."""
        return explaining.order_of(self._table, queue)

    def first(self, queue: str, count: int) -> list[str]:
        """The beginning of `order`. Cost O(kinds + count)."""
        return explaining.first_of(self._table, queue, count)

    def position(self, key: str) -> int | None:
        """1 for the first of its queue; None for one that does not wait. Cost O(kinds of the queue)."""
        return explaining.position_of(self._table, key)

    def why(self, key: str, place: int = 0, known: explaining.Known | None = None) -> Reason | None:
        """Why a unit waits, as of the last turn; None for one that is unknown. `place` is its position, if known.

        Questions about many units share `known`, empty at first, for as long as nothing changes.
        """
        return explaining.why(self._table, key, self._now_s, place, known)

    def refusal(self, key: str) -> Reason | None:
        """The reason of `why`, unless it only is not its turn; so no start is estimated."""
        return explaining.refusal(self._table, key)

    def freed_by(self, key: str) -> list[str]:
        """The units each of which, by its end, would leave a unit within its quota and its user's limit.

        Cost O(units that run).
        """
        return explaining.freed_by(self._table, key)

    def after(self, key: str, ended: Collection[str], priority: int) -> tuple[bool, list[str]]:
        """May a unit that waits start once these have ended, and which of its queue may before it, first first?

        By quota and limits alone; those of a lower `priority` do not count. They are at most `explaining.MOST_BEFORE`:
        if there are more, it may not. Cost O(units that run + units before it).
        """
        return explaining.after(self._table, key, ended, priority)

    def running_unit(self, key: str) -> Unit | None:
        """A unit with cells, as it counts; None for one that has none, or is unknown."""
        entry = self._table.entries.get(key)
        return None if entry is None or entry.run is None else entry.unit

    @property
    def others(self) -> tuple[OtherUse, ...]:
        """The use of quotas by pods of no unit."""
        return self._table.others

    @property
    def run_changes(self) -> int:
        """A count that grows whenever other units have cells, or have others."""
        return self._table.run_changes

    def may_borrow(self, key: str) -> bool:
        """May a unit that is known run on borrowed cells now?"""
        entry = self._table.entries[key]
        return self._table.may_borrow(entry.unit) and not entry.returned.is_on

    def lent(self, now: float) -> Lent:
        """The units on borrowed cells, which leave for guaranteed work of no queue as for a unit that is due."""
        return explaining.lent_of(self._table, now)

    def queues(self) -> list[str]:
        """The full names of all queues that have units, ascending."""
        return explaining.queues_of(self._table)

    def shares(self, names: Iterable[str] | None = None) -> Mapping[str, float]:
        """The share of each of these queues, as `shares` has it; of all that have units by default."""
        return {queue: self._table.shares.share(queue) for queue in (self.queues() if names is None else names)}

    def due(self, key: str) -> float | None:
        """When its own schedule started a unit, None if it has not."""
        return None if (run := self._table.own.runs.get(key)) is None else run.due_s

    def promised(self, key: str) -> float | None:
        """The limit by which a unit went past the first one that did not fit, None if it has not."""
        return entry.promised_s if (entry := self._table.entries.get(key)) is not None else None

    def own_cells(self, key: str) -> tuple[int, ...]:
        """The virtual leaf cells of a unit in its own schedule, in slot order; empty if it does not run there."""
        return () if (run := self._table.own.runs.get(key)) is None else run.own
