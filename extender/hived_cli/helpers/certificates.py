"""Certificates of waiting jobs as text: the sentence, who holds the cells, what would help, and when the job starts."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime

import click
from msgspec.structs import replace

from hived_cli.helpers.forms import cut, paragraph, terminal_width
from hived_cli.helpers.tables import table
from hived_cli.helpers.waits import (
    GONE,
    SOON,
    UNKNOWN,
    age,
    is_unread,
    listed,
    long_when,
    priority,
    state,
    troubles,
)
from hived_config.reader import printable
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import (
    UNTRIED_CAUSES,
    BadNode,
    Certificate,
    Holder,
    IfResult,
    Job,
    Preempted,
    Unblock,
    When,
    Why,
)
from hived_extender.client.moments import as_minute

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
        lines += _certificate(why.certificate, why.when, now, is_queued=bool(place))
    elif why.job.nodes:
        lines += paragraph(f"on {listed(why.job.nodes, most=16)}")
    if why.job.preempted is not None:
        lines += paragraph(_preempted(why.job.preempted, now))
    if why.when is not None:
        lines += ["", _title("When"), *paragraph(long_when(why.when, now))]
    return "\n".join(lines)


def queued(job: QueuedJob) -> str:
    """The place of a job in its queue, and why it does not start there; of one that runs, how."""
    place = f"in queue {printable(job.queue)}" if job.queue else "in no queue"
    return f"{f'place {job.position} ' if job.position else ''}{place}: {printable(job.reason)}"


def draw_trial(job: Job, changes: Sequence[str], result: IfResult) -> str:
    """Whether a job would start with changes."""
    tried = f"{printable(job.name)} with {' and '.join(map(printable, changes))}"
    if not result.starts:
        lines = [f"{tried} would wait all the same"]
        if result.certificate is not None:
            lines[0] = f"{tried} could never run" if result.certificate.never else lines[0]
            lines += paragraph(printable(result.certificate.sentence))
        return "\n".join(lines)
    lines = [f"{tried} would start at once"]
    if result.nodes:
        lines += paragraph(f"on {listed(result.nodes, most=16)}")
    if result.victims:
        lines += paragraph(f"and these would have to leave: {listed(result.victims, most=16)}")
    return "\n".join(lines)


def _preempted(found: Preempted, now: datetime) -> str:
    by = f" for {printable(found.by)}" if found.by else ""
    return f"preempted at {as_minute(found.at)} ({age(found.at, now)} ago){by}"


def _head(job: Job, now: datetime) -> list[str]:
    facts = [job.asks, f"{job.vc}, {_priority(job)}" if job.vc else _priority(job), job.user and f"of {job.user}"]
    since = f"since {as_minute(job.since)} ({age(job.since, now)})" if job.since and job.state != GONE else ""
    said = "   ".join(printable(each) for each in (*facts, since) if each)
    title = f"{click.style(printable(job.name), bold=True)}   {state(job)}{troubles(job, now)}"
    line, width = f"{title}   {said}", terminal_width()
    return [line] if width is None or len(click.unstyle(line)) <= width else [title, *paragraph(said)]


def _priority(job: Job) -> str:
    if is_unread(job):
        return "priority unknown"
    return "opportunistic" if job.priority < 0 else f"priority {priority(job.priority)}"


def _certificate(found: Certificate, when: When | None, now: datetime, *, is_queued: bool) -> Iterator[str]:
    if found.sentence:
        yield from paragraph(printable(found.sentence))
    causes = " and ".join((found.cause, *found.also))
    yield from paragraph(f"cause: {causes}{_counts(found)}")
    if found.holders and not found.never:  # what can never run waits for nobody
        yield from ["", _title("Held by"), *_indented(_holders(found.holders, now))]
        if found.more_holders:
            yield f"  and {found.more_holders} more"
    if found.bad_nodes:
        yield from ["", _title("Bad nodes"), *_indented(_bad_nodes(found.bad_nodes, now))]
    if found.unblock:
        yield from ["", _title("What would help, each alone"), *_unblocks(found.unblock, is_queued)]
    elif found.cause not in UNTRIED_CAUSES and (when is None or when.kind not in SOON):
        nothing = "no single change that was tried helps; try several together with --if"
        untried = f"no change could be tried: {printable(found.untried)}"
        yield from ["", _title("What would help"), *paragraph(untried if found.untried else nothing)]


def _counts(found: Certificate) -> str:
    """The cells that were counted, and the largest pods."""
    words = [("free", found.free), ("in use", found.in_use), ("in pieces", found.in_pieces), ("bad", found.bad),
             ("refused by Kubernetes", found.refused)]  # fmt: skip
    counted = ", ".join(f"{count} {word}" for word, count in words if count)
    parts = [f"{found.total} {found.level}: {counted or 'none'}"] if found.total else []
    if found.never and found.largest_ever:
        parts.append(f"the largest pod that could ever start has {found.largest_ever}")
    elif found.largest_fit:
        parts.append(f"the largest pod that would start now has {found.largest_fit}")
    return f" ({'; '.join(parts)})" if parts else ""


def _holders(holders: Sequence[Holder], now: datetime) -> str:
    is_limited = any(one.until for one in holders)
    rows = [
        [
            printable(one.group) + (" (lent)" if one.is_lent else "") + (" (leaving)" if one.is_leaving else ""),
            printable(one.vc) or UNKNOWN,
            priority(one.priority),
            str(one.cells) if one.cells else UNKNOWN,
            listed(one.nodes) or UNKNOWN,
            age(one.since, now),
            *([as_minute(one.until) or UNKNOWN] if is_limited else []),
        ]
        for one in holders
    ]
    until = ["UNTIL AT THE LATEST"] if is_limited else []
    return table(["GROUP", "VC", ">PRIORITY", ">GPUS", "NODES", ">FOR", *until], rows)


def _bad_nodes(nodes: Sequence[BadNode], now: datetime) -> str:
    rows = [[printable(one.node), printable(one.reason) or UNKNOWN, age(one.since, now)] for one in nodes]
    return table(["NODE", "REASON", ">FOR"], rows)


def _unblocks(unblocks: Sequence[Unblock], is_queued: bool) -> Iterator[str]:
    """Each change, and below it the option that tries it."""
    for one in unblocks:
        yield from paragraph(printable(one.text))
        yield f"    --if {_quoted(one.change)}"
    kinds = {one.change.partition("=")[0] for one in unblocks}
    ways = []
    if not kinds.isdisjoint(_OF_THE_JOB):
        again = "delete the job and submit it again with the change, such as hived submit --priority N"
        ways.append("delete the job with kubectl, change it, and apply it again" if is_queued else again)
    if "ends" in kinds:
        ways.append("to end another job, hived delete it")
    if "cells" in kinds:
        ways.append("for cells=, hived config set-vc or hived config move")
    if ways:
        yield from paragraph(f"how: {'; '.join(ways)}")


def _quoted(change: str) -> str:
    """A change as an argument for a shell."""
    return shlex.quote(printable(change))


def _title(text: str) -> str:
    return click.style(text, bold=True)


def _indented(text: str) -> list[str]:
    """The lines of a table, cut where a terminal ends."""
    lines, width = [f"  {line}" for line in text.splitlines()], terminal_width()
    return lines if width is None else [cut(line, width) for line in lines]
