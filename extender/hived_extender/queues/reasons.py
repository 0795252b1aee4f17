"""The reasons why units wait, as values, and in words: sentences, causes and starts as of all waiting jobs, names of
events.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from hived_config.words import counted
from hived_extender.api.waiting import CauseName, Job, PodCounts, When
from hived_extender.machine.certificates import preempted_sentence, rfc3339, today
from hived_extender.queues.own_schedule import Certainty

QUOTA_KEPT = "what is left of its quota is kept for a job that others leave for"
"""The reason why a unit does not borrow: it would be above its quota once such jobs have their cells."""


def no_such_vc(vc: str, known: Iterable[str], *, has_started: bool) -> str:
    """Why a job is in no queue whose virtual cluster is not configured."""
    there = f"there are {', '.join(sorted(known)) or 'none'}"
    if has_started:
        return f"its virtual cluster {vc} was removed: bring it back, or submit the job again with --vc; {there}"
    return f"virtual cluster {vc} is not in the configuration: delete the job, or submit it again with --vc; {there}"


class Reason(msgspec.Struct, frozen=True, tag_field="kind"):
    """A reason; see the kinds below."""


class Running(Reason, frozen=True, tag="running"):
    """It does not wait. `is_borrowed`: on lent cells; `is_entitled`: not before others of its queue.

    `played` is as in `NotItsTurn`, of all jobs of its virtual cluster, where it borrows and is not entitled.
    """

    is_borrowed: bool
    is_entitled: bool
    played: tuple[str, float] | None = None


class Leaving(Reason, frozen=True, tag="leaving"):
    """Its cells go to `winner`. One that `moves` leaves for cells of its own."""

    winner: str
    moves: bool = False


class Held(Reason, frozen=True, tag="held"):
    """Its owner said `hived hold`."""


class NotYet(Reason, frozen=True, tag="not yet"):
    """Its author does not let it start before `begin_s`, or before other jobs have ended; or it can never."""

    text: str
    begin_s: float | None = None
    is_never: bool = False


class PodsLate(Reason, frozen=True, tag="pods late"):
    """Cells were held, and its pods did not come `within_s`: it takes no turn until then."""

    within_s: float
    until_s: float


class OverUserLimit(Reason, frozen=True, tag="user limit"):
    """Its user has as many jobs as the queue allows: `limit` that run, or that wait."""

    user: str
    limit: int
    waits: bool


class OverQuota(Reason, frozen=True, tag="quota"):
    """The quota tree refuses it; the text is that of Kube Queue."""

    text: str


class NotPromised(Reason, frozen=True, tag="not promised"):
    """It is above its queue's guarantee, and may not borrow: its queue never does, or it is not `is_preemptible`."""

    queue: str
    is_preemptible: bool = True


class NeverFits(Reason, frozen=True, tag="never fits"):
    """It is more than its queue is guaranteed, however little runs, and may not borrow. Or `is_anywhere`: no cluster as
    empty and healthy as can be has cells for it.
    """

    queue: str
    is_anywhere: bool = False


class Impossible(Reason, frozen=True, tag="impossible"):
    """No turn helps: it asks for something that cannot be."""

    text: str


class MakingRoom(Reason, frozen=True, tag="making room"):
    """It is entitled to cells, or `borrows` some, and starts when `victims` units have left, all of which borrow if it
    `is_lent`.
    """

    victims: tuple[str, ...]
    is_lent: bool = True
    borrows: bool = False


class NoHardware(Reason, frozen=True, tag="no hardware"):
    """It is entitled to cells, and the live cluster has none for it, as with bad nodes."""

    text: str


