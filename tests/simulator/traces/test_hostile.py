"""Files that are broken, endless or made to harm get an error that names the place, or lose single rows."""

import gzip
import io
import random
import re
import tarfile
from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_simulator.traces import draft, files, own
from hived_simulator.traces.reading import NAMES, read_trace
from tests.places import ROOT
from tests.simulator.traces.test_reading import EXPECTED

SAMPLES = ROOT / "tests" / "simulator" / "traces" / "samples"
HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
ROW = "2017-10-16 08:00:00,60.0,1,60.0,red\n"


def philly(path: Path, *rows: str | bytes) -> Path:
    text = b"".join(row if isinstance(row, bytes) else row.encode() for row in (HEADER, *rows))
    path.write_bytes(text)
    return path


@pytest.mark.parametrize(
    ("row", "note"),
    [
        ("2017-10-16 08:00:00,abc,1,60.0,red\n", "left out, duration is no number: 1 (first: line 3, found 'abc')"),
        ("2017-10-16 08:00:00,nan,1,60.0,red\n", "left out, duration is no number: 1"),
        ("2017-10-16 08:00:00,1e400,1,60.0,red\n", "left out, duration is no number: 1"),
        ("2017-10-16 08:00:00,-60,1,60.0,red\n", "left out, duration is negative: 1"),
        ("2017-10-16 08:00:00\n", "left out, num_gpus is no number: 1"),
        ("yesterday,60,1,60.0,red\n", "left out, timestamp is no time: 1"),
        ("2017-10-16 08:00:00,60,1000001,60.0,red\n", "left out, num_gpus is over 1000000: 1"),
        (b"\0\0\0,\0,\0,\0,\0\n", "left out, timestamp is no time: 1"),
        (b"\xff\xfe,60,1,60,red\n", "left out, timestamp is no time: 1"),
        ("x" * 100_000 + ",60,1,60,red\n", "left out, timestamp is no time: 1"),
    ],
)
def test_a_bad_row_is_left_out_and_counted(tmp_path: Path, row: str | bytes, note: str) -> None:
    trace = read_trace(philly(tmp_path / "a.csv", ROW, row))
    assert len(trace.jobs) == 1
    assert any(each.startswith(note) for each in trace.notes)
    assert all(len(each) < 400 for each in trace.notes)


