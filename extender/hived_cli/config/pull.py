"""`hived config pull`: the configuration in force, as it was pushed."""

from pathlib import Path

import click

from hived.errors import UserError
from hived_cli.config.helpers.files import PULLED
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector


@click.command("pull")
@click.option(
    "-o", "path", type=click.Path(path_type=Path), metavar="FILE|DIR",
    help=f"Write it there; in a folder as {PULLED}.  [default: standard output]",
)  # fmt: skip
@asks_service
def command(inspector: Inspector, path: Path | None) -> None:
    """Print the configuration in force, as it was pushed, or write it to a file.

    \b
    Examples:
      hived config pull > hivedscheduler.yaml
      hived config pull -o hivedscheduler.yaml
      hived config pull -o /cluster-configuration
    """
    current = ConfigClient(inspector).current()
    if path is None:
        click.echo(current.text, nl=False)
        return
    target = path / PULLED if path.is_dir() else path
    try:
        target.write_text(current.text, encoding="utf-8", newline="")
    except OSError as error:
        raise UserError(f"cannot write {click.format_filename(target)}: {error.strerror}") from error
    click.echo(f"{click.format_filename(target)}: version {current.version}")
