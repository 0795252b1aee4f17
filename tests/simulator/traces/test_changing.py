"""Parts of a trace, and traces of another load."""

import pytest

from hived.values.errors import UserError
from hived_simulator.traces import changing
from hived_simulator.traces.changing import between, first_part, of_tenants, some, still_running
from hived_simulator.traces.jobs import Job, Pods, Trace

TRACE = Trace(
    "t",
    tuple(
        Job(f"j{n:03d}", "red" if n % 3 else "blue", n * 10.0, 5.0, (Pods(1, 1),), started_s=n * 10.0 + 1)
        for n in range(100)
    ),
    1508112000.0,
    ("made",),
)  # fmt: skip


def test_jobs_of_a_time_begin_with_the_first_of_them() -> None:
    part = between(TRACE, 95.0, 130.0)
    assert [job.name for job in part.jobs] == ["j010", "j011", "j012"]
    assert (part.start, part.jobs[0].submitted_s, part.jobs[0].started_s) == (1508112100.0, 0.0, 1.0)
    assert part.notes == (
        "made",
        "sample: of 100 jobs those submitted from 2017-10-16 00:01:35+00:00 to 2017-10-16 00:02:10+00:00",
    )


def test_a_part_that_ran_after_a_moment_says_how_many_of_all_it_has_and_the_second() -> None:
    part = still_running(TRACE, TRACE.start + 900.4)
    assert part.notes[-1] == "sample: 10 of 100 jobs ran after 2017-10-16 00:15:00+00:00"
    assert len(part.jobs) == 10


def test_a_span_is_counted_from_the_first_job() -> None:
    assert len(first_part(between(TRACE, 95.0, None), 20.0).jobs) == 2


def test_jobs_of_some_tenants() -> None:
    assert {job.tenant for job in of_tenants(TRACE, ["blue"]).jobs} == {"blue"}
    with pytest.raises(UserError, match="no job is of tenant 'green'; there are 'blue', 'red'"):
        of_tenants(TRACE, ["blue", "green"])


def test_the_same_seed_takes_the_same_jobs() -> None:
    names = [job.name for job in some(TRACE, 5, 1).jobs]
    assert names == [job.name for job in some(TRACE, 5, 1).jobs] == ["j009", "j013", "j020", "j035", "j091"]
    assert names != [job.name for job in some(TRACE, 5, 2).jobs]
    assert len(some(TRACE, 100).jobs) == 100
    with pytest.raises(UserError, match="has 100 jobs, 101 are wanted"):
        some(TRACE, 101)


def test_a_part_without_jobs_is_an_error() -> None:
    with pytest.raises(UserError, match="no job is left"):
        between(TRACE, 5000.0, None)


LOADED = Trace(
    "t",
    (
        Job("a", "", 0.0, 60.0, (Pods(1, 1),), started_s=5.0),
        Job("b", "", 70.0, 60.0, (Pods(1, 4), Pods(2, 8))),
        Job("c", "", 100.0, 30.0, (Pods(2, 8),)),
    ),
    1000.0,
)  # fmt: skip


def test_the_load_is_work_by_gpus_and_span() -> None:
    assert changing.load(LOADED, 10) == (60 + 20 * 60 + 16 * 30) / (100 * 10)
    with pytest.raises(UserError, match="all jobs are submitted at once"):
        changing.load(Trace("x", LOADED.jobs[:1]), 10)


def test_a_fold_takes_arrivals_modulo_a_span() -> None:
    folded = changing.fold(LOADED, 60.0)
    assert [(job.name, job.submitted_s, job.duration_s) for job in folded.jobs] == [
        ("a", 0.0, 60.0),
        ("b", 10.0, 60.0),
        ("c", 40.0, 30.0),
    ]
    assert folded.jobs[0].started_s is None
    assert folded.notes == ("scaled: arrivals of 100 s folded onto 60 s, durations kept",)


@pytest.mark.parametrize("span", [0.3, 0.7, 1 / 3])
def test_folded_arrivals_are_whole_microseconds_below_the_span(span: float) -> None:
    jobs = tuple(Job(str(n), "", n / 10, 60.0, (Pods(1, 1),)) for n in range(50))
    found = [job.submitted_s for job in changing.fold(Trace("t", jobs), span).jobs]
    assert all(moment == round(moment, 6) and 0 <= moment < span for moment in found)


def test_another_speed_moves_arrivals_and_keeps_durations() -> None:
    assert [(job.submitted_s, job.duration_s) for job in changing.speed(LOADED, 2.0).jobs] == [
        (0, 60),
        (35, 60),
        (50, 30),
    ]


def test_a_load_is_reached_by_speed_exactly_and_by_a_fold_upwards() -> None:
    assert changing.load(changing.to_load(LOADED, 0.5, 10, folds=False), 10) == pytest.approx(0.5)
    jobs = tuple(Job(f"j{n:04d}", "", n * 1.0, 10.0, (Pods(1, 1),)) for n in range(10_000))
    steady = Trace("s", jobs)
    assert changing.load(changing.to_load(steady, 2.0, 100, folds=True), 100) == pytest.approx(2.0, rel=0.01)
    with pytest.raises(UserError, match="a fold cannot lower it"):
        changing.to_load(steady, 0.01, 100, folds=True)


def test_jobs_become_larger_and_smaller_but_never_nothing() -> None:
    assert [job.pods for job in changing.size(LOADED, 0.3, 8).jobs] == [
        (Pods(1, 1),),
        (Pods(1, 6),),
        (Pods(1, 5),),
    ]
    assert changing.size(LOADED, 2.0, 8).jobs[1].pods == (Pods(5, 8),)
