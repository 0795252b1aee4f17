"""The certificates of commands that push: a trace or the record is replayed, and the result is sent with the push."""

import click

from hived.errors import UserError
from hived_cli.config.helpers.certificate_text import drawn
from hived_cli.config.helpers.certify_options import Certifying
from hived_config.certify import OnFailure
from hived_config.loader import load_text
from hived_extender.api.certificates import PERCENT, Certificate
from hived_extender.client.inspection import Inspector
from hived_extender.reconfiguration.certified import why_not


def certified(
    inspector: Inspector, in_force: str, pushed: str, file: str, wish: Certifying, is_json: bool
) -> Certificate | None:
    """The certificate of a push, shown; None if none is wished for and none demanded.

    in_force, pushed : the texts; messages call the latter `file`

    Raises UserError if there is none and the cluster demands one, if it is not what the cluster demands, or if it says
    that a promise would be broken and that is not to be only a warning. Exits with 130 if it is interrupted.
    """
    old = load_text(in_force, "the configuration in force", lenient=True, environ={})
    demand = old.certify
    if not wish.of:
        if reason := why_not(None, demand, in_force, pushed):
            raise UserError(f"{reason}: nothing was pushed")
        return None
    new = load_text(pushed, file, lenient=True, environ={})
    percent = wish.percent if wish.percent is not None else (PERCENT if demand is None else demand.percent)
    from hived_cli.config.helpers.replays import replayed  # noqa: PLC0415  # loads the simulator; few pushes need it

    found = replayed(inspector, (in_force, old.cluster), (pushed, new.cluster), wish, percent)
    click.echo(drawn(found), err=is_json)
    if reason := why_not(found, demand, in_force, pushed):
        raise UserError(f"nothing was pushed: {reason}")
    only_warns = wish.warns or (demand is not None and demand.on_failure is OnFailure.WARN)
    if found.failures() and not only_warns:
        raise UserError(
            "nothing was pushed, as the certificate says that promises would be broken; if that is meant, push with "
            "--certify-warn, or allow more with --certify-percent"
        )
    return found
