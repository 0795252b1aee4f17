"""Jobs as text: states, ages, starts, tables of jobs, and why one waits. A time is never shown without its kind."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import get_args

import click
from msgspec.structs import replace

from hived_cli.helpers.tables import GAP, cut, fitted, paragraph, table, terminal_width
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api.inspection import as_minute, duration, seconds_since
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import (
    LOST,
    NEVER_RAN,
    NOT_AGAIN,
    NOT_BY_EXIT,
    UNSEEN,
    UNTRIED_CAUSES,
    WAITING_STATES,
    BadNode,
    Certificate,
    Ended,
    EndState,
    Holder,
    IfResult,
    Job,
    PodView,
    Preempted,
    Unblock,
    When,
    Why,
    attempt_words,
    exit_words,
    preempted_words,
    rank,
    rank_in_words,
)

UNKNOWN = "-"

STATE_COLORS = {"Waiting": "yellow", "Preempting": "yellow", "Starting": "cyan", "Running": "green", "Leaving": "red",
                "Preempted": "red", "Held": "yellow", "Refused": "red", "Completed": "green", "Failed": "red",
                "Evicted": "red"}  # fmt: skip

ENDED_STATES = get_args(EndState)
"""States of jobs that have ended. Lists of those that wait or run have the Preempted ones as well."""

SOON = ("now", "certain")
"""Kinds of starts that no change has to help."""

NAMED_NODES = 3
"""Nodes of a running job that cannot be used and are named."""

PENDING = "..."
"""In place of a start that is being worked out."""

_ORDINALS = {1: "st", 2: "nd", 3: "rd"}


def state(job: Job) -> str:
    """The state of a job in its colour."""
    return click.style(job.state, fg=STATE_COLORS.get(job.state))


def reason(job: Job) -> str:
    """Return why a job waits, without what it asks for, which stands in a column of its own; the troubles of one that
    runs.
    """
    said = printable(job.sentence.removeprefix(f"needs {job.asks}; ")) or job.cause
    return f"{place(job)}: {said}" if job.place else said


def troubles(job: Job, now: datetime) -> str:
    """The troubles of a job that runs, after its state: `, node n1 NotReady for 24s, opportunistic since version 7`."""
    nodes = [
        f", node {printable(one.node)} {printable(one.reason)}" + (f" for {age(one.since, now)}" if one.since else "")
        for one in job.bad_nodes[:NAMED_NODES]
    ]
    more = len(job.bad_nodes) - NAMED_NODES
    others = f", {counted(more, 'more node')} cannot be used" if more > 0 else ""
    return "".join(nodes) + others + (f", opportunistic {printable(job.demoted)}" if job.demoted else "")


def has_ended(job: Job) -> bool:
    """True if a job neither waits nor runs any more."""
    return job.state in ENDED_STATES


def place(job: Job) -> str:
    """The place of a job in its queue."""
    return f"place {job.place} in queue {printable(job.queue)}"


def age(since: str, now: datetime) -> str:
    """The time since a moment, "-" if that is not known."""
    seconds = seconds_since(since, now)
    return UNKNOWN if seconds is None else duration(seconds)


def rank_of(job: Job | QueuedJob) -> str:
    """The priority of a job in a table."""
    return rank(job.priority, is_borrowed=job.is_borrowed) or UNKNOWN


def listed(names: list[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most + 1 else ""
    return ", ".join(map(printable, names[: most if more else None])) + more


def brief_when(when: When | None, now: datetime) -> str:
    """Return when a job starts, in a few words, with the kind of the answer; "-" if nothing is said."""
    if when is None:
        return UNKNOWN
    match when.kind:
        case "certain" | "bounded":
            return f"{_within(when.by, now)} ({when.kind})"
        case "estimated":
            parts = dict.fromkeys((_within(when.likely, now, "about"), _within(when.by, now)))
            return f"{', '.join(parts)} (estimated)"
        case "unknown" if when.earliest:
            return f"not before {_clock(when.earliest, now)}"
        case _:
            return when.kind


def _clock(moment: str, now: datetime) -> str:
    """A moment to the minute, in UTC; with its date on another day."""
    day, _, clock = as_minute(moment).removesuffix(" UTC").partition(" ")
    return clock if day == f"{now:%Y-%m-%d}" else f"{day} {clock}"


def start(job: Job, now: datetime, *, is_wide: bool = False) -> str:
    """Return when a job of a list starts; "-" for one that has its cells. If `is_wide`, with the reason if unknown."""
    if job.when is None and job.state in WAITING_STATES:
        return PENDING
    when = job.when
    because = "" if when is None or not is_wide or when.earliest else when.because
    return brief_when(when, now) + (f": {printable(because)}" if because else "")


def long_when(when: When, now: datetime) -> str:
    """Return when a job starts, in a sentence or two, with the kind of the answer and its place in the order."""
    match when.kind:
        case "now":
            text = "now"
        case "certain":
            text = f"certain: {_within(when.by, now)}, by {as_minute(when.by)}"
        case "bounded":
            text = f"bounded: {_within(when.by, now)}, at the latest at {as_minute(when.by)}"
            text += f", unless {printable(when.unless)}" if when.unless else ""
        case "estimated":
            text = (
                f"estimated: in half of such cases {_within(when.likely, now)}, by {as_minute(when.likely)}; "
                f"in 9 of 10 {_within(when.by, now)}, by {as_minute(when.by)}"
            )
        case "unknown" if when.earliest:
            return f"not before {as_minute(when.earliest)}"
        case _:
            text = when.kind
    if when.because:
        text += f"; {printable(when.because)}"
    if when.position:
        text += f" ({_ordinal(when.position)} in the order of its virtual cluster)"
    return text


def _within(moment: str, now: datetime, word: str = "within") -> str:
    """Return the time until a moment. One that is less than a second ahead, or in the past, is no "0s": lists are some
    seconds old, and a job may be late.
    """
    seconds = seconds_since(moment, now)
    if seconds is None:
        return f"{word} a time not known"
    return "any moment" if seconds > -1 else f"{word} {duration(-seconds)}"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else _ORDINALS.get(number % 10, "th")
    return f"{number}{suffix}"


ROOM_FOR_REASON = 40
"""Columns that reasons have at least beside the jobs; with fewer they stand below."""

_WIDE = ("USER", ">PRIORITY", "NODES")

_Columns = Mapping[str, Callable[[Job], str]]


def job_columns(now: datetime, title: str = "JOB", *, is_wide: bool = False) -> _Columns:
    """The columns of a table of jobs, each with the text of a job; see `start` for `is_wide`."""
    return {
        title: lambda job: printable(job.name),
        "VC": lambda job: printable(job.vc) or UNKNOWN,
        "USER": lambda job: printable(job.user) or UNKNOWN,
        ">PRIORITY": rank_of,
        "STATE": state,
        ">FOR": lambda job: age(job.since, now),
        "ASKS": lambda job: job.asks or UNKNOWN,
        "PODS": lambda job: job.counts.words or UNKNOWN,
        "WHEN": lambda job: start(job, now, is_wide=is_wide),
        "NODES": lambda job: listed(job.nodes, most=len(job.nodes)) or UNKNOWN,
        "REASON": reason,
    }


def job_table(jobs: Sequence[Job], now: datetime, *, title: str = "JOB", is_wide: bool = False) -> str:
    """A row for each job, and below it one for each of its `members`.

    Lines fit the terminal, unless the table `is_wide`: then it has all columns.
    """
    columns = job_columns(now, title, is_wide=is_wide)
    is_opened = any(job.members for job in jobs)
    columns = columns if any(job.counts.words for job in jobs) else _without(columns, "PODS")
    jobs = [row for job in jobs for row in (job, *map(partial(_as_row, job), job.members))]
    if is_wide:
        return _table(columns, jobs)
    columns = _without(columns, *(name for name in _WIDE if name != "NODES" or not is_opened))
    whole, width = _table(columns, jobs), terminal_width()
    if width is None:
        return whole
    before = _width(_table(_without(columns, "REASON"), jobs))
    if _width(whole) <= width or before + len(GAP) + ROOM_FOR_REASON <= width:
        lines = [cut(line, width) for line in whole.splitlines()]
    else:
        lines = [*_with_reasons_below(_without(columns, "ASKS", "REASON"), jobs, width)]
    return "\n".join(lines)


def _as_row(job: Job, pod: PodView) -> Job:
    """A pod in a row below its job's."""
    nodes = [pod.node] if pod.node else []
    is_to_come = pod.state in WAITING_STATES and bool(pod.reason)
    waits = pod.state in WAITING_STATES and not is_to_come
    return Job(
        name=f"  {pod.name}", state=pod.state, user=job.user, vc=job.vc, priority=job.priority,
        is_borrowed=job.is_borrowed, nodes=nodes, since=pod.since or (job.since if waits else ""), sentence=pod.reason,
        when=job.when if waits else When(kind="unknown") if is_to_come else None,
    )  # fmt: skip