class NotItsTurn(Reason, frozen=True, tag="turn"):
    """So many units of its queue are before it, besides `held` ones. Of the first that does not fit, when its start is
    reserved.

    `start_s` is None if that is unknown, and `late_s` is the time of 9 of 10 cases of an estimate. `is_blocked`:
    policy `Block` lets none past the first one. `behind`: it may not go past a first one that has these cells
    reserved, or that waits for its quota, perhaps on borrowed cells; "min" of one that waits for its own. One that
    `only_borrows` never gets cells of its own: it is opportunistic, or larger than its virtual cluster. One that
    `spares_others` preempts none, and jobs of lower priority have cells of its virtual cluster.
    Of a first one `played` is the last to go of the jobs on its reserved cells that borrowed and have ended, and when:
    its own schedule plays these on (rule 30.2). `others_run` there, too. Of another one `played_first` is such a job
    that its own schedule has yet to start.
    """

    before: int
    start_s: float | None = None
    certainty: Certainty = Certainty.UNKNOWN
    is_first: bool = False
    is_blocked: bool = False
    late_s: float | None = None
    behind: Literal["", "cells", "quota", "min"] = ""
    borrowing: str = ""  # why it does not run ahead on borrowed cells
    only_borrows: bool = False
    spares_others: bool = False
    played: tuple[str, float] | None = None
    others_run: bool = False
    played_first: str = ""
    held: int = 0

    @property
    def awaits_cells(self) -> bool:
        """Does it wait for cells alone? Those before the first, if any, can only borrow, and wait for other cells."""
        return self.is_first or not (self.before or self.is_blocked or self.behind in ("quota", "min"))


ENQUEUED, DEQUEUED, EVICTED, INSUFFICIENT = "Enqueued", "Dequeued", "Preempted", "InsufficientQuota"
UPGRADED = "Upgraded"
REFUSED = "Refused"
"""Reasons of events about jobs."""


def held_by(unit: str, *, is_held: bool, is_suspended: bool = False) -> str:
    """Return why a job is held, and how it is released: by `hived hold` if it `is_held`, by its QueueUnit if `unit` is
    a name.

    Or by its owner, who has suspended its object if it `is_suspended`.
    """
    if is_suspended and not (unit or is_held):
        return SUSPENDED
    if not unit:
        return "is held: hived release lets it take its turn"
    then = ", and then say hived release," if is_held else ""
    return f"is held, as QueueUnit {unit} says active: false; set active: true there{then} to let it take its turn"


NOT_BORN_HELD = "it was not created held, so it is suspended until its turn"
"""The end of the first event about a job that no webhook, and not its author, has held."""

RESUMED = "its owner has resumed it, and it starts when its turn comes"
"""The end of the event about a job that is suspended again, as cells are yet to be held for it."""

SUSPENDED = "its owner has suspended it: it takes its turn when its owner resumes it, or says hived release"

STARTING = "its cells are held, and pods of it are yet to take them"
"""The reason of a job that was resumed, until all of its pods have their cells."""


def in_part(counts: str) -> str:
    """The end of the reason of a job that runs, and of which pods wait; `counts` are words for all of its pods."""
    return f"; of its pods {counts}"


def started_anew(reason: str, job: Job, counts: PodCounts, at_s: float) -> str:
    """The reason of a job that ran, and none of whose pods runs: with why, as the list of all jobs tells it `at_s`."""
    pods = "; its pod waits again" if counts.waiting else "; its pod is gone"
    if max(counts.wanted, counts.waiting) > 1:
        pods = in_part(counts.words)
    if job.preempted is not None:
        pods += f" ({preempted_sentence(job.preempted, today(at_s), job.namespace)})"
    sentence = f": {job.sentence}" if job.sentence else ""
    return f"{reason.replace('runs on', 'has started on', 1)}{pods}{sentence}"


_IDLE = {"insufficient capacity when scheduling in physical cluster": "no idle cells have room for it"}
"""Words of the core that owners of jobs would not know."""


class Told(msgspec.Struct, frozen=True):
    """All that is told of a reason. A job that does not wait has no cause, and no start."""

    sentence: str
    cause: CauseName | Literal[""] = ""
    when: When | None = None


