"""Changes of jobs in queues, and how they are told."""

from typing import Literal

import click
import msgspec

from hived_cli.helpers.answers import as_json
from hived_config.reader import printable
from hived_extender.api.queues import QueueArgs
from hived_extender.client.inspection import Inspector


def change(
    inspector: Inspector, job: str, action: Literal["hold", "release", "move"], output: str, *, to: str = ""
) -> None:
    """Make a change, and say where the job is then. Raises UserError."""
    found = inspector.change_queue(QueueArgs(job, action, to))
    if output == "json":
        click.echo(as_json(msgspec.to_builtins(found)))
        return
    place = f", place {found.position} in queue {printable(found.queue)}" if found.position else ""
    click.echo(f"{printable(found.name)}: {found.state}{place}")
