"""The state of all queues: units, their lines, use, and what was refused since the last change.

`settle` is the one place that decides in which lines a unit stands; it is called whenever something about it changed.

`Kept` is the part of a unit's state that outlives the process (rule 32.9). So after a crash it is known why a job runs.
A job whose state lacks the seal is suspended again.

A job rests whose pods came late (rule 32.6), or that gave borrowed cells back (rule 31.8), so that it is not resumed
and suspended over and over. A rest is over early if the clock was set back meanwhile.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from hived.cells.topology import IntArray
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec, PodSpec
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.starts import StartWait
from hived_extender.kube.clocks import timestamp
from hived_extender.queues.ledger import CELLS, Borrower, Exchanges, Ledger, Shares, Unlimited, Use
from hived_extender.queues.own_schedule import Learned, OwnSchedule, Reservation
from hived_extender.queues.policies import At, Blocks, Kinds, Line, Rank, Rules
from hived_extender.queues.room import Ask
from hived_extender.queues.units import GROWN, LATE, NO_UNIT, OtherUse, Unit

FIRST_S = 900.0
"""The first rest of a job that gave borrowed cells back."""


class Rest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rest of a job: how often it rested, until when, in seconds since 1970, and the length of the first rest."""

    count: int = 0
    until_s: float = 0.0
    first_s: float = 0.0

    FREE: ClassVar[int] = 0
    """So often nothing follows."""
    FACTOR: ClassVar[float] = 2.0
    LONGEST_S: ClassVar[float] = 0.0
    """Each rest is so many times as long as the one before, and none is longer, unless the first one is."""

    @property
    def length_s(self) -> float:
        """The length of the present rest."""
        times = self.count - self.FREE
        return (
            min(self.first_s * self.FACTOR ** min(times - 1, 20), max(self.LONGEST_S, self.first_s)) if times else 0.0
        )

    @property
    def is_on(self) -> bool:
        """Is it not said to be over? See `at`."""
        return self.until_s > 0.0

    def after(self, now: float, first_s: float) -> Self:
        """The next one, which begins now."""
        following = replace(self, count=self.count + 1, until_s=0.0, first_s=first_s)
        return replace(following, until_s=now + following.length_s) if following.length_s else following

    def goes_on(self, now: float) -> bool:
        """Is it not over yet?"""
        return 0.0 < self.until_s - now <= self.length_s

    def at(self, now: float) -> Self:
        """The same; one that is over says so."""
        return self if not self.is_on or self.goes_on(now) else replace(self, until_s=0.0)


class Late(Rest, frozen=True, omit_defaults=True):
    """The times in a row that a job's pods did not come within `first_s`, and the end of its pause (rule 32.6)."""

    LONGEST_S: ClassVar[float] = 6 * 3600.0

    @property
    def notice(self) -> str:
        """Words for its owner, which stay true; "" if it does not rest."""
        return f"it takes no turn before {timestamp(self.until_s)}" if self.is_on else ""


class Returned(Rest, frozen=True, omit_defaults=True):
    """The times that a job gave borrowed cells back, and the moment until which it borrows no more (rule 31.8)."""

    FREE: ClassVar[int] = 1
    FACTOR: ClassVar[float] = 4.0
    LONGEST_S: ClassVar[float] = 64 * 3600.0

    @property
    def notice(self) -> str:
        """Words for its owner, which stay true; "" if it does not rest."""
        return f"it borrows no cells before {timestamp(self.until_s)}" if self.is_on else ""

    @property
    def reason(self) -> str:
        """The reason why the job does not borrow."""
        return f"it gave borrowed cells back {self.count} times, and borrows again at {timestamp(self.until_s)}"


IN_TIME, NONE_RETURNED = Late(), Returned()
"""Of a job whose pods came, or that had no cells yet; of one that has given no borrowed cells back."""


class Life(Enum):
    """The phase of a job."""

    WAITING = "waiting"
    STARTING = "starting"  # cells are held for it
    RUNNING = "running"  # its pods have them
    LEAVING = "leaving"  # it was told to give its cells back, or has lost them
    OVER = "over"  # it has ended, but not in its own schedule yet

    def __init__(self, word: str) -> None:
        self.has_cells = word in ("starting", "running")
        self.is_live = self.has_cells or word == "leaving"


