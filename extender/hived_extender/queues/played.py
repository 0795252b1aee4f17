"""Units that ran ahead and have really ended: they stay until their own schedules have played them."""

from hived_extender.queues.entries import Entry
from hived_extender.queues.table import Table

MOST_PLAYED = 10_000
"""Of a virtual cluster."""


def keep(table: Table, entry: Entry) -> str | None:
    """A unit is yet to be played. Returns the oldest one if there are too many: it is to be played no further."""
    played = table.played.setdefault(entry.unit.vc, {})
    played[entry.unit.key] = None
    table.settle(entry)
    return next(iter(played)) if len(played) > MOST_PLAYED else None


def forget(table: Table, entry: Entry) -> None:
    """Nothing is left to be known of a unit."""
    table.entries.pop(entry.unit.key, None)
    table.played.get(entry.unit.vc, {}).pop(entry.unit.key, None)
    table.settle(entry)
    table.drop(entry)
