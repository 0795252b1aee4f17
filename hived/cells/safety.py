"""VC safety: every virtual cluster can have all its promised cells at once, independently of others (rules 4).

The product's promise, from Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees" (OSDI '20).
For each level l of a chain, with level 1 the leaves:

    listed[l]     cells in the free list of the level                                   Cells.free_count
    claims[l]     promised cells of all VCs that are not allocated yet                  Cells.claims
    left[l]       free cells: listed, or below a cell of a higher list                  Cells.left
    children[l]   children of one cell of the level                                     TopologyArrays.child_count

The formula, from the top level down, with nothing above the top level (rule 4.3):

    spare[l] = listed[l] - claims[l] + spare[l + 1] * children[l + 1]

A chain is safe if no spare is negative.

Why that is enough. Serve all claims from the top level down. Each claim of the top level takes a listed cell; `spare`
cells are left over and can be split. The next level then has its own listed cells and these children, and serves its
claims in the same way. So all claims are met at once, by free cells and splits alone.

Why nothing less is enough. A cell of level l comes from the list of l or from a cell above that is split. A cell that
serves a claim cannot be split. Once the levels above are served, no more than `spare[l + 1] * children[l + 1]` cells
can come from there.

Why a mapping keeps it. A split of a listed cell of level m takes one from `spare[m]`: its children replace at level m -
1 exactly the share of the lost spare there. Taking a listed cell for a claim changes no spare, because list and claims
of that level both lose one. So cells can be taken together if no level is split more often than it has spare
(`keeps_safety`, rule 7.7). A release puts the cell and its claim back, and merging gives spare back. A valid
configuration starts safe (rule 1.11). Only a replay or a doomed cell takes cells without asking; the chain is then
*strained* (rule 4.4).

Level by level (rule 4.2), `left[l] >= claims[l]` asks less. Unrolled, `spare[l]` is `left[l]` minus the claims of l and
of all levels above, counted in cells of l. One free rack of two nodes meets the claim of a rack or that of a node, but
not both. The reference asks this of a replayed group, so `holds_at` does too (rule 11.9).
"""

import numpy as np

from hived.cells.journal import put, write
from hived.cells.state import Cells, State
from hived.cells.topology import NO_CELL, IntArray, LongArray, TopologyArrays
from hived.kernels.jit import kernel


@kernel
def spare_cells(t: TopologyArrays, s: Cells, chain: int) -> LongArray:
    """Count the cells of each level of a chain that may be split, negative where claims cannot be met (rule 4.3).

    Index as chain levels; shape (top level of the chain + 1,). Cost O(levels).
    """
    bottom, top = t.level_offset[chain] + 1, t.level_offset[chain] + t.top_level[chain]
    spare = np.zeros(top + 1, np.int64)
    for level in range(top, bottom - 1, -1):
        spare[level] = s.free_count[level] - s.claims[level]
        if level < top:
            spare[level] += spare[level + 1] * t.child_count[level + 1]
    return spare


@kernel
def good_spare_cells(t: TopologyArrays, s: Cells, chain: int) -> LongArray:
    """Count the good free cells of each level that may be split while good ones meet as many claims as now (rule 18.7).

    Each level has its good free cells, wherever they are listed, less its own claims and the claims above that good
    cells can meet. A split of a bad cell takes no good one away. Negative where good cells are too few. Shape as
    `spare_cells`, which has the same numbers if no free cell is bad. Cost O(levels).
    """
    bottom, top = t.level_offset[chain] + 1, t.level_offset[chain] + t.top_level[chain]
    spare = np.zeros(top + 1, np.int64)
    taken = np.int64(0)  # good cells of the level that are below ones that meet claims above
    for level in range(top, bottom - 1, -1):
        good = max(s.left[level] - s.bad_count[level] - taken, 0)
        spare[level] = good - s.claims[level]
        taken = (taken + min(s.claims[level], good)) * t.child_count[level]
    return spare


