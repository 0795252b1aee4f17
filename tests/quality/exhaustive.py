"""Every placement that a group could have in a small cluster, one after the other: complete in an obvious way.

A placement is within the VC's rights if each pod is in one node and below one preassigned cell of the VC: one that it
has already, or a new one that leaves every VC all that it is promised (`plain.is_safe`). Below a preassigned cell any
leaf will do. Free leaves below one parent are interchangeable, and so are pods of one size; nothing else is left out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product

from tests.quality.plain import OPPORTUNISTIC, Facts, Running, is_safe

Form = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A group that asks for cells.

    sizes : leaves of each pod
    nodes : the nodes that it may use, None for all; bad nodes are out in any case
    within : type of the cell that all pods have to be below, "" for none
    pinned : id of the pinned cell that it asks for
    combines : may a pod take several small cells of one type in one node?
    """

    name: str
    vc: str
    priority: int
    sizes: tuple[int, ...]
    nodes: frozenset[str] | None = None
    within: str = ""
    pinned: str = ""
    combines: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A placement: leaves pod by pod, largest pods first, and the VC's physical cells that they are below."""

    pods: tuple[tuple[int, ...], ...]
    roots: frozenset[int]


@dataclass
class _Search:
    facts: Facts
    wanted: Wanted
    may_take: Callable[[int], bool]
    sizes: list[int]
    safe: dict[frozenset[int], bool] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    pods: list[tuple[int, ...]] = field(default_factory=list)


def placements(facts: Facts, wanted: Wanted, may_take: Callable[[int], bool] | None = None) -> Iterator[Found]:
    """All placements on leaves that nobody uses, or on those that `may_take` allows.

    Placements that only exchange free leaves below one parent come once. Cost: exponential in the group's size.
    """
    free = facts.user
    take = may_take or (lambda leaf: leaf not in free)
    search = _Search(facts, wanted, take, sorted(wanted.sizes, reverse=True))
    owner = facts.owners()
    yield from _place(search, owner, frozenset(), 0)


def exists(facts: Facts, wanted: Wanted, may_take: Callable[[int], bool] | None = None) -> bool:
    """Is there any placement?"""
    return next(placements(facts, wanted, may_take), None) is not None


def may_evict(facts: Facts, wanted: Wanted) -> Callable[[int], bool]:
    """The leaves that are free, in opportunistic use, or used by groups of the own VC with lower priority."""

    def may_take(leaf: int) -> bool:
        user = facts.user.get(leaf)
        if user is None:
            return True
        if wanted.priority <= OPPORTUNISTIC:
            return False
        group = facts.groups[user]
        return group.priority == OPPORTUNISTIC or (group.vc == wanted.vc and group.priority < wanted.priority)

    return may_take


def cheapest_victims(
    facts: Facts, wanted: Wanted, cost: Callable[[Running], float], is_allowed: Callable[[Found], bool] | None = None
) -> tuple[float, frozenset[str]] | None:
    """The opportunistic groups whose leaving costs least, so that a placement exists; None if none exists.

    Every set of them is tried, cheapest first, then by size and names. Cost: exponential in their number.
    """
    lent = sorted(name for name, group in facts.groups.items() if group.priority == OPPORTUNISTIC)
    sets = [frozenset(some) for count in range(len(lent) + 1) for some in combinations(lent, count)]
    priced = sorted((sum(cost(facts.groups[name]) for name in some), len(some), sorted(some)) for some in sets)
    for price, _, names in priced:
        gone = frozenset(names)

        def may_take(leaf: int, gone: frozenset[str] = gone) -> bool:
            return leaf not in facts.user or facts.user[leaf] in gone

        for found in placements(facts, wanted, may_take):
            if is_allowed is None or is_allowed(found):
                return price, gone
    return None


def own_form(facts: Facts, wanted: Wanted, found: Found, without: frozenset[str] = frozenset()) -> Form:
    """All that the VC's own future depends on after a placement, the same for placements that swap empty cells.

    The trees below the VC's preassigned cells, with the group of each leaf. Empty and lent leaves are alike, bad ones
    differ. Cells that the VC did not use before are sorted, so that they can stand for each other. Those that it used
    cannot, even if the same groups are below them: later choices between equals go by their numbers. `without`: groups
    that left.
    """
    plain = facts.plain
    label: dict[int, str] = {leaf: wanted.name for pod in found.pods for leaf in pod}
    roots = set(found.roots) | set(plain.pins[wanted.vc].values())
    for group in facts.groups.values():
        if group.vc == wanted.vc and group.priority > OPPORTUNISTIC and group.name not in without:
            label.update((leaf, group.name) for pod in group.pods for leaf in pod)
            roots |= group.roots
    used = {cell for leaf, name in label.items() if name != wanted.name for cell in plain.up(leaf)}
    pinned = {cell: pin for pin, cell in plain.pins[wanted.vc].items()}

    def form(cell: int) -> Form:
        if not plain.children[cell]:
            return (label.get(cell, "!" if plain.node[cell] in facts.bad else ""),)
        return tuple(sorted(map(known, plain.children[cell]), key=repr))

    def known(cell: int) -> Form:
        return (cell, *form(cell)) if cell in used else form(cell)

    return tuple(sorted(((plain.chain[c], plain.level[c], pinned.get(c, ""), known(c)) for c in roots), key=repr))


