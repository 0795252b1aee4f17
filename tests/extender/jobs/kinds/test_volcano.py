"""Volcano's Job: tasks, phases, the mark that holds its PodGroup, Commands; PodGroups made unasked (rule 23.6)."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import marks, table, volcano
from hived_extender.jobs.kinds.description import Description
from hived_extender.jobs.kinds.kind import Verb
from hived_extender.jobs.kinds.koordinator import GROUP_NAME, MIN_AVAILABLE
from hived_extender.jobs.kinds.volcano import GROUP_NAMES, MINIMUM, QUEUE
from hived_extender.jobs.wire import Owner
from tests.extender.jobs.kinds.descriptions import TRAIN, Cluster, describe, make_pod, podgroup_ref, podgroups
from tests.extender.jobs.kinds.descriptions import UID as POD_UID
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


# PodGroups that Volcano's controller makes for pods of others

OWNER = Owner("Job", "train", "99999999-8888-7777-6666-555555555555", True)
MADE_FOR = {None: {GROUP_NAMES[0]: f"podgroup-{POD_UID}"}, OWNER: {GROUP_NAMES[0]: f"podgroup-{OWNER.uid}"}}
LABELLED = {GROUP_NAME: "train", MIN_AVAILABLE: "3"}


def made(owner: Owner | None, spec: Any) -> Cluster:
    return podgroups(volcano.PODGROUPS.group, spec, name=MADE_FOR[owner][GROUP_NAMES[0]])


@pytest.mark.parametrize("owner", MADE_FOR)
@pytest.mark.parametrize("minimum", [1, 3])
def test_a_podgroup_that_the_controller_made_is_overridden_by_a_gang_of_another_dialect(
    owner: Owner | None, minimum: int
) -> None:
    written = MADE_FOR[owner] | {QUEUE: "research"}
    for objects in (made(owner, {"minMember": minimum, "queue": "research"}), Cluster()):
        said = describe(LABELLED, written, objects, owner=owner)
        assert said is not None
        assert (said.gang, said.minimum, said.queue, said.source, said.missing) == (TRAIN, 3, "research", None, None)


@pytest.mark.parametrize("owner", MADE_FOR)
@pytest.mark.parametrize("spec", [{"minMember": 1}, {}])
def test_a_podgroup_that_the_controller_made_for_one_pod_is_no_gang(owner: Owner | None, spec: Any) -> None:
    assert describe({}, MADE_FOR[owner], made(owner, spec), owner=owner) is None
    queued = spec | {"queue": "research"}
    assert describe({}, MADE_FOR[owner], made(owner, queued), owner=owner) == Description(
        volcano.VOLCANO.name, queue="research"
    )


def test_a_podgroup_that_the_controller_made_for_several_pods_is_a_gang() -> None:
    said = describe({}, MADE_FOR[OWNER], made(OWNER, {"minMember": 3}), owner=OWNER)
    assert said is not None
    assert (said.minimum, said.source) == (3, podgroup_ref(volcano.PODGROUPS.group, MADE_FOR[OWNER][GROUP_NAMES[0]]))
    before = describe({}, MADE_FOR[OWNER], Cluster(), owner=OWNER)
    assert before is not None
    assert before.missing


@pytest.mark.parametrize("written", [MADE_FOR[OWNER], MADE_FOR[OWNER] | {MINIMUM: "2"}, {GROUP_NAMES[0]: "train"}])
def test_a_podgroup_that_the_author_asked_for_is_not_overridden(written: dict[str, str]) -> None:
    owner = OWNER if MINIMUM in written else None
    with pytest.raises(UserError, match="dialects disagree"):
        describe(LABELLED, written, podgroups(volcano.PODGROUPS.group, {"minMember": 2}), owner=owner)


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, False),
        ({}, MADE_FOR[None], False),
        ({}, {GROUP_NAMES[0]: "train"}, True),
        ({}, MADE_FOR[None] | {MINIMUM: "1"}, True),
        ({}, MADE_FOR[None] | {QUEUE: "research"}, True),
        (LABELLED, MADE_FOR[None], True),
    ],
)
def test_what_the_controller_writes_onto_every_pod_makes_it_none_of_ours(
    labels: dict[str, str], annotations: dict[str, str], expected: bool
) -> None:
    assert table.is_marked_by_author(make_pod(labels, annotations)) is expected
