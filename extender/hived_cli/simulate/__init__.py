"""`hived simulate`: runs a simulation, unless its first word is that of a subcommand."""

from typing import Any

import click

from hived_cli.helpers.lazy import LazyGroup
from hived_cli.simulate.run import command as run

SUMMARIES = {"report": "Make the page of results anew, also of several simulations beside each other."}


class Simulate(LazyGroup):
    """A group that is a command itself: `hived simulate FOLDER`, and `hived simulate report DIR`."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the words for the subcommand that the first one names, else for the command itself."""
        if args and args[0] in self.summaries:
            above = click.Context(click.Group(info_name), info_name=info_name, parent=parent)
            found = super().get_command(above, args[0])
            assert found is not None
            return found.make_context(args[0], args[1:], parent=above, **extra)
        return run.make_context(info_name, args, parent, **extra)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The subcommand of that name, else the command itself: the word is then one of its own."""
        return super().get_command(ctx, cmd_name) or run


command = Simulate(name="simulate", package=__name__, summaries=SUMMARIES, help=run.help, params=run.params)
