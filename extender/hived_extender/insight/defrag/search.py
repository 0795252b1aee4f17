"""The best solution of a puzzle, searched best first; exact unless its budget is spent.

What is wanted has parts, each of which needs a place. A node of the search has places for some of the parts, and the
movers that leave for these. Its cost is that of these movers. The bound adds the least cost of the other parts: each
mover is shared out among the spots that it is in, so that no sum of shares exceeds the cost of the movers together.
Parts that are alike take their spots in ascending order. Once all parts have a place, the movers are packed into the
room that is left. Where they do not fit, more groups are moved to make room, one by one, cheapest first. So the first
node whose movers fit is the cheapest one.

Moved pods are packed largest first. Bins with equal room that refuse the same pods are alike for that. So the exact
search looks at kinds of room and not at bins: the amount, and who is refused. Which of these bins it is, follows from
locality: beside mates of the group, then as near the old place as can be.
"""

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

import msgspec

from hived_extender.insight.defrag.puzzle import NO_BINS, Kind, Puzzle, Solution, Spot

RoomKind = tuple[int, frozenset[int]]
"""Of room: leaves that are free, and the numbers of the sets of refused bins that it is in."""

Ask = tuple[int, int]
"""Of a pod: its leaves, and the number of the set of bins that refuse it, -1 if none does."""

NOBODY: frozenset[int] = frozenset()


