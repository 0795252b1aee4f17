"""Volcano's Job: tasks, phases, the mark that keeps its PodGroup out, and Commands."""

from typing import Any

import pytest

from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import marks, table
from hived_extender.jobs.kinds.kind import Verb
from tests.extender.jobs.kinds.documents import UID, VOLCANO, job_object

HELD = {marks.HELD: "true"}
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/team/commands"
PODGROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups"


def test_each_task_is_a_role() -> None:
    job = table.read(job_object(*VOLCANO))
    assert [(role.name, role.count) for role in job.roles] == [("ps", 2), ("worker", 3)]
    assert (job.min_count, job.queue, job.scheduler, job.priority_class) == (5, "default", "hived", "urgent")


def test_pods_of_a_task_that_have_succeeded_need_no_cells_again() -> None:
    status = {"taskStatusCount": {"worker": {"phase": {"Succeeded": 2, "Running": 1}}}}
    assert [role.count for role in table.read(job_object(*VOLCANO, status)).roles] == [2, 1]


def test_a_job_that_names_no_scheduler_is_for_volcanos() -> None:
    assert table.read(job_object("batch.volcano.sh/v1alpha1", "Job", {})).scheduler == "volcano"


@pytest.mark.parametrize(
    ("annotations", "status", "state"),
    [
        ({}, {"state": {"phase": "Pending"}}, "LET_GO"),
        (HELD, {}, "HELD"),
        (HELD, {"state": {"phase": "Pending"}, "minAvailable": 5}, "HELD"),
        (HELD, {"state": {"phase": "Pending"}, "pending": 3}, "LEAVING"),
        (HELD, {"state": {"phase": "Running"}, "running": 5}, "LEAVING"),
        (HELD, {"state": {"phase": "Aborting"}, "terminating": 2}, "LEAVING"),
        (HELD, {"state": {"phase": "Aborted"}}, "HELD"),
        ({}, {"state": {"phase": "Aborted"}}, "HELD"),
        ({}, {"state": {"phase": "Running"}, "running": 5}, "LET_GO"),
        ({}, {"state": {"phase": "Restarting"}}, "LET_GO"),
        ({}, {"state": {"phase": "Completed"}, "succeeded": 5}, "SUCCEEDED"),
        (HELD, {"state": {"phase": "Terminated"}}, "FAILED"),
        (HELD, {"state": {"phase": "Failed"}}, "FAILED"),
    ],
)
def test_its_state_follows_from_the_mark_and_the_phase(annotations: Any, status: Any, state: str) -> None:
    assert table.read(job_object(*VOLCANO, status, annotations=annotations)).state is JobState[state]


def test_it_is_called_back_by_the_mark_and_then_an_abort_command() -> None:
    mark, command = table.suspend(table.read(job_object(*VOLCANO)).ref)
    assert mark.body == {"metadata": {"uid": UID, "annotations": HELD}}
    assert (command.verb, command.path, command.body["action"]) == (Verb.CREATE, COMMANDS, "AbortJob")
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": UID, "controller": True}
    assert command.body["target"] == target
    assert command.body["metadata"]["ownerReferences"] == [target]


def test_it_is_let_go_from_the_job_to_its_pod_group_and_resumed_at_last() -> None:
    mark, *groups, command = table.resume(table.read(job_object(*VOLCANO, annotations=HELD)).ref)
    assert mark.body["metadata"]["annotations"][marks.HELD] is None
    assert [write.path for write in groups] == [f"{PODGROUPS}/train-{UID}", f"{PODGROUPS}/train"]
    assert all(
        write.may_be_missing and write.body == {"metadata": {"annotations": HELD | {marks.HELD: None}}}
        for write in groups
    )
    assert command.body["action"] == "ResumeJob"


def test_the_patch_at_creation_keeps_other_annotations() -> None:
    patch = table.hold_at_creation(job_object(*VOLCANO, annotations={"a": "b"}))
    assert patch == [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b", marks.HELD: "true"}}]
