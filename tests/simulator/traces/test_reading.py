"""Each format is recognised by the text of its sample, however it is packed, and read with all that it tells."""

import bz2
import gzip
import io
import lzma
import sys
from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_simulator.traces import own
from hived_simulator.traces.fields import to_text
from hived_simulator.traces.files import Source
from hived_simulator.traces.jobs import Job, Pods
from hived_simulator.traces.reading import FORMATS, read_trace, recognised
from tests.places import ROOT

SAMPLES = ROOT / "tests" / "simulator" / "traces" / "samples"

# name, tenant, submitted, duration, pods, user, started, leaf type, priority, status
EXPECTED = {
    "philly.csv": ("philly-csv", 1508140800.0, [
        ("job-0000002", "vc-blue", 0, 3600, "4+2x8", "", None, "", None, ""),
        ("job-0000001", "vc-red", 30, 120, "1", "", None, "", None, ""),
    ]),
    "philly.json": ("philly-json", 1508140800.0, [
        ("application_1_0001", "vc-blue", 0, 4200, "1+8", "user-a", 600, "", None, "Pass"),
        ("application_1_0004", "vc-red", 3000, 300, "1", "user-a", 4200, "", None, "Pass"),
        ("application_1_0003", "vc-red", 3600, 1800, "1", "user-b", 3600, "", None, "Failed"),
    ]),
    "helios.csv": ("helios", 1591728061.0, [
        ("101", "vcA", 0, 600, "1", "ua", 10, "", None, "COMPLETED"),
        ("102", "vcB", 59, 240, "2x8", "ub", 59, "", None, "FAILED"),
        ("104", "vcA", 179, 60, "3x2+2x3", "ua", 239, "", None, "CANCELLED"),
    ]),
    "acme.csv": ("acme", 1684321258.0, [
        ("dlc-a", "", 0, 8, "8x8", "u1", 10, "", None, "FAILED"),
        ("dlc-b", "", 542, 600, "8", "u2", 572, "", None, "COMPLETED"),
    ]),
    "pai_task_table.csv": ("alibaba-2020", None, [
        ("job-a", "", 0, 600, "4x1", "user-1", 110, "V100", None, "Terminated"),
        ("job-b", "", 295, 100, "1", "user-2", 300, "", None, "Failed"),
        ("job-e", "", 390, 200, "3x1+2", "user-1", 400, "P100", None, "Terminated"),
    ]),
    "alibaba-2023.csv": ("alibaba-2023", None, [
        ("pod-0", "", 0, 5000, "1", "", 0, "", 0, "Running"),
        ("pod-1", "", 100, 290, "1", "", 110, "", -1, "Succeeded"),
        ("pod-3", "", 200, 1000, "8", "", 200, "G2", 0, "Failed"),
    ]),
    "alibaba-2026.csv": ("alibaba-2026", None, [
        ("1", "13", 0, 7200, "1", "", None, "A10", 0, ""),
        ("2", "57", 60, 300, "16x1", "", None, "A100-SXM4-80GB", -1, ""),
        ("3", "57", 120, 600, "2x8", "", None, "A100-SXM4-80GB", 0, ""),
        ("4", "13", 180, 30, "1", "", None, "A10", -1, ""),
    ]),
    "gavel.trace": ("gavel", None, [
        ("job-0000001", "", 0, 600, "1", "", None, "", None, ""),
        ("job-0000002", "", 55.5, 2400, "4", "", None, "", None, ""),
    ]),
    "shockwave.trace": ("gavel", None, [("job-0000001", "", 0, 1200.5, "2", "", None, "", None, "")]),
    "venus.csv": ("table", None, [
        ("1", "", 0, 36848, "1", "", None, "", None, ""),
        ("2", "", 26, 249, "4", "", None, "", None, ""),
        ("3", "", 27, 675233, "1+2x8", "", None, "", None, ""),
    ]),
    "sacct.txt": ("sacct", 1772352000.0, [
        ("1001", "lab-a", 0, 3600, "2x8", "ada", 300, "a100", None, "COMPLETED"),
        ("1002_1", "lab-b", 600, 93600, "1", "bob", 600, "", None, "TIMEOUT"),
        ("1002_2", "lab-b", 600, 30, "1", "bob", 660, "", None, "CANCELLED"),
        ("1003", "lab-a", 1200, 600, "4x1+8", "ada", 1260, "", None, "COMPLETED"),
        ("1004", "lab-a", 3900, 7200, "2", "ada", 3901, "", None, "RUNNING"),
    ]),
    "openpai.json": ("openpai", 1760000000.0, [
        ("ada~train", "research", 0, 3600, "4x4", "ada", 60, "", None, "SUCCEEDED"),
        ("bob~sweep", "default", 100, 600, "1", "bob", 3060, "", None, "RUNNING"),
    ]),
    "pods.json": ("kubernetes", 1772352000.0, [
        ("train", "research", 0, 3601, "2x8", "team-a", 60, "V100", 5, "Succeeded"),
        ("team-b/pt", "team-b", 600, 3051, "2x4", "team-b", 610, "", None, "Failed"),
        ("team-b/web-1", "team-b", 1800, 1856, "1", "team-b", 1805, "", None, "Running"),
        ("team-c/g", "team-c", 2400, 600, "2", "team-c", 2430, "", None, "Succeeded"),
    ]),
    "events.json": ("kubernetes", 1772352000.0, [
        ("team-a/a", "research", 0, 1800, "2x4", "team-a", 120, "", None, ""),
    ]),
    "prometheus.json": ("prometheus", 1772352000.0, [
        ("team-a/train", "team-a", 0, 540, "2x8", "team-a", 120, "", None, ""),
        ("team-b/one", "team-b", 250, 180, "2", "team-b", 300, "", None, ""),
    ]),
    "record.jsonl": ("record", 1772352010.0, [
        ("train", "research", 0, 3601, "2x8", "", 60, "V100", 5, ""),
        ("ns/one", "default", 90, 3900, "1", "", 90, "V100", -1, ""),
        ("ns/old", "default", 3991, 99, "2", "", 3991, "V100", 0, ""),
    ]),
}  # fmt: skip


