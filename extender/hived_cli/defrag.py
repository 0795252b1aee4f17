"""`hived defrag`: plans of moves that make room, sent to a service and followed until they are over."""

import sys
import time
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.values.errors import UserError
from hived_cli.helpers.answers import FiniteRange, as_json, format_option, json_option
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.lazy import CommandGroup
from hived_cli.helpers.names import complete_jobs, find_jobs, one_of
from hived_cli.helpers.tables import table
from hived_config.loader import load_text
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api.defrag import (
    AutomaticMoves,
    DefragArgs,
    DefragPlan,
    Inputs,
    Move,
    MovingReport,
    PlannedPod,
    WantedOutcome,
)
from hived_extender.api.inspection import Inspector, NoAnswerError
from hived_extender.api.paths import DEFRAG_PATH, DEFRAG_STOP_PATH, INPUTS_PATH, MOVES_PATH
from hived_extender.insight.defrag.planner import Limits
from hived_extender.insight.defrag.puzzle import read_wants
from hived_extender.kube.clocks import timestamp


@click.group(cls=CommandGroup)
def command() -> None:
    """Make room in a virtual cluster whose free cells are scattered, by moving groups that allow it.

    \b
    Examples:
      hived defrag plan --vc research --want 2xNODE
      hived defrag plan --job training --apply
      hived defrag status
    """


INPUTS_TIMEOUT_S = 120.0


def read_inputs(inspector: Inspector, file: Path | None) -> Inputs:
    """The inputs in `file`, else of the service. Raises UserError that says where the mistake is."""
    if file is None:
        _, answer = inspector.ask(INPUTS_PATH, timeout_s=INPUTS_TIMEOUT_S)
        return inspector.decode(INPUTS_PATH, Inputs, answer)
    try:
        return msgspec.json.decode(file.read_bytes(), type=Inputs)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UserError(
            f"{file}: {error}; expected the JSON of GET {INPUTS_PATH}, which `hived defrag inputs` prints"
        ) from error


APPLY_TIMEOUT_S = 120.0
LOOK_S = 1.0
RETURN_S = 600.0

return_option = click.option(
    "--return-seconds", type=FiniteRange(min=1, max=86400), default=RETURN_S, show_default=True, metavar="N",
    help="How long pods may take to leave, and to come back, in each step.",
)  # fmt: skip
wait_option = click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the moves are over.")


def begin(inspector: Inspector, plan: DefragPlan, return_s: float) -> MovingReport:
    """Have the service carry a plan out. Raises UserError if it refuses."""
    body = msgspec.json.encode(DefragArgs(plan=plan, return_seconds=return_s))
    try:
        _, answer = inspector.ask(DEFRAG_PATH, body, timeout_s=APPLY_TIMEOUT_S)
    except NoAnswerError as error:
        raise NoAnswerError(f"{error}\nThe moves may have begun all the same: see hived defrag status", 503) from error
    except UserError as error:
        if error.code == HTTPStatus.CONFLICT:
            remedy = "; make the plan anew" if "any more" in error.message else ""
            raise UserError(f"no group was moved: {error.message}{remedy}", error.code) from error
        raise
    return inspector.decode(DEFRAG_PATH, MovingReport, answer)


def stop(inspector: Inspector) -> MovingReport:
    """Have the service begin no more moves."""
    return inspector.decode(DEFRAG_STOP_PATH, MovingReport, inspector.fetch(DEFRAG_STOP_PATH, b"{}"))


def look(inspector: Inspector) -> MovingReport:
    """The moves under way, or the last ones."""
    return inspector.get(MOVES_PATH, MovingReport)


def follow(inspector: Inspector, report: MovingReport) -> MovingReport:
    """Wait until the moves are over; each change of a move is a line on stderr."""
    shown: dict[str, str] = {}
    while True:
        for move in report.moves:
            if shown.get(move.group) != move.state:
                shown[move.group] = move.state
                click.echo(f"step {move.step}: {move.group} is {move.state}", err=True)
        if report.state != "moving":
            return report
        time.sleep(LOOK_S)
        later = look(inspector)
        if later.number != report.number:
            raise UserError("another leader has taken over, or another plan was begun: see hived defrag status", 503)
        report = later


