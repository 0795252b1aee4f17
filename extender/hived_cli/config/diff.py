"""`hived config diff`: how the text of a configuration differs from the one in force, or two versions."""

import os
from pathlib import Path

import click

from hived.values.errors import HivedError, InvariantError, UserError
from hived_cli.config.helpers.files import Source, read_source
from hived_cli.config.helpers.given_files import takes_file
from hived_cli.helpers.answers import difference
from hived_cli.helpers.connecting import asks_service
from hived_config.settings import config_path
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector

TROUBLE = 2


class Trouble(click.ClickException):
    """An error of this command: 1 means that there are differences."""

    exit_code = TROUBLE


@click.command("diff")
@takes_file
@click.option(
    "--versions",
    nargs=2,
    type=click.IntRange(min=1),
    metavar="A B",
    help="Two versions of the history, instead of a file.",
)
@asks_service
def command(inspector: Inspector, path: Path | None, versions: tuple[int, int] | None) -> None:
    """Show how a configuration differs, line by line, from the one in force; or two versions from each other.

    Without FILE, $CONFIG or hivedscheduler.yaml is compared. The exit code is that of diff: 0 if they are equal, 1 if
    not, 2 in case of trouble.

    \b
    Examples:
      hived config diff hivedscheduler.yaml
      hived config diff /cluster-configuration
      hived config diff --versions 6 7
    """
    if path is not None and versions:
        raise click.UsageError("expected either a file or --versions, found both")
    try:
        old, new = _two(ConfigClient(inspector), path, versions)
    except InvariantError:
        raise
    except HivedError as error:
        raise Trouble(str(error)) from error
    if old.text == new.text:
        return
    lines = "\n".join(difference(old.text, new.text, old.file, new.file))
    click.echo(lines or "the last line's end differs, or how lines end")
    raise SystemExit(1)


def _two(service: ConfigClient, path: Path | None, versions: tuple[int, int] | None) -> tuple[Source, Source]:
    if versions:
        old, new = (Source(f"version {number}", service.version(number).text) for number in versions)
        return old, new
    given = read_source(path or _default())
    current = service.current()
    return Source(f"version {current.version}", current.text), given


def _default() -> Path:
    path = config_path(os.environ)
    if not path.exists():
        raise UserError(f"no {click.format_filename(path)} here: name the file or folder to compare, or --versions A B")
    return path
