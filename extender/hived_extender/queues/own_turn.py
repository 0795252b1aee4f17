"""A turn of the own schedules: what has ended there ends, and units start in the order of their virtual cluster."""

from hived.values.errors import UserError
from hived_extender.queues import own_limits, played, promises
from hived_extender.queues.entries import Entry
from hived_extender.queues.order import Walk
from hived_extender.queues.own_schedule import Placed
from hived_extender.queues.policies import Policy
from hived_extender.queues.reservation import Reservation, declared_end, reserve
from hived_extender.queues.table import OwnRefusals, Table
from hived_extender.queues.units import Unit, has_smaller, largest, smallest

KEEPS_ORDER = (Policy.HIVED, Policy.BLOCK)
"""Policies by which nobody goes past a unit that waits for its quota."""


class OwnTurn:
    """See the module.

    `stops` are live units that run guaranteed and have lost their place, with the winner.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._moment_s, self._vcs = 0.0, list[str]()  # is being played, and who is still to be served then
        self._enough_at, self.is_behind, self._is_in_a_walk = 0, False, False
        self.stops: dict[str, str] = {}

    def run(self, now: float) -> bool:
        """Play all own schedules up to now. Units that start are in `table.due` unless they run.

        False if there is more to do than one turn should: the next call goes on, at the same moment. One that only ends
        a moment, and leaves news of meanwhile to the next call, `is_behind`: no news keep live turns from their turn.
        """
        table, self.is_behind = self._table, False
        self._enough_at = table.own.searches + table.pace.searches
        if not self._go_on():
            return False
        while not (self._is_enough or self.is_behind) and (end := table.own.next_end_s()) is not None and end <= now:
            for _, key in table.own.over(end):
                self.end(key)
            if not self._serve(end):
                return False
        self.is_behind |= self._is_enough
        if self.is_behind:
            return True
        promises.look(table, now)
        return self._serve(now)

    def end(self, key: str, *, is_played: bool = True) -> None:
        """A unit runs in its own schedule no more; `is_played`: it has ended there."""
        table = self._table
        if (run := table.own.end(key)) is None:
            return
        table.promised.pop(key, None)
        table.own_use.give(run.unit)
        table.freed_own(run.unit.vc)
        entry = table.entries.get(key)
        if entry is not None:
            if not is_played and entry.is_waiting and entry.whole is not None:
                table.choose(entry, entry.whole)
            if is_played and entry.ran_s is not None:
                played.forget(table, entry)
            else:
                table.settle(entry)

    def shrink(self, unit: Unit, own: tuple[int, ...]) -> None:
        """A unit has given cells back; where it runs here it keeps these leaves, or any of its own."""
        table, run = self._table, self._table.own.runs.get(unit.key)
        if run is not None:
            table.own_use.give(run.unit)
            table.own.shrink(unit, own)
            table.own_use.take(unit)
            table.freed_own(unit.vc)

    def over(self, entry: Entry, start_s: float, now: float) -> None:
        """A unit has really ended that started at `start_s`; it stays until its own schedule has played it."""
        table, key = self._table, entry.unit.key
        entry.ran_s = max(now - start_s, 0.0)
        table.own.ended(key, start_s, now)
        own = table.own.runs.get(key)
        if own is None and not table.has_own_schedule(entry):
            played.forget(table, entry)
        elif own is not None and own.end_s is not None and own.end_s <= now:
            self.end(key)
        elif (oldest := played.keep(table, entry)) is not None:
            self.end(oldest)
            if oldest in table.entries:
                played.forget(table, table.entries[oldest])

    @property
    def _is_enough(self) -> bool:
        """Has the turn searched as much as one should?"""
        return self._table.own.searches >= self._enough_at

    def _serve(self, now: float) -> bool:
        """Let all units start that can at a moment. False if some are left to the next turn."""
        self._moment_s, self._vcs = now, list(self._table.own_refusals)
        return self._go_on()

    def _go_on(self) -> bool:
        """Serve all that are left. News of virtual clusters that have been served wait for the next moment.

        So do news of one whose walk was cut, as it would begin anew: nobody else may have to wait for that.
        """
        if self._is_in_a_walk and self._vcs and not self._table.refusals(self._vcs[0]).is_cut:
            self.is_behind = True
            del self._vcs[0]
        self._is_in_a_walk = False
        while self._vcs:
            refusals = self._table.refusals(self._vcs[0])
            while refusals.is_stale:
                if self._is_enough:
                    self._is_in_a_walk = refusals.is_cut
                    return False
                refusals.is_stale = refusals.is_cut = False
                self._walk(self._vcs[0], refusals, self._moment_s)
            del self._vcs[0]
        return True

    def _walk(self, vc: str, refusals: OwnRefusals, now: float) -> None:
        """One walk along the line of a virtual cluster."""
        table = self._table
        line = table.own_lines.get(vc)
        if line is None:
            return
        refusals.awaits_quota.clear()
        first: Reservation | None = None
        closed, depth = dict[str, None](), dict[str, int]()
        walk = Walk(line, table.own_rank)
        for key in walk:
            if self._is_enough:  # the next walk finds at once that all these are refused
                refusals.is_stale = refusals.is_cut = True
                refusals.reservation = first or refusals.reservation
                return
            entry = table.entries[key]
            rules = table.rules.of(entry.unit.queue)
            depth[entry.unit.queue] = depth.get(entry.unit.queue, 0) + 1
            is_deep = rules.max_depth and depth[entry.unit.queue] > rules.max_depth
            if entry.unit.queue in closed or is_deep:
                continue
            if not own_limits.is_promised(table, entry, refusals):
                if rules.policy in KEEPS_ORDER and own_limits.awaits_quota(table, entry, refusals):
                    # small ones would use up whatever comes free for it
                    closed[entry.unit.queue] = None
                    refusals.awaits_quota[entry.unit.queue] = key
                elif entry.impossible:
                    walk.took()
                continue
            kept = first if rules.policy is Policy.HIVED else None
            if kept is not None and entry.kind in kept.passed:
                continue
            shape = table.kinds[entry.kind].spec, entry.unit.preempts
            placed, unit = self._find(entry, now, knows_whole=shape in refusals.no_room)
            if placed is None:
                if entry.impossible:
                    walk.took()
                    continue
                refusals.no_room.add(shape)
                if not own_limits.could_ever(table, entry, refusals):
                    continue
                if rules.policy is Policy.BLOCK:
                    closed[entry.unit.queue] = None
                elif rules.policy is Policy.HIVED and first is None:
                    if late := promises.in_the_way(table, entry, now):
                        for each in late:
                            self._lose(each, key)
                        return
                    first = self._reserve(entry, refusals, now)
            elif kept is not None and not kept.allows(placed.leaves, entry.unit.limit_s, now):
                kept.passed.add(entry.kind)
            else:
                table.choose(entry, unit)
                goes_past = first is not None and not first.allows(placed.leaves, None, now)
                self._start(entry, placed, now, entry.unit.limit_s if goes_past else None)
                if placed.victims:  # they stand in the line again, perhaps before the next one
                    refusals.is_stale = True
                    return
                walk.took()
                if self._is_to_walk_again(refusals, first):
                    return
        refusals.reservation = first

    def _is_to_walk_again(self, refusals: OwnRefusals, first: Reservation | None) -> bool:
        """Is there to be another walk after a start, so that nobody is left who could start?

        Earlier units may fit elsewhere now, and come before later ones. And the first one may have no quota left.
        """
        table, kept, is_again = self._table, first or refusals.reservation, False
        if first is not None:
            is_again = bool(first.passed) or not own_limits.is_promised(table, table.entries[first.key], refusals)
        if kept is not None:
            kept.passed.clear()
        if is_again:
            refusals.is_stale, refusals.reservation = True, kept
        return is_again

    def _find(self, entry: Entry, now: float, *, knows_whole: bool) -> tuple[Placed | None, Unit]:
        """Room for a unit, or for fewer of its pods, if these are enough and nobody loses a place for them.

        Else for the smallest ones. `knows_whole`: there is none for the whole unit.
        """
        table, unit = self._table, entry.unit

        def is_within(one: Unit) -> bool:
            return not has_smaller(unit) or table.own_use.ledger.is_within_min(one)

        def fits(one: Unit) -> bool:
            found = self._find_one(entry, one, now) if is_within(one) else None
            return found is not None and not found.victims

        placed = None if knows_whole or not is_within(unit) else self._find_one(entry, unit, now)
        if not has_smaller(unit) or (placed is not None and not placed.victims) or entry.impossible:
            return placed, unit
        fewer = largest(unit, fits) or smallest(unit)
        return self._find_one(entry, fewer, now), fewer

    def _find_one(self, entry: Entry, unit: Unit, now: float) -> Placed | None:
        try:
            placed = self._table.own.find(unit, now)
        except UserError as error:
            self._table.cannot(entry, error)
            return None
        if placed is None or unit.preempts or not any(map(self._runs_on_own_cells, placed.victims)):
            return placed
        return None

    def _runs_on_own_cells(self, key: str) -> bool:
        """Would a unit have to leave the live cluster if it lost its place here?"""
        entry = self._table.entries.get(key)
        return entry is not None and entry.run is not None and not entry.run.is_borrowed

    def _reserve(self, entry: Entry, refusals: OwnRefusals, now: float) -> Reservation | None:
        """Keep the reservation of the first unit as long as it is the first, else make one."""
        table, known = self._table, refusals.reservation
        if known is not None and known.key == entry.unit.key:
            return known
        ends = [(run, declared_end(run, now)) for run in table.own.runs_of(entry.unit.vc)]
        return reserve(table.own, smallest(entry.unit), ends)

    def _start(self, entry: Entry, placed: Placed, now: float, promised_s: float | None) -> None:
        table, unit = self._table, entry.unit
        for victim in placed.victims:
            self._lose(victim, unit.key)
        table.own.start(unit, placed, max(now, unit.created_s))
        table.own_use.take(unit)
        promises.note(table, entry, promised_s)
        own = table.own.runs[unit.key]
        if entry.ran_s is not None:
            own.end_s = own.due_s + entry.ran_s
        table.settle(entry)

    def lose_turn(self, key: str) -> Entry | None:
        """A unit stands in the line again; returns it if it has yet to leave its own cells in the live cluster."""
        table = self._table
        entry, run = table.entries.get(key), table.own.runs.get(key)
        self.end(key, is_played=False)
        if run is None or entry is None or entry.run is None or entry.run.is_borrowed:
            return None
        table.vacating.setdefault(key, run.leaves)  # it may have lost another place since
        return entry

    def _lose(self, victim: str, winner: str) -> None:
        """A unit loses its place to one of higher priority."""
        entry = self.lose_turn(victim)
        if self._table.claims.pop(victim, None) is not None:
            self._table.freed()
        if entry is not None and not entry.is_leaving:
            self.stops[victim] = winner
