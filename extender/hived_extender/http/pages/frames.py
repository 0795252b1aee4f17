"""Cells as pages show them: one copy for all callers, at most every `FRESH_S` seconds.

Twenty open pages cost as much as one: the lock of the service is taken once for all of them, and a tile that several
pages look at is made once.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from hived.life.status import CellStatus
from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_extender.api.waiting import FreeCells
from hived_extender.client.pictures import letters
from hived_extender.http.pages.cell_keys import Keys, Runs, leaf_keys, runs_of
from hived_extender.insight.free_cells import free_cells
from hived_extender.service.reader import Reader

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
        """The free cells of all virtual clusters by level, counted when somebody asks first."""
        if not self._free:
            self._free.extend(free_cells(self.cells, releases_doomed=self.rules is Rules.BETTER))
        return self._free

    def level_size(self, chain: int, level: int) -> int:
        """How many cells a chain has of a level."""
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
