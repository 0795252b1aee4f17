"""Random clusters of a dozen nodes of 8 GPUs, with gangs of pods of several sizes, and a judge of who leaves.

The judge tries all hardware that could stand behind the virtual cells that a virtual cluster (VC) chose: cells of one
kind and place may change places, and only the VC's used ones cannot (`exhaustive.own_form`). That is the same question
as the table of small clusters asks. Every placement would be too many here, but all hardware behind one choice is not.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from random import Random

from hived.values.specs import ClusterSpec, Rules, VirtualCellSpec, VirtualClusterSpec
from tests.core.builders import tree_cluster
from tests.quality.exhaustive import Wanted
from tests.quality.plain import OPPORTUNISTIC, Facts, Running, is_safe, unmet_by_good
from tests.quality.play import Answer, Play

DOZEN_KINDS = ("NODE", "FLAT", "RACK", "PAIR")
GANGS = ((8, 4), (8, 8, 4), (8, 1), (8, 8, 8, 8, 1), (6, 3), (8, 6, 2), (5, 5, 2, 2), (4, 4), (8, 8, 8), (2, 2, 2, 2))
_LENT_GANGS = (*GANGS, (1, 1), (2,), (3,), (1,), (1,), (4,), (8,))
_SINGLE = (1, 1, 2, 3, 4, 5, 6, 8)
_RACKS, _NODES, _GPUS = 3, 4, 8
STEPS = 80
MOST_SETS = 400
"""So many cheaper sets of victims are tried; with more, the least loss is not known."""

Form = tuple["Form", ...] | str
MayTake = Callable[[int], bool]
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class DozenLoad:
    """How groups come, in percent: opportunistic ones, gangs, limits on nodes, steps that change a node's health."""

    opportunistic: int = 55
    gangs: int = 45
    within: int = 0
    not_suggested: int = 0
    bad: int = 0


DOZEN_LOADS = {"plain": DozenLoad(), "nodes": DozenLoad(within=15, not_suggested=20, bad=4)}


def evictions(rules: Rules, kind: str, load: str, first_seed: int, questions: int) -> Figures:
    """Groups that ask on clusters of a dozen nodes of one kind, and how many of them evict without need.

    equal : hardware without victims exists behind the cells that the VC chose
    too_much : such hardware exists for a set of victims that lose less; unknown : too many sets to try them all
    """
    found: Counter[str] = Counter()
    for before, wanted, answer, now in islice(_walks(rules, kind, DOZEN_LOADS[load], first_seed), questions):
        is_mixed = len(set(wanted.sizes)) > 1
        found["questions"] += 1
        found["mixed"] += is_mixed
        if answer.running is None or not answer.victims:
            continue
        found["preemptions"] += 1
        found["mixed_preemptions"] += is_mixed
        judge = Hardware(before, wanted, answer.running)
        if judge.exists(frozenset()):
            found["equal"] += 1
            found["mixed_equal"] += is_mixed
        elif (cheaper := judge.is_cheaper(answer.victims, now)) is None:
            found["unknown"] += 1
        else:
            found["too_much"] += cheaper
    return dict(found)


