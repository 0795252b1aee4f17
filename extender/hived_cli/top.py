"""`hived top`: the virtual clusters, the jobs that wait, and the bad nodes, live."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby

import click
import msgspec

from hived_cli.helpers.answers import as_json, output_option
from hived_cli.helpers.connecting import asks_api_server, asks_service, unwatched_jobs
from hived_cli.helpers.names import complete_vcs, of_vc
from hived_cli.helpers.tables import table
from hived_cli.helpers.waits import age, job_table
from hived_cli.helpers.watching import follow, interval_option, is_live
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api.inspection import Inspector
from hived_extender.api.waiting import WAITING_STATES, FreeCells, Job, JobState, NodeView, leaf_rows, with_records
from hived_extender.kube.client import KubeClient

QUEUED = "50"
"""Jobs of queues that are shown, first ones first."""

BAD_COUNT = 8
"""Bad nodes that are shown, so that waiting jobs have room below."""


class Frame(msgspec.Struct, frozen=True):
    """All that is shown at a moment. So many jobs of queues as `more_queued` wait behind those of `jobs`."""

    at: str
    free_cells: list[FreeCells]
    bad_nodes: list[NodeView]
    jobs: list[Job]
    more_queued: int = 0


@click.command("top")
@click.option(
    "--vc", default="", metavar="NAME", help="This virtual cluster and its jobs alone.", shell_complete=complete_vcs
)
@output_option
@interval_option("From one look to the next, on a terminal.")
@asks_api_server
@asks_service
def command(
    *, inspector: Inspector, connect: Callable[..., KubeClient | None], vc: str, output: str, interval_s: float
) -> None:
    """Show the virtual clusters, the bad nodes and the jobs that wait, live.

    For each virtual cluster and chain: GPUs that are promised, in use, lent and bad, those in use included, and how
    many cells of each size could start a job now. Waiting jobs stand in the order in which they are served, each with
    the reason and its start; of those in queues the first 50, with how many more there are. The screen is drawn anew
    when something has changed. The key q ends it, and so does Ctrl-C, with exit code 130.

    Where the output is no terminal, one frame is printed as plain text. So it is with -o json.

    \b
    Examples:
      hived top
      hived top --vc research --interval 10
      hived top | mail -s 'the cluster this morning' me
      hived top -o json | jq '.jobs | length'
    """

    def frame() -> Frame:
        return _frame(inspector, connect, vc)

    if output == "json":
        click.echo(as_json(frame()))
    elif is_live():
        follow(inspector, lambda: _drawn(frame(), inspector.server), interval_s, leaves_last=False)
    else:
        click.echo(_drawn(frame(), inspector.server))


def _frame(inspector: Inspector, connect: Callable[..., KubeClient | None], vc: str) -> Frame:
    held = [job for job in unwatched_jobs(connect) if vc in ("", job.vc)]
    jobs = inspector.jobs({"vc": [vc], "queued": [QUEUED]})
    asked = {"vc": vc, "waiting": "1", "limit": "1"}
    queued = inspector.queued_jobs("", asked).total if any(job.queue for job in jobs) else 0
    return Frame(
        datetime.now(UTC).isoformat(timespec="seconds"),
        of_vc(inspector.free_cells(), vc),
        inspector.nodes(is_bad=True),
        with_records(jobs, held),
        max(queued - int(QUEUED), 0),
    )


_COUNTED: Sequence[JobState] = (*WAITING_STATES, "Starting", "Running", "Leaving")


def _drawn(frame: Frame, server: str) -> str:
    now = datetime.fromisoformat(frame.at)
    waiting = [job for job in frame.jobs if job.state in WAITING_STATES]
    by_state = Counter(job.state for job in frame.jobs)
    counts = [f"{by_state[name]} {name.lower()}" for name in _COUNTED if by_state[name] or name == "Waiting"]
    counts += [f"{frame.more_queued:,} more in queues"] if frame.more_queued else []
    bad = counted(len(frame.bad_nodes), "bad node")
    lines = [f"{click.style('hived', bold=True)} {server}   jobs: {', '.join(counts)}   {bad}", ""]
    lines += [_clusters(frame.free_cells), ""]
    if frame.bad_nodes:
        lines += [*_bad(frame.bad_nodes, now), ""]
    lines.append(job_table(waiting, now, title="WAITING JOB") if waiting else "No job waits.")
    lines += [f"and {frame.more_queued:,} more in queues: hived get queue --jobs"] if frame.more_queued else []
    return "\n".join(lines)


def _clusters(cells: Sequence[FreeCells]) -> str:
    rows, last = [], ""
    for (vc, chain), found in groupby(cells, key=lambda one: (one.vc, one.chain)):
        by_size = sorted(found, key=lambda one: -one.leaves)
        gpus = leaf_rows(by_size)  # those of pinned cells as well
        counts = [sum(getattr(one, name) for one in gpus) for name in ("promised", "in_use", "lent", "borrowed")]
        bad = sum(one.bad + one.in_use_bad for one in gpus)
        shown_bad = click.style(str(bad), fg="red") if bad else "0"
        rows.append(["" if vc == last else printable(vc), chain, *map(str, counts), shown_bad, _free(by_size)])
        last = vc
    return table(["VC", "CHAIN", ">GPUS", ">IN USE", ">LENT", ">BORROWED", ">BAD", "FREE NOW"], rows)


def _free(by_size: Iterable[FreeCells]) -> str:
    """The free cells of each level, as in `2 NODE, 8 GPU`."""
    free: dict[str, int] = {}
    for one in by_size:
        free[one.level] = free.get(one.level, 0) + one.free
    return ", ".join(f"{count} {level}" for level, count in free.items() if count) or "none"


def _bad(nodes: Sequence[NodeView], now: datetime) -> Iterator[str]:
    rows = [[printable(one.node), printable(one.reason), age(one.since, now)] for one in nodes[:BAD_COUNT]]
    yield table(["BAD NODE", "REASON", ">FOR"], rows)
    if len(nodes) > BAD_COUNT:
        yield f"and {len(nodes) - BAD_COUNT} more: hived get nodes --bad"
