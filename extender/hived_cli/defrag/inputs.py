"""`hived defrag inputs`: the file that a plan can be made of without the service."""

import click
import msgspec

from hived_cli.defrag.helpers.asking import read_inputs
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.inspection import Inspector


@click.command("inputs")
@asks_service
def command(inspector: Inspector) -> None:
    """Print all that a plan depends on: the configuration, who runs where, what is bad, and which jobs wait.

    The file holds the names of pods and the configuration: treat it like the answers of the service.

    \b
    Examples:
      hived defrag inputs > inputs.json
      hived defrag plan --state inputs.json --vc research --want 2xNODE
    """
    click.echo(msgspec.json.encode(read_inputs(inspector, None)))
