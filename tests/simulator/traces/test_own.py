"""Our own format loses nothing, and a wrong line is an error that names it."""

from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_simulator.traces import own
from hived_simulator.traces.jobs import Job, Pods, Trace
from hived_simulator.traces.reading import read_trace

TRACE = Trace(
    "mine",
    (
        Job("a", "red", 0.0, 0.1, (Pods(1, 1),)),
        Job(
            "b", "", 1 / 3, 1e7, (Pods(2, 1), Pods(3, 8)), user="u", started_s=12.5, leaf_type="V100", priority=-1,
            is_gang=False, within_cell="RACK", checkpoint_s=1800.0, status="Failed",
        ),
    ),
    1508112000.25,
    ("é, \" and \n",),
)  # fmt: skip


def written(path: Path, trace: Trace = TRACE) -> Path:
    path.write_bytes(b"".join(own.to_lines(trace)))
    return path


def test_what_is_written_is_read_again_exactly(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path / "a.jsonl")) == TRACE


START = '{"name":"c","tenant":"",'
POD = '"pods":[{"count":1,"leaf_count":1}]}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"name":"c"', "c.jsonl:4: Input data was truncated"),
        (START + '"submitted_s":1,"duration_s":1}', "c.jsonl:4: .*pods"),
        (START + '"submitted_s":1,"duration_s":0,' + POD, "duration_s"),
        (START + '"submitted_s":1e300,"duration_s":1,' + POD, "submitted_s"),
        (START + '"submitted_s":1,"duration_s":1,"pods":[{"count":1,"leaf_count":0}]}', "pods"),
        (START + '"submitted_s":1,"duration_s":1,"pods":[]}', "pods"),
        ('{"name":"a","tenant":"","submitted_s":1,"duration_s":1,' + POD, "two jobs have"),
        ("[" * 100_000, "c.jsonl:4: "),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path / "c.jsonl")
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=message):
        read_trace(path)


def test_a_trace_begins_with_its_first_submission(tmp_path: Path) -> None:
    moved = Trace("m", (Job("a", "", 100.0, 1.0, (Pods(1, 1),), started_s=130.0),), 1000.0)
    trace = read_trace(written(tmp_path / "m.jsonl", moved))
    assert (trace.start, trace.jobs[0].submitted_s, trace.jobs[0].started_s) == (1100.0, 0.0, 30.0)


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"hived_trace":2,"name":""}\n')
    with pytest.raises(UserError, match="version 2"):
        read_trace(tmp_path / "a")
