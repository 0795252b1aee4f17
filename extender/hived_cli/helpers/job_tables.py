"""Tables of jobs, each with the reason why it waits: beside the job, or below it where a terminal is narrow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import click

from hived_cli.helpers.forms import cut, paragraph, terminal_width
from hived_cli.helpers.tables import GAP, table
from hived_cli.helpers.waits import UNKNOWN, age, is_unread, listed, place, priority, reason, start, state
from hived_config.reader import printable
from hived_extender.api.waiting import Job

ROOM_FOR_REASON = 40
"""Columns that reasons have at least beside the jobs; with fewer they stand below."""

_WIDE = ("USER", ">PRIORITY", "NODES")

_Columns = Mapping[str, Callable[[Job], str]]


def job_table(jobs: Sequence[Job], now: datetime, *, title: str = "JOB", is_wide: bool = False) -> str:
    """A row for each job. Lines fit the terminal, unless the table `is_wide`: then it has all columns."""
    columns: _Columns = {
        title: lambda job: printable(job.name),
        "VC": lambda job: printable(job.vc) or UNKNOWN,
        "USER": lambda job: printable(job.user) or UNKNOWN,
        ">PRIORITY": lambda job: UNKNOWN if is_unread(job) else priority(job.priority),
        "STATE": state,
        ">AGE": lambda job: age(job.since, now),
        "ASKS": lambda job: job.asks or UNKNOWN,
        "WHEN": lambda job: start(job, now),
        "NODES": lambda job: listed(job.nodes, most=len(job.nodes)) or UNKNOWN,
        "REASON": reason,
    }
    if is_wide:
        return _table(columns, jobs)
    columns = _without(columns, *_WIDE)
    whole, width = _table(columns, jobs), terminal_width()
    if width is None:
        return whole
    before = _width(_table(_without(columns, "REASON"), jobs))
    if _width(whole) <= width or before + len(GAP) + ROOM_FOR_REASON <= width:
        lines = [cut(line, width) for line in whole.splitlines()]
    else:
        lines = [*_with_reasons_below(_without(columns, "ASKS", "REASON"), jobs, width)]
    return "\n".join(lines)


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
