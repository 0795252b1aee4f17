"""`hived defrag status`: how far the moves have come, and which budgets are left."""

import click

from hived_cli.defrag.helpers.following import look, tell
from hived_cli.helpers.answers import as_json, format_option, json_option
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.inspection import Inspector


@click.command("status")
@format_option
@json_option
@asks_service
def command(inspector: Inspector, form: str, is_json: bool) -> None:
    """Show the moves under way, or the last ones, and the budgets of moves that the service makes by itself.

    \b
    Examples:
      hived defrag status
      hived defrag status --json | jq .moves
    """
    report = look(inspector)
    click.echo(as_json(report) if is_json or form == "json" else tell(report))
