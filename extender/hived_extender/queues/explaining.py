"""Questions about queues as of the last turn: order, places, why a unit waits. Nothing changes."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush, merge
from itertools import chain, count, islice, takewhile
from typing import Literal, NamedTuple

import numpy as np

from hived.values.specs import FREE_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_extender.jobs.quotas.usage import TOO_LARGE, WAIT
from hived_extender.queues.ledger import Use, for_entitled
from hived_extender.queues.own_schedule import Expected, OwnRun, Reservation, expected_end, latest
from hived_extender.queues.policies import At, Line
from hived_extender.queues.reasons import (
    QUOTA_KEPT,
    Held,
    Impossible,
    Leaving,
    MakingRoom,
    NeverFits,
    NoHardware,
    NotItsTurn,
    NotPromised,
    NotYet,
    OverQuota,
    OverUserLimit,
    PodsLate,
    Reason,
    Running,
)
from hived_extender.queues.room import Claimed, Lent, Pending
from hived_extender.queues.table import Entry, Life, Table
from hived_extender.queues.units import OtherUse, Unit, smallest

MOST_BEFORE = 16
"""Units that are tried before another one of their queue."""

MOST_ENDS = 1000
"""Ends that are played until a unit is within its quota."""

Known = dict[int, Reason | None]
"""The reason why units in line have no turn, by kind: those of one kind share it. None where it only is not theirs."""


def first_of(table: Table, queue: str, count: int) -> list[str]:
    """The first of `in_order`. Cost O(kinds + entitled units + count)."""
    return list(islice(_in_order(table, queue), count))


def _in_order(table: Table, queue: str) -> Iterator[str]:
    first = sorted(table.entries[key].at for key in table.entitled if table.entries[key].unit.queue == queue)
    others = (at for at in merge(*_lines_in(table.waiting, table, queue)) if at[1] not in table.entitled)
    return (key for _, key in chain(first, others))


def _lines_in(line: Line, table: Table, queue: str) -> Iterator[list[At]]:
    """The units of a queue in a line, by kind."""
    return (line.units(kind) for kind in line.kinds() if table.kinds[kind].queue == queue)


Lines = tuple[list[list[At]], dict[str, str]]
"""The units of a queue that wait, by kind; and entitled ones."""


def lines_of(table: Table, queue: str) -> Lines:
    """A copy of all that the order of a queue follows from. Cost: a copy of its units in memory."""
    return list(map(list, _lines_in(table.waiting, table, queue))), dict(table.entitled)


def in_order(lines: Lines) -> list[str]:
    """See `Queues.order`. Entitled ones come first."""
    of_kinds, entitled = lines
    return [key for _, (_, key) in sorted((at[1] not in entitled, at) for at in chain(*of_kinds))]


def queues_of(table: Table) -> list[str]:
    """See `Queues.queues`."""
    units = (entry.unit for entry in list(table.entries.values()) if entry.life is not Life.OVER)
    return sorted(dict.fromkeys(unit.queue for unit in units))


def position_of(table: Table, key: str) -> int | None:
    """See `Queues.position`."""
    entry = table.entries.get(key)
    return None if entry is None or not entry.is_waiting else before(table, entry) + 1


def before(table: Table, entry: Entry) -> int:
    """Return how many units of its queue are before one."""
    is_entitled = entry.unit.key in table.entitled
    return (0 if is_entitled else _before_in(table, table.waiting, entry)) + _entitled_before(table, entry)


def _before_in(table: Table, line: Line, entry: Entry) -> int:
    """Return how many units of its queue are before one in a line."""
    return sum(bisect_left(units, entry.at) for units in _lines_in(line, table, entry.unit.queue))


def _entitled_before(table: Table, entry: Entry) -> int:
    """Entitled units that come first for that, as far as their place does not say so."""
    is_entitled = entry.unit.key in table.entitled
    others = [table.entries[key] for key in table.entitled if key != entry.unit.key]
    return sum(other.unit.queue == entry.unit.queue and (other.at < entry.at) == is_entitled for other in others)


def why(table: Table, key: str, now: float, place: int = 0, known: Known | None = None) -> Reason | None:
    """See `Queues.why`. `now` is that of the last turn."""
    entry = table.entries.get(key)
    if entry is None or entry.life is Life.OVER:
        return None
    return refusal(table, key, known) or _not_entitled(table, entry, now, place - 1 if place else before(table, entry))


def refusal(table: Table, key: str, known: Known | None = None) -> Reason | None:
    """See `Queues.refusal`."""
    entry = table.entries.get(key)
    if entry is None or entry.life is Life.OVER:
        return None
    unit = entry.unit
    if entry.is_leaving:
        return Leaving(entry.leaving_for, moves=entry.leaving_for == entry.unit.key)
    if entry.life.is_live:
        is_ahead = entry.is_borrowed and key not in table.own.runs and table.has_own_schedule(entry)
        return Running(entry.is_borrowed, key in table.own.runs, _last_played(table, unit.vc) if is_ahead else None)
    if entry.is_held:
        wait = entry.start_wait
        return Held() if wait is None else NotYet(wait.sentence, wait.begin_s, wait.is_never)
    if entry.late.is_on:
        return PodsLate(entry.late.first_s, entry.late.until_s)
    if entry.impossible:
        return Impossible(entry.impossible)
    if entry.is_over_limit:
        return _never(table, entry) or OverUserLimit(
            unit.user, table.rules.of(unit.queue).most_waiting or 0, waits=True
        )
    claim = table.claims.get(key)
    victims = () if claim is None else tuple(each for each in claim.victims if _is_leaving(table, each))
    if key in table.own.runs:
        if not victims and (quota := table.live.ledger.refusal(unit)) is not None:
            return OverQuota(quota)
        is_lent = all(table.entries[each].is_borrowed for each in victims)
        return MakingRoom(victims, is_lent) if victims else NoHardware(table.entitled.get(key, ""))
    if victims:
        return MakingRoom(victims, borrows=True)
    if known is None or _is_reserved(table, entry):
        return _has_no_turn(table, entry)
    if entry.kind not in known:
        known[entry.kind] = _has_no_turn(table, entry)
    return known[entry.kind]


def _has_no_turn(table: Table, entry: Entry) -> Reason | None:
    """Return why its own schedule does not have a unit, as long as it does not borrow either.

    Where its quota or its user's limit keeps it from borrowing, that is the reason, whatever its own schedule lacks.
    The first unit, which has cells reserved there, waits for these alone.
    """
    unit, refusals = entry.unit, table.refusals(entry.unit.vc)
    if (never := _never(table, entry)) is not None:
        return never
    is_promised = unit.priority >= 0 and entry.kind not in refusals.never and entry.kind not in refusals.not_promised
    if is_promised and (not table.may_borrow(unit) or _is_reserved(table, entry)):
        return None
    if table.live.is_over_users_limit(unit):
        return OverUserLimit(unit.user, table.rules.of(unit.queue).most_running or 0, waits=False)
    quota = table.live.ledger.refusal(unit)
    if quota is not None:
        return OverQuota(quota)
    return None if table.may_borrow(unit) else NotPromised(unit.queue, unit.is_preemptible)


def _is_reserved(table: Table, entry: Entry) -> bool:
    """Are cells reserved for this very unit in its own schedule?"""
    reservation = table.refusals(entry.unit.vc).reservation
    return reservation is not None and reservation.key == entry.unit.key


def _never(table: Table, entry: Entry) -> Reason | None:
    """Return why a unit cannot start even if no others ran, as far as that is known; None if it can."""
    unit = smallest(entry.unit)
    if not table.own.could_borrow(replace(unit.spec.of_group(""), priority=OPPORTUNISTIC_PRIORITY)):
        return NeverFits(unit.queue, is_anywhere=True)
    alone = table.empty_ledger.refusal(unit)
    if alone is not None and alone.endswith(WAIT):  # a quota that is stopped may go on
        return Impossible(alone.replace(WAIT, TOO_LARGE))
    if table.may_borrow(unit) or table.own.is_damaged:
        return None
    is_refused = entry.kind in table.refusals(unit.vc).never
    is_too_large = unit.leaf_count > table.own.promised_leaves(unit.vc) or not table.empty_ledger.is_within_min(unit)
    return NeverFits(unit.queue) if is_refused or is_too_large else None


def _not_entitled(table: Table, entry: Entry, now: float, count: int) -> Reason:
    unit, rules = entry.unit, table.rules.of(entry.unit.queue)
    held = _before_in(table, table.on_hold, entry)  # they take no turn
    count -= held
    borrowing = table.early_refusals.get(entry.kind, "")
    if borrowing == QUOTA_KEPT:  # claimants were counted then
        borrowing = table.live.ledger.refusal(unit) or borrowing
    if entry.returned.is_on:
        borrowing = entry.returned.reason
    reservation = table.refusals(unit.vc).reservation
    if reservation is None or reservation.key != unit.key:
        is_blocked = rules.policy.row.blocks and count > 0
        if not is_blocked and not table.has_own_schedule(entry):
            return NotItsTurn(count, borrowing=borrowing, only_borrows=True)
        return NotItsTurn(
            count, is_blocked=is_blocked, behind=_behind(table, entry), borrowing=borrowing,
            spares_others=_spares_others(table, unit), played_first=_played_first(table, reservation), held=held,
        )  # fmt: skip
    start = _expected(table, unit.vc, reservation, now)
    there = [run for run in table.own.runs_of(unit.vc) if np.isin(run.leaves, reservation.leaves).any()]
    played = [run for run in there if run.end_s is not None]
    return NotItsTurn(
        count, start.at_s, start.certainty, is_first=True, late_s=start.late_s, borrowing=borrowing,
        spares_others=_spares_others(table, unit), played=_last_of(played), others_run=0 < len(played) < len(there),
        held=held,
    )  # fmt: skip


def _last_played(table: Table, vc: str) -> tuple[str, float] | None:
    """The last to go of the units of a virtual cluster that borrowed and have ended, and when. Cost O(these)."""
    return _last_of(run for key in table.played.get(vc, {}) if (run := table.own.runs.get(key)) is not None)


def _last_of(played: Iterable[OwnRun]) -> tuple[str, float] | None:
    """See `_last_played`, of units that have really ended."""
    end_s, key = max(((run.end_s, run.unit.key) for run in played if run.end_s is not None), default=(0.0, ""))
    return (key, end_s) if key else None


def _played_first(table: Table, reservation: Reservation | None) -> str:
    """The job with reserved cells, if it borrowed and has ended; "" if not."""
    first = None if reservation is None else table.entries.get(reservation.key)
    return first.unit.key if first is not None and first.life is Life.OVER else ""


def _spares_others(table: Table, unit: Unit) -> bool:
    """Do jobs of lower priority have cells of its virtual cluster, for a unit that preempts none?"""
    return not unit.preempts and any(run.unit.priority < unit.priority for run in table.own.runs_of(unit.vc))


def _behind(table: Table, entry: Entry) -> Literal["", "cells", "quota", "min"]:
    """Return which first unit keeps this one from going past, in its own schedule."""
    refusals = table.refusals(entry.unit.vc)
    if (first := refusals.awaits_quota.get(entry.unit.queue)) is not None:
        return "min" if first == entry.unit.key else "quota"
    is_promised = entry.unit.priority >= 0 and table.own_use.ledger.is_within_min(smallest(entry.unit))
    if not is_promised:
        return "min"
    return "cells" if refusals.reservation is not None and entry.kind in refusals.reservation.passed else ""


def _expected(table: Table, vc: str, reservation: Reservation, now: float) -> Expected:
    """Return when those have ended that run on reserved cells, as it is shown. Unknown if one of them is of no queue.

    Decisions count neither on grace periods nor on what was learned, as `reservation.start` has it.
    """
    there = [run for run in table.own.runs_of(vc) if np.isin(run.leaves, reservation.leaves).any()]
    taken = table.own.state.cells.priority[reservation.leaves] != FREE_PRIORITY
    known = np.isin(reservation.leaves, np.concatenate([run.leaves for run in there])) if there else ~taken
    if not there or (taken & ~known).any():
        return reservation.start
    starts = [
        None if (one := table.entries.get(run.unit.key)) is None or not one.life.is_live else one.start_s
        for run in there
    ]
    return latest(expected_end(run, now, table.learned, start) for run, start in zip(there, starts, strict=True))


class QuotaUse(NamedTuple):
    """The use that keeps a unit from its quota or its user's limit, and the runs that make it, in a fixed order.

    That of its own schedule, if the `min` is in the way of the first of its queue there; else all of the live cluster.
    `has_room` says whether a unit may run beside it.
    """

    use: Use
    runs: Mapping[str, OwnRun]
    has_room: Callable[[Unit], bool]


def _quota_use(table: Table, entry: Entry) -> QuotaUse:
    """Cost O(units that run)."""
    if refusal(table, entry.unit.key) is not None:
        use = _use_without(table, ())
        live = {key: _live_run(table.entries[key]) for key in table.running}
        return QuotaUse(use, live, lambda unit: _may_start(table, use, unit))
    own = Use(table.new_ledger(), table.rules)
    for other in table.others:
        if other.own is not None:
            own.ledger.take_others(other.own)
    for run in table.own.runs.values():
        own.take(run.unit)
    return QuotaUse(
        own,
        dict(table.own.runs),
        lambda unit: not own.is_over_users_limit(unit) and own.ledger.is_within_min(smallest(unit)),
    )


def _live_run(entry: Entry) -> OwnRun:
    """The run of a unit in the live cluster, on whatever cells."""
    return OwnRun(entry.unit, entry.start_s, np.empty(0, np.int32))


def freed_by(table: Table, key: str) -> list[str]:
    """See `Queues.freed_by`."""
    (use, runs, has_room), found = _quota_use(table, table.entries[key]), list[str]()
    for each, run in runs.items():
        if each not in table.running:
            continue  # its own schedule plays it on
        use.give(run.unit)
        if has_room(table.entries[key].unit):
            found.append(each)
        use.take(run.unit)
    return found


class QuotaStart(NamedTuple):
    """The moment at which a unit is within its quota, by the ends of others: those that have `ended` by then, first
    first, and those `before` it in its queue that have started by then and still run.
    """

    at: Expected
    ended: tuple[str, ...]
    before: tuple[str, ...]


def quota_start(table: Table, key: str, now: float) -> QuotaStart | None:
    """See `Queues.quota_start`."""
    entry = table.entries[key]
    (use, runs, has_room), order = _quota_use(table, entry), count()
    if not entry.is_standing:
        return None
    queue = entry.unit.queue
    line = _in_order(table, queue)
    if refusal(table, key) is None:  # those on borrowed cells stand in the line of their own schedule
        line = (each for _, each in merge(*_lines_in(table.own_lines[entry.unit.vc], table, queue)))
    first = (table.entries[each] for each in takewhile(lambda each: each != key, line) if each not in runs)
    in_line = [other for other in first if other.is_standing and not _is_never(table, other)]
    if len(in_line) > MOST_BEFORE:
        return None
    in_line.append(entry)
    due, running, ended = list[tuple[float, int, OwnRun, Expected]](), dict[str, None](), list[str]()

    def plan_end(run: OwnRun, at_s: float, started_s: float | None) -> None:
        end = expected_end(run, at_s, table.learned, started_s)
        if end.at_s is not None:
            heappush(due, (end.at_s, next(order), run, end))

    for each, run in runs.items():
        known = table.entries.get(each)
        plan_end(run, now, known.start_s if known is not None and known.life.is_live else None)
    passed = list[Expected]()
    while due and len(ended) < MOST_ENDS:
        at_s, _, run, end = heappop(due)
        use.give(run.unit)
        running.pop(run.unit.key, None)
        ended.append(run.unit.key)
        passed.append(end)
        for other in list(in_line):
            if not has_room(other.unit):
                if table.rules.of(queue).policy.row.keeps_quota:
                    break
                continue
            if other is entry:
                return QuotaStart(latest(passed), tuple(filter(runs.__contains__, ended)), tuple(running))
            in_line.remove(other)
            use.take(other.unit)
            running[other.unit.key] = None
            plan_end(OwnRun(other.unit, at_s, run.leaves), at_s, at_s)
    return None


def _is_never(table: Table, entry: Entry) -> bool:
    return isinstance(refusal(table, entry.unit.key), NeverFits)


def after(table: Table, key: str, ended: Collection[str], priority: int) -> tuple[bool, list[str]]:
    """See `Queues.after`."""
    entry, use, before, refused = table.entries[key], _use_without(table, ended), list[str](), set[int]()
    if key in table.own.runs or not entry.is_standing:
        return entry.is_standing, before
    for each in takewhile(lambda each: each != key, _in_order(table, entry.unit.queue)):
        other = table.entries[each]
        if other.kind in refused or not other.is_standing or other.unit.priority < priority:
            continue
        if not _may_start(table, use, other.unit) or _is_never(table, other):
            refused.add(other.kind)
            continue
        if len(before) == MOST_BEFORE:
            return False, before
        use.take(other.unit)
        before.append(each)
    return _may_start(table, use, entry.unit), before


def _use_without(table: Table, ended: Collection[str]) -> Use:
    """All use, but for that of some units."""
    use = Use(table.new_ledger(), table.rules)
    for other in table.others:
        use.ledger.take_others(other)
    for each in table.running:
        if each not in ended:
            use.take(table.entries[each].unit)
    return use


def _may_start(table: Table, use: Use, unit: Unit) -> bool:
    """Is a unit within its quota and its user's limit, beside this use?"""
    if use.is_over_users_limit(unit) or use.ledger.refusal(unit) is not None:
        return False
    return table.may_borrow(unit) or use.ledger.is_within_min(unit)


