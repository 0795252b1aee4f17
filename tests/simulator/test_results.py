"""Outcomes, summaries, differences and tables by small cases that can be checked by hand."""

import csv
import hashlib
import json
from pathlib import Path

import pytest

from hived_simulator.campaign import Campaign
from hived_simulator.plan import Options, make_plan
from hived_simulator.results import (
    Against,
    Measured,
    Promises,
    Summary,
    Usage,
    confidence,
    delays,
    differences,
    excesses,
    outcomes,
    redrawn,
    summaries,
)
from hived_simulator.tasks import NEVER, Phase, Task
from hived_simulator.traces.jobs import Trace
from hived_simulator.writing import number
from tests.simulator.builders import job, tasks
from tests.simulator.test_checkpoints import CONFIG


def ended(task: Task, first_s: float, ended_s: float, lost_s: float = 0.0) -> Task:
    """A task that has run."""
    task.start(first_s, task.priority, 2)
    task.end(ended_s)
    task.lost_s = lost_s
    return task


def measured(
    promised: dict[str, int], leaf_count: int, window_s: float, usage: dict[str, Usage] | None = None
) -> Measured:
    """A run under one configuration."""
    return Measured([Promises(0.0, leaf_count, promised)], usage or {}, window_s)


def test_an_elastic_job_starts_with_its_first_pod_and_ends_with_its_last() -> None:
    parts = tasks([job("elastic", "a", 10, 50, (2, 2), is_gang=False)])
    ended(parts[0], 20, 70)
    ended(parts[1], 60, 110, lost_s=5.0)
    found = outcomes(parts, [1, 1])[0]
    assert (found.started_s, found.ended_s, found.delay_s, found.stretch_s) == (20, 110, 10, 50)
    assert (found.leaf_count, found.pod_count, found.lost_leaf_s) == (4, 2, 10)


def test_a_job_that_never_started_has_no_delay() -> None:
    waiting = tasks([job("one", "a", 10, 50, (1, 1))])
    waiting[0].phase = Phase.WAITING
    found = outcomes(waiting, [1])[0]
    assert (found.started_s, found.delay_s, found.level, waiting[0].first_s) == (None, None, 0, NEVER)


def test_the_sharing_anomaly_is_counted_by_how_late() -> None:
    jobs = [job(str(each), "a", 0, 10, (1, 1)) for each in range(5)]
    private = outcomes([ended(task, 0, 10) for task in tasks(jobs)], [1] * 5)
    late_s = (0, 60, 4000, 40000, -1)
    own = tasks(jobs)
    for task, first_s in zip(own, late_s, strict=True):
        if first_s >= 0:
            ended(task, first_s, first_s + 10)
    found = outcomes(own, [1] * 5)
    against = Against(private, list(excesses(found, private)))
    later = summaries(found, measured({"a": 4}, 4, 100.0), against)[0].later
    assert later is not None
    assert (later.count, later.over_60_min, later.over_600_min, later.never, later.earlier) == (4, 2, 1, 1, 0)
    assert (later.max_s, later.mean_s, later.ends) == (40000, 44060 / 3, 3)


def test_use_is_told_for_each_virtual_cluster_and_for_all() -> None:
    found = outcomes([ended(task, 0, 10) for task in tasks([job("1", "a", 0, 10, (1, 4))])], [2])
    usage = {"a": Usage(40.0, 10.0)}
    whole, a, b = summaries(found, measured({"a": 4, "b": 4}, 16, 10.0, usage), None)
    assert (whole.utilisation, a.utilisation, b.utilisation, a.lent_share) == (0.25, 1.0, 0.0, 0.25)
    assert (whole.vc, whole.leaf_cells, a.jobs, b.jobs, whole.later) == ("all", 16, 1, 0, None)


