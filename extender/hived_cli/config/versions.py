"""`hived config pull`, `diff`, `history` and `get-id`: the configuration in force, and those before it."""

import os
from pathlib import Path

import click

from hived.values.errors import HivedError, InvariantError, UserError
from hived_cli.config.certifying import brief, drawn
from hived_cli.config.given import PULLED, Source, read_source, takes_file
from hived_cli.helpers.answers import as_json, difference, format_option
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.tables import table
from hived_config.openpai import DEFAULT_CLUSTER_ID
from hived_config.reader import printable
from hived_config.settings import config_path
from hived_extender.api.inspection import ConfigClient, Inspector
from hived_extender.api.paths import CONFIG_VERSIONS_PATH


@click.command("pull")
@click.option(
    "-o", "path", type=click.Path(path_type=Path), metavar="FILE|DIR",
    help=f"Write it there; in a folder as {PULLED}.  [default: standard output]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that differs from it.")
@asks_service
def pull(inspector: Inspector, path: Path | None, force: bool) -> None:
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
def diff(inspector: Inspector, path: Path | None, versions: tuple[int, int] | None) -> None:
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


@click.command("history")
@format_option
@asks_service
def history(inspector: Inspector, form: str) -> None:
    """List the versions of the configuration that are kept, newest first: when, who and why.

    Versions that were pushed with a certificate have it below the list.

    \b
    Examples:
      hived config history
      hived config history --format json | jq '.items[0].who'
    """
    if form == "json":
        click.echo(as_json(inspector.fetch(CONFIG_VERSIONS_PATH)))
        return
    service = ConfigClient(inspector)
    current, versions = service.current(), service.versions()
    rows = [
        [
            str(each.version),
            "*" if each.version == current.version else "",
            each.when,
            printable(each.who) or "-",
            printable(each.why),
        ]
        for each in versions
    ]
    click.echo(table([">VERSION", "", "WHEN", "WHO", "WHY"], rows))
    certified = [(each.version, each.certificate) for each in versions if each.certificate is not None]
    if certified:
        click.echo("\n" + click.style("Certificates", bold=True))
    for number, certificate in certified:
        color = "red" if certificate.verdict == "broken" else None
        click.echo(
            f"  {number}: " + click.style(f"promises {certificate.verdict}", fg=color) + f": {brief(certificate)}"
        )
        for failure in certificate.failures():
            click.echo(f"     {failure}")
    click.echo("\n" + click.style(f"* in force, from {current.source}", dim=True))
    if current.refused is not None:
        refused = current.refused
        click.echo(click.style(f"A change of {refused.when} is not in force: {refused.reason}", fg="red"))


@click.command("get-id")
@asks_service
def get_id(inspector: Inspector) -> None:
    """Print the id of the cluster.

    The first push that names an id gives it to the cluster, by --cluster-id or in OpenPAI's file; from then on a push
    that names another id is refused. Until then the id is pai, as in OpenPAI.

    \b
    Examples:
      hived config get-id
      hived config get-id --server http://10.0.0.7:9096
    """
    current = ConfigClient(inspector).current()
    if not current.cluster_id and not current.is_pushable:
        raise UserError(f"the cluster has no id: its configuration is the {current.source}, which accepts no pushes")
    click.echo(current.cluster_id or DEFAULT_CLUSTER_ID)
