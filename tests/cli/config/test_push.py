"""`hived config push`: what is asked, what is sent, and what happens when somebody else was there first."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cli.config.config_service import BROKEN, LESS, TEXT, Service, hit, openpai
from tests.programs import HIVED, run_without_input

pytestmark = pytest.mark.sample(13)


def push(service: Service, *words: str | Path) -> Result:
    return CliRunner().invoke(main, ["config", "push", "--server", service.address, *map(str, words)])


def last_line(result: Result) -> str:
    return str(result.stderr.splitlines()[-1])


def push_at_a_terminal(service: Service, answer: str, *words: str | Path) -> tuple[int, str]:
    """(exit code, output) of a push by somebody who answers its questions."""
    ours, theirs = pty.openpty()
    try:
        command = [*HIVED, "config", "push", "--server", service.address, *map(str, words)]
        with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            os.write(ours, answer.encode())
            output, _ = process.communicate(timeout=60)
            return process.returncode, output.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_push_shows_the_plan_and_says_which_version_is_in_force(service: Service, less: Path) -> None:
    result = push(service, "-f", less, "--yes", "--message", "fewer")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1] == "Changes against version 1"
    assert result.stdout.endswith("version 2 is in force\n")
    assert service.texts == [TEXT, LESS]
    (sent,) = service.pushes
    assert (sent["baseVersion"], sent["message"], sent["allowDowngrade"], sent["agreed"]) == (1, "fewer", False, {})


def test_paictls_form_sends_only_the_schedulers_part(service: Service, tmp_path: Path) -> None:
    (tmp_path / "services-configuration.yaml").write_text(openpai(LESS))
    assert push(service, "-p", tmp_path, "-m", "service", "-y").exit_code == 0
    assert service.texts[-1] == LESS
    assert not any(b"hunter2" in body for _, body in service.requests)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-p", ".", "-m", "all"],
            "Error: -m all: expected -m service, as hived has no other configuration; the history takes ",
        ),
        ([], "Error: expected either FILE (or -f FILE) or -p DIR"),
    ],
)
def test_what_is_pushed_has_to_be_said(service: Service, words: list[str], message: str) -> None:
    result = push(service, *words)
    assert (result.exit_code, result.stderr.startswith(message)) == (1, True), result.stderr


def test_a_file_and_a_folder_are_one_too_many(service: Service, less: Path) -> None:
    assert "expected either FILE (or -f FILE) or -p DIR" in push(service, "-f", less, "-p", less.parent).stderr


def test_every_mistake_is_listed_and_nothing_sent(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    result = push(service, "-f", path, "--yes")
    assert (result.exit_code, service.requests) == (1, [])
    assert f"{path}: 2 mistakes" in result.stderr.splitlines()


def test_without_a_terminal_nobody_is_asked(service: Service, less: Path) -> None:
    result = push(service, "-f", less)
    assert (result.exit_code, last_line(result), service.pushes) == (
        1,
        "Error: nothing was pushed: cannot ask, as standard input is no terminal; give --yes",
        [],
    )


def test_where_standard_input_is_closed_nobody_is_asked_either(service: Service, less: Path) -> None:
    result = run_without_input("config", "push", "--server", service.address, "-f", str(less))
    assert result.returncode == 1
    assert result.stderr == "Error: nothing was pushed: cannot ask, as standard input is no terminal; give --yes\n"
    assert service.pushes == []


def test_yes_at_a_terminal_pushes(service: Service, less: Path) -> None:
    code, output = push_at_a_terminal(service, "y\n", "-f", less)
    assert (code, "Push this? [y/N]" in output, output.endswith("version 2 is in force\n")) == (0, True, True), output


def test_no_at_a_terminal_leaves_everything_as_it_is(service: Service, less: Path) -> None:
    code, output = push_at_a_terminal(service, "\n", "-f", less)
    assert (code, output.splitlines()[-1], service.pushes) == (1, "Push this? [y/N]: Nothing was pushed.", [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as paictl pushes it, with fewer cells."""
    (tmp_path / "service-configuration.yaml").write_text(openpai(LESS))
    return tmp_path


