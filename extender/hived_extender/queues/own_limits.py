"""May the own schedule of a virtual cluster start a unit at all: by its quota and user, and if nobody else ran?"""

from hived.values.errors import UserError
from hived_extender.queues import played
from hived_extender.queues.entries import Entry
from hived_extender.queues.table import OwnRefusals, Table
from hived_extender.queues.units import smallest

MOST_POSSIBLE = 1000
"""Specs of which is remembered that they fit an empty virtual cluster."""


def is_promised(table: Table, entry: Entry, refusals: OwnRefusals) -> bool:
    """May the queue and the user have more in the own schedule?"""
    if entry.kind in refusals.not_promised:
        return False
    unit = entry.unit
    if table.own_use.ledger.is_within_min(smallest(unit)) and not table.own_use.is_over_users_limit(unit):
        return True
    refusals.not_promised.add(entry.kind)
    if not table.empty_ledger.is_within_min(smallest(unit)):
        _never(table, entry, refusals)
    return False


def awaits_quota(table: Table, entry: Entry, refusals: OwnRefusals) -> bool:
    """Is its quota alone in the way, until others of it end, and would it run then?"""
    use, unit = table.own_use, entry.unit
    is_never = entry.kind in refusals.never or unit.key not in table.entries
    if is_never or use.is_over_users_limit(unit) or use.ledger.is_within_min(smallest(unit)):
        return False
    try:
        return could_ever(table, entry, refusals)
    except UserError as error:
        table.cannot(entry, error)
        return False


def could_ever(table: Table, entry: Entry, refusals: OwnRefusals) -> bool:
    """Would the unit fit its virtual cluster if nobody ran? Cost: a search, once for each shape."""
    shape = smallest(entry.unit).spec.of_group("")
    if shape not in refusals.possible:
        if table.own.find_alone(smallest(entry.unit)) is None:
            _never(table, entry, refusals)
            return False
        if len(refusals.possible) >= MOST_POSSIBLE:
            refusals.possible.clear()
        refusals.possible.add(shape)
    return True


def _never(table: Table, entry: Entry, refusals: OwnRefusals) -> None:
    """The own schedule will not start this kind, however empty it is."""
    refusals.never.add(entry.kind)
    for _, key in list(table.own_lines[entry.unit.vc].units(entry.kind)):
        other = table.entries[key]
        if other.ran_s is not None:
            played.forget(table, other)
        else:
            table.settle(other)
