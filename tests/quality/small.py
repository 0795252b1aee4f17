"""Small random clusters in which every placement is tried: needless preemptions and false waits of random groups."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from random import Random
from typing import Any

from hived.values.specs import ClusterSpec, Rules, VirtualCellSpec, VirtualClusterSpec
from tests.core.builders import tree_cluster
from tests.quality.exhaustive import Found, Wanted, cheapest_victims, exists, may_evict, own_form, placements
from tests.quality.plain import OPPORTUNISTIC, Facts, Running, unmet_by_good
from tests.quality.play import Answer, Play

KINDS = ("NODE", "RACK", "MIX", "PAIR")
PINNED = "PINNED"  # as NODE, and the first node is pinned for A
GPUS = 4
_SIZES = (1, 1, 1, 2, 2, 2, 3, 4, 4)


@dataclass(frozen=True, slots=True)
class Load:
    """How groups come: shares in percent.

    opportunistic, gangs, mixed : of all groups, of groups with several pods, of gangs with pods of several sizes
    within : gangs that have to be within one cell
    not_suggested : groups that may use only some nodes
    bad : steps that change the health of a node
    """

    opportunistic: int = 50
    gangs: int = 30
    mixed: int = 0
    within: int = 0
    not_suggested: int = 0
    bad: int = 0
    combines: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: the facts before it, the group, and the answer, which has been carried out."""

    kind: str
    before: Facts
    wanted: Wanted
    answer: Answer
    now: float
    play: Play = field(repr=False)


def small_cluster(kind: str, rules: Rules, random: Random, combines: bool = False, spares: bool = False) -> ClusterSpec:
    """Two to six nodes of two pairs of GPUs in racks; two VCs, which are promised cells of the kind."""
    racks, nodes = random.choice([(1, 2), (2, 2), (3, 2), (2, 3), (1, 3), (2, 2), (3, 2)])
    total = racks * nodes
    cells: list[list[VirtualCellSpec]] = [[], []]
    first = random.randint(1, total - 1)
    match kind:
        case "NODE" | "PINNED":
            total -= kind == PINNED
            first = min(first, total)
            _promise(cells, "RACK.NODE", first, total - first - _some(random, total - first - 1))
        case "RACK":
            own = random.randint(1, max(1, racks - 1))
            other = random.randint(0, racks - own)
            loose = (racks - own - other) * nodes
            _promise(cells, "RACK", own, other)
            at = random.randint(0, loose)
            _promise(cells, "RACK.NODE", at, loose - at)
        case "MIX":
            pairs = random.randint(1, 2)
            left = total - pairs
            at = random.randint(0, left)
            _promise(cells, "RACK.NODE", at, left - at)
            own = random.randint(0, 2 * pairs)
            _promise(cells, "RACK.NODE.PAIR", own, 2 * pairs - own)
        case "PAIR":
            own = random.randint(1, 2 * total - 1)
            _promise(cells, "RACK.NODE.PAIR", own, 2 * total - own)
    pin = ("pin",) if kind == PINNED else ()
    vcs = (
        VirtualClusterSpec(name, tuple(own), pin if name == "A" else (), combines=combines, spares=spares)
        for name, own in zip("AB", cells, strict=True)
    )
    pins = {"n0": "pin"} if pin else None
    return tree_cluster({"RACK": nodes, "NODE": 2, "PAIR": 2}, *vcs, tops=racks, pins=pins, rules=rules)


def walk(kind: str, rules: Rules, load: Load, seed: int, steps: int, spares: bool = False) -> Iterator[Asked]:
    """Groups come to a small cluster and leave it; yields each question. `spares`: VCs with `sparing: true`."""
    random = Random(f"{kind} {seed}")
    spec = small_cluster(kind, rules, random, random.randrange(100) < load.combines, spares)
    play = Play(spec)
    for step in range(steps):
        running = sorted(play.facts.groups)
        if random.randrange(100) < load.bad:
            node = random.choice(play.facts.plain.nodes)
            play.set_node(node, is_healthy=node in play.facts.bad)
            continue
        if running and random.randrange(100) < 25 + 3 * len(running):
            play.end(random.choice(running))
            continue
        wanted = _group(f"g{step}", spec, load, random, play.facts)
        before = play.facts.copy()
        yield Asked(kind, before, wanted, play.ask(wanted, float(step)), float(step), play)


def _group(name: str, spec: ClusterSpec, load: Load, random: Random, facts: Facts) -> Wanted:
    def happens(percent: int) -> bool:
        return random.randrange(100) < percent

    vc = random.choice([name for name, each in spec.virtual_clusters.items() if each.virtual_cells])
    priority = OPPORTUNISTIC if happens(load.opportunistic) else 0
    size, count = random.choice(_SIZES), 1
    is_gang = happens(load.gangs)
    if is_gang:
        count = random.randint(2, 3)
    sizes = [size] * count
    if is_gang and happens(load.mixed):
        sizes = [random.choice(_SIZES) for _ in range(count)]
    within = random.choice(("NODE", "RACK")) if is_gang and happens(load.within) else ""
    nodes = None
    if happens(load.not_suggested):
        nodes = frozenset(node for node in facts.plain.nodes if happens(70))
    combines = spec.virtual_clusters[vc].combines
    pins = spec.virtual_clusters[vc].pinned_cell_ids if priority > OPPORTUNISTIC else ()
    pinned = pins[0] if pins and happens(40) else ""
    return Wanted(name, vc, priority, tuple(sorted(sizes)), nodes, within, pinned, combines)


def _promise(cells: list[list[VirtualCellSpec]], kind: str, *counts: int) -> None:
    for own, count in zip(cells, counts, strict=True):
        if count > 0:
            own.append(VirtualCellSpec(kind, count))


