"""Guarantees that cannot be kept because devices cannot be had."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hived.state import State
from hived.topology import NO_CELL
from hived_extender.devices.notes import first_of, in_short
from hived_extender.devices.shortage import Loss


@dataclass(frozen=True, slots=True)
class SharedShortage:
    """Cells of a chain that can be had for each promise by itself, but not for all promises together."""

    chain: str
    leaf_type: str
    vcs: tuple[str, ...]  # those with such a promise, ascending; which of them goes short is not decided yet
    cells: dict[str, int]  # by cell type, how many are promised and cannot be had

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {cell_type}" for cell_type, count in self.cells.items())
        whom = f"VC {self.vcs[0]} is" if len(self.vcs) == 1 else f"VCs {', '.join(self.vcs)} together are"
        return f"{whom} promised {counts} more of {self.chain} than can be had"

    def as_json(self) -> dict[str, Any]:
        """As the HTTP API has it (docs/http.md)."""
        return {
            "chain": self.chain,
            "leafCellType": self.leaf_type,
            "virtualClusters": list(self.vcs),
            "shortCells": self.cells,
            "message": str(self),
        }


def of_virtual_cluster(state: State, vc: str, losses: Iterable[Loss]) -> str:
    """What a virtual cluster lacks of its guarantee because of losses, and why; "" if nothing.

    Cost O(leaf cells of the VC), in numpy.
    """
    texts, lost = [], list(losses)
    short = short_nodes(state, vc)
    reasons = [f"on {loss.node}: {in_short(loss)}" for loss in lost if loss.node in short]
    if reasons:
        count = sum(short.values())
        texts.append(f"VC {vc} is short of promised leaf cells, {count} in all: {first_of(reasons)}")
    for shared in shared_shortages(state):
        reasons = [f"on {loss.node}: {in_short(loss)}" for loss in lost if loss.leaf_type == shared.leaf_type]
        if vc in shared.vcs and reasons:
            texts.append(f"{shared}: {first_of(reasons)}")
    return "; ".join(texts)


def shared_shortages(state: State) -> list[SharedShortage]:
    """Of each chain, the promises that are not bound to cells yet and cannot all be kept, larger cells first.

    A level by itself that has too few healthy cells is no such case: its promises are bound to bad cells at once
    (SEMANTICS 7.2). Cost O(chain levels x VCs).
    """
    topology, arrays, cells = state.topology, state.arrays, state.cells
    vc_free = cells.vc_free.reshape(-1, len(arrays.child_count))
    found = []
    for number, chain in enumerate(topology.chains):
        taken, short, vcs = 0, {}, set[int]()
        for level in range(chain.top_level, 0, -1):
            slot = int(arrays.level_offset[number]) + level
            leaves, promised = chain.leaf_count(level), int(cells.all_vc_free[slot])
            spare = int(cells.left[slot] - cells.bad_count[slot]) - taken // leaves
            kept = min(promised, max(spare, 0))
            taken += kept * leaves
            vcs.update(np.flatnonzero(vc_free[:, slot]).tolist())
            if kept < promised:
                short[chain.types[level - 1]] = promised - kept
        if short:
            names = tuple(topology.vc_names[vc] for vc in sorted(vcs))
            found.append(SharedShortage(chain.name, chain.types[0], names, short))
    return found


def short_nodes(state: State, vc: str) -> dict[str, int]:
    """By node, how many leaf cells of a VC's guarantee stand for bad ones there."""
    topology, cells = state.topology, state.cells
    number = topology.vc_index.get(vc)
    found: dict[str, int] = {}
    for forest in topology.forests:
        if number is None or forest.vc != number:
            continue
        first = forest.bases[1]
        count = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
        bad = first + np.flatnonzero(cells.bad[first : first + count])
        bound = cells.bound[bad]
        nodes, counts = np.unique(topology.arrays.node[bound[bound != NO_CELL]], return_counts=True)
        for node, each in zip(nodes.tolist(), counts.tolist(), strict=True):
            name = topology.node_names[node]
            found[name] = found.get(name, 0) + each
    return found
