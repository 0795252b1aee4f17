"""Lent cells that guaranteed work of no queue takes back: who leaves for it, in the order as for a job that is due."""

from dataclasses import dataclass

from hived_extender.queues.reclaim import for_due
from hived_extender.queues.room import Claimed, Pending
from hived_extender.queues.table import Table


@dataclass(frozen=True, slots=True)
class Lent:
    """Units on borrowed cells, by key, in the order in which they should leave; and room that is being made already."""

    borrowers: tuple[str, ...]
    pending: Pending


def lent_of(table: Table, now: float) -> Lent:
    """See `Lent`. Of the claims only those of units that are due are in it. Cost O(units that run)."""
    leaving = tuple(key for key in table.running if table.entries[key].leaving_for)
    claims = [
        Claimed(claim.ask, tuple(key for key in claim.leaving if key in leaving))
        for claim in table.claims.values()
        if not claim.ask.is_borrowed
    ]
    order = for_due(table.borrowers(), table.shares, now)
    return Lent(tuple(each.unit.key for each in order), Pending(leaving, tuple(claims)))
