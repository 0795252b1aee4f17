"""Everything that a turn looks at and changes: units, their lines, use, and what was refused since the last change.

`settle` is the one place that decides in which lines a unit stands; it is called whenever something about it changed.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from hived.cells.topology import IntArray
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec, PodSpec
from hived_extender.queues.entries import FIRST_S, Entry, Late, Returned, Run
from hived_extender.queues.ledger import CELLS, Ledger, Shares, Unlimited, Use
from hived_extender.queues.order import Kinds, Line, Rank
from hived_extender.queues.own_schedule import OwnSchedule
from hived_extender.queues.policies import Blocks, Rules
from hived_extender.queues.reclaim import Borrower, Exchanges
from hived_extender.queues.reservation import Learned, Reservation
from hived_extender.queues.room import Ask
from hived_extender.queues.units import GROWN, LATE, OtherUse, Unit


class Pace(NamedTuple):
    """How much one turn does, about, before it is cut: searches of the own schedules, and questions to the room.

    A claim that the room plays for a question counts as another one. Tens of milliseconds.
    """

    searches: int = 40
    questions: int = 50


USUAL = Pace()

WHOLE = Pace(sys.maxsize, sys.maxsize)
"""No turn is cut."""


@dataclass(slots=True)
class Reclaim:
    """Room that is being made for a unit, by units that leave."""

    ask: Ask
    victims: tuple[str, ...]
    leaving: tuple[str, ...]  # all that had been told to leave when it was made
    is_asked: bool = False  # has the room named them, or are they only those that must leave anyway?


@dataclass(slots=True)
class Round:
    """The units that are due and are still to be asked for, since one had news; a turn may leave some to the next.

    `change` is the count of changes when that turn ended, `has_news`: more came since the round began.
    """

    left: dict[str, None]
    change: int = 0
    has_news: bool = False


@dataclass(slots=True)
class Lending:
    """A walk along those that may borrow: kinds that are left out of the rest of it, units seen and closed, by queue.

    A turn may leave the rest of it to the next. Units that are due come before it if there is another `change` by then.
    """

    change: int
    out: set[int] = field(default_factory=set)  # looked up only
    depth: dict[str, int] = field(default_factory=dict)
    closed: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class OwnRefusals:
    """Kinds that a virtual cluster's own schedule refused since something left it last; looked up only.

    Or specs, where nothing else matters: Kubernetes' rules about nodes have no part in own schedules.
    """

    no_room: set[tuple[PodSpec, bool]]
    not_promised: set[int]
    never: set[int]  # that would not fit an empty virtual cluster
    possible: set[PodSpec]  # that would
    reservation: Reservation | None = None
    awaits_quota: dict[str, str] = field(default_factory=dict)  # by queue, its first unit, if that waits for quota
    is_stale: bool = True  # is there something to be tried?
    is_cut: bool = False  # has the last walk some units left, and does the next one pass all before them at once?


class Table:
    """See the module."""

    def __init__(self, spec: ClusterSpec, learned: Learned | None, pace: Pace) -> None:
        """Cost O(cells)."""
        self.spec, self.learned, self.pace = spec, learned, pace
        self.rules = Rules()
        self.new_ledger: Callable[[], Ledger] = Unlimited
        self.kinds = Kinds()
        self._shapes: dict[int, tuple[PodSpec, str]] = {}
        self.entries: dict[str, Entry] = {}
        self.own = OwnSchedule(spec)
        self.own_lines: dict[str, Line] = {}
        self.own_refusals: dict[str, OwnRefusals] = {}
        self.ahead, self.waiting, self.aside = Line(), Line(), Line()  # aside: of those waiting, the held
        self.moved: dict[str, None] = {}  # queues whose order has changed
        self.resting: dict[str, float] = {}  # units one of whose rests ends then
        self.ahead_refusals: dict[int, str] = {}
        self.shape_refusals: dict[tuple[PodSpec, str | None], str] = {}  # of what borrowers ask for; None: all needs
        self.reclaim_refusals: dict[int, None] = {}
        self.due: dict[str, str] = {}  # units that are due and have no cells, in order; and why not
        self.owed: dict[str, int] = {}  # units that are due on borrowed cells; the change at which they were asked for
        self.claims: dict[str, Reclaim] = {}
        self.told_to_leave: list[tuple[float, str, str]] = []  # by earlier queues: when, unit, winner; some have left
        self.exchanges, self.blocks = Exchanges(), Blocks()
        self.run_changes = 0  # starts, stops and shrinking of units with cells
        self.change = 0  # releases, additions and deletions
        self.round = Round({})
        self.lending: Lending | None = None  # that was cut
        self.asked_at = -1  # the count of changes when units that are due were asked about last
        self.running: dict[str, None] = {}
        self.vacating: dict[str, IntArray] = {}  # virtual leaves of units that leave and have lost their place there
        self.user_waits: dict[tuple[str, str, str], dict[str, None]] = {}  # by `Unit.owner`
        self.others: tuple[OtherUse, ...] = ()  # use of quotas by pods of no unit
        self.sent_off: dict[str, None] = {}  # groups of no unit that were told to leave for a quota's sake
        self.promised: dict[str, bool] = {}  # units that went past the first one by their limit; is that broken?
        self.played: dict[str, dict[str, None]] = {}
        self._borrowers: dict[str, list[Borrower]] | None = None
        self._leaving: tuple[str, ...] | None = None
        self.count_anew()

    # Lines

    def settle(self, entry: Entry) -> None:
        """Let a unit stand in the lines that are its, and in no others. Cost O(log units) for each."""
        key, unit, kind, at = entry.unit.key, entry.unit, entry.kind, entry.at
        if entry.run is not None:
            self._borrowers = None
        is_there = self.entries.get(key) is entry
        is_own, is_waiting = key in self.own.runs, is_there and entry.is_waiting
        wants_own = is_there and entry.is_standing and self.has_own_schedule(entry) and not is_own
        may_run_ahead = is_waiting and entry.is_standing and not is_own and self.may_borrow(unit)
        wants_ahead = may_run_ahead and not entry.returned.is_on
        lines = self.own_lines.setdefault(unit.vc, Line()), self.ahead, self.waiting, self.aside
        wanted = wants_own, wants_ahead, is_waiting, is_waiting and entry.is_aside
        for line, wants in zip(lines, wanted, strict=True):
            has = line.has(kind, at)
            if wants and not has:
                line.add(kind, at)
            elif has and not wants:
                line.remove(kind, at)
                # it may have been the first one, which others could not go past
                wants_own = wants_own or (line is lines[0] and not is_own)
            else:
                continue
            if line is self.waiting:
                self.moved[unit.queue] = None
        if wants_own:
            self.refusals(unit.vc).is_stale = True
        if is_own and entry.run is not None and entry.run.is_borrowed and not entry.is_leaving:
            self.owed.setdefault(key, -1)
        else:
            self.owed.pop(key, None)
        is_due = is_own and is_waiting and not entry.is_leaving
        if is_due != (key in self.due):
            self.moved[unit.queue] = None
        if is_due:
            self.due.setdefault(key, "")
        else:
            self.due.pop(key, None)

    def rests(self, entry: Entry, *, late: Late | None = None, returned: Returned | None = None) -> None:
        """A unit takes no turn, or borrows no more, until a rest is over; `settle` comes next."""
        entry.late, entry.returned = late or entry.late, returned or entry.returned
        until_s = [each.until_s for each in (entry.late, entry.returned) if each.is_on]
        if until_s:
            self.resting[entry.unit.key] = min(until_s)
        else:
            self.resting.pop(entry.unit.key, None)

    def end_rests(self, now: float) -> None:
        """Units whose rest is over take their turns, or borrow, again. Cost O(units that rest)."""
        for key in list(self.resting):
            entry = self.entries.get(key)
            if entry is None:
                del self.resting[key]
                continue
            late, returned = entry.late.at(now), entry.returned.at(now)
            if (late, returned) != (entry.late, entry.returned):
                self.rests(entry, late=late, returned=returned)
                self.settle(entry)
                self.freed()

    def take_out(self, entry: Entry) -> None:
        """Take a unit out of all lines before its place or kind changes; `settle` puts it back."""
        for line in (self.own_lines.setdefault(entry.unit.vc, Line()), self.ahead, self.waiting, self.aside):
            line.remove(entry.kind, entry.at)
        self.moved[entry.unit.queue] = None

    def has_own_schedule(self, entry: Entry) -> bool:
        """Does it belong to the own schedule of its virtual cluster, now or later?"""
        unit = entry.unit
        return unit.priority >= MIN_GUARANTEED_PRIORITY and entry.kind not in self.refusals(unit.vc).never

    def may_borrow(self, unit: Unit) -> bool:
        """May it run before it is due?"""
        if unit.priority < MIN_GUARANTEED_PRIORITY:
            return True
        borrows = self.rules.of(unit.queue).borrows
        return unit.is_preemptible and (self.live.ledger.borrows(unit.queue) if borrows is None else borrows)

    def number(self, unit: Unit) -> int:
        """The number of its kind, which has one more."""
        return self.kinds.join(unit, self.rules.of(unit.queue).most_running is not None)

    def borrowed_shape(self, number: int) -> tuple[PodSpec, str]:
        """What the live cluster is asked for if a unit of this kind borrows: equal for kinds with the same answer."""
        found = self._shapes.get(number)
        if found is None:
            kind = self.kinds[number]
            found = self._shapes[number] = replace(kind.spec, priority=OPPORTUNISTIC_PRIORITY), kind.needs
        return found

    def cannot(self, entry: Entry, error: UserError) -> None:
        """A unit asks for something impossible, and takes no part in turns."""
        entry.impossible = str(error)
        self.settle(entry)

    def drop(self, entry: Entry) -> None:
        """A unit is known no more, and stands in no line. A kind without units is forgotten."""
        number = entry.kind
        if self.kinds.leave(number):
            refusals = self.refusals(entry.unit.vc)
            refusals.not_promised.discard(number)
            refusals.never.discard(number)
            for known in (self._shapes, self.ahead_refusals, self.reclaim_refusals):
                known.pop(number, None)

    # Use

    def count_anew(self) -> None:
        """Count all use under the present rules and quotas; nothing is refused any more. Cost O(units)."""
        self.live, self.own_use = (Use(self.new_ledger(), self.rules) for _ in range(2))
        self.empty_ledger = self.new_ledger()
        total = self.empty_ledger.total() or {CELLS: float(self.own.leaf_count)}
        self.shares = Shares(total, self._guaranteed, lambda queue: self.rules.of(queue).weight, self.rules.half_life_s)
        self.kinds = Kinds()
        for known in (self._shapes, self.ahead_refusals, self.reclaim_refusals):
            known.clear()
        for entry in self.entries.values():
            entry.kind = self.number(entry.unit)
            if entry.run is not None:
                self.live.take(entry.unit)
                if not entry.is_leaving:
                    self.shares.take(entry.unit)
        for run in self.own.runs.values():
            self.own_use.take(run.unit)
        self._count_others(self.others)
        self.own_lines.clear()
        self.lending = None
        self.forget_own_refusals()
        self.ahead, self.waiting, self.aside = Line(), Line(), Line()
        for entry in self.entries.values():
            self.settle(entry)
        self.freed()

    def told_others(self, others: tuple[OtherUse, ...]) -> None:
        """This is all use of quotas by pods of no unit."""
        for each in self.others:
            self.live.ledger.give_others(each)
            if each.own is not None:
                self.own_use.ledger.give_others(each.own)
        self.others, there = others, {group for each in others for group in each.lent}
        self.sent_off = {group: None for group in self.sent_off if group in there}
        self._count_others(others)
        for refusals in self.own_refusals.values():
            refusals.not_promised.clear()
            refusals.is_stale = True
        self.freed()

    def _count_others(self, others: Iterable[OtherUse]) -> None:
        for each in others:
            self.live.ledger.take_others(each)
            if each.own is not None:
                self.own_use.ledger.take_others(each.own)

    def _guaranteed(self, queue: str) -> Mapping[str, float]:
        found = self.live.ledger.guaranteed(queue)
        return {CELLS: float(self.own.promised_leaves(queue))} if found is None else found

    def started(self, entry: Entry, run: Run) -> None:
        """A unit has cells in the live cluster."""
        entry.run = run
        self.running[entry.unit.key] = None
        self.run_changes += 1
        self.live.take(entry.unit)
        self.shares.take(entry.unit)
        self.reclaim_refusals.clear()
        self.settle(entry)

    def shrank(self, entry: Entry, unit: Unit) -> None:
        """A unit with cells has given some of them back, and is this from now on."""
        self.take_out(entry)
        self.drop(entry)
        self.run_changes += 1
        for use in (self.live, *(() if entry.is_leaving else (self.shares,))):
            use.give(entry.unit)
            use.take(unit)
        entry.unit, entry.kind = unit, self.number(unit)
        self._borrowers = None
        self.settle(entry)
        self.has_news()
        self.freed()

    def choose(self, entry: Entry, unit: Unit) -> None:
        """A unit without cells starts with fewer pods, or is whole again."""
        if unit is entry.unit:
            return
        whole = entry.whole or entry.unit
        self.take_out(entry)
        self.drop(entry)
        entry.unit, entry.kind, entry.whole = unit, self.number(unit), None if unit is whole else whole
        self.settle(entry)

    def upgraded(self, entry: Entry) -> None:
        """A unit that is due has its borrowed cells for good."""
        assert entry.run is not None, "it runs"
        entry.run.is_borrowed, self._borrowers = False, None
        self.settle(entry)

    def leaves(self, entry: Entry, winner: str, now: float | None) -> None:
        """A unit is told to leave `now`, and may rest if it gives borrowed cells back; None: it was told before."""
        is_lent = entry.run is not None and entry.run.is_borrowed
        if now is not None and is_lent and winner not in ("", entry.unit.key, GROWN, LATE):
            self.rests(entry, returned=entry.returned.after(now, FIRST_S))
        entry.is_leaving, entry.leaving_for, self._leaving = True, winner, None
        self.shares.give(entry.unit)
        self.reclaim_refusals.clear()
        self.settle(entry)

    def stopped(self, entry: Entry) -> None:
        """A unit has no cells any more."""
        if not entry.is_leaving:
            self.shares.give(entry.unit)
        self.live.give(entry.unit)
        self.run_changes += 1
        self.running.pop(entry.unit.key, None)
        self.vacating.pop(entry.unit.key, None)
        entry.run, entry.is_leaving, entry.leaving_for = None, False, ""
        self._borrowers = self._leaving = None
        self.freed()

    # Refusals

    def refusals(self, vc: str) -> OwnRefusals:
        """Of the own schedule of a virtual cluster."""
        found = self.own_refusals.get(vc)
        if found is None:
            found = self.own_refusals[vc] = OwnRefusals(set(), set(), set(), set())
        return found

    def forget_own_refusals(self) -> None:
        """Try everything anew; what is reserved stays reserved."""
        reserved = {vc: each.reservation for vc, each in self.own_refusals.items() if each.reservation is not None}
        self.own_refusals.clear()
        for vc in self.spec.virtual_clusters:
            self.refusals(vc).reservation = reservation = reserved.get(vc)
            if reservation is not None:
                reservation.passed.clear()

    def has_news(self) -> None:
        """A unit has come or ended: borrowers may take their turn back."""
        if self.exchanges.forget():
            self.reclaim_refusals.clear()

    def freed(self, *, has_own: bool = False) -> None:
        """The live cluster may have room that it had not before; `has_own`: the own schedules may have, too."""
        for vc in self.spec.virtual_clusters if has_own else ():
            self.freed_own(vc)
        self.change += 1
        self.ahead_refusals.clear()
        self.shape_refusals.clear()
        self.reclaim_refusals.clear()

    def freed_own(self, vc: str) -> None:
        """Something has left the own schedule of a virtual cluster."""
        for name, refusals in self.own_refusals.items():
            if refusals.not_promised:
                refusals.not_promised.clear()
                refusals.is_stale = True
            if name == vc or self.own.is_shared:
                refusals.no_room.clear()
                refusals.is_stale, refusals.is_cut = True, False
                if refusals.reservation is not None:
                    refusals.reservation.passed.clear()

    # Order

    def own_rank(self, kind: int) -> Rank:
        """How the first unit of a kind compares with others of its virtual cluster's own schedule."""
        found = self.kinds[kind]
        return self.rules.rank(found.queue, found.spec.priority, self.own_use.ledger.share(found.queue))

    def ahead_rank(self, kind: int) -> Rank:
        """How the first unit of a kind compares with all that may borrow."""
        found = self.kinds[kind]
        return (self.shares.in_order(found.queue), *self.rules.rank(found.queue, found.spec.priority, 0.0))

    def borrowers(self) -> Mapping[str, list[Borrower]]:
        """All that run on borrowed cells and were not told to leave, by queue."""
        if self._borrowers is None:
            self._borrowers = found = dict[str, list[Borrower]]()
            for key in self.running:
                entry = self.entries[key]
                if entry.run is not None and entry.run.is_borrowed and not entry.is_leaving:
                    is_due = key in self.own.runs
                    found.setdefault(entry.unit.queue, []).append(Borrower(entry.unit, entry.run.start_s, is_due))
        return self._borrowers

    def all_borrowers(self) -> Iterable[Borrower]:
        """The same, in no order that counts."""
        return chain.from_iterable(self.borrowers().values())

    def leaving(self) -> tuple[str, ...]:
        """All that run and were told to leave, in the order of starts."""
        if self._leaving is None:
            self._leaving = tuple(key for key in self.running if self.entries[key].is_leaving)
        return self._leaving
