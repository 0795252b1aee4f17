"""Jobs of queues that may borrow are told the one cause that keeps them waiting, and a remedy that works."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from hived_cli import main
from hived_extender.api.waiting import MASKED, Certificate, PodCounts, Why
from hived_extender.jobs.quotas.usage import STOPPED
from hived_extender.queues.answering import QueueAnswers
from tests.extender.queues.embedded_jobs import (
    CONFIG,
    GPU,
    JOBS,
    PODS,
    PREFIX,
    PYTORCH_JOBS,
    TREES,
    Jobs,
    jobs_on,
    template,
)

pytestmark = pytest.mark.sample(3)

MAX_JOBS = "kube-queue/max-jobs"
LIMIT: dict[str, Any] = {"annotations": {f"{PREFIX}expected-duration": "3600s"}}


def why(jobs: Jobs, name: str) -> Why:
    return why_of(jobs, f"Job/default/{name}")


def why_of(jobs: Jobs, name: str) -> Why:
    """That of a job, or a pod, by its full name."""
    found = jobs.inspector.why(name)
    assert found is not None
    return found


def certificate(jobs: Jobs, name: str) -> Certificate:
    return certificate_of(jobs, f"Job/default/{name}")


def certificate_of(jobs: Jobs, name: str) -> Certificate:
    found = why_of(jobs, name)
    assert found.certificate is not None
    return found.certificate


def remedies(jobs: Jobs, name: str) -> list[str]:
    """The ends that would help a job, each of which does if it is tried."""
    found = [one.change for one in certificate(jobs, name).unblock if one.change.startswith("ends=")]
    assert all(jobs.inspector.why_if(name, [one]).starts for one in found)
    return [one.removeprefix("ends=Job/default/") for one in found]


def runs(jobs: Jobs, name: str, vc: str = "a", **more: Any) -> None:
    jobs.create(name, vc, **more)
    jobs.expect(lambda: jobs.runs(name))


def waits(jobs: Jobs, name: str, vc: str = "a", **more: Any) -> None:
    jobs.create(name, vc, **more)
    jobs.expect(lambda: jobs.state(name) == "Waiting", jobs.rest)
    assert jobs.reason(name), "what waits is told why"


def tree(most_jobs: int) -> dict[str, Any]:
    """Quotas of the two virtual clusters; so many jobs of a may run."""
    leaves = [
        {"name": "a", "namespaces": ["default"], "min": {GPU: 8}, "max": {GPU: 16, MAX_JOBS: most_jobs}},
        {"name": "b", "min": {GPU: 8}, "max": {GPU: 16}},
    ]
    return {"root": {"name": "root", "min": {GPU: 16}, "max": {GPU: 16}, "children": leaves}}


@contextmanager
def quotas(folder: Path, most_jobs: int) -> Iterator[Jobs]:
    """See `tree`."""
    with jobs_on(folder) as jobs:
        jobs.kube.create(TREES, {"metadata": {"name": "fleet", "namespace": "kube-system"}, "spec": tree(most_jobs)})
        jobs.expect(lambda: jobs.running.extender.service.machine.holds.quotas.tree is not None)
        yield jobs


def test_a_job_larger_than_its_virtual_cluster_is_told_of_the_cells_that_it_would_borrow(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "first", **LIMIT)
        waits(jobs, "big", pods=2)
        assert jobs.reason("big") == "can only borrow idle cells, but cannot now: no idle cells have room for it"
        found = certificate(jobs, "big")
        assert "the cluster has 1 of 2 in use by first" in found.sentence
        assert (found.cause, found.also) == ("in-use", [])
        assert [(one.group, bool(one.until)) for one in found.holders] == [("Job/default/first", True)]
        assert remedies(jobs, "big") == ["first"]
        when = why(jobs, "big").when
        assert when is not None
        assert when.because == "it can only borrow, and no cells are kept for it"


def test_a_job_behind_others_of_its_queue_that_can_only_borrow_is_told_of_cells(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "first")
        waits(jobs, "big", pods=2)
        waits(jobs, "big-again", pods=2)
        assert jobs.reason("big-again") == "can only borrow idle cells, but cannot now: no idle cells have room for it"
        assert certificate(jobs, "big-again").cause == "in-use"


def test_an_opportunistic_job_is_told_who_has_the_cells_and_of_each_end_that_helps(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "t1", **LIMIT)
        runs(jobs, "t2", "b")
        waits(jobs, "lent", priority="-1")
        found = certificate(jobs, "lent")
        assert (found.cause, found.also) == ("in-use", [])
        assert "Kubernetes" not in found.sentence
        assert [(one.group, bool(one.until)) for one in found.holders] == [
            ("Job/default/t1", True),
            ("Job/default/t2", False),
        ]
        assert sorted(remedies(jobs, "lent")) == ["t1", "t2"]  # in the order of their starts, in whole seconds


def test_a_job_whose_turn_is_to_come_is_told_whose_end_would_lend_it_cells(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "t0")
        runs(jobs, "t1", "b", **LIMIT)
        waits(jobs, "second")
        waits(jobs, "third")
        assert remedies(jobs, "second") == ["t0", "t1"]
        assert remedies(jobs, "third") == []  # second would have them first
        when = why(jobs, "second").when
        assert when is not None
        assert when.because == "t0, which has the cells, has no time limit"


def test_a_borrower_has_the_priority_of_its_queue_wherever_it_is_shown(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "own")
        runs(jobs, "lent")
        found = why(jobs, "lent").job
        assert (found.priority, found.is_borrowed, why(jobs, "own").job.is_borrowed) == (10, True, False)
        url = jobs.running.extender.url
        for words in (("get", "jobs", "-o", "wide"), ("get", "queue", "a"), ("why", "lent")):
            output = CliRunner().invoke(main, [*words, "--server", url]).output
            assert re.search(r"lent .*\b10, borrows ", output), output
        for path in ("jobs", "jobs/Job/default/lent", "queues/a"):
            with urlopen(f"{url}/page/{path}") as answer:
                assert "10, borrows" in answer.read().decode(), path


def test_the_first_one_that_fits_its_virtual_cluster_is_told_who_has_the_cells_there(tmp_path: Path) -> None:
    """Jobs before it can only borrow, so it is first for the cells of its virtual cluster."""
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "own", **LIMIT)
        runs(jobs, "other", "b")
        waits(jobs, "big", pods=2)
        waits(jobs, "bigger", pods=2)
        waits(jobs, "next")
        found = certificate(jobs, "next")
        assert (found.cause, found.also) == ("in-use", [])
        assert found.sentence.startswith("needs 1 node of 8 GPUs; a has 1 of 1 in use by own (priority 10, since ")
        assert ", ends by " in found.sentence
        assert [one.group for one in found.holders] == ["Job/default/own"]
        queued = jobs.inspector.queued_job("next")
        assert queued is not None
        assert queued.cause == "in-use"
        assert remedies(jobs, "next") == ["own", "other"]
        waits(jobs, "then")
        assert certificate(jobs, "then").cause == "order"


@pytest.mark.parametrize("priority", ["-1", "1"])
def test_a_pod_of_no_queue_is_told_the_limit_that_the_object_of_a_job_declares(tmp_path: Path, priority: str) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "own", **LIMIT)
        runs(jobs, "other", "b")
        pod = template("a", 8, priority, "100000")
        pod["metadata"]["name"] = "plain"
        jobs.kube.create(PODS, pod)
        jobs.expect(lambda: (told := jobs.inspector.why("default/plain")) is not None and told.certificate is not None)
        found = certificate_of(jobs, "default/plain")
        until = {one.group: bool(one.until) for one in found.holders}
        assert until.pop("Job/default/own")
        assert not any(until.values())
        assert re.search(r"own \(priority 10, since [^)]*, ends by ", found.sentence)
        assert (found.cause, found.also, "Kubernetes" in found.sentence) == ("in-use", [], False)


def test_jobs_that_may_run_is_the_one_cause_beside_idle_cells(tmp_path: Path) -> None:
    with quotas(tmp_path, 1) as jobs:
        runs(jobs, "first")
        waits(jobs, "second")
        found = certificate(jobs, "second")
        assert found.sentence.startswith(f"Insufficient quota({MAX_JOBS})")
        assert (found.cause, found.also, found.holders) == ("quota", [], [])
        assert remedies(jobs, "second") == ["first"]


def test_a_job_of_a_stopped_queue_waits_until_it_goes_on(tmp_path: Path) -> None:
    """A quota for no job is how a queue is stopped: nobody is to make the job smaller."""
    with quotas(tmp_path, 0) as jobs:
        waits(jobs, "first")
        waits(jobs, "second")
        for name in ("first", "second"):
            found = certificate(jobs, name)
            assert found.sentence.endswith(STOPPED)
            assert (found.cause, found.never, jobs.state(name)) == ("quota", False, "Waiting")
        jobs.kube.patch(f"{TREES}/fleet", {"spec": tree(1)})
        jobs.expect(lambda: jobs.runs("first"), jobs.rest)


def test_jobs_that_may_run_is_the_one_cause_of_one_behind_a_borrower(tmp_path: Path) -> None:
    """The first of its own schedule runs on borrowed cells, and waits for the min of its quota there."""
    with quotas(tmp_path, 2) as jobs:
        runs(jobs, "j0", gpus=5)
        runs(jobs, "j1", gpus=5)
        waits(jobs, "j2", gpus=3)
        found = certificate(jobs, "j2")
        assert found.sentence == jobs.reason("j2")
        assert found.sentence.startswith(f"Insufficient quota({MAX_JOBS})")
        assert (found.cause, found.also) == ("quota", [])
        assert remedies(jobs, "j2") == ["j0", "j1"]


def test_a_users_limit_is_the_one_cause_beside_idle_cells(tmp_path: Path) -> None:
    text = CONFIG.replace("queue: {borrow: true}", "queue: {borrow: true, maxRunningPerUser: 1}")
    with jobs_on(tmp_path, text) as jobs:
        runs(jobs, "first", gpus=2)
        waits(jobs, "second", gpus=2)
        found = certificate(jobs, "second")
        assert "runs 1 job, as many as the queue allows" in found.sentence
        assert (found.cause, found.also) == ("quota", [])
        assert remedies(jobs, "second") == ["first"]


@pytest.fixture
def called_back(tmp_path: Path) -> Iterator[Jobs]:
    """A job that ran on borrowed cells waits again, as its cells were due for one of another namespace."""
    with jobs_on(tmp_path) as jobs:
        jobs.kube.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
        runs(jobs, "own")
        runs(jobs, "lent")
        jobs.create("winner", "b", namespace="other")
        path = f"{JOBS.replace('default', 'other')}/winner"
        jobs.expect(lambda: not jobs.kube.get(path)["spec"]["suspend"], lambda: jobs.state("lent") == "Waiting")
        yield jobs


def events(jobs: Jobs, reason: str) -> list[str]:
    found = jobs.kube.get("/api/v1/namespaces/default/events")["items"]
    return [one["message"] for one in found if one["reason"] == reason and one["involvedObject"]["name"] == "lent"]


def test_a_job_that_was_called_back_says_for_whom(called_back: Jobs) -> None:
    jobs = called_back
    news = why(jobs, "lent").job.preempted
    assert news is not None
    assert (news.by, news.namespace, bool(news.at)) == ("Job/other/winner", "other", True)
    uid = jobs.kube.get(f"{JOBS.replace('default', 'other')}/winner")["metadata"]["uid"]
    jobs.expect(
        lambda: any(
            f"its cells go to a job of another namespace (uid {uid})" in one for one in events(jobs, "Preempted")
        )
    )


def test_a_list_names_the_winner_of_another_namespace(called_back: Jobs) -> None:
    jobs = called_back
    news = next(one for one in jobs.inspector.queued_jobs("a").items if one.name == "Job/default/lent").preempted
    assert news is not None
    assert (news.by, news.namespace) == ("Job/other/winner", "other")


def test_the_name_of_the_winner_is_masked_for_those_who_may_not_see_it(called_back: Jobs) -> None:
    jobs = called_back
    answers = QueueAnswers(jobs.running.extender.queues)
    found = answers.job("Job/default/lent", frozenset({"default"}))
    assert found is not None
    assert found.preempted is not None
    assert (found.preempted.by, found.preempted.namespace) == (MASKED, "")


def test_a_winner_of_the_same_namespace_is_named_with_its_uid(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "own")
        runs(jobs, "lent")
        runs(jobs, "winner", "b")
        jobs.expect(lambda: jobs.state("lent") == "Waiting")
        uid = jobs.kube.get(f"{JOBS}/winner")["metadata"]["uid"]
        text = f"its cells go to Job/default/winner (uid {uid}); it waits again in queue a"
        jobs.expect(lambda: text in events(jobs, "Preempted"))
        news = why(jobs, "lent").job.preempted
        assert news is not None
        assert news.by == "Job/default/winner"
        jobs.delete("winner")
        jobs.expect(lambda: jobs.runs("lent"))
        found = jobs.inspector.queued_job("lent")
        assert found is not None
        assert found.preempted is None


def test_a_plain_pod_that_left_for_a_job_of_a_queue_says_for_which(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        runs(jobs, "own")
        lent = template("a", 8, "-1", "100000")
        lent["metadata"]["name"] = "lent"
        jobs.kube.create(PODS, lent)
        jobs.expect(lambda: jobs.kube.get(f"{PODS}/lent")["status"].get("phase") == "Running")
        runs(jobs, "winner", "b")
        jobs.expect(lambda: (found := jobs.inspector.why("default/lent")) is not None and bool(found.job.preempted))
        news = why_of(jobs, "default/lent").job.preempted
        assert news is not None
        assert (news.by, news.namespace) == ("Job/default/winner", "default")


def test_a_job_is_listed_once_with_all_pods_that_name_it_as_their_controller(tmp_path: Path) -> None:
    name = "PyTorchJob/default/train"
    with jobs_on(tmp_path) as jobs:
        roles = {"Worker": {"replicas": 1, "template": template("a", 8, "10", "100000")}}
        spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles}
        jobs.kube.create(PYTORCH_JOBS, {"metadata": {"name": "train"}, "spec": spec})
        jobs.expect(lambda: jobs.state("train") == "Running")
        uid = jobs.kube.get(f"{PYTORCH_JOBS}/train")["metadata"]["uid"]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": uid, "controller": True}
        foreign = template("a", 16, "10", "100000")
        foreign["metadata"] = {"name": "foreign", "ownerReferences": [owner]}
        foreign["spec"]["schedulerName"] = "other"
        jobs.kube.create(PODS, foreign)
        jobs.expect(lambda: jobs.inspector.why("default/foreign") is not None)
        jobs.expect(lambda: why_of(jobs, "default/foreign").job.state == "Waiting")
        (row,) = jobs.inspector.jobs()
        assert (row.name, row.counts) == (name, PodCounts(wanted=2, running=1, waiting=1))
        found = jobs.inspector.queued_job(name)
        assert found is not None
        assert (found.state, found.counts) == ("Running", row.counts)
        assert found.reason.endswith("; of its pods 1 of 2 runs, 1 waits")
