"""A turn of the own schedules: units that have ended there end, and others start in their virtual cluster's order.

Kubernetes may not enforce the limit by which a unit was backfilled, and its owner may raise it later. So the limit is
noted at the start, for rule 30.7.
"""

from collections import Counter
from collections.abc import Iterator
from math import inf

import numpy as np

from hived.values.errors import UserError
from hived_extender.queues.own_schedule import Placed, Reservation, declared_end, reserve
from hived_extender.queues.policies import Walk
from hived_extender.queues.table import Entry, Life, OwnRefusals, Table
from hived_extender.queues.units import Unit, has_smaller, largest, smallest

SLACK_S = 60.0
"""A job that is ended by its limit takes a while to end: its controller, and the grace periods of its pods."""


def note(table: Table, entry: Entry, promised_s: float | None) -> None:
    """A unit starts in its own schedule; None: it goes past none, or for another reason."""
    entry.promised_s = promised_s
    if promised_s is not None:
        table.promised[entry.unit.key] = False


def broken_since(table: Table, key: str) -> float:
    """The moment at which the promise of a unit is broken; infinite while it has no cells, or has really ended."""
    entry, own = table.entries.get(key), table.own.runs.get(key)
    if entry is None or own is None or not entry.life.has_cells or entry.promised_s is None:
        return inf
    return max(entry.start_s, own.entitled_s) + entry.promised_s + SLACK_S


def look(table: Table, now: float) -> None:
    """Have virtual clusters looked at in which a promise was broken since the last look. Cost O(promises)."""
    for key, is_broken in table.promised.items():
        if not is_broken and broken_since(table, key) <= now:
            table.promised[key] = True
            table.refusals(table.entries[key].unit.vc).is_stale = True


def in_the_way(table: Table, first: Entry, now: float) -> list[str]:
    """Units that have broken their promise (rule 30.7), and without which the first one would start; else none.

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


MOST_PLAYED = 10_000
"""Of a virtual cluster."""


def keep(table: Table, entry: Entry) -> str | None:
    """A unit is yet to be played. Returns the oldest one if there are too many: it is to be played no further."""
    played = table.played.setdefault(entry.unit.vc, {})
    played[entry.unit.key] = None
    table.settle(entry)
    return next(iter(played)) if len(played) > MOST_PLAYED else None


def forget(table: Table, entry: Entry) -> None:
    """Nothing is left to be known of a unit."""
    table.entries.pop(entry.unit.key, None)
    table.played.get(entry.unit.vc, {}).pop(entry.unit.key, None)
    table.settle(entry)
    table.drop(entry)


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
    """Is its quota alone in the way (rule 29.5), until others of it end, and would it run then?"""
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
    """Would the unit fit its idle virtual cluster? Cost: a search, once for each shape."""
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
        if other.life is Life.OVER:
            forget(table, other)
        else:
            table.settle(other)


class Restarts:
    """Units that earlier queues started go on in the own schedules (rule 30.10), before the first turn."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._started: dict[str, tuple[float, tuple[int, ...]]] = {}  # due moments and leaves, until the next turn

    @property
    def are_pending(self) -> bool:
        """Are there units that are to go on?"""
        return bool(self._started)

    def was_entitled(self, key: str, entitled_s: float) -> None:
        """The own schedule of earlier queues had started a unit then."""
        self._started[key] = entitled_s, ()

    def runs_on(self, entry: Entry, own: tuple[int, ...]) -> None:
        """A unit that earlier queues have started has these virtual leaves in the live cluster, none if borrowed.

        One that leaves has them until it has left: others that are entitled to these wait for that.
        """
        if own and entry.is_leaving:
            self._table.vacating[entry.unit.key] = np.array(own, np.int32)
        elif own and entry.life.is_live and not entry.is_borrowed:
            entitled_s, _ = self._started.get(entry.unit.key, (entry.start_s, ()))
            self._started[entry.unit.key] = entitled_s, own

    def go_on(self, now: float) -> None:
        """Restart units here that were here in earlier queues; first those whose leaves are known."""
        for key, (entitled_s, own) in sorted(
            self._started.items(), key=lambda each: (not each[1][1], each[1][0], each[0])
        ):
            entry = self._table.entries.get(key)
            if entry is not None and key not in self._table.own.runs:
                self._restart(entry, entitled_s, own, now)
        self._started.clear()

    def _restart(self, entry: Entry, entitled_s: float, own: tuple[int, ...], now: float) -> None:
        """A unit goes on here, on these leaves if they are free.

        One that has really ended by now is played no further than it would have been, be there room for it or not.
        """
        table, unit = self._table, entry.unit
        if entry.life is Life.OVER and entitled_s + entry.ran_s <= now:
            forget(table, entry)
            return
        try:
            placed = table.own.find(unit, now, own)
        except UserError:
            placed = None
        if placed is None or placed.victims:
            if entry.life is Life.OVER:
                entry.ran_s = entitled_s + entry.ran_s - now
            return
        table.own.start(unit, placed, entitled_s)
        note(table, entry, entry.promised_s)
        table.own_use.take(unit)
        if entry.life is Life.OVER:
            table.own.runs[unit.key].end_s = entitled_s + entry.ran_s
            table.played.setdefault(unit.vc, {})[unit.key] = None
        table.settle(entry)


