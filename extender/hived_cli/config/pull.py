"""`hived config pull`: the configuration in force, as it was pushed."""

from pathlib import Path

import click

from hived.values.errors import UserError
from hived_cli.config.helpers.certificate_text import drawn
from hived_cli.config.helpers.files import PULLED
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector


@click.command("pull")
@click.option(
    "-o", "path", type=click.Path(path_type=Path), metavar="FILE|DIR",
    help=f"Write it there; in a folder as {PULLED}.  [default: standard output]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that differs from it.")
@asks_service
def command(inspector: Inspector, path: Path | None, force: bool) -> None:
    """Print the configuration in force, as it was pushed, or write it to a file.

    The certificate with which it was pushed goes to standard error.

    A file that is there and differs may have changes of yours: it is replaced with --force only.

    \b
    Examples:
      hived config pull > hivedscheduler.yaml
      hived config pull -o hivedscheduler.yaml
      hived config pull -o /cluster-configuration
      hived config pull -o hivedscheduler.yaml --force
    """
    current = ConfigClient(inspector).current()
    if current.certificate is not None:
        click.echo(drawn(current.certificate), err=True)
    if path is None:
        click.echo(current.text, nl=False)
        return
    target = path / PULLED if path.is_dir() else path
    file, content = click.format_filename(target), current.text.encode()
    try:
        if not force and target.is_file() and target.read_bytes() != content:
            raise UserError(
                f"{file} is there already and differs from version {current.version}: see hived config diff, or give "
                "--force to replace it"
            )
        target.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
    click.echo(f"{file}: version {current.version}")
