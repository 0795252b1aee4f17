"""How large a configuration may be: counted by arithmetic, before anything of that size is built.

A text of 300 bytes may ask for millions of cells. To plan one takes seconds of CPU at these limits, and minutes beyond.
"""

from collections.abc import Callable, Iterable
from itertools import accumulate

import yaml

from hived_config.chains import Chain
from hived_config.reader import Reader

MAX_CELL_COUNT = 2_000_000
"""Physical or virtual. 16,384 nodes of 8 devices, with switches and sockets, have about 300,000."""

MAX_NODE_COUNT = 200_000
"""Each has a name of its own, and is looked at singly."""

MAX_PAIR_COUNT = 5_000_000_000
"""Of cells side by side: some rules look at each child of a cell, or each cell of a VC, for each of them."""

Counted = tuple[int, str, yaml.Node]
"""How many there are of something by one entry of the file, how to have fewer, and where the entry is."""


def refuse_large_hardware(reader: Reader, entries: Iterable[tuple[Chain, yaml.Node]]) -> None:
    """Note the first top-level cell that is beyond a limit."""
    entries = list(entries)

    def counted(count_of: Callable[[Chain], int]) -> list[Counted]:
        return [(count_of(chain), _remedy(chain), node) for chain, node in entries]

    _refuse(reader, counted(lambda chain: chain.cell_counts[0]), "physical cells", MAX_CELL_COUNT)
    _refuse(reader, counted(lambda chain: chain.node_count), "nodes", MAX_NODE_COUNT)
    _refuse(reader, counted(lambda chain: chain.pair_count), "pairs of cells with the same parent", MAX_PAIR_COUNT)


def refuse_large_claims(reader: Reader, claims: Iterable[tuple[object, int, Chain, int, yaml.Node]]) -> None:
    """Note the first claim that is beyond a limit; each is (VC, number, chain, depth, where)."""
    claims = list(claims)
    remedy = "lower cellNumber"
    cells = [(number * chain.cell_counts[depth], remedy, node) for _, number, chain, depth, node in claims]
    _refuse(reader, cells, "virtual cells", MAX_CELL_COUNT)
    side_by_side: dict[tuple[object, str, int], int] = {}
    pairs = []
    for vc, number, chain, depth, node in claims:
        before = side_by_side.get((vc, chain.name, depth), 0)
        side_by_side[vc, chain.name, depth] = before + number
        pairs.append(((before + number) ** 2 - before**2, f"{remedy}, or promise cells of a higher level", node))
    _refuse(reader, pairs, "pairs of virtual cells of one VC and type", MAX_PAIR_COUNT)


def _remedy(chain: Chain) -> str:
    below = " or a type below it" if len(chain.types) > 2 else ""
    return f"lower childCellNumber of {chain.name}{below}, or remove cells"


def _refuse(reader: Reader, counted: list[Counted], what: str, most: int) -> None:
    totals = list(accumulate(count for count, _, _ in counted))
    for total, (_, remedy, node) in zip(totals, counted, strict=True):
        if total > most:
            reader.note(node, f"{totals[-1]} {what} in all", f"at most {most}: {remedy}")
            return
