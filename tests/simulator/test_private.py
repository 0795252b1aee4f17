"""Private clusters have exactly the cells of their owners, and hived keeps the promise that they set."""

import pytest

from hived.cells.layout import build_topology
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, VirtualCellSpec, VirtualClusterSpec
from hived_simulator.changes import Act, Change
from hived_simulator.clusters import Room
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Loop, Manner
from hived_simulator.private import PrivateClusters, divide, estates
from hived_simulator.results import Measured, outcomes, summaries
from tests.simulator.builders import NODE, PAIR, RACK, cluster_of, job, random_jobs, run, tasks

SPECS = {
    "nodes": cluster_of(4, a={NODE: 3}, b={NODE: 4}, c={NODE: 1}),
    "racks": cluster_of(4, a={RACK: 1, NODE: 1}, b={RACK: 1}, c={NODE: 3}),
    "pairs": cluster_of(4, a={RACK: 1, PAIR: 3}, b={NODE: 2, PAIR: 2}, c={PAIR: 2}),
}


def guaranteed(seed: int) -> list[object]:
    jobs = random_jobs(seed, ("a", "b", "c"), count=60)
    return [each for each in jobs if each.priority != -1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("has_backfill", [False, True])
def test_guaranteed_jobs_start_as_in_their_private_clusters(spec: ClusterSpec, has_backfill: bool) -> None:
    manner = Manner(has_backfill=has_backfill)
    for seed in range(2):
        jobs = guaranteed(seed)
        shared = run(HivedCluster(spec), jobs, manner=manner)
        private = run(PrivateClusters(spec), jobs, manner=manner)
        assert [task.first_s for task in shared] == [task.first_s for task in private]
        assert [task.ended_s for task in shared] == [task.ended_s for task in private]


def test_hardware_is_divided_once_and_side_by_side() -> None:
    topology = build_topology(SPECS["pairs"])
    owned = divide(topology)
    names = {vc: [topology.address(cell) for cell in cells] for vc, cells in owned.items()}
    assert names["a"][0] == "rack-0"
    assert names["b"][:2] == ["rack-1/n2", "rack-1/n3"]
    assert names["a"][1:] == ["rack-2/n4/0", "rack-2/n4/1", "rack-2/n5/0"]
    leaves = [leaf for cells in owned.values() for cell in cells for leaf in _leaves(topology, cell)]
    assert len(leaves) == len(set(leaves)) == 8 + 3 * 2 + 2 * 4 + 2 * 2 + 2 * 2


def _leaves(topology, cell: int) -> range:
    first = int(topology.arrays.first_leaf[cell])
    return range(first, first + int(topology.arrays.leaf_count[topology.arrays.chain_level[cell]]))


def test_nodes_keep_their_names_and_devices() -> None:
    found = estates(SPECS["pairs"], build_topology(SPECS["pairs"]))
    assert found["b"].owned.nodes == {"n2", "n3", "n5", "n6"}
    assert build_topology(found["b"].spec).node_names == ("n2", "n3", "n4", "n5", "n6", "n7")
    assert found["b"].owned.lacking == {("n5", "GPU"): (0, 1), ("n6", "GPU"): (2, 3)}
    assert found["b"].owned.leaf_count == 12


def test_a_node_with_two_kinds_of_cells_is_divided_by_kind() -> None:
    types = (
        CellTypeSpec("G", "GPU", 4, True),
        CellTypeSpec("C", "HALF", 2, True),
        CellTypeSpec("HALF", "CPU", 3),
    )
    promises = {"a": {"G": 1}, "b": {"C.HALF": 1}, "c": {"C.HALF": 1}}
    spec = ClusterSpec(
        {each.name: each for each in types},
        (PhysicalCellSpec("G", "n"), PhysicalCellSpec("C", "n")),
        {
            name: VirtualClusterSpec(name, tuple(VirtualCellSpec(*each) for each in cells.items()))
            for name, cells in promises.items()
        },
    )
    found = {name: estate.owned for name, estate in estates(spec, build_topology(spec)).items()}
    assert {name: owned.leaf_count for name, owned in found.items()} == {"a": 4, "b": 3, "c": 3}
    assert found["a"].lacking == {("n", "CPU"): (0, 1, 2, 3, 4, 5)}
    assert found["b"].lacking == {("n", "GPU"): (0, 1, 2, 3), ("n", "CPU"): (3, 4, 5)}
    assert found["c"].lacking == {("n", "GPU"): (0, 1, 2, 3), ("n", "CPU"): (0, 1, 2)}


def test_an_opportunistic_job_finds_the_cells_of_its_owner_only() -> None:
    spec = SPECS["nodes"]
    jobs = [job("wide", "c", 0, 10, (2, 4), priority=-1), job("narrow", "c", 0, 10, (1, 4), priority=-1)]
    wide, narrow = run(PrivateClusters(spec), jobs)
    assert (wide.first_s, narrow.first_s) == (-1, 0)


def test_a_failing_node_concerns_its_owner_only() -> None:
    spec = SPECS["nodes"]
    jobs = [job("a", "a", 0, 100, (3, 4)), job("b", "b", 0, 100, (4, 4)), job("c", "c", 0, 100, (1, 4))]
    found = run(PrivateClusters(spec), jobs, [Change(10.0, Act.FAIL, ("n7",)), Change(50.0, Act.HEAL, ("n7",))])
    assert [task.eviction_count for task in found] == [0, 0, 1]


def test_a_push_divides_the_hardware_anew() -> None:
    jobs = [job("a", "a", 0, 100, (3, 4)), job("c", "c", 0, 100, (1, 4)), job("more", "c", 20, 10, (2, 4))]
    spec, other = SPECS["nodes"], cluster_of(4, a={NODE: 2}, c={NODE: 4})
    a, c, more = run(PrivateClusters(spec), jobs, [Change(30.0, Act.PUSH, pushed=other)])
    assert (a.eviction_count, a.ended_s, c.eviction_count, more.first_s) == (1, -1, 1, 30)


def test_the_cells_of_a_removed_virtual_cluster_are_gone() -> None:
    jobs = [job("b", "b", 0, 100, (1, 4)), job("later", "b", 40, 10, (1, 1))]
    b, later = run(PrivateClusters(SPECS["nodes"]), jobs, [Change(30.0, Act.PUSH, pushed=cluster_of(4, a={NODE: 1}))])
    assert (b.eviction_count, b.ended_s, later.first_s) == (1, -1, -1)
    assert later.reason == "VC b does not exist"


def test_all_hardware_is_told_also_what_nobody_is_promised() -> None:
    spec, later = cluster_of(4, a={NODE: 3}, b={PAIR: 1}), cluster_of(4, a={NODE: 1})
    private, shared = PrivateClusters(spec), HivedCluster(spec)
    assert private.measure() == Room(32, 0, 32, {"GPU": 32, "PAIR": 16, "NODE": 7, "RACK": 3})
    assert shared.measure()[:3] == (32, 0, 32)
    for cluster in (private, shared):
        cluster.set_health("n7", False)
        cluster.set_health("n0", False)
        assert cluster.measure()[:3] == (32, 8, 24)
        cluster.reconfigure(later)
        assert cluster.measure()[:3] == (32, 8, 24)


def test_use_is_a_part_of_all_hardware_as_in_the_shared_cluster() -> None:
    jobs = [job("one", "a", 0, 100, (1, 4)), job("two", "a", 50, 10, (1, 1))]
    parts = []
    for cluster in (PrivateClusters(cluster_of(2, a={NODE: 2})), HivedCluster(cluster_of(2, a={NODE: 2}))):
        loop = Loop(cluster, tasks(jobs), (), Manner(), 0.0)
        loop.run()
        found = outcomes(loop.tasks, [1, 1])
        parts.append(summaries(found, Measured(loop.promises, loop.usage, loop.window_s), None)[0])
    assert [part.utilisation for part in parts] == [0.25, 0.25]
    assert [part.leaf_cells for part in parts] == [16, 16]
