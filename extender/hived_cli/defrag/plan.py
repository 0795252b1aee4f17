"""`hived defrag plan`: which groups to move so that wanted cells become free."""

from pathlib import Path
from typing import Any

import click

from hived.errors import UserError
from hived_cli.defrag.helpers.asking import read_inputs
from hived_cli.defrag.helpers.drawing import draw
from hived_cli.defrag.helpers.following import begin, follow, return_option, tell
from hived_cli.helpers.answers import as_json, format_option, json_option
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.numbers import FiniteRange
from hived_config.loader import load_text
from hived_extender.client.inspection import Inspector
from hived_extender.defrag.limits import Limits
from hived_extender.defrag.planner import NOT_KNOWN, NOTHING_NEEDED, NOTHING_POSSIBLE, PLAN, Task, job_shapes, plan
from hived_extender.defrag.solvers import SOLVERS, solver
from hived_extender.defrag.wants import read_wants

EXIT_CODES = {NOTHING_POSSIBLE: 3, NOTHING_NEEDED: 4, NOT_KNOWN: 5}


@click.command("plan")
@click.option("--vc", metavar="NAME", default="", help="The virtual cluster that wants cells.")
@click.option(
    "--want", "wants", metavar="SHAPE", multiple=True,
    help="COUNTxCELLTYPE, such as 2xNODE, or one gang, PODSxLEAVES, such as 4x8. May be given several times.",
)  # fmt: skip
@click.option("--job", metavar="NAME", default="", help="Instead, a job that waits: its affinity group, gang or pod.")
@click.option(
    "--state", "state_file", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
    help="Instead of a service, its inputs as `hived defrag inputs` wrote them.",
)  # fmt: skip
@click.option("--max-gpu-hours", type=FiniteRange(min=0), metavar="N", help="Lose no more than so much work.")
@click.option("--max-groups", type=click.IntRange(min=1), metavar="N", help="Move no more groups than so many.")
@click.option(
    "--solver", type=click.Choice(SOLVERS), default=SOLVERS[0], show_default=True,
    help="cp-sat needs the extra `opt` of the package.",
)  # fmt: skip
@click.option("--apply", "is_applied", is_flag=True, help="Carry the plan out, as `hived defrag apply` does.")
@return_option
@format_option
@json_option
@asks_service
def command(
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
    if bool(job) == bool(wants):
        raise click.UsageError("name what is wanted: --vc NAME with --want SHAPE, or --job NAME")
    if options["is_applied"] and state_file is not None:
        raise click.UsageError("--apply and --state exclude each other: a file may be out of date")
    if wants and not vc:
        raise click.UsageError("--want needs --vc: which virtual cluster wants it?")
    shapes = read_wants(wants)
    solve = solver(options["solver"])
    inputs = read_inputs(inspector, state_file)
    if job:
        owner, shapes = job_shapes(inputs, job)
        if vc and vc != owner:
            raise UserError(f"{job} waits in virtual cluster {owner}, not in {vc}")
        vc = owner
    click.echo(f"planning for {len(inputs.groups)} groups ...", err=True)
    configuration = load_text(inputs.configuration, "the configuration of the inputs", lenient=True)
    found = plan(
        Task(
            cluster=configuration.cluster,
            inputs=inputs,
            vc=vc,
            shapes=shapes,
            movable=configuration.rules.moving.movable,
            limits=Limits(options["max_gpu_hours"], options["max_groups"]),
            solver=options["solver"],
            solve=solve,
        )
    )
    click.echo(as_json(found) if is_json or form == "json" else draw(found))
    if options["is_applied"] and found.outcome == PLAN:
        report = follow(inspector, begin(inspector, found, options["return_seconds"]))
        click.echo(tell(report), err=True)
        raise SystemExit(1 if report.state == "stopped" else 0)
    raise SystemExit(EXIT_CODES.get(found.outcome, 0))