def tell(report: MovingReport) -> str:
    """The moves as text, and the budgets of the service."""
    lines = ["No group has been moved since this replica began to lead."] if report.state == "none" else _moves(report)
    if report.automatic:
        lines += ["", _automatic(report.automatic)]
        lines += [
            f"{one.vc}: {one.last_look.reason}" for one in report.automatic if one.last_look and one.last_look.reason
        ]
    return "\n".join(lines)


def tell_stopped(report: MovingReport) -> str:
    """The answer to a stop as text."""
    return tell(report) if report.state != "none" else "No moves are under way: there is nothing to be stopped."


def _moves(report: MovingReport) -> list[str]:
    done = sum(move.state == "done" for move in report.moves)
    reason = f": {report.reason}" if report.reason else ""
    by = f" for {report.who}" if report.who else ""
    return [
        f"{report.state}{reason}; {done} of {counted(len(report.moves), 'group')} of {report.vc} moved{by}",
        *(f"  step {move.step}: {move.group} {move.state}" for move in report.moves),
    ]


def _automatic(automatic: Sequence[AutomaticMoves]) -> str:
    rows = []
    for one in automatic:
        groups = "-" if one.max_groups is None else f"{one.left_groups} of {one.max_groups}"
        last = one.last_look
        at = timestamp(last.at) if last else "-"
        look = [at, last.job or "-", last.outcome] if last else [at, "-", "-"]
        rows.append([one.vc, f"{one.left_gpu_hours:.2f} of {one.max_gpu_hours:g}", groups, *look])
    return table(["BY ITSELF", ">GPU-H LEFT THIS HOUR", ">GROUPS LEFT", "LOOKED AT", "JOB", "OUTCOME"], rows)


SHOWN_PLACES = 4


def draw(plan: DefragPlan) -> str:
    """The plan: what gets room, the moves in their order, and how good it is."""
    lines = [_headline(plan)]
    if plan.reason:
        lines.append(plan.reason)
    if plan.moves:
        lines += ["", _move_table(plan.moves)]
        lines += ["", _wanted_table(plan.wanted), "", _quality(plan)]
    return "\n".join(lines)


def _headline(plan: DefragPlan) -> str:
    met, wanted = sum(one.is_met for one in plan.wanted), len(plan.wanted)
    if plan.outcome == "nothing needed":
        return f"Nothing is needed: virtual cluster {plan.vc} has room for all {wanted} wanted."
    if plan.outcome == "not known":
        return (
            f"No plan was found: virtual cluster {plan.vc} has room for {plan.met_before} of {wanted} wanted. "
            "Whether moves could make more is not known."
        )
    if plan.outcome == "nothing possible":
        return f"Nothing is possible: virtual cluster {plan.vc} has room for {plan.met_before} of {wanted} wanted."
    moves = f"{len(plan.moves)} moves make" if len(plan.moves) > 1 else "1 move makes"
    return (
        f"{moves} room for {met} of {wanted} wanted in virtual cluster {plan.vc}, "
        f"{plan.met_before} had room before; {plan.lost_gpu_hours:.2f} GPU-hours are lost."
    )


def _move_table(moves: Sequence[Move]) -> str:
    rows = [
        [
            str(move.step),
            move.group,
            "guaranteed" if move.is_guaranteed else "opportunistic",
            _places(move.was),
            _places(move.becomes) if move.becomes else click.style("waits", fg="yellow"),
            f"{move.lost_gpu_hours:.2f}",
        ]
        for move in moves
    ]
    return table([">STEP", "GROUP", "USE", "FROM", "TO", ">GPU-H LOST"], rows)


def _wanted_table(wanted: Iterable[WantedOutcome]) -> str:
    rows = [
        [
            one.shape,
            click.style("room", fg="green") if one.is_met else click.style("no room", fg="red"),
            _places(one.places),
            ", ".join(one.preempts),
        ]
        for one in wanted
    ]
    return table(["WANTED", "", "AT", "PREEMPTS"], rows)