def told(reason: Reason | None, name: Callable[[str], str]) -> Told:
    """Tells a reason: a case for each kind. `name` gives the name of a job by its key."""
    match reason:
        case NotItsTurn():  # the usual reason first: a long queue has one for each of its jobs
            return Told(_turn(reason, name), _cause_of_turn(reason), _start_of_turn(reason))
        case None:
            return Told("")
        case Running(is_borrowed=True, is_entitled=True):
            return Told("its turn has come while it ran on idle cells: it stays there, and is the last to leave")
        case Running(is_borrowed=True, played=played):
            ahead = "" if played is None else f"; {_counts_until(played, name)}"
            return Told(f"runs on borrowed cells, which may be reclaimed{ahead}")
        case Running():
            return Told("runs on cells of its own virtual cluster")
        case Leaving(moves=True):
            return Told("its turn has come, and its own cells are elsewhere: it moves there")
        case Leaving(winner=winner):
            return Told(f"its cells go to {name(winner)}" if winner else "it has lost its cells")
        case NotYet(text=text, is_never=True):
            return Told(text, "never", _NEVER)
        case NotYet(text=text, begin_s=begin_s):
            return Told(text, "held", start_of(begin_s))
        case Held():
            return Told(held_by("", is_held=True), "held", _unknown("it is held"))
        case PodsLate(within_s=within_s, until_s=until_s):
            within = f"{within_s / 60:g} minute{'s' * (within_s != 60)}"
            start, again = _unknown("its pods did not come in time"), rfc3339(until_s)
            text = f"its cells were held, and its pods did not come within {within}: it tries again at {again}"
            return Told(text, "order", start)
        case OverUserLimit(user=user, limit=limit, waits=waits):
            plural, verb = ("s", "") if limit != 1 else ("", "s")
            text = f"user {user} runs {limit} job{plural}, as many as the queue allows"
            if waits:
                text = f"user {user} has {limit} job{plural} that wait{verb} before it, as many as the queue looks at"
            return Told(text, "quota", _unknown("its user has as many jobs as the queue allows"))
        case OverQuota(text=text):
            return Told(text, "quota", _unknown(_LITTLE_LEFT))
        case NotPromised(queue=queue, is_preemptible=is_preemptible):
            text = f"asks for more than is left of the guarantee of queue {queue}, which may not borrow"
            if not is_preemptible:
                left = f"asks for more than is left of the guarantee of queue {queue}"
                text = f"{left}, and may not borrow, as it may not be preempted"
            return Told(text, "quota", _unknown("its queue has no guarantee for it"))
        case Impossible(text=text):
            return Told(text, "never", _NEVER)
        case NeverFits(is_anywhere=True):
            text = "fits nowhere, even on an empty cluster: it can never run; ask for smaller pods, or fewer"
            return Told(text, "never", _NEVER)
        case NeverFits(queue=queue):
            text = f"is more than queue {queue} is guaranteed, and may not borrow: it can never run; ask for less"
            return Told(text, "never", _NEVER)
        case MakingRoom(victims=victims, is_lent=is_lent, borrows=borrows):
            first = (
                f"{name(victims[0])} and {len(victims) - 1} more have"
                if len(victims) > 1
                else f"{name(victims[0])} has"
            )
            text = f"starts on borrowed cells when {first} left"
            if not borrows:
                text = f"its turn has come, and it starts when {first} left"
            return Told(text, "lent" if is_lent else "preempting", _unknown("others have been told to leave for it"))
        case NoHardware(text=""):
            return Told("its turn has come, and its cells are being prepared", "unknown", When(kind="now"))
        case NoHardware(text=text):
            start = _unknown("it is not known when its cells can be had")
            return Told(f"its turn has come, and no cells can be had for it: {text}", "unknown", start)
    raise AssertionError(reason)


def start_of(begin_s: float | None) -> When:
    """The start of a job before a moment, in seconds since 1970, or if None before others have ended."""
    if begin_s is None:
        return _unknown(OTHERS_FIRST)
    return When(kind="unknown", because=f"not before {rfc3339(begin_s)}", earliest=rfc3339(begin_s))


OTHERS_FIRST = "other jobs have to end first"

