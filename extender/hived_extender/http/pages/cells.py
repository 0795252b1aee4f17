"""Cells as pages show them: one copy for all callers, at most every `FRESH_S` seconds, and its form on the wire.

Twenty open pages cost as much as one: the lock of the service is taken once for all of them, and a tile that several
pages look at is made once.

A key says what a leaf cell looks like, as one number, and a larger cell is the count of each key below it. A key has
the virtual cluster in its low bits, number + 1 or 0 for none, then the use, then one bit for bad cells:

    key == vc + 1 | use << USE_SHIFT | bad << BAD_SHIFT

Keys ascend in the order in which a page draws them: used, reserved, lent, free, then all bad ones.

A page reads bytes as typed arrays. An answer has one part for each range of cells, in the order of the question. All
numbers are little-endian:

    uint32  chain, level, first, cells, runs     one each
    uint32  counts[runs]                         leaf cells of each run
    uint16  keys[runs]
    uint16  lengths[cells]                       runs of each cell
    0 to 3 bytes of zero, up to a multiple of 4
"""

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from hived.cells.state import CellState, State
from hived.cells.topology import NO_CELL
from hived.life.status import CellStatus
from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_extender.api.pictures import letters
from hived_extender.api.waiting import FreeCells
from hived_extender.insight.free_cells import free_cells
from hived_extender.machine.reader import Reader

USE_SHIFT, BAD_SHIFT = 10, 12
MOST_VCS = (1 << USE_SHIFT) - 1
"""Virtual clusters with a number of their own; all others look like the last of them."""

Keys = npt.NDArray[np.uint16]


class Use(IntEnum):
    """The use of a leaf cell."""

    USED = 0
    RESERVED = 1
    LENT = 2
    FREE = 3


@dataclass(frozen=True, slots=True)
class Runs:
    """The looks of some cells of one level: cell i has `lengths[i]` runs, each with a key and a count of leaf cells.

    `sum(lengths) == len(keys) == len(counts)`; counts of one cell sum to its leaves, keys of one cell ascend.
    """

    lengths: npt.NDArray[np.uint16]
    keys: Keys
    counts: npt.NDArray[np.uint32]


def leaf_keys(cells: CellStatus) -> tuple[Keys, ...]:
    """The keys of all physical leaf cells, chain by chain. Cost O(leaf cells)."""
    chains, forests = cells.topology.chains, cells.topology.forests
    return tuple(
        _keys(cells, forest.bases[1], forest.tree_count * chain.leaf_count(chain.top_level))
        for chain, forest in zip(chains, forests, strict=False)
    )


def _keys(cells: CellStatus, first: int, count: int) -> Keys:
    leaves = slice(first, first + count)
    state, lent_to = cells.state[leaves], cells.lent_to[leaves]
    is_held = (state == CellState.RESERVING) | (state == CellState.RESERVED)
    is_lent = (lent_to != NO_CELL) & ~is_held
    is_free = (state == CellState.FREE) & ~is_lent
    use = np.where(is_held, Use.RESERVED, np.where(is_lent, Use.LENT, np.where(is_free, Use.FREE, Use.USED)))
    vc = np.where(is_lent, lent_to, np.where(is_free, NO_CELL, cells.shown_vc[leaves])) + 1
    bad = cells.bad[leaves] != 0
    keys: Keys = (np.minimum(vc, MOST_VCS) | use << USE_SHIFT | bad.astype(np.int64) << BAD_SHIFT).astype(np.uint16)
    return keys


def runs_of(keys: Keys, leaf_count: int) -> Runs:
    """The looks of cells of `leaf_count` leaves each, whose leaves' keys stand one after the other in `keys`."""
    rows = np.sort(keys.reshape(-1, leaf_count), axis=1)
    begins = np.ones(rows.shape, np.bool_)
    begins[:, 1:] = rows[:, 1:] != rows[:, :-1]
    firsts = np.flatnonzero(begins)
    counts = np.diff(firsts, append=rows.size)
    return Runs(begins.sum(axis=1).astype(np.uint16), rows.ravel()[firsts], counts.astype(np.uint32))


def use_of(key: int) -> Use:
    """The use in a key."""
    return Use(key >> USE_SHIFT & 3)


def vc_of(key: int) -> int:
    """The number of the virtual cluster in a key, NO_CELL for none."""
    return (key & MOST_VCS) - 1


def is_bad(key: int) -> bool:
    """True for the key of bad cells."""
    return bool(key >> BAD_SHIFT & 1)


FRESH_S = 2.0
MOST_TILES = 256
"""Tiles that are remembered of one copy."""


class ChainLayout(msgspec.Struct, frozen=True):
    """A chain, from its leaves up: `types[0]` is the leaf type, `children[i]` cells are in a cell of `types[i]`.

    `roots` counts its top cells; `node` is the index of the node's type.
    """

    name: str
    types: tuple[str, ...]
    children: tuple[int, ...]
    node: int
    roots: int


class Layout(msgspec.Struct, frozen=True):
    """All that a page needs to draw cells, but their looks: the same as long as the configuration is.

    `letters` are those of virtual clusters in terminals; `id` differs for every other layout.
    """

    chains: tuple[ChainLayout, ...]
    vcs: tuple[str, ...]
    letters: tuple[str, ...]
    id: str = ""


