"""Waiting jobs as text: states, ages, and when a job starts. A time is never shown without its kind."""

from datetime import datetime

import click

from hived_config.reader import printable
from hived_extender.api.waiting import Job, When
from hived_extender.client.moments import as_minute, duration, seconds_since

UNKNOWN = "-"

STATE_COLORS = {"Waiting": "yellow", "Preempting": "yellow", "Starting": "cyan", "Running": "green", "Leaving": "red",
                "Preempted": "red", "Held": "yellow", "Refused": "red"}  # fmt: skip

WAITING_STATES = ("Waiting", "Preempting", "Held", "Refused")
"""States of jobs that have no cells yet."""

GONE = "Preempted"
"""The state of jobs that had to leave, and have no pods any more."""

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
    """Why a job waits, without what it asks for, which stands in a column of its own; the troubles of one that runs."""
    said = printable(job.sentence.removeprefix(f"needs {job.asks}; ")) or job.cause
    return f"{place(job)}: {said}" if job.place else said


def troubles(job: Job, now: datetime) -> str:
    """The troubles of a job that runs, after its state: `, node n1 NotReady for 24s, opportunistic since version 7`."""
    nodes = [
        f", node {printable(one.node)} {printable(one.reason)}" + (f" for {age(one.since, now)}" if one.since else "")
        for one in job.bad_nodes[:NAMED_NODES]
    ]
    more = len(job.bad_nodes) - NAMED_NODES
    others = f", {more} more nodes cannot be used" if more > 0 else ""
    return "".join(nodes) + others + (f", opportunistic {printable(job.demoted)}" if job.demoted else "")


def place(job: Job) -> str:
    """The place of a job in its queue."""
    return f"place {job.place} in queue {printable(job.queue)}"


def age(since: str, now: datetime) -> str:
    """The time since a moment, "-" if that is not known."""
    seconds = seconds_since(since, now)
    return UNKNOWN if seconds is None else duration(seconds)


def priority(number: int) -> str:
    """A priority as people call it."""
    return "opportunistic" if number < 0 else str(number)


def listed(names: list[str], most: int = 4) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most + 1 else ""
    return ", ".join(map(printable, names[: most if more else None])) + more


def brief_when(when: When | None, now: datetime) -> str:
    """When a job starts, in a few words, with the kind of the answer; "-" if nothing is said."""
    if when is None:
        return UNKNOWN
    match when.kind:
        case "certain" | "bounded":
            return f"{_within(when.by, now)} ({when.kind})"
        case "estimated":
            parts = dict.fromkeys((_within(when.likely, now, "about"), _within(when.by, now)))
            return f"{', '.join(parts)} (estimated)"
        case _:
            return when.kind


def is_unread(job: Job) -> bool:
    """Is there a mistake in a job, so that nobody knows its virtual cluster and priority?"""
    return not job.vc and job.state in ("Refused", "Waiting")


def start(job: Job, now: datetime) -> str:
    """When a job of a list starts; "-" for one that has its cells."""
    return PENDING if job.when is None and job.state in WAITING_STATES else brief_when(job.when, now)


def long_when(when: When, now: datetime) -> str:
    """When a job starts, in a sentence or two, with the kind of the answer and its place in the order."""
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
        case _:
            text = when.kind
    if when.because:
        text += f"; {printable(when.because)}"
    if when.position:
        text += f" ({_ordinal(when.position)} in the order of its virtual cluster)"
    return text


def _within(moment: str, now: datetime, word: str = "within") -> str:
    """How long it is until a moment. One that is over is no promise of "0s": lists are some seconds old, and a job may
    be late.
    """
    seconds = seconds_since(moment, now)
    if seconds is None:
        return f"{word} a time not known"
    return "any moment" if seconds >= 0 else f"{word} {duration(-seconds)}"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else _ORDINALS.get(number % 10, "th")
    return f"{number}{suffix}"
