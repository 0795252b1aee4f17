"""Plans carried out: sent to a service, and followed until the moves are over."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus

import click
import msgspec

from hived.errors import UserError
from hived_cli.helpers.numbers import FiniteRange
from hived_cli.helpers.tables import table
from hived_extender.api.defrag import AutomaticMoves, DefragArgs, DefragPlan, MovingReport
from hived_extender.api.paths import DEFRAG_PATH, DEFRAG_STOP_PATH, MOVES_PATH
from hived_extender.client.inspection import Inspector, NoAnswerError

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
            raise UserError(f"nobody was moved: {error.message}{remedy}", error.code) from error
        raise
    return inspector.decode(DEFRAG_PATH, MovingReport, answer)


def stop(inspector: Inspector) -> MovingReport:
    """Have the service move nobody else."""
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
    lines = ["Nobody has been moved since this replica began to lead."] if report.state == "none" else _moves(report)
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
        f"{report.state}{reason}; {done} of {len(report.moves)} groups of {report.vc} moved{by}",
        *(f"  step {move.step}: {move.group} {move.state}" for move in report.moves),
    ]


def _automatic(automatic: Sequence[AutomaticMoves]) -> str:
    rows = []
    for one in automatic:
        groups = "-" if one.max_groups is None else f"{one.left_groups} of {one.max_groups}"
        last = one.last_look
        at = datetime.fromtimestamp(last.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if last else "-"
        look = [at, last.job or "-", last.outcome] if last else [at, "-", "-"]
        rows.append([one.vc, f"{one.left_gpu_hours:.2f} of {one.max_gpu_hours:g}", groups, *look])
    return table(["BY ITSELF", ">GPU-H LEFT THIS HOUR", ">GROUPS LEFT", "LOOKED AT", "JOB", "OUTCOME"], rows)
