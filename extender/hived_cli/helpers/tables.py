"""Aligned columns of plain or styled text, quick enough for a cluster of 16,384 nodes."""

from collections.abc import Sequence

import click

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