def _place(search: _Search, owner: dict[int, str], roots: frozenset[int], first: int) -> Iterator[Found]:
    number = len(search.pods)
    if number == len(search.sizes):
        yield Found(tuple(search.pods), roots)
        return
    plain = search.facts.plain
    size = search.sizes[number]
    is_alike = number > 0 and search.sizes[number - 1] == size
    for at in range(first if is_alike else 0, len(plain.node_cells)):
        node = plain.node_cells[at]
        if not _may_use(search, node):
            continue
        for leaves in _choices(search, node, size):
            for own, more in _roots_of(search, owner, leaves):
                search.pods.append(leaves)
                search.taken.update(leaves)
                yield from _place(search, own, roots | more, at)
                search.taken.difference_update(leaves)
                search.pods.pop()


def _may_use(search: _Search, node: int) -> bool:
    plain, wanted = search.facts.plain, search.wanted
    name = plain.node[node]
    if name in search.facts.bad or (wanted.nodes is not None and name not in wanted.nodes):
        return False
    if not search.pods:
        return True
    other = search.pods[0][0]
    if plain.chain[other] != plain.chain[node]:
        return False
    if not wanted.within:
        return True
    level = plain.level_of(wanted.within)
    return level <= plain.level[node] or plain.above(node, level) == plain.above(other, level)


def _choices(search: _Search, node: int, size: int) -> Iterator[tuple[int, ...]]:
    """Leaves of a node for one pod; of leaves with one parent and one user, only the first ones."""
    plain, facts = search.facts.plain, search.facts
    if search.wanted.within and plain.level_of(search.wanted.within) <= plain.level[node]:
        level = plain.level_of(search.wanted.within)
        before = {plain.above(leaf, level) for pod in search.pods for leaf in pod}
    else:
        level, before = 0, set()
    alike: dict[tuple[int, str], list[int]] = {}
    for leaf in plain.leaves[node]:
        if leaf not in search.taken and search.may_take(leaf):
            alike.setdefault((plain.parent[leaf], facts.user.get(leaf, "")), []).append(leaf)
    classes = list(alike.values())
    for counts in product(*(range(min(len(each), size), -1, -1) for each in classes)):
        if sum(counts) == size:
            chosen = tuple(leaf for each, count in zip(classes, counts, strict=True) for leaf in each[:count])
            if not level or len(before | {plain.above(leaf, level) for leaf in chosen}) == 1:
                yield chosen


def _roots_of(
    search: _Search, owner: dict[int, str], leaves: tuple[int, ...]
) -> Iterator[tuple[dict[int, str], frozenset[int]]]:
    """The ways in which these leaves may be the VC's: owners afterwards, and the preassigned cells of the pod."""
    wanted, plain, facts = search.wanted, search.facts.plain, search.facts
    if wanted.priority <= OPPORTUNISTIC:
        yield owner, frozenset()
        return
    had = [_owned_above(facts, owner, leaf) for leaf in leaves]
    pins = plain.pins[wanted.vc]
    pinned = set(pins.values())
    for cell in had:
        if cell is not None and (owner[cell] != wanted.vc or (cell in pinned) != bool(wanted.pinned)):
            return
    if wanted.pinned:
        if set(had) == {pins[wanted.pinned]}:
            yield owner, frozenset({pins[wanted.pinned]})
        return
    if None not in had and len(set(had)) == 1:
        yield owner, frozenset(cell for cell in had if cell is not None)
        return
    node = plain.node_cell(leaves[0])
    claims = facts.claims(owner, wanted.vc)
    for (chain, level), count in sorted(claims.items()):
        if count <= 0 or chain != plain.chain[node]:
            continue
        if any(cell is not None and plain.level[cell] != level for cell in had):
            continue
        new = sorted({plain.above(leaf, level) for leaf, cell in zip(leaves, had, strict=True) if cell is None})
        every = frozenset(new) | {cell for cell in had if cell is not None}
        if not new or len(new) > count or (len(every) > 1 and not (wanted.combines and level < plain.level[node])):
            continue
        if any(cell in owner for top in new for cell in plain.below(top)):
            continue
        after = {**owner, **dict.fromkeys(new, wanted.vc)}
        key = frozenset(after)
        if key not in search.safe:
            search.safe[key] = is_safe(facts, after)
        if search.safe[key]:
            yield after, every
    if wanted.combines and None not in had and len({plain.level[c] for c in had if c is not None}) == 1:
        yield owner, frozenset(cell for cell in had if cell is not None)


def _owned_above(facts: Facts, owner: dict[int, str], leaf: int) -> int | None:
    cell = leaf
    while cell >= 0:
        if cell in owner:
            return cell
        cell = facts.plain.parent[cell]
    return None
