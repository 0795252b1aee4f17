"""`hived move`: another place for a job in its queue."""

import click

from hived_cli.helpers.completing import complete_placed
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.queueing import change, job_argument, output_option
from hived_extender.client.inspection import Inspector


@click.command("move")
@job_argument
@click.option("--front", is_flag=True, help="Before all others of its priority that wait.")
@click.option("--back", is_flag=True, help="Behind all others of its priority that wait.")
@click.option(
    "--before", metavar="JOB", default="", shell_complete=complete_placed,
    help="Before this one, of its priority and queue.",
)  # fmt: skip
@output_option
@asks_service
def command(*, inspector: Inspector, job: str, front: bool, back: bool, before: str, output: str) -> None:
    """Give a job another place in its queue.

    It moves among those of its priority that wait. JOB is its name as hived get queue has it. Callers need the right to
    change the configuration.

    \b
    Examples:
      hived move Job/research/train --front
      hived move train --before other
      hived move train --back -o json
    """
    places = [place for place, is_given in (("front", front), ("back", back), (before, bool(before))) if is_given]
    if len(places) != 1:
        raise click.UsageError("give one of --front, --back and --before JOB")
    change(inspector, job, "move", output, to=places[0])
