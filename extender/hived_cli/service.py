"""`hived service`: scripts that stop and start services around a push, as with paictl, go on as they are."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps

import click

from hived.values.errors import UserError
from hived_cli.helpers.answers import with_options
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.lazy import CommandGroup
from hived_config.openpai import SERVICE
from hived_config.reader import printable
from hived_extender.api.inspection import ConfigClient, Inspector


@click.group(cls=CommandGroup)
def command() -> None:
    """Take the words with which scripts of paictl stop and start services around a push.

    Nothing has to be stopped for hived: a push changes the configuration while the service runs, and jobs go on.

    \b
    Examples:
      hived service stop -n rest-server hivedscheduler
      hived config push -p /cluster-configuration -m service
      hived service start -n rest-server hivedscheduler
    """


_OPTIONS = (
    click.option(
        "-n", "named", multiple=True, metavar="SERVICE", help=f"This service, and those after it.  [default: {SERVICE}]"
    ),
    click.argument("others", nargs=-1, metavar="[SERVICE]..."),
)  # fmt: skip


def _of_services(function: Callable[..., None]) -> Callable[..., None]:
    """Add the names of services; OpenPAI's other ones are passed over, and the command runs if ours is among them.

    Raises UserError for a name that is nearly ours.
    """

    @wraps(function)
    def run(named: Sequence[str], others: Sequence[str], **options: object) -> None:
        names = list(dict.fromkeys((*named, *others))) or [SERVICE]
        for name in names:
            if name != SERVICE and get_close_matches(name, [SERVICE]):
                raise UserError(f"no service {printable(name)}; did you mean {SERVICE}?")
        for name in names:
            if name != SERVICE:
                click.echo(f"{printable(name)}: no service of hived's, nothing was done with it")
        if SERVICE in names:
            function(**options)

    return with_options(run, _OPTIONS)


@command.command("stop")
@_of_services
def stop() -> None:
    """Stop nothing, and say so: the service goes on while its configuration is changed.

    Names of OpenPAI's other services are passed over; paictl stops those. The exit code is 0.

    \b
    Examples:
      hived service stop -n rest-server hivedscheduler
      hived service stop
    """
    click.echo(f"{SERVICE}: goes on, as hived config push needs no stop; jobs are placed meanwhile")


@command.command("start")
@_of_services
@asks_service
def start(inspector: Inspector) -> None:
    """Ask the service whether it runs, and which version of the configuration is in force.

    Names of OpenPAI's other services are passed over; paictl starts those. The exit code is 0 if the service answers,
    else 1.

    \b
    Examples:
      hived service start -n rest-server hivedscheduler
      hived service start
    """
    current = ConfigClient(inspector).current()
    click.echo(f"{SERVICE}: runs, with version {current.version} of its configuration in force")
