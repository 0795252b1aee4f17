"""`hived defrag stop`: move nobody else."""

import click

from hived_cli.defrag.helpers.following import stop, tell
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.inspection import Inspector


@click.command("stop")
@asks_service
def command(inspector: Inspector) -> None:
    """Move nobody else, and give back the cells that are held. Pods that were evicted come back like any others.

    \b
    Examples:
      hived defrag stop
    """
    click.echo(tell(stop(inspector)))