def facts(job: Job) -> tuple[object, ...]:
    shape = to_text(job.pods)
    times = (job.submitted_s, job.duration_s)
    return (job.name, job.tenant, *times, shape, job.user, job.started_s, job.leaf_type, job.priority, job.status)


@pytest.mark.parametrize("sample", EXPECTED)
def test_the_jobs_of_a_sample(sample: str) -> None:
    name, start, jobs = EXPECTED[sample]
    source = Source(SAMPLES / sample)
    assert recognised(source) == name
    trace = read_trace(SAMPLES / sample)
    assert trace.start == start
    assert [facts(job) for job in trace.jobs] == jobs


def test_each_format_has_a_sample() -> None:
    assert {name for name, _, _ in EXPECTED.values()} == {each.name for each in FORMATS}


@pytest.mark.parametrize("sample", EXPECTED)
def test_a_sample_is_the_same_after_a_round_trip(sample: str, tmp_path: Path) -> None:
    trace = read_trace(SAMPLES / sample)
    (tmp_path / "a.jsonl").write_bytes(b"".join(own.to_lines(trace)))
    assert read_trace(tmp_path / "a.jsonl") == trace


@pytest.mark.parametrize("sample", EXPECTED)
def test_line_ends_a_byte_order_mark_and_packing_change_nothing(sample: str, tmp_path: Path) -> None:
    trace = read_trace(SAMPLES / sample)
    text = (SAMPLES / sample).read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / sample).write_bytes(gzip.compress(b"\xef\xbb\xbf" + text))
    if sample == "pai_task_table.csv":
        (tmp_path / "pai_job_table.csv").write_bytes((SAMPLES / "pai_job_table.csv").read_bytes())
    assert read_trace(tmp_path / sample).jobs == trace.jobs


def test_a_file_that_was_written_as_utf_16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "helios.csv"
    path.write_text((SAMPLES / "helios.csv").read_text(), encoding="utf-16")
    assert read_trace(path).jobs == read_trace(SAMPLES / "helios.csv").jobs


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (SAMPLES / "venus.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert read_trace("-").jobs == read_trace(SAMPLES / "venus.csv").jobs


PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-16 00:00:10,60.0,1,60.0,red
2017-10-16 00:00:00,30.5,20,610.0,blue
"""


def test_a_table_is_read_in_the_order_of_submission(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(PHILLY)
    trace = read_trace(tmp_path / "a.csv")
    assert [(job.tenant, job.submitted_s, job.duration_s) for job in trace.jobs] == [
        ("blue", 0.0, 30.5),
        ("red", 10.0, 60.0),
    ]
    assert trace.start == 1508112000.0
    assert trace.jobs[0].pods == (Pods(1, 4), Pods(2, 8))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_packed_file_is_unpacked_whatever_its_name(tmp_path: Path, pack) -> None:
    (tmp_path / "a").write_bytes(pack(PHILLY.encode()))
    assert len(read_trace(tmp_path / "a").jobs) == 2


def test_an_unknown_text_is_refused_with_all_formats(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("colour,size\nred,2\n")
    with pytest.raises(UserError, match=r"a.csv:1: the format is not recognised.*philly-csv"):
        read_trace(tmp_path / "a.csv")