@dataclass(slots=True, eq=False)
class Entry:
    """A job in a queue: what it asks for, where it stands, and how far it has come.

    Attributes
    ----------
    unit : as it is tried, or has cells; `NO_UNIT` of a job that was in no queue yet
    whole : as it asked, if it starts with fewer pods
    at : its place as its queue orders it; `Table.enroll` sets it with the kind
    is_held : it is to be in no turn, by the word of a person
    start_wait : why its author does not let it start yet; then it is held as well
    is_over_limit : its user has too many that wait
    start_s, is_borrowed : while it is live; False for all others
    leaving_for : the job that gets its cells, "" for none: it was suspended, or has lost them
    ran_s : once it is over, how long it really ran
    promised_s, late, returned : as `Kept` has them; both rests say so once they are over
    """

    unit: Unit = NO_UNIT
    place: float = 0.0
    kind: int = -1
    is_held: bool = False
    is_over_limit: bool = False
    life: Life = Life.WAITING
    start_s: float = 0.0
    is_borrowed: bool = False
    leaving_for: str = ""
    ran_s: float = 0.0
    impossible: str = ""
    promised_s: float | None = None
    late: Late = IN_TIME
    returned: Returned = NONE_RETURNED
    whole: Unit | None = None
    at: At = (), ""
    start_wait: StartWait | None = None

    def enter(self, unit: Unit, place: float, *, is_held: bool) -> None:
        """Begin to wait, with nothing left of an earlier life."""
        self.unit, self.whole, self.place, self.is_held = unit, None, place, is_held
        self.life, self.start_s, self.is_borrowed, self.ran_s = Life.WAITING, 0.0, False, 0.0
        self.is_over_limit, self.leaving_for, self.impossible, self.promised_s = False, "", "", None
        self.late, self.returned = IN_TIME, NONE_RETURNED

    @property
    def is_waiting(self) -> bool:
        """Has it no cells, and may get some?"""
        return self.life is Life.WAITING

    @property
    def is_leaving(self) -> bool:
        """Has it cells that it is to give back?"""
        return self.life is Life.LEAVING

    @property
    def is_on_hold(self) -> bool:
        """Is it in no turn, though nothing else is in its way?"""
        return self.is_held or self.late.is_on

    @property
    def is_standing(self) -> bool:
        """Does it take part in turns (rule 29.8)?"""
        return not (self.is_on_hold or self.is_over_limit or self.impossible)


STATE = PREFIX + "queue-state"
"""The annotation of a job object."""

_LIMIT = 4096
"""Characters."""


_WRITTEN = {"is_resumed": "is_let_go", "entitled_s": "due_s"}
"""Keys on jobs that have another name here; those of earlier releases stay."""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True, rename=_WRITTEN):
    """The state of a unit on its job.

    Attributes
    ----------
    version : counts what hived has written, so that an older state tells itself whatever clocks say
    is_resumed : hived has resumed the job, and not suspended it since
    leaf_count : the leaf cells of the gang that was resumed
    is_borrowed : it runs as opportunistic work
    since_s : when it was resumed or suspended last
    ran_since_s : when the run began from which it was suspended, 0 for none; its pods may end well meanwhile
    entitled_s : when the schedule of its VC alone has started it, None if it has not
    attempts : how often it was resumed
    place : its own place in the order, None for the one that follows from its creation
    is_held : its owner or an admin said `hived hold`
    is_suspended : its owner has suspended the object while it ran, and has not resumed it
    promised_s : the limit by which it went past the first job that did not fit, None if it has not
    late : how often its pods did not come, and until when it takes no turn
    returned : how often it gave borrowed cells back, and until when it borrows no more
    evicted_for : the job that its cells went to, as `masked` has it for its owner; "" if it was never suspended
    """

    version: int = 0
    is_resumed: bool = False
    leaf_count: int = 0
    is_borrowed: bool = False
    since_s: float = 0.0
    ran_since_s: float = 0.0
    entitled_s: float | None = None
    attempts: int = 0
    place: float | None = None
    is_held: bool = False
    is_suspended: bool = False
    promised_s: float | None = None
    evicted_for: str = ""
    late: Late = IN_TIME
    returned: Returned = NONE_RETURNED

    @property
    def is_on_hold(self) -> bool:
        """Is it to be in no turn, by the word of a person?"""
        return self.is_held or self.is_suspended

    def rest_notice(self, now: float) -> str:
        """Until when it takes no turn, or borrows no cells; "" if it may do both."""
        return self.late.at(now).notice or self.returned.at(now).notice

    def followed_by(self, **changes: Any) -> "Kept":
        """The next state, with these changes."""
        return replace(self, version=self.version + 1, **changes)


