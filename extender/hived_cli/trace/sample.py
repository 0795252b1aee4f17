"""`hived trace sample`: a part of a trace."""

from pathlib import Path
from typing import Any

import click

from hived_cli.helpers.traces import moment_in, output_option, reads_trace, span_of, trace_of, write_trace
from hived_simulator.traces.changing import between, first_part, of_tenants, some


@click.command()
@click.option("--from", "since", metavar="DATE", help="Jobs submitted from then on; or a span since the start: 3d.")
@click.option("--to", "until", metavar="DATE", help="Jobs submitted before then; or a span since the start.")
@click.option(
    "--for", "span", callback=span_of, metavar="SPAN", help="So long, counted from the first job that is left."
)
@click.option("--tenant", "tenants", multiple=True, metavar="NAME", help="Jobs of this tenant; may be given again.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="N of the jobs that are left, by chance.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of that chance.")
@output_option
@reads_trace
def command(
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