def test_a_file_without_a_usable_row_says_what_is_wrong(tmp_path: Path) -> None:
    path = philly(tmp_path / "a.csv", "2017-10-16 08:00:00,abc,1,60.0,red\n", "x,1,1,1,red\n", "x,2,1,1,red\n")
    with pytest.raises(UserError, match=r"a.csv: no row can be used; of 2: timestamp is no time \(first: line 3"):
        read_trace(path)
    with pytest.raises(UserError, match="has no job"):
        read_trace(philly(tmp_path / "b.csv"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n\r\n", "is empty"),
        (b"PK\x03\x04abc", "zip archive; unpack it"),
        (b"\x28\xb5\x2f\xfdabc", "zstd"),
        (b"PAR1abc", "export it as CSV"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (gzip.compress(ROW.encode() * 100, mtime=0)[:60], "is it complete"),
        (b"\x1f\x8bgarbage", "cannot be read"),
        (b"\0" * 1000, "not recognised"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(UserError, match=message):
        read_trace(tmp_path / "a")


def test_an_archive_and_a_folder_are_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(SAMPLES / "venus.csv", "venus.csv")
    (tmp_path / "a.tar.gz").write_bytes(data.getvalue())
    with pytest.raises(UserError, match="tar archive"):
        read_trace(tmp_path / "a.tar.gz")
    with pytest.raises(UserError, match="give the file of a trace"):
        read_trace(tmp_path)
    with pytest.raises(UserError, match="No such file"):
        read_trace(tmp_path / "none")


def test_an_endless_field_is_an_error_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a.csv:\d+: field larger than"):
        read_trace(philly(tmp_path / "a.csv", ROW, '"' + ROW * 5000))


def test_an_open_quote_is_remarked(tmp_path: Path) -> None:
    trace = read_trace(philly(tmp_path / "a.csv", ROW, '"2017-10-16 08:00:00\n', ROW, '"' + ROW, ROW))
    assert any("several lines" in note for note in trace.notes)


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1024**2)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(HEADER.encode() + ROW.encode() * 100_000))
    with pytest.raises(UserError, match="more than 1 MiB"):
        read_trace(tmp_path / "a.csv.gz")


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_CHARS", 1024**2)
    for name in ("philly-csv", "record", "hived"):
        (tmp_path / "a").write_bytes(b"x" * 2 * 1024**2)
        with pytest.raises(UserError, match="a:1: a line has over 1 MiB"):
            read_trace(tmp_path / "a", name)


def test_too_many_jobs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "MAX_JOBS", 3)
    with pytest.raises(UserError, match=r"a.csv:5: has more than 3 jobs"):
        read_trace(philly(tmp_path / "a.csv", ROW, ROW, ROW, ROW))


def test_names_are_cut_cleaned_and_made_unique(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "name,submitted_s,duration_s,gpus,tenant\n"
        + "a,0,1,1,\x1b[31mred\n"
        + "a,1,1,1,red\n"
        + "a#2,1,1,1,red\n"
        + f"{'b' * 5000},2,1,1,red\n"
    )
    trace = read_trace(tmp_path / "a.csv")
    assert [job.name for job in trace.jobs] == ["a", "a#2", "a#3", "b" * 200]
    assert trace.jobs[0].tenant == "\ufffd[31mred"
    assert any("earlier one" in note for note in trace.notes)


def test_a_column_that_is_missing_or_there_twice_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("timestamp,duration,num_gpus,cluster\n")
    with pytest.raises(UserError, match=r"a.csv:1: column gpu_time is missing"):
        read_trace(tmp_path / "a.csv", "philly-csv")
    (tmp_path / "b.csv").write_text("timestamp,duration,duration,num_gpus,gpu_time,cluster\n")
    with pytest.raises(UserError, match=r"b.csv:1: column duration is there twice"):
        read_trace(tmp_path / "b.csv")


def test_an_unknown_format_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected one of hived, philly-csv"):
        read_trace(philly(tmp_path / "a.csv", ROW), "philly")


SCRAPS = [b"", b"\0", b'"', b"-", b"9" * 30, b"\n", b",", b"null", b"\xff", b"[[[[", b"{}", b"1e308", b"-1"]
VALUES = [b"null", b"-1", b"1e308", b"{}", b"x", b"[]", b"true", b"0", b'"2020-02-30"']
TOKEN = re.compile(rb'(?<=[:,\t|\[ ])("[^"]*"|[\w.+-]+)')


def damaged(data: bytes, generator: random.Random) -> bytes:
    """Some bytes replaced, or some fields, or the end cut off."""
    kind = generator.randrange(3)
    if kind == 0:
        return data[: generator.randrange(1, len(data) + 1)]
    fields = list(TOKEN.finditer(data))
    result = bytearray(data)
    for place in sorted(generator.sample(range(len(data)), 6), reverse=True):
        result[place : place + generator.randrange(3)] = generator.choice(SCRAPS)
    if kind == 1 or not fields:
        return bytes(result)
    result = bytearray(data)
    chosen = generator.sample(fields, min(generator.randrange(1, 4), len(fields)))
    for field in sorted(chosen, key=lambda each: each.start(), reverse=True):
        result[field.start() : field.end()] = generator.choice(VALUES)
    return bytes(result)


def outcome(path: Path, name: str) -> str:
    trace, message = None, ""
    try:
        trace = read_trace(path, name)
    except UserError as error:
        message = str(error)
    if trace is None:
        assert str(path) in message
        assert len(message) < 2000
        return "refused"
    assert all(0 < job.duration_s < 1e10 and job.leaf_count > 0 and job.submitted_s >= 0 for job in trace.jobs)
    return "read"


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_no_text_breaks_a_reader(tmp_path: Path, name: str) -> None:
    """Each reader gets damaged samples of its format and of all others: it reads them, or says why not."""
    generator = random.Random(name)
    samples = {path.name: path.read_bytes() for path in sorted(SAMPLES.iterdir()) if path.suffix != ".md"}
    samples["hived"] = b"".join(own.to_lines(read_trace(SAMPLES / "helios.csv")))
    proper = [data for sample, data in samples.items() if EXPECTED.get(sample, (sample,))[0] == name]
    outcomes = set()
    path = tmp_path / "trace"
    for data in [*samples.values(), *(each for each in proper for _ in range(60))]:
        path.write_bytes(damaged(data, generator))
        outcomes.add(outcome(path, name))
    assert outcomes == {"read", "refused"}