def _quality(plan: DefragPlan) -> str:
    if plan.is_optimal:
        return f"The plan is optimal ({plan.solver})."
    gaps = []
    if plan.gap_wanted:
        gaps.append(f"meet {plan.gap_wanted} more")
    if plan.gap_gpu_hours:
        gaps.append(f"lose {plan.gap_gpu_hours:.2f} GPU-hours less")
    if plan.gap_groups:
        gaps.append(f"move {counted(plan.gap_groups, 'group')} fewer")
    return f"The plan may not be optimal ({plan.solver}): a better one could {' or '.join(gaps)} at most."


def _places(places: Sequence[PlannedPod]) -> str:
    shown = [f"{one.node}:{_cells(one.cells)}" for one in places[:SHOWN_PLACES]]
    more = len(places) - SHOWN_PLACES
    return " ".join(shown) + (f" and {more} more" if more > 0 else "")


def _cells(cells: Sequence[int]) -> str:
    """Indices, with runs as `first-last`."""
    runs: list[list[int]] = []
    for cell in sorted(cells):
        if runs and cell == runs[-1][-1] + 1:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _waiting_name(inspector: Inspector, inputs: Inputs, name: str) -> str:
    """The name in the inputs of a job that the service knows by any of its names. Raises UserError if it has no part
    that waits for cells.
    """
    known = {each for one in inputs.waiting for each in (one.name, *one.pods)}
    if name in known:
        return name
    job = one_of(find_jobs(inspector, name, ""), name)
    found = next((each for each in (job.name, *job.aliases, *job.pods) if each in known), None)
    if found is None:
        if job.state in ("Waiting", "Held", "Refused"):
            why = f": {printable(job.sentence)}" if job.sentence else ""
            raise UserError(f"no plan would start {job.name}, which does not wait for cells alone{why}")
        told = f"it is {job.state.lower()}" + (f", and asks for {job.asks}" if job.asks else "")
        raise UserError(f"{job.name} waits for no cells: {told}")
    return found


EXIT_CODES = {"nothing possible": 3, "nothing needed": 4, "not known": 5}


@command.command("plan")
@click.option("--vc", metavar="NAME", default="", help="The virtual cluster that wants cells.")
@click.option(
    "--want", "wants", metavar="SHAPE", multiple=True,
    help="COUNTxCELLTYPE, such as 2xNODE, or one gang, PODSxLEAVES, such as 4x8. May be given several times.",
)  # fmt: skip
@click.option(
    "--job", metavar="NAME", default="", shell_complete=complete_jobs,
    help="Instead, a job that waits, by any of its names.",
)  # fmt: skip
@click.option(
    "--state", "state_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Instead of a service, its inputs as `hived defrag inputs` wrote them.",
)  # fmt: skip
@click.option("--max-gpu-hours", type=FiniteRange(min=0), metavar="N", help="Lose no more than so much work.")
@click.option("--max-groups", type=click.IntRange(min=1), metavar="N", help="Move no more groups than so many.")
@click.option("--apply", "is_applied", is_flag=True, help="Carry the plan out, as `hived defrag apply` does.")
@return_option
@format_option
@json_option
@asks_service
def plan_command(
    inspector: Inspector,
    vc: str,
    wants: tuple[str, ...],
    job: str,
    state_file: Path | None,
    form: str,
    is_json: bool,
    **options: Any,
) -> None:
    """Show which groups to move so that wanted cells become free, and change nothing, unless told to by --apply.

    Only groups that allow it are moved: their pods say may-move, or their virtual cluster is `movable`. A plan loses as
    little work as possible, then moves as few groups as possible; each move is tried in a copy of the scheduler first.
    The exit code is 0 for a plan, 3 if nothing is possible, 4 if nothing is needed, 5 if
    no plan was found although there may be one, and 1 for a mistake.

    \b
    Examples:
      hived defrag plan --vc research --want 2xNODE
      hived defrag plan --vc research --want 1xRACK --want 4x8 --max-gpu-hours 20
      hived defrag plan --job team:training --apply
      hived defrag inputs > inputs.json; hived defrag plan --vc research --want 2xNODE --state inputs.json --json
    """
    from hived_extender.insight.defrag.planner import PLAN, Task, job_shapes, plan  # noqa: PLC0415  # the core, for this alone

    if bool(job) == bool(wants):
        raise click.UsageError("name what is wanted: --vc NAME with --want SHAPE, or --job NAME")
    if options["is_applied"] and state_file is not None:
        raise click.UsageError("--apply and --state exclude each other: a file may be out of date")
    if wants and not vc:
        raise click.UsageError("--want needs --vc: which virtual cluster wants it?")
    shapes = read_wants(wants)
    inputs = read_inputs(inspector, state_file)
    if job:
        owner, shapes = job_shapes(inputs, job if state_file is not None else _waiting_name(inspector, inputs, job))
        if vc and vc != owner:
            raise UserError(f"{job} waits in virtual cluster {owner}, not in {vc}")
        vc = owner
    click.echo(f"planning for {counted(len(inputs.groups), 'group')} ...", err=True)
    configuration = load_text(inputs.configuration, "the configuration of the inputs", lenient=True)
    found = plan(
        Task(
            cluster=configuration.cluster,
            inputs=inputs,
            vc=vc,
            shapes=shapes,
            movable=configuration.rules.moving.movable,
            limits=Limits(options["max_gpu_hours"], options["max_groups"]),
        )
    )
    click.echo(as_json(found) if is_json or form == "json" else draw(found))
    if options["is_applied"] and found.outcome == PLAN:
        report = follow(inspector, begin(inspector, found, options["return_seconds"]))
        click.echo(tell(report), err=True)
        raise SystemExit(1 if report.state == "stopped" else 0)
    raise SystemExit(EXIT_CODES.get(found.outcome, 0))


