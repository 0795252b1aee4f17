"""The status of cells as JSON text, in slices, in the shapes of `cells.Cell`.

A cluster of 16,384 nodes has 90 MB of it. Text is put together level by level from parts that many cells share, and
no mapping is made for any cell: that takes about half of the time of encoding the mappings of `hived.life.status`.
This equals it byte for byte. A slice has few cells, so that others are served between two.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
import numpy as np

from hived.cells.topology import NO_CELL, IntArray
from hived.life.status import HEALTH_NAMES, STATE_NAMES, CellStatus
from hived.values.errors import UserError

_encode = msgspec.json.Encoder().encode

SLICE = 128
"""Cells of one slice, without the cells that they are bound to."""

Slice: TypeAlias = tuple[bool, bytes]
"""True if a cell of the list begins with it, and the text."""


class CellTexts:
    """The texts of cells at one moment; the status of the state is not locked meanwhile."""

    def __init__(self, cells: CellStatus) -> None:
        self._cells = cells
        self._facts: dict[tuple[int, int, int, int], bytes] = {}
        """The end of a cell's own text, by its state, health, priority and VC."""

    @property
    def vc_names(self) -> tuple[str, ...]:
        """The configured virtual clusters, in order."""
        return tuple(self._cells.topology.vc_names)

    def physical_cluster(self) -> Iterator[bytes]:
        """A list of the top cells, each with all below it, in slices. Cost O(cells)."""
        forests = self._cells.topology.forests[: len(self._cells.topology.chains)]
        return _listed(
            slice_
            for forest in forests
            for slice_ in self._alike(
                np.arange(forest.first_root, forest.first_root + forest.tree_count, dtype=np.int32)
            )
        )

    def virtual_cluster(self, vc: str) -> Iterator[bytes]:
        """A list of the preassigned cells of a VC, then the leaves lent to it, in slices.

        Raises UserError, at once, if the VC is unknown.
        """
        number = self._cells.topology.vc_index.get(vc)
        if number is None:
            raise UserError(f"VC {vc} not found")
        return _listed(self._virtual_cluster(number))

    def _virtual_cluster(self, number: int) -> Iterator[Slice]:
        cells = self._cells
        for members in self._runs(np.array(cells.topology.preassigned[number], np.int32)):
            yield from self._alike(members)
        for members in self._runs(np.flatnonzero(cells.lent_to == number).astype(np.int32)):
            for start in range(0, len(members), SLICE):
                some = members[start : start + SLICE]
                lent = zip(some.tolist(), self._trees(some), strict=True)
                yield True, b",".join(self._lent(leaf, text) for leaf, text in lent)

    def _lent(self, leaf: int, text: bytes) -> bytes:
        """A leaf that an opportunistic pod of a VC uses; `text` is its physical cell."""
        cells = self._cells
        return _encode({
            "cellType": cells.topology.cell_type(leaf),
            "cellAddress": cells.topology.address(leaf) + "-opp",
            "cellState": "Used",
            "cellHealthiness": HEALTH_NAMES[cells.lent_bad[leaf]],
            "cellPriority": -1,
            "physicalCell": msgspec.Raw(text),
        })  # fmt: skip

    def _runs(self, cells: IntArray) -> Iterator[IntArray]:
        """The longest runs of cells of one chain and level."""
        levels = self._cells.topology.arrays.chain_level[cells]
        for run in np.split(cells, np.flatnonzero(np.diff(levels)) + 1):
            if len(run):
                yield run

    def _alike(self, members: IntArray) -> Iterator[Slice]:
        """Cells of one chain and level, each with all below it, at most `SLICE` cells at a time."""
        size = self._size(int(members[0]))
        step = max(1, SLICE // size)
        if size <= SLICE or self._child_count(members) == 0:
            for start in range(0, len(members), step):
                yield True, b",".join(self._trees(members[start : start + step]))
            return
        for start in range(0, len(members), SLICE):
            some = members[start : start + SLICE]
            for cell, text, end in zip(some, self._begun(some), self._ends(some), strict=True):
                yield True, text + b',"cellChildren":'
                for part in _listed(self._alike(self._children(np.array([cell])))):
                    yield False, part
                yield False, end

    def _trees(self, roots: IntArray) -> list[bytes]:
        """Cells of one chain and level, each with everything below it, each with the cell it is bound to."""
        levels = [roots]
        while self._child_count(levels[-1]) > 0:
            levels.append(self._children(levels[-1]))
        below: list[bytes] = []
        while levels:
            members = levels.pop()
            texts = self._begun(members)
            if below:
                count = len(below) // len(texts)
                for i, text in enumerate(texts):
                    texts[i] = b'%s,"cellChildren":[%s]' % (text, b",".join(below[i * count : (i + 1) * count]))
            below = [text + end for text, end in zip(texts, self._ends(members), strict=True)]
        return below

    def _child_count(self, members: IntArray) -> int:
        """Children of each of these cells, which are of one chain and level."""
        arrays = self._cells.topology.arrays
        return int(arrays.child_count[arrays.chain_level[members[0]]])

    def _children(self, members: IntArray) -> IntArray:
        """The cells below these cells of one chain and level, in order."""
        first = self._cells.topology.arrays.first_child[members]
        return (first[:, None] + np.arange(self._child_count(members))).ravel()

    def _size(self, cell: int) -> int:
        """The number of cells in a cell's tree, itself included."""
        chain, size = self._cells.topology.chain_of(cell), 1
        for count in chain.child_counts[1 : int(self._cells.topology.arrays.level[cell])]:
            size = 1 + count * size
        return size

    def _ends(self, members: IntArray) -> list[bytes]:
        """The ends of the texts of cells of one level: the cells that they are bound to, and the bracket."""
        ends = [b"}"] * len(members)
        bound = self._cells.bound[members]
        has_other = np.flatnonzero(bound != NO_CELL)
        key = b',"virtualCell":' if members[0] < self._cells.topology.physical_count else b',"physicalCell":'
        for i, other in zip(has_other.tolist(), self._begun(bound[has_other]), strict=True):
            ends[i] = b"%s%s}}" % (key, other)
        return ends

    def _begun(self, members: IntArray) -> list[bytes]:
        """Cells of one level, without what is below them or bound to them, and without the bracket at the end."""
        if not len(members):
            return []
        cells, topology = self._cells, self._cells.topology
        arrays = topology.arrays
        chain, level = topology.chain_of(int(members[0])), int(arrays.level[members[0]])
        of_node = b',"isNodeLevel":true' if level == chain.node_level else b""
        of_type = b'{"cellType":%s' % _encode(chain.types[level - 1])
        head = b'%s%s,"cellAddress":' % (of_type, of_node)
        head_of_root = b'%s,"leafCellType":%s%s,"cellAddress":' % (of_type, _encode(chain.types[0]), of_node)
        is_physical = members[0] < topology.physical_count
        vcs = cells.shown_vc[members].tolist() if is_physical else [NO_CELL] * len(members)
        facts = self._facts
        texts = []
        for address, parent, state, bad, priority, vc in zip(
            topology.addresses(members), arrays.parent[members].tolist(), cells.state[members].tolist(),
            cells.bad[members].tolist(), cells.priority[members].tolist(), vcs, strict=True,
        ):  # fmt: skip
            key = (state, bad, priority, vc)
            end = facts.get(key)
            if end is None:
                end = facts[key] = self._fact(*key)
            texts.append((head_of_root if parent == NO_CELL else head) + _encode(address) + end)
        return texts

    def _fact(self, state: int, bad: int, priority: int, vc: int) -> bytes:
        text = b',"cellState":"%s","cellHealthiness":"%s","cellPriority":%d' % (
            STATE_NAMES[state].encode(), HEALTH_NAMES[bad].encode(), priority,
        )  # fmt: skip
        return text if vc == NO_CELL else b'%s,"vc":%s' % (text, _encode(self._cells.vc_names[vc]))


def _listed(slices: Iterable[Slice]) -> Iterator[bytes]:
    """`[cell,cell,...]`, a part per slice."""
    separator = b"["
    for begins, text in slices:
        yield separator + text if begins else text
        separator = b","
    yield b"]" if separator == b"," else b"[]"
