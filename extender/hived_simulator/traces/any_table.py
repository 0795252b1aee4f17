"""Tables of which a row is a job: one reader, which is told the column of each property by a `Layout` or by its name.

`Submit Time`, `submitTime` and `submit_time` are one name. A last word that is a unit, as in `arrival_ms` or `duration
(hours)`, says the unit of a time. Lengths may be numbers, or clocks such as `1-02:03:04`. Venus excerpts (`job_id,
arrival_s, service_sec, gpu_count`) are such tables, and those that `hived trace convert --to csv` writes.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hived.values.errors import UserError
from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_simulator.traces.draft import Draft
from hived_simulator.traces.fields import (
    NOTHING,
    Unusable,
    count,
    duration,
    from_text,
    moment,
    number,
    packed,
    positive_span,
    rounded_up,
    spread,
)
from hived_simulator.traces.files import Fields, Format, Source, Table, columns_of, first_line, has_columns
from hived_simulator.traces.jobs import Job, Pods
from hived_simulator.traces.slurm import elapsed

DELIMITERS = ",\t;|"
SYNONYMS = {
    "submitted": (
        "submitted", "submit_time", "submitted_time", "submission_time", "arrival", "arrival_time", "submit",
        "submitted_at", "submit_ts", "submit_timestamp", "submission", "arrival_ts", "arrive_time", "timestamp",
        "creation_time", "create_time", "created", "created_at", "time",
    ),
    "duration": (
        "duration", "service", "service_time", "runtime", "run_time", "elapsed", "elapsed_time", "job_duration",
        "execution_time", "exec_time", "processing_time",
    ),
    "gpus": (
        "gpus", "num_gpus", "gpu_num", "gpu_count", "num_gpu", "n_gpus", "n_gpu", "gpu_request", "gpus_requested",
        "requested_gpus", "req_gpus", "gpu_req", "gpu_demand", "number_of_gpus", "total_gpus", "allocated_gpus",
        "gpus_allocated", "alloc_gpus", "gpu", "leaf_cells", "num_replicas",
    ),
    "name": ("name", "job_id", "job_name", "job", "id", "instance_sn"),
    "tenant": (
        "tenant", "vc", "virtual_cluster", "cluster", "organization", "account", "project", "team", "group",
        "namespace", "tenant_id", "vc_id", "vc_name", "team_id", "project_id", "department", "queue_name", "app_name",
    ),
    "user": ("user", "user_name", "user_id", "owner"),
    "started": ("started", "start_time", "start", "started_at", "scheduled_time", "begin_time"),
    "ended": (
        "ended", "end_time", "end", "ended_at", "finish_time", "finished_at", "deletion_time", "completed",
        "completed_at", "completion_time",
    ),
    "leaf_type": ("leaf_type", "gpu_type", "gpu_model"),
    "status": ("status", "state"),
    "priority": ("priority",),
    "pods": ("pods",),
    "nodes": ("nodes", "node_num", "num_nodes", "n_nodes", "node_count"),
}  # fmt: skip
"""Names of columns for each property of a job; the first one that a table has counts."""
UNITS_S = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "msec": 1e-3, "millis": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0,
    "secs": 1.0, "seconds": 1.0, "min": 60.0, "mins": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0,
    "hours": 3600.0, "d": 86_400.0, "days": 86_400.0,
}  # fmt: skip
"""Seconds of units that a column's name may end with."""
TIMES = frozenset(("submitted", "duration", "started", "ended"))
NEEDED = "one for each of submission, duration (or start and end) and GPUs, such as submit_time, duration, gpus"

PROPERTIES = (*SYNONYMS, "workers", "milli")
"""All properties of a row: pods of `gpus` GPUs each, and thousandths of a GPU, are in published tables alone."""
MICROSECONDS = 6
"""Decimals of seconds."""

_WORD = re.compile(r"[A-Z]*[a-z]+|[A-Z]+|\d+")
_DAYS = re.compile(r" days?,? *")


class Column(NamedTuple):
    """A column by its name in lower case; `unit_s` are seconds of its unit, None if its name tells none."""

    name: str
    unit_s: float | None = None


Columns = Mapping[str, Column]
"""The column for each property that a table has."""


def columns_found(head: str, delimiter: str, chosen: Sequence[str] = ()) -> Columns:
    """The columns of a text's first line.

    chosen : PROPERTY=COLUMN texts of a user, which go before names that are known

    Raises UserError for a choice that names no property, or names one twice; of a column that is missing, nothing is
    said yet.
    """
    written = _names(head, delimiter)
    wishes = _wishes(chosen)
    found: dict[str, Column] = {}
    for what, names in SYNONYMS.items():
        if what in wishes:
            name = next((name for name in written if name.lower() == wishes[what].lower()), None)
            if name is not None:
                found[what] = Column(name.lower(), _unit(name) if what in TIMES else None)
        elif (column := _known(what, names, written)) is not None:
            found[what] = column
    return found


def delimiter_of(head: str, chosen: Sequence[str] = ()) -> str:
    """The separator by which the first line names all that is needed; "" if there is none."""
    return next((each for each in DELIMITERS if not lacking(columns_found(head, each, chosen))), "")


