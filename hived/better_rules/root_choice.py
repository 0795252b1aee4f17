"""Hardware for preassigned cells: near together, and breaking as few promised cells as possible (rules 18.6, 18.7).

Any free cells of the right levels may be taken, as long as no level is split more often than VC safety leaves it spare
(rule 4.3). Splits are made on the free lists on the way; the caller undoes them.

A quick choice comes first: larger wishes first, each on the best cell that fits. If a wish is left without a cell, a
complete search follows: depth first, with a matching of all remaining wishes before each step.
"""

from typing import NamedTuple

import numpy as np

from hived.cells.free_lists import take_free_cell
from hived.cells.journal import undo_writes
from hived.cells.safety import good_spare_cells, spare_cells
from hived.cells.state import Cells
from hived.cells.topology import NO_CELL, IntArray, LongArray, TopologyArrays
from hived.cells.tree import first_below
from hived.hived_rules.matching import match_first
from hived.hived_rules.wishes import Suggestion, Wishes, assign, fit_matrix, is_usable, is_whole
from hived.kernels.jit import kernel


class Roots(NamedTuple):
    """The preassigned wishes of a group, higher levels first, and of one level the ones with most leaves wanted.

    wish : number of the wish
    chain_level : its level
    leaves : how many leaves below it are wanted
    spare : splits that VC safety leaves to each chain level; negative where it does not hold anyway
    good_spare : splits of good cells that leave good ones for all claims; negative where these are too few anyway
    promised : 1 for chain levels of which any VC is promised a cell
    """

    wish: IntArray
    chain_level: IntArray
    leaves: IntArray
    spare: LongArray
    good_spare: LongArray
    promised: IntArray


@kernel
def order_roots(t: TopologyArrays, s: Cells, w: Wishes, wishes: IntArray, virtual: IntArray) -> Roots:
    """The preassigned wishes of some virtual leaves. Cost O(leaves + VCs x levels)."""
    count = len(wishes)
    wanted = np.zeros(count, np.int32)
    for i in range(count):
        s.mark[w.cell[wishes[i]]] = i + 1
    for leaf in virtual:
        if s.mark[t.root[leaf]] > 0:
            wanted[s.mark[t.root[leaf]] - 1] += 1
    keys = np.empty(count, np.int64)
    for i in range(count):
        s.mark[w.cell[wishes[i]]] = 0
        keys[i] = -(np.int64(t.level[w.cell[wishes[i]]]) << 32) - wanted[i]
    order, chain_levels, leaves = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int32)
    for i, place in enumerate(np.argsort(keys, kind="mergesort")):
        order[i], leaves[i] = wishes[place], wanted[place]
        chain_levels[i] = t.chain_level[w.cell[order[i]]]
    promised = np.zeros(len(t.child_count), np.int32)
    for level in range(len(promised)):
        promised[level] = t.most_roots[level] > 0
    chain = t.chain_of_level[chain_levels[0]]
    return Roots(order, chain_levels, leaves, spare_cells(t, s, chain), good_spare_cells(t, s, chain), promised)


@kernel
def least_wanted(roots: Roots, first: int, end: int) -> int:
    """The fewest leaves that any of some wishes wants (a linked kernel cannot use `min` of an array)."""
    least = int(roots.leaves[first])
    for i in range(first + 1, end):
        least = min(least, int(roots.leaves[i]))
    return least


@kernel
def first_of_chain(t: TopologyArrays, chain_level: int) -> int:
    """The first physical cell of a chain level's chain; cells of a chain are numbered level by level from the top."""
    chain = t.chain_of_level[chain_level]
    return int(t.level_base[t.level_offset[chain] + t.top_level[chain]])


@kernel
def count_free(t: TopologyArrays, s: Cells, roots: Roots, suggestion: Suggestion) -> IntArray:
    """Count the free cells of the lowest wished level below each cell that may have room; index from the first cell of
    the chain.

    A cell behind a split that VC safety forbids does not count.
    """
    lowest = roots.chain_level[len(roots.chain_level) - 1]
    base, chain = first_of_chain(t, lowest), t.chain_of_level[lowest]
    top = t.level_offset[chain] + t.top_level[chain]
    counts = np.zeros(t.level_base[lowest] + t.level_size[lowest] - base, np.int32)
    least = roots.leaves[0]
    for leaves in roots.leaves:
        least = min(least, leaves)
    for level in range(lowest, top + 1):
        if level > lowest and roots.spare[level] == 0:
            break
        for position in range(s.free_count[level]):
            listed = s.free_list[t.level_base[level] + position]
            first, count = first_below(t, listed, t.level[listed] - level + lowest)
            for cell in range(first, first + count):
                counts[cell - base] = may_hold(t, s, cell, least, suggestion)
    for level in range(lowest + 1, top + 1):
        for cell in range(t.level_base[level], t.level_base[level] + t.level_size[level]):
            for child in range(t.first_child[cell], t.first_child[cell] + t.child_count[level]):
                counts[cell - base] += counts[child - base]
    return counts


