"""`hived trace`: figures of traces, other forms of them, and other traces of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hived_cli.helpers.answers import FiniteRange, as_json
from hived_cli.helpers.lazy import CommandGroup
from hived_cli.helpers.tables import table
from hived_cli.helpers.traces import (
    Duration,
    moment_in,
    named_trace_of,
    output_option,
    reads_trace,
    trace_of,
    write_trace,
)
from hived_config.words import counted
from hived_simulator.traces.changing import between, first_part, fold, of_tenants, size, some, speed, to_load
from hived_simulator.traces.describing import Description, Spread, TenantRow, describe
from hived_simulator.traces.writing import WRITERS


@click.group(cls=CommandGroup)
def command() -> None:
    """Describe, convert, cut and scale traces of jobs.

    \b
    Examples:
      hived trace describe philly.csv.gz --gpus 2496
      hived trace convert cluster_log.csv --to hived -o venus.jsonl.gz
      hived trace sample philly.csv.gz --from 2017-10-16 --for 13d -o weeks.jsonl
      hived trace scale weeks.jsonl --fold 1.5d -o folded.jsonl
    """


SHOWN_TENANTS = 30
SHOWN_SIZES = 6


@command.command("describe")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="Show the load on so many GPUs, too.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, with all tenants and sizes.")
@reads_trace
def describe_command(*, file: str, gpus: int | None, is_json: bool, **reading: Any) -> None:
    """Show what a trace is like: span, tenants, sizes, durations, load, and what was left out.

    FILE may be packed; - is standard input. The load is what jobs ask for while they arrive, as a share of what the
    GPUs can do. Percentiles are values of single jobs.

    \b
    Examples:
      hived trace describe philly.csv.gz --gpus 2496
      hived trace describe cluster_log.csv --json
      kubectl get pods -A -o json | hived trace describe -
    """
    name, trace = named_trace_of(file, reading)
    found = describe(trace, name, gpus or 0)
    if is_json:
        click.echo(as_json(found))
        return
    for paragraph in _paragraphs(found):
        click.echo(paragraph)


def _paragraphs(found: Description) -> Iterator[str]:
    yield "\n".join(f"{name:<12} {text}" for name, text in _facts(found))
    yield ""
    headers = ("TENANT", ">JOBS", ">GPU-HOURS", ">SHARE", "JOBS BY GPUS")
    rows = [_tenant(row) for row in found.tenants[:SHOWN_TENANTS]]
    yield table(headers, rows)
    if (more := len(found.tenants) - SHOWN_TENANTS) > 0:
        yield f"and {more} more, see --json"
    yield ""
    sizes = [(f"{row.gpus}", f"{row.jobs:,}", f"{row.gpu_hours:,.0f}") for row in found.sizes]
    yield table((">GPUS", ">JOBS", ">GPU-HOURS"), sizes)
    yield ""
    spreads = [("duration", found.durations), *([("wait", found.waits)] if found.waits else [])]
    percentiles = [f">P{each}" if each != "100" else ">MAX" for each in found.durations.percentiles]
    yield table(("", *percentiles, ">MEAN"), [(name, *_spread(spread)) for name, spread in spreads])
    if found.notes:
        yield "\nNotes"
        yield from (f"  {note}" for note in found.notes)


def _facts(found: Description) -> Iterator[tuple[str, str]]:
    yield "trace", f"{found.name}, format {found.format}"
    if found.start:
        yield "from, to", f"{found.start}, {found.end}"
    yield "span", _seconds(found.span_s)
    yield "jobs", f"{found.jobs:,}, {found.gangs:,} of several pods, {found.opportunistic:,} opportunistic"
    yield "GPU-hours", f"{found.gpu_hours:,.0f}"
    yield "most at once", f"{counted(found.most_gpus_at_once, 'GPU')}, if no job waited"
    if found.load is not None:
        yield "load", f"{found.load:.3f} on {counted(found.gpus or 0, 'GPU')}"
    if found.leaf_types:
        yield "GPU models", ", ".join(f"{name} {count:,}" for name, count in found.leaf_types.items())


def _tenant(row: TenantRow) -> tuple[str, ...]:
    most = sorted(row.sizes.items(), key=lambda each: (-each[1], int(each[0])))[:SHOWN_SIZES]
    sizes = ", ".join(f"{gpus}: {count:,}" for gpus, count in sorted(most, key=lambda each: int(each[0])))
    more = ", ..." if len(row.sizes) > SHOWN_SIZES else ""
    return (row.tenant or "(none)", f"{row.jobs:,}", f"{row.gpu_hours:,.0f}", f"{row.share:.1%}", sizes + more)


def _spread(spread: Spread) -> Iterator[str]:
    yield from (_seconds(value) for value in spread.percentiles.values())
    yield _seconds(spread.mean)


def _seconds(value: float) -> str:
    """Seconds in the largest unit of which there is one at least."""
    for unit, length in (("d", 86_400.0), ("h", 3600.0), ("m", 60.0)):
        if abs(value) >= length:
            return f"{value / length:.1f}{unit}"
    return f"{value:.3g}s"


@command.command("convert")
@click.option(
    "--to", "form", type=click.Choice(list(WRITERS)), default="hived", show_default=True,
    help="hived keeps everything; csv is a table; philly-csv the columns of Philly's condensed table.",
)  # fmt: skip
@output_option
@reads_trace
def convert(*, file: str, form: str, output: Path | None, **reading: Any) -> None:
    """Write a trace of any known format in our own, or as a table.

    FILE may be packed; - is standard input. Our own format is a line of JSON for each job, and is read again exactly.
    Properties that a table cannot keep are named on standard error.

    \b
    Examples:
      hived trace convert cluster_log.csv --to hived -o venus.jsonl.gz
      sacct -a --parsable2 -o ALL -S 2026-01-01 | hived trace convert - --time-zone Europe/Berlin -o slurm.jsonl
      kubectl get pods -A -o json | hived trace convert - --to csv
      hived trace convert job_log.json --as-placed -o philly.jsonl
    """
    write_trace(trace_of(file, reading), file, output, form)


@command.command("sample")
@click.option("--from", "since", metavar="DATE", help="Jobs submitted from then on; or a span since the start: 3d.")
@click.option("--to", "until", metavar="DATE", help="Jobs submitted before then; or a span since the start.")
@click.option(
    "--for",
    "span",
    type=Duration(may_be_zero=False),
    metavar="SPAN",
    help="So long, counted from the first job that is left.",
)
@click.option("--tenant", "tenants", multiple=True, metavar="NAME", help="Jobs of this tenant; may be given again.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="N of the jobs that are left, by chance.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of that chance.")
@output_option
@reads_trace
def sample(
    *,
    file: str,
    since: str | None,
    until: str | None,
    span: float | None,
    tenants: tuple[str, ...],
    output: Path | None,
    **others: Any,
) -> None:
    """Take a part of a trace: by time, by tenant, or some jobs by chance.

    Several wishes are followed in this order. The result begins with its first submission; its notes say what was done.
    A date is midnight, in the zone of --time-zone. The same options always give the same bytes.

    \b
    Examples:
      hived trace sample philly.csv.gz --from 2017-10-16 --for 13d -o weeks.jsonl
      hived trace sample philly.csv.gz --from 2017-11-01 --to 2017-11-08 --tenant 6214e9 --tenant 11cb48
      hived trace sample venus.jsonl --from 2w --jobs 5000 --seed 7 -o part.jsonl.gz
    """
    zone = others["time_zone"]
    jobs, seed = others.pop("jobs"), others.pop("seed")
    trace = trace_of(file, others)
    if since is not None or until is not None:
        ends = [None if text is None else moment_in(trace, text, zone, option)
                for option, text in (("--from", since), ("--to", until))]  # fmt: skip
        trace = between(trace, *ends)
    if span is not None:
        trace = first_part(trace, span)
    if tenants:
        trace = of_tenants(trace, tenants)
    if jobs is not None:
        trace = some(trace, jobs, seed)
    write_trace(trace, file, output)


_FACTOR = FiniteRange(min=0, min_open=True, max=1e6)


@command.command("scale")
@click.option("--size", "larger", type=_FACTOR, metavar="FACTOR", help="GPUs of each job times this.")
@click.option(
    "--fold", "span", type=Duration(may_be_zero=False), metavar="SPAN", help="Arrivals modulo this span, such as 1.5d."
)
@click.option("--speed", "faster", type=_FACTOR, metavar="FACTOR", help="Arrivals so many times as fast.")
@click.option("--load", "load", type=_FACTOR, metavar="LOAD", help="Bring the load on --gpus to this, such as .63.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs of the cluster, for --load.")
@click.option(
    "--by", type=click.Choice(["fold", "speed"]), default="fold", show_default=True, help="How --load is reached."
)
@output_option
@reads_trace
def scale(
    *,
    file: str,
    span: float | None,
    faster: float | None,
    load: float | None,
    gpus: int | None,
    output: Path | None,
    **others: Any,
) -> None:
    """Change the load of a trace: fold its arrivals, or make them faster, or its jobs larger.

    Several wishes are followed in this order: size, fold, speed, load. Durations stay as they are. A fold lays days
    above each other and keeps the time of day; another speed keeps the order of jobs and makes days shorter. The load
    is what jobs ask for while they arrive, as a share of what the GPUs can do: GPU-seconds by GPUs and by the span
    from the first to the last submission. The notes of the result say what was done.

    \b
    Examples:
      hived trace scale weeks.jsonl --fold 1.5d -o folded.jsonl
      hived trace scale weeks.jsonl --load .63 --gpus 2496 -o busy.jsonl
      hived trace scale weeks.jsonl --load .2 --gpus 2496 --by speed
      hived trace scale weeks.jsonl --size 2 --speed .5
    """
    larger, by = others.pop("larger"), others.pop("by")
    if all(wish is None for wish in (larger, span, faster, load)):
        raise click.UsageError("say how: --fold, --speed, --load or --size")
    if (load is None) != (gpus is None):
        raise click.UsageError("--load and --gpus belong together")
    node_leaf_cells = others["node_leaf_cells"]
    trace = trace_of(file, others)
    if larger is not None:
        trace = size(trace, larger, node_leaf_cells)
    if span is not None:
        trace = fold(trace, span)
    if faster is not None:
        trace = speed(trace, faster)
    if load is not None and gpus is not None:
        trace = to_load(trace, load, gpus, folds=by == "fold")
    write_trace(trace, file, output)
