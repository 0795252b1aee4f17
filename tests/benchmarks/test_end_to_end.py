"""The comparison of two checkouts end to end, and the programs that it measures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.end_to_end import TITLES, Embedded, Round, compare, main, measure, table
from tests.benchmarks.process import cpu_s
from tests.places import ROOT
from tests.programs import program

SPREAD = (0.99, 1.0, 1.01, 1.0, 1.0, 0.99, 1.01)
WILD = (0.6, 1.4, 1.0, 0.8, 1.3, 0.7, 1.2)


def rounds(factor: float, spread: tuple[float, ...]) -> list[Round]:
    return [{"start": [(2.0, 2.0 * factor * each)] * 3} for each in spread]


@pytest.mark.parametrize(
    ("factor", "spread", "verdict"),
    [
        (0.5, SPREAD, "yes"),
        (1.04, SPREAD, "yes"),
        (1.12, SPREAD, "no"),
        (1.12, WILD, "unsure"),
        (3.0, WILD, "no"),
    ],
)
def test_a_figure_fails_only_by_more_than_the_limit_and_the_noise(
    factor: float, spread: tuple[float, ...], verdict: str
) -> None:
    [found] = compare(rounds(factor, spread))
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(factor)
    assert table([found]).splitlines()[1].endswith(f"  {verdict}")


def test_the_noise_is_that_of_the_ratio_and_not_of_rounds_that_are_slow_for_both() -> None:
    slow_rounds: list[Round] = [{"start": [(2.0 * each, 2.2 * each)]} for each in WILD]
    [found] = compare(slow_rounds)
    assert (found.verdict, found.noise) == ("no", pytest.approx(0.0))


def test_a_folder_without_a_project_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--against", str(tmp_path)])
    assert "is no checkout" in capsys.readouterr().err


def test_another_checkout_runs_on_its_own_sources_wherever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "src" / "hived_cli").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.hatch.build.targets.wheel]\npackages = ["src/hived_cli"]\n')
    (tmp_path / "src" / "hived_cli" / "__init__.py").write_text("def main(prog_name): print('other', prog_name)\n")
    command, path = program(tmp_path)
    done = subprocess.run(
        command, cwd=ROOT / "extender", env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=True
    )
    assert done.stdout == b"other hived\n"


def test_cpu_of_children_counts() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\n"
    before = cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert cpu_s(os.getpid()) - before > 0.25


@pytest.mark.long
def test_every_figure_of_the_embedded_cluster_is_measured() -> None:
    with Embedded(ROOT) as other, Embedded(ROOT) as ours:
        figures = measure(other, ours)
    assert figures.keys() == {key for key in TITLES if not key.startswith("real")}
    assert all(figure > 0 for pairs in figures.values() for pair in pairs for figure in pair)
