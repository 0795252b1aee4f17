"""Certificates as text."""

import click

from hived_cli.helpers.tables import table
from hived_config.reader import printable
from hived_extender.api.certificates import Certificate


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
        headers = ("VC", ">JOBS", ">MEAN DELAY, MIN", ">THEN", ">LATER THAN PRIVATE", ">NEVER")
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
        f"{name}, {trace.jobs:,} jobs{times}, SHA-256 {trace.sha256[:12]}, {certificate.percent:g} % allowed, "
        f"hived {certificate.version}"
    )