@kernel
def may_hold(t: TopologyArrays, s: Cells, cell: int, wanted: int, suggestion: Suggestion) -> int:
    """1 if a free cell is usable and might have so many leaves for a group."""
    if suggestion.is_sound and (s.bad[cell] == 1 or s.lost[cell] > 0):
        return 0
    had = t.leaf_count[t.chain_level[cell]] - s.lost[cell]
    if suggestion.spares:
        had -= s.opportunistic_used[cell]
    return int(had >= wanted and is_usable(t, s, cell, suggestion))


@kernel
def is_candidate(
    t: TopologyArrays, s: Cells, cell: int, wanted: int, is_whole_wanted: bool, suggestion: Suggestion
) -> bool:
    """True if a free cell may hold a wish; for a whole one, with no leaf lent, lost or bad."""
    if is_whole_wanted and (s.opportunistic_used[cell] > 0 or s.lost[cell] > 0 or s.bad[cell] == 1):
        return False
    return may_hold(t, s, cell, wanted, suggestion) == 1


@kernel
def are_enough(t: TopologyArrays, s: Cells, roots: Roots, suggestion: Suggestion) -> bool:
    """True if each level has as many cells as wishes, each with enough usable leaves by itself.

    If not, there is no need to search. Cost O(nodes), and O(nodes of the wishes) as a rule if there are enough.
    """
    first = 0
    while first < len(roots.wish):
        level, end = roots.chain_level[first], first
        while end < len(roots.wish) and roots.chain_level[end] == level:
            end += 1
        least, left = least_wanted(roots, first, end), end - first
        for cell in range(t.level_base[level], t.level_base[level] + t.level_size[level]):
            if s.split[cell] == 0 and may_hold(t, s, cell, least, suggestion) == 1:
                left -= int(_has_leaves(t, s, cell, least, suggestion))
                if left == 0:
                    break
        if left > 0:
            return False
        first = end
    return True


@kernel
def _has_leaves(t: TopologyArrays, s: Cells, cell: int, wanted: int, suggestion: Suggestion) -> bool:
    """True if the usable nodes of a cell have so many leaves for a group. Cost O(nodes of the cell)."""
    node_level, found = t.node_level[t.chain_of_level[t.chain_level[cell]]], 0
    if t.level[cell] <= node_level:
        return True
    first, count = first_below(t, cell, node_level)
    for node in range(first, first + count):
        if is_usable(t, s, node, suggestion):
            found += int(t.leaf_count[t.chain_level[node]] - s.lost[node])
            if suggestion.spares:
                found -= int(s.opportunistic_used[node])
            if found >= wanted:
                return True
    return False


_MOST_AREAS = 16  # cells of a level that are tried as the place for a whole group
_MOST_STEPS = 400  # cells that are tried in one complete search, fewer with many cells
_STEPS_TIMES_FITS = 1 << 21
_MOST_FITS = 1 << 18  # wishes times cells; with more, there is no complete search
_UNKNOWN = -1
_USED_BITS = 20


@kernel
def place_roots(
    t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, anchor: int, most_level: int, suggestion: Suggestion
) -> bool:
    """Find a physical cell for each preassigned wish, and the cells below it; fills `w.match`.

    anchor : the lowest cell that has what the group takes of bound cells, NO_CELL if it takes none

    most_level : all shall be below one cell of this level at most, together with the anchor; 0: anywhere

    The lowest level is tried first at which one cell has room, at last the whole chain. Cost O(cells of the wishes'
    levels) for each level, for a single wish O(free list) as a rule.
    """
    if not are_enough(t, s, roots, suggestion):
        return False
    lowest, chain = roots.chain_level[0], t.chain_of_level[roots.chain_level[0]]
    top = t.level_offset[chain] + t.top_level[chain]
    limit = top if most_level == 0 else min(top, t.level_offset[chain] + most_level)
    if len(roots.wish) > 1 or anchor != NO_CELL:
        free = count_free(t, s, roots, suggestion)
        for level in range(lowest, limit + 1):
            if _place_at(t, s, w, roots, free, anchor, level, suggestion):
                return True
        if most_level > 0:
            return False
    elif most_level > 0 and lowest > limit:
        return False
    return _place_in(t, s, w, roots, NO_CELL, suggestion)


