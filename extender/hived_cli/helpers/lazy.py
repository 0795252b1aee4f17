"""Groups of commands: of one file, or of modules that are imported when a command is asked for."""

import gc
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem


class CommandGroup(click.Group):
    """A group that lists its commands in the order of the file, and names the nearest ones to a wrong one.

    aliases : other words for commands, which help and completion leave out
    """

    def __init__(self, *args: Any, aliases: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = aliases or {}

    @property
    def summaries(self) -> Mapping[str, str]:
        """The first line of each command's help."""
        return {name: command.get_short_help_str(limit=200) for name, command in self.commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(self.summaries)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name."""
        args = [self.aliases.get(args[0], args[0]), *args[1:]]
        if args[0] not in self.summaries and not args[0].startswith("-"):
            from hived_cli.helpers.other_words import meant  # noqa: PLC0415  # for a mistake alone

            near = meant(str(ctx.find_root().info_name), ctx.command_path, args[0], self.summaries)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean: {near}" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name, or an option of the group itself."""
        names = [
            CompletionItem(name, help=text) for name, text in self.summaries.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


class LazyGroup(CommandGroup):
    """A group whose commands are modules of a package, named as the command with `_` for `-`, each with a `command`.

    summaries : the list of commands with their first lines, so that help and completion answer at once
    places : the module of a command that shares one, where it has its own name
    """

    summaries: Mapping[str, str] = {}

    def __init__(
        self, *args: Any, package: str = "", summaries: Mapping[str, str] | None = None,
        places: Mapping[str, str] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        self.package, self.summaries, self.places = package, summaries or {}, places or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None if there is none."""
        if cmd_name not in self.summaries:
            return None
        name = cmd_name.replace("-", "_")
        # Modules leave no garbage behind: looking for it takes a tenth of the time of an import.
        gc.disable()
        try:
            module = import_module(f"{self.package}.{self.places.get(cmd_name, name)}")
        finally:
            gc.enable()
        command: click.Command = getattr(module, name if cmd_name in self.places else "command")
        return command
