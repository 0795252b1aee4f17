"""What over-quota work loses on promises of nodes and racks, on a small cluster."""

import pytest

from hived.specs import Rules
from tests.quality.__main__ import main
from tests.quality.lending import drawn_tasks, over_quota


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
    assert main(["--quick", "--only", "lending", "--jobs", "1"]) == 0
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [[each.strip() for each in row] for row in rows[1:]] == [
        ["hived", "N"],
        ["hived", "R"],
        ["2", "N"],
        ["2", "R"],
    ]
