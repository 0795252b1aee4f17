"""Traces of another load."""

import pytest

from hived.errors import UserError
from hived_simulator.traces import changing
from hived_simulator.traces.jobs import Job, Pods, Trace

TRACE = Trace(
    "t",
    (
        Job("a", "", 0.0, 60.0, (Pods(1, 1),), started_s=5.0),
        Job("b", "", 70.0, 60.0, (Pods(1, 4), Pods(2, 8))),
        Job("c", "", 100.0, 30.0, (Pods(2, 8),)),
    ),
    1000.0,
)  # fmt: skip


def test_the_load_is_work_by_gpus_and_span() -> None:
    assert changing.load(TRACE, 10) == (60 + 20 * 60 + 16 * 30) / (100 * 10)
    with pytest.raises(UserError, match="all jobs are submitted at once"):
        changing.load(Trace("x", TRACE.jobs[:1]), 10)


def test_a_fold_takes_arrivals_modulo_a_span() -> None:
    folded = changing.fold(TRACE, 60.0)
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
    assert [(job.submitted_s, job.duration_s) for job in changing.speed(TRACE, 2.0).jobs] == [
        (0, 60),
        (35, 60),
        (50, 30),
    ]


def test_a_load_is_reached_by_speed_exactly_and_by_a_fold_upwards() -> None:
    assert changing.load(changing.to_load(TRACE, 0.5, 10, folds=False), 10) == pytest.approx(0.5)
    jobs = tuple(Job(f"j{n:04d}", "", n * 1.0, 10.0, (Pods(1, 1),)) for n in range(10_000))
    steady = Trace("s", jobs)
    assert changing.load(changing.to_load(steady, 2.0, 100, folds=True), 100) == pytest.approx(2.0, rel=0.01)
    with pytest.raises(UserError, match="a fold cannot lower it"):
        changing.to_load(steady, 0.01, 100, folds=True)


def test_jobs_become_larger_and_smaller_but_never_nothing() -> None:
    assert [job.pods for job in changing.size(TRACE, 0.3, 8).jobs] == [
        (Pods(1, 1),),
        (Pods(1, 6),),
        (Pods(1, 5),),
    ]
    assert changing.size(TRACE, 2.0, 8).jobs[1].pods == (Pods(5, 8),)