def _with_reasons_below(columns: _Columns, jobs: Sequence[Job], width: int) -> Iterator[str]:
    """The table without the reasons, which say what is asked for as well."""
    header, *rows = _table(columns, jobs).splitlines()
    yield cut(header, width)
    for job, row in zip(jobs, rows, strict=True):
        yield cut(row, width)
        if said := (f"{place(job)}: " if job.place else "") + (printable(job.sentence) or job.cause):
            yield from paragraph(said, "    ")


def _without(columns: _Columns, *names: str) -> _Columns:
    return {name: column for name, column in columns.items() if name not in names}


def _table(columns: _Columns, jobs: Sequence[Job]) -> str:
    return table([*columns], [[column(job) for column in columns.values()] for job in jobs])


def _width(text: str) -> int:
    return max(map(len, click.unstyle(text).splitlines()))


def draw_pod(job: Job, pod: PodView, now: datetime) -> str:
    """A pod of a job that has ended, or that is not made yet."""
    told = f"{click.style(printable(pod.name), bold=True)}   {state(_as_row(job, pod))}   of {printable(job.name)}"
    ended = f"ended {age(pod.since, now)} ago, at {as_minute(pod.since)}" if pod.since else ""
    on = f"on {printable(pod.node)}" if pod.node else ""
    return "\n".join([told, *paragraph(", ".join(filter(None, (printable(pod.reason), ended, on))))])


