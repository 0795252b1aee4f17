"""`hived simulate`: runs a trace on the scheduler in virtual time, and on others beside it."""

import time
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.values.errors import UserError
from hived_cli.helpers.lazy import CommandGroup
from hived_cli.helpers.progress import Bar, stop_signal
from hived_cli.helpers.tables import table
from hived_cli.helpers.traces import Duration, backfill_option, tenants_option
from hived_extender.warm import NOT_COMPILED, load_kernels
from hived_simulator.campaign import Campaign, Progress
from hived_simulator.plan import (
    AGAINST,
    BASELINES,
    CONFIG,
    LENDING,
    Options,
    OverQuota,
    Plan,
    config_in,
    folder_of,
    make_plan,
    trace_in,
)
from hived_simulator.queued import NAMES as QUEUES
from hived_simulator.report.page import NAME, write_pictures, write_report
from hived_simulator.results import Summary
from hived_simulator.tenants import IGNORED
from hived_simulator.traces.reading import NAMES
from hived_simulator.writing import as_json

SAVE_S = 60.0
INTERRUPTED = 130


@click.command()
@click.argument("folder", required=False)
@click.option(
    "-f", "--config", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"The configuration: the cluster and its virtual clusters.  [default: {CONFIG} of FOLDER]",
)  # fmt: skip
@click.option(
    "--trace", "trace_path", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="The jobs, in any format that `hived trace` reads; - is standard input.  [default: trace.* of FOLDER]",
)  # fmt: skip
@click.option("--format", "trace_format", type=click.Choice(NAMES), help="Format of the trace.  [default: recognised]")
@click.option(
    "--out", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results, made if missing.  [default: the name of FOLDER with -results]",
)  # fmt: skip
@click.option(
    "--against", multiple=True, metavar="POLICY",
    help=f"Another scheduler on the same trace: {', '.join(BASELINES)}, {LENDING}, {LENDING}:30m with checkpoints,"
    f" {', '.join(QUEUES)}, or the FILE of another configuration.  [default: with FOLDER all of these but queues]",
)  # fmt: skip
@click.option(
    "--what", multiple=True, metavar="CHANGE",
    help="Change of the cluster: drain=CELL@TIME, cordon=, fail=, heal=; add=2xCELLTYPE@TIME; push=FILE@TIME.",
)  # fmt: skip
@tenants_option
@click.option(
    "--over-quota", type=click.Choice([each.value for each in OverQuota]), default=OverQuota.WAIT.value,
    show_default=True, help="Guaranteed jobs that have no room in their virtual cluster.",
)  # fmt: skip
@backfill_option
@click.option(
    "--checkpoint", "checkpoint_s", type=Duration(), metavar="TIME",
    help="Evicted jobs keep their work up to the last multiple of this; 0: nothing.  [default: as the trace says]",
)  # fmt: skip
@click.option(
    "--grace", "grace_s", type=Duration(), default="0s", show_default=True, metavar="TIME",
    help="From the decision that victims leave until they are gone.",
)  # fmt: skip
@click.option(
    "--lazy-preemption", "is_lazy", is_flag=True, help="Preempted guaranteed jobs go on as opportunistic ones."
)
@click.option(
    "--opportunistic-share", type=float, default=0.0, show_default=True, metavar="SHARE",
    help="Share of the jobs that are made opportunistic, from 0 to 1.",
)  # fmt: skip
@click.option(
    "--limits", "limit_factor", type=float, default=2.0, show_default=True, metavar="FACTOR",
    help="In queues, jobs declare so many times their duration as their limit, rounded up; 0: none declares any.",
)  # fmt: skip
@click.option(
    "--without-limit", "unlimited_share", type=float, default=0.0, show_default=True, metavar="SHARE",
    help="In queues, the share of the jobs that declare no limit, from 0 to 1.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything that is drawn.")
@click.option(
    "--resample", "draws", type=int, default=0, show_default=True, metavar="N",
    help="Run N times more with durations drawn from those of its tenant's jobs of its size,"
    " for confidence intervals.",
)  # fmt: skip
@click.option(
    "--every", "every_s", type=Duration(), default="10m", show_default=True, metavar="TIME",
    help="From one row of series.csv to the next.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in DIR; an error if there is none.")