@dataclass
class Hardware:
    """All hardware behind the virtual cells of a group that runs now; `before` are the facts without it."""

    before: Facts
    wanted: Wanted
    running: Running
    _own: set[int] = field(init=False)
    _known: set[int] = field(init=False)

    def __post_init__(self) -> None:
        facts, plain = self.before, self.before.plain
        self._own = {leaf for pod in self.running.pods for leaf in pod}
        self._known = set()  # cells that groups of the VC use: their hardware is given
        for group in facts.groups.values():
            if group.vc == self.wanted.vc and group.priority > OPPORTUNISTIC:
                self._known.update(cell for pod in group.pods for leaf in pod for cell in plain.up(leaf))

    def exists(self, gone: frozenset[str]) -> bool:
        """Is there hardware on which nobody runs, once some groups are gone?"""
        facts, wanted, plain = self.before, self.wanted, self.before.plain

        def may_take(area: int, leaf: int) -> bool:
            node = plain.node[leaf]
            return (
                (leaf not in facts.user or facts.user[leaf] in gone)
                and (wanted.nodes is None or node in wanted.nodes)
                and (area < 0 or plain.above(leaf, plain.level[area]) == area)
            )

        areas = [-1]
        if wanted.within:
            level = plain.level_of(wanted.within)
            areas = [cell for cell in range(len(plain.parent)) if plain.level[cell] == level]
        return any(self._exists_with(partial(may_take, area)) for area in areas)

    def is_cheaper(self, victims: tuple[Running, ...], now: float) -> bool | None:
        """Would another set of groups lose less work? None if there are too many sets."""
        lent = [group for group in self.before.groups.values() if group.priority == OPPORTUNISTIC]
        costs = {group.name: group.leaf_count * (now - group.started) for group in lent}
        names, limit, left = sorted(costs, key=lambda name: (costs[name], name)), 0.0, MOST_SETS
        limit = sum(costs[victim.name] for victim in victims)

        def extend(chosen: frozenset[str], lost: float, end: int) -> bool:
            """Is a set enough that has `chosen`, and any of the first names, and costs less than the limit?"""
            nonlocal left
            affordable = [name for name in names[:end] if lost + costs[name] < limit]
            if lost >= limit:
                return False
            left -= 1
            if left < 0 or not self.exists(chosen | set(affordable)):
                return False
            if self.exists(chosen):
                return True
            return any(extend(chosen | {name}, lost + costs[name], names.index(name)) for name in reversed(affordable))

        is_found = extend(frozenset(), 0.0, len(names))
        return None if left < 0 and not is_found else is_found

    def _exists_with(self, may_take: MayTake) -> bool:
        before, plain = self.before, self.before.plain
        given = [root for root in self.running.roots if root in before.owner]
        new = [root for root in self.running.roots if root not in before.owner]
        fits: dict[tuple[Form, int], bool] = {}
        if not all(self._fits_known(root, may_take, fits) for root in given):
            return False
        forms = sorted((-plain.level[root], repr(self._form(root)), self._form(root)) for root in new)
        wishes = [(-level, form) for level, _, form in forms]
        owner, chain = before.owners(), plain.chain[min(self.running.roots)]
        cells: dict[int, list[int]] = {}
        for level in {level for level, _ in wishes}:
            cells[level] = [
                cell
                for cell in range(len(plain.parent))
                if plain.level[cell] == level and plain.chain[cell] == chain and not self._is_owned(owner, cell)
            ]
        unmet = self._unmet(owner, self.running.roots)
        rows = [[cell for cell in cells[level] if self._fits(form, cell, may_take, fits)] for level, form in wishes]
        if not _match([set(row) for row in rows]):
            return False
        known: dict[frozenset[int], bool] = {}

        def is_allowed(taken: frozenset[int]) -> bool:
            if taken not in known:
                known[taken] = is_safe(before, owner | dict.fromkeys(taken, self.wanted.vc))
            return known[taken]

        def place(number: int, taken: frozenset[int]) -> bool:
            if number == len(rows):
                return is_allowed(taken) and self._unmet(owner, taken | set(given)) <= unmet
            is_alike = number > 0 and wishes[number] == wishes[number - 1]
            for cell in rows[number]:
                if is_alike and taken and cell < max(c for c in taken if plain.level[c] == wishes[number][0]):
                    continue
                if any(other in taken for other in (*plain.up(cell), *plain.below(cell))):
                    continue
                if is_allowed(taken | {cell}) and place(number + 1, taken | {cell}):
                    return True
            return False

        return place(0, frozenset())

    def _unmet(self, owner: dict[int, str], roots: frozenset[int] | set[int]) -> tuple[int, ...]:
        if not self.before.bad:
            return ()
        return unmet_by_good(self.before, owner | dict.fromkeys(roots, self.wanted.vc))

    def _is_owned(self, owner: dict[int, str], cell: int) -> bool:
        plain = self.before.plain
        return any(each in owner for each in plain.up(cell)) or any(each in owner for each in plain.below(cell))

    def _form(self, cell: int) -> Form:
        """What the group takes below a cell, and what is bad there; the same for cells that can change places."""
        plain = self.before.plain
        if not plain.children[cell]:
            return "x" if cell in self._own else "!" if plain.node[cell] in self.before.bad else ""
        return tuple(sorted((self._form(child) for child in plain.children[cell]), key=repr))

    def _fits(self, form: Form, cell: int, may_take: MayTake, known: dict[tuple[Form, int], bool]) -> bool:
        """Could the cells below one take this form?"""
        key = form, cell
        if key not in known:
            plain, children = self.before.plain, self.before.plain.children[cell]
            if isinstance(form, str):
                is_bad = plain.node[cell] in self.before.bad
                known[key] = is_bad if form == "!" else not is_bad and (form == "" or may_take(cell))
            else:
                rows = [{child for child in children if self._fits(each, child, may_take, known)} for each in form]
                known[key] = _match(rows)
        return known[key]

    def _fits_known(self, cell: int, may_take: MayTake, known: dict[tuple[Form, int], bool]) -> bool:
        """Could the cells below one that the VC has take what the group takes there, without those in its use?"""
        children = self.before.plain.children[cell]
        if not children:
            return cell not in self._own or (self.before.plain.node[cell] not in self.before.bad and may_take(cell))
        given = [child for child in children if child in self._known]
        others = [child for child in children if child not in self._known]
        rows = [{other for other in others if self._fits(self._form(each), other, may_take, known)} for each in others]
        return all(self._fits_known(child, may_take, known) for child in given) and _match(rows)


