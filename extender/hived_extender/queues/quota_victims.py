"""Borrowers that leave because a unit that is due would not be within the max of its quota, or its user's limit."""

from hived_extender.queues.reclaim import Borrower, for_due
from hived_extender.queues.table import Table
from hived_extender.queues.units import Unit


def quota_victims(table: Table, unit: Unit, now: float) -> list[str]:
    """The keys of those that have to leave, none needlessly; empty if the unit is within, or no leaving helps.

    Borrowers that have been told to leave are still counted until they have. Cost: nothing if it is within.
    """
    if not _is_refused(table, unit):
        return []
    gone: list[Borrower] = []
    candidates = [each for each in for_due(table.borrowers(), table.shares, now) if not each.is_due]
    for each in candidates:
        if not _is_refused(table, unit):
            break
        if _is_related(each.unit, unit):
            _count(table, each.unit, -1)
            gone.append(each)
    is_enough = not _is_refused(table, unit)
    kept = []
    for each in gone:
        _count(table, each.unit, 1)
        if is_enough and _is_refused(table, unit):
            _count(table, each.unit, -1)
            kept.append(each)
    for each in kept:
        _count(table, each.unit, 1)
    return [each.unit.key for each in kept]


def _is_refused(table: Table, unit: Unit) -> bool:
    return table.live_ledger.refusal(unit) is not None or table.is_over_users_limit(unit, table.users)


def _is_related(one: Unit, other: Unit) -> bool:
    """Do their queues have an ancestor in common below the root?"""
    return one.queue.split("/")[:2] == other.queue.split("/")[:2]


def _count(table: Table, unit: Unit, sign: int) -> None:
    if sign > 0:
        table.live_ledger.take(unit)
    else:
        table.live_ledger.give(unit)
    table.users[unit.owner] = table.users.get(unit.owner, 0) + sign
