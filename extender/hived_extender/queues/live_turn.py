"""A turn of the live cluster: units that are due get their cells, others borrow what is left, and give back.

A unit that is due and does not fit has borrowers told to leave; it holds its cells once they have. Until then nobody
else gets these cells: each question names the claims that come first.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hived.decisions import Bind, Wait
from hived_extender.queues.entries import Entry, Run
from hived_extender.queues.order import Walk
from hived_extender.queues.policies import Policy
from hived_extender.queues.quota_victims import Claimants, is_refused, quota_victims, victims_within
from hived_extender.queues.reclaim import Borrower, for_borrower, for_due
from hived_extender.queues.room import Ask, Claimed, NoCells, Pending, Room, Victims
from hived_extender.queues.table import Reclaim, Table
from hived_extender.queues.units import Evict, Order, Start, Stop
from hived_extender.queues.user_limits import count_waiting

FOR_DUE = "its cells are promised to another job, whose turn has come"
FOR_PRIORITY = "a job of higher priority in its virtual cluster has its place"
FOR_SHARE = "its queue has borrowed more than its share"
FOR_QUOTA = "its quota has room for a job that is due, or for this one, but not for both"


class LiveTurn:
    """One turn. `orders` are its result."""

    def __init__(self, table: Table, room: Room, now: float) -> None:
        self._table, self._room, self._now = table, room, now
        self.orders: list[Order] = []
        self._claimants = Claimants(table)
        self._left = table.pace.questions
        self._shared: Pending | None = None  # for all units without a claim, until something is claimed or left

    def run(self, stops: Mapping[str, str]) -> bool:
        """`stops` are units that lost their place in their own schedule, with the winner.

        False if the turn is cut.
        """
        self._claim_again()
        for key, winner in stops.items():
            self._give_way(key, winner)
        self._table.shares.advance(self._now)
        self._drop_claims()
        if not self._serve_due():
            return False
        self._settle_borrowed_claims()
        self._claimants.take_all()
        is_done = self._serve_borrowers()
        self._claimants.give_all()
        return is_done

    def _give_way(self, key: str, winner: str) -> None:
        """A unit has lost its place in its own schedule. Either may be gone meanwhile, if the turn was cut."""
        entry = self._table.entries.get(key)
        if entry is not None and entry.run is not None and not entry.is_leaving:
            self._stop([key], winner, FOR_PRIORITY)
            if winner in self._table.entries:
                self._claim(winner, [key])

    def _claim_again(self) -> None:
        """Units that earlier queues have told to leave are waited for by the same ones, in the same order."""
        table, left = self._table, []
        for _, key, winner in sorted(table.told_to_leave):
            left.append(key)
            if (entry := table.entries.get(winner)) is not None and entry.is_waiting:
                own, known = table.own.runs.get(winner), table.claims.get(winner)
                ask = Ask(entry.unit, own is None, () if own is None else own.own)
                table.claims[winner] = Reclaim(ask, (*(() if known is None else known.victims), key), tuple(left))
        table.told_to_leave.clear()

    # Units that are due

    def _serve_due(self) -> bool:
        """Ask for all units that are due, if there is news for one. False if some are left to the next turn."""
        table, round_ = self._table, self._table.round
        if not round_.left:
            if table.asked_at == table.change and all(table.due.values()):
                return True
            round_.left, round_.has_news = dict.fromkeys(table.due), False
        else:
            round_.has_news = round_.has_news or round_.change != table.change
            round_.left |= {key: None for key, refusal in table.due.items() if not refusal}
        while round_.left and self._left > 0:
            key = next(iter(round_.left))
            del round_.left[key]
            if key in table.due:
                self._serve_one(table.entries[key])
        round_.change = table.change
        if not round_.left:
            table.asked_at = -1 if round_.has_news else table.change
        return not round_.left

    def _serve_one(self, entry: Entry) -> None:
        """Hold the cells of a unit that is due, or have others leave for it.

        Units that have lost their place in its virtual cluster have to leave its very cells first. Whoever else has to
        leave is told at the same time, so that all of it takes one grace period.
        """
        table, key = self._table, entry.unit.key
        own = table.own.runs[key]
        here = [other for other, leaves in table.vacating.items() if np.isin(own.leaves, leaves).any()]
        victims = quota_victims(table, entry.unit, self._now)
        self._stop(victims, key, FOR_QUOTA)
        if here or victims:
            self._claim(key, [*here, *victims])
        ask, refusal = Ask(entry.unit, False, own.own), "waits for jobs of lower priority to leave"
        if not here:
            found = self._hold(ask, self._pending(key, is_borrowed=False))
            if isinstance(found, Bind):
                self._start(entry, ask)
                return
            refusal = found.reason or "waits for borrowed cells"
        table.due[key] = refusal
        claim = table.claims.get(key)
        is_waiting = claim is not None and self._are_leaving(claim)
        if not (claim is not None and is_waiting and claim.is_asked):
            self._make_room(entry, ask, is_last=not is_waiting)

    def _make_room(self, entry: Entry, ask: Ask, *, is_last: bool) -> None:
        """Borrowers leave for a unit that is due. `is_last`: nobody leaves for it any more.

        If its own cells have no hardware then, whoever leaves, any others have to do, or borrowed ones that are free.
        """
        table, key = self._table, entry.unit.key
        order = [each.unit.key for each in for_due(table.all_borrowers(), table.shares, self._now)]
        for wish in (ask, Ask(entry.unit, False)) if ask.own and is_last else (ask,):
            pending = self._pending(key, is_borrowed=False)
            if wish is not ask and isinstance(self._hold(wish, pending), Bind):
                self._start(entry, wish)
                return
            victims = self._victims(wish, order, pending)
            if victims is not None:
                self._evict(victims, key, FOR_DUE)
                self._claim(key, victims.keys, wish)
                table.claims[key].is_asked = True
                return
        lent = Ask(entry.unit, True)
        may_borrow = is_last and table.may_borrow(entry.unit) and not is_refused(table, entry.unit)
        if may_borrow and isinstance(self._hold(lent, self._pending(key)), Bind):
            self._start(entry, lent)

    # Borrowers

    def _serve_borrowers(self) -> bool:
        """Lend what nobody uses. False if some units are left to the next turn."""
        table = self._table
        if not table.ahead.count:
            return True
        closed: dict[str, None] = {}
        depth: dict[str, int] = {}
        walk = Walk(table.ahead, table.ahead_rank)
        for key in walk:
            if self._left <= 0:
                return False
            entry = table.entries[key]
            queue, rules = entry.unit.queue, table.rules.of(entry.unit.queue)
            depth[queue] = depth.get(queue, 0) + 1
            if queue in closed or (rules.max_depth and depth[queue] > rules.max_depth):
                continue
            is_blocking = rules.policy is Policy.BLOCK
            if is_blocking and not table.blocks.may_try(queue, key, self._now, table.change):
                closed[queue] = None
            elif self._borrow(entry):
                walk.took()
                if is_blocking:
                    table.blocks.started(queue)
            elif is_blocking:
                closed[queue] = None
                table.blocks.refused(queue, key, self._now, table.change)
        return True

    def _borrow(self, entry: Entry) -> bool:
        """Start a unit on cells that nobody uses; if there are none, take some back from borrowers over their share."""
        table, unit, kind = self._table, entry.unit, entry.kind
        refusal = table.ahead_refusals.get(kind)
        if refusal is None:
            refusal = table.live.ledger.refusal(unit)
            if refusal is None and table.live.is_over_users_limit(unit):
                refusal = "its user has as many jobs that run as the queue allows"
            ask, (spec, needs) = Ask(unit, True), table.borrowed_shape(kind)
            refusal = refusal or table.shape_refusals.get((spec, None)) or table.shape_refusals.get((spec, needs))
            if refusal is None:
                found = self._hold(ask, self._pending(unit.key))
                if isinstance(found, Bind):
                    self._start(entry, ask)
                    return True
                refusal = found.reason
                table.shape_refusals[spec, None if isinstance(found, NoCells) else needs] = refusal
            table.ahead_refusals[kind] = refusal
        if kind not in table.reclaim_refusals and unit.key not in table.claims:
            self._take_back(entry)
        return False

    def _take_back(self, entry: Entry) -> None:
        table, unit = self._table, entry.unit
        order = for_borrower(unit, table.borrowers(), table.shares, table.exchanges, self._now)
        ask = Ask(unit, True)
        victims = self._borrowers_that_leave(ask, order) if order else None
        if victims is None:
            table.reclaim_refusals[entry.kind] = None
            return
        for victim in victims.keys:
            table.exchanges.evicted(victim, unit.key)
        self._evict(victims, unit.key, FOR_SHARE)
        self._claim(unit.key, victims.keys, ask)
        self._claimants.take(unit)

    # Questions

    def _hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        found = self._room.hold(ask, pending)
        self._left -= 1 + (len(pending.claims) if isinstance(found, Bind) else 0)
        return found

    def _borrowers_that_leave(self, ask: Ask, order: Sequence[Borrower]) -> Victims | None:
        pending = self._pending(ask.unit.key)
        self._left -= 1 + len(pending.claims)
        return victims_within(self._table, self._room, ask, order, pending)

    def _victims(self, ask: Ask, candidates: Sequence[str], pending: Pending) -> Victims | None:
        self._left -= 1 + len(pending.claims)
        return self._room.victims(ask, candidates, pending)

    # Claims

    def _claim(self, key: str, victims: Sequence[str], ask: Ask | None = None) -> None:
        table = self._table
        known = table.claims.get(key)
        if ask is None:
            unit = table.entries[key].unit
            own = table.own.runs.get(key)
            ask = known.ask if known is not None else Ask(unit, own is None, () if own is None else own.own)
        before = () if known is None else known.victims
        leaving = table.leaving()
        if known is not None and self._are_leaving(known):
            leaving = tuple(dict.fromkeys((*known.leaving, *victims)))
        self._shared = None
        is_asked = known is not None and known.is_asked
        table.claims[key] = Reclaim(ask, tuple(dict.fromkeys((*before, *victims))), leaving, is_asked)

    def _drop_claims(self) -> None:
        """Forget claims of units that have cells, are gone, or have lost their turn."""
        table = self._table
        for key, claim in list(table.claims.items()):
            entry = table.entries.get(key)
            is_over = entry is None or not entry.is_waiting or not entry.is_standing
            if is_over or (not claim.ask.is_borrowed and key not in table.own.runs):
                self._drop(key)

    def _settle_borrowed_claims(self) -> None:
        """A borrower whose room is made gets its cells, before all others that borrow; else it stands in line again."""
        table = self._table
        for key, claim in list(table.claims.items()):
            if claim.ask.is_borrowed and (key in table.own.runs or not self._are_leaving(claim)):
                self._drop(key)
                may_start = key not in table.own.runs and not is_refused(table, claim.ask.unit)
                if may_start and isinstance(self._hold(claim.ask, self._pending(key)), Bind):
                    self._start(table.entries[key], claim.ask)

    def _drop(self, key: str) -> None:
        del self._table.claims[key]
        self._shared = None
        self._table.freed()

    def _are_leaving(self, claim: Reclaim) -> bool:
        return any(map(self._is_leaving, claim.leaving))

    def _is_leaving(self, key: str) -> bool:
        entry = self._table.entries.get(key)
        return entry is not None and entry.is_leaving

    def _pending(self, key: str, *, is_borrowed: bool = True) -> Pending:
        """The claims that a question about this unit has to heed: those before its own one, in order.

        Later ones too as long as others leave for it: it is then to wait for these cells, rather than take others'. A
        unit that is due heeds no claims of borrowers.
        """
        table = self._table
        own = table.claims.get(key)
        if is_borrowed and own is None and self._shared is not None:
            return self._shared
        keeps_all = own is None or self._are_leaving(own)
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

    # Orders

    def _start(self, entry: Entry, ask: Ask) -> None:
        table, key = self._table, entry.unit.key
        if table.claims.pop(key, None) is not None:
            self._claimants.give(entry.unit)
            self._shared = None
            table.freed()  # others were refused for the sake of the claim, which may have got other cells
        table.started(entry, Run(self._now, ask.is_borrowed))
        count_waiting(table, entry)
        self.orders.append(Start(key, ask.is_borrowed, ask.own))

    def _evict(self, victims: Victims, winner: str, why: str) -> None:
        self._stop(victims.keys, winner, why)
        if victims.groups:
            self.orders.append(Evict(victims.groups, winner))

    def _stop(self, keys: Iterable[str], winner: str, why: str) -> None:
        for key in keys:
            self._table.leaves(self._table.entries[key], winner)
            self._shared = None
            self.orders.append(Stop(key, winner, why))
