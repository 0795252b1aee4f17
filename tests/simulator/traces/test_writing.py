"""Traces as text: what a form keeps, and the same bytes in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hived_simulator.traces.jobs import Job, Pods, Trace
from hived_simulator.traces.reading import read_trace
from hived_simulator.traces.writing import WRITERS, losses
from tests.places import ROOT

JOBS = (
    Job("a", "red, or blue", 0.0, 60.5, (Pods(1, 1),), user='"u"', started_s=0.25),
    Job("b", "", 0.125, 1e6, (Pods(1, 4), Pods(2, 8)), leaf_type="V100", priority=-1, status="Failed"),
)


def again(path: Path, trace: Trace, form: str) -> Trace:
    path.write_bytes(b"".join(WRITERS[form](trace)))
    return read_trace(path)


@pytest.mark.parametrize("start", [None, 1508112000.5])
def test_a_table_keeps_jobs(tmp_path: Path, start: float | None) -> None:
    trace = again(tmp_path / "t.csv", Trace("t", JOBS, start), "csv")
    assert (trace.jobs, trace.start) == (JOBS, start)


def test_the_table_of_philly_keeps_times_tenants_and_sizes(tmp_path: Path) -> None:
    trace = again(tmp_path / "t.csv", Trace("t", JOBS, 1508112000.5), "philly-csv")
    assert [(job.tenant, job.submitted_s, job.duration_s, job.leaf_count) for job in trace.jobs] == [
        (job.tenant, job.submitted_s, job.duration_s, job.leaf_count) for job in JOBS
    ]
    assert trace.start == 1508112000.5


def test_what_a_form_cannot_keep_is_named() -> None:
    trace = Trace("t", JOBS, None, ("a note",))
    assert losses(trace, "hived") == []
    assert losses(trace, "csv") == ["notes"]
    assert losses(trace, "philly-csv") == [
        "notes", "names", "shapes of gangs", "users", "starts", "models of GPU", "priorities", "statuses",
        "that there is no date",
    ]  # fmt: skip


@pytest.mark.parametrize("form", WRITERS)
def test_the_same_trace_gives_the_same_bytes(form: str) -> None:
    many = tuple(Job(f"j{n}", "t", float(n), 1.0, (Pods(1, 1),)) for n in range(3000))
    pieces = [b"".join(WRITERS[form](Trace("t", many))) for _ in range(2)]
    assert pieces[0] == pieces[1]
    assert pieces[0].count(b"\n") == 3001


PROGRAM = """
import hashlib, sys
from hived_simulator.traces.describing import describe
from hived_simulator.traces.reading import read_trace
from hived_simulator.traces.changing import some
from hived_simulator.traces.changing import fold
from hived_simulator.traces.writing import WRITERS
import msgspec
digest = hashlib.sha256()
for path in sys.argv[1:]:
    trace = fold(some(read_trace(path), 1, 3), 60.0)
    for each in (trace, read_trace(path)):
        digest.update(msgspec.json.encode(describe(each, gpus=0)))
        for write in WRITERS.values():
            digest.update(b"".join(write(each)))
print(digest.hexdigest())
"""


def test_another_process_gives_the_same_bytes() -> None:
    left_out = {"README.md", "pai_job_table.csv", "gavel-throughputs.json"}
    samples = sorted(path for path in (ROOT / "tests/simulator/traces/samples").iterdir() if path.name not in left_out)
    paths = ":".join(str(ROOT / folder) for folder in ("", "config", "extender"))
    digests = set()
    for seed, zone in (("1", "UTC"), ("2", "America/Los_Angeles")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": "C", "PYTHONPATH": paths}
        command = [sys.executable, "-P", "-c", PROGRAM, *map(str, samples)]
        digests.add(subprocess.run(command, env=environment, check=True, capture_output=True, cwd=Path("/")).stdout)
    assert len(digests) == 1