@command.command("apply")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@return_option
@wait_option
@format_option
@json_option
@asks_service
def apply(inspector: Inspector, file: Path, return_seconds: float, wait: bool, form: str, is_json: bool) -> None:
    """Carry out a plan: evict its groups, one move after the other, and hold their new cells for them.

    FILE is a plan as `hived defrag plan --format json` prints it, - for stdin. The service tries it again on its
    present state and refuses it if it does not hold any more. Disruption budgets are respected. Cells are held for a
    group until its owner's controller has made new pods, but not for longer than --return-seconds. The exit code is 0
    if all groups have moved, and 1 if the plan is refused or was stopped.

    \b
    Examples:
      hived defrag plan --vc research --want 2xNODE --format json > plan.json
      hived defrag apply plan.json
    """
    report = begin(inspector, _read_plan(file), return_seconds)
    if wait:
        report = follow(inspector, report)
    click.echo(as_json(report) if is_json or form == "json" else tell(report))
    raise SystemExit(1 if report.state == "stopped" else 0)


def _read_plan(file: Path) -> DefragPlan:
    text: bytes = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        return msgspec.json.decode(text, type=DefragPlan)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UserError(f"{file}: {error}; expected what `hived defrag plan --format json` prints") from error


@command.command("status")
@format_option
@json_option
@asks_service
def status(inspector: Inspector, form: str, is_json: bool) -> None:
    """Show the moves under way, or the last ones, and the budgets of moves that the service makes by itself.

    \b
    Examples:
      hived defrag status
      hived defrag status --json | jq .moves
    """
    report = look(inspector)
    click.echo(as_json(report) if is_json or form == "json" else tell(report))


@command.command("stop")
@format_option
@json_option
@asks_service
def stop_command(inspector: Inspector, form: str, is_json: bool) -> None:
    """Move no further group, and free the held cells. Pods that were evicted come back like any others.

    The exit code is 0 too where no moves are under way.

    \b
    Examples:
      hived defrag stop
      hived defrag stop --json
    """
    report = stop(inspector)
    click.echo(as_json(report) if is_json or form == "json" else tell_stopped(report))


@command.command("inputs")
@asks_service
def inputs(inspector: Inspector) -> None:
    """Print all that a plan depends on: the configuration, who runs where, what is bad, and which jobs wait.

    The file holds the names of pods and the configuration: treat it like the answers of the service.

    \b
    Examples:
      hived defrag inputs > inputs.json
      hived defrag plan --state inputs.json --vc research --want 2xNODE
    """
    click.echo(msgspec.json.encode(read_inputs(inspector, None)))
