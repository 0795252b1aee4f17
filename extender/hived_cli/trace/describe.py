"""`hived trace describe`: what a trace is like."""

from collections.abc import Iterator
from typing import Any

import click

from hived_cli.helpers.answers import as_json
from hived_cli.helpers.tables import table
from hived_cli.helpers.traces import named_trace_of, reads_trace
from hived_simulator.traces.describing import Description, Spread, TenantRow, describe

SHOWN_TENANTS = 30
SHOWN_SIZES = 6


@click.command()
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="Show the load on so many GPUs, too.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON, with all tenants and sizes.")
@reads_trace
def command(*, file: str, gpus: int | None, is_json: bool, **reading: Any) -> None:
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
    yield "most at once", f"{found.most_gpus_at_once:,} GPUs, if no job waited"
    if found.load is not None:
        yield "load", f"{found.load:.3f} on {found.gpus:,} GPUs"
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
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("m", 60.0)):
        if abs(value) >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.3g}s"