def _match(rows: list[set[int]]) -> bool:
    """Can each row have a number of its own? (Kuhn)"""
    owner: dict[int, int] = {}

    def reach(row: int, seen: set[int]) -> bool:
        for each in rows[row]:
            if each not in seen:
                seen.add(each)
                if each not in owner or reach(owner[each], seen):
                    owner[each] = row
                    return True
        return False

    return all(reach(row, set()) for row in range(len(rows)))


def dozen_cluster(kind: str, rules: Rules, random: Random) -> ClusterSpec:
    """Three racks of four nodes of 8 GPUs, and two VCs: nodes (FLAT: without pairs), racks and nodes, or pairs."""
    total, cells = _RACKS * _NODES, [list[VirtualCellSpec](), list[VirtualCellSpec]()]

    def promise(name: str, *counts: int) -> None:
        for own, count in zip(cells, counts, strict=True):
            if count > 0:
                own.append(VirtualCellSpec(name, count))

    if kind == "RACK":
        racks = random.randint(1, 2)
        first = random.randint(0, racks)
        promise("RACK", first, racks - first)
        total -= racks * _NODES
    if kind == "PAIR":
        pairs = random.randint(4, 20)
        first = random.randint(1, pairs)
        promise("RACK.NODE.PAIR", first, pairs - first)
        total -= -(-pairs // (_GPUS // 2))
    first = random.randint(1, total - 1)
    promise("RACK.NODE", first, total - first - random.choice((0, 0, min(2, total - first - 1))))
    below = {"NODE": _GPUS} if kind == "FLAT" else {"NODE": _GPUS // 2, "PAIR": 2}
    vcs = (VirtualClusterSpec(name, tuple(own)) for name, own in zip("AB", cells, strict=True))
    return tree_cluster({"RACK": _NODES, **below}, *vcs, tops=_RACKS, rules=rules)


def walk_dozen(
    kind: str, rules: Rules, load: DozenLoad, seed: int, steps: int = STEPS
) -> Iterator[tuple[Facts, Wanted, Answer, float]]:
    """Groups come to a cluster and leave it: facts before a question, the group, the answer, and the time."""
    random = Random(f"dozen {kind} {seed}")
    play = Play(dozen_cluster(kind, rules, random))
    fullness = random.choice((0.7, 0.9, 1.0))
    for step in range(steps):
        running = sorted(play.facts.groups)
        if random.randrange(100) < load.bad:
            node = random.choice(play.facts.plain.nodes)
            play.set_node(node, is_healthy=node in play.facts.bad)
            continue
        share = len(play.facts.user) / (_RACKS * _NODES * _GPUS)
        if running and random.random() < (0.55 if share > fullness else 0.2):
            play.end(random.choice(running))
            continue
        wanted = _group(f"g{step}", play.spec, load, random, play.facts)
        before = play.facts.copy()
        yield before, wanted, play.ask(wanted, float(step)), float(step)


def _group(name: str, spec: ClusterSpec, load: DozenLoad, random: Random, facts: Facts) -> Wanted:
    vc = random.choice([name for name, each in spec.virtual_clusters.items() if each.virtual_cells])
    is_lent = random.randrange(100) < load.opportunistic
    sizes: tuple[int, ...] = (random.choice(_SINGLE),)
    if random.randrange(100) < load.gangs:
        sizes = random.choice(_LENT_GANGS if is_lent else GANGS)
    within = random.choice(("NODE", "RACK")) if random.randrange(100) < load.within else ""
    nodes = None
    if random.randrange(100) < load.not_suggested:
        nodes = frozenset(node for node in facts.plain.nodes if random.randrange(100) < 70)
    return Wanted(name, vc, OPPORTUNISTIC if is_lent else 0, tuple(sorted(sizes)), nodes, within)


def _walks(
    rules: Rules, kind: str, load: DozenLoad, seed: int
) -> Iterator[tuple[Facts, Wanted, Answer, float]]:  # fmt: skip
    while True:
        yield from walk_dozen(kind, rules, load, seed)
        seed += 1
