"""Pitfalls of Philly: attempts, and shapes as they ran."""

import json
from pathlib import Path
from typing import Any

from hived_simulator.traces.draft import Options
from hived_simulator.traces.jobs import Pods, Trace
from hived_simulator.traces.reading import read_trace
from tests.simulator.traces.test_table import SAMPLES


def read(path: Path, *attempts: dict[str, object], **options: Any) -> Trace:
    entry = {"jobid": "a", "vc": "red", "user": "u", "status": "Pass", "submitted_time": "2017-10-16 08:00:00"}
    path.write_text(json.dumps([entry | {"attempts": attempts}]))
    return read_trace(path, "", Options(**options))


def attempt(start: str | None, end: str | None, *sizes: int) -> dict[str, object]:
    detail = [{"ip": f"m{n}", "gpus": [f"gpu{m}" for m in range(size)]} for n, size in enumerate(sizes)]
    return {"start_time": start, "end_time": end, "detail": detail}


def test_a_gang_is_shaped_as_placed_only_if_that_is_wanted(tmp_path: Path) -> None:
    ran = attempt("2017-10-16 09:00:00", "2017-10-16 10:00:00", 3, 5, 3)
    assert read(tmp_path / "a", ran).jobs[0].pods == (Pods(1, 3), Pods(1, 8))
    assert read(tmp_path / "a", ran, is_as_placed=True).jobs[0].pods == (Pods(2, 3), Pods(1, 5))


def test_attempts_are_added_without_the_waits_between_them(tmp_path: Path) -> None:
    (job,) = read(
        tmp_path / "a",
        attempt("2017-10-16 09:00:00", "2017-10-16 09:10:00", 1),
        attempt("2017-10-16 10:00:00", None, 1),
        attempt("2017-10-16 11:00:00", "2017-10-16 11:20:00", 2),
    ).jobs
    assert (job.started_s, job.duration_s, job.pods) == (3600.0, 1800.0, (Pods(1, 2),))


def test_the_user_can_be_the_tenant(tmp_path: Path) -> None:
    ran = attempt("2017-10-16 09:00:00", "2017-10-16 10:00:00", 1)
    assert read(tmp_path / "a", ran, tenant_column="user").jobs[0].tenant == "u"


def test_times_of_a_zone_are_moved_to_utc() -> None:
    summer = read_trace(SAMPLES / "philly.csv", "", Options(time_zone="America/Los_Angeles"))
    assert summer.start == 1508140800.0 + 7 * 3600
    assert "times have no zone: read as America/Los_Angeles" in summer.notes


def test_numbers_are_times_as_well(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("timestamp,duration,num_gpus,gpu_time,cluster\n100,60,4,240,a\n40,60,4,240,b\n")
    trace = read_trace(tmp_path / "a")
    assert (trace.start, [job.submitted_s for job in trace.jobs]) == (None, [0.0, 60.0])