class CellRange(msgspec.Struct, frozen=True):
    """Physical cells of one level: `first` to `end`, without `end`, counted within the level. A leaf is level 1."""

    chain: int
    level: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Frame:
    """All cells at one moment; `version` differs for every other moment."""

    version: str
    cells: CellStatus
    layout: Layout
    keys: tuple[Keys, ...]
    tiles: dict[CellRange, Runs] = field(default_factory=dict)
    rules: Rules = Rules.HIVED
    _free: list[FreeCells] = field(default_factory=list)

    def free_cells(self) -> list[FreeCells]:
        """The free cells of all virtual clusters by level, counted at the first question."""
        if not self._free:
            self._free.extend(free_cells(self.cells, releases_doomed=self.rules is Rules.BETTER))
        return self._free

    def level_size(self, chain: int, level: int) -> int:
        """The number of cells that a chain has of a level."""
        return len(self.keys[chain]) // self.cells.topology.chains[chain].leaf_count(level)

    def cell(self, chain: int, level: int, position: int) -> int:
        """The index of a cell among all cells, by its place in its level."""
        return self.cells.topology.forests[chain].bases[level] + position

    def check(self, wanted: CellRange) -> None:
        """Raises UserError (404) for cells that there are none of."""
        chains = self.cells.topology.chains
        if not (0 <= wanted.chain < len(chains) and 1 <= wanted.level <= chains[wanted.chain].top_level):
            raise UserError("there is no such level of cells: the configuration has changed, load the page again", 404)
        if not 0 <= wanted.first < wanted.end <= self.level_size(wanted.chain, wanted.level):
            raise UserError("there are no such cells: the configuration has changed, load the page again", 404)

    def runs(self, wanted: CellRange) -> Runs:
        """The looks of some cells. Raises UserError (404) if there are no such cells."""
        self.check(wanted)
        known = self.tiles.get(wanted)
        if known is None:
            leaf_count = self.cells.topology.chains[wanted.chain].leaf_count(wanted.level)
            known = runs_of(self.keys[wanted.chain][wanted.first * leaf_count : wanted.end * leaf_count], leaf_count)
            if len(self.tiles) < MOST_TILES:
                self.tiles[wanted] = known
        return known


class Frames:
    """The latest copy of the cells, for any thread."""

    def __init__(self, reader: Reader, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._reader = reader
        self._clock = clock
        self._lock = threading.Lock()
        self._frame: Frame | None = None
        self._layout: tuple[object, Sequence[str], Layout] | None = None
        self._made_at = 0.0

    def latest(self) -> Frame:
        """All cells as they were at most `FRESH_S` ago. Raises UserError (503) on a replica that does not lead."""
        with self._lock:
            now = self._clock()
            if self._frame is None or not 0 <= now - self._made_at < FRESH_S:
                if self._frame is None or self._reader.version() != self._frame.version:
                    version, cells = self._reader.versioned_cells()
                    self._frame = Frame(
                        version, cells, self._layout_of(cells), leaf_keys(cells), rules=self._reader.rules()
                    )
                self._made_at = now
            return self._frame

    def _layout_of(self, cells: CellStatus) -> Layout:
        if self._layout is None or self._layout[:2] != (cells.topology, cells.vc_names):
            self._layout = (cells.topology, cells.vc_names, layout_of(cells))
        return self._layout[2]


def layout_of(cells: CellStatus) -> Layout:
    """The chains and virtual clusters of some cells."""
    topology = cells.topology
    chains = tuple(
        ChainLayout(chain.name, chain.types, chain.child_counts, chain.node_level - 1, forest.tree_count)
        for chain, forest in zip(topology.chains, topology.forests, strict=False)
    )
    layout = Layout(chains, cells.vc_names, tuple(letters(cells.vc_names).values()))
    digest = hashlib.blake2b(msgspec.json.encode(layout), digest_size=8).hexdigest()
    return msgspec.structs.replace(layout, id=digest)


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


Mark = tuple[int, int, int, int]
"""Chain, first leaf cell and the end (not included), counted within the chain, and the kind."""


class Kind(IntEnum):
    """The kinds of marks, each drawn in its own way."""

    CHOSEN = 0
    LOST = 1
    HARMED = 2
    IN_THE_WAY = 3


def marks_of(state: State, groups: Mapping[str, Kind]) -> list[Mark]:
    """The cells of groups; groups that the state does not have are left out. Cost O(cells of these groups)."""
    return [mark for name, kind in groups.items() for mark in _marks(state, name, kind)]


def _marks(state: State, name: str, kind: Kind) -> Iterable[Mark]:
    group = state.groups.get(name)
    if group is None:
        return
    arrays = state.arrays
    held = np.unique(group.physical[group.physical != NO_CELL])
    chains = arrays.chain_of_level[arrays.chain_level[held]]
    for chain in np.unique(chains).tolist():
        leaves = held[chains == chain] - state.topology.forests[chain].bases[1]
        breaks = np.flatnonzero(np.diff(leaves) != 1) + 1
        for run in np.split(leaves, breaks):
            yield chain, int(run[0]), int(run[-1]) + 1, int(kind)
