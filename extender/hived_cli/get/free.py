"""`hived get free`: how many cells of each level virtual clusters could start jobs on."""

from collections.abc import Sequence

import click

from hived_cli.helpers.completing import complete_vcs
from hived_cli.helpers.forms import output_option
from hived_cli.helpers.names import of_vc
from hived_cli.helpers.tables import table
from hived_cli.helpers.watching import Show, watches
from hived_config.reader import printable
from hived_extender.api.paths import FREE_CELLS_PATH
from hived_extender.api.waiting import FreeCells
from hived_extender.client.inspection import Inspector


@click.command("free")
@click.argument("name", required=False, shell_complete=complete_vcs)
@watches
@output_option
def command(*, inspector: Inspector, show: Show, name: str | None, output: str) -> None:
    """Show how many cells of each size virtual clusters could start jobs on now.

    FREE counts cells of a level that could start a guaranteed job at once. Lent ones are among them, since borrowers
    leave. IN USE counts cells that a guaranteed job uses or has reserved, bad ones too; BAD counts the other bad ones.
    A cell that is counted at its level counts with its parts below, too. BORROWED is in use beyond the promise, by
    opportunistic jobs.

    \b
    Examples:
      hived get free
      hived get free research --watch
      hived get free -o json
    """
    show(
        lambda: (
            inspector.fetch_new(FREE_CELLS_PATH) if output == "json" else _drawn(of_vc(inspector.free_cells(), name))
        )
    )


def _drawn(cells: Sequence[FreeCells]) -> str:
    rows, last = [], ("", "")
    for one in cells:
        key = (one.vc, one.chain)
        vc = "" if one.vc == last[0] else printable(one.vc)
        counts = (one.promised, one.in_use, one.lent, one.bad, one.free, one.borrowed)
        rows.append([vc, "" if key == last else one.chain, one.level, f"{one.leaves}", *map(str, counts)])
        last = key
    headers = ["VC", "CHAIN", "LEVEL", ">GPUS", ">PROMISED", ">IN USE", ">LENT", ">BAD", ">FREE", ">BORROWED"]
    return table(headers, rows)