NEW = Kept()
"""Of a job that hived has never written onto."""


class _Sealed(msgspec.Struct, frozen=True):
    kept: str
    seal: str = ""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Sealed)
_kept_decoder = msgspec.json.Decoder(Kept)


def written(kept: Kept, uid: str, prover: Prover) -> dict[str, str]:
    """The annotation that keeps it, on the job with this uid."""
    text = _encoder.encode(kept).decode()
    return {STATE: _encoder.encode(_Sealed(text, prover.seal(uid, text))).decode()}


def read_kept(annotations: Mapping[str, str], uid: str, prover: Prover) -> Kept:
    """The state that hived has written onto a job; an empty one if it has not, or another has."""
    try:
        sealed = _decoder.decode(annotations.get(STATE, "{}")[:_LIMIT])
        if not prover.is_sealed(uid, sealed.kept, sealed.seal):
            return Kept()
        kept = _kept_decoder.decode(sealed.kept)
    except (ValueError, RecursionError):
        return Kept()
    times = (kept.since_s, kept.entitled_s or 0.0, kept.place or 0.0, kept.promised_s or 0.0)
    numbers = (*times, kept.late.until_s, kept.late.first_s, kept.returned.until_s, kept.returned.first_s)
    return kept if all(map(math.isfinite, numbers)) else Kept()


