"""Borrowers that leave because a unit would not be within the max of a quota, or its user's limit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hived_extender.queues.claims import Claims
from hived_extender.queues.reclaim import Borrower
from hived_extender.queues.room import Ask, Pending, Room, Victims
from hived_extender.queues.table import Table
from hived_extender.queues.units import OtherUse, Unit


class Claimants:
    """Units that others leave for: while borrowers are asked about, they count as if they ran.

    So no queue has more leave at once than its share, nor than its quota, and nobody borrows the quota of a unit that
    is due. Cost: O(claims).
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._units: dict[str, tuple[Unit, bool]] = {}

    def take_all(self, claims: Claims, *, is_borrowed: bool) -> None:
        """Count those of all claims of borrowers, or of units that are due while others leave for them."""
        for claim in self._table.claims.values():
            if claim.ask.is_borrowed == is_borrowed and (is_borrowed or claims.are_leaving(claim)):
                self.take(claim.ask.unit, is_borrowed=is_borrowed)

    def take(self, unit: Unit, *, is_borrowed: bool = True) -> None:
        """Count one more."""
        self._units[unit.key] = unit, is_borrowed
        if is_borrowed:
            self._table.shares.take(unit)
        self._table.live.take(unit)

    def give(self, unit: Unit) -> None:
        """Count one no more, if it is counted."""
        _, is_borrowed = self._units.pop(unit.key, (unit, None))
        if is_borrowed:
            self._table.shares.give(unit)
        if is_borrowed is not None:
            self._table.live.give(unit)

    def give_all(self) -> None:
        """Count none any more."""
        for unit, _ in list(self._units.values()):
            self.give(unit)


def quota_victims(table: Table, unit: Unit, order: Callable[[], Iterable[Borrower]]) -> list[str]:
    """The keys of those that have to leave for a unit that is due, besides those that leave for it already.

    None needlessly; empty if no leaving helps. `order` has all borrowers as `for_due`. Cost: nothing if it is within.
    """
    if not is_refused(table, unit):
        return []
    return least(table, unit, (each for each in order() if not each.is_due), _leaving_for(table, unit)) or []


def lent_victims(table: Table, unit: Unit) -> tuple[str, ...] | None:
    """The opportunistic groups of no unit that have to leave for one that is due, so that it is within its quotas.

    Those of one job leave together, newest jobs first, none needlessly; empty if those that leave already are enough.
    None if it is within its quotas, or if no leaving helps.
    """
    if table.live.ledger.refusal(unit) is None:
        return None
    others = [each.rest for each in table.others if each.lent]
    leaving = [each for each in others if all(group in table.sent_off for group in each.lent)]
    gone = list[OtherUse]()
    for each in (*leaving, *(each for each in reversed(others) if each not in leaving)):
        if table.live.ledger.refusal(unit) is None:
            break
        table.live.ledger.give_others(each)
        gone.append(each)
    is_enough, kept = table.live.ledger.refusal(unit) is None, list[OtherUse]()
    for each in gone:
        table.live.ledger.take_others(each)
        if is_enough and table.live.ledger.refusal(unit) is not None:
            table.live.ledger.give_others(each)
            kept.append(each)
    for each in kept:
        table.live.ledger.take_others(each)
    found = dict.fromkeys(group for each in kept for group in each.lent if group not in table.sent_off)
    return tuple(found) if is_enough else None


def victims_within(table: Table, room: Room, ask: Ask, order: Sequence[Borrower], pending: Pending) -> Victims | None:
    """Which of these have to leave for a borrower, so that it has cells and is within its quotas; None if all are not
    enough.
    """
    unit, there = ask.unit, {each.unit.key: each for each in order}
    if least(table, unit, order) is None:
        return None
    found = room.victims(ask, list(there), pending)
    if found is None or not is_refused(table, unit):
        return found
    others = [each for key, each in there.items() if key not in found.keys]
    more = least(table, unit, others, [there[key] for key in found.keys]) or []
    fewer = room.victims(ask, found.keys, replace(pending, leaving=(*pending.leaving, *more)))
    if fewer and least(table, unit, (), [there[key] for key in (*fewer.keys, *more)]) is not None:
        found = fewer
    return replace(found, keys=(*found.keys, *more))


def least(
    table: Table, unit: Unit, candidates: Iterable[Borrower], leaving: Sequence[Borrower] = ()
) -> list[str] | None:
    """The keys of the first that have to leave besides `leaving`, none needlessly; None if all are not enough.

    Borrowers that have been told to leave are still counted until they have. Cost: nothing if the unit is within.
    """
    for each in leaving:
        table.live.give(each.unit)
    gone: list[Borrower] = []
    for each in candidates:
        if not is_refused(table, unit):
            break
        table.live.give(each.unit)
        gone.append(each)
    is_enough = not is_refused(table, unit)
    kept = []
    for each in gone:
        table.live.take(each.unit)
        if is_enough and is_refused(table, unit):
            table.live.give(each.unit)
            kept.append(each)
    for each in (*kept, *leaving):
        table.live.take(each.unit)
    return [each.unit.key for each in kept] if is_enough else None


def is_refused(table: Table, unit: Unit) -> bool:
    """Would it be above a quota, or its user's limit?"""
    return table.live.ledger.refusal(unit) is not None or table.live.is_over_users_limit(unit)


def _leaving_for(table: Table, unit: Unit) -> list[Borrower]:
    claim = table.claims.get(unit.key)
    there = [] if claim is None else [table.entries[key] for key in claim.victims if key in table.entries]
    return [Borrower(each.unit, each.run.start_s, False) for each in there if each.run is not None and each.is_leaving]
