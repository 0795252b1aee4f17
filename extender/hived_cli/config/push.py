"""`hived config push`: bring a configuration into force, without a restart."""

from pathlib import Path

import click

from hived.values.errors import UserError
from hived_cli.config.helpers.files import read_sound_source, tell_mistakes
from hived_cli.config.helpers.given_files import takes_file
from hived_cli.config.helpers.pushing import PushOptions, push_text, pushes
from hived_cli.helpers.connecting import asks_service
from hived_config.document import ConfigError
from hived_extender.client.inspection import Inspector

SERVICE = "service"


@click.command("push")
@takes_file
@click.option(
    "-p", "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="A folder with OpenPAI's services-configuration.yaml, also spelled service-configuration.yaml.",
)  # fmt: skip
@click.option(
    "-m", "part", default=SERVICE, metavar=SERVICE, help="As paictl has it: services' configuration, not others."
)
@click.option(
    "--base-version", type=int, metavar="N",
    help="The version that this was made from: refuse if another one is in force.",
)  # fmt: skip
@pushes
@asks_service
def command(
    inspector: Inspector,
    folder: Path | None,
    part: str,
    path: Path | None,
    base_version: int | None,
    pushing: PushOptions,
) -> None:
    """Bring a configuration into force: check it, show what it would do, ask, and wait until it is.

    FILE is a scheduler configuration or OpenPAI's services-configuration.yaml; DIR is a folder with such a file. -p DIR
    is paictl's form. Of an OpenPAI file only the scheduler's part leaves this machine. Nothing is stopped, nothing is
    restarted.

    \b
    Examples:
      hived config push -p /cluster-configuration -m service
      hived config push -f hivedscheduler.yaml --message 'two racks for research'
      hived config push hivedscheduler.yaml --certify 14d
      hived config push -f hivedscheduler.yaml --yes --cluster-id prod --format json
    """
    if part != SERVICE:
        raise UserError(
            f"-m {part}: expected -m {SERVICE}, as hived has no other configuration; paictl pushes the rest"
        )
    source = folder or path
    if source is None or (folder and path):
        raise UserError("expected either FILE (or -f FILE) or -p DIR, which says what is to be pushed")
    try:
        found = read_sound_source(source)
    except ConfigError as error:
        tell_mistakes(error)
        raise SystemExit(1) from error
    push_text(inspector, found.text, found.file, pushing, base_version)