def lacking(found: Iterable[str]) -> list[str]:
    """The properties for which a table needs a column that it has not."""
    has = set(found)
    checks = {
        "submitted": "submitted" in has,
        "duration": "duration" in has or {"started", "ended"} <= has,
        "gpus": bool(has & {"gpus", "pods"}),
    }
    return [what for what, is_there in checks.items() if not is_there]


def explained(head: str, chosen: Sequence[str] = ()) -> str:
    """The columns that a table lacks, and how to name them; "" if the first line hardly names a known column."""
    delimiter = max(DELIMITERS, key=lambda each: len(columns_found(head, each, chosen)))
    found = columns_found(head, delimiter, chosen)
    if len(found) < 2:
        return ""
    written, missing = _names(head, delimiter), lacking(found)
    names = ", ".join(written[:20])
    has = {name.lower() for name in written}
    for what, name in _wishes(chosen).items():
        if name.lower() not in has:
            return f"--column {what}={name}: there is no column {name!r}, only {names[:500]}"
    spare = [each for each in written if each.lower() not in {column.name for column in found.values()}]
    moments = ", or a duration with --column started=COLUMN --column ended=COLUMN" if "duration" in missing else ""
    unread = f"; not read yet: {', '.join(spare[:20])[:500]}" if spare else ""
    return (
        f"a table with the columns {names[:500]} lacks one for {' and '.join(missing)}; name it with "
        f"{' '.join(f'--column {what}=COLUMN' for what in missing)} of `hived trace convert`"
        f"{moments}{unread}"
    )


def _names(head: str, delimiter: str) -> list[str]:
    return [name.strip().strip('"').strip() for name in first_line(head).split(delimiter)]


def _wishes(chosen: Sequence[str]) -> dict[str, str]:
    wishes: dict[str, str] = {}
    for what, name in map(_wish, chosen):
        if what in wishes:
            raise UserError(f"--column {what}={name}: {what} is {wishes[what]} already; expected one column for each")
        wishes[what] = name
    return wishes


def _wish(text: str) -> tuple[str, str]:
    what, is_given, name = text.partition("=")
    if not is_given or what not in SYNONYMS:
        raise UserError(f"--column {text!r}: expected PROPERTY=COLUMN, where PROPERTY is one of {', '.join(SYNONYMS)}")
    return what, name.strip()


def _known(what: str, names: Sequence[str], written: Fields) -> Column | None:
    """The column of which the property is known by name, the first in the order of `names`."""
    for known in names:
        key = known.replace("_", "")
        for name in written:
            words = _words(name)
            if "".join(words) == key:
                return Column(name.lower())
            if what in TIMES and len(words) > 1 and words[-1] in UNITS_S and "".join(words[:-1]) == key:
                return Column(name.lower(), UNITS_S[words[-1]])
    return None


def _unit(name: str) -> float | None:
    words = _words(name)
    return UNITS_S.get(words[-1]) if len(words) > 1 else None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


class Layout(NamedTuple):
    """A published table as data.

    needs, marks : the columns that it must have, and further ones by which it is recognised
    columns : the column of each property; of several names the first one that the table has
    notes : said of every trace; `no_tenants` only if the user names no column for them
    priorities : by the text of that column in lower case, `*` for all others; None where the format tells none
    trusts_ends : seconds are those from start to end, and a duration counts only where one of these is missing
    is_one_pod : a job is one pod, of however many GPUs
    """

    name: str
    title: str
    needs: tuple[str, ...]
    columns: Mapping[str, str | tuple[str, ...]]
    marks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    no_tenants: str = ""
    priorities: Mapping[str, int | None] | None = None
    is_zoneless: bool = False
    is_one_pod: bool = False
    trusts_ends: bool = False
    tells_last_end: bool = False

    @property
    def format(self) -> Format:
        """Its reader."""
        return Format(self.name, self.title, self._recognises, self._read)

    def _recognises(self, head: str) -> bool:
        return has_columns(head, (*self.needs, *self.marks))

    def _read(self, source: Source, draft: Draft) -> None:
        table = Table(source, draft, self.needs)
        columns = {what: Column(self._found(names, table)) for what, names in self.columns.items()}
        usual = columns["tenant"].name if "tenant" in columns else ""
        columns["tenant"] = Column(table.tenant_column(usual))
        read_rows(table.rows(*_in_order(columns)), columns, self, draft)

    def _found(self, names: str | tuple[str, ...], table: Table) -> str:
        known = (names,) if isinstance(names, str) else names
        return next((name for name in known if name in table.columns), known[0])