def named(folder: Path, cluster: str) -> Path:
    """The folder, with a cluster's id in its file."""
    file = folder / "service-configuration.yaml"
    file.write_text(f"cluster:\n  common:\n    cluster-id: {cluster}\n{openpai(LESS)}")
    return folder


def pipe(service: Service, text: str, folder: Path, *words: str) -> Result:
    """`echo TEXT | hived config push -p DIR -m service`."""
    command = ["config", "push", "--server", service.address, "-p", str(folder), "-m", "service", *words]
    return CliRunner().invoke(main, command, input=f"{text}\n")


def test_the_clusters_id_from_a_pipe_is_a_yes(service: Service, folder: Path) -> None:
    result = pipe(service, "pai", folder)
    assert (result.exit_code, service.texts) == (0, [TEXT, LESS]), result.output
    assert result.stdout.endswith("version 2 is in force\n")
    service.cluster_id = "prod"
    (folder / "service-configuration.yaml").write_text(openpai(TEXT))
    assert pipe(service, "prod", folder).exit_code == 0
    assert service.texts[-1] == TEXT


@pytest.mark.parametrize(("cluster", "typed"), [("", "prod"), ("prod", "pai"), ("", "y"), ("prod", "PROD")])
def test_another_id_from_a_pipe_pushes_nothing(service: Service, folder: Path, cluster: str, typed: str) -> None:
    service.cluster_id = cluster
    result = pipe(service, typed, folder)
    assert (result.exit_code, service.pushes) == (1, [])
    told = f"the id of this cluster is {cluster or 'pai'}, not {typed}, as standard input has it: nothing was pushed"
    assert last_line(result) == f"Error: {told}"


def test_a_pipe_without_an_id_is_no_answer(service: Service, folder: Path) -> None:
    result = pipe(service, "", folder)
    assert (result.exit_code, service.pushes) == (1, [])
    assert "cannot ask, as standard input is no terminal" in last_line(result)


def test_the_id_alone_agrees_to_nothing_that_running_work_loses(service: Service, folder: Path) -> None:
    service.affected = [[hit("ns/late")]]
    result = pipe(service, "pai", folder)
    assert (result.exit_code, service.pushes) == (1, [])
    assert last_line(result).startswith("Error: running work would be affected: nothing was pushed")
    assert pipe(service, "pai", folder, "--yes").exit_code == 0


def test_the_id_does_not_agree_to_what_comes_meanwhile_either(service: Service, folder: Path) -> None:
    service.affected = [[], [hit("ns/late")]]
    result = pipe(service, "pai", folder)
    assert (result.exit_code, service.texts, len(service.pushes)) == (1, [TEXT], 1)


def test_only_paictls_form_reads_an_id(service: Service, less: Path) -> None:
    command = ["config", "push", "--server", service.address, str(less)]
    assert CliRunner().invoke(main, command, input="pai\n").exit_code == 1
    assert service.pushes == []


@pytest.mark.parametrize(("answer", "code"), [("pai\n", 0), ("y\n", 0), ("\n", 1), ("other\n", 1)])
def test_at_a_terminal_the_id_is_a_yes_too(service: Service, folder: Path, answer: str, code: int) -> None:
    found, output = push_at_a_terminal(service, answer, "-p", folder)
    assert (found, len(service.pushes), "Push this to cluster pai? [y/N or pai]" in output) == (code, 1 - code, True)


def test_the_first_push_gives_the_cluster_the_id_of_openpais_file(service: Service, folder: Path) -> None:
    result = pipe(service, "lab", named(folder, "lab"))
    assert (result.exit_code, service.pushes[-1]["clusterId"]) == (0, "lab"), result.output


def test_a_file_of_another_cluster_is_refused(service: Service, folder: Path) -> None:
    service.cluster_id = "prod"
    result = push(service, "-p", named(folder, "lab"), "--yes")
    told = (
        "the id of this cluster is prod, not lab, as cluster.common.cluster-id of the file has it: nothing was pushed"
    )
    assert (result.exit_code, last_line(result), service.pushes) == (1, f"Error: {told}", [])
    assert push(service, "-p", folder, "--yes", "--cluster-id", "prod").exit_code == 0


