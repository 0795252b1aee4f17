"""Queue and QueueUnit objects as Kube Queue's users know them."""

import pytest
from msgspec.structs import replace

from hived_extender.jobs.job import JobRef
from hived_extender.queues.records import (
    SHOWN_ITEMS,
    Phase,
    QueueRecord,
    UnitRecord,
    missing,
    queue_name,
    queue_object,
    queue_status,
    unit_name,
    unit_object,
    unit_status,
)

JOB = JobRef("kubeflow.org/v1", "PyTorchJob", "team", "train", "u-1")
UNIT = UnitRecord(JOB, "root/child-2", 5, {"nvidia.com/gpu": "8"}, Phase.ENQUEUED)
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def test_a_queue_is_called_after_its_path() -> None:
    name = queue_name("root/child-2")
    assert name.startswith("root-child-2-")
    assert len(name) == len("root-child-2-v5zxz")


def test_paths_that_look_alike_with_dashes_have_names_of_their_own() -> None:
    assert queue_name("root/a-b") != queue_name("root/a/b")


@pytest.mark.parametrize("path", ["root/Ärger", "/", "root/" + "x" * 400, "root/UPPER_case"])
def test_any_path_makes_a_name_that_kubernetes_takes(path: str) -> None:
    name = queue_name(path)
    assert 0 < len(name) <= 253
    assert name[0].isalnum()
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


def test_jobs_of_one_name_and_several_kinds_have_units_of_their_own() -> None:
    kinds = [
        JOB,
        replace(JOB, kind="TFJob"),
        replace(JOB, kind="Job", api_version="batch/v1"),
        replace(JOB, kind="Job", api_version="batch.volcano.sh/v1alpha1"),
        replace(JOB, kind="JobSet", api_version="jobset.x-k8s.io/v1alpha2"),
    ]
    names = [unit_name(job) for job in kinds]
    assert len(set(names)) == len(names)
    assert names[:3] == ["train-py-qu", "train-tf-qu", "train"]


def test_no_two_jobs_have_a_unit_of_one_name_however_they_are_called() -> None:
    endings = ["", "-qu", *(f"-{kind}-qu" for kind in ("py", "tf", "job", "long", "volcano"))]
    names = [f"{'x' * size}{one}{other}" for size in (1, 240, 250) for one in endings for other in endings]
    versions = [
        ("batch/v1", "Job"), ("batch.volcano.sh/v1alpha1", "Job"), ("kubeflow.org/v1", "PyTorchJob"),
        ("kubeflow.org/v1", "TFJob"), ("v1", "Gang"),
    ]  # fmt: skip
    jobs = [(name, *version) for name in dict.fromkeys(names) for version in versions]
    units = [unit_name(replace(JOB, name=name, api_version=version, kind=kind)) for name, version, kind in jobs]
    assert len(set(units)) == len(jobs)
    assert max(map(len, units)) <= 253
    named_like_units = [(unit, *version) for unit in units if unit not in names for version in versions]
    others = [
        unit_name(replace(JOB, name=name, api_version=version, kind=kind)) for name, version, kind in named_like_units
    ]
    assert set(others).isdisjoint(units)


def test_a_unit_names_its_job_its_queue_and_its_request() -> None:
    made = unit_object(UNIT)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert made["spec"]["consumerRef"]["kind"] == "PyTorchJob"
    assert (made["spec"]["queue"], made["spec"]["priority"]) == (queue_name("root/child-2"), 5)
    assert made["spec"]["request"] == {"nvidia.com/gpu": "8"}


def test_the_status_of_a_queue_has_positions_from_one_on() -> None:
    status = queue_status(QueueRecord("root/a", [("team", "b", 3), ("team", "a", 1)]))
    items = status["queueItemDetails"]["active"]
    assert [(each["name"], each["priority"], each["position"]) for each in items] == [("b", 3, 1), ("a", 1, 2)]


def test_the_status_of_a_long_queue_is_bounded() -> None:
    status = queue_status(QueueRecord("root/a", [("team", f"j{number}", 0) for number in range(50_000)]))
    assert len(status["queueItemDetails"]["active"]) == SHOWN_ITEMS


def test_a_queue_is_created_where_kube_queue_has_them() -> None:
    assert queue_object(QueueRecord("root/a"))["metadata"]["namespace"] == "kube-queue"


def test_conditions_follow_the_phase() -> None:
    def true_ones(phase: Phase) -> list[str]:
        status = unit_status(replace(UNIT, phase=phase), {}, NOW)
        return [each["type"] for each in status["conditions"] if each["status"] == "True"]

    assert true_ones(Phase.ENQUEUED) == []
    assert true_ones(Phase.RESERVED) == ["QuotaReserved"]
    assert true_ones(Phase.DEQUEUED) == ["QuotaReserved", "Admitted"]
    assert true_ones(Phase.RUNNING) == ["QuotaReserved", "Admitted", "PodsReady"]
    assert true_ones(Phase.SUCCEEDED) == ["Finished"]


def test_a_condition_keeps_the_moment_since_when_it_is_so() -> None:
    first = unit_status(UNIT, {}, NOW)
    second = unit_status(replace(UNIT, phase=Phase.RUNNING), first, LATER)
    since = {each["type"]: each["lastTransitionTime"] for each in second["conditions"]}
    assert since["Admitted"] == LATER
    assert since["Finished"] == NOW


def test_a_status_that_says_the_same_later_is_not_written_again() -> None:
    first = unit_status(UNIT, {}, NOW)
    assert missing(unit_status(UNIT, first, LATER), first) == {}


def test_conditions_of_others_stay() -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "x", "message": "", "lastTransitionTime": NOW}
    status = unit_status(UNIT, {"conditions": [theirs]}, LATER)
    assert theirs in status["conditions"]


def test_an_evicted_unit_says_for_whom() -> None:
    status = unit_status(replace(UNIT, evicted_for="Job/team/big"), {}, NOW)
    evicted = next(each for each in status["conditions"] if each["type"] == "Evicted")
    assert (evicted["status"], evicted["reason"]) == ("True", "Preempted")
    assert "Job/team/big" in evicted["message"]
