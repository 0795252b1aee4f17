"""The options about certificates, which all commands that push have."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.values.errors import UserError
from hived_cli.helpers.answers import FiniteRange
from hived_extender.api.certificates import PERCENT

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

    def sha256(self) -> str:
        """The SHA-256 of the trace in hex. Raises UserError if it cannot be read."""
        try:
            with Path(self.of).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UserError(f"--certify {self.of}: cannot read it: {error.strerror}") from error


NO_CERTIFICATE = Certifying()


def taken(options: dict[str, Any]) -> Certifying:
    """Take the options about certificates out of a command's. UsageError for options that need --certify."""
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
