"""The status of cells as JSON text, a top cell at a time, in the shapes of `cells.Cell`.

A cluster of 16,384 nodes has 90 MB of it. Text is put together level by level from parts that many cells share, and
no mapping is made for any cell: that takes about half of the time of encoding the mappings of `hived.status`, which
this equals byte for byte.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from hived.errors import UserError
from hived.status import HEALTH_NAMES, STATE_NAMES, CellStatus
from hived.topology import NO_CELL, IntArray

_encode = msgspec.json.Encoder().encode


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
        """The top cells, each with all below it. Cost O(cells)."""
        topology = self._cells.topology
        for number in range(len(topology.chains)):
            forest = topology.forests[number]
            for root in range(forest.first_root, forest.first_root + forest.tree_count):
                yield self._tree(root)

    def virtual_cluster(self, vc: str) -> Iterator[bytes]:
        """The preassigned cells of a VC, then the leaves lent to it. Raises UserError, at once, if it is unknown."""
        number = self._cells.topology.vc_index.get(vc)
        if number is None:
            raise UserError(f"VC {vc} not found")
        return self._virtual_cluster(number)

    def _virtual_cluster(self, number: int) -> Iterator[bytes]:
        cells = self._cells
        for root in cells.topology.preassigned[number]:
            yield self._tree(root)
        for leaf in np.flatnonzero(cells.lent_to == number).tolist():
            yield _encode({
                "cellType": cells.topology.cell_type(leaf),
                "cellAddress": cells.topology.address(leaf) + "-opp",
                "cellState": "Used",
                "cellHealthiness": HEALTH_NAMES[cells.lent_bad[leaf]],
                "cellPriority": -1,
                "physicalCell": msgspec.Raw(self._tree(leaf)),
            })  # fmt: skip

    def _tree(self, root: int) -> bytes:
        """One cell with everything below it, each with the cell it is bound to."""
        arrays = self._cells.topology.arrays
        levels = [np.array([root])]
        while (count := int(arrays.child_count[arrays.chain_level[levels[-1][0]]])) > 0:
            first = int(arrays.first_child[levels[-1][0]])
            levels.append(np.arange(first, first + count * len(levels[-1])))
        is_physical = root < self._cells.topology.physical_count
        key = b',"virtualCell":' if is_physical else b',"physicalCell":'
        below: list[bytes] = []
        while levels:
            members = levels.pop()
            texts = self._begun(members)
            if below:
                count = len(below) // len(texts)
                for i, text in enumerate(texts):
                    texts[i] = b'%s,"cellChildren":[%s]' % (text, b",".join(below[i * count : (i + 1) * count]))
            bound = self._cells.bound[members]
            has_other = np.flatnonzero(bound != NO_CELL)
            for i, other in zip(has_other.tolist(), self._begun(bound[has_other]), strict=True):
                texts[i] = b"%s%s%s}" % (texts[i], key, other)
            below = [text + b"}" for text in texts]
        return below[0]

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
