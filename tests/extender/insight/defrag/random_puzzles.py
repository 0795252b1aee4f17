"""Random small puzzles: nodes of a few leaves, racks of them, groups of one or two pods, and opportunistic users."""

from random import Random

from hived_extender.insight.defrag.puzzle import Kind, Mover, Puzzle, Spot, cost_of


def random_puzzle(random: Random, most_movers: int = 6) -> Puzzle:
    bins, size, per_rack = random.randint(2, 6), random.choice((2, 4, 8)), random.choice((2, 3))
    capacity = [size if random.random() < 0.9 else random.randint(0, size) for _ in range(bins)]
    free = [0 if random.random() < 0.1 else amount for amount in capacity]
    fixed, lent = [0] * bins, [0] * bins
    for bin_ in range(bins):
        if random.random() < 0.3:
            fixed[bin_] = random.randint(0, free[bin_])
            free[bin_] -= fixed[bin_]
    movers = []
    for number in range(random.randint(0, most_movers)):
        is_guest = random.random() < 0.2
        pods = []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            bin_ = random.randrange(bins)
            if free[bin_]:
                amount = random.randint(1, free[bin_])
                free[bin_] -= amount
                pods.append((bin_, amount))
        if pods:
            lost = random.choice((0, 0, 1, 2, 5, 5, 9))
            movers.append(Mover((f"g{number}",), tuple(pods), cost_of(lost, 1), is_guest))
    for bin_ in range(bins):
        if free[bin_] and random.random() < 0.2:
            lent[bin_] = random.randint(1, free[bin_])
    kinds = tuple(_kind(random, size, capacity, fixed, movers, per_rack) for _ in range(random.choice((1, 1, 1, 2))))
    parents = tuple(bin_ // per_rack for bin_ in range(bins))
    return Puzzle(tuple(capacity), tuple(fixed), tuple(lent), parents, tuple(movers), kinds)


def _kind(random: Random, size: int, capacity: list[int], fixed: list[int], movers: list[Mover], per_rack: int) -> Kind:
    bins = len(capacity)
    racks = [(first, min(first + per_rack, bins)) for first in range(0, bins, per_rack)]
    what = random.choice(("node", "node", "rack", "gang", "gang", "gang within"))
    if what in ("node", "rack"):
        ranges = [(bin_, bin_ + 1) for bin_ in range(bins)] if what == "node" else racks
        spots = []
        for start, end in ranges:
            inside = range(start, end)
            if end - start != ranges[0][1] - ranges[0][0] or any(capacity[b] != size or fixed[b] for b in inside):
                continue
            here = {i for i, one in enumerate(movers) if not one.is_guest and any(b in inside for b, _ in one.pods)}
            spots.append(Spot(tuple(inside), (size,) * len(inside), frozenset(here)))
        return Kind(what, random.randint(1, 3), spots=tuple(spots))
    sizes = tuple(sorted((random.randint(1, size) for _ in range(random.randint(1, 3))), reverse=True))
    return Kind(what, random.randint(1, 2), sizes=sizes, ranges=tuple(racks) if what == "gang within" else ())
