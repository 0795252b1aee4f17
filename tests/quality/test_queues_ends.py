"""The load and the comparison of runs with lending and without."""

from tests.quality.greedy import GREEDY, TIMES, with_greedy
from tests.quality.queues_ends import GPUS, NODES, PROMISED, RACKS, cluster, compare, jobs


def test_all_nodes_are_promised_and_no_job_is_larger_than_its_virtual_cluster() -> None:
    assert sum(PROMISED) <= RACKS * NODES
    assert all(job.leaf_count <= PROMISED[int(job.tenant[3:])] * GPUS for job in jobs(500, 0.7, 1))


def test_a_load_is_the_same_for_a_seed_and_has_large_gangs() -> None:
    first = jobs(500, 0.7, 3)
    assert first == jobs(500, 0.7, 3)
    assert sum(job.leaf_count >= 16 for job in first) > 30
    assert 4 < sum(job.leaf_count for job in first) / len(first) < 8


def test_the_greedy_one_submits_each_job_three_times() -> None:
    load = jobs(200, 0.7, 1)
    count = sum(job.tenant == GREEDY for job in load)
    assert len(with_greedy(load)) == len(load) + (TIMES - 1) * count


def test_nobody_starts_later_than_without_lending() -> None:
    found = compare(cluster(on_racks=False), jobs(150, 0.95, 1), 30.0)
    assert (found.jobs, found.starts_later, found.due_evicted) == (150, 0, 0)