def read_rows(rows: Iterable[Fields], columns: Columns, layout: Layout, draft: Draft) -> None:
    """Add the job of each row, whose fields stand in the order of PROPERTIES, "" where the table has none."""
    if not {"pods", "nodes", "workers"} & columns.keys() and not layout.is_one_pod:
        draft.note_shapes()
    if layout.is_zoneless:
        draft.note_zone()
    for note in layout.notes:
        draft.note(note)
    if layout.no_tenants and not draft.options.tenant_column:
        draft.note(layout.no_tenants)
    ends = Counter[float]()

    def to_job(fields: Fields) -> Job:
        row = dict(zip(PROPERTIES, fields, strict=True))
        submitted = _moment(row["submitted"], columns["submitted"], draft)
        pods = _shape(row, columns, layout, draft)
        started = None if row["started"] in NOTHING else _moment(row["started"], columns["started"], draft)
        ran = _seconds(row, started, columns, layout, draft)
        types = [] if row["leaf_type"] in NOTHING else row["leaf_type"].split("|")
        if len(types) > 1:
            draft.remark("jobs that allow several models of GPU, read as any")
        if started is not None:
            ends[started + ran] += 1
        return Job(
            row["name"] or f"job-{draft.line - 1:07d}",
            row["tenant"],
            submitted,
            ran,
            pods,
            user=row["user"],
            started_s=started,
            leaf_type=types[0] if len(types) == 1 else "",
            priority=_priority(row["priority"], layout, draft),
            status=row["status"],
        )

    draft.take(rows, to_job)
    if layout.tells_last_end and ends:
        draft.remark("jobs that end with the trace; some of them ran on", ends[max(ends)])


def _in_order(columns: Columns) -> list[str]:
    return [columns[what].name if what in columns else "" for what in PROPERTIES]


def _moment(text: str, column: Column, draft: Draft) -> float:
    """A time; a number is of the unit that its column's name tells. Raises Unusable."""
    if column.unit_s is None or text[4:5] == "-":
        return moment(text, column.name, draft.zone)
    return round(number(text, column.name) * column.unit_s, MICROSECONDS)


def _seconds(row: dict[str, str], started: float | None, columns: Columns, layout: Layout, draft: Draft) -> float:
    said, end = row["duration"], row["ended"]
    is_told = started is not None and end not in NOTHING
    if "ended" not in columns or (said not in NOTHING and not (layout.trusts_ends and is_told)):
        if layout.trusts_ends and started is None:
            raise Unusable("never ran")
        if layout.trusts_ends:
            draft.remark("jobs without an end, whose duration is taken as given")
        return _length(said, columns["duration"])
    if started is None:
        raise Unusable("never ran")
    if end in NOTHING:
        raise Unusable("has no end: still ran, or was lost")
    name = f"{columns['ended'].name} - {columns['started'].name}"
    ran = positive_span(round(_moment(end, columns["ended"], draft) - started, MICROSECONDS), name)
    if said not in NOTHING and abs(_length(said, columns["duration"]) - ran) > 1:
        draft.remark("jobs whose duration is not that from start to end, which is taken")
    return ran


def _length(text: str, column: Column) -> float:
    if ":" in text:
        return positive_span(elapsed(_DAYS.sub("-", text)), column.name)
    length_s = duration(text, column.name)
    return length_s if column.unit_s is None else round(length_s * column.unit_s, MICROSECONDS)


def _priority(text: str, layout: Layout, draft: Draft) -> int | None:
    """A priority of hived: other schedulers' numbers mean something else."""
    if layout.priorities is not None:
        return layout.priorities.get(text.lower(), layout.priorities.get("*"))
    if text in NOTHING:
        return None
    value = number(text, "priority")
    if value in range(OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY + 1):
        return int(value)
    draft.remark("jobs whose priority is none of -1 to 1000, not kept")
    return None


def _shape(row: dict[str, str], columns: Columns, layout: Layout, draft: Draft) -> tuple[Pods, ...]:
    if row["pods"]:
        return from_text(row["pods"])
    name = columns["gpus"].name if "gpus" in columns else "gpus"
    leaves = rounded_up(row["gpus"], name, 1.0)
    if not leaves:
        raise Unusable("asks for no GPU")
    is_part = leaves == 1 and row["milli"] not in NOTHING and number(row["milli"], columns["milli"].name) < 1000
    if is_part or leaves != number(row["gpus"], name):
        draft.remark("jobs that ask for a part of a GPU, rounded up to a whole one")
    if "workers" in columns:
        workers = count(row["workers"], columns["workers"].name)
        if not workers:
            raise Unusable("has no worker", columns["workers"].name, row["workers"])
        return (Pods(workers, leaves),)
    if layout.is_one_pod:
        return (Pods(1, leaves),)
    if row["nodes"] not in NOTHING:
        return spread(leaves, count(row["nodes"], columns["nodes"].name))
    return packed(leaves, draft.options.node_leaf_cells)


ANY = Layout("table", "any table with columns for submission, duration and GPUs", (), {})


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
    draft.note("columns: " + ", ".join(f"{what} from {column.name}{_told(column)}" for what, column in columns.items()))
    for text in chosen:
        if (name := text.partition("=")[2].strip().lower()) not in table.columns:
            raise UserError(f"{source.name}:1: --column {text}: there is no column {name!r}")
    read_rows(table.rows(*_in_order(columns)), columns, ANY, draft)


def _told(column: Column) -> str:
    return "" if column.unit_s in (None, 1.0) else f" (times {column.unit_s:g} s)"


FORMAT = Format(ANY.name, ANY.title, _recognises, _read)
