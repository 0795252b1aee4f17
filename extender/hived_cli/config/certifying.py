"""Certificates of commands that push: the replay that a push is sent with, and certificates as text.

`refuse_early` finds in no time all that would make minutes of replays useless.
"""

from pathlib import Path

import click

from hived.values.errors import UserError
from hived_cli.config.certify_options import Certifying
from hived_cli.helpers.tables import table
from hived_config.loader import load_text
from hived_config.reader import printable
from hived_config.settings import MOST_DAYS, OnFailure
from hived_config.words import counted
from hived_extender.api.certificates import PERCENT, Certificate, CertifiedTrace
from hived_extender.api.configuration import Config
from hived_extender.api.inspection import Inspector
from hived_extender.reconfiguration.certified import not_demanded, why_not
from hived_extender.reconfiguration.versions import waiver


def drawn(certificate: Certificate) -> str:
    """A certificate as text: what was replayed, the virtual clusters, and the verdict."""
    lines = [click.style("Certificate", bold=True), f"  {brief(certificate)}"]
    rows = [
        (
            printable(one.vc),
            f"{one.jobs:,}",
            f"{one.old_delay_s / 60:,.1f}",
            f"{one.new_delay_s / 60:,.1f}",
            f"{one.later:,}",
            f"{one.lost:,}",
        )
        for one in certificate.vcs
    ]
    if rows:
        headers = ("VC", ">JOBS", ">MEAN DELAY, MIN", ">NEW DELAY, MIN", ">LATER THAN PRIVATE", ">NEVER")
        lines += [f"  {line}" for line in table(headers, rows).splitlines()]
    if len(rows) < certificate.vc_count:
        lines.append(f"  and {certificate.vc_count - len(rows):,} more")
    failures = certificate.failures()
    if failures:
        lines.append(click.style("Broken promises", bold=True, fg="red"))
        lines += [f"  {printable(failure)}" for failure in failures]
    else:
        lines.append("  no virtual cluster would be worse off")
    return "\n".join(lines)


def brief(certificate: Certificate) -> str:
    """A certificate in one line."""
    trace = certificate.trace
    days = "a day" if trace.days == 1 else f"{trace.days:g} days"
    name = f"{days} of record" if trace.days else printable(trace.name)
    times = f", {trace.first} to {trace.last}" if trace.first else ""
    return (
        f"{name}, {counted(trace.jobs, 'job')}{times}, SHA-256 {trace.sha256[:12]}, {certificate.percent:g} % allowed, "
        f"hived {certificate.version}"
    )


def refuse_early(current: Config, pushed: str, wish: Certifying) -> None:
    """Raise UserError for a push that has no certificate, or asks for one that cannot be made or is not demanded.

    Neither the trace nor the record is read, but for the SHA-256 of a trace if a certain one is demanded.
    """
    demand = load_text(current.text, "the configuration in force", lenient=True, environ={}).certify
    if not wish.of:
        if not current.may_lack_certificate and (reason := why_not(None, demand, current.text, pushed)):
            raise UserError(f"nothing was pushed: {reason}, or {waiver(current.source)}")
        return
    path = Path(wish.of)
    if wish.days > MOST_DAYS:
        raise UserError(f"nothing was pushed: --certify {wish.of}: expected at most {MOST_DAYS}d")
    if not wish.days and not path.is_file():
        raise UserError(
            f"nothing was pushed: --certify {wish.of}: there is no such file; expected the file of a trace, or days of "
            f"record from 1d to {MOST_DAYS}d"
        )
    if demand is not None:
        name = "record" if wish.days else path.name
        digest = wish.sha256() if demand.sha256 and not wish.days else ""
        if reason := not_demanded(CertifiedTrace(name, digest, 0, wish.days), demand):
            raise UserError(f"nothing was pushed: {reason}")


def certified(
    inspector: Inspector, current: Config, pushed: str, file: str, wish: Certifying, is_json: bool
) -> Certificate | None:
    """The certificate of a push, shown; None if none is wished for.

    current : the configuration in force
    pushed : the text to be pushed, which messages call `file`

    Raises UserError if it is not what the cluster demands, or if it says that a promise would be broken and that is not
    to be only a warning. Exits with 130 if it is interrupted. Cost: that of three runs.
    """
    if not wish.of:
        return None
    old = load_text(current.text, "the configuration in force", lenient=True, environ={})
    demand = old.certify
    new = load_text(pushed, file, lenient=True, environ={})
    percent = wish.percent if wish.percent is not None else (PERCENT if demand is None else demand.percent)
    from hived_cli.config.replays import replayed  # noqa: PLC0415  # loads the simulator; few pushes need it

    try:
        found = replayed(inspector, (current.text, old.cluster), (pushed, new.cluster), wish, percent)
    except UserError as error:
        raise UserError(f"nothing was pushed: {error.message}", error.code) from error
    click.echo(drawn(found), err=is_json)
    if reason := why_not(found, demand, current.text, pushed):
        remedy = "" if demand is None else f". If it is meant, {waiver(current.source)}, and push without --certify"
        raise UserError(f"nothing was pushed: {reason}{remedy}")
    only_warns = wish.warns or (demand is not None and demand.on_failure is OnFailure.WARN)
    if found.failures() and not only_warns:
        raise UserError(
            "nothing was pushed, as the certificate says that promises would be broken; if that is meant, push with "
            "--certify-warn, or allow more with --certify-percent"
        )
    return found
