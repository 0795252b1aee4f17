"""Units that went past the first one of their virtual cluster, as they promised by their limit to end before its start.

Nobody may enforce the limit, and its owner may raise it later. So it is noted at the start, and a unit that still runs
`SLACK_S` after it leaves once the first unit would start in its place.
"""

from math import inf

import numpy as np

from hived_extender.queues.entries import Entry
from hived_extender.queues.table import Table

SLACK_S = 60.0
"""A job that is ended by its limit takes a while to end: its controller, and the grace periods of its pods."""


def note(table: Table, entry: Entry, promised_s: float | None) -> None:
    """A unit starts in its own schedule; None: it goes past nobody, or for another reason."""
    entry.promised_s = promised_s
    if promised_s is not None:
        table.promised[entry.unit.key] = False


def broken_since(table: Table, key: str) -> float:
    """The moment at which the promise of a unit is broken; infinite while it has no cells, or has really ended."""
    entry, own = table.entries.get(key), table.own.runs.get(key)
    if entry is None or own is None or entry.run is None or entry.promised_s is None or entry.is_leaving:
        return inf
    return max(entry.run.start_s, own.due_s) + entry.promised_s + SLACK_S


def look(table: Table, now: float) -> None:
    """Have virtual clusters looked at in which a promise was broken since the last look. Cost O(promises)."""
    for key, is_broken in table.promised.items():
        if not is_broken and broken_since(table, key) <= now:
            table.promised[key] = True
            table.refusals(table.entries[key].unit.vc).is_stale = True


def in_the_way(table: Table, first: Entry, now: float) -> list[str]:
    """Units that have broken their promise, and without which the first one would start; none if others are as well.

    Cost O(promises), and of a search where some are broken.
    """
    runs = table.own.runs
    broken = [key for key in table.promised if broken_since(table, key) <= now and runs[key].unit.vc == first.unit.vc]
    if not broken:
        return []
    placed = table.own.find_without(first.unit, (runs[key].unit for key in broken))
    if placed is None:
        return []
    return [key for key in broken if np.isin(runs[key].leaves, placed.leaves).any()]
