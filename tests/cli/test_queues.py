"""`hived get queue`, `hived hold`, `release`, `move` and `why` against an embedded cluster with queues."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_cli.serve import introduce
from hived_extender.jobs.job import JobName
from hived_extender.queues.table import STATE
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import PODS, Jobs, jobs_on


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """One job that runs in queue b, two that wait, and one with a mistake."""
    with jobs_on(tmp_path_factory.mktemp("queues")) as found:
        found.kube.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        found.create("first", "b")
        found.expect(lambda: found.runs("first"))
        for name in ("second", "third"):
            found.create(name, "b")
        found.create("wrong", "nowhere")
        found.expect(lambda: found.queued("b") == ["second", "third"])
        yield found


def hived(jobs: Jobs, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--server", jobs.running.extender.url])


def delete(jobs: Jobs, *arguments: str) -> Result:
    """`hived delete`, by the API server of the cluster."""
    return hived(jobs, "delete", *arguments, "--kubeconfig", str(jobs.running.cluster.hived_kubeconfig))


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.output.splitlines()[1:]]


def places(jobs: Jobs) -> list[str]:
    """The names of the jobs that wait in queue b."""
    return [row[1] for row in rows(hived(jobs, "get", "queue", "b")) if row[0] != "-"]


def test_queues_are_listed_with_their_jobs(jobs: Jobs) -> None:
    (row,) = [row for row in rows(hived(jobs, "get", "queue")) if row[0] == "b"]
    assert row == ["b", "b", "hived", "2", "1", "0", "8", "gpu", "8", "gpu", "-", "-"]


def test_a_queue_without_jobs_is_listed_and_has_none(jobs: Jobs) -> None:
    (row,) = [row for row in rows(hived(jobs, "get", "queue")) if row[0] == "a"]
    assert row == ["a", "a", "hived", "0", "0", "0", "-", "8", "gpu", "-", "-"]
    assert hived(jobs, "get", "queue", "a").output == "No job is in a queue.\n"


def test_the_jobs_of_a_queue_are_in_their_order_with_reasons(jobs: Jobs) -> None:
    found = rows(hived(jobs, "get", "queue", "b", "-o", "wide"))
    assert [row[:2] for row in found] == [
        ["1", "Job/default/second"],
        ["2", "Job/default/third"],
        ["-", "Job/default/first"],
    ]
    assert " ".join(found[0]).endswith("is first, and the cells of its virtual cluster are in use")
    assert " ".join(found[1]).endswith("1 job before it in its queue")


def test_jobs_of_all_queues_have_those_with_mistakes_among_them(jobs: Jobs) -> None:
    items = json.loads(hived(jobs, "get", "queue", "--jobs", "-o", "json").output)["items"]
    (wrong,) = [item for item in items if item["name"] == "Job/default/wrong"]
    assert (wrong["state"], wrong["position"], wrong["user"]) == ("Refused", 0, "default")
    assert "set it to a virtual cluster: a, b" in wrong["reason"]


def test_a_job_with_a_mistake_has_no_numbers_that_are_not_known(jobs: Jobs) -> None:
    (wrong,) = [row for row in rows(hived(jobs, "get", "queue", "--jobs", "-o", "wide")) if "wrong" in row[1]]
    assert wrong[:7] == ["-", "Job/default/wrong", "-", "-", "-", "default", "Refused"]


def test_jobs_of_an_embedded_cluster_with_queues_are_made_so_that_they_wait(
    jobs: Jobs, capsys: pytest.CaptureFixture[str]
) -> None:
    introduce(jobs.running)
    said = capsys.readouterr().out
    assert "\n  kubectl apply -f job.yaml\n  hived get queue --jobs\n" in said
    assert "hived submit" not in said


def test_a_job_is_moved_to_the_front_and_back_and_before_another_one(jobs: Jobs) -> None:
    assert hived(jobs, "move", "third", "--front").output == "Job/default/third: Waiting, place 1 in queue b\n"
    assert places(jobs) == ["Job/default/third", "Job/default/second"]
    hived(jobs, "move", "default/third", "--back")
    assert places(jobs) == ["Job/default/second", "Job/default/third"]
    hived(jobs, "move", "Job/default/third", "--before", "second")
    assert places(jobs) == ["Job/default/third", "Job/default/second"]
    hived(jobs, "move", "second", "--front")


def test_a_job_that_is_held_says_so_until_it_is_released(jobs: Jobs) -> None:
    assert hived(jobs, "hold", "second").output.startswith("Job/default/second: Held")
    assert "hived release" in hived(jobs, "why", "second").output
    assert json.loads(hived(jobs, "release", "second", "-o", "json").output)["state"] == "Waiting"


def test_one_state_has_one_word_in_all_lists(jobs: Jobs) -> None:
    hived(jobs, "hold", "second")
    expected = {"first": "Running", "second": "Held", "third": "Waiting", "wrong": "Refused"}
    for arguments in (["queue", "--jobs"], ["jobs"]):
        found = json.loads(hived(jobs, "get", *arguments, "-o", "json").output)["items"]
        assert {one["name"].rpartition("/")[2]: one["state"] for one in found} == expected
    for name in ("second", "third", "wrong"):
        assert json.loads(hived(jobs, "why", name, "-o", "json").output)["job"]["state"] == expected[name]
    assert [row[0] for row in rows(hived(jobs, "get", "jobs", "--state", "held"))] == ["Job/default/second"]
    assert hived(jobs, "why", "wrong").output.startswith("Job/default/wrong   Refused   priority unknown")
    hived(jobs, "release", "second")


def test_a_job_larger_than_the_cluster_never_runs_and_has_the_priority_that_it_asks_for(jobs: Jobs) -> None:
    jobs.create("huge", "b", pods=100, priority="7")
    jobs.expect(lambda: "huge" in hived(jobs, "get", "queue", "--jobs").output)
    told = hived(jobs, "why", "huge").output
    assert told.startswith("Job/default/huge   Refused   100 pods of 8 GPU at once   b, priority 7   ")
    assert "\n  cause: never" in told
    assert "\n  no change could be tried: it is larger than the cluster\n" in told
    assert told.endswith("\nWhen\n  never\n")
    items = json.loads(hived(jobs, "get", "jobs", "-o", "json").output)["items"]
    (row,) = [one for one in items if one["name"] == "Job/default/huge"]
    assert (row["cause"], row["when"]["kind"], row["vc"], row["priority"]) == ("never", "never", "b", 7)
    jobs.kube.delete("/apis/batch/v1/namespaces/default/jobs/huge")
    jobs.expect(lambda: "huge" not in hived(jobs, "get", "queue", "--jobs").output)


def test_holding_a_job_that_runs_says_that_it_runs_on(jobs: Jobs) -> None:
    said = "runs on cells of its own virtual cluster"
    held = hived(jobs, "hold", "first").output
    assert held == f"Job/default/first: Running: {said}; is held once it waits again\n"
    assert hived(jobs, "release", "first").output == f"Job/default/first: Running: {said}\n"


def test_a_place_is_kept_on_the_job(jobs: Jobs) -> None:
    desk = jobs.running.extender.queues
    name = JobName("batch", "Job", "default", "third")

    def seen() -> str:
        """The state on the job, as the watch has told of it."""
        return desk.jobs._jobs[name].job.annotations.get(STATE, "")

    was = seen()
    hived(jobs, "move", "third", "--front")
    expect_soon(lambda: seen() != was)
    with desk.lock:
        before, desk._term = desk.turns, None  # as after a take-over
    expect_soon(lambda: desk.turns is not before)
    assert places(jobs) == ["Job/default/third", "Job/default/second"]
    hived(jobs, "move", "second", "--front")


def test_why_tells_the_place_of_a_job_without_pods_and_who_has_its_cells(jobs: Jobs) -> None:
    said = hived(jobs, "why", "second").output
    assert said.startswith("Job/default/second   Waiting   1 node of 8 GPU   b, priority 10")
    assert "place 1 in queue b: is first, and the cells of its virtual cluster are in use" in said
    assert "b has 1 of 1 in use by first" in said
    assert "cause: in-use (1 NODE: 1 in use)" in said
    assert "unknown; not every job that it waits for says when it ends" in said


def test_why_of_a_later_job_names_the_order_and_promises_no_change(jobs: Jobs) -> None:
    found = json.loads(hived(jobs, "why", "third", "-o", "json").output)
    assert (found["job"]["queue"], found["job"]["place"]) == ("b", 2)
    assert (found["certificate"]["cause"], found["certificate"]["also"]) == ("order", ["in-use"])
    assert [one["group"] for one in found["certificate"]["holders"]] == ["Job/default/first"]
    assert "unblock" not in found["certificate"]
    assert found["when"] == {"kind": "unknown", "because": "1 job of its queue comes first"}


def test_changes_that_would_help_a_job_without_pods_are_tried(jobs: Jobs) -> None:
    unblock = json.loads(hived(jobs, "why", "second", "-o", "json").output)["certificate"]["unblock"]
    assert "ends=Job/default/first" in [one["change"] for one in unblock]
    result = hived(jobs, "why", "second", "--if", "ends=Job/default/first")
    assert (result.exit_code, "would start at once" in result.output) == (0, True)
    result = hived(jobs, "why", "second", "--if", "priority=9")
    assert (result.exit_code, "would wait all the same" in result.output) == (3, True)


def test_why_carries_a_change_out_by_the_job_object(jobs: Jobs) -> None:
    said = hived(jobs, "why", "second").output
    assert "delete the job with kubectl, change it, and apply it again; to end another job, hived delete it" in said
    assert "hived submit" not in said


def test_jobs_without_pods_are_among_all_jobs_with_their_places(jobs: Jobs) -> None:
    found = rows(hived(jobs, "get", "jobs", "--waiting"))
    assert [row[0] for row in found] == ["Job/default/second", "Job/default/third", "Job/default/wrong"]
    assert "place 2 in queue b: 1 job before it" in " ".join(found[1])
    assert hived(jobs, "get", "jobs", "--waiting", "--vc", "a").output == "No such job waits or runs.\n"
    assert "place 1 in queue b" in hived(jobs, "top").output


@pytest.mark.parametrize("name", ["first", "default/first", "Job/default/first", "podgroup/default/first", "its pod"])
def test_a_job_that_runs_is_known_by_the_name_of_its_object(jobs: Jobs, name: str) -> None:
    assert [row[0] for row in rows(hived(jobs, "get", "jobs", "--state", "running"))] == ["Job/default/first"]
    (pod,) = [one["metadata"]["name"] for one in jobs.kube.get(PODS)["items"] if "first-" in one["metadata"]["name"]]
    lines = hived(jobs, "why", pod if name == "its pod" else name).output.splitlines()
    assert lines[0].startswith("Job/default/first   Running   1 pod of 8 GPU")
    assert lines[1] == "  in queue b: runs on cells of its own virtual cluster"
    if name != "its pod":
        assert "would start at once" in hived(jobs, "why", "second", "--if", f"ends={name}").output


@pytest.mark.parametrize("name", ["first", "default/second", "Job/default/third"])
def test_the_object_of_a_job_would_be_deleted_whether_it_runs_or_waits(jobs: Jobs, name: str) -> None:
    answer = json.loads(delete(jobs, name, "--dry-run", "-o", "json").output)
    short = name.rpartition("/")[2]
    assert answer == {"pods": [], "jobs": [f"Job/default/{short}"], "deleted": False}


def test_deleting_a_job_deletes_its_object_with_its_pods(jobs: Jobs) -> None:
    jobs.create("short", "a")
    jobs.expect(lambda: jobs.runs("short"))
    result = delete(jobs, "short", "--yes")
    assert result.output == "Job/default/short, which goes with its pods\nJob/default/short deleted\n"
    jobs.expect(lambda: jobs.state("short") == "" and jobs.nodes("short") == [])


@pytest.mark.parametrize("waits", [False, True], ids=["while it runs", "while it waits"])
@pytest.mark.parametrize("name", ["far", "job/far"])
def test_a_job_of_another_namespace_is_deleted_by_its_short_name(jobs: Jobs, name: str, waits: bool) -> None:
    jobs.create("far", "b" if waits else "a", namespace="elsewhere")
    jobs.expect(lambda: jobs.state("far") == ("Waiting" if waits else "Running"))
    result = delete(jobs, name, "--yes")
    assert result.output == "Job/elsewhere/far, which goes with its pods\nJob/elsewhere/far deleted\n"
    jobs.expect(lambda: jobs.state("far") == "")


@pytest.mark.parametrize("command", ["delete", "why", "hold"])
def test_a_short_name_of_two_jobs_is_that_of_none(jobs: Jobs, command: str) -> None:
    for namespace in ("default", "elsewhere"):
        jobs.create("twin", "b", namespace=namespace)
        jobs.expect(lambda namespace=namespace: jobs.state(f"{namespace}/twin") == "Waiting")
    result = delete(jobs, "twin", "--yes") if command == "delete" else hived(jobs, command, "twin")
    assert (result.exit_code, "twin is 2 jobs: Job/default/twin, Job/elsewhere/twin" in result.output) == (1, True)
    for namespace in ("default", "elsewhere"):
        delete(jobs, "twin", "-n", namespace, "--yes")
        jobs.expect(lambda namespace=namespace: jobs.state(f"{namespace}/twin") == "")


def test_a_short_name_may_say_that_it_is_that_of_a_job(jobs: Jobs) -> None:
    for command in ("hold", "release", "why"):
        assert "Job/default/second" in hived(jobs, command, "job/second").output


def test_a_part_of_a_queue_says_how_much_is_left(jobs: Jobs) -> None:
    lines = hived(jobs, "get", "queue", "b", "--limit", "1").output.splitlines()
    assert (len(lines), lines[-1]) == (3, "2 more: --limit 0 shows all")
    assert len(hived(jobs, "get", "queue", "b", "--limit", "0").output.splitlines()) == 4
    assert len(json.loads(hived(jobs, "get", "queue", "b", "-o", "json", "--limit", "2").output)["items"]) == 2


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        ("get queue", "", ["a", "b"]),
        ("get queue", "x", []),
        ("hold", "default/", ["default/first", "default/second", "default/third"]),
        ("move", "Job/default/t", ["Job/default/third"]),
        ("move", "default/", ["default/second", "default/third"]),
        ("move second --before", "default/", ["default/third"]),
        ("move Job/default/third --before", "s", ["second"]),
        ("release", "default/", []),
        ("why", "Job/default/s", ["Job/default/second"]),
    ],
)
def test_queues_and_their_jobs_are_completed(jobs: Jobs, words: str, incomplete: str, found: list[str]) -> None:
    assert completed(jobs, words, incomplete) == found


def test_jobs_that_are_held_are_completed_for_release(jobs: Jobs) -> None:
    hived(jobs, "hold", "second")
    hived(jobs, "hold", "first")
    found = completed(jobs, "release", "default/"), completed(jobs, "hold", "default/")
    for name in ("first", "second"):
        assert hived(jobs, "release", name).exit_code == 0
    assert found == (["default/first", "default/second"], ["default/third"])


def completed(jobs: Jobs, words: str, incomplete: str) -> list[str]:
    """The names that a shell offers."""
    result = CliRunner().invoke(
        main,
        [],
        env={
            "_HIVED_COMPLETE": "bash_complete",
            "COMP_WORDS": f"hived {words} {incomplete}",
            "COMP_CWORD": str(len(words.split()) + 1),
            "HIVED_SERVER": jobs.running.extender.url,
        },
        prog_name="hived",
    )
    return sorted(line.partition(",")[2] for line in result.output.splitlines() if line)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("get", "queue", "x"), "there is no queue 'x'; there are a, b", 1),
        (("move", "nobody", "--front"), "no job 'nobody' is in a queue", 1),
        (("hold", "thrid"), "no job 'thrid' is in a queue; nearest: third", 1),
        (("move", "first", "--front"), "does not wait, so it has no place", 1),
        (("move", "second"), "give one of --front, --back and --before JOB", 2),
        (("move", "second", "--front", "--back"), "give one of", 2),
        (("hold", "wrong"), "is in no queue", 1),
        (("why", "second", "--if", "move=front"), "move= has a job start anew on other cells", 1),
        (
            ("why", "second", "--if", "ends=nobody"),
            "no job 'nobody' has cells; cells are held by Job/default/first\n",
            1,
        ),
        (
            ("move", "second", "--before", "first"),
            "Job/default/second cannot be moved before Job/default/first: expected",
            1,
        ),
    ],
)
def test_a_mistake_is_said(jobs: Jobs, arguments: tuple[str, ...], said: str, code: int) -> None:
    result = hived(jobs, *arguments)
    assert (result.exit_code, said in result.output) == (code, True), result.output
