"""News about one pod, and the moments to write them. No clock, no thread: moments are seconds of any one clock.

A short wait is not written: only after `hold_s` the latest reason is. Later changes of the reason are written at
intervals; equal reasons are counted. Writes about one pod are rate-limited by a token bucket, to spare the API server,
and kube-scheduler, which retries a waiting pod on any change, conditions included.
"""

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum

import msgspec

from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.wire import StatusCondition
from hived_extender.kube.events import BURST, NORMAL, REFILL_S, RESERVE, WARNING, Tokens

CONDITION_TYPE = PREFIX + "CellsAllocated"
"""The condition that we write into the status of pods."""


class Reason(Enum):
    """The reason of an event; users see the values.

    The text names victims that must leave (PREEMPTING) or cannot be evicted (PREEMPTION_BLOCKED). It has the wrong
    annotation and its rule (INVALID_SPEC, or IGNORED_ANNOTATION if the pod goes on without it), or the reason why no
    scheduler may bind the pod (NOT_HANDLED).
    """

    WAITING = "Waiting"
    PREEMPTING = "Preempting"
    PREEMPTION_BLOCKED = "PreemptionBlocked"
    INVALID_SPEC = "InvalidSpec"
    SCHEDULED = "Scheduled"
    LAZY_PREEMPTED = "LazyPreempted"
    UNACCOUNTED = "Unaccounted"
    RESTORED = "Restored"
    PREEMPTED = "Preempted"
    MOVED = "Moved"
    GANG_TIMED_OUT = "GangTimedOut"
    FOREIGN_DEVICES = "ForeignDevices"
    DEVICES_MISSING = "DevicesMissing"
    NOT_HANDLED = "NotHandled"
    FORCED_BINDING = "ForcedBinding"
    IGNORED_ANNOTATION = "IgnoredAnnotation"

    @property
    def event_type(self) -> str:
        """The event's type; a normal wait is no warning."""
        return NORMAL if self in _ORDINARY else WARNING

    @property
    def has_cells(self) -> bool | None:
        """True or False if the reason tells that the pod has cells or not, else None."""
        return False if self in _EXCLUSIVE else True if self in _HAVE_CELLS else None

    @property
    def is_pending(self) -> bool:
        """True if the reason only matters while the pod has no node."""
        return self in _PENDING


_ORDINARY = frozenset({Reason.WAITING, Reason.PREEMPTING, Reason.SCHEDULED, Reason.RESTORED, Reason.MOVED})
_PENDING = frozenset(
    {
        Reason.WAITING,
        Reason.PREEMPTING,
        Reason.PREEMPTION_BLOCKED,
        Reason.INVALID_SPEC,
        Reason.GANG_TIMED_OUT,
        Reason.NOT_HANDLED,
    }
)
_PATIENT = frozenset({Reason.WAITING, Reason.PREEMPTING})
# Each of these ends the others.
_EXCLUSIVE = frozenset({Reason.WAITING, Reason.PREEMPTING, Reason.INVALID_SPEC})

_HAVE_CELLS = frozenset({Reason.SCHEDULED, Reason.RESTORED, Reason.LAZY_PREEMPTED})

ALLOCATED = "Allocated"
"""The reason of the condition of a pod that has its cells."""

CONDITION_REASONS = (*sorted(reason.value for reason in _EXCLUSIVE), ALLOCATED, Reason.LAZY_PREEMPTED.value)


class Condition(msgspec.Struct, frozen=True):
    """A condition of type CONDITION_TYPE."""

    is_true: bool
    reason: str
    message: str

    @classmethod
    def read(cls, condition: StatusCondition | None) -> "Condition | None":
        """Read a pod's condition."""
        if condition is None:
            return None
        return cls(condition.status == "True", condition.reason or "", condition.message or "")


class Pace(msgspec.Struct, frozen=True):
    """Rate limits for writes about one pod.

    A wait is written after `hold_s` seconds; another reason `change_s` after the last one at the earliest, the same
    text every `repeat_s` at most. Tokens: `burst` at first, one more every `refill_s`; a write costs one. Repeats leave
    `reserve` tokens to other texts.
    """

    hold_s: float = 1.5
    change_s: float = 5.0
    repeat_s: float = 10.0
    burst: int = BURST
    refill_s: float = REFILL_S
    reserve: int = RESERVE


