"""`hived config pull`, `get-id`, `diff`, `history` and `rollback`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cli.config.config_service import LESS, TEXT, Service, openpai, serving

COMMENTED = f"# more\n{TEXT}"


@pytest.fixture
def service(service: Service) -> Service:
    """A service with three versions."""
    service.add(LESS, "ann", "fewer for a")
    service.add(COMMENTED, "bob")
    return service


def config(service: Service, *words: str | Path) -> Result:
    return CliRunner().invoke(main, ["config", str(words[0]), "--server", service.address, *map(str, words[1:])])


def test_pull_prints_what_was_pushed(service: Service) -> None:
    assert config(service, "pull").output == COMMENTED


def test_pull_writes_a_file_or_into_a_folder(service: Service, tmp_path: Path) -> None:
    service.add("# ü\r\n" + TEXT)
    for target in (tmp_path / "f.yaml", tmp_path):
        written = tmp_path / "hivedscheduler.yaml" if target is tmp_path else target
        assert config(service, "pull", "-o", target).output == f"{written}: version 4\n"
        assert written.read_bytes().decode() == "# ü\r\n" + TEXT


def test_what_is_pulled_into_a_folder_can_be_pushed_from_there(service: Service, tmp_path: Path) -> None:
    config(service, "pull", "-o", tmp_path)
    result = config(service, "push", "-p", tmp_path, "-m", "service")
    assert result.output == "Nothing to do: identical to version 3\n"


def test_pull_leaves_a_file_that_differs_alone(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("# mine\n")
    result = config(service, "pull", "-o", file)
    assert (result.exit_code, file.read_text()) == (1, "# mine\n")
    assert result.stderr == (
        f"Error: {file} is there already and differs from version 3: see hived config diff, or give --force to "
        "replace it\n"
    )


def test_pull_replaces_a_file_by_force(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("# mine\n")
    assert config(service, "pull", "-o", file, "--force").exit_code == 0
    assert file.read_text() == COMMENTED


def test_pull_may_be_repeated(service: Service, tmp_path: Path) -> None:
    results = [config(service, "pull", "-o", tmp_path / "f.yaml").exit_code for _ in range(2)]
    assert results == [0, 0]


def test_a_place_that_cannot_be_written_is_told(service: Service, tmp_path: Path) -> None:
    result = config(service, "pull", "-o", tmp_path / "none" / "f.yaml")
    assert (result.exit_code, f"cannot write {tmp_path}/none/f.yaml: No such file" in result.stderr) == (1, True)


def test_the_id_is_printed_which_is_pai_until_a_push_names_another(service: Service) -> None:
    assert config(service, "get-id").output == "pai\n"
    service.cluster_id = "prod"
    assert config(service, "get-id").output == "prod\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--versions", "0", "2"], "0 is not in the range x>=1"),
        (["--versions", "1", "two"], "'two' is not a valid integer"),
        (["--versions", "1", "2", "a.yaml"], "expected either a file or --versions, found both"),
        (["absent.yaml"], "absent.yaml: found no readable file"),
    ],
)
def test_what_diff_is_given_is_checked_before_a_service_is_asked(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["config", "diff", *arguments, "--server", "http://127.0.0.1:1"])
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr


def test_diff_is_that_of_diff(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(TEXT)
    result = config(service, "diff", path)
    assert (result.exit_code, result.output.splitlines()) == (
        1,
        ["--- version 3", f"+++ {path}", "@@ -1,4 +1,3 @@", "-# more", *(f" {line}" for line in TEXT.splitlines()[:3])],
    )


def test_equal_texts_have_exit_code_0(service: Service, tmp_path: Path) -> None:
    (tmp_path / "services-configuration.yaml").write_text(openpai(COMMENTED))
    result = config(service, "diff", tmp_path)
    assert (result.exit_code, result.output) == (0, "")


def test_a_file_with_mistakes_can_be_compared(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(COMMENTED + "odd: 1\n")
    result = config(service, "diff", path)
    assert (result.exit_code, result.output.splitlines()[-1]) == (1, "+odd: 1")


def test_a_difference_in_line_ends_is_one(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(COMMENTED.rstrip("\n"))
    result = config(service, "diff", path)
    assert (result.exit_code, result.output) == (1, "the last line's end differs, or how lines end\n")


def test_what_is_no_configuration_is_not_shown(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "services-configuration.yaml"
    path.write_text("rest-server:\n  default-pai-admin-password: hunter2\n")
    result = config(service, "diff", tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"Error: {path}: found no configuration of the scheduler, expected physicalCluster")


def test_two_versions_are_compared(service: Service) -> None:
    result = config(service, "diff", "--versions", "1", "2")
    assert (result.exit_code, result.output.splitlines()[:2]) == (1, ["--- version 1", "+++ version 2"])
    assert "-    - {cellType: NODE, cellNumber: 2}" in result.output
    assert config(service, "diff", "--versions", "2", "2").exit_code == 0


def test_trouble_of_diff_has_exit_code_2(service: Service, tmp_path: Path) -> None:
    result = config(service, "diff", "--versions", "1", "9")
    assert (result.exit_code, result.stderr) == (2, "Error: version 9 is not kept; kept are 3, 2, 1\n")
    assert config(service, "diff", tmp_path / "none.yaml").exit_code == 2
    assert config(service, "diff", tmp_path, "--versions", "1", "2").exit_code == 2


def test_diff_takes_the_usual_file(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert config(service, "diff").stderr.startswith("Error: no hivedscheduler.yaml here: name the file")
    Path("hivedscheduler.yaml").write_text(COMMENTED)
    assert config(service, "diff").exit_code == 0


def test_the_history_is_a_table(service: Service) -> None:
    assert config(service, "history").output.splitlines() == [
        "VERSION       WHEN                   WHO   WHY",
        "      3   *   2026-01-03T00:00:00Z   bob",
        "      2       2026-01-02T00:00:00Z   ann   fewer for a",
        "      1       2026-01-01T00:00:00Z   -",
        "",
        "* in force, from ConfigMap hived-system/hived-config",
    ]


def test_what_others_wrote_stays_on_its_line(service: Service) -> None:
    service.add(TEXT, "bob\n", "two\nlines\x1b[31m")
    assert config(service, "history").output.splitlines()[1].endswith("   bob\\n   two\\nlines\\x1b[31m")


def test_the_history_tells_of_a_change_that_was_refused(service: Service) -> None:
    service.refused = {"reason": "f:3: found 0", "when": "2026-01-04T00:00:00Z"}
    assert config(service, "history").output.splitlines()[-1] == (
        "A change of 2026-01-04T00:00:00Z is not in force: f:3: found 0"
    )


def test_the_history_for_scripts_is_as_served(service: Service) -> None:
    items = json.loads(config(service, "history", "--format", "json").output)["items"]
    assert [(item["version"], item["who"], item["why"]) for item in items] == [
        (3, "bob", ""), (2, "ann", "fewer for a"), (1, "", ""),
    ]  # fmt: skip


def test_a_rollback_pushes_the_version_before(service: Service) -> None:
    result = config(service, "rollback", "--yes")
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "version 4 is in force")
    assert (service.texts[-1], service.pushes[0]["message"]) == (LESS, "rollback to version 2")


def test_a_rollback_may_name_a_version_and_a_reason(service: Service) -> None:
    result = config(service, "rollback", "1", "--yes", "--message", "it broke")
    assert (result.exit_code, service.texts[-1], service.pushes[0]["message"]) == (0, TEXT, "it broke")


def test_a_rollback_is_asked_about(service: Service) -> None:
    result = config(service, "rollback")
    assert (result.exit_code, "give --yes" in result.stderr, service.pushes) == (1, True, [])


@pytest.mark.parametrize(("words", "message"), [(["9"], "version 9 is not kept; kept are 3, 2, 1")])
def test_a_rollback_needs_a_version_that_is_kept(service: Service, words: list[str], message: str) -> None:
    result = config(service, "rollback", *words)
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")


def test_there_may_be_nothing_to_go_back_to() -> None:
    with serving(Service()) as fresh:
        result = config(fresh, "rollback", "--yes")
    assert (result.exit_code, result.stderr) == (
        1, "Error: no version before 1 is kept: there is nothing to go back to\n",
    )  # fmt: skip
