"""Virtual time: queues, evictions and checkpoints, by hand-made jobs on one rack."""

from dataclasses import replace

from hived.values.specs import Rules
from tests.core.builders import quota, rack_cluster
from tests.quality.large import Job, quotas_by_work
from tests.quality.large_measures import _pack, compare
from tests.quality.loop import Course, Loop, Options, rewound
from tests.quality.plain import OPPORTUNISTIC
from tests.quality.play import Play
from tests.quality.small import Load, walk


def run(*jobs: Job, options: Options | None = None) -> dict[str, Course]:
    """One rack of two nodes of two GPUs, of which A is promised one node and B the other."""
    spec = rack_cluster(quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 1}), racks=1)
    return Loop(Play(spec), options or Options()).run(jobs)


def test_nobody_passes_the_head_of_a_queue() -> None:
    courses = run(Job("a", "A", 0, 10, (1,)), Job("b", "A", 1, 10, (2,)), Job("c", "A", 2, 10, (1,)))
    assert [courses[name].started for name in "abc"] == [0, 10, 20]


def test_a_lent_job_is_evicted_and_runs_again_from_the_start() -> None:
    lent = Job("lent", "A", 0, 100, (2, 2), OPPORTUNISTIC)
    courses = run(lent, Job("b", "B", 70, 10, (2,)))
    assert courses["b"].started == 70
    assert (courses["lent"].evictions, courses["lent"].lost, courses["lent"].ended) == (1, 280, 180)


def test_a_checkpoint_keeps_work() -> None:
    lent = Job("lent", "A", 0, 100, (2, 2), OPPORTUNISTIC)
    courses = run(lent, Job("b", "B", 70, 10, (2,)), options=Options(checkpoint_s=30))
    assert (courses["lent"].lost, courses["lent"].ended) == (40, 120)


def test_the_core_knows_of_checkpoints_and_evicts_the_job_that_has_just_saved() -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 2}), racks=1, nodes=3)
    for checkpoint_s, evicted in ((0.0, "late"), (30.0, "early")):
        play = Play(replace(spec, rules=Rules.BETTER))
        jobs = (Job("early", "A", 0, 900, (2,), OPPORTUNISTIC), Job("late", "A", 10, 900, (2,), OPPORTUNISTIC))
        more = (Job("b", "B", 61, 10, (2, 2)),)
        courses = Loop(play, Options(checkpoint_s=checkpoint_s)).run([*jobs, *more])
        assert [name for name in ("early", "late") if courses[name].evictions] == [evicted]


def test_over_quota_a_waiting_job_runs_on_lent_cells_and_keeps_its_place_in_the_queue() -> None:
    jobs = (Job("a", "A", 0, 50, (2,)), Job("more", "A", 0, 60, (2,)), Job("b", "B", 20, 100, (2,)))
    assert run(*jobs)["more"].started == 50
    more = run(*jobs, options=Options(over_quota=True))["more"]
    assert (more.started, more.evictions, more.guaranteed_at, more.ended) == (0, 1, 50, 110)


def test_jobs_that_start_later_than_in_private_are_counted() -> None:
    job = Job("a", "A", 0, 10, (1,))
    figures = compare({"a": Course(job, 7.0, 7.0, 17.0)}, {"a": Course(job, 5.0, 5.0, 15.0)})
    assert (figures["later"], figures["later_max_s"], figures["later_ends"]) == (1, 2, 1)


def test_quotas_follow_the_work_and_add_up() -> None:
    jobs = [Job("a", "A", 0, 30, (4,)), Job("b", "B", 0, 10, (4,)), Job("c", "C", 0, 1, (1,))]
    assert quotas_by_work(jobs, 8) == {"A": 5, "B": 2, "C": 1}


def test_facts_before_an_answer_can_be_looked_at_again() -> None:
    for asked in walk("NODE", Rules.HIVED, Load(), 2, 60):
        if asked.answer.running is None:
            continue
        after = asked.play.facts.copy()
        with rewound(asked.play.facts, asked.answer) as before:
            assert (before.user, before.owner) == (asked.before.user, asked.before.owner)
        assert (asked.play.facts.user, asked.play.facts.owner) == (after.user, after.owner)


def test_pods_are_packed_where_they_fit_most_tightly() -> None:
    free = [8, 3, 2]
    assert _pack(free, (2, 3))
    assert free == [8, 0, 0]
    assert not _pack(free, (8, 1))
