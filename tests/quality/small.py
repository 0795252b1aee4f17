"""Small random clusters, in which every placement can be tried, and random groups that come and go."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hived.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, Rules, VirtualCellSpec, VirtualClusterSpec
from tests.quality.exhaustive import Wanted
from tests.quality.plain import OPPORTUNISTIC, Facts
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
    names = [
        PhysicalCellSpec(address=f"n{i}", pinned_cell_id="".join(pin if not i else ())) for i in range(racks * nodes)
    ]
    types = (CellTypeSpec("RACK", "NODE", nodes), CellTypeSpec("NODE", "PAIR", 2, True), CellTypeSpec("PAIR", "GPU", 2))
    return ClusterSpec(
        {each.name: each for each in types},
        tuple(PhysicalCellSpec("RACK", children=tuple(names[i * nodes : (i + 1) * nodes])) for i in range(racks)),
        {
            name: VirtualClusterSpec(name, tuple(own), pin if name == "A" else (), combines=combines, spares=spares)
            for name, own in zip("AB", cells, strict=True)
        },
        rules=rules,
    )


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
