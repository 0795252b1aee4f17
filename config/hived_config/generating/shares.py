"""Divides cells among virtual clusters by shares: whole nodes, and whole larger cells wherever a share covers them.

Each product is divided by itself, over all of its chains together: a shortage of a virtual cluster in one chain is made
up for in the next. Rounding goes by the largest remainder.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from hived.values.errors import UserError
from hived_config.generating.cells import Cell, Shape
from hived_config.generating.machines import natural_key
from hived_config.virtual import VC_NAME
from hived_config.words import counted

_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(%?)", re.ASCII)


class Shares(msgspec.Struct, frozen=True):
    """Virtual clusters and the part of everything that each is to have, at most 1 together."""

    parts: Mapping[str, Fraction] = msgspec.field(default_factory=lambda: {"default": Fraction(1)})

    @classmethod
    def parse(cls, written: Sequence[str]) -> "Shares":
        """Parse `NAME=SHARE`s: all percentages (`60%`), with the rest left over, or all weights (`3`).

        Raises UserError for anything else; nothing written is a virtual cluster `default` with everything.
        """
        if not written:
            return cls()
        numbers: dict[str, Fraction] = {}
        signs = set()
        for text in written:
            name, is_given, share = text.rpartition("=")
            match = _SHARE.fullmatch(share)
            if not is_given or match is None or not VC_NAME.fits(name):
                raise UserError(f"--vc {text!r}: expected NAME=SHARE with a number or a percentage, as in research=60%")
            if name in numbers:
                raise UserError(f"--vc {name!r} given twice: expected each virtual cluster once")
            numbers[name] = Fraction(match[1])
            signs.add(match[2])
        total = sum(numbers.values(), Fraction())
        if len(signs) > 1:
            raise UserError(f"--vc {', '.join(written)}: expected all shares in percent, or all as plain numbers")
        if signs == {"%"}:
            if total > 100:
                raise UserError(f"--vc: shares of {float(total):g}%, expected at most 100% together")
            return cls({name: number / 100 for name, number in numbers.items()})
        if not total:
            raise UserError("--vc: no share above 0")
        return cls({name: number / total for name, number in numbers.items()})


class Allotment(msgspec.Struct, frozen=True):
    """`count` cells of one type of one chain for one virtual cluster; `path` are the shapes from the top down to it.

    With `is_leaf` they are leaf cells below that.
    """

    path: tuple[Shape, ...]
    count: int
    is_leaf: bool = False


def allotted(tops: Sequence[Cell], shares: Shares) -> tuple[dict[str, list[Allotment]], list[str]]:
    """Allot each virtual cluster its share, chain by chain in the order of `tops`, with notes on cells left over."""
    chains: dict[Shape, list[Cell]] = {}
    for top in tops:
        chains.setdefault(top.shape, []).append(top)
    every: dict[str, list[Allotment]] = {vc: [] for vc in shares.parts}
    notes: list[str] = []
    for product in sorted({shape.product for shape in chains}, key=natural_key):
        own = {shape: cells for shape, cells in chains.items() if shape.product == product}
        totals = _divide(own, shares, every)
        there = sum(node.shape.count for top in tops if top.shape.product == product for node in _real(top))
        notes += [
            f"virtual cluster {vc} gets nothing of {product}: its share is less than a node"
            for vc, part in shares.parts.items()
            if part and not totals[vc]
        ]
        rest = there - sum(totals.values())
        if rest:
            notes.append(f"{counted(rest, 'leaf cell')} of {product} belong to no virtual cluster")
    return every, notes


def _divide(
    chains: Mapping[Shape, Sequence[Cell]], shares: Shares, every: dict[str, list[Allotment]]
) -> dict[str, int]:
    """Divide the chains of one product; returns how many leaf cells each virtual cluster gets."""
    given = dict.fromkeys(shares.parts, 0)
    seen = 0
    for shape, tops in chains.items():
        devices = shape.node.count
        node_count = sum(1 for top in tops for _ in _real(top))
        seen += node_count * devices
        wanted = {vc: max(Fraction(0), (part * seen - given[vc]) / devices) for vc, part in shares.parts.items()}
        nodes = _rounded(wanted, node_count)
        for vc, allotments in _as_large_cells(shape, tops, nodes).items():
            every[vc] += allotments
        for vc, count in nodes.items():
            given[vc] += count * devices
    return given


def _real(top: Cell) -> list[Cell]:
    return [node for node in top.nodes() if not node.is_placeholder]


def _rounded(wanted: Mapping[str, Fraction], limit: int) -> dict[str, int]:
    """Round the wanted numbers, at most `limit` together: rounded down, then up by the largest remainder."""
    total = min(limit, int(sum(wanted.values(), Fraction())))
    rounded: dict[str, int] = {}
    left = total
    for vc, number in wanted.items():
        rounded[vc] = min(int(number), left)
        left -= rounded[vc]
    by_remainder = sorted(wanted, key=lambda vc: int(wanted[vc]) - wanted[vc])
    for vc in by_remainder[: max(0, left)]:
        rounded[vc] += 1
    return rounded


def _as_large_cells(shape: Shape, tops: Sequence[Cell], nodes: Mapping[str, int]) -> dict[str, list[Allotment]]:
    """Turn numbers of nodes into cells of the chain, the largest first; no cell with a placeholder is given away."""
    left = dict(nodes)
    shared: dict[str, list[Allotment]] = {vc: [] for vc in nodes}
    path: tuple[Shape, ...] = ()
    cells, taken = list(tops), 0
    for each in shape.down():
        path = (*path, each)
        whole = sum(1 for cell in cells if cell.is_complete) - taken
        for vc in nodes:
            count = min(left[vc] // each.node_count, whole)
            if count:
                shared[vc].append(Allotment(path, count))
            left[vc] -= count * each.node_count
            whole -= count
            taken += count
        cells = [child for cell in cells for child in cell.children]
        taken *= each.count
    return shared
