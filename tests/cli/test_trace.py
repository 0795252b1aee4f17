"""`hived trace`: the four commands as people call them, alone and behind each other."""

import gzip
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_simulator.traces.reading import read_trace
from tests.places import ROOT

SAMPLES = ROOT / "tests" / "simulator" / "traces" / "samples"
HELIOS = str(SAMPLES / "helios.csv")


def run(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["trace", *arguments], input=stdin)


def test_describe_shows_tenants_sizes_durations_load_and_what_was_left_out() -> None:
    result = run("describe", HELIOS, "--gpus", "16")
    assert result.exit_code == 0
    for text in (
        "helios, format helios", "3, 2 of several pods", "load         1.802 on 16 GPUs", "vcB", "vcA", "16:",
        "left out, asks for no GPU: 1 (first: line 4)", "duration", "wait",
    ):  # fmt: skip
        assert text in result.stdout


def test_describe_answers_scripts_in_json() -> None:
    found = json.loads(run("describe", HELIOS, "--json").stdout)
    assert (found["jobs"], found["format"], found["load"]) == (3, "helios", None)
    assert [row["tenant"] for row in found["tenants"]] == ["vcB", "vcA"]


def test_convert_writes_our_format_to_standard_output_and_a_packed_file(tmp_path: Path) -> None:
    result = run("convert", HELIOS)
    packed = tmp_path / "a.jsonl.gz"
    assert run("convert", HELIOS, "-o", str(packed)).stderr == f"{packed}: 3 jobs\n"
    assert gzip.decompress(packed.read_bytes()) == result.stdout_bytes
    assert read_trace(packed) == read_trace(HELIOS)
    first = packed.read_bytes()
    run("convert", HELIOS, "-o", str(packed))
    assert packed.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl.gz"]


def test_convert_says_what_a_table_does_not_keep() -> None:
    result = run("convert", HELIOS, "--to", "philly-csv")
    assert "not kept by philly-csv: notes, names, shapes of gangs" in result.stderr
    assert result.stdout.splitlines()[0] == "timestamp,duration,num_gpus,gpu_time,cluster"


def test_convert_heeds_the_options_of_readers(tmp_path: Path) -> None:
    result = run("convert", str(SAMPLES / "philly.json"), "--tenant-column", "user", "--as-placed",
                 "--time-zone", "America/Los_Angeles", "-o", str(tmp_path / "a"))  # fmt: skip
    assert result.exit_code == 0
    trace = read_trace(tmp_path / "a")
    assert trace.start == 1508140800.0 + 7 * 3600
    assert trace.jobs[0].tenant == "user-a"
    rates = str(SAMPLES / "gavel-throughputs.json")
    run("convert", str(SAMPLES / "gavel.trace"), "--throughputs", rates, "-o", str(tmp_path / "b"))
    assert [job.duration_s for job in read_trace(tmp_path / "b").jobs] == [1200.0, 400.0]
    run("convert", str(SAMPLES / "venus.csv"), "--node-leaf-cells", "4", "-o", str(tmp_path / "c"))
    assert len(read_trace(tmp_path / "c").jobs[2].pods) == 2


def test_sample_takes_times_tenants_and_chance(tmp_path: Path) -> None:
    out = tmp_path / "a"
    assert run("sample", HELIOS, "--from", "2020-06-09 18:42:00", "--tenant", "vcA", "-o", str(out)).exit_code == 0
    assert [job.name for job in read_trace(out).jobs] == ["104"]
    assert run("sample", HELIOS, "--from", "1m", "--for", "2m", "-o", str(out)).exit_code == 0
    assert [job.name for job in read_trace(out).jobs] == ["104"]
    first, second = (run("sample", HELIOS, "--jobs", "2", "--seed", "3") for _ in range(2))
    assert first.stdout_bytes == second.stdout_bytes
    assert first.stdout.count("\n") == 3


