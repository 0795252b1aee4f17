"""Any table with names of columns that say when a job was submitted, how long it ran, and how many GPUs it had.

Lengths may be numbers, or clocks such as `1-02:03:04`. Venus excerpts (`job_id, arrival_s, service_sec, gpu_count`) are
such tables, and those that `hived trace convert --to csv` writes.
"""

import re

from hived.errors import UserError
from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_traces.draft import Draft
from hived_traces.fields import (
    NOTHING,
    Unusable,
    count,
    duration,
    moment,
    number,
    packed,
    positive_span,
    rounded_up,
    spread,
)  # fmt: skip
from hived_traces.formats.columns import (
    NEEDED,
    SYNONYMS,
    Column,
    Columns,
    columns_found,
    delimiter_of,
    explained,
)  # fmt: skip
from hived_traces.formats.format import Format
from hived_traces.formats.slurm import elapsed
from hived_traces.jobs import Job, Pods
from hived_traces.shapes import from_text
from hived_traces.sources import Source
from hived_traces.tables import Fields, Table, columns_of

MICROSECONDS = 6
"""Decimals of seconds."""
_DAYS = re.compile(r" days?,? *")


def _recognises(head: str) -> bool:
    return bool(delimiter_of(head))


def _read(source: Source, draft: Draft) -> None:
    chosen = draft.options.columns
    delimiter = delimiter_of(source.head, chosen)
    if not delimiter:
        found = explained(source.head, chosen) or f"found the columns {', '.join(columns_of(source.head)[:12])}"
        raise UserError(f"{source.name}:1: {found}; expected {NEEDED}")
    table = Table(source, draft, (), delimiter)
    columns = dict(columns_found(source.head, delimiter, chosen))
    if tenant := table.tenant_column(columns["tenant"].name if "tenant" in columns else ""):
        columns["tenant"] = Column(tenant)
    names = {what: column.name for what, column in columns.items()}
    draft.note("columns: " + ", ".join(f"{what} from {column.name}{_told(column)}" for what, column in columns.items()))
    if not {"pods", "nodes"} & names.keys():
        draft.note_shapes()

    def to_job(fields: Fields) -> Job:
        submitted, ran, gpus, name, tenant, user, start, end, leaf_type, status, priority, pods, nodes = fields
        started = None if start in NOTHING else _moment(start, columns["started"], draft)
        return Job(
            name or f"job-{draft.line - 1:07d}",
            tenant,
            _moment(submitted, columns["submitted"], draft),
            _seconds(ran, started, end, columns, draft),
            _shape(gpus, pods, nodes, draft),
            user=user,
            started_s=started,
            leaf_type="" if leaf_type in NOTHING else leaf_type,
            priority=_priority(priority, draft),
            status=status,
        )

    for text in chosen:
        if (name := text.partition("=")[2].strip().lower()) not in table.columns:
            raise UserError(f"{source.name}:1: --column {text}: there is no column {name!r}")
    draft.take(table.rows(*(names.get(what, "") for what in SYNONYMS)), to_job)


def _told(column: Column) -> str:
    return "" if column.unit_s in (None, 1.0) else f" (times {column.unit_s:g} s)"


def _moment(text: str, column: Column, draft: Draft) -> float:
    """A time; a number is of the unit that its column's name tells. Raises Unusable."""
    if column.unit_s is None or text[4:5] == "-":
        return moment(text, column.name, draft.zone)
    return round(number(text, column.name) * column.unit_s, MICROSECONDS)


def _seconds(ran: str, started: float | None, end: str, columns: Columns, draft: Draft) -> float:
    if ran not in NOTHING:
        column = columns["duration"]
        if ":" in ran:
            return positive_span(elapsed(_DAYS.sub("-", ran)), column.name)
        ran_s = duration(ran, column.name)
        return ran_s if column.unit_s is None else round(ran_s * column.unit_s, MICROSECONDS)
    if started is None:
        raise Unusable("never ran")
    if end in NOTHING:
        raise Unusable("has no end: still ran, or was lost")
    return positive_span(round(_moment(end, columns["ended"], draft) - started, MICROSECONDS), "end - start")


def _priority(text: str, draft: Draft) -> int | None:
    """A priority of hived: other schedulers' numbers mean something else."""
    if text in NOTHING:
        return None
    value = number(text, "priority")
    if value in range(OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY + 1):
        return int(value)
    draft.remark("jobs whose priority is none of -1 to 1000, not kept")
    return None


def _shape(gpus: str, pods: str, nodes: str, draft: Draft) -> tuple[Pods, ...]:
    if pods:
        return from_text(pods)
    leaves = rounded_up(gpus, "GPUs", 1.0)
    if leaves != number(gpus, "GPUs"):
        draft.remark("jobs that ask for a part of a GPU, rounded up to a whole one")
    if nodes not in NOTHING:
        return spread(leaves, count(nodes, "nodes"))
    return packed(leaves, draft.options.node_leaf_cells)


FORMAT = Format("table", "any table with columns for submission, duration and GPUs", _recognises, _read)
