"""`hived hold`, `release` and `move`: changes of jobs in queues."""

import click
import msgspec

from hived_cli.helpers.answers import as_json, output_option
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.names import complete_held, complete_placed, complete_unheld, without_kind
from hived_config.reader import printable
from hived_extender.api.inspection import Inspector
from hived_extender.api.queues import QueueAction, QueueArgs

ABOUT = """
{summary}

JOB is its name as hived get queue has it, Kind/namespace/name; namespace/name or the name alone will do where one
job has it. It keeps its place. Callers need the right to update the job, or to change the configuration.

\b
Examples:
  hived {action} Job/research/train
  hived {action} train -o json
"""

job_argument = click.argument("job", shell_complete=complete_placed)


def change(inspector: Inspector, job: str, action: QueueAction, output: str, *, to: str = "") -> None:
    """Make a change, and say where the job is then. Raises UserError."""
    found = inspector.change_queue(QueueArgs(without_kind(job), action, without_kind(to)))
    if output == "json":
        click.echo(as_json(msgspec.to_builtins(found)))
        return
    place = f", place {found.position} in queue {printable(found.queue)}" if found.position else ""
    if not place and found.reason:
        place = f": {printable(found.reason)}"
    click.echo(f"{printable(found.name)}: {found.state}{place}")


def keeping_its_place(action: QueueAction, summary: str) -> click.Command:
    """The command that makes a change which leaves a job at its place."""

    @click.command(action, help=ABOUT.format(summary=summary, action=action).strip())
    @click.argument("job", shell_complete=complete_held if action == "release" else complete_unheld)
    @output_option
    @asks_service
    def command(*, inspector: Inspector, job: str, output: str) -> None:
        change(inspector, job, action, output)

    return command


hold = keeping_its_place("hold", "Hold a job in its queue, so that it does not take its turn.")


release = keeping_its_place("release", "Let a job that was held take its turn.")


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
def move(*, inspector: Inspector, job: str, front: bool, back: bool, before: str, output: str) -> None:
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
