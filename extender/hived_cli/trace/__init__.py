"""`hived trace`: one file per subcommand, each loaded only when it is asked for."""

import click

from hived_cli.helpers.lazy import LazyGroup

SUMMARIES = {
    "describe": "Show what a trace is like: span, tenants, sizes, durations, load, and what was left out.",
    "convert": "Write a trace of any known format in our own, or as a table.",
    "sample": "Take a part of a trace: by time, by tenant, or some jobs by chance.",
    "scale": "Change the load of a trace: fold its arrivals, or make them faster, or its jobs larger.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=SUMMARIES)
def command() -> None:
    """Describe, convert, cut and scale traces of jobs.

    \b
    Examples:
      hived trace describe philly.csv.gz --gpus 2496
      hived trace convert cluster_log.csv --to hived -o venus.jsonl.gz
      hived trace sample philly.csv.gz --from 2017-10-16 --for 13d -o weeks.jsonl
      hived trace scale weeks.jsonl --fold 1.5d -o folded.jsonl
    """
