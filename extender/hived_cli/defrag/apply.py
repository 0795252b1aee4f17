"""`hived defrag apply`: carry out a plan that was made before."""

import sys
from pathlib import Path

import click
import msgspec

from hived.errors import UserError
from hived_cli.defrag.helpers.following import begin, follow, return_option, tell, wait_option
from hived_cli.helpers.answers import as_json, format_option, json_option
from hived_cli.helpers.connecting import asks_service
from hived_extender.api.defrag import DefragPlan
from hived_extender.client.inspection import Inspector


@click.command("apply")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@return_option
@wait_option
@format_option
@json_option
@asks_service
def command(inspector: Inspector, file: Path, return_seconds: float, wait: bool, form: str, is_json: bool) -> None:
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
    report = begin(inspector, _read(file), return_seconds)
    if wait:
        report = follow(inspector, report)
    click.echo(as_json(report) if is_json or form == "json" else tell(report))
    raise SystemExit(1 if report.state == "stopped" else 0)


def _read(file: Path) -> DefragPlan:
    text: bytes = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        return msgspec.json.decode(text, type=DefragPlan)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UserError(f"{file}: {error}; expected what `hived defrag plan --format json` prints") from error
