"""The forms of an answer of `hived get`."""

import shutil
import sys
from collections.abc import Sequence

import click

from hived_cli.helpers.tables import table

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", help="Form of the answer."
)


def with_note(rows: str, note: str) -> str:
    """A table, and a line below that explains it."""
    return f"{rows}\n\n{click.style(note, dim=True)}"


def fitted(headers: Sequence[str], rows: Sequence[Sequence[str]], *, is_whole: bool) -> str:
    """A table whose last column, which has no styles, is cut where a terminal ends, unless it `is_whole`."""
    shown = table(headers, rows)
    if is_whole or not sys.stdout.isatty():
        return shown
    width = shutil.get_terminal_size().columns
    return "\n".join(_cut(line, len(click.unstyle(line)) - width) for line in shown.splitlines())


def _cut(line: str, excess: int) -> str:
    return line if excess <= 0 else f"{line[: -excess - 3]}..."
