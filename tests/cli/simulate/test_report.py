"""`hived simulate FOLDER` and `hived simulate report` as a user has them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from hived_cli import main
from tests.simulator.test_checkpoints import CONFIG

TRACE = "job,tenant,submitted_s,duration_s,gpus\none,a,0,100,8\ntwo,a,50,100,4\nthree,b,60,10,4\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "hivedscheduler.yaml").write_text(CONFIG)
    (tmp_path / "case" / "trace.csv").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
def test_what_is_wrong_is_told(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    result = hived(*words)
    assert (result.exit_code, message in result.output) == (code, True), result.output


def test_help_is_that_of_the_command_and_of_its_subcommand(folder: Path) -> None:
    assert "Usage: main simulate [OPTIONS] [FOLDER]" in hived("--help").output
    assert "Usage: main simulate report [OPTIONS] DIR..." in hived("report", "--help").output
