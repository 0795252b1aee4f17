"""The looks of cells on the wire: bytes that a page reads as typed arrays.

An answer has one part for each range of cells, in the order of the question. All numbers are little-endian:

    uint32  chain, level, first, cells, runs     one each
    uint32  counts[runs]                         leaf cells of each run
    uint16  keys[runs]                           see `cell_keys`
    uint16  lengths[cells]                       runs of each cell
    0 to 3 bytes of zero, up to a multiple of 4
"""

import re

import numpy as np

from hived.values.errors import UserError
from hived_extender.http.pages.cell_keys import Runs
from hived_extender.http.pages.frames import CellRange, Frame

MOST_RANGES = 64
MOST_CELLS = 1 << 17
"""Of one answer: more do not fit on any screen."""

_RANGE = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})-(\d{1,9})", re.ASCII)


def read_ranges(text: str) -> list[CellRange]:
    """`CHAIN.LEVEL.FIRST-END`, several with commas between them. Raises UserError (400)."""
    ranges: list[CellRange] = []
    for part in text.split(",", MOST_RANGES):
        match = _RANGE.fullmatch(part)
        if match is None or len(ranges) == MOST_RANGES:
            raise UserError(f"expected at most {MOST_RANGES} ranges of cells as CHAIN.LEVEL.FIRST-END: {part[:80]!r}")
        ranges.append(CellRange(*map(int, match.groups())))
    if sum(each.end - each.first for each in ranges) > MOST_CELLS:
        raise UserError(f"at most {MOST_CELLS} cells are sent at once")
    return ranges


def tiles(frame: Frame, ranges: list[CellRange]) -> bytes:
    """The looks of these cells. Raises UserError (404) if there are no such cells."""
    for each in ranges:
        frame.check(each)
    return b"".join(_tile(each, frame.runs(each)) for each in ranges)


def _tile(cells: CellRange, runs: Runs) -> bytes:
    head = np.array([cells.chain, cells.level, cells.first, len(runs.lengths), len(runs.keys)], "<u4")
    parts = (head, runs.counts.astype("<u4"), runs.keys.astype("<u2"), runs.lengths.astype("<u2"))
    text = b"".join(part.tobytes() for part in parts)
    return text + bytes(-len(text) % 4)


def names(frame: Frame, ranges: list[CellRange]) -> list[list[str]]:
    """The last parts of the addresses of these cells. Raises UserError (404) if there are no such cells."""
    for each in ranges:
        frame.check(each)
    topology = frame.cells.topology
    found = []
    for each in ranges:
        first = frame.cell(each.chain, each.level, each.first)
        addresses = topology.addresses(np.arange(first, first + each.end - each.first, dtype=np.int32))
        found.append([address.rpartition("/")[2] for address in addresses])
    return found
