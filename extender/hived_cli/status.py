"""`hived status`: the state of the service in one answer, with what an operator should do."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import click

from hived_cli.helpers.answers import RUNS, WAITS, as_json, output_option
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.tables import paragraph
from hived_cli.helpers.waits import UNKNOWN, age, listed
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api.inspection import Inspector, as_minute, duration, seconds_since
from hived_extender.api.status import Recovered, Status

_COLORS = {"healthy": "green", "degraded": "yellow"}
SHOWN = 8
"""Pods and promises that are named; -o json has all."""


@click.command("status")
@output_option
@asks_service
def command(*, inspector: Inspector, output: str) -> None:
    """Show the state of the service: who leads, what it recovered, what is short, and what to do.

    It says which replica answers and since when it leads, the versions in use, the pods that the last restart or
    take-over recovered and those that it could not, promises that cannot be kept now and because of which nodes, how
    long certificates are valid, where the history is kept, and jobs by state. Each warning has its remedy.

    The exit code is 0 if nothing is to be done, 3 if there are warnings or this replica does not lead, and 1 if the
    service does not answer.

    \b
    Examples:
      hived status
      hived status -o json | jq -r '.warnings[].text'
      hived status > /dev/null || echo "look at hived status"
    """
    found = inspector.status()
    click.echo(as_json(found) if output == "json" else _drawn(found, datetime.now(UTC)))
    raise SystemExit(RUNS if found.state == "healthy" else WAITS)


def _drawn(found: Status, now: datetime) -> str:
    rows = [(title, text) for title, text in _facts(found, now) if text]
    width = max(len(title) for title, _ in rows)
    lines = [click.style(found.state, fg=_COLORS.get(found.state, "red"), bold=True)]
    lines += [f"  {title:<{width}}  {text}" for title, text in rows]
    for one in found.warnings:
        lines += ["", *paragraph(f"{printable(one.text)}", click.style("! ", fg="yellow"))]
        lines += paragraph(f"-> {printable(one.remedy)}")
    return "\n".join(lines)


def _facts(found: Status, now: datetime) -> Iterator[tuple[str, str]]:
    replica = f" as {printable(found.replica)}" if found.replica else ""
    led = f"since {as_minute(found.leads_since)} ({age(found.leads_since, now)}){replica}"
    yield "leads", led if found.leads_since else f"no: {printable(found.standing) or UNKNOWN}"
    yield "process", f"since {as_minute(found.started)} ({age(found.started, now)})"
    kernels = f", kernels {printable(found.kernels)}" if found.kernels else ""
    yield (
        "versions",
        (
            f"hived {found.version}, configuration {found.config_version}, rules {found.rules}, "
            f"Kubernetes {printable(found.kubernetes) or 'unknown'}{kernels}"
        ),
    )
    if found.recovered is not None:
        yield "recovered", _recovered(found.recovered)
    if found.nodes:
        yield "nodes", f"{found.nodes}" + (f", {found.bad_nodes} of them bad" if found.bad_nodes else "")
        yield "promises", _promises(found)
    for one in found.certificates:
        seconds = seconds_since(one.until, now)
        left = "unreadable" if seconds is None else f"{duration(-seconds)} left" if seconds <= -1 else "expired"
        yield f"{one.use} TLS", f"until {as_minute(one.until) or UNKNOWN} ({left})"
    history = found.history
    kept = f"{printable(history.file)}, {history.bytes / 2**20:.1f} MiB" if history.file else "in memory only"
    yield "history", kept
    if found.recovered is not None:
        yield "jobs", _counted(found.jobs.now) or "none"
        yield "ended in 24h", _counted(found.jobs.ended) or "none"
        queues = found.queues
        borrowed = f", {queues.borrowed} of them on borrowed cells" if queues.borrowed else ""
        said = f"{queues.queues}, with {counted(queues.waiting, 'job')} waiting and {queues.running} running{borrowed}"
        yield "queues", said if queues.is_enabled else "not enabled"


def _recovered(found: Recovered) -> str:
    queued = (
        f", {counted(found.queued, 'queued job')} with {'its' if found.queued == 1 else 'their'} cells"
        if found.queued
        else ""
    )
    failed = ""
    if found.failed_count:
        named = listed([f"{one.pod} ({one.reason})" if one.reason else one.pod for one in found.failed], SHOWN)
        failed = f"; {found.failed_count} run without cells: {named}"
    return f"{counted(found.bound, 'bound pod')}{queued}, {found.waiting} waiting{failed}"


def _promises(found: Status) -> str:
    short = []
    for one in found.short:
        nodes = listed([f"{each.node} {each.reason}" for each in one.nodes], SHOWN)
        short.append(f"{printable(one.vc)} lacks {counted(one.cells, 'GPU')} ({nodes})")
    return "; ".join([*short, *map(printable, found.shared)]) or "all can be kept"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