_OF_THE_JOB = ("priority", "opportunistic", "pods", "leafType", "vc")
"""Changes of the job itself, which is submitted anew for them."""


def draw_why(why: Why, now: datetime, place: str = "") -> str:
    """All that is known of a job. One that has its cells has no certificate; one in a queue has a `place`."""
    lines = _head(why.job, now)
    if place:
        lines += paragraph(place)
    if why.certificate is not None and place.endswith(printable(why.certificate.sentence)):
        why = replace(why, certificate=replace(why.certificate, sentence=""))  # the place says it already
    if why.certificate is not None:
        lines += _certificate(why.certificate, why.when, now)
    elif why.job.ended is not None:
        lines += _ended(why.job, why.job.ended, now)
    elif why.job.nodes:
        lines += paragraph(f"on {listed(why.job.nodes, most=16)}")
        lines += paragraph(why.job.comes_next) if why.job.comes_next else []
    elif why.job.preempted is None:
        lines += paragraph(printable(why.job.sentence))
    if why.job.preempted is not None and why.job.ended is None:
        lines += paragraph(_preempted(why.job.preempted, now))
    if why.when is not None:
        lines += ["", _title("When"), *paragraph(long_when(why.when, now))]
    return "\n".join(lines)


def queued(job: QueuedJob) -> str:
    """The place of a job in its queue, and why it does not start there; of one that runs, how."""
    place = f"in queue {printable(job.queue)}" if job.queue else "in no queue"
    return f"{f'place {job.position} ' if job.position else ''}{place}: {printable(job.reason)}"


def draw_trial(job: Job, changes: Sequence[str], result: IfResult) -> str:
    """The answer to a trial: would a job start with changes?"""
    with_changes = f"with {' and '.join(map(printable, changes))}"
    tried = f"{printable(job.name)} {with_changes}"
    if not result.starts:
        lines = [f"{tried} would wait all the same"]
        if result.certificate is not None:
            lines[0] = f"{tried} could never run" if result.certificate.never else lines[0]
            lines += paragraph(printable(result.certificate.sentence))
        return "\n".join(lines)
    lines = [f"{tried} would start at once"]
    if result.counted:
        lines = [f"{result.counted} of {printable(job.name)} would start at once {with_changes}"]
    if result.nodes:
        lines += paragraph(f"on {listed(result.nodes, most=16)}")
    if result.victims:
        lines += paragraph(f"and these would have to leave: {listed(result.victims, most=16)}")
    return "\n".join(lines)