_NEVER = When(kind="never")

_LITTLE_LEFT = "too little of its quota is left"


def _unknown(because: str) -> When:
    return When(kind="unknown", because=because)


def _turn(reason: NotItsTurn, name: Callable[[str], str]) -> str:
    if reason.only_borrows:
        return f"can only borrow idle cells{_not_lent(reason)}"
    passed = reason.held + reason.before * reason.is_first  # they have lower places, and are not before it for cells
    first = "is first"
    if passed:
        first += f" in line for cells of its virtual cluster ({counted(passed, 'job')} before it can have none)"
    if not reason.is_first and reason.behind == "cells" and not reason.before:
        text = first if passed else "is first in its queue"
    elif reason.behind == "min" and not reason.before:
        text = f"{first}, and too little is left of the min of its quota"
    elif reason.behind == "quota" and not reason.before:
        text = "is first of those that wait, and a job on borrowed cells goes before it for the min of its quota"
    elif reason.played is not None:
        first += ", and some cells of its virtual cluster are in use" if reason.others_run else ""
        text = f"{first}; {_counts_until(reason.played, name)}"
    elif reason.played_first and reason.awaits_cells:
        job = name(reason.played_first)
        text = f"{first}; {job}, which borrowed cells and has ended, has yet to count against its virtual cluster"
    elif reason.awaits_cells:
        text = f"{first}, and {'these' if passed else 'the cells of its virtual cluster'} are in use"
    else:
        also = f", besides {reason.held} that cannot start" if reason.held else ""
        text = f"{counted(reason.before, 'job')} {'is' if reason.before == 1 else 'are'} before it in its queue{also}"
    if reason.behind == "cells":
        text += "; cells that come free are kept for the first job of its virtual cluster"
    elif reason.behind == "quota":
        text += "; no job may start before the first one, which waits for its quota"
    elif reason.is_blocked:
        text += "; no job of its queue may start before the first one"
    if reason.spares_others:
        text += "; its preemptionPolicy is Never, so no job of lower priority leaves for it"
    if reason.borrowing:
        text += f"; it may borrow idle cells earlier{_not_lent(reason)}"
    return text


def _counts_until(played: tuple[str, float], name: Callable[[str], str]) -> str:
    """A clause about a job that its own schedule plays on."""
    job, until = name(played[0]), rfc3339(played[1])
    return f"{job}, which borrowed cells and has ended, counts against its virtual cluster until {until}"


def _not_lent(reason: NotItsTurn) -> str:
    """The reason why it does not borrow now, as a clause."""
    return f", but cannot now: {_IDLE.get(reason.borrowing, reason.borrowing)}" if reason.borrowing else ""


def _cause_of_turn(reason: NotItsTurn) -> CauseName:
    if reason.behind in ("quota", "min") and not reason.only_borrows:
        return "quota"
    return "in-use" if reason.only_borrows or reason.awaits_cells else "order"


def _start_of_turn(reason: NotItsTurn) -> When:
    start_s = reason.start_s
    if start_s is not None and reason.certainty is Certainty.ESTIMATED:
        return When(kind="estimated", likely=rfc3339(start_s), by=rfc3339(reason.late_s or start_s))
    if start_s is not None and reason.certainty in (Certainty.CERTAIN, Certainty.BOUNDED):
        return When(kind="certain" if reason.certainty is Certainty.CERTAIN else "bounded", by=rfc3339(start_s))
    if reason.only_borrows:
        return _unknown("it can only borrow, and no cells are kept for it")
    if reason.behind == "min" or (reason.behind == "quota" and not reason.before):
        return _unknown(_LITTLE_LEFT)
    if reason.before and not reason.is_first:
        return _unknown(f"{counted(reason.before, 'job')} of its queue come{'s' * (reason.before == 1)} first")
    if reason.played_first:
        return _unknown("a job that borrowed cells and has ended counts first")
    if not reason.is_first:
        return _unknown("no cells are kept for it yet")
    return _unknown("not every job that it waits for says when it ends")