def test_it_is_asked_again_when_others_would_be_affected(service: Service, less: Path) -> None:
    service.affected = [[], [hit("ns/late")], [hit("ns/late")]]
    code, output = push_at_a_terminal(service, "y\ny\n", "-f", less)
    assert (code, output.count("Push this?"), output.count("ns/late (a,")) == (0, 2, 1), output
    assert [sent["agreed"] for sent in service.pushes] == [{}, {"ns/late": "lazilyPreempted"}]


def test_with_yes_it_is_tried_again(service: Service, less: Path) -> None:
    service.affected = [[], [hit("ns/1")], [hit("ns/2")], [hit("ns/2")]]
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, len(service.pushes)) == (0, 3), result.output


def test_work_that_never_settles_ends_after_five_tries(service: Service, less: Path) -> None:
    service.affected = [[hit(f"ns/{i}")] for i in range(20)]
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, len(service.pushes), service.texts) == (1, 5, [TEXT])
    assert last_line(result).startswith("Error: what runs changed 5 times while this was pushed, and nothing was")


def test_another_push_meanwhile_wins(service: Service, less: Path) -> None:
    service.meanwhile = lambda one: one.add(TEXT + "# theirs\n", "rival", "mine first")
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, last_line(result)) == (
        1,
        "Error: rival pushed version 2 at 2026-01-02T00:00:00Z (mine first), and this was made from version 1: nothing "
        "was pushed. `hived config diff --versions 1 2` shows what came; take it with `hived config pull`, merge, and "
        "push again",
    )
    assert len(service.pushes) == 1


def test_another_push_before_the_plan_wins_too(service: Service, less: Path) -> None:
    look = service.post

    def post(path: str, body: dict[str, object]) -> tuple[int, object]:
        service.add(TEXT + "# theirs\n", "rival")
        return look(path, body)

    service.post = post
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, result.stdout, service.pushes) == (1, "", [])
    assert "rival pushed version 2" in result.stderr


def test_a_file_that_was_made_from_an_older_version_is_not_pushed(service: Service, less: Path) -> None:
    service.add(TEXT + "# theirs\n", "rival")
    result = push(service, "-f", less, "--yes", "--base-version", "1")
    assert (result.exit_code, "rival pushed version 2" in result.stderr, service.requests) == (1, True, [])
    assert push(service, "-f", less, "--yes", "--base-version", "2").exit_code == 0


def test_a_base_version_that_is_yet_to_come_is_a_mistake(service: Service, less: Path) -> None:
    result = push(service, "-f", less, "--yes", "--base-version", "9")
    message = "Error: there is no version 9 yet, version 1 is in force: nothing was pushed"
    assert (result.exit_code, last_line(result), service.requests) == (1, message, [])


def test_the_same_text_is_pushed_where_it_names_the_cluster(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "same.yaml"
    path.write_text(TEXT)
    assert push(service, "-f", path, "--yes", "--cluster-id", "prod").exit_code == 0
    assert [sent["clusterId"] for sent in service.pushes] == ["prod"]
    service.cluster_id = "prod"
    assert "Nothing to do" in push(service, "-f", path, "--yes", "--cluster-id", "prod").output


def test_the_same_text_is_not_pushed(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(TEXT)
    assert push(service, "-f", path).output == "Nothing to do: identical to version 1\n"
    result = push(service, "-f", path, "--format", "json")
    assert (json.loads(result.stdout), service.requests) == ({"version": 1, "outcome": None}, [])


def test_comments_are_pushed_too(service: Service, tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"# why\n{TEXT}")
    result = push(service, "-f", path, "--yes")
    assert result.stdout.splitlines() == ["identical: nothing changes against version 1", "version 2 is in force"]


def test_json_is_the_services_answer_and_nothing_else(service: Service, less: Path) -> None:
    result = push(service, "-f", less, "--yes", "--format", "json")
    answer = json.loads(result.stdout)
    assert (answer["version"], answer["outcome"]["baseVersion"]) == (2, 1)
    assert "Changes against version 1" in result.stderr


def test_lost_guarantees_need_leave(service: Service, less: Path) -> None:
    service.affected, service.downgrades = [[hit("ns/train")]], True
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, last_line(result).endswith("push with --allow-downgrade"), service.pushes) == (
        1,
        True,
        [],
    )
    result = push(service, "-f", less, "--yes", "--allow-downgrade")
    assert (result.exit_code, service.pushes[0]["allowDowngrade"]) == (0, True), result.output


def test_what_becomes_a_lost_guarantee_meanwhile_is_refused(service: Service, less: Path) -> None:
    def lose(one: Service) -> None:
        one.downgrades = True

    service.meanwhile = lose
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, last_line(result)) == (1, "Error: nothing was pushed: refused")
    assert "Needs --allow-downgrade" in result.stdout


