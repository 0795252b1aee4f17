"""`hived defrag`: one file per subcommand, each loaded only when it is asked for."""

import click

from hived_cli.helpers.lazy import LazyGroup

SUMMARIES = {
    "plan": "Show which groups to move so that wanted cells become free, and change nothing.",
    "inputs": "Print all that a plan depends on, for --state.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=SUMMARIES)
def command() -> None:
    """Make room in a virtual cluster whose free cells are scattered, by moving groups that allow it.

    \b
    Examples:
      hived defrag plan --vc research --want 2xNODE
      hived defrag plan --job team/training
    """
