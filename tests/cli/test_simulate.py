"""`hived simulate`: files of results, mistakes, interruptions, and the page made anew."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hived_cli import main
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.own import to_lines
from tests.simulator.builders import random_jobs
from tests.simulator.test_checkpoints import CONFIG, told

TRACE = "job,tenant,submitted_s,duration_s,gpus\none,a,0,100,8\ntwo,a,50,100,4\nthree,b,60,10,4\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "now.yaml").write_text(CONFIG)
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "hivedscheduler.yaml").write_text(CONFIG)
    (tmp_path / "case" / "trace.csv").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def simulate(*more: str, out: str = "results"):
    return CliRunner().invoke(main, ["simulate", "--config", "now.yaml", "--trace", "jobs.csv", "--out", out, *more])


def test_it_writes_files_and_a_table(folder: Path) -> None:
    result = simulate("--against", "private", "--against", "quota-spread")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == ["POLICY", "private", "hived", "quota-spread"]
    assert set(told(folder / "results")) == {
        "report.html", "run.json", "vcs.csv", "vcs.json", "differences.csv",
        *(f"{policy}/{name}.csv" for policy in ("private", "hived", "quota-spread") for name in ("jobs", "series")),
    }  # fmt: skip


def test_the_configuration_may_be_given_by_f(folder: Path) -> None:
    arguments = ["simulate", "-f", "now.yaml", "--trace", "jobs.csv", "--out", "short"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert json.loads((folder / "short" / "run.json").read_text())["trace"]["jobs"] == 3


def test_totals_can_be_json(folder: Path) -> None:
    totals = json.loads(simulate("--against", "private", "--json").stdout)
    assert (totals["hived"]["jobs"], totals["hived"]["later"]["count"]) == (3, 0)


def test_the_trace_may_come_from_standard_input(folder: Path) -> None:
    arguments = ["simulate", "--config", "now.yaml", "--trace", "-", "--out", "piped"]
    assert CliRunner().invoke(main, arguments, input=TRACE).exit_code == 0
    assert json.loads((folder / "piped" / "run.json").read_text())["trace"]["jobs"] == 3


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--against", "privat"), 1, "--against 'privat'"),
        (("--what", "drain=n1"), 1, "expected drain|cordon"),
        (("--what", "drain=n9@1m"), 1, "'n9': expected a node"),
        (("--grace", "soon"), 2, "'soon' is no length of time"),
        (("--tenants", "x=a"), 1, "the trace has no tenant 'x'"),
        (("--resume",), 1, "no checkpoint to go on from"),
        (("--over-quota", "never"), 2, "'never' is not one of"),
    ],
)
def test_what_is_wrong_is_told(folder: Path, more: tuple[str, ...], code: int, message: str) -> None:
    result = simulate(*more)
    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert not (folder / "results").exists()


@pytest.mark.long
def test_it_can_be_interrupted_and_goes_on(folder: Path) -> None:
    jobs = tuple(random_jobs(1, ("a", "b", "c"), 120))
    (folder / "jobs.csv").write_bytes(b"".join(to_lines(Trace("random", jobs))))
    command = [
        sys.executable,
        "-c",
        "from hived_cli import main; main()",
        "simulate",
        "--config",
        "now.yaml",
        "--trace",
        "jobs.csv",
    ]
    command += ["--against", "private", "--over-quota", "opportunistic", "--out"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    expected = simulate("--against", "private", "--over-quota", "opportunistic", out="whole")
    assert expected.exit_code == 0
    process = subprocess.Popen([*command, "parts"], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while not (folder / "parts" / "private").exists() and process.poll() is None:
        pass
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    if process.returncode == 0:
        pytest.skip("the simulation was over before the signal came")
    assert process.returncode == 130
    assert b"the same command goes on" in error
    done = subprocess.run([*command, "parts", "--resume"], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode()) == (0, expected.stdout)
    assert told(folder / "parts") == told(folder / "whole")


def hived(*words: str):
    return CliRunner().invoke(main, ["simulate", *words])


def test_a_folder_is_run_under_all_policies(folder: Path) -> None:
    result = hived("case")
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [
        "private", "hived", "quota-bestfit", "quota-spread", "easy", "over-quota", "over-quota-30m"
    ]  # fmt: skip
    assert "look at case-results/report.html" in result.stderr
    assert "No guaranteed job starts later" in (folder / "case-results" / "report.html").read_text()


def test_options_come_before_what_a_folder_has(folder: Path) -> None:
    (folder / "other.csv").write_text(TRACE.replace("three,b,60,10,4\n", ""))
    result = hived("case", "--trace", "other.csv", "--against", "private", "--out", "here")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["private", "hived"]
    assert "2 jobs of" in (folder / "here" / "report.html").read_text()


def test_the_page_is_made_anew(folder: Path) -> None:
    hived("case")
    written = (folder / "case-results" / "report.html").read_bytes()
    (folder / "case-results" / "report.html").unlink()
    assert hived("report", "case-results").exit_code == 0
    assert (folder / "case-results" / "report.html").read_bytes() == written
    assert hived("report", "case-results", "-o", "page.html").output.startswith("page.html: ")
    assert (folder / "page.html").read_bytes() == written


def test_plots_are_written_as_files(folder: Path) -> None:
    hived("case")
    result = hived("report", "case-results", "--svg", "plots")
    assert (result.exit_code, "plots/delays.svg" in result.output.split()) == (0, True)
    assert hived("report", "case-results", "--svg", "plots", "-o", "page.html").exit_code == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "missing --config, --trace, --out; or name a FOLDER"),
        (("--config", "case/hivedscheduler.yaml"), 2, "missing --trace, --out"),
        (("nowhere",), 1, "nowhere: no such folder, and no example of that name"),
        (("case", "--against", "over-quota:soon"), 1, "--against over-quota:soon: 'soon' is no length of time"),
        (("report",), 2, "Missing argument 'DIR...'"),
        (("report", "nowhere"), 2, "'nowhere' does not exist"),
        (("report", "case"), 1, "case: has no run.json; expected the folder of a finished `hived simulate`"),
    ],
)
def test_what_is_wrong_with_a_folder_is_told(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    result = hived(*words)
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_help_is_that_of_the_command_and_of_its_subcommand(folder: Path) -> None:
    assert "Usage: main simulate [OPTIONS] [FOLDER]" in hived("--help").output
    assert "Usage: main simulate report [OPTIONS] DIR..." in hived("report", "--help").output
