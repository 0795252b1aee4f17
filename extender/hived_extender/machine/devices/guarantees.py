"""Guarantees that cannot be kept because devices are lost."""

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from hived.cells.safety import claims_without_good_cells
from hived.cells.state import State
from hived.cells.topology import NO_CELL, Forest, LongArray
from hived.values.specs import FREE_PRIORITY
from hived_config.words import counted
from hived_extender.machine.devices.shortage import Loss, first_of, in_short


class SharedShortage(msgspec.Struct, frozen=True):
    """Cells of a chain that are enough for each promise alone, but not for all together."""

    chain: str
    leaf_type: str
    vcs: tuple[str, ...]  # those with such a promise, ascending; which of them goes short is not decided yet
    cells: dict[str, int]  # by cell type, how many are promised and cannot be had
    nodes: tuple[str, ...]  # those with bad leaf cells that nobody is promised yet, ascending

    def __str__(self) -> str:
        counts = ", ".join(counted(count, cell_type) for cell_type, count in self.cells.items())
        whom = f"VC {self.vcs[0]} is" if len(self.vcs) == 1 else f"VCs {', '.join(self.vcs)} together are"
        return f"{whom} promised {counts} more of {self.chain} than can be had"

    def reasons(self, losses: Iterable[Loss]) -> list[str]:
        """The reasons why leaf cells of each node are lost."""
        lost = {loss.node: in_short(loss) for loss in losses if loss.leaf_type == self.leaf_type}
        return [f"on {node}: {lost.get(node, 'not healthy')}" for node in self.nodes]


def of_virtual_cluster(state: State, vc: str, losses: Iterable[Loss]) -> str:
    """The part of its guarantee that a VC lacks because of losses, with reasons; "" if none.

    Cost O(leaf cells of the VC), in numpy.
    """
    texts, lost = [], list(losses)
    short = short_nodes(state, vc)
    reasons = [f"on {loss.node}: {in_short(loss)}" for loss in lost if loss.node in short]
    if reasons:
        count = sum(short.values())
        texts.append(f"VC {vc} is short of promised GPUs, {count} in all: {first_of(reasons)}")
    for shared in shared_shortages(state):
        if vc in shared.vcs and (reasons := shared.reasons(lost)):
            texts.append(f"{shared}: {first_of(reasons)}")
    return "; ".join(texts)


def shared_shortages(state: State) -> list[SharedShortage]:
    """By chain, the promises not bound to cells that cannot all be kept, larger cells first.

    A promise that cannot be kept alone is bound to bad cells at once (rule 10.5) and not listed. VCs with smaller cells
    only are not named, though larger promises may take their cells.
    Cost O(chain levels), and O(leaf cells) for a chain with a shortage, in numpy.
    """
    found = []
    for number, chain in enumerate(state.topology.chains):
        if missing := claims_without_good_cells(state, number):
            short = {chain.types[level - 1]: count for level, count in missing.items()}
            vcs, nodes = _promised_from(state, number, min(missing)), _bad_nodes(state, number)
            found.append(SharedShortage(chain.name, chain.types[0], vcs, short, nodes))
    return found


def _promised_from(state: State, chain: int, level: int) -> tuple[str, ...]:
    """The VCs with an unbound promise in a chain, of this level or above."""
    levels = len(state.arrays.child_count)
    offset = int(state.arrays.level_offset[chain])
    slots = slice(offset + level, offset + int(state.arrays.top_level[chain]) + 1)
    vcs = np.flatnonzero(state.cells.vc_claims.reshape(-1, levels)[:, slots].any(axis=1))
    return tuple(state.topology.vc_names[vc] for vc in vcs.tolist())


def _bad_nodes(state: State, chain: int) -> tuple[str, ...]:
    """The nodes of a chain with bad leaf cells that are bound to no VC."""
    slot = int(state.arrays.level_offset[chain]) + 1
    first = int(state.arrays.level_base[slot])
    leaves = slice(first, first + int(state.arrays.level_size[slot]))
    is_free = (state.cells.bad[leaves] != 0) & (state.cells.bound[leaves] == NO_CELL)
    nodes = np.unique(state.arrays.node[leaves][is_free])
    return tuple(sorted(state.topology.node_names[node] for node in nodes.tolist()))


def count_short_leaf_cells(state: State, *, in_use: bool = False) -> dict[str, int]:
    """By VC, the leaf cells of its guarantee that it cannot have: `short_nodes` names their nodes.

    in_use : instead those that are bad, and that its own jobs have until they go (rule 10.15)

    Cost O(virtual leaf cells), in numpy.
    """
    counts = dict.fromkeys(state.topology.vc_names, 0)
    for forest in state.topology.forests:
        if forest.vc != NO_CELL:
            counts[state.topology.vc_names[forest.vc]] += len(_bad_leaves(state, forest, in_use=in_use))
    return counts


def short_nodes(state: State, vc: str) -> dict[str, int]:
    """By node, the leaf cells of a VC's guarantee that it cannot have because they are bad there."""
    topology = state.topology
    number = topology.vc_index.get(vc)
    found: Counter[str] = Counter()
    for forest in topology.forests:
        if number is not None and forest.vc == number:
            bound = state.cells.bound[_bad_leaves(state, forest, in_use=False)]
            found.update(topology.node_names[node] for node in topology.arrays.node[bound].tolist())
    return dict(found)


def _bad_leaves(state: State, forest: Forest, *, in_use: bool) -> LongArray:
    """The bad virtual leaf cells of a forest, which are bound (rule 10.14): those in use by its VC, or others."""
    first = forest.bases[1]
    leaves = slice(first, first + forest.tree_count * state.topology.chains[forest.chain].leaf_count(forest.top_level))
    is_used = state.cells.priority[leaves] != FREE_PRIORITY
    return first + np.flatnonzero((state.cells.bad[leaves] != 0) & (is_used == in_use))
