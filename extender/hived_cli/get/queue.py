"""`hived get queue`: the queues, or the jobs of one with their places."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from hived_cli.helpers.completing import complete_queues
from hived_cli.helpers.forms import fitted, output_option
from hived_cli.helpers.tables import table
from hived_cli.helpers.waits import UNKNOWN, age, brief_when
from hived_cli.helpers.watching import Show, watches
from hived_config.reader import printable
from hived_extender.api.paths import QUEUES_PATH
from hived_extender.api.queues import QueuedJob, QueuedJobs, QueueReport
from hived_extender.client.inspection import Inspector, queue_jobs_path

ROWS = 500
"""Jobs that are shown. A long queue has tens of thousands, and people look at its beginning."""


@click.command("queue")
@click.argument("name", required=False, shell_complete=complete_queues)
@click.option("--jobs", "has_jobs", is_flag=True, help="The jobs of all queues.")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="COUNT",
    help=f"So many jobs at the most, 0 for all.  [default: {ROWS}; all with -o json]",
)  # fmt: skip
@watches
@output_option
def command(
    *, inspector: Inspector, show: Show, name: str | None, has_jobs: bool, limit: int | None, output: str
) -> None:
    """Show queues, and the jobs in them with their places and reasons.

    Of the queue NAME its jobs are shown: those that wait in their order, then the others.
    MIN is guaranteed, by a quota or by cells. MAX bounds all that runs; without a quota nothing does. BORROWED jobs
    run ahead of their turn, or above their MIN, on cells that may be taken back. A queue is OVER if its
    quota was lowered below its use. With an oversellrate of 2, MIN and MAX are "x2".

    \b
    Examples:
      hived get queue
      hived get queue root/team-a
      hived get queue research --watch
      hived get queue --jobs -o json | jq -r '.items[] | select(.state == "Waiting") | .name'
    """
    if name is None and not has_jobs:
        show(lambda: inspector.fetch_new(QUEUES_PATH) if output == "json" else _queues(inspector.queues()))
        return
    if limit is None:
        limit = 0 if output == "json" else ROWS
    wanted = {"limit": str(limit)} if limit else {}
    show(
        lambda: (
            inspector.fetch_new(queue_jobs_path(name or "", wanted))
            if output == "json"
            else _part(inspector.queued_jobs(name or "", wanted), is_wide=output == "wide", is_one=name is not None)
        )
    )


def _queues(queues: Sequence[QueueReport]) -> str:
    rows = [
        [
            printable(one.name),
            printable(one.vc),
            one.policy,
            str(one.waiting),
            str(one.running),
            str(one.borrowed),
            _amounts(one.used),
            _amounts(one.guaranteed, one.oversell),
            _amounts(one.max, one.oversell),
            click.style(_amounts(one.over), fg="red") if one.over else UNKNOWN,
        ]
        for one in queues
    ]
    return table(["QUEUE", "VC", "POLICY", ">WAITING", ">RUNNING", ">BORROWED", "USED", "MIN", "MAX", "OVER"], rows)


def _part(found: QueuedJobs, *, is_wide: bool, is_one: bool) -> str:
    more = found.total - len(found.items)
    told = f"\n{more:,} more: --limit 0 shows all" if more > 0 else ""
    return _jobs(found.items, is_wide=is_wide, is_one=is_one) + told


def _jobs(jobs: Sequence[QueuedJob], *, is_wide: bool, is_one: bool) -> str:
    if not jobs:
        return "No job is in a queue."
    now = datetime.now(UTC)
    rows = [
        [
            str(one.position) if one.position else UNKNOWN,
            printable(one.name),
            *([] if is_one else [printable(one.queue) or UNKNOWN]),
            str(one.priority) if one.queue else UNKNOWN,
            str(one.gpus or UNKNOWN),
            printable(one.user) or UNKNOWN,
            one.state,
            age(datetime.fromtimestamp(one.since, UTC).isoformat().replace("+00:00", "Z"), now),
            brief_when(one.when, now),
            printable(one.reason) or UNKNOWN,
        ]
        for one in jobs
    ]
    queue = [] if is_one else ["QUEUE"]
    headers = [">PLACE", "JOB", *queue, ">PRIORITY", ">GPUS", "USER", "STATE", ">FOR", "STARTS", "REASON"]
    return table(headers, rows) if is_wide else fitted(headers, rows)


def _amounts(amounts: dict[str, float], oversell: float = 1.0) -> str:
    shown = {name.rpartition("/")[2]: amount for name, amount in amounts.items() if amount and name != "memory"}
    times = "" if oversell == 1.0 else f" x{oversell:g}"
    return ", ".join(f"{amount:g} {name}{times}" for name, amount in shown.items()) or UNKNOWN