@kernel
def is_safe(t: TopologyArrays, s: Cells, chain: int) -> bool:
    """True if no spare of a chain is negative; without an array, as replays ask it for each leaf. Cost O(levels)."""
    spare = np.int64(0)
    for level in range(t.level_offset[chain] + t.top_level[chain], t.level_offset[chain], -1):
        spare += s.free_count[level] - s.claims[level]
        if spare < 0:
            return False
        spare *= t.child_count[level]
    return True


@kernel
def holds_at(s: Cells, level: int) -> bool:
    """True if a level has as many free cells as VCs can still claim there, for any claims above (rule 4.2)."""
    return bool(s.left[level] >= s.claims[level])


@kernel
def keeps_safety(t: TopologyArrays, s: Cells, taken: IntArray, spare: LongArray) -> bool:
    """True if these free cells may be taken together for claims of their levels (rule 7.7). Cost O(cells x height).

    spare : `spare_cells` before anything was split for them. A spare that is negative already, in a strained chain,
    forbids nothing.

    Stricter than the reference, whose relaxed split counts neither the levels in between nor what a second root splits.
    """
    is_kept = True
    needed = np.zeros(len(spare), np.int64)
    for cell in taken:
        above = t.parent[cell]
        while above != NO_CELL and s.split[above] == 0 and s.mark[above] == 0:
            s.mark[above] = 1
            needed[t.chain_level[above]] += 1
            above = t.parent[above]
    for cell in taken:
        above = t.parent[cell]
        while above != NO_CELL and s.mark[above] == 1:
            s.mark[above] = 0
            above = t.parent[above]
    for level in range(len(spare)):
        is_kept = is_kept and (needed[level] <= spare[level] or spare[level] < 0)
    return is_kept


@kernel
def note_strain(t: TopologyArrays, s: Cells, chain: int) -> None:
    """Record a chain whose VC safety a doomed cell or a replayed leaf breaks (rule 4.4)."""
    if not is_safe(t, s, chain):
        put(s, s.strained, chain, 1)


def spare_of(state: State, chain: int) -> LongArray:
    """`spare_cells` for Python, which calls it too rarely for a kernel of its own."""
    return spare_cells(state.arrays, state.cells, chain)


def good_spare_of(state: State, chain: int) -> LongArray:
    """`good_spare_cells` for Python."""
    return good_spare_cells(state.arrays, state.cells, chain)


def relieve_chains(state: State) -> None:
    """Forget the strain of chains that are safe again. Cost O(chains), and O(levels) for each that is strained."""
    for chain, is_strained in enumerate(state.cells.strained.tolist()):
        if is_strained and spare_of(state, chain).min() >= 0:
            write(state, state.cells.strained, chain, 0)


def is_damaged(before: LongArray, after: LongArray) -> bool:
    """True if a level is short of cells for the VCs' claims, and by more than before."""
    return bool(((after < 0) & (after < before)).any())


def claims_without_good_cells(state: State, chain: int) -> dict[int, int]:
    """Count, by level, the claims that good cells cannot meet once the claims above are met, larger cells first.

    The formula with good free cells in place of all free ones; a level that is short gives the next one no spare.
    Claims that good cells cannot meet by themselves are doomed at once (rule 10.5), and are not among them.
    """
    arrays, cells = state.arrays, state.cells
    offset, top = int(arrays.level_offset[chain]), int(arrays.top_level[chain])
    missing, taken = {}, 0  # leaves below the cells that meet the claims of higher levels
    for level in range(offset + top, offset, -1):
        leaves, claims = int(arrays.leaf_count[level]), int(cells.claims[level])
        good = int(cells.left[level] - cells.bad_count[level]) - taken // leaves
        met = min(claims, max(good, 0))
        taken += met * leaves
        if met < claims:
            missing[level - offset] = claims - met
    return missing
