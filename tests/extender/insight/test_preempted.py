"""Preempted jobs are known after their pods are gone: for a day, and after a restart where there is a file."""

from pathlib import Path

import pytest

from hived_extender.insight.answering import Answering
from hived_extender.insight.listing import KEPT_S, MOST, PreemptedJobs
from hived_extender.insight.store import Store
from hived_extender.machine.counts import PodEnd
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.insight.situations import AT
from tests.extender.machine.small_cluster import SmallCluster, spec_text, wait_until


def end(number: int, job: str = "job", at: float = AT, *, is_preempted: bool = True, pod: str = "") -> PodEnd:
    return PodEnd(
        number, pod or f"ns/{job}-{number}", job, "ns", job, "A", -1, 2, at - 60.0, at, is_preempted, "ns/by", "ns"
    )


def preempted_cluster() -> SmallCluster:
    """A pod of b was preempted for ns/p of a."""
    cluster = SmallCluster(preemption=PreemptionPolicy(by_service=True))
    for number in range(4):
        cluster.place(f"v{number}", spec_text("b", priority=-1))
    cluster.filter(cluster.create("p", spec_text("a")))
    cluster.until(lambda: bool(cluster.kube.leaving))
    ((_, victim),) = cluster.kube.leaving
    cluster.delete(cluster.kube.pods[victim])
    return cluster


def test_pods_that_leave_together_are_one_job() -> None:
    known = PreemptedJobs()
    known.learn([end(1), end(2, at=AT + 5.0), end(3, "other", is_preempted=False)])
    (one,) = known.latest(AT + 60.0)
    assert (one.job, one.leaves, one.pods, one.at_s, one.by) == ("job", 4, ("ns/job-1", "ns/job-2"), AT, "ns/by")


def test_each_end_is_learned_once() -> None:
    known = PreemptedJobs()
    for _ in range(2):
        known.learn([end(1)])
    assert [one.leaves for one in known.latest(AT)] == [2]


def test_a_job_that_is_preempted_again_is_told_with_the_latest_time() -> None:
    known = PreemptedJobs()
    known.learn([end(1), end(2, "other", AT + 10.0), end(3, at=AT + 7200.0)])
    assert [(one.job, one.at_s, one.leaves) for one in known.latest(AT + 7200.0)] == [
        ("job", AT + 7200.0, 2), ("other", AT + 10.0, 2)
    ]  # fmt: skip


def test_jobs_are_kept_for_a_day_and_only_so_many() -> None:
    known = PreemptedJobs()
    known.learn([end(number, f"job-{number}", AT + number) for number in range(1, MOST + 11)])
    assert len(known.latest(AT)) == MOST
    assert known.latest(AT)[-1].job == "job-11"
    assert known.latest(AT + MOST + 11 + KEPT_S) == []


def test_the_file_keeps_them_over_a_restart_and_drops_those_of_yesterday(tmp_path: Path) -> None:
    store = Store(tmp_path / "history")
    PreemptedJobs(store).learn([end(1, "old", AT - KEPT_S - 10.0), end(2)])
    store.close()
    again = PreemptedJobs(Store(tmp_path / "history"))
    assert [one.job for one in again.latest(AT - KEPT_S)] == ["job"]


def test_rows_that_nobody_can_read_are_skipped(tmp_path: Path) -> None:
    store = Store(tmp_path / "history")
    known = PreemptedJobs(store)
    store.write("INSERT INTO preempted (job, at_s, body) VALUES (?, ?, ?)", [("bad", AT, b"\xc1")])
    known.learn([end(1)])
    known.forget()
    assert [one.job for one in known.latest(AT)] == ["job"]


def test_a_job_is_found_after_it_was_preempted_by_its_name_and_its_pods() -> None:
    answers = Answering(preempted_cluster().service, fresh_s=0.0)
    gone = [one.job for one in answers.view().jobs if one.job.state == "Preempted"]
    assert [job.vc for job in gone] == ["b"]
    found = answers.why(gone[0].pods[0])
    assert found.job.preempted is not None
    assert found.job.preempted.by == "ns/p"
    assert found.job.sentence.startswith("preempted at ")
    assert found.job.sentence.endswith(" for p")


def test_a_job_that_waits_again_is_told_as_waiting_and_when_it_was_preempted() -> None:
    cluster = preempted_cluster()
    answers = Answering(cluster.service, fresh_s=0.0)
    (name,) = [one.job.name for one in answers.view().jobs if one.job.state == "Preempted"]
    cluster.filter(cluster.create(name.partition("/")[2], spec_text("b", priority=-1), uid="again"))
    wait_until(lambda: answers.why(name).job.state == "Waiting")
    assert answers.why(name).job.preempted is not None


@pytest.mark.parametrize("has_answered", [False, True])
def test_a_replica_that_leads_again_learns_anew(has_answered: bool) -> None:
    known = PreemptedJobs()
    if has_answered:
        known.learn([end(1)])
    known.forget()
    known.learn([end(1)])
    assert [one.job for one in known.latest(AT)] == ["job"]
