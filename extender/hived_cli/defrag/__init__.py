"""`hived defrag`: one file per subcommand, each loaded only when it is asked for."""

import click

from hived_cli.helpers.lazy import LazyGroup

SUMMARIES = {
    "plan": "Show which groups to move so that wanted cells become free, and change nothing.",
    "apply": "Carry out a plan: evict its groups, one move after the other, and hold their new cells for them.",
    "status": "Show the moves under way, or the last ones.",
    "stop": "Move nobody else, and give back the cells that are held.",
    "inputs": "Print all that a plan depends on, for --state.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=SUMMARIES)
def command() -> None:
    """Make room in a virtual cluster whose free cells are scattered, by moving groups that allow it.

    \b
    Examples:
      hived defrag plan --vc research --want 2xNODE
      hived defrag plan --job team:training --apply
      hived defrag status
    """
