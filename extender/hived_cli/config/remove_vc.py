"""`hived config remove-vc`: a virtual cluster less."""

import click

from hived_cli.config.helpers.answering import AnsweringCommand
from hived_cli.config.helpers.editing import Edit, edits
from hived_config.text.edits import remove_vc


@click.command("remove-vc", cls=AnsweringCommand)
@click.argument("name")
@edits
def command(name: str) -> Edit:
    """Remove a virtual cluster.

    Its cells are nobody's then. The configuration of the running service is edited: its plan is shown, and pushed when
    you agree. With -f a file is edited in its place.

    \b
    Examples:
      hived config remove-vc research
      hived config remove-vc research -f hivedscheduler.yaml --yes
    """
    return Edit(f"remove-vc {name}", lambda text, file: remove_vc(text, name, file))
