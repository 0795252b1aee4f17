"""Pitfalls of sacct."""

from pathlib import Path
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_simulator.traces.draft import Options
from hived_simulator.traces.fields import Unusable, to_text
from hived_simulator.traces.jobs import Job, Trace
from hived_simulator.traces.reading import read_trace
from hived_simulator.traces.slurm import elapsed, gpus_in


def read(path: Path, header: str, *rows: str, **options: Any) -> Trace:
    path.write_text("\n".join((header, *rows)) + "\n")
    return read_trace(path, "", Options(**options))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:00:01", 1), ("1-02:03:04", 93784), ("02:03", 123), ("10:00.500", 600.5), ("100:00:00", 360000)],
)
def test_elapsed_has_many_forms(text: str, seconds: float) -> None:
    assert elapsed(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "1-02", "INVALID", "-1:00", "1:2:3:4"])
def test_what_is_no_elapsed_is_unusable(text: str) -> None:
    with pytest.raises(Unusable):
        elapsed(text)


@pytest.mark.parametrize(
    ("text", "gpus", "models"),
    [
        ("billing=8,cpu=8,gres/gpu=8,mem=64G,node=1", 8, []),
        ("gres/gpu:a100=4,gres/gpu=4,cpu=1", 4, ["a100"]),
        ("gres/gpu:a100=4,gres/gpu:v100=2", 6, ["a100", "v100"]),
        ("gres/gpu=2,gres/gpumem=80G,gres/gpuutil=100", 2, []),
        ("gpu:4", 4, []),
        ("gres:gpu:v100:2", 2, ["v100"]),
        ("gpu:a100:8(S:0-1)", 8, ["a100"]),
        ("cpu=8,mem=1G", 0, []),
        ("", 0, []),
    ],
)
def test_gpus_stand_in_lists_of_resources(text: str, gpus: int, models: list[str]) -> None:
    assert gpus_in(text) == (gpus, models)


def test_the_old_list_of_requests_is_of_each_node(tmp_path: Path) -> None:
    (job,) = read(
        tmp_path / "a",
        "JobIDRaw|Submit|Start|ElapsedRaw|NNodes|ReqGRES",
        "7|2026-03-01T08:00:00|2026-03-01T08:00:00|60|3|gpu:2",
    ).jobs
    assert to_text(job.pods) == "3x2"


def test_the_change_of_clocks_bends_no_duration(tmp_path: Path) -> None:
    """Clocks went back at 03:00 on this day: from 02:30 to 02:10 are 40 minutes."""
    header, row = (
        "JobID|Submit|Start|End|AllocTRES",
        "7|2026-10-25T01:00:00|2026-10-25T02:30:00|2026-10-25T{}|gres/gpu=1",
    )
    (job,) = read(
        tmp_path / "a", header.replace("End", "End|Elapsed"), row.format("02:10:00|00:40:00"), time_zone="Europe/Berlin"
    ).jobs
    assert job.duration_s == 2400
    with pytest.raises(UserError, match="End - Start is negative"):
        read(tmp_path / "a", header, row.format("02:10:00"), time_zone="Europe/Berlin")


def one(path: Path, column: str) -> Job:
    header = "JobID|Submit|Start|Elapsed|User|Account|Partition|AllocTRES"
    row = "7|2026-03-01T08:00:00|2026-03-01T08:00:00|01:00:00|ada|lab|gpu-large|gres/gpu=1"
    return read(path, header, row, tenant_column=column).jobs[0]


def test_another_column_can_name_the_tenant(tmp_path: Path) -> None:
    assert one(tmp_path / "a", "Partition").tenant == "gpu-large"
    assert one(tmp_path / "a", "User").tenant == "ada"
    with pytest.raises(UserError, match="column 'qos' is missing"):
        one(tmp_path / "a", "QOS")


def test_a_job_that_ran_twice_is_two_jobs(tmp_path: Path) -> None:
    header, row = (
        "JobID|Submit|Start|Elapsed|AllocTRES",
        "7|2026-03-01T0{}:00:00|2026-03-01T08:00:00|01:00:00|gres/gpu=1",
    )
    assert [job.name for job in read(tmp_path / "a", header, row.format(7), row.format(6)).jobs] == ["7", "7#2"]


def test_output_for_people_and_missing_columns_are_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="print it with sacct -a --parsable2"):
        read(tmp_path / "a", "JobID           State    Elapsed", "------------ -------- ----------", "7  DONE 1")
    with pytest.raises(UserError, match="expected one of the columns alloctres"):
        read(tmp_path / "a", "JobID|Submit|Elapsed|State", "7|2026-03-01T08:00:00|01:00:00|COMPLETED")


def test_epochs_and_a_trailing_bar_are_read(tmp_path: Path) -> None:
    (job,) = read(
        tmp_path / "a", "JobID|Submit|Start|Elapsed|AllocTRES|", "7|1772352000|1772352060|01:00:00|gres/gpu=1|"
    ).jobs
    assert (job.started_s, job.duration_s) == (60.0, 3600.0)