def _preempted(found: Preempted, now: datetime) -> str:
    ago = f"{as_minute(found.at)} ({age(found.at, now)} ago)"
    return printable(preempted_words(found, ago, found.by))


def _ended(job: Job, ended: Ended, now: datetime) -> Iterator[str]:
    """Yield lines on how a job ended, what it used, and when it was preempted before."""
    exit_of = exit_words(ended) if job.state not in NOT_BY_EXIT else ""
    said = f": {printable(exit_of)}" if exit_of else ""
    yield from paragraph(f"ended {age(ended.at, now)} ago, at {as_minute(ended.at)}{said}")
    if ended.attempts:
        yield from paragraph(attempt_words(ended.attempts))
    if job.state == "Unknown":
        yield from paragraph(UNSEEN)
    elif not ended.started:
        yield from paragraph(NEVER_RAN)
    if ended.started:
        more = " and more" if ended.more_nodes else ""
        on = f" on {listed(job.nodes, most=16)}{more}" if job.nodes else ""
        gpus = f"{counted(ended.gpus, 'GPU')}, " if ended.gpus else ""
        yield from paragraph(f"ran {duration(ended.ran_s)}{on}: {gpus}{ended.gpu_hours:.4g} GPU-hours")
    if ended.eviction_count > len(ended.evictions):
        yield from paragraph(f"lost its cells {counted(ended.eviction_count, 'time')}, lately:")
    for one in ended.evictions:
        yield from paragraph(_preempted(one, now))
    if ended.is_bare and job.state in LOST:
        yield from paragraph(NOT_AGAIN)


def ended_columns(now: datetime) -> _Columns:
    """The columns of a table of jobs that have ended, each with the text of a job."""

    def of_end(text: Callable[[Ended], str]) -> Callable[[Job], str]:
        return lambda job: UNKNOWN if job.ended is None else text(job.ended)

    return {
        "JOB": lambda job: printable(job.name),
        "VC": lambda job: printable(job.vc) or UNKNOWN,
        "USER": lambda job: printable(job.user) or UNKNOWN,
        ">PRIORITY": rank_of,
        "QUEUE": lambda job: printable(job.queue) or UNKNOWN,
        "STATE": state,
        ">EXIT": of_end(lambda ended: UNKNOWN if ended.exit_code is None else str(ended.exit_code)),
        ">ENDED": lambda job: age(job.since, now),
        ">RAN": of_end(lambda ended: duration(ended.ran_s) if ended.started else UNKNOWN),
        ">GPUS": of_end(lambda ended: str(ended.gpus)),
        ">GPU-HOURS": of_end(lambda ended: f"{ended.gpu_hours:.4g}"),
        "NODES": lambda job: listed(job.nodes, most=len(job.nodes)) or UNKNOWN,
        "REASON": lambda job: printable(job.sentence) or UNKNOWN,
    }


def ended_table(jobs: Sequence[Job], now: datetime, *, is_wide: bool = False) -> str:
    """A row for each job that has ended, and below it one for each of its `members`."""
    columns = ended_columns(now)
    jobs = [row for job in jobs for row in (job, *map(partial(_as_row, job), job.members))]
    if is_wide:
        return _table(columns, jobs)
    columns = _without(columns, ">PRIORITY", "QUEUE", "NODES")
    return fitted([*columns], [[column(job) for column in columns.values()] for job in jobs])


def _head(job: Job, now: datetime) -> list[str]:
    facts = [
        job.asks,
        ", ".join(filter(None, (job.vc, rank_in_words(job.priority, is_borrowed=job.is_borrowed)))),
        job.user and f"of {job.user}",
        job.made_by and f"made by {job.made_by}",
        job.counts.words,
    ]
    since = f"since {as_minute(job.since)} ({age(job.since, now)})" if job.since and not has_ended(job) else ""
    said = "   ".join(printable(each) for each in (*facts, since) if each)
    title = f"{click.style(printable(job.name), bold=True)}   {state(job)}{troubles(job, now)}"
    line, width = f"{title}   {said}", terminal_width()
    return [line] if width is None or len(click.unstyle(line)) <= width else [title, *paragraph(said)]


