"""docs/commands.md has every command, subcommand and option."""

import click
import pytest

from hived_cli import SUMMARIES, main
from tests.places import ROOT

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """The part of the page about one command."""
    return PAGE.split(f"\n## hived {name}\n")[1].split("\n## ")[0]


def tree(name: str) -> list[tuple[str, click.Command]]:
    """A command and its subcommands, each with the words after `hived`."""
    context = click.Context(main)
    command = main.get_command(context, name)
    children = command.list_commands(context) if isinstance(command, click.Group) else ()
    return [(name, command), *((f"{name} {child}", command.get_command(context, child)) for child in children)]


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_page_has_every_option(name):
    text = section(name)
    options = {
        option
        for _, command in tree(name)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    }
    assert [option for option in sorted(options) if f"`{option}`" not in text] == []


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_page_has_every_subcommand(name):
    assert [words for words, _ in tree(name) if f"hived {words}" not in PAGE] == []