def _some(random: Random, most: int) -> int:
    return random.randint(0, max(0, most)) if random.randrange(3) == 0 else 0


STEPS = 60
NEEDLESS_LOADS = {"plain": Load(), "nodes": Load(bad=4, not_suggested=25)}
WAIT_LOADS = {
    "plain": Load(gangs=40),
    "mixed": Load(gangs=70, mixed=70),
    "bad": Load(gangs=40, bad=6),
    "not suggested": Load(gangs=40, not_suggested=40),
    "within": Load(gangs=70, within=70),
    "combine": Load(gangs=30, combines=70),
    "all": Load(gangs=60, mixed=50, within=20, not_suggested=15, bad=4, combines=50),
}
Figures = dict[str, float]


def needless(rules: Rules, kind: str, load: str, spares: bool, first_seed: int, questions: int) -> Figures:
    """Preemptions on small clusters of one kind: how many evict without need.

    equal : a placement without victims exists that leaves the VC the same future
    any : any placement without victims exists. None of these leaves more promised cells without healthy free
    ones than the core's, larger cells first. The first victim ran in a new preassigned cell (F-1), on a node of the
    VC's own groups (F-2), or on another node below a preassigned cell that the VC had (F-3)
    too_much : among placements with the same future, cheaper victims exist, and how much more was lost, in leaf-steps
    """
    found: Counter[str] = Counter()
    for asked in islice(_walks(rules, kind, NEEDLESS_LOADS[load], first_seed, spares), questions):
        running = asked.answer.running
        if running is None:
            continue
        if asked.wanted.priority > OPPORTUNISTIC:
            found["leaves_started"] += running.leaf_count
        if not asked.answer.victims:
            continue
        victims = asked.answer.victims
        found["preemptions"] += 1
        found["groups_evicted"] += len(victims)
        found["leaves_evicted"] += sum(victim.leaf_count for victim in victims)
        placed = Found(running.pods, running.roots)
        form = own_form(asked.before, asked.wanted, placed)
        unmet = _unmet(asked, placed)
        idle = [each for each in placements(asked.before, asked.wanted) if _unmet(asked, each) <= unmet]
        if any(own_form(asked.before, asked.wanted, each) == form for each in idle):
            found["equal"] += 1
        if idle:
            found["any"] += 1
            found[_cause(asked.before, running)] += 1

        def cost(group: Running, now: float = asked.now) -> float:
            return group.leaf_count * (now - group.started)

        def is_equal(each: Found, asked: Asked = asked, form: object = form, unmet: Any = unmet) -> bool:
            return own_form(asked.before, asked.wanted, each) == form and _unmet(asked, each) <= unmet

        lost = sum(map(cost, victims))
        cheapest = cheapest_victims(asked.before, asked.wanted, cost, is_equal)
        assert cheapest is not None, "the core's placement is not among all placements"
        found["lost"] += round(lost)
        found["lost_at_least"] += round(cheapest[0])
        found["too_much"] += lost > cheapest[0]
    return dict(found)


def _unmet(asked: Asked, found: Found) -> tuple[int, ...]:
    """How many promised cells of all VCs have no healthy free cell after a placement, larger cells first."""
    if not asked.before.bad:
        return ()
    return unmet_by_good(asked.before, asked.before.owners() | dict.fromkeys(found.roots, asked.wanted.vc))


def _cause(before: Facts, running: Running) -> str:
    plain = before.plain
    own = {
        plain.node[leaf]
        for group in before.groups.values()
        if group.vc == running.vc and group.priority > OPPORTUNISTIC
        for pod in group.pods
        for leaf in pod
    }
    for leaf in (leaf for pod in running.pods for leaf in pod if leaf in before.user):
        at = leaf
        while at not in running.roots:
            at = plain.parent[at]
        return "F-1" if at not in before.owner else "F-2" if plain.node[leaf] in own else "F-3"
    raise AssertionError("nobody left")


def false_waits(rules: Rules, kind: str, load: str, first_seed: int, questions: int) -> Figures:
    """Waits of groups that have a placement which needs no guaranteed group of their own priority or higher to leave.

    combine : such a placement exists only if a pod may take several cells, and the VC does not allow that
    """
    found: Counter[str] = Counter()
    for asked in islice(_walks(rules, kind, WAIT_LOADS[load], first_seed), questions):
        found["questions"] += 1
        if asked.answer.kind != "wait":
            continue
        is_guaranteed = asked.wanted.priority > OPPORTUNISTIC
        found["waits"] += 1
        found["guaranteed_waits"] += is_guaranteed
        if _has_place(asked, asked.wanted):
            found["false"] += 1
            found["false_guaranteed" if is_guaranteed else "false_opportunistic"] += 1
            found[f"false_{_why(asked)}"] += 1
        elif is_guaranteed and _has_place(asked, replace(asked.wanted, combines=True)):
            found["combine"] += 1
    return dict(found)


def _has_place(asked: Asked, wanted: Wanted) -> bool:
    return exists(asked.before, wanted, may_evict(asked.before, wanted))


def _why(asked: Asked) -> str:
    """The first of the circumstances without which the group would have no place, or no wait."""
    wanted = asked.wanted
    if wanted.combines and not _has_place(asked, replace(wanted, combines=False)):
        return "combine"
    if len(set(wanted.sizes)) > 1:
        return "mixed"
    if wanted.within:
        return "within"
    if wanted.nodes is not None:
        return "not_suggested"
    return "bad" if asked.before.bad else "plain"


def _walks(rules: Rules, kind: str, load: Load, seed: int, spares: bool = False) -> Iterator[Asked]:
    while True:
        yield from walk(kind, rules, load, seed, STEPS, spares)
        seed += 1
