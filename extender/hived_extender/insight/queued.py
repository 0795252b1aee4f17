"""Jobs that wait in a queue, without pods, as all waiting jobs are shown: certificate, what would help, and when.

The queue says whether it is their turn. The cells are judged as if the job asked for them now: the same question that
the queue asks when it is.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from hived.scenario import Asked
from hived.values.errors import HivedError, UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_config.words import counted, listed_with
from hived_extender.api.names import GANG, short_name
from hived_extender.api.queues import HELD_LATER, QueuedJob
from hived_extender.api.waiting import FOR_JOBS, RECLAIMING, Certificate, IfResult, Job, JobState, Unblock, When, Why
from hived_extender.insight.answering import FRESH_S, Answering, Glances, SharedAnswers, View
from hived_extender.insight.listing import ListedJob, with_queued
from hived_extender.insight.snapshot import WaitingEntry
from hived_extender.insight.trials import Change, Ends, OtherCluster, Priority, words
from hived_extender.insight.unblocks import MOST_OF_A_KIND, MOST_SHOWN
from hived_extender.jobs.kinds import gangs
from hived_extender.jobs.progress import seconds_of
from hived_extender.machine.certificates import rfc3339
from hived_extender.machine.offers import Asking
from hived_extender.queues.answering import Question, QueueAnswers, Seen, Wanted
from hived_extender.queues.own_schedule import Certainty
from hived_extender.queues.reasons import MakingRoom, NoHardware, NotItsTurn, NotYet, in_part, started_anew

TOO_LARGE = "it is larger than the cluster"

NO_ENDS = ", and too few of the jobs that have to end say when they do"

UNLESS_USED = "other jobs use its quota or its cells first"
"""Not covered by declared limits: nothing is kept for a job that waits for its quota."""


Listed = Callable[[Job, Certificate | None, float], Job]
"""Show the row of a job of a moment to a caller, by its certificate if it waits: `Mask.listed`."""


class JobCounts(msgspec.Struct, frozen=True):
    """Jobs that have not ended: how many are in each state, and how many of those that wait are in queues."""

    by_state: Mapping[str, int]
    in_queues: int

    @property
    def waiting(self) -> int:
        """All that wait, and whom nobody holds."""
        return sum(self.by_state.get(state, 0) for state in _ARE_TO_START)


_ARE_TO_START: tuple[JobState, ...] = ("Waiting", "Preempting")


def count_jobs(view: View, queues: QueueAnswers | None) -> JobCounts:
    """All jobs as `hived get jobs` lists them, with those of queues once these have begun. Cost O(jobs), in pieces."""
    queued: list[Job] = []
    if queues is not None and queues.is_enabled:
        with suppress(HivedError):  # they are about to begin
            queued = jobs_without_rows(queues, view, Wanted(), None, None)
    jobs = with_queued(view.jobs, [one.job for one in view.jobs], queued)
    found = [job for job in jobs if job.ended is None]
    in_queues = sum(job.state in _ARE_TO_START for job in found if job.queue)
    return JobCounts(Counter(job.state for job in found), in_queues)


def jobs_without_rows(queues: QueueAnswers, view: View, wanted: Wanted, seen: Seen, count: int | None) -> list[Job]:
    """The first jobs of queues that wait, and those with cells whose pods are newer than the view: as rows of lists."""
    row_of = _rows_of(view)
    wanted = replace(wanted, is_waiting=True, has_row=lambda name: row_of(name) is not None)
    return [job_of(one, view) for one in queues.some_jobs(wanted, seen, 0, count)[1]]


def _rows_of(view: View) -> Callable[[str], ListedJob | None]:
    """Gives the row of a job of a queue by its full name, None if its pods are not there."""
    units = {name: row for row in view.jobs for name in row.queues_as}
    return lambda name: view.named.get(name) or view.named.get(_gang_of(name)) or units.get(name)


def glances_at_counts(answering: Answering, queues: QueueAnswers | None) -> Glances[JobCounts]:
    """Glances at these counts for many callers, who share them. Each raises NotLeadingError."""
    answers: SharedAnswers[JobCounts] = SharedAnswers(FRESH_S, time.monotonic)
    return Glances(lambda: answers.get("jobs", lambda: count_jobs(answering.view(), queues)))


def why_queued(queues: QueueAnswers, answering: Answering, name: str, seen: Seen) -> Why | None:
    """All that is known of a job that waits in a queue; None if none waits of this name, in the namespaces `seen`.

    The names in the certificate are to be masked, as of every job. Cost as for a job with pods.
    """
    question = queues.question(name, seen)
    if question is None:
        return None
    entry, borrower = _entry(question), _borrower(question)
    live = answering.judged(entry) if entry.requests else None
    lent = answering.judged(borrower) if borrower is not None else None
    only_borrows = _only_borrows(question)
    found = certificate_of(question, lent if only_borrows else live, lent)
    if only_borrows and live is not None and not found.never:  # it may be given cells of its own
        found = replace(found, unblock=_joined(found.unblock, live.unblock))
    if not found.unblock and not found.never:
        found = replace(found, unblock=_ends(queues, answering, question, entry))
    if lent is not None and isinstance(question.reason, NotItsTurn) and not (only_borrows or found.never):
        found = replace(found, unblock=_joined(found.unblock, _lent_once(queues, answering, question, lent)))
    when = _start(question, found)
    if when is not None and when.kind == "unknown" and question.freeing + question.freeing_elsewhere:
        when = _start_by_quota(queues, answering, question, entry) or replace(when, because=when.because + NO_ENDS)
    job = job_of(question.job, answering.view())
    job = replace(job, asks=found.asks or question.job.asks, cause=found.cause, when=when)
    return Why(job=replace(job, sentence=found.sentence), certificate=found, when=when)


def try_on_queued(
    queues: QueueAnswers, answering: Answering, name: str, seen: Seen, changes: Sequence[str],
    is_shown: Callable[[str], bool],
) -> tuple[IfResult, str] | None:  # fmt: skip
    """Tries changes for a job of a queue: would it have its cells at once? With its namespace.

    As `Answering.try_changes`; None if none waits of this name. Jobs of its queue that come before it have theirs
    first, as far as quotas and limits let them. Raises UserError.
    """
    question = queues.question(name, seen)
    if question is None:
        return None
    entry = _entry(question)
    if not entry.requests:
        raise UserError(f"no change can be tried: {question.job.reason}")
    view, read = answering.read(entry, changes, is_shown)
    if question.quota and any(isinstance(one, OtherCluster) and one.name != question.job.vc for one in read):
        raise UserError(
            f"its quota {question.quota} is for virtual cluster {question.job.vc} alone: a job for another one has "
            "to be in a quota of that, as hived get queue has them"
        )
    found, why = _outcome(queues, answering, view, question, read)
    if why:
        told = f"{question.job.reason}; with these changes {why}"
        found = IfResult(
            starts=False, certificate=replace(certificate_of(question, answering.judged(entry)), sentence=told)
        )
    return found, entry.namespace


def _outcome(
    queues: QueueAnswers, answering: Answering, view: View, question: Question, read: Sequence[Change]
) -> tuple[IfResult, str]:
    """The outcome on cells that jobs before it leave, and why its queue keeps it though there would be cells for it."""
    entry = _entry(question)
    ended = [name for one in read if isinstance(one, Ends) for name in one.names]
    given = next((one.value for one in read if isinstance(one, Priority)), OPPORTUNISTIC_PRIORITY)
    is_free, first = queues.after(question.key, ended, max(given, question.job.priority or 0))
    if any(isinstance(one, OtherCluster) and one.name != question.job.vc for one in read):
        first = []
    before = [each for one in first for each in _asking(one)]
    found = _tried(answering, view, question, entry, read, before)
    if found.starts and is_free:
        return found, ""
    if before and (found.starts or _tried(answering, view, question, entry, read).starts):
        count = len(first)
        return found, f"{counted(count, 'job')} of its queue would start before it"
    return found, "there would be cells for it at once" if found.starts else ""


def _asking(question: Question) -> list[WaitingEntry]:
    """Return how a job asks for cells: for its own, then for borrowed ones, refused to a job that has its own."""
    entry = _entry(question)
    return [entry, replace(entry, priority=OPPORTUNISTIC_PRIORITY)] if question.may_borrow else [entry]


def _tried(
    answering: Answering, view: View, question: Question, entry: WaitingEntry, read: Sequence[Change],
    before: Sequence[WaitingEntry] = (),
) -> IfResult:  # fmt: skip
    """Tries a start at its turn, or before it on borrowed cells, after jobs that come first."""
    found = answering.try_on(view, entry, read, before)
    if not found.starts and question.may_borrow and not any(isinstance(one, Priority) for one in read):
        with suppress(UserError):  # its namespace may have no opportunistic pods
            ahead = answering.try_on(view, entry, [*read, Priority(OPPORTUNISTIC_PRIORITY)], before)
            return ahead if ahead.starts else found
    return found


def _ends(queues: QueueAnswers, answering: Answering, question: Question, entry: WaitingEntry) -> list[Unblock]:
    """Jobs one of which has to end so that its quota, or its user's limit, has room, where cells are free then.

    Jobs of its own queue stand first.
    """
    found: list[Unblock] = []
    for names in (question.freeing, question.freeing_elsewhere):
        most = len(found) + MOST_SHOWN
        for name in names[:MOST_OF_A_KIND]:
            with suppress(UserError):  # it has just ended
                view, read = answering.read(entry, [f"ends={name}"], lambda namespace: True)
                result, why = _outcome(queues, answering, view, question, read)
                if result.starts and not why:
                    short = short_name(name, name.split("/")[1], entry.namespace)
                    found.append(Unblock(change=words(read[0]), text=f"once {short} has ended"))
            if len(found) == most:
                break
    return found


def _start_by_quota(queues: QueueAnswers, answering: Answering, question: Question, entry: WaitingEntry) -> When | None:
    """Return when a job starts that waits for its quota: once enough jobs have ended, if there are cells for it then.

    None if too few of these say when they end.
    """
    found = queues.quota_start(question.key)
    if found is None:
        return None
    start, ended, first = found
    moment = rfc3339(start.late_s or start.at_s or 0.0)
    before = [each for one in first for each in _asking(one)]
    try:
        view, read = answering.view(), tuple[Change, ...]()
        if ended:
            view, read = answering.read(entry, [f"ends={','.join(ended)}"], lambda namespace: True)
        has_cells = _tried(answering, view, question, entry, read, before).starts
    except UserError:  # one of them has just ended
        has_cells = False
    if not has_cells:
        return When(kind="unknown", because=f"its quota has room by {moment}, and it is not known when cells are free")
    if start.certainty is Certainty.ESTIMATED:
        return When(kind="estimated", likely=rfc3339(start.at_s or 0.0), by=moment)
    return When(kind="bounded", by=moment, unless=UNLESS_USED)


def _joined(some: Sequence[Unblock], others: Sequence[Unblock]) -> list[Unblock]:
    """The first ones, and those of the others that are no news of them."""
    known = {one.change for one in some}
    return [*some, *(one for one in others if one.change not in known)]


def _lent_once(queues: QueueAnswers, answering: Answering, question: Question, lent: Certificate) -> list[Unblock]:
    """Jobs after one of which it could borrow, though it is not its turn."""
    found: list[Unblock] = []
    entry = _entry(question)
    for one in lent.unblock:
        if one.change.startswith("ends="):
            with suppress(UserError):  # it has just ended
                view, read = answering.read(entry, [one.change], lambda namespace: True)
                result, why = _outcome(queues, answering, view, question, read)
                found += [one] if result.starts and not why else []
    return found


def with_counts(jobs: Sequence[QueuedJob], answering: Answering | None, listed: Listed) -> list[QueuedJob]:
    """The jobs of queues with the counts of their pods, which those that have cells get from the list of all jobs, as
    they do since when they run.

    One that runs while pods of it wait, such as one made anew for a pod that has ended, says so. If none of them runs
    it is Starting, with why the list of all jobs, as it is `listed` for the caller, has it wait. A gang has the counts
    of the job of which it is a part there. Cost: a view, if there is any with pods. Raises NotLeadingError.
    """
    if answering is None or all(one.state not in _WITH_PODS and one.api_version for one in jobs):
        return list(jobs)
    view = answering.view()
    row_of = _rows_in(view)
    rows = [row_of(one.name) for one in jobs]
    at_s = view.snapshot.at
    return [one if row is None else _counted(one, row, at_s, listed) for one, row in zip(jobs, rows, strict=True)]


def _rows_in(view: View) -> Callable[[str], ListedJob | None]:
    """Find the row of the list of all jobs that a job of queues, by its name, is in."""
    units = {name: row for row in view.jobs for name in row.queues_as}
    return lambda name: view.named.get(name) or view.named.get(_gang_of(name)) or units.get(name)


def row_names(answering: Answering) -> Callable[[str], str]:
    """Name the job that a job of queues, by its name, is or is a part of. Raises NotLeadingError."""
    row_of = _rows_in(answering.view())
    return lambda name: name if (row := row_of(name)) is None else row.name


def _counted(job: QueuedJob, row: ListedJob, at_s: float, listed: Listed) -> QueuedJob:
    if row.name not in (job.name, _gang_of(job.name)):
        return replace(job, part_of=row.name, counts=row.job.counts)
    if job.state not in _WITH_PODS:
        return job
    counts, reason = row.job.counts, job.reason.removesuffix(HELD_LATER)
    held = job.reason.removeprefix(reason)
    waits = job.state == "Running" and row.job.state in _ARE_TO_START and not counts.running
    if waits:
        reason = started_anew(reason, listed(row.job, row.certificate, at_s), counts, at_s)
    elif counts.waiting and counts.running:
        reason += in_part(counts.words)
    since = seconds_of(row.job.since) if waits or row.job.state == job.state else None
    return replace(
        job,
        state="Starting" if waits else job.state,
        counts=counts,
        reason=reason + held,
        since=job.since if since is None else since,
    )


_WITH_PODS = ("Starting", "Running", "Leaving")


def _gang_of(name: str) -> str:
    """The name in lists of a gang of plain pods, which queues as `Gang/NAMESPACE/NAME`."""
    return f"{GANG}{name.removeprefix(f'{gangs.KIND}/')}"


def job_of(queued: QueuedJob, view: View) -> Job:
    """A job of a queue without pods, in a list of all jobs, with the kind of its preemption where that is known."""
    preempted = queued.preempted
    if preempted is not None:
        preempted = view.news.get(queued.name) or view.news.get(_gang_of(queued.name)) or preempted
    state = _SHOWN.get(queued.state, "Waiting")
    return Job(
        name=queued.name, state=state, namespace=queued.namespace, user=queued.user, vc=queued.vc,
        priority=queued.priority, asks=queued.asks, since=rfc3339(queued.since), cause=queued.cause,
        sentence=queued.reason, when=queued.when, queue=queued.queue, place=queued.position,
        preempted=preempted, counts=queued.counts, api_version=queued.api_version,
    )  # fmt: skip


_SHOWN: Mapping[str, JobState] = {"Held": "Held", "Refused": "Refused", "Running": "Running", "Leaving": "Leaving"}
"""Others wait, as does one that starts."""


def certificate_of(question: Question, live: Certificate | None, lent: Certificate | None = None) -> Certificate:
    """The certificate of a job, from why its queue does not start it and why the live cluster would not.

    `lent` says why there are no cells to borrow, for a job that may: those are enough for one that waits for its quota.
    The queue's own sentence stands where it is what keeps the job; what would help is told of cells alone.
    """
    job, reason = question.job, question.reason
    if live is None:
        found = Certificate(sentence=job.reason, cause="invalid", vc=job.vc, asks=job.asks, reason=job.reason)
        untried = FOR_JOBS if isinstance(reason, NotYet) else TOO_LARGE
        return replace(found, cause="never", never=True, untried=untried) if job.cause == "never" else found
    if question.quota:
        live = replace(live, unblock=[one for one in live.unblock if not one.change.startswith("vc=")])
    cause = job.cause or "order"
    only_borrows = _only_borrows(question)
    may_yet = isinstance(reason, NotItsTurn) or (lent is not None and not lent.never)
    if live.never and question.may_borrow and not only_borrows and may_yet:  # it can never run on its own cells
        live = replace(live, never=False, cause=cause, sentence=job.reason)
    if live.never:
        return live
    if cause == "never":
        untried = FOR_JOBS if isinstance(reason, NotYet) else ""
        return replace(
            live, sentence=job.reason, cause=cause, never=True, unblock=[], holders=[], more_holders=0, untried=untried
        )
    is_turn = isinstance(reason, NotItsTurn) and cause != "quota"
    is_for_cells = isinstance(reason, NoHardware) or (
        isinstance(reason, NotItsTurn) and is_turn and reason.awaits_cells
    )
    is_for_cells = is_for_cells or only_borrows
    if is_for_cells or (isinstance(reason, MakingRoom) and not reason.borrows and live.cause in RECLAIMING):
        is_order = live.cause == "order" or (isinstance(reason, NotItsTurn) and live.cause in RECLAIMING)
        return live if not is_order else replace(live, sentence=job.reason, cause="order")
    cells = lent if lent is not None and cause == "quota" else live
    also = [] if cells.cause in ("order", cause) else [cells.cause, *cells.also]
    found = replace(
        cells, sentence=job.reason, cause=cause, also=also, unblock=[], is_opportunistic=live.is_opportunistic
    )
    return found if is_turn else replace(found, holders=[], more_holders=0)


def _only_borrows(question: Question) -> bool:
    return isinstance(question.reason, NotItsTurn) and question.reason.only_borrows


def _borrower(question: Question) -> WaitingEntry | None:
    """The job as it asks for borrowed cells, None if it may not have any."""
    if question.borrowing is None:
        return None
    return replace(_asked(question, question.borrowing), priority=OPPORTUNISTIC_PRIORITY)


def _entry(question: Question) -> WaitingEntry:
    """The job as it asks for cells of its own."""
    return _asked(question, question.asking)


def _asked(question: Question, part: Asking | None) -> WaitingEntry:
    job = question.job
    entry = WaitingEntry(
        job.name, job.namespace, job.vc, job.priority or 0, (), user=job.user, limit_s=question.limit_s
    )
    if part is None:
        return entry
    part = replace(part, asked=Asked(part.request, offer=part.offer))  # wherever its virtual cells are
    return replace(entry, parts=(part,), rules=part.rules)


def _start(question: Question, found: Certificate) -> When | None:
    """Return when it starts: once its victims have left, if the end of each is known."""
    if found.never:
        return When(kind="never")
    if isinstance(question.reason, MakingRoom) and found.cause in RECLAIMING and found.holders:
        until = [holder.until for holder in found.holders]
        if all(until) and not found.more_holders:
            return When(kind="certain", by=max(until))
    when = question.job.when
    if when is not None and when.kind == "unknown" and (because := _without_limits(found, question.job.namespace)):
        return replace(when, because=because)
    return when


def _without_limits(found: Certificate, namespace: str) -> str:
    """The holders that do not say when they end; those of other namespaces are counted alone. "" if all say it."""
    endless = [one for one in found.holders if not one.until]
    if not endless or found.never or found.cause != "in-use":
        return ""
    verb = "has" if len(endless) == 1 else "have"
    if found.more_holders or len(endless) > MOST_SHOWN or any(one.namespace != namespace for one in endless):
        count = "jobs" if found.more_holders else counted(len(endless), "job")
        verb = "have" if found.more_holders else verb
        return f"{count} of those that have the cells {verb} no time limit"
    names = listed_with([short_name(one.group, one.namespace, namespace) for one in endless])
    return f"{names}, which {verb} the cells, {verb} no time limit"
