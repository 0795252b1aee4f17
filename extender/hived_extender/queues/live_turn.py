"""A turn of the live cluster: units that their own schedule has started get cells, others borrow the rest.

A unit that does not fit has borrowers told to leave, and holds its cells once they have. Until then they are claimed
(rule 31.7): each question to the room names the claims that come first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hived.values.decisions import Bind, Wait
from hived_extender.jobs.job import uid_of
from hived_extender.queues.ledger import Borrower, for_borrower, for_entitled
from hived_extender.queues.policies import Walk
from hived_extender.queues.reasons import QUOTA_KEPT
from hived_extender.queues.room import Ask, Claimed, NoCells, NoQuota, Pending, Room, RoomMade, Victims
from hived_extender.queues.table import Entry, Lending, Reclaim, Table, count_waiting
from hived_extender.queues.units import Evict, Order, OtherUse, Start, Stop, Unit, Upgrade, largest


class Claims:
    """The claims of the table (rule 31.7), for one turn."""

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
        """No unit leaves for this one any more."""
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

        Later ones too as long as others leave for it: it is then to wait for these cells, rather than take others'.
        An entitled unit heeds no claims of borrowers.
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


class Claimants:
    """Units that others leave for: they count as if they ran (rule 31.7).

    So no queue has more leave at once than its share or quota, and none borrows the quota of an entitled unit. Cost
    O(claims).
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._units: dict[str, tuple[Unit, bool]] = {}

    def take_all(self, claims: Claims, *, is_borrowed: bool) -> None:
        """Count those of all claims of borrowers, or of entitled units while others leave for them."""
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
    """The keys of the borrowers that leave for an entitled unit's quota (rule 31.10), besides those that leave already.

    None needlessly; empty if no leaving helps. `order` has borrowers as `for_entitled`. Cost: nothing if it is within.
    """
    if not is_refused(table, unit):
        return []
    return least(table, unit, (each for each in order() if not each.is_entitled), _leaving_for(table, unit)) or []


def lent_victims(table: Table, unit: Unit) -> tuple[str, ...] | None:
    """The opportunistic groups of no unit that leave for an entitled unit's quota (rule 31.10).

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
    """Return which of these have to leave for a borrower, so that it has cells and is within its quotas; None if all
    are not enough.
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
    return [Borrower(each.unit, each.start_s, False) for each in there if each.is_leaving]


SORTED = 100
"""To sort so many borrowers is as much as a question, about."""

MOST_WALKS = 4
"""Walks of one turn that end where cells come free meanwhile; after these one goes to its end all the same."""

LITTLE_S = 3600.0
"""A borrower that has run for no longer moves to its own cells when it is entitled, if these are elsewhere."""

FOR_ITSELF = "its turn has come, and its own cells are elsewhere"
FOR_ENTITLED = "its cells are promised to another job, whose turn has come"
FOR_PRIORITY = "a job of higher priority in its virtual cluster has its place"
FOR_BORROWER = "its queue has borrowed more than its share, or a job of higher priority in it borrows"
FOR_QUOTA = "its quota has room for an entitled job, or for this one, but not for both"


