"""Cells as parts of tables."""

from itertools import groupby

import click

from hived_extender.api.cells import Cell, LostDevices
from hived_extender.client import pictures
from hived_extender.client.pictures import BAD, FREE, RESERVED

SIGN_COLORS = {BAD: "red", RESERVED: "yellow", FREE: "bright_black"}
VC_COLORS = ("cyan", "green", "magenta", "blue", "yellow")


def health(cell: Cell) -> str:
    """Whether the cell is healthy, in colour."""
    return click.style(pictures.health(cell), fg="red" if cell.is_bad else "green")


def use(cell: Cell) -> str:
    """Leaf cells in use, and all of them."""
    leaves = cell.leaves()
    return f"{sum(leaf.is_used for leaf in leaves)}/{len(leaves)}"


def colored(picture: str, letter_of: dict[str, str]) -> str:
    """The picture with each run of equal characters in its colour."""
    colors = SIGN_COLORS | {letter: VC_COLORS[i % len(VC_COLORS)] for i, letter in enumerate(letter_of.values())}
    runs = ("".join(run) for _, run in groupby(picture))
    return "".join(click.style(run, fg=colors.get(run[0].upper(), colors.get(run[0]))) for run in runs)


def reasons_by_node(lost: list[LostDevices]) -> dict[str, str]:
    """Why leaf cells of a node cannot be had, by its name."""
    reasons: dict[str, str] = {}
    for each in lost:
        reasons[each.node] = "; ".join(filter(None, (reasons.get(each.node, ""), each.reason)))
    return reasons
