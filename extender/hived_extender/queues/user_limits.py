"""Units that stand aside because their user has too many that wait: the first ones stand in line, by arrival."""

from hived_extender.queues.entries import Entry
from hived_extender.queues.table import Table


def count_waiting(table: Table, about: Entry) -> None:
    """The user of a unit has one more that waits, or one fewer. Cost O(units of the user that wait)."""
    unit = about.unit
    most = table.rules.of(unit.queue).most_waiting
    if most is None:
        return
    waits = table.user_waits.setdefault(unit.owner, {})
    waits[unit.key] = None
    count = 0
    for key in list(waits):
        entry = table.entries.get(key)
        if entry is None or not entry.is_waiting:
            del waits[key]
            continue
        count += 1
        if entry.is_over != (count > most):
            entry.is_over = count > most
            table.settle(entry)
