"""Answers about queues of an embedded cluster: nobody reads names there that are hidden from them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_extender.api.queues import QueueArgs, QueuedJob
from hived_extender.api.waiting import MASKED, When
from hived_extender.insight.past import LEAST_ENDS, Ended
from hived_extender.jobs.progress import read_time
from hived_extender.queues.answering import QueueAnswers, Wanted, namer
from hived_extender.queues.reasons import Leaving, told
from hived_extender.queues.table import Life
from hived_lab.embedded.apiserver.models import MAX_ANNOTATION_BYTES
from hived_lab.embedded.nodes import READY
from tests.extender.queues.embedded_jobs import Jobs, jobs_on


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A job that runs, and one that waits for it."""
    with jobs_on(tmp_path_factory.mktemp("answers")) as found:
        found.create("first", "b")
        found.expect(lambda: found.runs("first"))
        found.create("second", "b")
        found.expect(lambda: found.queued("b") == ["second"])
        yield found


@pytest.fixture(scope="module")
def answers(jobs: Jobs) -> QueueAnswers:
    return QueueAnswers(jobs.running.extender.queues)


def test_a_job_that_runs_on_a_bad_node_says_so_in_its_queue(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        jobs.create("own", "b")
        jobs.expect(lambda: jobs.runs("own"))
        jobs.expect(lambda: jobs.reason("own") == "runs on cells of its own virtual cluster")
        (node,) = jobs.nodes("own")
        jobs.kube.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {READY: "false"}}})
        told = f"runs on cells of its own virtual cluster; node {node} is NotReady (since "
        jobs.expect(lambda: jobs.reason("own").startswith(told))
        (listed,) = jobs.inspector.queued_jobs("b").items
        assert listed.reason.startswith(told)


def leaving(jobs: Jobs, winner: str, seen: frozenset[str] | None) -> str:
    """The reason of a job that was told to leave."""
    turns = jobs.running.extender.queues.turns
    assert turns is not None
    return told(Leaving(winner), namer(turns, seen)).sentence


@pytest.fixture(scope="module")
def second(jobs: Jobs) -> str:
    """The key of the job that waits."""
    turns = jobs.running.extender.queues.turns
    assert turns is not None
    return next(key for key, entry in turns.queues.entries.items() if entry.job.ref.name == "second")


def test_a_reason_names_the_job_that_gets_the_cells(jobs: Jobs, second: str) -> None:
    for seen in (None, frozenset({"default"})):
        assert leaving(jobs, second, seen) == "its cells go to Job/default/second"


def test_a_reason_hides_jobs_of_namespaces_that_are_not_seen(jobs: Jobs, second: str) -> None:
    assert leaving(jobs, second, frozenset({"other"})) == f"its cells go to {MASKED}"


def test_a_job_that_is_gone_is_named_to_those_alone_who_saw_it(jobs: Jobs) -> None:
    gone = "Job/secret/gone/uid-1"
    assert leaving(jobs, gone, frozenset({"default"})) == f"its cells go to {MASKED}"
    assert leaving(jobs, gone, frozenset({"secret"})) == "its cells go to Job/secret/gone"


def test_a_reason_keeps_words_that_are_no_job(jobs: Jobs) -> None:
    said = leaving(jobs, "root/team, which was lowered", frozenset({"default"}))
    assert said == "its cells go to root/team, which was lowered"


def test_a_job_of_a_namespace_that_is_not_seen_is_not_found(answers: QueueAnswers) -> None:
    assert answers.job("second", frozenset({"other"})) is None
    assert answers.job("second", frozenset({"default"})) == answers.job("Job/default/second")


def test_a_change_that_the_job_has_no_room_for_is_no_success(jobs: Jobs, answers: QueueAnswers) -> None:
    jobs.create("full", "b", annotations={"notes": "x" * (MAX_ANNOTATION_BYTES - len("notes"))})
    jobs.expect(lambda: answers.job("full") is not None)
    for args in (QueueArgs("full", "hold"), QueueArgs("full", "move", "front")):
        with pytest.raises(UserError, match=r"is not written onto it yet, .*Too long"):
            answers.act(args)
    jobs.delete("full")
    jobs.expect(lambda: answers.job("full") is None)


