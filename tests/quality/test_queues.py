"""The study of large gangs in queues, on a sample: small jobs come all the time, and three gangs of 16 GPUs."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.quality.queues import NO_QUEUES, POLICIES, main

CONFIG = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellAddress: r1, cellChildren: [{cellAddress: n1}, {cellAddress: n2}]}
  - {cellType: RACK, cellAddress: r2, cellChildren: [{cellAddress: n3}, {cellAddress: n4}]}
virtualClusters:
  a: {virtualCells: [{cellType: RACK, cellNumber: 1}]}
  b: {virtualCells: [{cellType: RACK, cellNumber: 1}]}
"""
SMALL = [(60 * number, f"small-{number},a,{60 * number},900,1") for number in range(120)]
LARGE = [(900 + 1800 * number, f"large-{number},a,{900 + 1800 * number},600,16") for number in range(3)]
TRACE = "\n".join(["job,tenant,submitted_s,duration_s,gpus", *(row for _, row in sorted([*SMALL, *LARGE])), ""])


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("study")
    config, trace = folder / "now.yaml", folder / "jobs.csv"
    config.write_text(CONFIG)
    trace.write_text(TRACE)
    return ["--config", str(config), "--trace", str(trace), "--jobs", "1"]


@pytest.fixture(scope="module")
def figures(given: list[str]) -> dict[str, dict[str, object]]:
    """The figures of the study, by policy."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main([*given, "--json"]) == 0
    return {one["policy"]: one for one in json.loads(printed.getvalue())}


def mean(one: dict[str, object]) -> float:
    """The mean delay of large gangs."""
    delay = one["large_delay"]
    assert isinstance(delay, dict)
    return float(delay["mean"])


@pytest.mark.long
def test_every_policy_runs_every_job(figures: dict[str, dict[str, object]]) -> None:
    assert list(figures) == list(POLICIES)
    assert {(one["jobs"], one["large_jobs"]) for one in figures.values()} == {(123, 3)}


@pytest.mark.long
def test_gangs_wait_less_with_a_reservation_than_where_small_jobs_go_past_them(
    figures: dict[str, dict[str, object]],
) -> None:
    for reserved in ("queue:alone", "queue"):
        assert mean(figures[reserved]) < mean(figures[NO_QUEUES]) / 2
        assert mean(figures[reserved]) < mean(figures["queue-priority:alone"]) / 2


def test_only_policies_that_borrow_are_compared_with_the_run_without(figures: dict[str, dict[str, object]]) -> None:
    compared = [name for name, one in figures.items() if one["later"] is not None]
    assert compared == ["queue-block", "queue-priority", "queue"]
    assert [figures[name]["borrowed_hours"] != 0 for name in POLICIES] == [name in compared for name in POLICIES]


def test_no_job_starts_later_for_borrowing(figures: dict[str, dict[str, object]]) -> None:
    assert (figures["queue"]["over_bound"], figures["queue"]["later"]) == (0, 0)


@pytest.mark.long
def test_the_table_and_the_plot_have_a_row_for_each_policy(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "plot.svg"
    assert main([*given, "--plot", str(plot)]) == 0
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}`" for name in POLICIES]
    words = "".join(ElementTree.parse(plot).getroot().itertext())
    assert all(name in words for name in POLICIES)


def test_a_file_that_is_no_trace_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*given, "--trace", given[1]]) == 2
    assert "now.yaml" in capsys.readouterr().err