def _is_leaving(table: Table, key: str) -> bool:
    entry = table.entries.get(key)
    return entry is not None and entry.is_leaving


def lent_of(table: Table, now: float) -> Lent:
    """See `Queues.lent`. Of the claims only those of entitled units are in it. Cost O(units that run)."""
    leaving = tuple(key for key in table.running if table.entries[key].leaving_for)
    claims = [
        Claimed(claim.ask, tuple(key for key in claim.leaving if key in leaving))
        for claim in table.claims.values()
        if not claim.ask.is_borrowed
    ]
    order = for_entitled(table.all_borrowers(), table.shares, now)
    return Lent(tuple(each.unit.key for each in order), Pending(leaving, tuple(claims)))


class Questions:
    """Questions to the state of all queues; `Queues` answer them."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._now_s = 0.0  # of the last turn

    def order(self, queue: str) -> list[str]:
        """The keys of the units of a queue that wait, first first. Cost O(n log n)."""
        return in_order(self.lines(queue))

    def lines(self, queue: str) -> Lines:
        """A copy of a queue for `in_order`, which may take its time."""
        return lines_of(self._table, queue)

    def first(self, queue: str, count: int) -> list[str]:
        """The beginning of `order`. Cost O(kinds + count)."""
        return first_of(self._table, queue, count)

    def position(self, key: str) -> int | None:
        """1 for the first of its queue; None for one that does not wait. Cost O(kinds of the queue)."""
        return position_of(self._table, key)

    def why(self, key: str, place: int = 0, known: Known | None = None) -> Reason | None:
        """Return why a unit waits, as of the last turn; None for one that is unknown. `place` is its position, if
        known.

        Questions about many units share `known`, empty at first, for as long as nothing changes.
        """
        return why(self._table, key, self._now_s, place, known)

    def refusal(self, key: str) -> Reason | None:
        """The reason of `why`, unless it only is not its turn; so no start is estimated."""
        return refusal(self._table, key)

    def freed_by(self, key: str) -> list[str]:
        """The units each of which, by its end, would leave a unit within its quota and its user's limit.

        Cost O(units that run).
        """
        return freed_by(self._table, key)

    def quota_start(self, key: str) -> QuotaStart | None:
        """When a unit that waits for its quota, or its user's limit, is within it: by declared limits, else by earlier
        runs. None if too few of those that run say when they end.

        Those before it in its queue start first, and others that wait do not count. Cells do not either. Cost O(units
        that run), and O(MOST_ENDS x MOST_BEFORE).
        """
        return quota_start(self._table, key, self._now_s)

    def after(self, key: str, ended: Collection[str], priority: int) -> tuple[bool, list[str]]:
        """May a unit that waits start once these have ended, and which of its queue may before it, first first?

        By quota and limits alone; those of a lower `priority` do not count. They are at most `explaining.MOST_BEFORE`:
        if there are more, it may not. Cost O(units that run + units before it).
        """
        return after(self._table, key, ended, priority)

    def running_unit(self, key: str) -> Unit | None:
        """A unit with cells, as it counts; None for one that has none, or is unknown."""
        entry = self._table.entries.get(key)
        return None if entry is None or not entry.life.is_live else entry.unit

    @property
    def others(self) -> tuple[OtherUse, ...]:
        """The use of quotas by pods of no unit."""
        return self._table.others

    @property
    def run_changes(self) -> int:
        """A count that grows whenever other units have cells, or have others."""
        return self._table.run_changes

    def may_borrow(self, key: str) -> bool:
        """May a unit that is known run on borrowed cells now?"""
        entry = self._table.entries[key]
        return self._table.may_borrow(entry.unit) and not entry.returned.is_on

    def lent(self, now: float) -> Lent:
        """The units on borrowed cells, which leave for guaranteed work of no queue as for an entitled unit."""
        return lent_of(self._table, now)

    def queues(self) -> list[str]:
        """The full names of all queues that have units, ascending."""
        return queues_of(self._table)

    def shares(self, names: Iterable[str] | None = None) -> Mapping[str, float]:
        """The share of each of these queues, as `shares` has it; of all that have units by default."""
        return {queue: self._table.shares.share(queue) for queue in (self.queues() if names is None else names)}

    def entitled_since(self, key: str) -> float | None:
        """Return when its own schedule started a unit, None if it has not."""
        return None if (run := self._table.own.runs.get(key)) is None else run.entitled_s

    def promised(self, key: str) -> float | None:
        """The limit by which a unit went past the first one that did not fit, None if it has not."""
        return entry.promised_s if (entry := self._table.entries.get(key)) is not None else None

    def own_cells(self, key: str) -> tuple[int, ...]:
        """The virtual leaf cells of a unit in its own schedule, in slot order; empty if it does not run there."""
        return () if (run := self._table.own.runs.get(key)) is None else run.own