def test_scale_reads_standard_input() -> None:
    sampled = run("sample", HELIOS, "--to", "10d")
    scaled = run("scale", "-", "--fold", "1m", stdin=sampled.stdout_bytes)
    assert '"scaled: arrivals of 179 s folded onto 60 s, durations kept"' in scaled.stdout
    faster = run("scale", "-", "--speed", "2", "--size", "2", stdin=sampled.stdout_bytes)
    assert "GPUs of each job times 2" in faster.stdout
    loaded = run("scale", "-", "--load", "4", "--gpus", "16", "--by", "speed", stdin=sampled.stdout_bytes)
    described = run("describe", "-", "--gpus", "16", "--json", stdin=loaded.stdout_bytes)
    assert json.loads(described.stdout)["load"] == 4.0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["describe", "none.csv"], 1, "none.csv: No such file"),
        (["describe", HELIOS, "--format", "philly-csv"], 1, "helios.csv:1: column timestamp is missing"),
        (["describe", HELIOS, "--time-zone", "Mars/Olympus"], 1, "time zone 'Mars/Olympus'"),
        (["describe", HELIOS, "--tenant-column", "colour"], 1, "column 'colour' is missing"),
        (["convert", HELIOS, "--to", "xml"], 2, "'xml' is not one of"),
        (["sample", HELIOS, "--for", "-1d"], 2, "is no length of time"),
        (["sample", HELIOS, "--from", "soon"], 1, "--from 'soon': expected a date"),
        (["sample", HELIOS, "--jobs", "9"], 1, "has 3 jobs, 9 are wanted"),
        (["sample", HELIOS, "--tenant", "vcC"], 1, "no job is of tenant 'vcC'"),
        (["sample", str(SAMPLES / "venus.csv"), "--from", "2020-01-01"], 1, "the trace tells no dates"),
        (["scale", HELIOS], 2, "say how: --fold"),
        (["scale", HELIOS, "--load", ".5"], 2, "--load and --gpus belong together"),
        (["scale", HELIOS, "--speed", "0"], 2, "0"),
        (["scale", HELIOS, "--load", ".001", "--gpus", "16"], 1, "a fold cannot lower it"),
        (["convert", HELIOS, "-o", "/none/a"], 1, "/none/a: No such file"),
    ],
)
def test_a_mistake_is_one_message(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_trace_is_not_written_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes((SAMPLES / "helios.csv").read_bytes())
    result = run("convert", str(path), "-o", str(path))
    assert (result.exit_code, "name another file" in result.stderr) == (1, True)
    assert path.read_bytes() == (SAMPLES / "helios.csv").read_bytes()


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    result = run("convert", HELIOS, "-o", os.devnull)
    assert result.exit_code == 0
    assert Path(os.devnull).is_char_device()


def test_a_write_that_breaks_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", breaks)
    assert run("convert", HELIOS, "-o", str(tmp_path / "a")).exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_reading_for_long_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hived_cli.helpers.progress.COUNT_S", 0.0)
    rows = "".join(f"{second},1,1\n" for second in range(20_000))
    (tmp_path / "a.csv").write_text("submitted_s,duration_s,gpus\n" + rows)
    result = run("describe", str(tmp_path / "a.csv"))
    assert result.stderr == f"{tmp_path}/a.csv: 8192 rows\n{tmp_path}/a.csv: 16384 rows\n"


def test_users_of_a_trace_of_ours_can_be_its_tenants(tmp_path: Path) -> None:
    run("convert", HELIOS, "-o", str(tmp_path / "a"))
    found = json.loads(run("describe", str(tmp_path / "a"), "--tenant-column", "user", "--json").stdout)
    assert [row["tenant"] for row in found["tenants"]] == ["ub", "ua"]
    assert "expected tenant or user" in run("describe", str(tmp_path / "a"), "--tenant-column", "vc").stderr


@pytest.mark.parametrize("name", ["", "describe", "convert", "sample", "scale"])
def test_help_has_examples(name: str) -> None:
    result = run(*([name] if name else []), "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
