"""Studies of queues and of lending, on samples."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hived.values.specs import Rules
from tests.quality import __main__, queues, queues_bound
from tests.quality.greedy import GREEDY, TIMES, with_greedy
from tests.quality.lending import drawn_tasks, over_quota
from tests.quality.queues import NO_QUEUES, POLICIES
from tests.quality.queues_ends import GPUS, NODES, PROMISED, RACKS, cluster, compare, jobs

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
        assert queues.main([*given, "--json"]) == 0
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
    assert queues.main([*given, "--plot", str(plot)]) == 0
    rows = [line.split(" | ")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}`" for name in POLICIES]
    words = "".join(ElementTree.parse(plot).getroot().itertext())
    assert all(name in words for name in POLICIES)


def test_a_file_that_is_no_trace_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert queues.main([*given, "--trace", given[1]]) == 2
    assert "now.yaml" in capsys.readouterr().err


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("bound")
    config, trace = folder / "now.yaml", folder / "jobs.csv"
    config.write_text(CONFIG)
    others = [
        (at + 30, row.replace(",a,", ",b,").replace("small", "other").replace("large", "wide")) for at, row in LARGE
    ]
    rows = [row for _, row in sorted([*SMALL, *LARGE, *others])]
    trace.write_text("\n".join(["job,tenant,submitted_s,duration_s,gpus", *rows, ""]))
    return ["--config", str(config), "--trace", str(trace)]


@pytest.mark.long
def test_no_job_of_a_trace_is_later_than_its_virtual_cluster_alone_by_more_than_a_grace_period(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert queues_bound.main(files) == 0
    said = capsys.readouterr().out
    assert "126 starts" in said
    assert " 0 by more than the grace period" in said


def test_all_nodes_are_promised_and_no_job_is_larger_than_its_virtual_cluster() -> None:
    assert sum(PROMISED) <= RACKS * NODES
    assert all(job.leaf_count <= PROMISED[int(job.tenant[3:])] * GPUS for job in jobs(500, 0.7, 1))


def test_a_load_is_the_same_for_a_seed_and_has_large_gangs() -> None:
    first = jobs(500, 0.7, 3)
    assert first == jobs(500, 0.7, 3)
    assert sum(job.leaf_count >= 16 for job in first) > 30
    assert 4 < sum(job.leaf_count for job in first) / len(first) < 8


def test_the_greedy_one_submits_each_job_three_times() -> None:
    load = jobs(200, 0.7, 1)
    count = sum(job.tenant == GREEDY for job in load)
    assert len(with_greedy(load)) == len(load) + (TIMES - 1) * count


def test_nobody_starts_later_than_without_lending() -> None:
    found = compare(cluster(on_racks=False), jobs(150, 0.95, 1), 30.0)
    assert (found.jobs, found.starts_later, found.due_evicted) == (150, 0, 0)


def test_the_same_jobs_are_drawn_each_time_in_bursts_with_gangs() -> None:
    one, other = drawn_tasks(0.7, 400, seed=3), drawn_tasks(0.7, 400, seed=3)
    assert [(each.submitted_s, each.shape) for each in one] == [(each.submitted_s, each.shape) for each in other]
    sizes = {each.shape.leaf_count for each in one}
    assert {1, 8, 16, 64} <= sizes <= {1, 2, 4, 8, 16, 24, 32, 64, 128}


def test_no_job_on_racks_is_evicted_more_than_a_handful_of_times() -> None:
    found = over_quota(Rules.BETTER, "R", 0.95, 400, 1, nodes=(10, 8, 6, 4, 4), rows=4)
    assert 0 < found.most_evictions <= 5
    assert found.lost_hours < found.useful_hours / 4


def test_the_table_has_nodes_and_racks_by_both_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--quick", "--only", "lending", "--jobs", "1"]) == 0
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [[each.strip() for each in row] for row in rows[1:]] == [
        ["hived", "N"],
        ["hived", "R"],
        ["2", "N"],
        ["2", "R"],
    ]
