"""`hived defrag status`: how far the moves have come."""

import click

from hived_cli.defrag.helpers.following import look, tell
from hived_cli.helpers.answers import as_json, format_option
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.inspection import Inspector


@click.command("status")
@format_option
@asks_service
def command(inspector: Inspector, form: str) -> None:
    """Show the moves under way, or the last ones.

    \b
    Examples:
      hived defrag status
      hived defrag status --format json | jq .moves
    """
    report = look(inspector)
    click.echo(as_json(report) if form == "json" else tell(report))