@kernel
def _place_at(
    t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, free: IntArray, anchor: int, level: int,
    suggestion: Suggestion,
) -> bool:  # fmt: skip
    """Place all wishes below one cell of a level: the one where fewest free cells are left over, of those that break
    fewest promised cells.
    """
    if anchor != NO_CELL:
        while anchor != NO_CELL and t.chain_level[anchor] < level:
            anchor = t.parent[anchor]
        is_there = anchor != NO_CELL and t.chain_level[anchor] == level
        return is_there and _place_in(t, s, w, roots, anchor, suggestion)
    base, needed = first_of_chain(t, level), 0
    lowest = roots.chain_level[len(roots.chain_level) - 1]
    for chain_level in roots.chain_level:
        needed += t.leaf_count[chain_level] // t.leaf_count[lowest]
    if needed > t.leaf_count[level] // t.leaf_count[lowest]:
        return False
    first, size = t.level_base[level], t.level_size[level]
    keys = np.full(size, _UNKNOWN, np.int64)
    for cell in range(first, first + size):
        if free[cell - base] >= needed:
            keys[cell - first] = (_breaks(t, s, roots, cell, lowest) << 32) + int(free[cell - base])
    for _ in range(_MOST_AREAS):
        best = NO_CELL
        for i in range(size):
            if keys[i] != _UNKNOWN and (best == NO_CELL or keys[i] < keys[best]):
                best = i
        if best == NO_CELL:
            return False
        if _place_in(t, s, w, roots, first + best, suggestion):
            return True
        keys[best] = _UNKNOWN
    return False


@kernel
def _breaks(t: TopologyArrays, s: Cells, roots: Roots, cell: int, lowest: int) -> int:
    """Count the promised levels that are broken if only some cells below a free cell are taken; 0 if it is split."""
    listed = cell
    while listed != NO_CELL and s.free_position[listed] == NO_CELL:
        listed = t.parent[listed]
    broken = 0
    if listed != NO_CELL:
        for level in range(lowest + 1, t.chain_level[listed] + 1):
            broken += int(roots.promised[level])
    return broken


@kernel
def _place_in(t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, area: int, suggestion: Suggestion) -> bool:
    """Place all wishes below one cell, or anywhere; a failure changes nothing."""
    mark, spare, good_spare = s.journal_control[1], roots.spare.copy(), roots.good_spare.copy()
    filled = 0
    while filled < len(roots.wish):
        end = filled
        while end < len(roots.wish) and roots.chain_level[end] == roots.chain_level[filled]:
            end += 1
        filled = _place_level(t, s, w, roots, filled, end, area, suggestion)
        if filled < end:
            _take_back(s, roots, mark, spare, good_spare)
            return len(roots.wish) > 1 and _search_in(t, s, w, roots, area, suggestion)
    return True


@kernel
def _take_back(s: Cells, roots: Roots, mark: int, spare: LongArray, good_spare: LongArray) -> None:
    undo_writes(s, mark)
    for level in range(len(spare)):
        roots.spare[level], roots.good_spare[level] = spare[level], good_spare[level]