@click.option("--json", "has_json", is_flag=True, help="Print the totals as JSON.")
@click.pass_context
def run(ctx: click.Context, /, *, folder: str | None, out: Path | None, **given: Any) -> None:
    """Run a trace of jobs on the scheduler in virtual time, and on others for comparison.

    It needs no Kubernetes. The core decides, with preemption, bad nodes and changes of the configuration. Jobs of a
    virtual cluster start in the order in which they were submitted. Results are files in DIR: report.html to look at,
    run.json, vcs.csv, vcs.json and differences.csv, and for each policy jobs.csv and series.csv. A summary goes to
    standard output. `hived simulate report DIR...` makes the page anew, also of several simulations.

    FOLDER has a configuration and a trace; `philly` is one that comes with hived.

    Ctrl-C writes a checkpoint, as each minute does; the same command goes on from it. The exit code is 0 if all is
    done, and 130 if it was interrupted. It is 1 for files that cannot be used, 2 for a wrong command line.

    \b
    Examples:
      hived simulate philly
      hived simulate --config hivedscheduler.yaml --trace jobs.csv --against private --out results
      hived simulate --config now.yaml --trace jobs.csv --against next.yaml --resample 20 --out results
      hived simulate --config now.yaml --trace jobs.csv --what drain=rack-3@2h --what push=next.yaml@1d --out results
      hived simulate --config now.yaml --trace jobs.csv --over-quota opportunistic --checkpoint 30m --out results
    """
    is_resumed, has_json = given.pop("resume"), given.pop("has_json")
    try:
        given["trace_format"] = given["trace_format"] or ""
        config, trace_path, out = _inputs(folder, given, out)
        plan = make_plan(config, trace_path, msgspec.convert(given, Options, strict=False))
        campaign = Campaign(plan, out)
    except UserError as error:
        raise click.ClickException(str(error)) from error
    if is_resumed and not campaign.is_resumed:
        raise click.ClickException(f"{out}: no checkpoint to go on from; leave --resume out to begin")
    for note in plan.trace.notes:
        if note.startswith(IGNORED):
            click.echo(note, err=True)
    if not load_kernels():
        click.echo(NOT_COMPILED, err=True)
    if campaign.is_resumed:
        click.echo("going on from the checkpoint", err=True)
    bar = Bar()

    def tell(progress: Progress) -> None:
        where = progress.policy + (f", draw {progress.draw}" if progress.draw else "")
        bar(progress.done, progress.total, f"{where}, day {progress.at_s / 86400:.1f}")

    with stop_signal() as stop:
        is_done = campaign.run(tell, stop.is_set, time.monotonic, SAVE_S)
    if not is_done:
        how = f"goes on from the checkpoint in {out}" if campaign.can_resume else "begins anew, as it has queues"
        click.echo(f"interrupted; the same command {how}", err=True)
        ctx.exit(INTERRUPTED)
    write_report([out], out / NAME)
    totals = campaign.totals()
    if has_json:
        click.echo(as_json(totals), nl=False)
    else:
        click.echo(_summary(plan, totals))
        click.echo(f"look at {out / NAME}", err=True)


def _inputs(folder: str | None, given: dict[str, Any], out: Path | None) -> tuple[Path, Path, Path]:
    """Configuration, trace and folder of results, which FOLDER has unless options name them; they leave `given`."""
    config, trace = given.pop("config"), given.pop("trace_path")
    if folder is not None:
        found = folder_of(folder)
        config, trace = config or config_in(found), trace or trace_in(found)
        out = out or Path(f"{found.resolve().name}-results")
        given["against"] = given["against"] or AGAINST
    missing = [name for name, value in (("--config", config), ("--trace", trace), ("--out", out)) if value is None]
    if missing or out is None:
        raise click.UsageError(f"missing {', '.join(missing)}; or name a FOLDER that has a configuration and a trace")
    return config, trace, out


def _summary(plan: Plan, totals: dict[str, Summary]) -> str:
    rows = []
    for policy in plan.policies:
        total = totals[policy.name]
        delay = total.delay
        mean, *ranks = (f"{seconds / 60:.1f}" for seconds in (delay.mean, delay.p50, delay.p95, delay.max))
        later = "" if total.later is None else f"{total.later.count}"
        lost = f"{total.lost_leaf_hours:.1f}"
        work = (f"{total.utilisation:.1%}", str(total.evictions), lost)
        rows.append((policy.name, mean, total.never_told, *ranks, later, *work))
    headers = (
        "POLICY", ">MEAN DELAY, MIN", ">NEVER STARTED", ">P50", ">P95", ">MAX", ">LATER THAN PRIVATE", ">USED",
        ">EVICTIONS", ">GPU-H LOST",
    )  # fmt: skip
    return table(headers, rows)


@click.command()
@click.argument(
    "folders", nargs=-1, required=True, metavar="DIR...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)  # fmt: skip
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help=f"Write the page to this file.  [default: {NAME} in the first DIR]",
)  # fmt: skip
@click.option(
    "--svg", "pictures", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
    help="Instead of the page, write each plot as a file of its own, with its legend, to this folder.",
)  # fmt: skip
def report(*, folders: tuple[Path, ...], output: Path | None, pictures: Path | None) -> None:
    """Make the page of results anew, also of several simulations beside each other.

    DIR is a folder that `hived simulate --out` wrote. The page is one file of HTML with plots and tables, without
    scripts; it works offline. A policy that is the same in several folders is shown once. The exit code is 0 if it is
    written, 1 if results are missing or damaged, 2 for a wrong command line.

    \b
    Examples:
      hived simulate report results
      hived simulate report monday tuesday -o both.html
      hived simulate report results --svg plots
    """
    if pictures is not None:
        if output is not None:
            raise click.UsageError("give -o for the page or --svg for plots, not both")
        for path in write_pictures(folders, pictures):
            click.echo(path)
        return
    target = folders[0] / NAME if output is None else output
    write_report(folders, target)
    click.echo(f"{target}: {target.stat().st_size / 1000:.0f} kB")


class Simulate(CommandGroup):
    """A group that is a command itself: `hived simulate FOLDER`, and `hived simulate report DIR`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the words for the subcommand that the first one names, else for the command itself."""
        if args and args[0] in self.commands:
            above = click.Context(click.Group(info_name), info_name=info_name, parent=parent)
            return self.commands[args[0]].make_context(args[0], args[1:], parent=above, **extra)
        return run.make_context(info_name, args, parent, **extra)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The subcommand of that name, else the command itself: the word is then one of its own."""
        return self.commands.get(cmd_name, run)


command = Simulate(name="simulate", commands={"report": report}, help=run.help, params=run.params)
