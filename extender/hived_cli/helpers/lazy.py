"""A group of commands that are modules of one package, each imported only when it is asked for."""

import gc
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """A click group whose commands live in modules of a package, named as the command with `_` for `-`.

    Each module has its click command as `command`. The list of commands with their one-line summaries is given, so that
    help and shell completion answer at once.
    """

    def __init__(
        self, *args: Any, package: str = "", summaries: Mapping[str, str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.package = package
        self.summaries = summaries or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the summaries."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None if there is none."""
        if cmd_name not in self.summaries:
            return None
        # Modules leave no garbage behind: looking for it takes a tenth of the time of an import.
        gc.disable()
        try:
            command: click.Command = import_module(f"{self.package}.{cmd_name.replace('-', '_')}").command
        finally:
            gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; of a wrong name the nearest ones are told."""
        if args[0] not in self.summaries and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415  # for a mistake alone

            near = get_close_matches(args[0], self.summaries)
            ctx.fail(f"No such command {args[0]!r}." + (f" Nearest: {', '.join(near)}." if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name, or an option of the group itself."""
        names = [
            CompletionItem(name, help=text) for name, text in self.summaries.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)
