"""Another place in the order for a unit that its owner or an admin moves."""

import math

from hived.values.errors import UserError
from hived_extender.queues.entries import Entry
from hived_extender.queues.table import Table

FRONT, BACK = "front", "back"

Place = str
"""`front`, `back`, or the key of the unit that it is to be before."""


def place_for(table: Table, entry: Entry, to: Place) -> float:
    """The number of the new place. Cost O(units). Raises UserError if the other unit does not wait in the queue.

    Units created at the same moment have one place: a unit that is moved before one of them is before all.
    """
    peers = sorted(
        other.at
        for other in table.entries.values()
        if other is not entry
        and other.is_waiting
        and other.unit.queue == entry.unit.queue
        and other.unit.priority == entry.unit.priority
    )
    if to == FRONT:
        return peers[0][0] - 1.0 if peers else entry.place
    if to == BACK:
        return peers[-1][0] + 1.0 if peers else entry.place
    keys = [key for _, key in peers]
    if to not in keys:
        raise UserError(
            f"{_plain(entry.unit.key)} cannot be moved before {_plain(to)}: expected front, back or a job of priority"
            f" {entry.unit.priority} that waits in queue {entry.unit.queue}"
        )
    index = keys.index(to)
    after = peers[index][0]
    before = peers[index - 1][0] if index else after - 2.0
    middle = before + (after - before) / 2
    return middle if before < middle < after else math.nextafter(after, -math.inf)


def is_behind(other: Entry, entry: Entry) -> bool:
    """Does another unit come after one of its queue and priority?"""
    of, unit = other.unit, entry.unit
    return (of.queue, of.priority) == (unit.queue, unit.priority) and other.at > entry.at


def _plain(key: str) -> str:
    """The name of a job as people know it, without the uid."""
    return key.rpartition("/")[0] or key
