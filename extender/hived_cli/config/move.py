"""`hived config move`: cells of one virtual cluster for another one."""

import click

from hived_cli.config.helpers.answering import AnsweringCommand
from hived_cli.config.helpers.editing import Edit, edits
from hived_config.text.edits import move_cells


@click.command("move", cls=AnsweringCommand)
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@click.argument("cell_type", metavar="CELLTYPE")
@click.argument("_from", metavar="from", type=click.Choice(["from"]))
@click.argument("from_vc", metavar="VC")
@click.argument("_to", metavar="to", type=click.Choice(["to"]))
@click.argument("to_vc", metavar="VC")
@edits
def command(count: int, cell_type: str, _from: str, from_vc: str, _to: str, to_vc: str) -> Edit:
    """Give cells of one virtual cluster to another one.

    A CELLTYPE is a path down a chain such as RACK.NODE, or its last part where only one chain has it. Pinned cells
    stay. Comments and layout of the configuration are kept.

    The configuration of the running service is edited: its plan is shown, and pushed when you agree. With -f a file is
    edited in its place.

    \b
    Examples:
      hived config move 2 NODE from research to training
      hived config move 1 RACK.NODE from research to training --message "for the release" --yes
      hived config move 2 NODE from research to training -f hivedscheduler.yaml
    """
    summary = f"move {count} {cell_type} from {from_vc} to {to_vc}"
    return Edit(summary, lambda text, file: move_cells(text, count, cell_type, from_vc, to_vc, file))
