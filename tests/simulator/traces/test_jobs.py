"""The values of a trace."""

from hived_simulator.traces.jobs import Job, Pods


def test_a_job_asks_for_the_leaves_of_all_its_pods() -> None:
    job = Job("a", "vc1", 0.0, 60.0, (Pods(2, 1), Pods(3, 8)))
    assert job.leaf_count == 26