class OwnTurn:
    """Turns of the own schedules.

    `stops` are live units that run guaranteed and have lost their place, with the winner.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._moment_s, self._vcs = 0.0, list[str]()  # is being played, and who is still to be served then
        self._enough_at, self.is_behind, self._is_in_a_walk = 0, False, False
        self.stops: dict[str, str] = {}

    def run(self, now: float) -> bool:
        """Play all own schedules up to now. Units that start are in `table.entitled` unless they run.

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
        look(table, now)
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
            if is_played and entry.life is Life.OVER:
                forget(table, entry)
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
        entry.life, entry.ran_s = Life.OVER, max(now - start_s, 0.0)
        table.own.ended(key, start_s, now)
        own = table.own.runs.get(key)
        if own is None and not table.has_own_schedule(entry):
            forget(table, entry)
        elif own is not None and own.end_s is not None and own.end_s <= now:
            self.end(key)
        elif (oldest := keep(table, entry)) is not None:
            self.end(oldest)
            if oldest in table.entries:
                forget(table, table.entries[oldest])

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

        So do news of one whose walk was cut, as it would begin anew: others may not have to wait for that.
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
        closed = dict[str, None]()
        walk = Walk(line, table.own_rank)
        for entry in self._may_start(walk, refusals, closed):
            policy = table.rules.of(entry.unit.queue).policy.row
            kept = first if policy.reserves else None
            if kept is not None and entry.kind in kept.passed:
                continue
            shape = table.kinds[entry.kind].spec, entry.unit.preempts
            placed, unit = self._find(entry, now, knows_whole=shape in refusals.no_room)
            if placed is None and entry.impossible:
                walk.took()
            elif placed is None:
                refusals.no_room.add(shape)
                if not could_ever(table, entry, refusals):
                    continue
                if policy.blocks:
                    closed[entry.unit.queue] = None
                elif policy.reserves and first is None:
                    if late := in_the_way(table, entry, now):
                        for each in late:
                            self._lose(each, entry.unit.key)
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
        refusals.reservation = first or (refusals.reservation if refusals.is_cut else None)

    def _may_start(self, walk: Walk, refusals: OwnRefusals, closed: dict[str, None]) -> Iterator[Entry]:
        """Yield the units of a walk whose queue is not `closed` and whose quota allows more.

        Adds queues that close for their quota. Cuts the walk when the turn has searched enough: the next walk finds at
        once that all units before are refused.
        """
        table, depth = self._table, Counter[str]()
        for key in walk:
            if self._is_enough:
                refusals.is_stale = refusals.is_cut = True
                return
            entry = table.entries[key]
            queue, rules = entry.unit.queue, table.rules.of(entry.unit.queue)
            depth[queue] += 1
            if queue in closed or (rules.max_depth and depth[queue] > rules.max_depth):
                continue
            if is_promised(table, entry, refusals):
                yield entry
            elif rules.policy.row.keeps_quota and awaits_quota(table, entry, refusals):
                closed[queue] = None
                refusals.awaits_quota[queue] = key
            elif entry.impossible:
                walk.took()

    def _is_to_walk_again(self, refusals: OwnRefusals, first: Reservation | None) -> bool:
        """Is there to be another walk after a start (rule 30.9)? The first unit may have no quota left, too."""
        table, kept, is_again = self._table, first or refusals.reservation, False
        if first is not None:
            is_again = bool(first.passed) or not is_promised(table, table.entries[first.key], refusals)
        if kept is not None:
            kept.passed.clear()
        if is_again:
            refusals.is_stale, refusals.reservation = True, kept
        return is_again

    def _find(self, entry: Entry, now: float, *, knows_whole: bool) -> tuple[Placed | None, Unit]:
        """Room for a unit, or for fewer of its pods, if these are enough and no others lose a place for them.

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
        """Would a unit have to leave the live cluster if it lost its place here (rule 30.4)?"""
        entry = self._table.entries.get(key)
        return entry is not None and entry.life.is_live and not entry.is_borrowed

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
        note(table, entry, promised_s)
        own = table.own.runs[unit.key]
        if entry.life is Life.OVER:
            own.end_s = own.entitled_s + entry.ran_s
        table.settle(entry)

    def lose_turn(self, key: str) -> Entry | None:
        """A unit stands in the line again; returns it if it has yet to leave its own cells in the live cluster."""
        table = self._table
        entry, run = table.entries.get(key), table.own.runs.get(key)
        self.end(key, is_played=False)
        if run is None or entry is None or not entry.life.is_live or entry.is_borrowed:
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