def test_a_part_of_the_jobs_is_that_part_of_all(answers: QueueAnswers) -> None:
    everything = answers.jobs("b")
    assert [job.position for job in everything] == [1, 0]
    assert answers.some_jobs(Wanted("b"), None, 1, 1) == (2, everything[1:])
    assert answers.some_jobs(Wanted("b"), None, 5, 1) == (2, [])


def test_parts_of_one_job_are_one_row_however_many_a_page_has(answers: QueueAnswers) -> None:
    everything = answers.jobs("b")
    count, [row] = answers.some_jobs(Wanted("b"), None, 0, 1, lambda name: "a set")
    assert (count, row.name, row.position) == (1, everything[0].name, 1)
    assert row.gpus == sum(job.gpus for job in everything)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Wanted("b", is_waiting=True), 1),
        (Wanted(vcs=["b"]), 2),
        (Wanted(vcs=["a"]), 0),
        (Wanted(namespaces=["default"]), 2),
        (Wanted(namespaces=["other"]), 0),
        (Wanted(users=["default"]), 0),
        (Wanted(users=["somebody"]), 0),
    ],
)
def test_jobs_are_chosen_by_what_they_are(answers: QueueAnswers, wanted: Wanted, count: int) -> None:
    assert answers.some_jobs(wanted, None, 0, None)[0] == count


def test_nobody_finds_the_user_or_the_namespace_of_a_hidden_job_by_guessing(answers: QueueAnswers) -> None:
    for wanted in (Wanted(users=["default"]), Wanted(namespaces=["default"])):
        assert answers.some_jobs(wanted, frozenset({"other"}), 0, None) == (0, [])
    assert answers.some_jobs(Wanted(vcs=["b"]), frozenset({"other"}), 0, None)[0] == 2


def test_a_job_that_has_ended_is_in_no_queue_though_its_own_schedule_has_it(jobs: Jobs, answers: QueueAnswers) -> None:
    turns = jobs.running.extender.queues.turns
    assert turns is not None
    (entry,) = [one for one in turns.queues.entries.values() if one.job.ref.name == "first"]
    life, entry.life = entry.life, Life.OVER
    try:
        assert answers.job("Job/default/first") is None
        with jobs.running.extender.queues.look():
            assert answers._job(turns, entry, 0).state == "Leaving"  # it ended after it was looked up
        assert [job.name for job in answers.jobs("b")] == ["Job/default/second"]
    finally:
        entry.life = life


def test_namespaces_of_jobs_are_listed(answers: QueueAnswers) -> None:
    assert answers.namespaces() == ["default"]


def test_a_waiting_job_waits_since_its_creation_even_for_another_leader(jobs: Jobs, answers: QueueAnswers) -> None:
    desk = jobs.running.extender.queues

    def since() -> float:
        found: QueuedJob | None = answers.job("second")
        assert found is not None
        return found.since

    was = since()
    with desk.look() as before:
        desk.begin_anew()  # as after a take-over
    jobs.expect(lambda: desk.turns is not before)
    assert since() == was


def test_a_start_is_counted_for_its_queue(jobs: Jobs) -> None:
    text = jobs.running.extender.metrics.text().decode()
    assert 'hived_queue_admitted_total{queue="b"} 1.0' in text
    assert 'hived_queued_jobs{queue="b",state="waiting"} 1.0' in text


def test_the_first_job_has_an_estimated_start_once_enough_jobs_have_ended(jobs: Jobs, answers: QueueAnswers) -> None:
    forecaster = jobs.running.extender._forecaster

    def start() -> When:
        found = answers.job("second")
        assert found is not None
        assert found.when is not None
        return found.when

    assert start().kind == "unknown"
    with forecaster._lock:
        forecaster._known().durations.add([Ended("b", 8, 3600.0)] * LEAST_ENDS)
    forecaster.look()
    runs = answers.job("first")
    assert runs is not None
    assert start().kind == "estimated"
    assert read_time(start().likely) == pytest.approx(runs.since + 3600.0, abs=5.0)
    assert read_time(start().by) >= read_time(start().likely)