@kernel
def _search_in(t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, area: int, suggestion: Suggestion) -> bool:
    """Search all places of the wishes below one cell, or anywhere; a failure changes nothing.

    Complete up to a number of steps. Cost O(wishes x cells x leaves of a cell), if there are too few cells for all; up
    to _MOST_STEPS matchings otherwise.
    """
    count = len(roots.wish)
    cells, ends = _all_candidates(t, s, roots, area, suggestion)
    if count * len(cells) > _MOST_FITS:
        return False
    fits = np.zeros((count, len(cells)), np.int32)
    first = 0
    while first < count:
        end = first
        while end < count and roots.chain_level[end] == roots.chain_level[first]:
            end += 1
        start = 0 if first == 0 else ends[first - 1]
        if ends[first] - start < end - first:
            return False
        own = cells[start : ends[first]]
        own_fits = fit_matrix(t, s, w, roots.wish[first:end], own, suggestion)
        for row in range(end - first):
            for column in range(len(own)):
                fits[first + row, start + column] = own_fits[row, column]
        first = end
    if not _could_place(t, s, roots, cells, fits, 0, suggestion):
        return False
    left = max(count + 4, min(_MOST_STEPS, _STEPS_TIMES_FITS // (count * len(cells))))
    marks, tried = np.empty(count, np.int64), np.full(count, -1, np.int64)
    spares = np.empty((count, len(roots.spare)), np.int64)
    good_spares = np.empty((count, len(roots.spare)), np.int64)
    number = 0
    while number < count:
        marks[number] = s.journal_control[1]
        for level in range(len(roots.spare)):
            spares[number, level], good_spares[number, level] = roots.spare[level], roots.good_spare[level]
        place, is_placed = tried[number] + 1, False
        while place < len(cells) and not is_placed and left > 0:
            if fits[number, place] == 1 and not _is_like_earlier(t, s, cells, fits, number, place, suggestion):
                left -= 1
                if _try(t, s, w, roots, number, cells[place], suggestion):
                    is_placed = _could_place(t, s, roots, cells, fits, number + 1, suggestion)
                    if not is_placed:
                        _take_back(s, roots, marks[number], spares[number], good_spares[number])
            place += 1
        if is_placed:
            tried[number] = place - 1
            number += 1
        else:
            tried[number] = -1
            number -= 1
            if number >= 0:
                _take_back(s, roots, marks[number], spares[number], good_spares[number])
            if number < 0 or left <= 0:
                break
    if number == count:
        return True
    if number >= 0:
        _take_back(s, roots, marks[0], spares[0], good_spares[0])
    return False


@kernel
def _all_candidates(
    t: TopologyArrays, s: Cells, roots: Roots, area: int, suggestion: Suggestion
) -> tuple[IntArray, IntArray]:
    """The free cells of each wished level that may hold a wish, by level; for each wish, where cells of its level end.

    Of one level, cells with fewest splits above them come first, then cells in the listed cells of which least is lent.
    """
    count, total, first = len(roots.wish), 0, 0
    ends = np.empty(count, np.int32)
    for i in range(count):
        if i == 0 or roots.chain_level[i] != roots.chain_level[i - 1]:
            total += int(t.level_size[roots.chain_level[i]])
    cells, filled = np.empty(total, np.int32), 0
    chain = t.chain_of_level[roots.chain_level[0]]
    top = t.level_offset[chain] + t.top_level[chain]
    while first < count:
        level, end, start = roots.chain_level[first], first, filled
        while end < count and roots.chain_level[end] == level:
            end += 1
        least = least_wanted(roots, first, end)
        found, costs = np.empty(t.level_size[level], np.int32), np.empty(t.level_size[level], np.int64)
        for above in range(level, top + 1):
            if above > level and roots.spare[above] == 0:
                break
            for position in range(s.free_count[above]):
                listed = s.free_list[t.level_base[above] + position]
                below, span = first_below(t, listed, t.level[listed] - above + level)
                for cell in range(below, below + span):
                    if _is_below(t, cell, area) and is_candidate(t, s, cell, least, False, suggestion):
                        lent = int(s.opportunistic_used[listed])
                        cost = _cost(t, s, cell) if above == level else (lent << (2 * _USED_BITS))
                        costs[filled - start] = (np.int64(above - level) << 59) + cost
                        found[filled - start] = cell
                        filled += 1
        for i, place in enumerate(np.argsort(costs[: filled - start], kind="mergesort")):
            cells[start + i] = found[place]
        for i in range(first, end):
            ends[i] = filled
        first = end
    return cells[:filled], ends


@kernel
def _could_place(
    t: TopologyArrays, s: Cells, roots: Roots, cells: IntArray, fits: IntArray, first: int, suggestion: Suggestion
) -> bool:
    """True if each wish from `first` on has a cell of its own among those still free, splits aside."""
    left = fits[first:].copy()
    for place in range(len(cells)):
        if not _is_free(t, s, roots, cells[place], suggestion):
            for row in range(len(left)):
                left[row, place] = 0
    return bool(match_first(left, np.empty(len(left), np.int32)))


@kernel
def _is_free(t: TopologyArrays, s: Cells, roots: Roots, cell: int, suggestion: Suggestion) -> bool:
    """True if a cell is listed, or below a listed cell that may be split down to it."""
    listed = cell
    while s.free_position[listed] == NO_CELL:
        listed = t.parent[listed]
        if listed == NO_CELL or roots.spare[t.chain_level[listed]] == 0:
            return False
        if suggestion.is_sound and s.bad[listed] == 0 and roots.good_spare[t.chain_level[listed]] == 0:
            return False
    return True


@kernel
def _is_like_earlier(
    t: TopologyArrays, s: Cells, cells: IntArray, fits: IntArray, number: int, place: int, suggestion: Suggestion
) -> bool:
    """True if this wish failed on a cell that can change places with this one: beside it, whole and free."""
    cell = cells[place]
    if t.node[cell] == NO_CELL or not is_whole(s, cell, suggestion):
        return False
    for earlier in range(place):
        other = cells[earlier]
        if (
            fits[number, earlier] == 1
            and t.parent[other] == t.parent[cell]
            and is_whole(s, other, suggestion)
            and (s.free_position[other] == NO_CELL) == (s.free_position[cell] == NO_CELL)
            and s.split[other] == s.split[cell]
        ):
            return True
    return False


@kernel
def _place_level(
    t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, filled: int, end: int, area: int, suggestion: Suggestion
) -> int:
    """Place the wishes from `filled` to `end`, of one level: with fewest promised levels broken, then on cells of which
    nothing is lent. Returns the first one that has no place.
    """
    level = roots.chain_level[filled]
    chain = t.chain_of_level[level]
    top = t.level_offset[chain] + t.top_level[chain]
    highest = level
    while filled < end:
        while highest < top and roots.promised[highest + 1] == 0:
            highest += 1
        for is_whole_wanted in (True, False):
            if filled < end:
                filled = _take_up_to(t, s, w, roots, filled, end, area, highest, is_whole_wanted, suggestion)
        if highest == top:
            break
        highest += 1
    return filled


@kernel
def _take_up_to(
    t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, filled: int, end: int, area: int, highest: int,
    is_whole_wanted: bool, suggestion: Suggestion,
) -> int:  # fmt: skip
    """Place wishes on listed cells, then on cells below others up to a level, which are split one by one."""
    level = roots.chain_level[filled]
    tried = np.empty(t.level_size[level] + 1, np.int32)
    count = 0
    while filled < end:
        filled = _take_listed(t, s, w, roots, filled, end, area, is_whole_wanted, suggestion)
        if filled == end:
            break
        source = _source(t, s, roots, filled, end, area, highest, is_whole_wanted, suggestion)
        if source == NO_CELL:
            break
        before = filled
        filled = _take_below(t, s, w, roots, filled, end, area, source, is_whole_wanted, suggestion)
        if filled == before:  # its cells seemed to have room; leave them out
            s.mark[source] = 1
            tried[count] = source
            count += 1
    for i in range(count):
        s.mark[tried[i]] = 0
    return filled


@kernel
def _take_listed(
    t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, filled: int, end: int, area: int, is_whole_wanted: bool,
    suggestion: Suggestion,
) -> int:  # fmt: skip
    """Place wishes on listed cells of their level, least lent leaves first, then fullest parents first.

    Cost O(list log(list)), and O(list) for a single wish as a rule.
    """
    level = roots.chain_level[filled]
    found, costs = np.empty(s.free_count[level], np.int32), np.empty(s.free_count[level], np.int64)
    count, least = 0, least_wanted(roots, filled, end)
    for position in range(s.free_count[level]):
        cell = s.free_list[t.level_base[level] + position]
        if _is_below(t, cell, area) and is_candidate(t, s, cell, least, is_whole_wanted, suggestion):
            found[count], costs[count] = cell, _cost(t, s, cell)
            count += 1
    if count > 0 and end - filled == 1:
        best = np.argmin(costs[:count])
        if _try(t, s, w, roots, filled, found[best], suggestion):
            return filled + 1
    order = np.argsort(costs[:count], kind="mergesort")
    before = -1
    while before < filled < end:
        before = filled
        for i in order:
            if filled == end:
                break
            is_listed = s.free_position[found[i]] != NO_CELL
            if (
                is_listed
                and is_candidate(t, s, found[i], roots.leaves[filled], is_whole_wanted, suggestion)
                and _try(t, s, w, roots, filled, found[i], suggestion)
            ):
                filled += 1
    return filled


@kernel
def _is_below(t: TopologyArrays, cell: int, area: int) -> bool:
    """True if a cell is below an area, or the area itself. Everything is below NO_CELL."""
    if area == NO_CELL:
        return True
    first = t.first_leaf[area]
    return bool(first <= t.first_leaf[cell] < first + t.leaf_count[t.chain_level[area]])


@kernel
def _cost(t: TopologyArrays, s: Cells, cell: int) -> int:
    """The order of listed cells: least lent first, then by the use of parent and grandparent by VCs, most first."""
    cost, above = int(s.opportunistic_used[cell]), t.parent[cell]
    for _ in range(2):
        cost <<= _USED_BITS
        if above != NO_CELL:
            cost -= min(int(s.used[above]) - int(s.opportunistic_used[above]), (1 << _USED_BITS) - 1)
            above = t.parent[above]
    return cost


@kernel
def _source(
    t: TopologyArrays, s: Cells, roots: Roots, filled: int, end: int, area: int, highest: int, is_whole_wanted: bool,
    suggestion: Suggestion,
) -> int:  # fmt: skip
    """The listed cell to split next, of the lowest level where one has candidates for all wishes.

    Among these it is the one of which least is lent, as its other cells are claimed next, then the one with fewest
    candidates. If there is none, it is the one with most candidates. NO_CELL if none has any, or VC safety forbids the
    split.
    """
    level, left = roots.chain_level[filled], end - filled
    best, most = NO_CELL, 0
    for above in range(level + 1, highest + 1):
        if roots.spare[above] == 0:
            break
        enough, least = NO_CELL, np.int64(0)
        for position in range(s.free_count[above]):
            listed = s.free_list[t.level_base[above] + position]
            inner = area if area != NO_CELL and t.chain_level[area] < above else listed
            outer = listed if inner == area else area
            if s.mark[listed] == 1 or not _is_below(t, inner, outer):
                continue
            count = _count_candidates(t, s, inner, level, roots.leaves[filled], is_whole_wanted, suggestion)
            if count > most:
                best, most = listed, count
            cost = (np.int64(s.opportunistic_used[listed]) << 32) + count
            if count >= left and (enough == NO_CELL or cost < least):
                enough, least = listed, cost
        if enough != NO_CELL:
            return enough
    return best


@kernel
def _count_candidates(
    t: TopologyArrays, s: Cells, area: int, level: int, wanted: int, is_whole_wanted: bool, suggestion: Suggestion
) -> int:
    """Count the cells of a chain level below an area that may hold a wish. Cost O(these cells)."""
    first, span = first_below(t, area, t.level[area] - t.chain_level[area] + level)
    count = 0
    for cell in range(first, first + span):
        count += int(is_candidate(t, s, cell, wanted, is_whole_wanted, suggestion))
    return count


@kernel
def _take_below(
    t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, filled: int, end: int, area: int, source: int,
    is_whole_wanted: bool, suggestion: Suggestion,
) -> int:  # fmt: skip
    """Place as many wishes as can be below a listed cell, and the area."""
    level = roots.chain_level[filled]
    inner = area if area != NO_CELL and t.chain_level[area] < t.chain_level[source] else source
    first, span = first_below(t, inner, t.level[inner] - t.chain_level[inner] + level)
    for cell in range(first, first + span):
        if filled == end:
            break
        might_do = is_candidate(t, s, cell, roots.leaves[filled], is_whole_wanted, suggestion)
        if might_do and _try(t, s, w, roots, filled, cell, suggestion):
            filled += 1
    return filled


@kernel
def _try(t: TopologyArrays, s: Cells, w: Wishes, roots: Roots, number: int, cell: int, suggestion: Suggestion) -> bool:
    """Take a cell for a wish if it is free, VC safety allows the splits above it, and all below the wish fits.

    If new preassigned cells shall be sound, good cells must be left for all claims, too.
    """
    listed = cell
    while s.free_position[listed] == NO_CELL:
        listed = t.parent[listed]
        if listed == NO_CELL or roots.spare[t.chain_level[listed]] == 0:
            return False
        if suggestion.is_sound and s.bad[listed] == 0 and roots.good_spare[t.chain_level[listed]] == 0:
            return False
    wishes, candidates = np.empty(1, np.int32), np.empty(1, np.int32)
    wishes[0], candidates[0] = roots.wish[number], cell
    if not assign(t, s, w, wishes, candidates, suggestion):
        return False
    take_free_cell(t, s, cell)
    above = t.parent[cell]
    for level in range(t.chain_level[cell] + 1, t.chain_level[listed] + 1):
        if roots.spare[level] > 0:
            roots.spare[level] -= 1
        if s.bad[above] == 0 and roots.good_spare[level] > 0:
            roots.good_spare[level] -= 1
        above = t.parent[above]
    return True
