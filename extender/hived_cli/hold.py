"""`hived hold`: Hold a job in its queue, so that it does not take its turn."""

import click

from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.queueing import change
from hived_extender.client.inspection import Inspector


@click.command("hold")
@click.argument("job")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@asks_service
def command(*, inspector: Inspector, job: str, output: str) -> None:
    """Hold a job in its queue, so that it does not take its turn.

    JOB is its name as hived get queue has it, Kind/namespace/name; namespace/name or the name alone will do where one
    job has it. It keeps its place. Callers need the right to change the configuration.

    \b
    Examples:
      hived hold Job/research/train
      hived hold train -o json
    """
    change(inspector, job, "hold", output)
