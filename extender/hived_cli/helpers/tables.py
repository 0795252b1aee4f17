"""Aligned columns of plain or styled text, quick enough for a cluster of 16,384 nodes, and how they fit a terminal."""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

from hived_cli.helpers.answers import form_option

GAP = "   "


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under their headers, each column as wide as its widest cell.

    A header that starts with ">" aligns its column to the right. Cells may be styled with `click.style`; `click.echo`
    drops the styles where they do not belong.
    """
    titles = [header.lstrip(">") for header in headers]
    plain = [titles, *([click.unstyle(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*plain, strict=True)]
    styled = [[click.style(title, bold=True) if title else "" for title in titles], *rows]
    lines = []
    for bare, cells in zip(plain, styled, strict=True):
        line = ""
        for header, width, text, cell in zip(headers, widths, bare, cells, strict=True):
            padding = " " * (width - len(text))
            line += (padding + cell if header.startswith(">") else cell + padding) + GAP
        lines.append(line.rstrip())
    return "\n".join(lines)


_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")
_MORE = "..."

output_option = form_option("table", "wide")


def with_note(rows: str, note: str) -> str:
    """A table, and a line below that explains it."""
    return f"{rows}\n\n{click.style(note, dim=True)}"


def terminal_width() -> int | None:
    """The columns of the terminal that shows the answer; None if it goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose lines are cut where a terminal ends."""
    width = terminal_width()
    shown = table(headers, rows)
    return shown if width is None else "\n".join(cut(line, width) for line in shown.splitlines())


def cut(line: str, width: int) -> str:
    """A line that may be styled, in so many columns."""
    if len(click.unstyle(line)) <= width:
        return line
    parts, room = [], max(0, width - len(_MORE))
    for part in _STYLE.split(line):
        parts.append(part if _STYLE.fullmatch(part) else part[:room])
        room -= 0 if _STYLE.fullmatch(part) else len(parts[-1])
    return "".join(parts) + _MORE


def paragraph(text: str, indent: str = "  ") -> list[str]:
    """A plain text in lines that fit the terminal, each indented; one line where there is no terminal."""
    width = terminal_width()
    if width is None or len(indent + text) <= width:
        return [indent + text]
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
