"""`hived trace convert`: a trace of any known format in our own, or as a table."""

from pathlib import Path
from typing import Any

import click

from hived_cli.helpers.traces import output_option, reads_trace, trace_of, write_trace
from hived_simulator.traces.writing import WRITERS


@click.command()
@click.option(
    "--to", "form", type=click.Choice(list(WRITERS)), default="hived", show_default=True,
    help="hived keeps everything; csv is a table; philly-csv the columns of Philly's condensed table.",
)  # fmt: skip
@output_option
@reads_trace
def command(*, file: str, form: str, output: Path | None, **reading: Any) -> None:
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
