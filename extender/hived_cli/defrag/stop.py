"""`hived defrag stop`: move nobody else."""

import click

from hived_cli.defrag.helpers.following import stop, tell_stopped
from hived_cli.helpers.answers import as_json, format_option, json_option
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.inspection import Inspector


@click.command("stop")
@format_option
@json_option
@asks_service
def command(inspector: Inspector, form: str, is_json: bool) -> None:
    """Move nobody else, and give back the cells that are held. Pods that were evicted come back like any others.

    The exit code is 0 too where no moves are under way.

    \b
    Examples:
      hived defrag stop
      hived defrag stop --json
    """
    report = stop(inspector)
    click.echo(as_json(report) if is_json or form == "json" else tell_stopped(report))
