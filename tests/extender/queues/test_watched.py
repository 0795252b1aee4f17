"""Job objects as the watches tell of them: which are kept, and what is kept of them."""

import gc
from itertools import permutations
from typing import Any

import pytest

from hived_extender.jobs.job import Job, JobName, Role
from hived_extender.jobs.kinds import batch, jobset, trainer
from hived_extender.jobs.needs import Need
from hived_extender.queues.watched import NOT_UNDERSTOOD, WatchedJobs
from tests.extender.jobs.kinds.documents import BATCH, JOB_SET, TRAIN, job_object, job_spec, owner

TRAIN_SET = job_object(*JOB_SET, ownerReferences=[owner("trainer.kubeflow.org/v1alpha1", "TrainJob")])
NAME = batch.JOB.name("team", "train")


class Case:
    """Watched jobs, and the pods of each as it was read last."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.read: dict[str, tuple[Role, ...]] = {}
        self.made: list[tuple[JobName, JobName | None]] = []
        self.jobs = WatchedJobs(self._need, lambda _: None, lambda *made: self.made.append(made))

    def _need(self, job: Job) -> Need | None:
        if self.error is not None:
            raise self.error
        self.read[job.ref.kind] = job.roles
        return None


@pytest.mark.parametrize("order", [*permutations(("train", "set"))])
def test_a_train_job_has_the_pods_of_its_job_set_whichever_comes_first(order: tuple[str, ...]) -> None:
    case = Case()
    for each in order:
        if each == "train":
            case.jobs.seen(trainer.TRAIN_JOB, job_object(*TRAIN))
        else:
            case.jobs.seen(jobset.JOB_SET, dict(TRAIN_SET))
    assert [role.name for role in case.read["TrainJob"]] == ["driver", "workers"]


def of_set(succeeded: int, name: str = "made", **metadata: object) -> dict[str, Any]:
    """A Job of the workers of a JobSet."""
    owned = [owner("jobset.x-k8s.io/v1alpha2", "JobSet")]
    labels = {jobset.REPLICATED_JOB: "workers"}
    return job_object(
        "batch/v1", "Job", job_spec(4), {"succeeded": succeeded}, name=name, labels=labels, ownerReferences=owned,
        **metadata,
    )  # fmt: skip


def of_train(case: Case) -> int:
    """The workers of the JobSet as it was read last."""
    return {role.name: role.count for role in case.read["JobSet"]}["workers"]


@pytest.mark.parametrize("order", [*permutations(("set", "job"))])
def test_a_job_set_needs_fewer_pods_when_one_of_its_jobs_does(order: tuple[str, ...]) -> None:
    case = Case()
    for each in order:
        if each == "set":
            case.jobs.seen(jobset.JOB_SET, job_object(*JOB_SET))
        else:
            case.jobs.seen(batch.JOB, of_set(2))
    assert of_train(case) == 6
    case.jobs.seen(batch.JOB, of_set(1, "other"))
    assert of_train(case) == 5
    case.jobs.seen(jobset.JOB_SET, job_object(*JOB_SET, resourceVersion="9"))
    assert of_train(case) == 5


def test_a_job_set_that_starts_again_needs_all_pods() -> None:
    case = Case()
    case.jobs.seen(jobset.JOB_SET, job_object(*JOB_SET))
    case.jobs.seen(batch.JOB, of_set(2))
    case.jobs.seen(batch.JOB, of_set(2, deletionTimestamp="2026-11-23T16:00:00Z"))
    assert of_train(case) == 8
    case.jobs.seen(batch.JOB, of_set(1, "other"))
    case.jobs.gone(batch.JOB, of_set(1, "other"))
    assert of_train(case) == 8
    case.jobs.seen(batch.JOB, of_set(3))
    case.jobs.listed(batch.JOB, [of_set(1, "other")])
    assert of_train(case) == 7


def test_a_train_job_needs_fewer_pods_when_a_job_of_its_job_set_does() -> None:
    case = Case()
    case.jobs.seen(trainer.TRAIN_JOB, job_object(*TRAIN))
    case.jobs.seen(jobset.JOB_SET, dict(TRAIN_SET))
    case.jobs.seen(batch.JOB, of_set(3))
    assert {role.name: role.count for role in case.read["TrainJob"]}["workers"] == 5


def test_nothing_is_kept_of_the_templates_of_jobs_that_another_one_has_made() -> None:
    case = Case()
    made = job_object(*BATCH, name="made", ownerReferences=[owner("jobset.x-k8s.io/v1alpha2", "JobSet")])
    case.jobs.seen(batch.JOB, made)
    assert [each for each in gc.get_objects() if type(each) is Role and each.name == "made"] == []


def test_a_job_whose_pods_name_another_one_has_made_itself_unless_that_one_owns_it() -> None:
    case, name = Case(), batch.JOB.name("team", "train-more")
    version, kind, spec = BATCH
    labels = {"jobset.sigs.k8s.io/jobset-name": "train"}
    spec = {**spec, "template": {**spec["template"], "metadata": {"labels": labels}}}
    case.jobs.seen(batch.JOB, job_object(version, kind, spec, name="train-more"))
    assert (case.made, name in case.jobs.everything()) == ([(name, name)], True)
    owned = [owner("jobset.x-k8s.io/v1alpha2", "JobSet")]
    case.jobs.seen(batch.JOB, job_object(version, kind, spec, name="train-more", ownerReferences=owned))
    assert case.made[1:] == [(name, jobset.JOB_SET.name("team", "train"))]


def test_a_job_that_is_being_deleted_is_known_no_more() -> None:
    case = Case()
    case.jobs.seen(batch.JOB, job_object(*BATCH))
    assert case.jobs.everything() != []
    case.jobs.seen(batch.JOB, job_object(*BATCH, deletionTimestamp="2026-11-23T16:00:00Z"))
    assert case.jobs.everything() == []


def test_a_job_that_hived_fails_to_read_is_in_no_queue_and_says_so() -> None:
    case = Case(RuntimeError("bug"))
    case.jobs.seen(batch.JOB, job_object(*BATCH))
    assert (seen := case.jobs.find(NAME)) is not None
    assert seen.problem == NOT_UNDERSTOOD