def test_use_is_of_the_leaf_cells_that_were_there_at_the_time() -> None:
    found = outcomes([ended(task, 0, 10) for task in tasks([job("1", "a", 0, 10, (1, 4))])], [2])
    promises = [Promises(0.0, 16, {"a": 4}), Promises(5.0, 48, {"a": 12}), Promises(20.0, 99, {"a": 99})]
    whole, a = summaries(found, Measured(promises, {"a": Usage(40.0)}, 10.0), None)
    assert (whole.utilisation, a.utilisation, whole.leaf_cells, a.leaf_cells) == (40 / 320, 40 / 80, 16, 4)


def test_gangs_in_the_best_cell_are_counted() -> None:
    found = outcomes([ended(task, 0, 10) for task in tasks([job(str(n), "a", 0, 10, (2, 1)) for n in (0, 1)])], [2, 1])
    whole = summaries(found, measured({"a": 4}, 4, 10.0), None)[0]
    assert (whole.gangs, whole.optimal_gangs) == (2, 1)


def test_elastic_jobs_are_no_gangs() -> None:
    jobs = [
        job("gang", "a", 0, 10, (2, 1)),
        job("elastic", "a", 0, 10, (2, 1), is_gang=False),
        job("one", "a", 0, 10, (1, 1)),
    ]
    found = outcomes([ended(task, 0, 10) for task in tasks(jobs)], [2] * 4)
    assert [one.kind for one in found] == ["gang", "elastic", "pod"]
    assert summaries(found, measured({"a": 4}, 4, 10.0), None)[0].gangs == 1


def test_percentiles_are_of_the_nearest_rank() -> None:
    found = delays([float(each) for each in range(1, 101)])
    assert (found.mean, found.p50, found.p95, found.max) == (50.5, 50, 95, 100)
    assert delays([]).max == 0


def test_the_number_of_those_without_a_delay_stands_beside_the_mean() -> None:
    found = delays([None, 4.0, None, 2.0])
    assert (found.mean, found.max, found.never) == (3, 4, 2)
    assert delays([None]).never == 1


def test_opportunistic_jobs_that_never_start_are_told_apart() -> None:
    waiting = tasks([job("1", "a", 0, 10, (1, 1)), job("2", "a", 0, 10, (1, 1), priority=-1)])
    whole = summaries(outcomes(waiting, [1, 1]), measured({"a": 4}, 4, 10.0), None)[0]
    assert (whole.never_started, whole.delay.never, whole.never_told) == (2, 1, "1 + 1 opportunistic")


def test_the_confidence_interval_is_that_of_students_t() -> None:
    mean, low, high = confidence([1.0, 2.0, 3.0])
    assert mean == 2
    assert (low, high) == pytest.approx((2 - 4.303 / 3**0.5, 2 + 4.303 / 3**0.5))
    assert confidence([]) == (None, None, None)
    assert confidence([4.0]) == (4.0, None, None)


def test_durations_are_drawn_from_the_tenants_own() -> None:
    jobs = tuple(job(str(n), "a" if n % 2 else "b", n, float(n), (1, 1)) for n in range(40))
    trace = Trace("t", jobs)
    first, again, other = redrawn(trace, 0, 1), redrawn(trace, 0, 1), redrawn(trace, 0, 2)
    assert first == again != other
    assert {each.duration_s % 2 for each in first.jobs if each.tenant == "a"} == {1.0}
    assert [each.name for each in first.jobs] == [each.name for each in jobs]


def test_a_draw_keeps_long_durations_with_large_jobs() -> None:
    jobs = tuple(job(str(n), "a", n, 9000.0 + n if n % 2 else 10.0 + n, (1, 8 if n % 2 else 1)) for n in range(40))
    drawn = redrawn(Trace("t", jobs), 0, 1)
    assert all((each.duration_s > 9000) == (each.leaf_count == 8) for each in drawn.jobs)