class Notice(msgspec.Struct):
    """A text said `times` times since it was last written, first at `since_s` (seconds of the epoch)."""

    reason: Reason
    message: str
    times: int
    since_s: float


class Due(msgspec.Struct):
    """The events and the condition of a pod to write now."""

    notices: list[Notice] = msgspec.field(default_factory=list)
    condition: Condition | None = None

    def __bool__(self) -> bool:
        return bool(self.notices) or self.condition is not None

    @property
    def is_of_wait(self) -> bool:
        """True if it tells that the pod waits."""
        is_denied = self.condition is not None and not self.condition.is_true
        return is_denied or any(notice.reason in _PATIENT for notice in self.notices)


class Announced(msgspec.Struct, frozen=True):
    """The result of a write: the number of finished notices, and the condition if it `has_looked`.

    If the API server `is_away`, the rest may be written later. `stored` is the condition, unless a write's success is
    unknown. `is_gone`: the object does not exist any more.
    """

    notice_count: int
    has_looked: bool = False
    stored: Condition | None = None
    is_stored_known: bool = True
    is_away: bool = False
    is_gone: bool = False


@dataclass(slots=True, eq=False)
class PodNotices:
    """News about one pod, written and unwritten. Not thread-safe.

    `stored` is the pod's last known condition, None before a watch shows one; `is_stored_known` is False after a write
    with unknown success. `about` is the kind of object, if not a pod.
    """

    uid: str
    namespace: str
    name: str
    pace: Pace
    made_at: InitVar[float]
    about: str = "Pod"
    stored: Condition | None = None
    is_stored_known: bool = True
    is_gone: bool = False
    _waits_since: float = math.inf
    _wait_told_at: float = -math.inf
    _tokens: Tokens = field(init=False)
    _notices: dict[Reason, Notice] = field(default_factory=dict)
    _told: dict[Reason, tuple[str, float]] = field(default_factory=dict)
    _wanted: Condition | None = None
    _is_stored_ours: bool = False
    _may_be_stored: bool = False
    _is_settled: bool = False

    def __post_init__(self, made_at: float) -> None:
        self._tokens = Tokens(float(self.pace.burst), made_at, self.pace.burst, self.pace.refill_s)

    @property
    def notice_count(self) -> int:
        """The number of unwritten events."""
        return len(self._notices)

    @property
    def is_said_to_wait(self) -> bool:
        """True if the stored condition denies cells and no other is wanted."""
        return self.stored is not None and not self.stored.is_true and self._wanted is None

    @property
    def refusal(self) -> str:
        """The reason why the pod has no cells, by its wanted or stored condition; "" if none denies cells."""
        condition = self._wanted or self.stored
        return "" if condition is None or condition.is_true else condition.message

    def say(self, reason: Reason, message: str, since_s: float, now: float) -> None:
        """Note an event; `since_s` is wall time, `now` our clock's."""
        self._waits_since = min(self._waits_since, now) if reason.is_pending else math.inf
        self._is_settled = not reason.is_pending and (self._is_settled or reason is Reason.SCHEDULED)
        for other in tuple(self._notices):
            if (self._is_settled and other.is_pending) or (reason in _EXCLUSIVE and other in _EXCLUSIVE - {reason}):
                del self._notices[other]
        self._put(Notice(reason, message, 1, since_s))

    def place(self) -> None:
        """Drop an unwritten wait: the pod has a place."""
        self._waits_since = math.inf
        if self._wanted is not None and not self._wanted.is_true:
            self._wanted = None
        for reason in [reason for reason in self._notices if reason.is_pending]:
            del self._notices[reason]

    def take_back(self) -> None:
        """Drop the last unwritten reason to wait, which holds no more, though the pod waits on.

        The next one is timed as if this one had been written.
        """
        if self._notices.pop(Reason.WAITING, None) is not None and self._wanted is not None:
            self._wanted = self._wanted if self._wanted.reason != Reason.WAITING.value else None

    def want(self, condition: Condition, now: float) -> None:
        """Set the wanted condition."""
        self._wanted = condition
        self._waits_since = math.inf if condition.is_true else min(self._waits_since, now)

    def observe(self, condition: Condition | None) -> None:
        """Take a condition from a watch, unless our own write or read is more recent."""
        if not self._is_stored_ours:
            self.know(condition)
            self._is_stored_ours = False

    def know(self, condition: Condition | None) -> None:
        """Take a condition just written or read."""
        self.stored, self.is_stored_known, self._is_stored_ours = condition, True, True
        self._may_be_stored = condition is not None

    def doubt(self) -> None:
        """Note a write of the condition with unknown success."""
        self.is_stored_known, self._may_be_stored = False, True

    def leave(self) -> None:
        """Keep only news that still matters of a deleted pod."""
        self.is_gone = True
        self.place()
        self._wanted = None

    def due_at(self) -> float:
        """The moment of the next write; infinity if none."""
        moments = [self._notice_due_at(notice) for notice in self._notices.values()]
        return min([*moments, self._condition_due_at()])

    def take(self, now: float) -> Due:
        """Take the news whose time has come; `wrote` must follow."""
        notices = [notice for notice in self._notices.values() if self._notice_due_at(notice) <= now]
        for notice in notices:
            del self._notices[notice.reason]
        taken = Due(notices, self._wanted if self._condition_due_at() <= now else None)
        if taken.is_of_wait:
            self._wait_told_at = now
        if any(one.reason is not Reason.SCHEDULED for one in notices) or (
            taken.condition is not None and not taken.condition.is_true
        ):
            self._tokens.take(now)
        return taken

    def wrote(self, notices: Sequence[Notice], found: Announced, now: float) -> None:
        """Take the result of a write."""
        for notice in notices[: found.notice_count]:
            self._told[notice.reason] = notice.message, now
        for notice in notices[found.notice_count :]:
            self._put_back(notice)
        if found.has_looked and found.is_stored_known:
            self.know(found.stored)
        elif found.has_looked:
            self.doubt()
        if found.is_gone:
            self.leave()

    def _put_back(self, notice: Notice) -> None:
        """Queue an unwritten notice again, unless it is out of date."""
        newer = self._notices.get(notice.reason)
        if notice.reason in _PATIENT:
            self._wait_told_at = -math.inf
        if newer is None:
            is_over = notice.reason in _EXCLUSIVE and bool(self._notices.keys() & _EXCLUSIVE)
            if not (is_over or (notice.reason.is_pending and (self._is_settled or self.is_gone))):
                self._notices[notice.reason] = notice
        elif newer.message == notice.message:
            newer.times += notice.times
            newer.since_s = notice.since_s

    def _put(self, notice: Notice) -> None:
        same = self._notices.get(notice.reason)
        if same is not None and same.message == notice.message:
            same.times += 1
        else:
            self._notices[notice.reason] = notice

    def _notice_due_at(self, notice: Notice) -> float:
        message, told_at = self._told.get(notice.reason, ("", -math.inf))
        is_repeat = told_at > -math.inf and message == notice.message
        repeat_at = told_at + self.pace.repeat_s if is_repeat else -math.inf
        if notice.reason is Reason.SCHEDULED:
            return repeat_at
        if notice.reason in _PATIENT:
            repeat_at = max(repeat_at, self._wait_due_at())
        return max(repeat_at, self._tokens.due_at(self.pace.reserve if is_repeat else 0))

    def _condition_due_at(self) -> float:
        wanted = self._wanted
        if wanted is None or (self.is_stored_known and wanted == self.stored):
            return math.inf
        if wanted.is_true:
            # That a pod has cells is written only if its condition denied them.
            return -math.inf if self._may_be_stored or wanted.reason != ALLOCATED else math.inf
        if wanted.reason == Reason.INVALID_SPEC.value:
            return self._tokens.due_at()
        return max(self._wait_due_at(), self._tokens.due_at())

    def _wait_due_at(self) -> float:
        return max(self._waits_since + self.pace.hold_s, self._wait_told_at + self.pace.change_s)