class Pace(NamedTuple):
    """The work of one turn, about, before it is cut: searches of the own schedules, and questions to the room.

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
    """The entitled units that are still to be asked for, since one had news; a turn may leave some to the next.

    `change` is the count of changes when that turn ended, `has_news`: more came since the round began.
    """

    left: dict[str, None]
    change: int = 0
    has_news: bool = False


@dataclass(slots=True)
class Lending:
    """A walk along those that may borrow: kinds that are left out of the rest of it, units seen and closed, by queue.

    A turn may leave the rest of it to the next. Entitled units come before it if there is another `change` by then.
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
    """The state of all queues."""

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
        self.early, self.waiting, self.on_hold = Line(), Line(), Line()  # aside: of those waiting, the held
        self.moved: dict[str, None] = {}  # queues whose order has changed
        self.resting: dict[str, float] = {}  # units one of whose rests ends then
        self.early_refusals: dict[int, str] = {}
        self.shape_refusals: dict[tuple[PodSpec, str | None], str] = {}  # of what borrowers ask for; None: all needs
        self.reclaim_refusals: dict[int, None] = {}
        self.entitled: dict[str, str] = {}  # units that are due and have no cells, in order; and why not
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
        if entry.life.is_live:
            self._borrowers = None
        is_there = self.entries.get(key) is entry
        is_own, is_waiting = key in self.own.runs, is_there and entry.is_waiting
        wants_own = is_there and entry.is_standing and self.has_own_schedule(entry) and not is_own
        may_run_early = is_waiting and entry.is_standing and not is_own and self.may_borrow(unit)
        wants_early = may_run_early and not entry.returned.is_on
        lines = self.own_lines.setdefault(unit.vc, Line()), self.early, self.waiting, self.on_hold
        wanted = wants_own, wants_early, is_waiting, is_waiting and entry.is_on_hold
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
        if is_own and entry.is_borrowed and not entry.is_leaving:
            self.owed.setdefault(key, -1)
        else:
            self.owed.pop(key, None)
        is_entitled = is_own and is_waiting and not entry.is_leaving
        if is_entitled != (key in self.entitled):
            self.moved[unit.queue] = None
        if is_entitled:
            self.entitled.setdefault(key, "")
        else:
            self.entitled.pop(key, None)

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
        for line in (self.own_lines.setdefault(entry.unit.vc, Line()), self.early, self.waiting, self.on_hold):
            line.remove(entry.kind, entry.at)
        self.moved[entry.unit.queue] = None

    def has_own_schedule(self, entry: Entry) -> bool:
        """Does it belong to the own schedule of its virtual cluster, now or later?"""
        unit = entry.unit
        return unit.priority >= MIN_GUARANTEED_PRIORITY and entry.kind not in self.refusals(unit.vc).never

    def may_borrow(self, unit: Unit) -> bool:
        """May it borrow (rule 31.1)?"""
        if unit.priority < MIN_GUARANTEED_PRIORITY:
            return True
        borrows = self.rules.of(unit.queue).borrows
        return unit.is_preemptible and (self.live.ledger.borrows(unit.queue) if borrows is None else borrows)

    def enroll(self, entry: Entry) -> None:
        """Set the kind of a unit, which has one more, and its order."""
        entry.kind = self.kinds.join(entry.unit, self.rules.of(entry.unit.queue).most_running is not None)
        entry.at = self.rules.at(entry.unit, entry.place)

    def borrowed_shape(self, number: int) -> tuple[PodSpec, str]:
        """The request to the live cluster if a unit of this kind borrows: equal for kinds with the same answer."""
        found = self._shapes.get(number)
        if found is None:
            kind = self.kinds[number]
            found = self._shapes[number] = dataclasses.replace(kind.spec, priority=OPPORTUNISTIC_PRIORITY), kind.needs
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
            for known in (self._shapes, self.early_refusals, self.reclaim_refusals):
                known.pop(number, None)

    # Use

    def count_anew(self) -> None:
        """Count all use under the present rules and quotas; nothing is refused any more. Cost O(units)."""
        self.live, self.own_use = (Use(self.new_ledger(), self.rules) for _ in range(2))
        self.empty_ledger = self.new_ledger()
        total = self.empty_ledger.total() or {CELLS: float(self.own.leaf_count)}
        self.shares = Shares(total, self._guaranteed, lambda queue: self.rules.of(queue).weight, self.rules.half_life_s)
        self.kinds = Kinds()
        for known in (self._shapes, self.early_refusals, self.reclaim_refusals):
            known.clear()
        for entry in self.entries.values():
            self.enroll(entry)
            if entry.life.is_live:
                self.live.take(entry.unit)
                if not entry.is_leaving:
                    self.shares.take(entry.unit)
        for run in self.own.runs.values():
            self.own_use.take(run.unit)
        self._count_others(self.others)
        self.own_lines.clear()
        self.lending = None
        self.forget_own_refusals()
        self.early, self.waiting, self.on_hold = Line(), Line(), Line()
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

    def started(self, entry: Entry, start_s: float, *, is_borrowed: bool) -> None:
        """A unit has cells in the live cluster."""
        entry.life, entry.start_s, entry.is_borrowed = Life.STARTING, start_s, is_borrowed
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
        entry.unit = unit
        self.enroll(entry)
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
        entry.unit, entry.whole = unit, None if unit is whole else whole
        self.enroll(entry)
        self.settle(entry)

    def upgraded(self, entry: Entry) -> None:
        """An entitled unit has its borrowed cells for good."""
        assert entry.life.is_live, "it runs"
        entry.is_borrowed, self._borrowers = False, None
        self.settle(entry)

    def leaves(self, entry: Entry, winner: str, now: float | None) -> None:
        """A unit is told to leave `now`, and may rest if it gives borrowed cells back; None: it was told before."""
        is_lent = entry.is_borrowed
        if now is not None and is_lent and winner not in ("", entry.unit.key, GROWN, LATE):
            self.rests(entry, returned=entry.returned.after(now, FIRST_S))
        entry.life, entry.leaving_for, self._leaving = Life.LEAVING, winner, None
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
        entry.life, entry.is_borrowed, entry.leaving_for = Life.WAITING, False, ""
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
        self.early_refusals.clear()
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
        """Return the rank of the first unit of a kind in the own schedule of its virtual cluster."""
        found = self.kinds[kind]
        return self.rules.rank(found.queue, found.spec.priority, self.own_use.ledger.share(found.queue))

    def early_rank(self, kind: int) -> Rank:
        """Return the rank of the first unit of a kind among all that may borrow (rule 31.3)."""
        found = self.kinds[kind]
        return (self.shares.in_order(found.queue), *self.rules.rank(found.queue, found.spec.priority, 0.0))

    def borrowers(self) -> Mapping[str, list[Borrower]]:
        """All that run on borrowed cells and were not told to leave, by queue."""
        if self._borrowers is None:
            self._borrowers = found = dict[str, list[Borrower]]()
            for key in self.running:
                entry = self.entries[key]
                if entry.is_borrowed and not entry.is_leaving:
                    is_entitled = key in self.own.runs
                    found.setdefault(entry.unit.queue, []).append(Borrower(entry.unit, entry.start_s, is_entitled))
        return self._borrowers

    def all_borrowers(self) -> Iterable[Borrower]:
        """The same, in no order that counts."""
        return chain.from_iterable(self.borrowers().values())

    def leaving(self) -> tuple[str, ...]:
        """All that run and were told to leave, in the order of starts."""
        if self._leaving is None:
            self._leaving = tuple(key for key in self.running if self.entries[key].is_leaving)
        return self._leaving


