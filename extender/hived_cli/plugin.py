"""`kubectl hived`: the same commands as a plugin of kubectl, and their completion in its form.

kubectl runs `kubectl-hived` for `kubectl hived ARGUMENTS`, and `kubectl_complete-hived` for completion.
"""

import re
import sys

import click
from click.shell_completion import ShellComplete

from hived_cli import main

NAME = "kubectl hived"

_COMMAND = re.compile(r"(?<![\w/.-])(?<!kubectl )hived (?=[a-z-])")

FILES, NOTHING_ELSE = ":0", ":4"
"""Completions of kubectl beside our words: names of files, or nothing."""


class Formatter(click.HelpFormatter):
    """Help in which commands are called as the reader calls them."""

    def getvalue(self) -> str:
        """The text so far."""
        return _COMMAND.sub(f"{NAME} ", super().getvalue())


def run() -> None:
    """`kubectl-hived`."""
    click.Context.formatter_class = Formatter
    main(prog_name=NAME)


def complete() -> None:
    """`kubectl_complete-hived`: a line for each word that may come next, then what else may; for the words so far."""
    words = sys.argv[1:] or [""]
    found = ShellComplete(main, {}, NAME, "").get_completions(words[:-1], words[-1])
    for item in found:
        if item.type == "plain":
            click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(FILES if any(item.type in ("file", "dir") for item in found) else NOTHING_ELSE)
