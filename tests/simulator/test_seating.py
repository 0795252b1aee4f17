"""Nodes are chosen at once as one would choose them pod by pod."""

import random

import numpy as np
import pytest

from hived.layout import build_topology
from hived.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived_simulator.quotas import Nodes, Seats, find_seats, nodes_by_type
from hived_simulator.tasks import Shape

SIZES = {"SMALL": 2, "MIDDLE": 4, "LARGE": 8}


def nodes_of(*kinds: str) -> dict[str, Nodes]:
    """Nodes of these cell types, which have SIZES leaf cells."""
    types = {name: CellTypeSpec(name, "GPU", size, True) for name, size in SIZES.items()}
    physical = tuple(PhysicalCellSpec(kind, f"n{number}") for number, kind in enumerate(kinds))
    return nodes_by_type(build_topology(ClusterSpec(types, physical, {})))


def one_by_one(shape: Shape, nodes: Nodes, free: list[int], spreads: bool) -> Seats | None:
    """The obvious way: look at every node for every pod."""
    free = list(free)
    seats = []
    for count, leaves in reversed(shape.pods):
        for _ in range(count):
            fits = [node for node, room in enumerate(free) if room >= leaves]
            if not fits:
                return None
            if spreads:
                node = min(fits, key=lambda each: 1 - (free[each] - leaves) / int(nodes.whole[each]))
            else:
                node = min(fits, key=lambda each: free[each])
            free[node] -= leaves
            seats.append((0, node, leaves))
    return tuple(seats)


@pytest.mark.sample(1)
@pytest.mark.parametrize("spreads", [False, True])
def test_seats_are_those_that_are_found_one_by_one(spreads: bool) -> None:
    source = random.Random(1)
    found_count = 0
    for _ in range(400):
        types = nodes_of(*(source.choice(list(SIZES)) for _ in range(source.randint(1, 8))))
        nodes = types["GPU"]
        free = [source.randint(-1, size) for size in nodes.whole.tolist()]
        sizes = sorted(source.sample(range(1, 9), source.randint(1, 3)))
        shape = Shape(tuple((source.choice((1, 1, 2, 5)), size) for size in sizes), "", "", False)
        found = find_seats(shape, types, {"GPU": np.array(free, np.int64)}, spreads)
        expected = one_by_one(shape, nodes, free, spreads)
        assert sorted(found or ()) == sorted(expected or ())
        found_count += found is not None
    assert 50 < found_count < 350


def test_spread_takes_the_node_of_which_the_smallest_share_is_in_use() -> None:
    types = nodes_of("LARGE", "SMALL", "MIDDLE")
    shape = Shape(((1, 1),), "", "", False)
    # with the pod, 6 of 8, 1 of 2 and 2 of 4 leaf cells are in use
    free = {"GPU": np.array([3, 2, 3], np.int64)}
    assert find_seats(shape, types, free, spreads=True) == ((0, 1, 1),)
    assert find_seats(shape, types, {"GPU": np.array([3, 0, 3], np.int64)}, spreads=True) == ((0, 2, 1),)
