"""Forecasts on small traces, and the table of how well they hold."""

import math
from random import Random

import pytest

from hived.values.specs import ClusterSpec, Rules
from hived_simulator.traces.jobs import Job, Pods
from tests.core.builders import rack_cluster
from tests.forecasts.__main__ import main
from tests.forecasts.cases import Case, Figures, SimulatedService, figures, run
from tests.forecasts.report import as_json, misses, table

pytestmark = pytest.mark.sample(3)

EVERY_S = 900.0


def cluster(rules: Rules) -> ClusterSpec:
    """Two racks of two nodes of two GPUs; A and B are promised two nodes each."""
    spec = rack_cluster()
    return ClusterSpec(spec.cell_types, spec.physical_cells, spec.virtual_clusters, rules=rules)


def jobs(count: int) -> list[Job]:
    """More than there is room for at once; some are opportunistic."""
    source, found, at_s = Random(5), list[Job](), 0.0
    for number in range(count):
        at_s += source.expovariate(1 / 600)
        pods = (Pods(source.choice((1, 1, 1, 2)), source.choice((1, 2))),)
        found.append(
            Job(
                f"j{number}", source.choice("AB"), at_s, 1800 * source.lognormvariate(0, 0.7), pods,
                priority=source.choice((-1, 0, 0, 0)),
            )
        )  # fmt: skip
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("rules", Rules)
def test_no_bound_and_no_certain_forecast_is_broken(rules: Rules) -> None:
    cases = run(cluster(rules), jobs(45), 1.0, EVERY_S, lambda _: None)
    found = figures(45, cases)
    assert found.bounded > 3
    assert (found.certain_broken, found.bounded_broken) == (0, 0)


def test_without_limits_starts_are_unknown_until_there_is_a_history_and_then_estimated() -> None:
    cases = run(cluster(Rules.BETTER), jobs(45), 0.0, EVERY_S, lambda _: None)
    kinds = [case.kind for case in cases if case.kind not in ("certain", "now")]
    assert kinds[0] == "unknown"
    assert "estimated" in kinds
    assert "bounded" not in kinds


def test_the_same_run_gives_the_same_forecasts() -> None:
    first, second = (run(cluster(Rules.BETTER), jobs(25), 0.5, EVERY_S, lambda _: None) for _ in range(2))
    assert first == second


def test_a_job_that_came_later_and_started_first_is_told_apart() -> None:
    wide, narrow = Job("wide", "A", 10.0, 100.0, (Pods(2, 2),)), Job("narrow", "A", 60.0, 100.0, (Pods(1, 2),))
    holder = Job("holder", "A", 0.0, 1000.0, (Pods(1, 2),))
    service = SimulatedService(cluster(Rules.BETTER), [holder, wide, narrow], 0.0)
    for at_s in (50.0, 100.0, 2000.0):
        service.play_until(at_s)
        service.snapshot(at_s)
    assert service.start_after("job-1", 50.0) == 1000.0
    assert service.start_after("job-1", 1500.0) is None
    assert service.is_passed("job-1", 50.0, 1000.0)
    assert not service.is_passed("job-1", 100.0, 1000.0)


def test_figures_judge_each_kind_by_itself() -> None:
    cases = [
        Case("estimated", "A", 60.0, 600.0, 30.0, False),
        Case("estimated", "A", 60.0, 600.0, 900.0, True),
        Case("bounded", "A", 60.0, 600.0, 601.0, False),
        Case("bounded", "A", 60.0, 600.0, 601.0, True),
        Case("certain", "A", 30.0, 30.0, 90.0, False),
        Case("unknown", "A", 1.0, 1.0, 90.0, False),
    ]
    found = figures(9, cases)
    assert (found.jobs, found.cases, found.estimated, found.unknown) == (9, 6, 2, 1)
    assert (found.likely_holds, found.by_holds) == (50.0, 50.0)
    assert (found.bounded_broken, found.bounded_passed, found.certain_broken) == (1, 1, 1)
    assert found.bounded_holds == 0.0
    assert (found.median_wait, found.median_by) == (7.8, 10.0)


def estimated(held: int) -> Figures:
    """Of 100 cases, so many start by the later moment."""
    return figures(
        7, [Case("estimated", "A", 60.0, 600.0, 30.0 if number < held else 900.0, False) for number in range(100)]
    )


@pytest.mark.parametrize(("held", "count"), [(84, 1), (85, 0), (95, 0), (96, 1)])
def test_too_early_and_too_careful_are_misses(held: int, count: int) -> None:
    assert len(misses("run", estimated(held))) == count


def test_a_broken_promise_is_a_miss() -> None:
    broken = [Case(kind, "A", 60.0, 60.0, 90.0, False) for kind in ("bounded", "certain")]
    assert misses("run", figures(2, broken)) == [
        "run: 1 certain forecasts were broken, expected none",
        "run: 1 bounded forecasts were broken, expected none",
    ]


def test_the_table_has_a_row_for_each_run() -> None:
    lines = table([("one", estimated(90)), ("none", figures(1200, []))]).splitlines()
    assert lines[2].startswith("| one | 7 | 100 |")
    assert lines[3].startswith("| none | 1,200 | 0 |")
    assert math.isnan(figures(1200, []).by_holds)
    assert "nan" not in lines[3]


def test_figures_of_nothing_are_null_for_scripts() -> None:
    assert as_json(figures(3, []))["by_holds"] is None
    assert as_json(estimated(90))["by_holds"] == 90.0


def test_unknown_runs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])
    assert "'nothing' is no run; runs are philly-september" in capsys.readouterr().err
