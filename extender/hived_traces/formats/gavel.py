"""Gavel's traces: tab-separated lines without names of columns, of which there have been several layouts.

A line tells steps and no seconds. They are divided by the steps that such a job makes in a second: by gavel's own file
of throughputs, by a number for all jobs, or by a guess, which the notes say. Shockwave's layout has a duration.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from hived.errors import UserError
from hived_traces.draft import Draft
from hived_traces.fields import Unusable, count, duration, moment, number, packed, positive_span
from hived_traces.formats.format import Format
from hived_traces.jobs import Job
from hived_traces.sources import Source
from hived_traces.tables import Fields, Table, first_line

LAYOUTS = {
    6: ("job_type", "command", "num_steps_arg", "total_steps", "arrival_s", "scale_factor"),
    7: ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_s", "scale_factor"),
    9: (
        "job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor", "priority_weight",
        "slo", "arrival_s",
    ),
    10: (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "priority_weight", "slo", "arrival_s",
    ),
    11: (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "mode", "priority_weight", "slo", "arrival_s",
    ),
    12: (
        "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "mode", "priority_weight", "slo", "duration", "arrival_s",
    ),
}  # fmt: skip
"""Columns by their number."""
GUESSED_STEPS_PER_S = 10.0
WORKER_TYPE = "v100"
"""Whose throughputs are taken, where a file has several types of GPU."""

_KEY = re.compile(r"\('(?P<type>[^']*)', (?P<scale>\d+)\)")

Rates = dict[tuple[str, int], float]


def _recognises(head: str) -> bool:
    first = first_line(head).split("\t")
    layout = LAYOUTS.get(len(first))
    if layout is None:
        return False
    if _has_names(first):
        return True
    row = dict(zip(layout, first, strict=True))
    return all(re.fullmatch(r"\d+(\.\d*)?", row[name]) for name in ("total_steps", "arrival_s", "scale_factor"))


def _has_names(first: Fields) -> bool:
    return first[0].lower() == "job_type"


def _read(source: Source, draft: Draft) -> None:
    first = first_line(source.head).split("\t")
    layout = LAYOUTS.get(len(first))
    if layout is None:
        known = ", ".join(map(str, LAYOUTS))
        raise UserError(f"{source.name}:1: found {len(first)} fields between tabs; a trace of gavel has {known}")
    rate_of = _rates(draft) if "duration" not in layout else None
    draft.note_shapes()
    draft.note("tenants are not given")

    def to_job(fields: Fields) -> Job:
        kind, steps, scale, arrival, said, tenant = fields
        leaves = count(scale, "scale_factor")
        if rate_of is None:
            ran = duration(said)
        else:
            ran = positive_span(number(steps, "total_steps") / rate_of(kind, leaves), "total_steps")
        return Job(
            f"job-{draft.line:07d}",
            tenant,
            moment(arrival, "arrival_s", draft.zone),
            ran,
            packed(leaves, draft.options.node_leaf_cells),
        )

    table = Table(source, draft, (), "\t", () if _has_names(first) else layout)
    if "arrival_time" in table.columns:
        table.columns["arrival_s"] = table.columns["arrival_time"]
    draft.take(
        table.rows("job_type", "total_steps", "scale_factor", "arrival_s", "duration", table.tenant_column("")), to_job
    )


def _rates(draft: Draft) -> Callable[[str, int], float]:
    """A function from type and GPUs of a job to its steps in a second."""
    options = draft.options
    known = read_throughputs(options.throughputs) if options.throughputs else {}
    general = options.steps_per_s

    def rate_of(kind: str, leaves: int) -> float:
        if rate := known.get((kind, leaves)) or known.get((kind, 1), 0.0) * leaves:
            return rate
        if known:
            raise Unusable("no throughput is known of the job's type", "job_type", kind)
        return general or GUESSED_STEPS_PER_S

    if known:
        draft.note(f"durations: steps by the throughputs of {options.throughputs}, alone on a {WORKER_TYPE}")
    elif general:
        draft.note(f"durations: steps by {general:g} in a second for all jobs")
    else:
        draft.note(
            f"durations are GUESSED: steps by {GUESSED_STEPS_PER_S:g} in a second for all jobs; give gavel's file of "
            "throughputs, or a number"
        )
    return rate_of


def read_throughputs(path: str) -> Rates:
    """Steps in a second by type of job and number of GPUs, from gavel's file. Raises UserError if it is none."""
    source = Source(path)
    try:
        found = msgspec.json.decode(source.whole(), type=dict[str, dict[str, dict[str, Any]]])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"{path}: expected gavel's throughputs, by GPU and type of job: {error}") from None
    finally:
        source.close()
    rates: Rates = {}
    for key, row in (found.get(WORKER_TYPE) or next(iter(found.values()), {})).items():
        alone = row.get("null")
        if (match := _KEY.fullmatch(key)) and isinstance(alone, int | float) and alone > 0:
            rates[match["type"], int(match["scale"])] = float(alone)
    if not rates:
        raise UserError(f"{path}: has no throughput of a job that is alone; expected keys such as \"('A3C', 1)\"")
    return rates


FORMAT = Format("gavel", "Gavel and Shockwave, tab-separated", _recognises, _read)
