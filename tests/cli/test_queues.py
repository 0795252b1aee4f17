"""`hived get queue`, `hived hold`, `release`, `move` and `why` against an embedded cluster with queues."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.job_kinds.job import JobName
from hived_extender.queues.kept import STATE
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import Jobs, jobs_on


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """One job that runs in queue b, two that wait, and one with a mistake."""
    with jobs_on(tmp_path_factory.mktemp("queues")) as found:
        found.create("first", "b")
        found.expect(lambda: found.runs("first"))
        for name in ("second", "third"):
            found.create(name, "b")
        found.create("wrong", "nowhere")
        found.expect(lambda: found.queued("b") == ["second", "third"])
        yield found


def hived(jobs: Jobs, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--server", jobs.running.extender.url])


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.output.splitlines()[1:]]


def places(jobs: Jobs) -> list[str]:
    """The names of the jobs that wait in queue b."""
    return [row[1] for row in rows(hived(jobs, "get", "queue", "b")) if row[0] != "-"]


def test_queues_are_listed_with_their_jobs(jobs: Jobs) -> None:
    (row,) = [row for row in rows(hived(jobs, "get", "queue")) if row[0] == "b"]
    assert row[:6] == ["b", "b", "hived", "2", "1", "0"]


def test_the_jobs_of_a_queue_are_in_their_order_with_reasons(jobs: Jobs) -> None:
    found = rows(hived(jobs, "get", "queue", "b", "-o", "wide"))
    assert [row[:2] for row in found] == [
        ["1", "Job/default/second"],
        ["2", "Job/default/third"],
        ["-", "Job/default/first"],
    ]
    assert " ".join(found[0]).endswith("is first, and the cells of its virtual cluster are in use")
    assert " ".join(found[1]).endswith("1 job before it")


def test_jobs_of_all_queues_have_those_with_mistakes_among_them(jobs: Jobs) -> None:
    items = json.loads(hived(jobs, "get", "queue", "--jobs", "-o", "json").output)["items"]
    (wrong,) = [item for item in items if item["name"] == "Job/default/wrong"]
    assert (wrong["state"], wrong["position"]) == ("Refused", 0)
    assert "set it to a virtual cluster: a, b" in wrong["reason"]


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


def test_why_tells_the_place_of_a_job_without_pods(jobs: Jobs) -> None:
    result = hived(jobs, "why", "second")
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == "Job/default/second  Waiting, place 1 in queue b"


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("get", "queue", "x"), "there is no queue 'x'; those with jobs are b", 1),
        (("move", "nobody", "--front"), "no job 'nobody' is in a queue", 1),
        (("move", "first", "--front"), "does not wait, so it has no place", 1),
        (("move", "second"), "give one of --front, --back and --before JOB", 2),
        (("move", "second", "--front", "--back"), "give one of", 2),
        (("hold", "wrong"), "is in no queue", 1),
        (("move", "second", "--before", "first"), "cannot be moved before", 1),
    ],
)
def test_a_mistake_is_said(jobs: Jobs, arguments: tuple[str, ...], said: str, code: int) -> None:
    result = hived(jobs, *arguments)
    assert (result.exit_code, said in result.output) == (code, True), result.output
