"""The table, the bounds, and wrong words of the command."""

import math

import pytest

from tests.forecasts.__main__ import main
from tests.forecasts.cases import Case, Figures, figures
from tests.forecasts.report import as_json, misses, table


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