def _certificate(found: Certificate, when: When | None, now: datetime) -> Iterator[str]:
    if found.sentence:
        yield from paragraph(printable(found.sentence))
    yield from paragraph(f"cause {' and '.join((found.cause, *found.also))}{_counts(found)}")
    if found.holders and not found.never:  # it waits for no holder
        yield from ["", _title("Held by"), *_indented(_holders(found.holders, now))]
        if found.more_holders:
            yield f"  and {found.more_holders} more"
    if found.bad_nodes:
        yield from ["", _title("Bad nodes"), *_indented(_bad_nodes(found.bad_nodes, now))]
    if found.unblock:
        yield from ["", _title("What would help, each alone"), *_unblocks(found.unblock)]
    elif found.cause not in UNTRIED_CAUSES and (when is None or when.kind not in SOON):
        nothing = "no single change that was tried helps; try several together with --if"
        untried = f"no change could be tried: {printable(found.untried)}"
        yield from ["", _title("What would help"), *paragraph(untried if found.untried else nothing)]


def _counts(found: Certificate) -> str:
    """`: 1 of 3 nodes of type H100-NODE is free, 2 are in use; the largest pod that would start now has 8 H100`."""
    words = {"free": found.free, "in use": found.in_use, "in pieces": found.in_pieces, "bad": found.bad,
             "refused by Kubernetes": found.refused}  # fmt: skip
    words = {} if found.cause == "never" else words  # those of now are not in its way
    whole = f" of {counted(found.total, 'node' if found.unit == 'node' else 'cell')} of type {printable(found.level)}"
    told = [(f"{count:,}", f"{'is' if count == 1 else 'are'} {word}") for word, count in words.items() if count]
    parts = [", ".join(f"{count}{whole * (not at)} {is_so}" for at, (count, is_so) in enumerate(told))] if told else []
    if found.refused and found.rules and "kubernetes" not in (found.cause, *found.also):  # else the sentence has them
        parts.append(printable(found.rules))
    leaf_type = printable(found.leaf_type) or "GPU"
    if found.never and found.largest_ever:
        parts.append(f"the largest pod that could ever start has {counted(found.largest_ever, leaf_type)}")
    elif found.largest_fit:
        parts.append(f"the largest pod that would start now has {counted(found.largest_fit, leaf_type)}")
    return f": {'; '.join(parts)}" if parts else ""


def _holders(holders: Sequence[Holder], now: datetime) -> str:
    is_limited = any(one.until for one in holders)
    rows = [
        [
            printable(one.group) + (" (lent)" if one.is_lent else "") + (" (leaving)" if one.is_leaving else ""),
            printable(one.vc) or UNKNOWN,
            rank(one.priority),
            str(one.cells) if one.cells else UNKNOWN,
            listed(one.nodes) or UNKNOWN,
            age(one.since, now),
            *([as_minute(one.until) or UNKNOWN] if is_limited else []),
        ]
        for one in holders
    ]
    until = ["UNTIL AT THE LATEST"] if is_limited else []
    return table(["JOB", "VC", ">PRIORITY", ">GPUS", "NODES", ">FOR", *until], rows)


def _bad_nodes(nodes: Sequence[BadNode], now: datetime) -> str:
    rows = [[printable(one.node), printable(one.reason) or UNKNOWN, age(one.since, now)] for one in nodes]
    return table(["NODE", "REASON", ">FOR"], rows)


def _unblocks(unblocks: Sequence[Unblock]) -> Iterator[str]:
    """Each change, and below it the option that tries it."""
    for one in unblocks:
        yield from paragraph(printable(one.text))
        yield f"    --if {_quoted(one.change)}"
    kinds = {one.change.partition("=")[0] for one in unblocks}
    ways = []
    if not kinds.isdisjoint(_OF_THE_JOB):
        ways.append("hived delete JOB, and submit it again with the change, such as hived submit FILE --priority N")
    if "ends" in kinds:
        ways.append("hived delete OTHER ends another job")
    if "cells" in kinds:
        ways.append("for cells=, hived config set-vc or hived config move")
    if ways:
        yield from paragraph(f"how: {'; '.join(ways)}")


def _quoted(change: str) -> str:
    return shlex.quote(printable(change))


def _title(text: str) -> str:
    return click.style(text, bold=True)


def _indented(text: str) -> list[str]:
    """The lines of a table, cut where a terminal ends."""
    lines, width = [f"  {line}" for line in text.splitlines()], terminal_width()
    return lines if width is None else [cut(line, width) for line in lines]
