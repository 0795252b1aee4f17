"""Units that earlier queues have started go on in the own schedules, before the first turn of new queues."""

import numpy as np

from hived.values.errors import UserError
from hived_extender.queues import played, promises
from hived_extender.queues.entries import Entry
from hived_extender.queues.table import Table


class Restarts:
    """See the module."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._started: dict[str, tuple[float, tuple[int, ...]]] = {}  # due moments and leaves, until the next turn

    def was_due(self, key: str, due_s: float) -> None:
        """The own schedule of earlier queues had started a unit then."""
        self._started[key] = due_s, ()

    def runs_on(self, entry: Entry, own: tuple[int, ...]) -> None:
        """A unit that earlier queues have started has these virtual leaves in the live cluster, none if borrowed.

        One that leaves has them until it has left: others that are due there wait for that.
        """
        if own and entry.is_leaving:
            self._table.vacating[entry.unit.key] = np.array(own, np.int32)
        elif own and entry.run is not None and not entry.run.is_borrowed:
            due_s, _ = self._started.get(entry.unit.key, (entry.run.start_s, ()))
            self._started[entry.unit.key] = due_s, own

    def go_on(self, now: float) -> None:
        """Let units go on here that were here in earlier queues; first those whose leaves are known."""
        for key, (due_s, own) in sorted(self._started.items(), key=lambda each: (not each[1][1], each[1][0], each[0])):
            entry = self._table.entries.get(key)
            if entry is not None and key not in self._table.own.runs:
                self._restart(entry, due_s, own, now)
        self._started.clear()

    def _restart(self, entry: Entry, due_s: float, own: tuple[int, ...], now: float) -> None:
        """A unit goes on here, on these leaves if they are free.

        One that has really ended by now is played no further than it would have been, be there room for it or not.
        """
        table, unit = self._table, entry.unit
        if entry.ran_s is not None and due_s + entry.ran_s <= now:
            played.forget(table, entry)
            return
        try:
            placed = table.own.find(unit, now, own)
        except UserError:
            placed = None
        if placed is None or placed.victims:
            if entry.ran_s is not None:
                entry.ran_s = due_s + entry.ran_s - now
            return
        table.own.start(unit, placed, due_s)
        promises.note(table, entry, entry.promised_s)
        table.own_use.take(unit)
        if entry.ran_s is not None:
            table.own.runs[unit.key].end_s = due_s + entry.ran_s
            table.played.setdefault(unit.vc, {})[unit.key] = None
        table.settle(entry)
