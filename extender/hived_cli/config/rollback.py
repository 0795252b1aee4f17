"""`hived config rollback`: bring an earlier version into force again."""

import click

from hived.values.errors import UserError
from hived_cli.config.helpers.pushing import PushOptions, push_text, pushes
from hived_cli.helpers.connecting import asks_service
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector


@click.command("rollback")
@click.argument("version", type=int, required=False)
@pushes
@asks_service
def command(inspector: Inspector, version: int | None, pushing: PushOptions) -> None:
    """Bring an earlier version into force again, by default the one before.

    It becomes a new version, and is planned and asked about as any push is.

    \b
    Examples:
      hived config rollback
      hived config rollback 5 --yes
    """
    service = ConfigClient(inspector)
    number = _before(service) if version is None else version
    file, message = f"version {number}", f"rollback to version {number}"
    push_text(inspector, service.version(number).text, file, pushing, message=message)


def _before(service: ConfigClient) -> int:
    """The newest version that is kept and not in force."""
    current = service.current().version
    earlier = [each.version for each in service.versions() if each.version < current]
    if not earlier:
        raise UserError(f"no version before {current} is kept: there is nothing to go back to")
    return max(earlier)
