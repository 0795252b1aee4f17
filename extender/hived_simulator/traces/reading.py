"""A file of any known format, read as a trace."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_simulator.traces import any_table, kubernetes, own, published, record, slurm
from hived_simulator.traces.any_table import explained
from hived_simulator.traces.draft import Draft, Options, shown
from hived_simulator.traces.files import Format, Source
from hived_simulator.traces.jobs import Trace

FORMATS: tuple[Format, ...] = (
    *published.FORMATS,
    slurm.FORMAT,
    published.OPENPAI,
    kubernetes.PROMETHEUS,
    kubernetes.KUBERNETES,
    record.FORMAT,
    any_table.FORMAT,
)
"""All formats but our own, in the order in which a file is tried: the particular ones first."""
NAMES = (own.NAME, *(each.name for each in FORMATS))
"""Formats by name, in the order in which a file is tried."""


def read_trace(path: str | Path, name_of_format: str = "", options: Options | None = None) -> Trace:
    """Read the trace in a file; `-` is standard input.

    `name_of_format` is one of NAMES; without it, the text decides. Rows that are no jobs are left out, and counted in
    the trace's notes. Raises UserError with file, line and field if the format is not recognised, the file is
    broken, or no row can be used. Cost: one to two seconds for 100,000 jobs.
    """
    return read_with_format(path, name_of_format, options)[1]


def read_with_format(
    path: str | Path,
    name_of_format: str = "",
    options: Options | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[str, Trace]:
    """The same, with the name of the format; `progress` is told the number of rows from time to time."""
    chosen = options or Options()
    if chosen.columns and name_of_format not in ("", any_table.FORMAT.name):
        raise UserError(f"--column is for --format {any_table.FORMAT.name}, not for {name_of_format}")
    source = Source(path)
    try:
        name = name_of_format or (any_table.FORMAT.name if chosen.columns else recognised(source))
        if name == own.NAME:
            return name, _with_tenants(own.read(source), chosen.tenant_column, source.name)
        draft = Draft(source.name, chosen, progress)
        format_of(name).read(source, draft)
        return name, draft.finish(trace_name(source))
    finally:
        source.close()


def _with_tenants(trace: Trace, column: str, name: str) -> Trace:
    """A trace of ours, of which users may stand for the tenants. Raises UserError for other wishes."""
    if column in ("", "tenant"):
        return trace
    if column != "user":
        raise UserError(f"{name}: tenants cannot be taken from {shown(column)}; expected tenant or user")
    return replace(trace, jobs=tuple(replace(job, tenant=job.user) for job in trace.jobs))


def recognised(source: Source) -> str:
    """The name of the format of a source. Raises UserError if it is none that we know."""
    if own.recognises(source.head):
        return own.NAME
    for each in FORMATS:
        if each.recognises(source.head):
            return each.name
    if said := published.other_table(source.head) or explained(source.head):
        raise UserError(f"{source.name}:1: {said}")
    first = source.head.split("\n", 1)[0]
    raise UserError(
        f"{source.name}:1: the format is not recognised, the text begins with {shown(first)}; expected one of "
        f"{', '.join(NAMES)}; if it is one of them, name it with --format"
    )


def format_of(name: str) -> Format:
    """The format of this name. Raises UserError if there is none."""
    for each in FORMATS:
        if each.name == name:
            return each
    raise UserError(f"format {shown(name)}: is unknown; expected one of {', '.join(NAMES)}")


def trace_name(source: Source) -> str:
    """The file's name without what says how it is packed and written."""
    return "stdin" if source.path is None else source.path.name.split(".")[0] or source.path.name
