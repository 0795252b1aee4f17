"""`hived migrate`: subcommands, whose modules are loaded only when one is asked for."""

import click

from hived_cli.helpers.lazy import LazyGroup

SUMMARIES = {
    "kueue": "Turn Kueue's queues, cohorts and flavors into a configuration and a quota tree.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=SUMMARIES)
def command() -> None:
    """Turn the objects of another scheduler into files of hived.

    \b
    Examples:
      hived migrate kueue queues.yaml --nodes nodes.json -o hived/
    """
