"""Changes of jobs in queues, and how they are told."""

import click
import msgspec

from hived_cli.helpers.answers import as_json
from hived_cli.helpers.completing import complete_held, complete_placed, complete_unheld
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.names import without_kind
from hived_config.reader import printable
from hived_extender.api.queues import QueueAction, QueueArgs
from hived_extender.client.inspection import Inspector

ABOUT = """
{summary}

JOB is its name as hived get queue has it, Kind/namespace/name; namespace/name or the name alone will do where one
job has it. It keeps its place. Callers need the right to update the job, or to change the configuration.

\b
Examples:
  hived {action} Job/research/train
  hived {action} train -o json
"""

output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."
)
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
