"""Room that is being made for units in the live cluster: by whom, and who has to heed it."""

from collections.abc import Sequence

from hived_extender.jobs.job import uid_of
from hived_extender.queues.room import Ask, Claimed, Pending
from hived_extender.queues.table import Reclaim, Table


class Claims:
    """See the module. They are those of the table, for one turn."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._shared: Pending | None = None  # for all units without a claim, until something is claimed or left

    def changed(self) -> None:
        """A unit was told to leave, or has its cells."""
        self._shared = None

    def renew(self) -> None:
        """Units that earlier queues have told to leave are waited for by the same ones, in the same order.

        Unless another unit has come since, they do not take turns with these either.
        """
        table, left = self._table, []
        if not table.told_to_leave:
            return
        keys = {uid_of(key): key for key in table.entries}
        newest_s = max((entry.unit.created_s for entry in table.entries.values()), default=0.0)
        for at_s, key, named in sorted(set(table.told_to_leave)):
            winner = named if named in table.entries else keys.get(uid_of(named), "")  # kept ones may be masked
            if at_s >= newest_s:
                table.exchanges.evicted(key, winner)
            if not self._is_leaving(key):
                continue
            left.append(key)
            if (entry := table.entries.get(winner)) is not None and entry.is_waiting:
                own, known = table.own.runs.get(winner), table.claims.get(winner)
                ask = Ask(entry.unit, own is None, () if own is None else own.own)
                table.claims[winner] = Reclaim(ask, (*(() if known is None else known.victims), key), tuple(left))
        table.told_to_leave.clear()

    def make(self, key: str, victims: Sequence[str], ask: Ask | None = None) -> None:
        """Others leave for a unit, besides those that do so already; for this request, or the one that it has."""
        table = self._table
        known = table.claims.get(key)
        if ask is None:
            unit = table.entries[key].unit
            own = table.own.runs.get(key)
            ask = known.ask if known is not None else Ask(unit, own is None, () if own is None else own.own)
        before = () if known is None else known.victims
        leaving = table.leaving()
        if known is not None and self.are_leaving(known):
            leaving = tuple(dict.fromkeys((*known.leaving, *victims)))
        self._shared = None
        is_asked = known is not None and known.is_asked
        table.claims[key] = Reclaim(ask, tuple(dict.fromkeys((*before, *victims))), leaving, is_asked)

    def drop_settled(self) -> None:
        """Forget claims of units that have cells, are gone, ask for something else, have lost their turn, or may not
        borrow.
        """
        table = self._table
        for key, claim in list(table.claims.items()):
            entry = table.entries.get(key)
            unit = claim.ask.unit
            is_over = entry is None or entry.unit is not unit or not entry.is_waiting or not entry.is_standing
            if is_over or not (table.may_borrow(unit) if claim.ask.is_borrowed else key in table.own.runs):
                self.drop(key)

    def drop(self, key: str) -> None:
        """Nobody leaves for a unit any more."""
        del self._table.claims[key]
        self._shared = None
        self._table.freed()

    def are_leaving(self, claim: Reclaim) -> bool:
        """Is one of those still to leave that had been told when the claim was made?"""
        return any(map(self._is_leaving, claim.leaving))

    def _is_leaving(self, key: str) -> bool:
        entry = self._table.entries.get(key)
        return entry is not None and entry.is_leaving

    def pending(self, key: str, *, is_borrowed: bool = True) -> Pending:
        """The claims that a question about this unit has to heed: those before its own one, in order.

        Later ones too as long as others leave for it: it is then to wait for these cells, rather than take others'. A
        unit that is due heeds no claims of borrowers.
        """
        table = self._table
        own = table.claims.get(key)
        if is_borrowed and own is None and self._shared is not None:
            return self._shared
        keeps_all = own is None or self.are_leaving(own)
        claims: list[Claimed] = []
        for other, claim in sorted(table.claims.items(), key=lambda each: each[1].ask.is_borrowed):
            if claim.ask.is_borrowed and not is_borrowed:
                break
            if other != key:
                claims.append(Claimed(claim.ask, tuple(each for each in claim.leaving if self._is_leaving(each))))
            elif not keeps_all:
                break
        found = Pending(table.leaving(), tuple(claims))
        if is_borrowed and own is None:
            self._shared = found
        return found
