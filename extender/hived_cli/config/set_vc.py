"""`hived config set-vc`: other numbers of cells for one virtual cluster."""

import re

import click

from hived_cli.config.helpers.answering import AnsweringCommand
from hived_cli.config.helpers.editing import Edit, edits
from hived_config.loader import load_text
from hived_config.reader import closest
from hived_config.text.edits import set_vc


@click.command("set-vc", cls=AnsweringCommand)
@click.argument("name")
@click.argument("cells", metavar="CELLTYPE=N...", nargs=-1, required=True)
@edits
def command(name: str, cells: tuple[str, ...]) -> Edit:
    """Set how many cells a virtual cluster is promised.

    A virtual cluster that does not exist is added. 0 takes a cell type away; types that are not named stay as they are.
    A CELLTYPE is a path down a chain such as RACK.NODE, or its last part where only one chain has it. Comments and
    layout of the configuration are kept.

    The configuration of the running service is edited: its plan is shown, and pushed when you agree. With -f a file is
    edited in its place.

    \b
    Examples:
      hived config set-vc research RACK=2 NODE=1
      hived config set-vc research NODE=0 --message "the project has ended"
      hived config set-vc research RACK=2 -f hivedscheduler.yaml --dry-run
    """
    given: dict[str, int] = {}
    for each in cells:
        match = re.fullmatch(r"(.+)=([0-9]{1,10})", each)
        if match is None or match[1] in given:
            expected = "a cell type and a number, such as RACK.NODE=2, each type once"
            raise click.BadParameter(f"found {each!r}, expected {expected}", param_hint="CELLTYPE=N")
        given[match[1]] = int(match[2])

    def make(text: str, file: str) -> str:
        edited = set_vc(text, name, given, file)
        _tell_new(text, file, name)
        return edited

    return Edit(f"set-vc {name} {' '.join(cells)}", make)


def _tell_new(text: str, file: str, name: str) -> None:
    """A new name may be a typing error."""
    names = list(load_text(text, file, lenient=True, environ={}).cluster.virtual_clusters)
    if name not in names:
        near = closest(name, names)
        click.echo(f"{name} is a new virtual cluster" + (f" (did you mean {near}?)" if near else ""), err=True)
