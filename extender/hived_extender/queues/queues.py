"""Jobs wait as jobs: facts go in, orders come out. No clock, no threads, no cluster of its own.

`turn` first plays the schedule that each virtual cluster would have alone (`own_schedule`), then gives cells to units
that are entitled there, then lends the rest. Facts only note what is to be looked at; nothing starts before a turn.
"""

import copy
from collections.abc import Callable, Mapping

from hived.cells.topology import NO_CELL, Topology
from hived.values.specs import BindInfo, ClusterSpec, PodSpec
from hived_extender.queues import own_turn
from hived_extender.queues.explaining import Questions
from hived_extender.queues.ledger import Ledger, Unlimited
from hived_extender.queues.live_turn import LiveTurn
from hived_extender.queues.own_schedule import Learned
from hived_extender.queues.own_turn import OwnTurn, Restarts
from hived_extender.queues.policies import Rules
from hived_extender.queues.room import Room
from hived_extender.queues.table import (
    NEW,
    USUAL,
    Entry,
    Kept,
    Late,
    Life,
    Pace,
    Place,
    Table,
    count_waiting,
    is_behind,
    place_for,
)
from hived_extender.queues.units import Order, OtherUse, Unit


class Queues(Questions):
    """All queues of one cluster.

    Facts may be told more than once. A key that is unknown is ignored, since its job may be gone already.
    """

    def __init__(self, spec: ClusterSpec, learned: Learned | None = None, pace: Pace = USUAL) -> None:
        """`learned` says how long units run, for times that are only shown. Cost O(cells)."""
        super().__init__(Table(spec, learned, pace))
        self._own = OwnTurn(self._table)
        self._restarts = Restarts(self._table)
        self._turned: dict[str, tuple[bool, int]] = {}  # nodes of which the first turn is to hear
        self.is_cut = self._is_live_cut = False

    @property
    def topology(self) -> Topology:
        """The cells of the cluster."""
        return self._table.own.state.topology

    # Facts about the cluster

    def told_rules(self, rules: Rules, new_ledger: Callable[[], Ledger] = Unlimited) -> None:
        """Serve all queues like this from now on. `new_ledger` counts use by a quota tree. Cost O(units)."""
        table = self._table
        table.rules, table.new_ledger = rules, new_ledger
        for entry in table.entries.values():
            entry.is_over_limit = False
        table.user_waits.clear()
        table.count_anew()
        for entry in list(table.entries.values()):
            count_waiting(self._table, entry)

    def told_running(self, name: str, spec: PodSpec, info: BindInfo) -> None:
        """Guaranteed pods of no job run in a virtual cluster, as this group. Raises UserError if they cannot."""
        self._table.own.told_running(name, spec, info)
        self._table.freed()

    def told_gone(self, name: str) -> None:
        """They are gone, or some pods of no job are that were not guaranteed."""
        if vc := self._table.own.told_gone(name):
            self._table.freed_own(vc)
        self._table.freed()

    def told_others(self, others: tuple[OtherUse, ...]) -> None:
        """This is all use of quotas by pods of no unit. Cost O(its jobs x depth) if it is another one than before."""
        if others != self._table.others:
            self._table.told_others(others)

    def health(self, nodes: Mapping[str, bool], behind: Mapping[str, int] = {}) -> None:
        """These nodes turned healthy, or bad; `behind` has virtual leaves in use there. Cost O(nodes + units).

        In the first turn, units of earlier queues come first, as they have their cells, whatever hardware these have.
        """
        table = self._table
        if self._restarts.are_pending:
            self._turned |= {node: (is_healthy, behind.get(node, NO_CELL)) for node, is_healthy in nodes.items()}
            return
        for node, is_healthy in nodes.items():
            table.own.health(node, is_healthy, behind.get(node, NO_CELL))
        table.own_refusals.clear()
        table.forget_own_refusals()
        for entry in table.entries.values():
            table.settle(entry)
        table.freed()

    def room_made(self, *, has_own: bool = False) -> None:
        """The live cluster may have room for another reason; `has_own`: the own schedules may have, too."""
        self._table.freed(has_own=has_own)

    # Facts about units

    def arrived(
        self, unit: Unit, kept: Kept = NEW, *, runs_since_s: float | None = None, entry: Entry | None = None
    ) -> None:
        """A unit waits, or has run since then, with the state that earlier queues kept of it; `entry` records it."""
        table, known = self._table, self._table.entries.get(unit.key)
        if known is not None and known.life is Life.OVER:
            self._forget(known)  # it was over, and is there again
        elif known is not None:
            self.changed(unit)
            return
        at = unit.created_s if kept.place is None else kept.place
        table.entries[unit.key] = entry = entry or Entry()
        entry.enter(unit, at, is_held=kept.is_on_hold)
        table.enroll(entry)
        entry.promised_s = kept.promised_s
        table.rests(entry, late=kept.late, returned=kept.returned)
        if runs_since_s is not None:
            if kept.entitled_s is not None:
                self._restarts.was_entitled(unit.key, kept.entitled_s)
            table.started(entry, runs_since_s, is_borrowed=kept.is_borrowed)
        elif kept.evicted_for:
            table.told_to_leave.append((kept.since_s, unit.key, kept.evicted_for))
        count_waiting(table, entry)
        table.settle(entry)
        table.has_news()

    def changed(self, unit: Unit) -> None:
        """A unit asks for something else. One that has cells keeps them, and what it asked for."""
        entry = self._table.entries.get(unit.key)
        if entry is None or entry.unit == unit or (entry.whole == unit and unit.key in self._table.own.runs):
            return
        if entry.is_waiting:
            was, place = entry.unit, entry.place
            self._forget(entry)
            at = unit.created_s if place == was.created_s else place
            kept = Kept(place=at, is_held=entry.is_held, late=entry.late, returned=entry.returned)
            self.arrived(unit, kept, entry=entry)

    def late(self, key: str, late: Late) -> None:
        """The pods of a unit that leaves did not come, or have come: it takes no turn until then."""
        entry = self._table.entries.get(key)
        if entry is not None:
            self._table.rests(entry, late=late)
            self._table.settle(entry)

    def held(self, key: str, is_held: bool) -> None:
        """A unit is to be in no turn, or is again. One that has cells keeps them."""
        entry = self._table.entries.get(key)
        if entry is not None and entry.is_held != is_held:
            entry.is_held = is_held
            if is_held and not entry.life.is_live:
                self._own.end(key, is_played=False)
            self._table.settle(entry)
            self._table.freed()

    def moved(self, key: str, to: Place) -> float | None:
        """A unit gets another place among those of its priority in its queue; the new place, None if it is unknown.

        Waiting units behind it are entitled no more before it is. `to` is "front", "back", or the key of a unit that it
        is to be before. Raises UserError if that does not wait, or if the policy allows no such order.
        """
        table, entry = self._table, self._table.entries.get(key)
        if entry is None:
            return None
        place = place_for(table, entry, to)
        if not entry.life.is_live and key in table.own.runs:
            self._own.end(key, is_played=False)
        table.take_out(entry)
        entry.place, entry.at = place, table.rules.at(entry.unit, place)
        table.settle(entry)
        if entry.is_waiting and entry.is_standing:
            for other in [other for other in table.entitled if is_behind(table.entries[other], entry)]:
                self._own.end(other, is_played=False)
        table.freed_own(entry.unit.vc)
        return place

    def removed(self, key: str) -> None:
        """The job of a unit was deleted: unless it had ended, its own schedule plays it no further (rule 30.2)."""
        entry = self._table.entries.get(key)
        if entry is not None and entry.life is not Life.OVER:
            self._forget(entry)
            self._table.has_news()

    def started(self, key: str, now: float, *, is_borrowed: bool) -> None:
        """A unit has cells; told of the starts that a turn ordered as well."""
        entry = self._table.entries.get(key)
        if entry is not None and entry.is_waiting:
            self._table.started(entry, now, is_borrowed=is_borrowed)

    def runs_on(self, key: str, own: tuple[int, ...]) -> None:
        """A unit that earlier queues have started runs on these virtual leaves; to be told before the first turn."""
        if (entry := self._table.entries.get(key)) is not None:
            self._restarts.runs_on(entry, own)

    def shrunk(self, unit: Unit, own: tuple[int, ...] = ()) -> None:
        """A unit with cells has given some of them back, for good, and is this from now on.

        It asks for what it asked before, for fewer pods. `own` are the virtual leaves that it still has in the live
        cluster, in slot order; empty if they are not known, or borrowed.
        """
        entry = self._table.entries.get(unit.key)
        if entry is not None and entry.life.is_live and entry.unit != unit:
            self._own.shrink(unit, own)
            self._table.shrank(entry, unit)

    def runs_borrowed(self, key: str, *, is_borrowed: bool) -> None:
        """A unit that earlier queues have started runs on borrowed cells, or does not; told before the first turn."""
        entry = self._table.entries.get(key)
        if entry is not None and entry.life.is_live:
            entry.is_borrowed = is_borrowed
            self._table.settle(entry)

    def leaving(self, key: str, winner: str, at_s: float = 0.0, now: float | None = None) -> None:
        """A unit was told then to leave for another one; turns note what they order themselves.

        `now`: it has just been decided, and may borrow no more for a while; None if earlier queues did.
        """
        entry = self._table.entries.get(key)
        if entry is not None and entry.life.has_cells:
            self._table.leaves(entry, winner, now)
            self._table.told_to_leave.append((at_s, key, winner))

    def lost_turn(self, key: str) -> None:
        """A unit is entitled no more, as its quota was lowered; its own schedule starts it when the quota allows."""
        self._own.lose_turn(key)

    def evicted(self, key: str, now: float) -> None:
        """A unit has no cells any more, and waits at its old place."""
        table, entry = self._table, self._table.entries.get(key)
        if entry is None or not entry.life.is_live:
            return
        is_ordered = bool(entry.leaving_for)
        table.stopped(entry)
        if not is_ordered:
            self._own.end(key, is_played=False)  # its own cells may be on hardware that has failed
        count_waiting(table, entry)
        table.settle(entry)

    def ended(self, key: str, now: float, *, goes_on: bool = False) -> None:
        """A unit ran, and is over. Its job `goes_on` in no queue: its own schedule ends a copy of its record."""
        table, entry = self._table, self._table.entries.get(key)
        if entry is None or entry.life is Life.OVER:
            return
        table.has_news()
        if goes_on:
            table.entries[key] = entry = copy.copy(entry)
        if not entry.life.is_live:
            self._forget(entry)
            return
        start_s = entry.start_s
        table.stopped(entry)
        self._own.over(entry, start_s, now)

    # Orders

    def turn(self, now: float, room: Room) -> list[Order]:
        """The orders of a turn. Its starts have their cells: `room` has held them.

        Rule 29.9 has its order. One that would take too long is cut (`is_cut`): the next turns, which are to be at
        once, do the rest.
        """
        self._now_s = now
        self._table.end_rests(now)
        self._restarts.go_on(now)
        if turned := self._turned:
            self._turned = {}
            self.health({node: one[0] for node, one in turned.items()}, {node: one[1] for node, one in turned.items()})
        self.is_cut = not self._own.run(now)
        if self.is_cut:
            return []
        live = LiveTurn(self._table, room, now)
        is_done = live.run(self._own.stops, is_new=not self._is_live_cut)
        self._is_live_cut = not is_done
        self.is_cut = self._own.is_behind or not is_done
        self._own.stops.clear()
        return live.orders

    def next_own_end_s(self) -> float | None:
        """Return when a unit ends in its own schedule that has really ended already, so that others may be entitled; or
        the rest of one is over.
        """
        end_s = self._table.own.next_end_s()
        return min((*(() if end_s is None else (end_s,)), *self._table.resting.values()), default=None)

    # Upkeep

    def take_moved(self) -> list[str]:
        """The queues whose order may have changed since the last call, in the order of the changes."""
        moved, self._table.moved = list(self._table.moved), {}
        return moved

    def _forget(self, entry: Entry) -> None:
        """One that only waits has kept no others from cells; a claim of it is dropped, with all refusals, by a turn."""
        table = self._table
        if entry.life.is_live:
            table.stopped(entry)
        self._own.end(entry.unit.key, is_played=False)
        own_turn.forget(table, entry)
        count_waiting(table, entry)