class Budget:
    """Steps that are left. A search that has none left gives up, and says so. The same on every machine."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    @property
    def is_spent(self) -> bool:
        """Are no steps left?"""
        return self.left <= 0

    def spend(self, steps: int = 1) -> None:
        """Count steps."""
        self.left -= steps


class Room:
    """Room for moved pods in each bin, once some groups have left and wanted things have their places."""

    def __init__(self, puzzle: Puzzle) -> None:
        """No mover has left. Cost O(bins + movers)."""
        self._puzzle = puzzle
        own, lent = list(puzzle.fixed), list(puzzle.lent)
        for mover in puzzle.movers:
            amounts = lent if mover.is_guest else own
            for bin_, size in mover.pods:
                amounts[bin_] += size
        self.own, self._lent = own, lent
        self._free = [
            capacity - mine - theirs for capacity, mine, theirs in zip(puzzle.capacity, own, lent, strict=True)
        ]
        sets = dict.fromkeys(each for mover in puzzle.movers for each in mover.refused if each)
        self._numbers = {each: number for number, each in enumerate(sets)}
        self._refuses: dict[int, frozenset[int]] = {
            bin_: frozenset(number for each, number in self._numbers.items() if bin_ in each)
            for bin_ in NO_BINS.union(*sets)
        }
        self._buckets: dict[RoomKind, list[int]] = {}
        for bin_, free in enumerate(self._free):
            if free > 0:
                self._buckets.setdefault((free, self.refuses(bin_)), []).append(bin_)

    def refuses(self, bin_: int) -> frozenset[int]:
        """The numbers of the sets of refused bins that a bin is in."""
        return self._refuses.get(bin_, NOBODY)

    def after(self, moved: frozenset[int], used: Mapping[int, int]) -> dict[int, int]:
        """The room of the bins in which it changes: `moved` have left, `used` has what is wanted of bins."""
        own, lent, changed = Counter[int](), Counter[int](), set(used)
        for number in moved:
            mover = self._puzzle.movers[number]
            for bin_, size in mover.pods:
                (lent if mover.is_guest else own)[bin_] -= size
                changed.add(bin_)
        return {
            bin_: self._puzzle.capacity[bin_]
            - self.own[bin_]
            - own[bin_]
            - max(used.get(bin_, 0), self._lent[bin_] + lent[bin_])
            for bin_ in sorted(changed)
        }

    def pack(self, pods: Sequence["Pod"], changed: Mapping[int, int], budget: Budget) -> "Packed":
        """Bins for these pods; `changed` is what `after` says. Cost O(pods x log bins) if packing at once succeeds."""
        counts = Counter({kind: len(bins) for kind, bins in self._buckets.items()})
        for bin_, free in changed.items():
            counts[self._free[bin_], self.refuses(bin_)] -= 1
            counts[free, self.refuses(bin_)] += 1
        counts = Counter({kind: count for kind, count in counts.items() if kind[0] > 0 and count > 0})
        asks = tuple(self._ask_of(pod) for pod in self._in_order(pods))
        budget.spend(1 + len(asks))
        if not _can_fit(tuple(size for size, _ in asks), counts):
            return Packed(is_proven=True)
        plan = _at_once(asks, counts)
        if plan is None:
            search = _Exact(budget)
            plan = search.find(asks, tuple(sorted(counts.items(), key=_order)))
            if plan is None:
                return Packed(is_proven=not search.gave_up)
        return Packed(bins=self._choose(pods, plan, changed), is_proven=True)

    def _ask_of(self, pod: "Pod") -> Ask:
        return pod.size, self._numbers.get(pod.refused, -1)

    def _in_order(self, pods: Sequence["Pod"]) -> list["Pod"]:
        """The largest first; of one size, the ones that most bins refuse."""
        return sorted(pods, key=lambda pod: (-pod.size, -len(pod.refused)))

    def _choose(self, pods: Sequence["Pod"], plan: Sequence[RoomKind], changed: Mapping[int, int]) -> tuple[int, ...]:
        """A bin for each pod, of the rooms that the plan says, largest pods first; near mates, then near home."""
        parents = self._puzzle.parents
        touched = dict(changed)
        extra: dict[RoomKind, list[int]] = {}
        for bin_, free in touched.items():
            extra.setdefault((free, self.refuses(bin_)), []).append(bin_)
        homes: dict[int, int] = {}
        chosen = [0] * len(pods)
        order = sorted(range(len(pods)), key=lambda each: (-pods[each].size, -len(pods[each].refused), each))
        for number, room in zip(order, plan, strict=True):
            pod = pods[number]
            near = homes.get(pod.mover, pod.home)
            options = [*extra.get(room, ()), *_around(self._buckets.get(room, []), near, touched)]
            best = min(options, key=lambda bin_: (parents[bin_] != parents[near], abs(bin_ - near), bin_))
            chosen[number] = best
            homes.setdefault(pod.mover, best)
            if best in touched:
                extra[room].remove(best)
            touched[best] = room[0] - pod.size
            insort(extra.setdefault((touched[best], room[1]), []), best)
        return tuple(chosen)


class Pod(msgspec.Struct, frozen=True):
    """A pod that has to be packed: its mover, its leaves, the bin that it was in, and the bins that refuse it."""

    mover: int
    size: int
    home: int
    refused: frozenset[int] = NO_BINS


def pods_of(puzzle: Puzzle, moved: Iterable[int]) -> list[Pod]:
    """The pods of some movers; guests find their places by themselves."""
    return [
        Pod(number, size, bin_, puzzle.movers[number].refused_to(pod))
        for number in moved
        if not puzzle.movers[number].is_guest
        for pod, (bin_, size) in enumerate(puzzle.movers[number].pods)
    ]


class Packed(msgspec.Struct, frozen=True):
    """The bin of each pod, None if they do not fit; is that proven?"""

    bins: tuple[int, ...] | None = None
    is_proven: bool = False


def _around(bins: list[int], near: int, touched: Mapping[int, int]) -> list[int]:
    """The nearest untouched bins of an ascending list, one on either side."""
    middle = bisect_left(bins, near)
    found = []
    for positions in (range(middle, len(bins)), range(middle - 1, -1, -1)):
        for position in positions:
            if bins[position] not in touched:
                found.append(bins[position])
                break
    return found


def _can_fit(sizes: tuple[int, ...], counts: Mapping[RoomKind, int]) -> bool:
    """Is there room for as many pods of each size and larger, one size at a time? Necessary, not sufficient."""
    if sum(sizes) > sum(free * count for (free, _), count in counts.items()):
        return False
    return all(
        sum(free // size * count for (free, _), count in counts.items()) >= sum(1 for each in sizes if each >= size)
        for size in set(sizes)
    )


def _at_once(asks: tuple[Ask, ...], counts: Mapping[RoomKind, int]) -> list[RoomKind] | None:
    """The room that each pod takes: the smallest that it fits in. None if a pod is left over."""
    left = dict(counts)
    plan = []
    for size, number in asks:
        rooms = [kind for kind, count in left.items() if count and kind[0] >= size and number not in kind[1]]
        if not rooms:
            return None
        room = min(rooms, key=lambda kind: _order((kind, 0)))
        _take(left, room, size)
        plan.append(room)
    return plan


def _order(room: tuple[RoomKind, int]) -> tuple[int, int, list[int]]:
    """The least room first, of it the room that refuses most."""
    (free, refuses), _ = room
    return free, -len(refuses), sorted(refuses)


def _take(counts: dict[RoomKind, int], room: RoomKind, size: int) -> None:
    free, refuses = room
    counts[room] -= 1
    if free > size:
        counts[free - size, refuses] = counts.get((free - size, refuses), 0) + 1


class _Exact:
    """Tries every kind of room for each pod, with what is known to fail remembered."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._dead: set[tuple[int, tuple[tuple[RoomKind, int], ...]]] = set()
        self.gave_up = False

    def find(self, asks: tuple[Ask, ...], counts: tuple[tuple[RoomKind, int], ...]) -> list[RoomKind] | None:
        """The room that each pod takes, None if there is no way, or the budget is spent."""
        plan: list[RoomKind] = []
        stack = [(counts, iter(_rooms(counts, asks[0])))] if asks else []
        while stack and len(plan) < len(asks):
            here, rooms = stack[-1]
            room = next(rooms, None)
            if room is None:
                self._dead.add((len(plan), here))
                stack.pop()
                if plan:
                    plan.pop()
                continue
            self._budget.spend()
            if self._budget.is_spent:
                self.gave_up = True
                return None
            left = dict(here)
            _take(left, room, asks[len(plan)][0])
            below = tuple(sorted(((kind, count) for kind, count in left.items() if count), key=_order))
            if (len(plan) + 1, below) in self._dead:
                continue
            plan.append(room)
            if len(plan) < len(asks):
                stack.append((below, iter(_rooms(below, asks[len(plan)]))))
        return plan if len(plan) == len(asks) else None