def test_differences_are_of_pairs_and_draws() -> None:
    def total(mean: float) -> Summary:
        usual = summaries([], measured({}, 0, 0.0), None)[0]
        return type(usual)(**{**{name: getattr(usual, name) for name in usual.__struct_fields__}, "evictions": mean})

    found = differences({"x": [total(5), total(1), total(2)], "y": [total(6), total(3), total(6)]})
    one = next(each for each in found if each.figure == "evictions")
    assert (one.first_policy, one.second_policy, one.difference, one.draws, one.mean) == ("x", "y", 1, 2, 3)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.0, "0"), (-0.0001, "0"), (1.5, "1.5"), (2.0, "2"), (1 / 3, "0.333"), (1e9, "1000000000")],
)
def test_numbers_have_at_most_three_decimals(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_whole_simulation_by_hand(tmp_path: Path) -> None:
    config, trace, out = tmp_path / "now.yaml", tmp_path / "jobs.csv", tmp_path / "out"
    config.write_text(CONFIG)
    trace.write_text("job,tenant,submitted_s,duration_s,gpus\none,a,0,100,8\ntwo,a,50,100,4\nbig,a,50,10,12\n")
    plan = make_plan(config, trace, Options(against=("private",), every_s=60.0))
    Campaign(plan, out).run(lambda progress: None, lambda: False, lambda: 0.0, 60.0)
    with (out / "hived" / "jobs.csv").open() as file:
        rows = {row["job"]: row for row in csv.DictReader(file)}
    two = rows["two"]
    assert (two["started_s"], two["delay_s"], two["excess_start_s"], two["cause"]) == ("100", "50", "0", "vc-full")
    assert (rows["one"]["level"], rows["one"]["best_level"], rows["one"]["pods"]) == ("RACK", "RACK", "2")
    assert (rows["big"]["cause"], rows["big"]["started_s"]) == ("refused", "")
    with (out / "hived" / "series.csv").open() as file:
        series = list(csv.DictReader(file))
    assert [row["at_s"] for row in series] == ["0", "60", "120", "180"]
    assert [row["used"] for row in series] == ["8", "8", "4", "4"]
    assert [row["waiting_vc-full"] for row in series] == ["0", "1", "0", "0"]
    run = json.loads((out / "run.json").read_text())
    assert run["format"] == "hived-simulation/1"
    assert [policy["name"] for policy in run["policies"]] == ["private", "hived"]
    total = json.loads((out / "vcs.json").read_text())["hived"][0]
    assert (total["vc"], total["jobs"], total["never_started"], total["later"]["count"]) == ("all", 3, 1, 0)


@pytest.mark.parametrize("policy", ["hived", "private", "quota-bestfit"])
def test_cordoned_cells_in_use_are_bad_and_not_taken_from_the_idle_ones(tmp_path: Path, policy: str) -> None:
    config, trace = tmp_path / "now.yaml", tmp_path / "jobs.csv"
    config.write_text(CONFIG)
    trace.write_text("job,tenant,submitted_s,duration_s,gpus\nwide,a,0,100,8\n")
    options = Options(
        against=("private", "quota-bestfit"), what=tuple(f"cordon=rack-{n}@30s" for n in range(3)), every_s=60.0
    )
    Campaign(make_plan(config, trace, options), tmp_path / "out").run(lambda _: None, lambda: False, lambda: 0.0, 60.0)
    with (tmp_path / "out" / policy / "series.csv").open() as file:
        rows = [[int(row[name]) for name in ("leaf_cells", "used", "idle", "bad")] for row in csv.DictReader(file)]
    assert rows[:2] == [[24, 8, 16, 0], [24, 8, 0, 24]]


def test_the_files_of_changes_have_their_hashes(tmp_path: Path) -> None:
    config, trace, other = tmp_path / "now.yaml", tmp_path / "jobs.csv", tmp_path / "other.yaml"
    config.write_text(CONFIG)
    other.write_text(CONFIG)
    trace.write_text("job,tenant,submitted_s,duration_s,gpus\none,a,0,100,8\n")
    plan = make_plan(config, trace, Options(what=("fail=n1@10s", f"push={other}@20s")))
    Campaign(plan, tmp_path / "out").run(lambda progress: None, lambda: False, lambda: 0.0, 60.0)
    fail, push = json.loads((tmp_path / "out" / "run.json").read_text())["changes"]
    assert fail == {"at_s": 10.0, "text": "fail=n1@10s"}
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    assert push["configuration"] == {"file": "other.yaml", "sha256": digest}