class LiveTurn:
    """One turn. `orders` are its result."""

    def __init__(self, table: Table, room: Room, now: float) -> None:
        self._table, self._room, self._now = table, room, now
        self.orders: list[Order] = []
        self._claims, self._claimants = Claims(table), Claimants(table)
        self._left = table.pace.questions
        self._walks = MOST_WALKS  # that may yet begin anew
        self._has_room_news = False
        self._by_loss: list[Borrower] | None = None  # as `for_entitled` has them, until a unit starts or leaves

    def run(self, stops: Mapping[str, str], *, is_new: bool = True) -> bool:
        """`stops` are units that lost their place in their own schedule, with the winner. One that is not `is_new` goes
        on with a turn that was cut.

        False if the turn is cut.
        """
        self._claims.renew()
        for key, winner in stops.items():
            self._stop_for(key, winner)
        self._table.shares.advance(self._now)
        self._claims.drop_settled()
        if is_new:
            self._upgrade()
        is_lending = self._is_lending()
        if not is_lending and not self._serve_entitled():
            return False
        self._claimants.take_all(self._claims, is_borrowed=False)
        if not is_lending:
            self._settle_borrowed_claims()
            self._left = max(self._left, 1 + self._table.pace.questions // 2)  # news for the due hold up no others
        self._claimants.take_all(self._claims, is_borrowed=True)
        is_done = self._serve_borrowers()
        self._claimants.give_all()
        return is_done

    def _stop_for(self, key: str, winner: str) -> None:
        """A unit has lost its place in its own schedule. Either may be gone meanwhile, if the turn was cut."""
        entry = self._table.entries.get(key)
        if entry is not None and entry.life.has_cells:
            self._stop([key], winner, FOR_PRIORITY)
            if winner in self._table.entries:
                self._claims.make(winner, [key])

    # Units that are due

    def _upgrade(self) -> None:
        """Upgrade or move borrowers that are entitled now (rule 31.9). Asked once for each change.

        One that borrowed while it was entitled stays, since its own cells had no hardware.
        """
        table = self._table
        for key, asked_at in list(table.owed.items()):
            if asked_at == table.change:
                continue
            entry = table.entries[key]
            run = table.own.runs[key]
            own = self._room.upgrade(Ask(entry.unit, False, run.own))
            if own is None:
                table.owed[key] = table.change
                if entry.life.is_live and self._now - LITTLE_S <= entry.start_s < run.entitled_s:
                    self._stop([key], key, FOR_ITSELF)
                continue
            table.own.seat(key, own)
            table.upgraded(entry)
            self._by_loss = None
            self.orders.append(Upgrade(key))

    def _serve_entitled(self) -> bool:
        """Ask for all entitled units, if there is news for one. False if some are left to the next turn."""
        table, round_ = self._table, self._table.round
        if not round_.left:
            if table.asked_at == table.change and all(table.entitled.values()):
                return True
            round_.left, round_.has_news = dict.fromkeys(table.entitled), False
        else:
            round_.has_news = round_.has_news or round_.change != table.change
            round_.left |= {key: None for key, refusal in table.entitled.items() if not refusal}
        while True:
            began = table.change
            while round_.left and self._left > 0:
                key = next(iter(round_.left))
                del round_.left[key]
                if key in table.entitled:
                    self._serve_one(table.entries[key])
            if round_.left or began == table.change:
                break
            round_.left = dict.fromkeys(table.entitled)  # some were refused for the sake of one that has cells by now
        round_.change, round_.has_news = table.change, round_.has_news or began != table.change
        if not round_.left:
            table.asked_at = -1 if round_.has_news else table.change
        return not round_.left

    def _serve_one(self, entry: Entry) -> None:
        """Hold the cells of an entitled unit, or have others leave for it (rule 30.3), all in one grace period.

        Units that have lost their place in its virtual cluster have to leave its very cells first (rule 30.4).
        """
        table, key = self._table, entry.unit.key
        own = table.own.runs[key]
        here = [other for other, leaves in table.vacating.items() if np.isin(own.leaves, leaves).any()]
        victims = quota_victims(table, entry.unit, self._borrowers_for_entitled)
        self._stop(victims, key, FOR_QUOTA)
        if here or victims:
            self._claims.make(key, [*here, *victims])
        ask, refusal = Ask(entry.unit, False, own.own), "waits for jobs of lower priority to leave"
        if not (here or victims) and (groups := lent_victims(table, entry.unit)) is not None:
            table.entitled[key] = "waits for opportunistic pods of its quota to leave"
            table.sent_off |= dict.fromkeys(groups)
            if groups:
                self.orders.append(Evict(groups, key))
            return
        if not here:
            found = self._hold(ask, self._claims.pending(key, is_borrowed=False))
            if isinstance(found, Bind):
                self._start(entry, ask)
                return
            refusal = found.reason or "waits for borrowed cells"
            if isinstance(found, NoQuota):
                table.entitled[key] = refusal
                return
        table.entitled[key] = refusal
        claim = table.claims.get(key)
        is_waiting = claim is not None and self._claims.are_leaving(claim)
        if not (claim is not None and is_waiting and claim.is_asked):
            self._make_room(entry, ask, is_last=not is_waiting)

    def _make_room(self, entry: Entry, ask: Ask, *, is_last: bool) -> None:
        """Borrowers leave for an entitled unit. `is_last`: no unit leaves for it any more.

        If its own cells have no hardware then, whichever leave, any others have to do, or borrowed ones that are free.
        """
        table, key = self._table, entry.unit.key
        order = [each.unit.key for each in self._borrowers_for_entitled()]
        for wish in (ask, Ask(entry.unit, False)) if ask.own and is_last else (ask,):
            pending = self._claims.pending(key, is_borrowed=False)
            if wish is not ask and isinstance(self._hold(wish, pending), Bind):
                self._start(entry, wish)
                return
            victims = self._victims(wish, order, pending)
            if victims is not None:
                self._evict(victims, key, FOR_ENTITLED)
                self._claims.make(key, victims.keys, wish)
                table.claims[key].is_asked = True
                return
        lent = Ask(entry.unit, True)
        may_borrow = is_last and table.may_borrow(entry.unit) and not is_refused(table, entry.unit)
        if may_borrow and isinstance(self._hold(lent, self._claims.pending(key)), Bind):
            self._start(entry, lent)

    def _borrowers_for_entitled(self) -> list[Borrower]:
        if self._by_loss is None:
            self._by_loss = for_entitled(self._table.all_borrowers(), self._table.shares, self._now)
            self._left -= len(self._by_loss) // SORTED
        return self._by_loss

    # Borrowers

    def _serve_borrowers(self) -> bool:
        """Lend idle cells, in the queues' order (rules 29.10, 31.3). False if some units are left to the next turn."""
        is_done = self._walk_along_borrowers()
        while self._has_room_news:
            is_done = self._walk_along_borrowers()
        return is_done

    def _walk_along_borrowers(self) -> bool:
        """One walk. It ends early, with `_has_room_news`, where cells have come free since its first question."""
        table, self._has_room_news = self._table, False
        lending, table.lending = table.lending or Lending(table.change), None
        if not table.early.count:
            return True
        closed, depth = lending.closed, lending.depth
        walk = Walk(table.early, table.early_rank)
        for key in walk:
            entry = table.entries[key]
            if entry.kind in lending.out:
                continue
            if self._left <= 0:
                lending.change, table.lending = table.change, lending
                return False
            lending.out.add(entry.kind)
            queue, rules = entry.unit.queue, table.rules.of(entry.unit.queue)
            depth[queue] = depth.get(queue, 0) + 1
            if queue in closed or (rules.max_depth and depth[queue] > rules.max_depth):
                continue
            is_blocking = rules.policy.row.blocks
            if is_blocking and not table.blocks.may_try(queue, key, self._now, table.change):
                closed[queue] = None
            elif self._borrow(entry):
                walk.took()
                lending.out.discard(entry.kind)
                if is_blocking:
                    table.blocks.started(queue)
            elif self._has_room_news:
                table.freed()
                return True
            elif is_blocking:
                closed[queue] = None
                table.blocks.refused(queue, key, self._now, table.change)
        return True

    def _is_lending(self) -> bool:
        """Does the turn only go on with a walk that was cut? Not if there is news for an entitled unit."""
        table = self._table
        return table.lending is not None and table.lending.change == table.change and all(table.entitled.values())

    def _borrow(self, entry: Entry) -> bool:
        """Start a unit on idle cells; if there are none, take some from borrowers (rules 31.5, 31.12)."""
        table, unit, kind = self._table, entry.unit, entry.kind
        refusal = table.early_refusals.get(kind)
        if refusal is None:
            refusal = None if table.live.ledger.refusal(unit) is None else QUOTA_KEPT
            if refusal is None and table.live.is_over_users_limit(unit):
                refusal = "its user has as many jobs that run as the queue allows"
            ask, (spec, needs) = Ask(unit, True), table.borrowed_shape(kind)
            refusal = refusal or table.shape_refusals.get((spec, None)) or table.shape_refusals.get((spec, needs))
            if refusal is None:
                walk = 1 + table.change if self._walks else 0
                found = self._hold(ask, replace(self._claims.pending(unit.key), walk=walk))
                if isinstance(found, Bind):
                    self._start(entry, ask)
                    return True
                if isinstance(found, RoomMade):
                    self._walks -= 1
                    self._has_room_news = True
                    return False
                refusal = found.reason
                if not isinstance(found, NoQuota):
                    table.shape_refusals[spec, None if isinstance(found, NoCells) else needs] = refusal
            if self._borrow_for_fewer(entry):
                return True
            table.early_refusals[kind] = refusal
        if unit.preempts and kind not in table.reclaim_refusals and unit.key not in table.claims:
            self._take_back(entry)
        return False

    def _borrow_for_fewer(self, entry: Entry) -> bool:
        """Start a unit with fewer pods, if these are enough and there are cells for them."""
        table, whole = self._table, entry.unit

        def fits(one: Unit) -> bool:
            if table.live.ledger.refusal(one) is not None:
                return False
            return isinstance(self._hold(Ask(one, True), self._claims.pending(one.key)), Bind)

        if table.live.is_over_users_limit(whole) or (found := largest(whole, fits)) is None or not fits(found):
            return False
        table.choose(entry, found)
        self._start(entry, Ask(found, True))
        return True

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
        self._evict(victims, unit.key, FOR_BORROWER)
        self._claims.make(unit.key, victims.keys, ask)
        self._claimants.take(unit)

    # Questions

    def _hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        found = self._room.hold(ask, pending)
        self._left -= 1 + (len(pending.claims) if isinstance(found, Bind) else 0)
        return found

    def _borrowers_that_leave(self, ask: Ask, order: Sequence[Borrower]) -> Victims | None:
        pending = self._claims.pending(ask.unit.key)
        self._left -= 1 + len(pending.claims)
        return victims_within(self._table, self._room, ask, order, pending)

    def _victims(self, ask: Ask, candidates: Sequence[str], pending: Pending) -> Victims | None:
        self._left -= 1 + len(pending.claims)
        return self._room.victims(ask, candidates, pending)

    def _settle_borrowed_claims(self) -> None:
        """A borrower whose room is made gets its cells, before all others that borrow; else it stands in line again."""
        table = self._table
        for key, claim in list(table.claims.items()):
            if claim.ask.is_borrowed and (key in table.own.runs or not self._claims.are_leaving(claim)):
                self._claims.drop(key)
                may_start = key not in table.own.runs and not is_refused(table, claim.ask.unit)
                if may_start and isinstance(self._hold(claim.ask, self._claims.pending(key)), Bind):
                    self._start(table.entries[key], claim.ask)

    # Orders

    def _start(self, entry: Entry, ask: Ask) -> None:
        table, key = self._table, entry.unit.key
        self._by_loss = None
        if table.claims.pop(key, None) is not None:
            self._claimants.give(entry.unit)
            self._claims.changed()
            table.freed()  # others were refused for the sake of the claim, which may have got other cells
        table.started(entry, self._now, is_borrowed=ask.is_borrowed)
        if not ask.is_borrowed:  # its cells have hardware now, which may be where others of its virtual cluster run
            table.owed = dict.fromkeys(table.owed, -1)
        count_waiting(table, entry)
        self.orders.append(Start(key, ask.is_borrowed, ask.own))

    def _evict(self, victims: Victims, winner: str, why: str) -> None:
        self._stop(victims.keys, winner, why)
        if victims.groups:
            self.orders.append(Evict(victims.groups, winner))

    def _stop(self, keys: Iterable[str], winner: str, why: str) -> None:
        for key in keys:
            self._by_loss = None
            self._table.leaves(self._table.entries[key], winner, self._now)
            self._claims.changed()
            self.orders.append(Stop(key, winner, why))