def _rooms(counts: Sequence[tuple[RoomKind, int]], ask: Ask) -> list[RoomKind]:
    size, number = ask
    return [kind for kind, _ in counts if kind[0] >= size and number not in kind[1]]


class Part(msgspec.Struct, frozen=True):
    """One cell, or one pod of a gang, that needs a place. `is_alike`: as the part before it, of the same gang."""

    kind: int
    size: int = 0  # of a pod; 0 for a cell
    is_alike: bool = False
    gang: int = -1


def upper_bound(puzzle: Puzzle) -> tuple[int, ...]:
    """Per kind, at most how many of it can have room."""
    free = free_leaves(puzzle)
    found = []
    for kind in puzzle.kinds:
        most = min(kind.count, free // _leaves(kind)) if kind.spots or kind.sizes else 0
        found.append(max(0, min(most, len(kind.spots)) if kind.spots else most))
    return tuple(found)


def free_leaves(puzzle: Puzzle) -> int:
    """Leaves without a group of the VC: groups that move need as many as before."""
    own = sum(puzzle.fixed) + sum(size for mover in puzzle.movers if not mover.is_guest for _, size in mover.pods)
    return sum(puzzle.capacity) - own


def _leaves(kind: Kind) -> int:
    """Of one thing of a kind, with a place or sizes."""
    return sum(kind.sizes) or sum(kind.spots[0].amounts)


def numbers_met(puzzle: Puzzle, most: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every way to meet so many wanted things with the leaves that are free, most of the first kinds first."""
    if len(most) == 1:
        yield (total,)
        return
    free = free_leaves(puzzle)
    for met in product(*(range(count, -1, -1) for count in most)):
        leaves = sum(count * _leaves(kind) for count, kind in zip(met, puzzle.kinds, strict=True) if count)
        if sum(met) == total and leaves <= free:
            yield met


def parts_of_kinds(kinds: Sequence[Kind], met: Sequence[int]) -> list[Part]:
    """The parts of so many things of each kind; larger cells first, as they have fewest places."""
    order = sorted(range(len(kinds)), key=lambda each: (-_weight(kinds[each]), each))
    parts: list[Part] = []
    gangs = 0
    for number in order:
        kind = kinds[number]
        for copy in range(met[number]):
            if kind.spots:
                parts.append(Part(number, is_alike=copy > 0))
                continue
            sizes = kind.sizes
            parts += [Part(number, size, i > 0 and sizes[i - 1] == size, gangs) for i, size in enumerate(sizes)]
            gangs += 1
    return parts


def _weight(kind: Kind) -> int:
    return sum(kind.spots[0].amounts) if kind.spots else max(kind.sizes, default=0)


STEPS = 400_000
"""Of one plan: a step is a node, a pod packed, or a place that is looked at."""

NODE_STEPS = 4

Used = dict[int, int]


class _Node(msgspec.Struct, eq=False):
    depth: int
    moved: frozenset[int]
    cost: int
    shares: int  # of the spots that are taken
    used: Used
    last: int = -1  # where the part before has its place
    ranges: tuple[int, ...] = ()  # of each gang with ranges so far, which one
    options: list[tuple[int, int, int, frozenset[int]]] | None = None  # of the next part, if it is a pod
    more: int = 0  # the first of the movers by cost that may be moved to make room


class _Found(msgspec.Struct, frozen=True):
    """The end of a search for given numbers. `bound`: no solution costs less; None if there is no solution at all."""

    solution: Solution | None
    bound: int | None


def solve(puzzle: Puzzle, steps: int = STEPS) -> Solution:
    """The best solution found: most wanted things, then the least cost. Deterministic."""
    room, budget = Room(puzzle), Budget(steps)
    most = upper_bound(puzzle)
    proven = sum(most)
    greedy = Search(puzzle, room, most, Budget(steps)).dive()
    for total in range(sum(most), 0, -1):
        found = [_run(puzzle, room, met, budget) for met in numbers_met(puzzle, most, total)]
        bounds = [one.bound for one in found if one.bound is not None]
        solved = [one.solution for one in found if one.solution is not None]
        if solved:
            best = min(solved, key=lambda one: one.cost)
            return msgspec.structs.replace(best, bound_met=proven, bound_cost=min(best.cost, *bounds))
        if bounds and sum(greedy.met) >= total:
            return msgspec.structs.replace(greedy, bound_met=proven, bound_cost=min(greedy.cost, *bounds))
        if not bounds and proven == total:
            proven -= 1
    return msgspec.structs.replace(greedy, bound_met=proven)


def _run(puzzle: Puzzle, room: Room, met: Sequence[int], budget: Budget) -> "_Found":
    """A search with half of the steps that are left."""
    own = Budget(max(1, budget.left // 2))
    budget.spend(own.left)
    found = Search(puzzle, room, met, own).run()
    budget.spend(-max(0, own.left))
    return found


class Search:
    """One search for given numbers of each kind."""

    def __init__(self, puzzle: Puzzle, room: Room, met: Sequence[int], budget: Budget) -> None:
        self._puzzle, self._room, self._budget = puzzle, room, budget
        self._met = tuple(met)
        self._parts = parts_of_kinds(puzzle.kinds, met)
        self._spots = {number: _Shares(puzzle, kind) for number, kind in enumerate(puzzle.kinds) if kind.spots}
        self._in_bin = _movers_by_bin(puzzle)
        self._by_cost = sorted(range(len(puzzle.movers)), key=lambda each: (puzzle.movers[each].cost, each))
        self._heap: list[tuple[int, int, int, _Node, int]] = []
        self._pushed = 0
        self._is_sure = True  # was everything proven that was passed over?

    def run(self) -> _Found:
        """Search until the cheapest is found, there is none, or the budget is spent."""
        self._open(_Node(0, frozenset(), 0, 0, {}))
        while self._heap:
            bound, _, _, node, option = heapq.heappop(self._heap)
            self._budget.spend(NODE_STEPS)
            if self._budget.is_spent:
                return _Found(None, bound)
            if node.depth < len(self._parts):
                self._place(node, option)
                continue
            if option >= 0:
                self._move_more(node, option)
                continue
            pods = self._pods(node.moved)
            packed = self._room.pack(pods, self._room.after(node.moved, node.used), self._budget)
            if packed.bins is not None:
                return _Found(_solution(self._met, node, pods, packed.bins), bound if self._is_sure else 0)
            self._is_sure = self._is_sure and packed.is_proven
            self._push_more(node, node.more)
        return _Found(None, None if self._is_sure else 0)

    def _push(self, bound: int, node: _Node, option: int) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (bound, -node.depth, self._pushed, node, option))

    def _open(self, node: _Node) -> None:
        """Push the first option of a node."""
        if node.depth == len(self._parts):
            self._push(node.cost, node, -1)
            return
        part = self._parts[node.depth]
        if part.size:
            node.options = self._places(node, part)
            self._push_place(node, 0)
        else:
            self._push_spot(node, node.last + 1 if part.is_alike else 0)

    # Cells

    def _push_spot(self, node: _Node, option: int) -> None:
        part = self._parts[node.depth]
        shares = self._spots[part.kind]
        more, alike = 1, Part(part.kind, is_alike=True)
        while node.depth + more < len(self._parts) and self._parts[node.depth + more] == alike:
            more += 1
        if option + more <= len(shares.spots):
            bound = node.shares + shares.total(option, more)
            self._push(max(node.cost, bound), node, option)

    def _place(self, node: _Node, option: int) -> None:
        part = self._parts[node.depth]
        if part.size:
            self._push_place(node, option + 1)
        else:
            self._push_spot(node, option + 1)
        child = self._take_place(node, part, option) if part.size else self._take_spot(node, part, option)
        if child is not None:
            self._open(child)

    def _take_spot(self, node: _Node, part: Part, option: int) -> _Node | None:
        shares = self._spots[part.kind]
        spot = shares.spots[option]
        used = dict(node.used)
        for bin_, amount in zip(spot.bins, spot.amounts, strict=True):
            used[bin_] = used.get(bin_, 0) + amount
        moved = node.moved | spot.movers
        cost = node.cost + sum(self._puzzle.movers[each].cost for each in spot.movers - node.moved)
        child = _Node(node.depth + 1, moved, cost, node.shares + shares.each[option], used, option, node.ranges)
        return child if all(self._free(child, bin_) >= 0 for bin_ in spot.bins) else None

    def _free(self, node: _Node, bin_: int) -> int:
        """The leaves of a bin that are left for wanted things."""
        gone = sum(
            size
            for each in self._in_bin[bin_]
            if each in node.moved
            for place, size in self._puzzle.movers[each].pods
            if place == bin_
        )
        return self._puzzle.capacity[bin_] - self._room.own[bin_] + gone - node.used.get(bin_, 0)

    # Pods of gangs

    def _places(self, node: _Node, part: Part) -> list[tuple[int, int, int, frozenset[int]]]:
        """(cost, what is left over, bin, who has to leave) of every place of a pod, cheapest first.

        Of bins that nothing but their number tells apart, the first stands for all.
        """
        kind = self._puzzle.kinds[part.kind]
        first = node.last if part.is_alike else 0
        allowed: Sequence[int] = range(first, len(self._puzzle.capacity))
        if kind.ranges and part.gang < len(node.ranges):
            start, end = kind.ranges[node.ranges[part.gang]]
            allowed = range(max(first, start), end)
        elif kind.ranges:
            allowed = [bin_ for start, end in kind.ranges for bin_ in range(start, end)]
        found, seen, refused = [], set(), kind.refused_to(part.size)
        for bin_ in allowed:
            if bin_ in refused:
                continue
            free = self._free(node, bin_)
            here = [each for each in self._in_bin[bin_] if each not in node.moved]
            for leaving in _leaving(self._puzzle, bin_, here, part.size - free):
                cost = sum(self._puzzle.movers[each].cost for each in leaving)
                alike = (
                    0 if kind.ranges else self._puzzle.capacity[bin_],
                    bin_ if kind.ranges or not self._is_simple(here) else -1,
                    free,
                    self._room_key(bin_, here, leaving),
                )
                if alike not in seen:
                    seen.add(alike)
                    found.append((cost, free - part.size, bin_, leaving))
        self._budget.spend(len(found))
        return sorted(found, key=lambda each: (each[0], each[1], each[2]))

    def _is_simple(self, movers: Sequence[int]) -> bool:
        return all(len(self._puzzle.movers[each].pods) == 1 for each in movers)

    def _room_key(self, bin_: int, here: Sequence[int], leaving: frozenset[int]) -> tuple[object, ...]:
        movers = self._puzzle.movers
        described = sorted(
            (movers[each].pods[0][1], movers[each].cost, sorted(movers[each].refused_to(0)), each in leaving)
            for each in here
        )
        return self._puzzle.fixed[bin_], self._puzzle.lent[bin_], self._room.refuses(bin_), *map(str, described)

    def _push_place(self, node: _Node, option: int) -> None:
        if node.options is not None and option < len(node.options):
            self._push(max(node.cost + node.options[option][0], node.shares), node, option)

    def _take_place(self, node: _Node, part: Part, option: int) -> _Node:
        assert node.options is not None
        cost, _, bin_, leaving = node.options[option]
        used = dict(node.used)
        used[bin_] = used.get(bin_, 0) + part.size
        ranges = node.ranges
        kind = self._puzzle.kinds[part.kind]
        if kind.ranges and part.gang >= len(ranges):
            which = next(i for i, (start, end) in enumerate(kind.ranges) if start <= bin_ < end)
            ranges = (*ranges, *(0,) * (part.gang - len(ranges)), which)
        return _Node(node.depth + 1, node.moved | leaving, node.cost + cost, node.shares, used, bin_, ranges)

    # The cheapest place for one part after the other

    def dive(self) -> Solution:
        """A solution at once: no place is taken back, but those of a gang that cannot be whole."""
        begun: tuple[_Node, tuple[int, ...]] = _Node(0, frozenset(), 0, 0, {}), ()
        node, packed = begun
        met = [0] * len(self._puzzle.kinds)
        while node.depth < len(self._parts):
            part = self._parts[node.depth]
            if not part.size or node.depth == 0 or self._parts[node.depth - 1].gang != part.gang:
                begun = node, packed
            found = self._first_that_fits(node, part)
            if found is None:
                node, packed = self._skip(begun[0]), begun[1]
                continue
            node, packed = found
            is_last = node.depth == len(self._parts) or self._parts[node.depth].gang != part.gang
            met[part.kind] += not part.size or is_last
        return _solution(met, node, self._pods(node.moved), packed)

    def _first_that_fits(self, node: _Node, part: Part) -> tuple[_Node, tuple[int, ...]] | None:
        if part.size:
            node.options = self._places(node, part)
            options = range(len(node.options))
        else:
            options = range(node.last + 1 if part.is_alike else 0, len(self._spots[part.kind].spots))
        for option in options:
            if self._budget.is_spent:
                return None
            self._budget.spend(NODE_STEPS)
            child = self._take_place(node, part, option) if part.size else self._take_spot(node, part, option)
            if child is None:
                continue
            packed = self._room.pack(self._pods(child.moved), self._room.after(child.moved, child.used), self._budget)
            if packed.bins is not None:
                return child, packed.bins
        return None

    def _skip(self, begun: _Node) -> _Node:
        """Go on after the gang, or the kind of cells, that has no room, with what was so before."""
        part, depth = self._parts[begun.depth], begun.depth
        while depth < len(self._parts) and (
            self._parts[depth].kind == part.kind if not part.size else self._parts[depth].gang == part.gang
        ):
            depth += 1
        return _Node(depth, begun.moved, begun.cost, begun.shares, begun.used)

    # More groups that make room for those that were moved

    def _push_more(self, node: _Node, option: int) -> None:
        while option < len(self._by_cost) and self._by_cost[option] in node.moved:
            option += 1
        if option < len(self._by_cost):
            self._push(node.cost + self._puzzle.movers[self._by_cost[option]].cost, node, option)

    def _move_more(self, node: _Node, option: int) -> None:
        self._push_more(node, option + 1)
        number = self._by_cost[option]
        cost = node.cost + self._puzzle.movers[number].cost
        moved = node.moved | {number}
        self._push(cost, _Node(node.depth, moved, cost, node.shares, node.used, more=option + 1), -1)

    def _pods(self, moved: frozenset[int]) -> list[Pod]:
        return pods_of(self._puzzle, sorted(moved))


class _Shares:
    """The spots of a kind by ascending share of the cost of their movers."""

    def __init__(self, puzzle: Puzzle, kind: Kind) -> None:
        spots_of: dict[int, int] = {}
        for spot in kind.spots:
            for number in spot.movers:
                spots_of[number] = spots_of.get(number, 0) + 1

        def share(spot: Spot) -> int:
            return sum(puzzle.movers[number].cost // spots_of[number] for number in sorted(spot.movers))

        ranked = sorted((share(spot), spot.bins, i) for i, spot in enumerate(kind.spots))
        self.spots = [kind.spots[i] for _, _, i in ranked]
        self.each = [cost for cost, _, _ in ranked]
        self._sums = [0]
        for cost in self.each:
            self._sums.append(self._sums[-1] + cost)

    def total(self, first: int, count: int) -> int:
        """The shares of so many spots from one on."""
        return self._sums[first + count] - self._sums[first]


def _movers_by_bin(puzzle: Puzzle) -> list[list[int]]:
    """The movers of the VC itself in each bin, ascending."""
    found: list[list[int]] = [[] for _ in puzzle.capacity]
    for number, mover in enumerate(puzzle.movers):
        if not mover.is_guest:
            for bin_ in dict.fromkeys(bin_ for bin_, _ in mover.pods):
                found[bin_].append(number)
    return found


def _leaving(puzzle: Puzzle, bin_: int, here: Sequence[int], missing: int) -> Iterator[frozenset[int]]:
    """The smallest sets of movers of a bin that take at least so many leaves of it, none with one too many."""
    if missing <= 0:
        yield frozenset()
        return
    amounts = {each: sum(size for place, size in puzzle.movers[each].pods if place == bin_) for each in here}
    for count in range(1, len(here) + 1):
        for chosen in combinations(here, count):
            total = sum(amounts[each] for each in chosen)
            if total >= missing and all(total - amounts[each] < missing for each in chosen):
                yield frozenset(chosen)


def _solution(met: Sequence[int], node: _Node, pods: Sequence[Pod], bins: Sequence[int]) -> Solution:
    moved = tuple(sorted(node.moved))
    return Solution(tuple(met), moved, _by_mover(pods, bins), node.cost, sum(met), 0)


def _by_mover(pods: Sequence[Pod], bins: Sequence[int]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for pod, bin_ in zip(pods, bins, strict=True):
        found[pod.mover] = (*found.get(pod.mover, ()), bin_)
    return found