FRONT, BACK = "front", "back"

Place = str
"""`front`, `back`, or the key of the unit that it is to be before."""


def place_for(table: Table, entry: Entry, to: Place) -> float:
    """The number of the new place (rule 29.3). Cost O(units).

    Raises UserError if the other unit does not wait, or if no place puts the unit there, by the policy of its queue.
    """
    unit = entry.unit
    peers = sorted(
        (other.at, other.place)
        for other in table.entries.values()
        if other is not entry
        and other.is_waiting
        and (other.unit.queue, other.unit.priority) == (unit.queue, unit.priority)
    )
    place = _place_among(peers, entry, to)
    at, policy = table.rules.at(unit, place), table.rules.of(unit.queue).policy
    others = [other for other, _ in peers if to in (FRONT, BACK, other[1])]
    if any((other < at) != (to == BACK) for other in others):
        where = f"to the {to}" if to in (FRONT, BACK) else f"before {_plain(to)}"
        raise UserError(
            f"{_plain(unit.key)} cannot be moved {where}: policy {policy} of queue {unit.queue} orders jobs of one "
            "priority by more than their place"
        )
    return place


def _place_among(peers: Sequence[tuple[At, float]], entry: Entry, to: Place) -> float:
    """The place that puts a unit there where places alone count. `peers` are in order, each with its place."""
    if to == FRONT:
        return peers[0][1] - 1.0 if peers else entry.place
    if to == BACK:
        return peers[-1][1] + 1.0 if peers else entry.place
    keys = [key for (_, key), _ in peers]
    if to not in keys:
        raise UserError(
            f"{_plain(entry.unit.key)} cannot be moved before {_plain(to)}: expected front, back or a job of priority"
            f" {entry.unit.priority} that waits in queue {entry.unit.queue}"
        )
    index = keys.index(to)
    after = peers[index][1]
    before = peers[index - 1][1] if index else after - 2.0
    middle = before + (after - before) / 2
    return middle if before < middle < after else math.nextafter(after, -math.inf)


def is_behind(other: Entry, entry: Entry) -> bool:
    """Does another unit come after one of its queue and priority?"""
    of, unit = other.unit, entry.unit
    return (of.queue, of.priority) == (unit.queue, unit.priority) and other.at > entry.at


def _plain(key: str) -> str:
    """The name of a job as people know it, without the uid."""
    return key.rpartition("/")[0] or key


def count_waiting(table: Table, about: Entry) -> None:
    """The user of a unit has one more that waits, or one fewer. Cost O(units of the user that wait)."""
    unit = about.unit
    most = table.rules.of(unit.queue).most_waiting
    if most is None:
        return
    waits = table.user_waits.setdefault(unit.owner, {})
    waits[unit.key] = None
    count = 0
    for key in list(waits):
        entry = table.entries.get(key)
        if entry is None or not entry.is_waiting:
            del waits[key]
            continue
        count += 1
        if entry.is_over_limit != (count > most):
            entry.is_over_limit = count > most
            table.settle(entry)
