"""The certificates of commands that push: a trace or the record is replayed, and the result is sent with the push."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.errors import UserError
from hived_cli.config.helpers.certificate_text import drawn
from hived_cli.helpers.numbers import FiniteRange
from hived_config.certify import OnFailure
from hived_config.loader import load_text
from hived_extender.api.certificates import PERCENT, Certificate
from hived_extender.client.inspection import Inspector
from hived_extender.reconfiguration.certified import why_not

_DAYS = re.compile(r"([0-9]{1,4})d", re.ASCII)

OPTIONS: tuple[Callable[..., Any], ...] = (
    click.option(
        "--certify", metavar="TRACE|DAYSd",
        help="Replay a trace, or so many of the last days of the service's record, and push only if no virtual cluster "
        "is worse off.",
    ),
    click.option(
        "--certify-percent", type=FiniteRange(min=0), metavar="N",
        help=f"By how much a mean delay may grow.  [default: as the cluster demands, else {PERCENT:g}]",
    ),
    click.option("--certify-warn", is_flag=True, help="Push all the same, with a certificate that says it is worse."),
    click.option("--certify-backfill", is_flag=True, help="Replay with later jobs passing those that have no room."),
    click.option(
        "--certify-tenants", multiple=True, metavar="TENANT=VC",
        help="As --tenants of `hived simulate`.",
    ),
    click.option("--certify-format", metavar="NAME", help="Format of the trace.  [default: by its text]"),
    click.option(
        "--record", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
        help="For --certify DAYSd, the folder of the record, instead of asking the service for it.",
    ),
)  # fmt: skip


class Certifying(msgspec.Struct, frozen=True):
    """The options about certificates. `of` is a trace or a number of days; "" for no certificate."""

    of: str = ""
    percent: float | None = None
    warns: bool = False
    has_backfill: bool = False
    tenants: tuple[str, ...] = ()
    trace_format: str = ""
    record: Path | None = None

    @property
    def days(self) -> int:
        """So many days of record are meant; 0 if a file is."""
        match = _DAYS.fullmatch(self.of)
        return 0 if match is None or Path(self.of).exists() else int(match[1])


NO_CERTIFICATE = Certifying()


def taken(options: dict[str, Any]) -> Certifying:
    """Take the options about certificates out of those of a command. UsageError for options that need --certify."""
    found = Certifying(
        of=options.pop("certify") or "",
        percent=options.pop("certify_percent"),
        warns=options.pop("certify_warn"),
        has_backfill=options.pop("certify_backfill"),
        tenants=options.pop("certify_tenants"),
        trace_format=options.pop("certify_format") or "",
        record=options.pop("record"),
    )
    if not found.of and found != NO_CERTIFICATE:
        raise click.UsageError("--certify-... and --record say how to certify: expected --certify TRACE or DAYSd too")
    if found.record is not None and not found.days:
        raise click.UsageError("--record is for --certify DAYSd, such as --certify 14d")
    return found


def certified(
    inspector: Inspector, in_force: str, pushed: str, file: str, wish: Certifying, is_json: bool
) -> Certificate | None:
    """The certificate of a push, shown; None if none is wished for and none demanded.

    in_force, pushed : the texts; messages call the latter `file`

    Raises UserError if the cluster demands another certificate, or one where there is none. So it does if a promise
    would be broken, unless that is only to be a warning. Exits with 130 if it is interrupted.
    """
    old = load_text(in_force, "the configuration in force", lenient=True, environ={})
    demand = old.certify
    if not wish.of:
        if reason := why_not(None, demand, in_force, pushed):
            raise UserError(f"{reason}: nothing was pushed")
        return None
    new = load_text(pushed, file, lenient=True, environ={})
    percent = wish.percent if wish.percent is not None else (PERCENT if demand is None else demand.percent)
    # The simulator takes a moment to load, and few pushes need it.
    from hived_cli.config.helpers.replays import replayed  # noqa: PLC0415

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
