"""Quotas choose nodes one by one, hold promises as numbers, and take lent devices back."""

from hived_simulator.changes import Act, Change
from hived_simulator.clusters import Room
from hived_simulator.loop import Manner
from hived_simulator.quotas import QuotaCluster
from hived_simulator.tasks import Cause, Phase
from tests.simulator.builders import NODE, cluster_of, job, run, tasks

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
