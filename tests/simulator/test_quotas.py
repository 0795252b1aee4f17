"""Quotas: who gets which node, who waits and why, who leaves."""

import random

import numpy as np
import pytest

from hived.cells.layout import build_topology
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import Room
from hived_simulator.loop import Manner
from hived_simulator.quotas import Nodes, QuotaCluster, Seats, find_seats, nodes_by_type
from hived_simulator.tasks import Cause, Phase, Shape
from tests.simulator.builders import NODE, cluster_of, job, run, tasks

SIZES = {"SMALL": 2, "MIDDLE": 4, "LARGE": 8}


def nodes_of_types(*kinds: str) -> dict[str, Nodes]:
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
        types = nodes_of_types(*(source.choice(list(SIZES)) for _ in range(source.randint(1, 8))))
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
    types = nodes_of_types("LARGE", "SMALL", "MIDDLE")
    shape = Shape(((1, 1),), "", "", False)
    # with the pod, 6 of 8, 1 of 2 and 2 of 4 leaf cells are in use
    free = {"GPU": np.array([3, 2, 3], np.int64)}
    assert find_seats(shape, types, free, spreads=True) == ((0, 1, 1),)
    assert find_seats(shape, types, {"GPU": np.array([3, 0, 3], np.int64)}, spreads=True) == ((0, 2, 1),)


SPEC = cluster_of(2, a={NODE: 2}, b={NODE: 2})


def nodes_of(spreads: bool, *sizes: int) -> list[str]:
    """The node of each of some pods of virtual cluster a, which start one after the other."""
    cluster = QuotaCluster(SPEC, spreads)
    found = []
    for task in tasks([job(str(number), "a", 0, 1, (1, size)) for number, size in enumerate(sizes)]):
        cluster.ask(task, 0)
        found.append(next(node for node in ("n0", "n1", "n2", "n3") if task.group in cluster.groups_on([node])))
    return found


def test_best_fit_takes_the_fullest_node_with_room() -> None:
    assert nodes_of(False, 3, 2, 1, 2) == ["n0", "n1", "n0", "n1"]


def test_spread_takes_the_emptiest_node() -> None:
    assert nodes_of(True, 3, 2, 1, 2) == ["n0", "n1", "n2", "n3"]


def test_a_virtual_cluster_has_no_more_than_its_quota() -> None:
    jobs = [job("one", "a", 0, 100, (2, 4)), job("two", "a", 0, 10, (1, 1)), job("b", "b", 0, 10, (1, 1))]
    one, two, b = run(QuotaCluster(SPEC, False), jobs)
    assert (one.first_s, two.first_s, b.first_s) == (0, 100, 0)
    assert two.waited_s[Cause.FULL] == 100


def test_a_gang_starts_whole_or_not_at_all() -> None:
    spread = [job(str(number), "b", 0, 100, (1, 2)) for number in range(4)]
    gang = run(QuotaCluster(SPEC, True), [*spread, job("gang", "a", 0, 10, (2, 3))])[-1]
    assert (gang.first_s, gang.waited_s[Cause.FRAGMENTED]) == (100, 100)


def test_lent_devices_are_taken_back_from_the_youngest() -> None:
    lent = [job(str(number), "b", number, 1000, (1, 4), priority=-1) for number in range(4)]
    found = run(QuotaCluster(SPEC, False), [*lent, job("owner", "a", 100, 10, (1, 4))], manner=Manner(grace_s=5.0))
    assert (found[-1].first_s, [task.eviction_count for task in found[:4]]) == (105, [1, 0, 0, 0])


def test_of_one_node_the_youngest_leave_first() -> None:
    spec = cluster_of(1, a={NODE: 2})
    lent = [job(str(number), "a", number, 1000, (1, 2), priority=-1) for number in range(4)]
    found = run(QuotaCluster(spec, False), [*lent, job("owner", "a", 100, 10, (1, 2))])
    assert [task.eviction_count for task in found[:4]] == [0, 1, 0, 0]


def test_a_gang_larger_than_the_quota_is_refused() -> None:
    large = run(QuotaCluster(SPEC, False), [job("large", "a", 0, 10, (3, 4))])[0]
    assert (large.phase, large.reason) == (Phase.REFUSED, "VC a is promised 8 leaf cells")


def test_nothing_starts_on_a_bad_node() -> None:
    jobs = [job("early", "a", 0, 100, (1, 4)), job("late", "b", 50, 10, (2, 4))]
    changes = [Change(10.0, Act.CORDON, ("n0",)), Change(20.0, Act.FAIL, ("n1",)), Change(150.0, Act.HEAL, ("rack-0",))]
    early, late = run(QuotaCluster(SPEC, False), jobs, changes)
    assert (early.ended_s, early.eviction_count, late.first_s) == (100, 0, 50)


def test_a_push_changes_quotas_and_keeps_work() -> None:
    jobs = [job("a", "a", 0, 100, (2, 4)), job("more", "a", 5, 10, (1, 4))]
    a, more = run(QuotaCluster(SPEC, False), jobs, [Change(30.0, Act.PUSH, pushed=cluster_of(2, a={NODE: 3}))])
    assert (a.eviction_count, more.first_s) == (0, 30)


def test_work_on_nodes_that_a_push_removes_starts_again() -> None:
    jobs = [job("b", "b", 0, 100, (2, 4)), job("a", "a", 0, 100, (2, 4))]
    small = cluster_of(1, a={NODE: 2}, b={})
    b, a = run(QuotaCluster(SPEC, False), jobs, [Change(30.0, Act.PUSH, pushed=small)])
    assert (b.ended_s, a.eviction_count, a.ended_s) == (100, 1, 200)


def test_a_node_that_is_bad_for_now_refuses_nobody_for_good() -> None:
    changes = [Change(10.0, Act.FAIL, ("n0",)), Change(100.0, Act.HEAL, ("n0",))]
    wide = run(QuotaCluster(cluster_of(1, a={NODE: 2}), False), [job("wide", "a", 20, 10, (2, 4))], changes)[0]
    assert (wide.phase, wide.first_s) == (Phase.ENDED, 100)


def test_idle_leaf_cells_are_healthy_and_nobodys() -> None:
    cluster = QuotaCluster(SPEC, False)
    one, lent = tasks([job("one", "a", 0, 1, (1, 3)), job("lent", "b", 0, 1, (3, 4), priority=-1)])
    cluster.ask(one, 0)
    cluster.set_health("n0", False)
    assert cluster.measure() == Room(16, 4, 12, {"NODE": 3})
    cluster.ask(lent, -1)
    assert cluster.measure()[:3] == (16, 4, 0)
    cluster.set_health("n0", True)
    assert cluster.measure() == Room(16, 0, 1, {"NODE": 0})
