"""`hived config suggest`: other virtual clusters for a trace, with their simulated effect."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.cells.layout import build_topology
from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_cli.config.editing import replace_file
from hived_cli.config.given import find_file, takes_file
from hived_cli.helpers.answers import as_json, difference
from hived_cli.helpers.progress import Bar, stop_signal
from hived_cli.helpers.tables import table
from hived_cli.helpers.traces import backfill_option, tenants_option
from hived_config.document import read_text
from hived_config.loader import load_text
from hived_extender.api.certificates import CertifiedVc
from hived_extender.warm import NOT_COMPILED, load_kernels
from hived_simulator.certification import Stopped
from hived_simulator.fresh_file import OTHERS, Hardware, first_text
from hived_simulator.loop import Manner
from hived_simulator.plan import node_size
from hived_simulator.suggesting import Goal, Proposal, propose
from hived_simulator.tenants import ALL_OTHERS, assigned, with_known_models
from hived_simulator.traces.draft import Options as Reading
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.reading import NAMES, read_trace


class Share(msgspec.Struct, frozen=True):
    """The jobs of one virtual cluster that the trace does not call opportunistic, and the leaf cells promised to it.

    too_large : jobs that ask for more, and can start on idle cells alone
    """

    vc: str
    tenants: int
    jobs: int
    gpu_hours: float
    leaf_cells: int
    too_large: int


class Shares(msgspec.Struct, frozen=True):
    """A first configuration, and its shares in the order of the file."""

    text: str
    vcs: list[Share]


def shares(trace: Trace, cluster: ClusterSpec, vc_of: Mapping[str, str]) -> list[Share]:
    """The share of each virtual cluster. Cost O(jobs)."""
    promised = build_topology(cluster).promised_leaves()
    jobs, too_large = Counter[str](), Counter[str]()
    hours: dict[str, float] = dict.fromkeys(promised, 0.0)
    for job in trace.jobs:
        if job.priority != OPPORTUNISTIC_PRIORITY:
            vc = vc_of[job.tenant]
            jobs[vc] += 1
            hours[vc] += job.leaf_count * job.duration_s / 3600
            too_large[vc] += job.leaf_count > promised[vc]
    tenants = Counter(vc_of.values())
    return [
        Share(vc, tenants[vc], jobs[vc], round(hours[vc], 3), promised[vc], too_large[vc])
        for vc in cluster.virtual_clusters
    ]


def show_shares(
    trace: Trace, cluster: ClusterSpec, vc_of: Mapping[str, str], text: str, output: Path | None, *, is_json: bool
) -> None:
    """Print the configuration if it has no file, and the shares; as JSON both."""
    found = shares(trace, cluster, vc_of)
    if is_json:
        click.echo(as_json(Shares(text, found)))
        return
    if output is None:
        click.echo(text, nl=False)
    headers = ("VC", ">TENANTS", ">JOBS", ">GPU-HOURS", ">GPUS", ">JOBS TOO LARGE FOR IT")
    rows = [
        (one.vc, f"{one.tenants:,}", f"{one.jobs:,}", f"{one.gpu_hours:,.0f}", f"{one.leaf_cells:,}",
         f"{one.too_large:,}")
        for one in found
    ]  # fmt: skip
    click.echo(table(headers, rows), err=output is None)
    if output is not None:
        words = f" --tenants '{ALL_OTHERS}={OTHERS}'" if OTHERS in vc_of.values() else ""
        click.echo(f"{output}: written; simulate it with --config {output}{words}")


INTERRUPTED = 130
FRESH = "the suggested configuration"
SHARE = "share"
"""The goal that needs no search."""


@click.command("suggest")
@click.option(
    "--trace", "trace_path", required=True, metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="The jobs, in any format that `hived trace` reads; - is standard input.",
)  # fmt: skip
@click.option("--format", "trace_format", type=click.Choice(NAMES), default=None, help="Format of the trace.")
@click.option(
    "--goal", required=True, type=click.Choice([SHARE, *(each.value for each in Goal)]),
    help="share: nodes by GPU-hours, without a search; delay: least mean delay over all jobs; fair: least growth of "
    "any tenant's delay; shapes: cells that hold the gangs that occur.",
)  # fmt: skip
@takes_file
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path),
    help="The same as FILE, the configuration to begin with.  [default: one made for --nodes]",
)  # fmt: skip
@click.option(
    "--nodes", type=click.IntRange(min=1, max=100_000), metavar="N", help="Instead of --config: so many nodes."
)
@click.option("--gpus", type=click.IntRange(min=1, max=1024), default=8, show_default=True, help="GPUs of such a node.")
@click.option(
    "--rack",
    type=click.IntRange(min=1),
    metavar="N",
    help="Such nodes in a rack.  [default: 8, or all if fewer]",
)
@click.option(
    "--vcs", type=click.IntRange(min=1), metavar="N",
    help="With --nodes: at most so many virtual clusters; the smallest tenants share one, `others`.",
)  # fmt: skip
@tenants_option
@backfill_option
@click.option(
    "--replays", type=click.IntRange(min=1), default=150, show_default=True,
    help="The search replays the jobs of one virtual cluster at most so often.",
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Write the configuration there.  [default: show the difference]",
)  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print the proposal as JSON, its text included.")
def command(
    *,
    path: Path | None,
    trace_path: Path,
    trace_format: str | None,
    goal: str,
    output: Path | None,
    is_json: bool,
    **given: Any,
) -> None:
    """Suggest sizes and shapes of virtual clusters for a trace of jobs, with their simulated effect.

    The trace is replayed for each virtual cluster with more cells and with fewer. Cells move between virtual clusters,
    or come from the part that is promised to no one; with --goal shapes each keeps its GPUs, and lower cells become
    higher ones. At last the trace is replayed before and after. The result is the same on every machine. --goal share
    makes a first configuration for --nodes in a moment: tenants have nodes by their GPU-hours, and nothing is replayed.

    Comments and layout of the configuration are kept. Nothing is pushed: check the result and push it with
    `hived config push --certify`. The exit code is 0, also if nothing better was found; 130 if it was interrupted; 1
    for files that cannot be used; 2 for a wrong command line.

    \b
    Examples:
      hived config suggest --trace jobs.csv --goal share --nodes 312 --gpus 8 -o hivedscheduler.yaml
      hived config suggest --trace jobs.csv --goal delay --config hivedscheduler.yaml
      hived config suggest --trace jobs.csv --goal shapes --config hivedscheduler.yaml -o next.yaml
      hived config suggest --trace jobs.csv --goal fair --nodes 64 --gpus 8 --rack 8 -o hivedscheduler.yaml
    """
    config = _begin_with(path, goal, given)
    if output is not None and not output.parent.is_dir():  # a search takes a while
        raise UserError(f"cannot write {output}: there is no folder {output.parent}")
    trace, text, file = _inputs(trace_path, trace_format or "", config, Hardware(*_hardware(given)), given["vcs"])
    cluster = load_text(text, file, lenient=True, environ={}).cluster
    has_others = given["vcs"] is not None and OTHERS in cluster.virtual_clusters
    tenants = given["tenants"] or ([f"{ALL_OTHERS}={OTHERS}"] if has_others else [])
    vc_of = assigned(trace, cluster, tenants)
    if goal == SHARE:
        if output is not None:
            _write(output, text)
        show_shares(trace, cluster, vc_of, text, output, is_json=is_json)
        return
    found = _search(text, file, trace, vc_of, Goal(goal), given["replays"], has_backfill=given["has_backfill"])
    if output is not None:
        _write(output, found.text)
    if is_json:
        click.echo(as_json(found))
        return
    _show(found)
    if output is not None:
        named = "TRACE" if str(trace_path) == "-" else click.format_filename(trace_path)
        click.echo(f"{output}: written; push it with `hived config push {output} --certify {named}`")
    elif config is None:
        click.echo(found.text, nl=False)
    elif found.text != text:
        click.echo("\n".join(difference(text, found.text, file, f"{file}, suggested")))


def _write(output: Path, text: str) -> None:
    if output.exists():
        replace_file(output, text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror}") from error


def _begin_with(path: Path | None, goal: str, given: dict[str, Any]) -> Path | None:
    """The configuration to begin with; None for a new one. Raises UsageError for options that exclude each other."""
    config: Path | None = path or given["config"]
    if path is not None and given["config"] is not None:
        raise click.UsageError("expected one configuration, found FILE and --config FILE")
    if (config is None) == (given["nodes"] is None):
        raise click.UsageError("expected either FILE (or --config FILE), or --nodes N for a new configuration")
    if config is not None and (goal == SHARE or given["vcs"]):
        raise click.UsageError("--goal share and --vcs make a new configuration: expected --nodes N, not a file")
    return config


def _hardware(given: dict[str, Any]) -> tuple[int, int, int]:
    nodes = given["nodes"] or 1
    return nodes, given["gpus"], given["rack"] or min(nodes, 8)


def _inputs(
    trace_path: Path, trace_format: str, config: Path | None, hardware: Hardware, most_vcs: int | None
) -> tuple[Trace, str, str]:
    """The trace, and the text to begin with and its name."""
    if config is not None:
        found = find_file(config)
        file = click.format_filename(found)
        text = read_text(found, file)
        size = node_size(load_text(text, file, lenient=True, environ={}).cluster)
        trace = read_trace(trace_path, trace_format, Reading(node_leaf_cells=size))
    else:
        trace = read_trace(trace_path, trace_format, Reading(node_leaf_cells=hardware.gpus))
        text, file = first_text(trace, hardware, most_vcs), FRESH
    trace = with_known_models(trace, [load_text(text, file, lenient=True, environ={}).cluster])
    for note in trace.notes:
        click.echo(f"{trace.name}: {note}", err=True)
    return trace, text, file


def _search(
    text: str, file: str, trace: Trace, vc_of: Mapping[str, str], goal: Goal, replays: int, *, has_backfill: bool
) -> Proposal:
    """The proposal of at most so many replays, with progress on stderr. An interruption ends the command."""
    if not load_kernels():
        click.echo(NOT_COMPILED, err=True)
    with stop_signal() as stop:
        try:
            return propose(
                text, file, trace.jobs, vc_of, goal, replays, Manner(has_backfill=has_backfill),
                lambda part: Bar(part, stop.is_set),
            )  # fmt: skip
        except Stopped:
            click.echo("interrupted: nothing was written", err=True)
            raise SystemExit(INTERRUPTED) from None


def _show(found: Proposal) -> None:
    click.echo(click.style("Changes", bold=True))
    for sentence in found.changes or ["nothing better was found"]:
        click.echo(f"  {sentence}")
    if not found.is_complete:
        click.echo(
            f"  the search ended after {found.replays} replays; more of them (--replays) may find more", err=True
        )
    for note in found.notes:
        click.echo(f"  {note}")
    click.echo(click.style("Effect", bold=True))
    rows = [_row(found, one) for one in found.vcs]
    headers = ("VC", ">JOBS", "CELLS", ">MEAN DELAY, MIN", ">NEW DELAY, MIN", ">LATER THAN PRIVATE", ">NEVER START")
    click.echo("\n".join(f"  {line}" for line in table(headers, rows).splitlines()))
    click.echo(
        f"  mean delay of all jobs: {_mean(found, 'old_delay_s'):,.1f} min, then {_mean(found, 'new_delay_s'):,.1f}"
    )
    click.echo(f"  GPUs in use: {found.utilisation_before:.1%}, then {found.utilisation_after:.1%}")


def _row(found: Proposal, one: CertifiedVc) -> tuple[str, ...]:
    minutes = (f"{seconds / 60:,.1f}" for seconds in (one.old_delay_s, one.new_delay_s))
    never = found.never.get(one.vc, (0, 0))
    told = f"{never[1]:,}" if never[0] == never[1] else f"{never[0]:,} -> {never[1]:,}"
    return one.vc, f"{one.jobs:,}", _cells(found, one.vc), *minutes, f"{one.later:,}", told


def _cells(found: Proposal, vc: str) -> str:
    if vc not in found.cells:
        return "as before"
    before, after = found.cells[vc]
    types = dict.fromkeys([*before, *after])
    told: Sequence[str] = [
        f"{each.rpartition('.')[2]} {before.get(each, 0)} -> {after.get(each, 0)}"
        for each in types
        if before.get(each, 0) != after.get(each, 0)
    ]
    return ", ".join(told)


def _mean(found: Proposal, field: str) -> float:
    """Minutes, over the jobs of all virtual clusters."""
    jobs = sum(one.jobs for one in found.vcs)
    return sum(getattr(one, field) * one.jobs for one in found.vcs) / jobs / 60 if jobs else 0.0
