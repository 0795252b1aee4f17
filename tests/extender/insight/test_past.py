"""The past is learned by comparing one snapshot with the next."""

from pathlib import Path

import pytest

from hived.scheduler import handle
from hived.values.events import PodDeleted
from hived_extender.insight.forward import scene_of
from hived_extender.insight.past import FIRST_FACTORS, LEAST, MOST_OPEN, SPARE, Corrections, Outcome, Past, Raw
from hived_extender.insight.store import Store
from tests.core.builders import pod
from tests.extender.insight.situations import AT, HOUR, Situation

RAW = Raw(likely_s=100.0, by_s=1000.0)


def note(past: Past, situation: Situation, at: float = AT, raw: Raw = RAW) -> None:
    """The first job that waits gets a forecast."""
    past.note(scene_of(situation.snapshot(at)).waiters[0], at, raw)


def look(past: Past, situation: Situation, at: float = AT) -> None:
    past.look(scene_of(situation.snapshot(at)))


def end(situation: Situation, name: str) -> None:
    handle(situation.state, PodDeleted(pod(name)))
    del situation.running[name]


def test_a_job_that_is_gone_has_ended_in_between() -> None:
    past, situation = Past(), Situation()
    situation.runs("job", age_s=HOUR)
    look(past, situation)
    assert past.durations.at(()).count("A") == 0
    end(situation, "job")
    look(past, situation, AT + 60.0)
    assert past.durations.at(()).count("A") == 1


def test_a_job_that_has_to_leave_would_have_run_longer() -> None:
    past, situation = Past(), Situation()
    for number in range(4):
        situation.runs(f"guest-{number}", vc="B", priority=-1)
    situation.reserves("job")
    look(past, situation)
    for number in range(4):
        end(situation, f"guest-{number}")
    look(past, situation, AT + 60.0)
    assert past.durations.at(()).count("B") in (2, 3)  # those that nobody asked to leave


def test_a_job_that_began_and_ended_between_two_looks_counts_once() -> None:
    past, situation = Past(), Situation()
    look(past, situation)
    situation.ended("short", 5.0, AT + 20.0)
    situation.ended("gang", 5.0, AT + 20.0, pod="gang-0")
    situation.ended("gang", 8.0, AT + 23.0, pod="gang-1")
    look(past, situation, AT + 60.0)
    look(past, situation, AT + 120.0)
    curves = past.durations.at(())
    assert curves.count("A") == 2
    assert past.durations.latest_s == AT + 23.0


def test_a_job_that_was_preempted_between_two_looks_has_not_ended() -> None:
    past, situation = Past(), Situation()
    look(past, situation)
    situation.ended("short", 5.0, AT + 20.0, is_preempted=True)
    look(past, situation, AT + 60.0)
    assert past.durations.at(()).count("A") == 0
    assert past.durations.latest_s == AT + 20.0


def test_a_pod_that_ends_before_its_job_is_no_job() -> None:
    past, situation = Past(), Situation()
    situation.runs("job", age_s=-10.0)
    situation.ended("job", 5.0, AT + 20.0, pod="job-0")
    look(past, situation, AT + 60.0)
    assert past.durations.at(()).count("A") == 0
    end(situation, "job")
    situation.ended("job", 70.0, AT + 80.0, pod="job-1")
    look(past, situation, AT + 120.0)
    look(past, situation, AT + 180.0)
    assert past.durations.at(()).count("A") == 1


def test_a_short_job_is_not_learned_again_after_a_restart(tmp_path: Path) -> None:
    situation = Situation()
    situation.ended("short", 5.0, AT + 20.0)
    for minute in (1, 2):
        store = Store(tmp_path / "history")
        past = Past(store)
        look(past, situation, AT + 60.0 * minute)
        store.close()
        assert past.durations.at(()).count("A") == 1


def test_short_jobs_while_a_clock_was_set_teach_nothing() -> None:
    past, situation = Past(), Situation()
    past.look(scene_of(situation.snapshot()), 0.0)
    situation.ended("short", 5.0, AT + 20.0)
    past.look(scene_of(situation.snapshot(AT + 600.0)), 60.0)
    past.look(scene_of(situation.snapshot(AT + 660.0)), 120.0)
    assert past.durations.at(()).count("A") == 0


def test_forecasts_are_judged_once_the_job_runs() -> None:
    past, situation = Past(), Situation()
    situation.waits("job")
    look(past, situation)
    note(past, situation)
    situation.waiting.clear()
    situation.runs("job", age_s=-500.0)
    look(past, situation, AT + 560.0)
    same = Corrections()
    same.add([Outcome("A", False, 100.0, 1000.0, 560.0)])
    for each in (past.corrections, same):
        each.add([Outcome("A", False, 100.0, 1000.0, 5000.0)] * (LEAST - 1))
    assert past.corrector(AT).of("A", False) == same.at(()).of("A", False)