def test_a_refusal_of_the_service_is_passed_on(service: Service, less: Path) -> None:
    service.meanwhile = lambda one: (403, "bob may not push")
    assert last_line(push(service, "-f", less, "--yes")) == "Error: bob may not push"


def test_the_configuration_of_a_file_is_not_pushed_to(service: Service, less: Path) -> None:
    service.is_pushable = False
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, "the service accepts no pushes: its configuration is the ConfigMap" in result.stderr) == (
        1,
        True,
    )
    assert service.requests == []


@pytest.mark.parametrize(("given", "code"), [("prod", 0), ("", 0), ("test", 1)])
def test_the_cluster_has_to_be_the_one_that_is_meant(service: Service, less: Path, given: str, code: int) -> None:
    service.cluster_id = "prod"
    result = push(service, "-f", less, "--yes", *(["--cluster-id", given] if given else []))
    assert result.exit_code == code
    assert [sent["clusterId"] for sent in service.pushes] == ([given] if code == 0 else [])
    assert ("the id of this cluster is prod, not test" in result.stderr) == (code == 1)


def test_a_service_that_goes_away_may_have_done_it(service: Service, less: Path) -> None:
    service.meanwhile = lambda one: (0, "")
    result = push(service, "-f", less, "--yes")
    assert (result.exit_code, last_line(result)) == (1, "It may be in force all the same: see hived config history")


@pytest.fixture
def no_trace(tmp_path: Path) -> Path:
    """A file that no replay can begin with: a push that reads it fails with another message than the cheap ones."""
    path = tmp_path / "jobs.csv"
    path.write_text("no trace\n")
    return path


def test_leave_that_is_missing_is_told_before_any_replay(service: Service, less: Path, no_trace: Path) -> None:
    service.downgrades, service.affected = True, [[hit("ns/late")]]
    result = push(service, "-f", less, "--yes", "--certify", no_trace)
    assert (result.exit_code, "push with --allow-downgrade" in last_line(result)) == (1, True), result.output
    assert "ns/late" in result.stdout
    result = push(service, "-f", less, "--yes", "--certify", no_trace, "--allow-downgrade")
    assert "the format is not recognised" in last_line(result), result.output


def test_a_question_that_nobody_can_answer_is_told_before_any_replay(
    service: Service, less: Path, no_trace: Path
) -> None:
    assert "cannot ask, as standard input is no terminal" in last_line(push(service, "-f", less, "--certify", no_trace))


@pytest.mark.parametrize(
    ("demand", "words"),
    [
        ("{trace: others.csv}", "the certificate is of the trace jobs.csv, and this cluster takes no push without"),
        ("{days: 7}", "push with --certify 7d"),
        (f"{{trace: jobs.csv, sha256: {'a' * 64}}}", "a trace with another SHA-256"),
    ],
)
def test_a_trace_that_is_not_demanded_is_told_before_the_plan(
    service: Service, less: Path, no_trace: Path, demand: str, words: str
) -> None:
    service.texts = [f"certify: {demand}\n{TEXT}"]
    result = push(service, "-f", less, "--yes", "--certify", no_trace)
    assert (result.exit_code, words in last_line(result), service.requests) == (1, True, []), result.output
