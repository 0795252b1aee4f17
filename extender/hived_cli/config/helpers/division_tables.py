"""A divided cluster as text: for each chain a table of levels with a column per virtual cluster, and a bar."""

from collections.abc import Iterator, Sequence

import click

from hived_cli.helpers.tables import GAP, table
from hived_config.division import DividedChain, DividedLevel
from hived_extender.client.pictures import FREE, letters

WIDTH = 100
BAR_WIDTH = 64
NOTHING = "."

_HEADERS = ("LEVEL", "CELL TYPE", ">CELLS", ">LEAVES EACH")
_INDENT = "  "


def draw(chains: Sequence[DividedChain], vcs: Sequence[str]) -> str:
    """All chains, with what the virtual clusters `vcs` have of them."""
    letter_of = letters(vcs)
    return "\n\n".join("\n".join(_draw_chain(chain, letter_of)) for chain in chains)


def _draw_chain(chain: DividedChain, letter_of: dict[str, str]) -> Iterator[str]:
    leaf_type = chain.levels[-1].cell_type
    size = f"{_count(len(chain.tops), 'top-level cell')}, {_count(chain.node_count, 'node')}, "
    yield click.style(chain.name, bold=True) + f"   {size}{_count(chain.leaf_count, 'leaf cell')} of type {leaf_type}"
    yield f"{_INDENT}cells: {_enumerate(chain.tops)}"
    having = [vc for vc in letter_of if chain.leaves_of(vc)]
    for block in _blocks(chain, having):
        yield ""
        headers = [*_HEADERS, *(f">{_title(vc)}" for vc in block)]
        yield "\n".join(_INDENT + line for line in table(headers, _rows(chain, block)).splitlines())
    yield ""
    legend = [f"{letter_of[vc]} {vc}" for vc in having]
    yield f"{_INDENT}[{_bar(chain, {vc: letter_of[vc] for vc in having})}]"
    yield from _wrapped([*legend, f"{FREE} spare"])
    for pin in chain.pinned_cells:
        owner = f"pinned by {pin.vc}" if pin.vc else "of no virtual cluster"
        yield f"{_INDENT}* pinned cell {pin.pin_id}: {chain.levels[pin.depth].cell_type} {pin.address}, {owner}"
    if none := [vc for vc in letter_of if vc not in having]:
        yield from _wrapped([f"nothing of this chain: {none[0]}", *none[1:]], ", ")


def _title(vc: str | None) -> str:
    return "SPARE" if vc is None else vc


def _blocks(chain: DividedChain, vcs: Sequence[str]) -> list[list[str | None]]:
    """The virtual clusters, then None for what is spare, in blocks of columns no wider than a terminal."""
    fixed = table(_HEADERS, [row[: len(_HEADERS)] for row in _rows(chain, [])]).splitlines()
    left = WIDTH - len(_INDENT) - max(map(len, map(click.unstyle, fixed)))
    blocks: list[list[str | None]] = [[]]
    room = left
    for vc in [*vcs, None]:
        width = len(GAP) + max(len(cell) for cell in (_title(vc), *_column(chain, vc)))
        if width > room and blocks[-1]:
            blocks.append([])
            room = left
        blocks[-1].append(vc)
        room -= width
    return blocks


def _rows(chain: DividedChain, vcs: Sequence[str | None]) -> list[list[str]]:
    columns = [_column(chain, vc) for vc in vcs]
    rows = [
        [str(level.level), f"{' ' * depth}{_type(level)}", str(level.cell_count), str(level.leaf_count)]
        for depth, level in enumerate(chain.levels)
    ]
    rows += [["", "all leaves", str(chain.leaf_count), ""], ["", "share", "100.0%", ""]]
    return [[*row, *(column[i] for column in columns)] for i, row in enumerate(rows)]


def _type(level: DividedLevel) -> str:
    return f"{level.cell_type} (node)" if level.is_node_level else level.cell_type


def _column(chain: DividedChain, vc: str | None) -> list[str]:
    """The cells of one virtual cluster at each level, or the spare ones, then leaves and share."""
    if vc is None:
        cells = [str(level.spare or NOTHING) for level in chain.levels]
        leaves = chain.spare_leaf_count
    else:
        cells = [_promise(level.promised.get(vc, 0), level.pinned.get(vc, 0)) for level in chain.levels]
        leaves = chain.leaves_of(vc)
    return [*cells, str(leaves), f"{100 * leaves / chain.leaf_count:.1f}%"]


def _promise(promised: int, pinned: int) -> str:
    """Cells of one level; those marked * are pinned."""
    return "+".join([*([str(promised)] if promised else []), *([f"{pinned}*"] if pinned else [])]) or NOTHING


def _bar(chain: DividedChain, letter_of: dict[str, str]) -> str:
    """The leaves of a chain as one line, each virtual cluster with its share of it."""
    bar, leaves = "", 0
    for vc, letter in letter_of.items():
        leaves += chain.leaves_of(vc)
        bar += letter * (round(BAR_WIDTH * leaves / chain.leaf_count) - len(bar))
    return bar.ljust(BAR_WIDTH, FREE)


def _enumerate(names: Sequence[str]) -> str:
    """All names, or the first ones and the last one if they do not fit on a line."""
    room = WIDTH - len(_INDENT) - len("cells: ")
    if len(", ".join(names)) <= room:
        return ", ".join(names)
    return f"{', '.join(names[:3])}, ... {names[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _wrapped(words: Sequence[str], separator: str = "   ") -> Iterator[str]:
    """Words on as many lines as they need."""
    line = ""
    for i, word in enumerate(words):
        piece = word + (separator if i + 1 < len(words) else "")
        if line and len(_INDENT + line + piece.rstrip()) > WIDTH:
            yield (_INDENT + line).rstrip()
            line = ""
        line += piece
    yield (_INDENT + line).rstrip()