def test_a_job_that_never_started_judges_nothing() -> None:
    past, situation = Past(), Situation()
    situation.waits("job")
    look(past, situation)
    note(past, situation)
    situation.waiting.clear()
    look(past, situation, AT + 60.0)
    past.corrections.add([Outcome("A", False, 100.0, 1000.0, 5000.0)] * (LEAST - 1))
    assert past.corrector(AT).of("A", False) == FIRST_FACTORS


def test_a_job_gets_another_forecast_when_it_has_waited_twice_as_long() -> None:
    past, situation = Past(), Situation()
    situation.waits("job")
    made = []
    for minute in range(100):
        if past.wants_forecast("job", AT + 60.0 * minute):
            note(past, situation, AT + 60.0 * minute)
            made.append(minute)
    assert made == [0, 5, 10, 20, 40, 80]


@pytest.mark.long
def test_open_forecasts_are_bounded_and_the_latest_are_kept() -> None:
    past, situation = Past(), Situation()
    for number in range(MOST_OPEN + SPARE):
        situation.waiting.clear()
        situation.waits(f"job-{number}")
        note(past, situation)
    made = [one for known in past._waiting.values() for one in known.made]
    assert [one.order for one in made] == list(range(SPARE, MOST_OPEN + SPARE))
    assert past.wants_forecast("another", AT)
    assert not past.wants_forecast("job-0", AT)


@pytest.mark.long
def test_a_virtual_cluster_whose_jobs_wait_for_ever_leaves_others_their_forecasts() -> None:
    past, situation = Past(), Situation()
    situation.waits("few", vc="B")
    note(past, situation)
    situation.waiting.clear()
    situation.waits("many")
    for _ in range(2 * MOST_OPEN):
        note(past, situation)
    assert len(past._waiting["few"].made) == 1
    assert len(past._waiting["many"].made) < MOST_OPEN + SPARE


def test_forecasts_that_do_not_depend_on_the_past_are_not_judged() -> None:
    past, situation = Past(), Situation()
    situation.waits("job")
    for raw in (Raw(), Raw(likely_s=0.0, by_s=0.0, is_now=True), Raw(30.0, 30.0, reserved_s=30.0)):
        note(past, situation, raw=raw)
    situation.waiting.clear()
    situation.runs("job", age_s=-500.0)
    past.corrections.add([Outcome("A", False, 100.0, 1000.0, 5000.0)] * (LEAST - 1))
    look(past, situation, AT + 560.0)
    assert past.corrector(AT).of("A", False) == FIRST_FACTORS


def test_a_job_whose_start_is_unknown_is_not_played_each_minute() -> None:
    past, situation = Past(), Situation()
    situation.waits("job")
    made = []
    for minute in range(50):
        if past.wants_forecast("job", AT + 60.0 * minute):
            note(past, situation, AT + 60.0 * minute, Raw())
            made.append(minute)
    assert made == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]


def test_the_past_survives_a_restart(tmp_path: Path) -> None:
    past, situation = Past(Store(tmp_path / "past.db")), Situation()
    situation.runs("job")
    look(past, situation)
    end(situation, "job")
    look(past, situation, AT + 60.0)
    assert Past(Store(tmp_path / "past.db")).durations.at(()).count("A") == 1


def test_a_job_that_was_preempted_between_two_looks_would_have_run_longer() -> None:
    past, situation = Past(), Situation()
    situation.runs("job")
    situation.lost.append((1, "job"))  # another one of this name, before
    look(past, situation)
    end(situation, "job")
    situation.lost.append((2, "job"))
    look(past, situation, AT + 60.0)
    (ended,) = past.durations._ended["A"]
    assert not ended.is_whole


def test_a_preemption_of_another_job_of_that_name_is_not_counted_twice() -> None:
    past, situation = Past(), Situation()
    situation.runs("job")
    situation.lost.append((1, "job"))
    look(past, situation)
    end(situation, "job")
    look(past, situation, AT + 60.0)
    (ended,) = past.durations._ended["A"]
    assert ended.is_whole


def test_a_job_that_was_created_again_between_two_looks_has_ended_once() -> None:
    past, situation = Past(), Situation()
    situation.runs("job", age_s=HOUR)
    look(past, situation)
    end(situation, "job")
    situation.runs("job", age_s=-20.0)
    look(past, situation, AT + 60.0)
    (ended,) = past.durations._ended["A"]
    assert (ended.seconds, ended.is_whole) == (HOUR + 20.0, True)


def test_nothing_is_learned_between_two_looks_when_the_clock_is_set() -> None:
    past, situation = Past(), Situation()
    situation.runs("job")
    past.look(scene_of(situation.snapshot(AT)), 1000.0)
    end(situation, "job")
    past.look(scene_of(situation.snapshot(AT + 24 * HOUR)), 1060.0)
    assert past.durations.at(()).count("A") == 0
    situation.runs("job")
    past.look(scene_of(situation.snapshot(AT + 25 * HOUR)), 1060.0 + HOUR)
    end(situation, "job")
    past.look(scene_of(situation.snapshot(AT + 26 * HOUR)), 1060.0 + 2 * HOUR)
    assert past.durations.at(()).count("A") == 1
