"""The roles, terms, manager and state of each kind of job object, as its controller writes it (rules 24)."""

from collections.abc import Iterable
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.document import Part
from hived_extender.jobs.job import JobName, JobState
from hived_extender.jobs.kinds import gates, marks, table
from hived_extender.jobs.kinds.jobset import REPLICATED_JOB, Child, child_of
from hived_extender.jobs.kinds.kind import Verb
from tests.extender.jobs.kinds.api import Json, patched
from tests.extender.jobs.kinds.documents import (
    ALL,
    CREATED,
    SUSPENDED,
    UID,
    condition,
    job_object,
    job_spec,
    template,
    with_suspend,
)
from tests.extender.jobs.kinds.documents import owner as owned_by

HELD = {marks.HELD: "true"}
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/team/commands"
PODGROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups"


def made(name: str, status: Json | None = None, **spec: Any) -> Json:
    """The object of a kind with other fields of its spec."""
    version, kind, own = ALL[name]
    return job_object(version, kind, own | spec, status)


def test_each_kind_has_a_document() -> None:
    assert {kind for _, kind, _ in ALL.values()} == {each.kind for each in table.KINDS}


def batch(status: Json | None = None, **spec: Any) -> Json:
    return job_object("batch/v1", "Job", {"template": {}} | spec, status)


def ray_workers(**group: Any) -> Json:
    groups = [{"groupName": "w", "template": template(), **group}]
    return made("raycluster", headGroupSpec={"template": template(0)}, workerGroupSpecs=groups)


def job_sets(*limits: int | None) -> Json:
    """A JobSet whose Jobs have these limits."""
    jobs = [
        {"name": f"j{number}", "template": {"spec": job_spec(1, activeDeadlineSeconds=each)}}
        for number, each in enumerate(limits)
    ]
    return job_object("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": jobs})


def of(name: str, **counts: int) -> Json:
    """The status of one of the replicatedJobs of a JobSet."""
    return {"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0} | counts


def left(succeeded: int) -> Json:
    return {"replicaStatuses": {"worker": {"active": 1, "succeeded": succeeded}}}


MADE = job_object(*ALL["jobset"], ownerReferences=[owned_by("trainer.kubeflow.org/v1alpha1", "TrainJob")])
SHARED = job_object("ray.io/v1", "RayJob", {"clusterSelector": {"ray.io/cluster": "shared"}})
TASKS = {"taskStatusCount": {"worker": {"phase": {"Succeeded": 2, "Running": 1}}}}

ROLES = [
    # of a Job, pods at a time as are left
    (batch(), "train 1"),
    (batch(parallelism=0), ""),
    (batch(parallelism=4), "train 4"),
    (batch(parallelism=4, completions=10), "train 4"),
    (batch(parallelism=4, completions=2), "train 2"),
    (batch({"succeeded": 8}, parallelism=4, completions=10), "train 2"),
    (batch({"succeeded": 4}, parallelism=4, completions=4), "train 1"),
    (batch({"failed": 1, "active": 3}, parallelism=4), "train 4"),
    (batch({"succeeded": 1, "active": 3}, parallelism=4), "train 3"),
    (batch({"succeeded": 4}, parallelism=4), "train 1"),
    (batch({"failedIndexes": "0,2-3"}, parallelism=4, completions=4), "train 1"),
    (batch({"succeeded": 2, "failedIndexes": "1"}, parallelism=4, completions=6), "train 3"),
    (batch({"failedIndexes": "x-"}, parallelism=4, completions=4), "train 4"),
    # Jobs, replicas and tasks that have succeeded need no pods again, unless all have
    (made("jobset"), "driver 1, workers 8"),
    (made("jobset", {"replicatedJobsStatus": [of("driver"), of("workers", succeeded=1)]}), "driver 1, workers 4"),
    (
        made("jobset", {"replicatedJobsStatus": [of("driver", succeeded=1), of("workers", succeeded=2)]}),
        "driver 1, workers 8",
    ),
    (made("pytorch"), "master 1, worker 3"),
    (made("pytorch", {"replicaStatuses": {"Worker": {"active": 1, "succeeded": 2}}}), "master 1, worker 1"),
    (made("tensorflow"), "ps 2, worker 1"),
    (made("mpi-v1"), "launcher 1, worker 4"),
    (made("mpi-v2beta1"), "launcher 1, worker 4"),
    (made("elasticjob"), "worker 4"),
    (made("elasticjob", {"phase": "Running", **left(3)}), "worker 1"),
    (made("elasticjob", {"phase": "Running", "status": left(3)}), "worker 1"),
    (made("volcano"), "ps 2, worker 3"),
    (made("volcano", TASKS), "ps 2, worker 1"),
    (made("deployment"), "train 2"),
    (made("trainjob"), ""),
    # of Ray, a head, the hosts of each replica, and the submitter
    (made("raycluster"), "head 1, small 2, slices 8"),
    (made("rayjob"), "head 1, small 2, slices 8, submitter 1"),
    (made("rayjob", submissionMode="HTTPMode"), "head 1, small 2, slices 8"),
    (SHARED, ""),
    (ray_workers(replicas=3, minReplicas=1, maxReplicas=2), "head 1, w 2"),
    (ray_workers(minReplicas=2), "head 1, w 2"),
    (ray_workers(replicas=0), "head 1"),
    (ray_workers(replicas=2, suspend=True), "head 1"),
    (ray_workers(replicas=2, numOfHosts=0), "head 1, w 2"),
]


@pytest.mark.parametrize(("document", "roles"), ROLES)
def test_it_has_these_roles_with_so_many_pods(document: Json, roles: str) -> None:
    assert ", ".join(f"{role.name} {role.count}" for role in table.read(document).roles) == roles


def test_the_template_of_a_role_is_that_of_the_object() -> None:
    assert table.read(made("batch")).roles[0].template == made("batch")["spec"]["template"]


@pytest.mark.parametrize(
    ("document", "terms"),
    [
        (batch(activeDeadlineSeconds=600), {"limit_s": 600.0}),
        (made("pytorch"), {"queue": "research", "priority_class": "urgent", "limit_s": None, "min_count": None}),
        (made("pytorch", elasticPolicy={"minReplicas": 2}), {"min_count": 2}),
        (made("mpi-v2beta1"), {"limit_s": 3600.0}),
        (made("rayjob"), {"limit_s": 7200.0}),
        # that of the longest Job, if each has one
        (job_sets(60, 90), {"limit_s": 90.0}),
        (job_sets(60, None), {"limit_s": None}),
        (made("volcano"), {"min_count": 5, "queue": "default", "scheduler": "hived", "priority_class": "urgent"}),
        (job_object("batch.volcano.sh/v1alpha1", "Job", {}), {"scheduler": "volcano"}),
    ],
)
def test_it_says_queue_class_limit_and_least_number_of_pods(document: Json, terms: Json) -> None:
    job = table.read(document)
    assert {name: getattr(job, name) for name in terms} == terms


@pytest.mark.parametrize(
    ("document", "manager"),
    [
        (MADE, JobName("trainer.kubeflow.org", "TrainJob", "team", "train")),
        *(
            (
                job_object(*ALL["raycluster"], ownerReferences=[owned_by("ray.io/v1", kind, "owner")]),
                JobName("ray.io", kind, "team", "owner"),
            )
            for kind in ("RayJob", "RayService")
        ),
        (
            job_object(*ALL["batch"], ownerReferences=[owned_by("jobset.x-k8s.io/v1alpha2", "JobSet", "set")]),
            JobName("jobset.x-k8s.io", "JobSet", "team", "set"),
        ),
    ],
)
def test_one_that_another_one_manages_has_no_turn_of_its_own(document: Json, manager: JobName) -> None:
    assert table.read(document).manager == manager


def test_a_train_job_has_the_roles_of_the_job_set_that_it_names() -> None:
    assert table.read(made("trainjob")).roles_in == JobName("jobset.x-k8s.io", "JobSet", "team", "train")
    assert table.read(made("trainjob"), MADE).roles == table.read(MADE).roles != ()


# ---- pods of a JobSet by its Jobs


def child(pods: int = 4, completions: int | None = 4, role: str = "workers", **status: Any) -> Child:
    """A Job of a JobSet."""
    spec = {key: value for key, value in (job_spec(pods) | {"completions": completions}).items() if value is not None}
    document = job_object("batch/v1", "Job", spec, status, labels={REPLICATED_JOB: role})
    return child_of(document, table.read(document))


def workers(status: Any, children: Iterable[Child]) -> int:
    """The pods of the workers."""
    roles = table.read(made("jobset", status), children=tuple(children)).roles
    return {role.name: role.count for role in roles}["workers"]


COMPLETE = [condition("Complete")]
RUNS = {"replicatedJobsStatus": [of("driver", active=1), of("workers", active=2)]}


@pytest.mark.parametrize(
    ("children", "count"),
    [
        ([child()], 8),
        ([child(succeeded=3, active=1)], 5),
        ([child(succeeded=3, active=1), child(succeeded=2, active=2)], 3),
        ([child(succeeded=4, active=0)], 5),  # its Job is about to be complete
        ([child(succeeded=4, conditions=COMPLETE)], 4),  # before the JobSet says so
        ([child(completions=10, succeeded=6, active=4)], 8),  # others come
        ([child(completions=10, succeeded=7, active=3)], 7),
        ([child(completions=None, succeeded=1, active=2)], 6),  # it makes no pods any more
        ([child(failedIndexes="1,3", active=2)], 6),
        ([child(role="driver", pods=1, completions=1, succeeded=1)], 8),
        ([child(role="other", succeeded=3)], 8),
        ([child(succeeded=4, conditions=COMPLETE), child(succeeded=4, conditions=COMPLETE)], 1),
    ],
)
def test_pods_of_a_job_that_come_no_more_are_not_needed(children: list[Child], count: int) -> None:
    assert workers(RUNS, children) == count


def test_a_job_that_the_set_counts_is_not_left_out_twice() -> None:
    status = {"replicatedJobsStatus": [of("driver", active=1), of("workers", active=1, succeeded=1)]}
    assert workers(status, [child(succeeded=4, conditions=COMPLETE), child(succeeded=2, active=2)]) == 2


# ---- states


def ray_job(deployment: str, job: str = "") -> Json:
    return {"jobDeploymentStatus": deployment, "jobStatus": job}


def ended(kind: str) -> Json:
    return {"conditions": [condition(kind)]}


SET_BY_AUTHOR, RESUMED = [condition("Suspended")], [condition("Suspended", "False")]
KUBEFLOW = ("pytorch", "tensorflow", "mpi-v1", "mpi-v2beta1")
STATES: list[tuple[str, bool, Json | None, str]] = [
    ("batch", True, {}, "HELD"),
    ("batch", True, {"conditions": SET_BY_AUTHOR}, "HELD"),
    ("batch", True, {"active": 2, "startTime": CREATED}, "LEAVING"),
    ("batch", True, {"conditions": SET_BY_AUTHOR, "terminating": 1}, "LEAVING"),
    ("batch", True, {"conditions": RESUMED, "startTime": CREATED}, "LEAVING"),
    ("batch", True, {"startTime": CREATED}, "LEAVING"),
    ("batch", False, {"conditions": RESUMED, "active": 4}, "RESUMED"),
    ("batch", False, {"conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}, "SUCCEEDED"),
    ("batch", True, ended("Complete"), "SUCCEEDED"),
    ("batch", False, {"conditions": [condition("FailureTarget"), condition("Failed")]}, "FAILED"),
    ("batch", False, {"conditions": [condition("Failed", "False")]}, "RESUMED"),
    ("jobset", True, {"conditions": SET_BY_AUTHOR, "replicatedJobsStatus": [of("workers", suspended=2)]}, "HELD"),
    ("jobset", True, {"conditions": SET_BY_AUTHOR, "replicatedJobsStatus": [of("workers", active=2)]}, "LEAVING"),
    ("jobset", True, {"conditions": RESUMED}, "LEAVING"),
    ("jobset", True, {"replicatedJobsStatus": [of("workers")]}, "LEAVING"),  # its Jobs are there and have no pods yet
    ("jobset", True, None, "HELD"),
    ("jobset", False, {**ended("Completed"), "terminalState": "Completed"}, "SUCCEEDED"),
    ("jobset", False, {**ended("Failed"), "terminalState": "Failed"}, "FAILED"),
    *(
        (name, True, status, state)
        for name in KUBEFLOW
        for status, state in (
            ({"conditions": [condition("Created"), *SET_BY_AUTHOR], "replicaStatuses": {"Worker": {}}}, "HELD"),
            ({"conditions": SET_BY_AUTHOR, "replicaStatuses": {"Worker": {"active": 1}}}, "LEAVING"),
            ({"conditions": [*RESUMED, condition("Running")]}, "LEAVING"),
            ({"conditions": [condition("Running", "False"), condition("Succeeded")]}, "SUCCEEDED"),
            (ended("Failed"), "FAILED"),
        )
    ),
    ("trainjob", True, {"conditions": SET_BY_AUTHOR}, "HELD"),
    ("trainjob", True, {"conditions": SET_BY_AUTHOR, "jobsStatus": [{"name": "node", "active": 1}]}, "LEAVING"),
    ("trainjob", True, {"conditions": RESUMED}, "LEAVING"),
    ("trainjob", True, {"jobsStatus": [{"name": "node", "active": 0}]}, "LEAVING"),
    ("trainjob", True, None, "HELD"),
    ("trainjob", True, ended("Complete"), "SUCCEEDED"),
    ("trainjob", True, ended("Failed"), "FAILED"),
    ("elasticjob", True, {"phase": "Suspended"}, "HELD"),
    ("elasticjob", True, {"phase": "Running", "replicaStatuses": {"worker": {"active": 4}}}, "LEAVING"),
    ("elasticjob", True, {"phase": "Running", "status": {"replicaStatuses": {"worker": {"pending": 1}}}}, "LEAVING"),
    ("elasticjob", True, {"phase": "Succeeded"}, "SUCCEEDED"),
    ("elasticjob", True, {"phase": "Failed"}, "FAILED"),
    ("rayjob", True, ray_job(""), "HELD"),
    ("rayjob", True, ray_job("Suspended"), "HELD"),
    ("rayjob", True, ray_job("Suspending", "RUNNING"), "LEAVING"),
    ("rayjob", True, ray_job("Running", "RUNNING"), "LEAVING"),
    ("rayjob", False, ray_job("Suspended"), "RESUMED"),
    ("rayjob", False, ray_job("Complete", "SUCCEEDED"), "SUCCEEDED"),
    ("rayjob", False, ray_job("Complete", "FAILED"), "FAILED"),
    ("rayjob", False, ray_job("Complete", "STOPPED"), "FAILED"),
    ("rayjob", False, ray_job("Failed", "FAILED"), "FAILED"),
    ("rayjob", False, ray_job("Retrying", "FAILED"), "RESUMED"),
    ("raycluster", True, {}, "HELD"),
    ("raycluster", True, {"observedGeneration": 1}, "LEAVING"),  # its pods are not all ready yet
    ("raycluster", True, {"state": "suspended", "observedGeneration": 2}, "HELD"),
    ("raycluster", True, {"state": "ready", "observedGeneration": 1}, "LEAVING"),
    ("raycluster", True, {"state": "suspended", "observedGeneration": 2, **ended("RayClusterSuspended")}, "HELD"),
    (
        "raycluster",
        True,
        {
            "state": "suspended",
            "observedGeneration": 3,  # it was resumed since
            "conditions": [condition("RayClusterSuspended", "False")],
        },
        "LEAVING",
    ),
    ("volcano", False, {"state": {"phase": "Pending"}}, "RESUMED"),
    ("volcano", True, {}, "HELD"),
    ("volcano", True, {"state": {"phase": "Pending"}, "minAvailable": 5}, "HELD"),
    ("volcano", True, {"state": {"phase": "Pending"}, "pending": 3}, "LEAVING"),
    ("volcano", True, {"state": {"phase": "Running"}, "running": 5}, "LEAVING"),
    ("volcano", True, {"state": {"phase": "Aborting"}, "terminating": 2}, "LEAVING"),
    ("volcano", True, {"state": {"phase": "Aborted"}}, "HELD"),
    ("volcano", False, {"state": {"phase": "Aborted"}}, "HELD"),
    ("volcano", False, {"state": {"phase": "Running"}, "running": 5}, "RESUMED"),
    ("volcano", False, {"state": {"phase": "Restarting"}}, "RESUMED"),
    ("volcano", False, {"state": {"phase": "Completed"}, "succeeded": 5}, "SUCCEEDED"),
    ("volcano", True, {"state": {"phase": "Terminated"}}, "FAILED"),
    ("volcano", True, {"state": {"phase": "Failed"}}, "FAILED"),
    ("deployment", True, {"replicas": 2, "readyReplicas": 1}, "LEAVING"),  # some pods are ready
]
"""A kind, whether it is suspended, by its own field or by our mark, its status, and its state."""


@pytest.mark.parametrize(("name", "is_suspended", "status", "state"), STATES)
def test_its_state_follows_from_its_status(name: str, is_suspended: bool, status: Json | None, state: str) -> None:
    document = job_object(*ALL[name], status, annotations=HELD if is_suspended else {})
    if name in SUSPENDED:
        document = job_object(*with_suspend(name, is_suspended), status)
    assert table.read(document).state is JobState[state]


# ---- writes of single kinds


def test_a_job_without_a_run_policy_gets_one_at_creation() -> None:
    version, kind, spec = ALL["pytorch"]
    bare = job_object(version, kind, {key: value for key, value in spec.items() if key != "runPolicy"})
    (suspend, _) = table.hold_at_creation(bare)
    assert suspend == {"op": "add", "path": "/spec/runPolicy", "value": {"suspend": True}}


def test_a_train_job_is_born_with_a_mark_that_says_who_holds_it() -> None:
    paths = [operation["path"] for operation in table.hold_at_creation(made("trainjob"))]
    assert paths == ["/spec/suspend", "/metadata/annotations"]
    assert table.hold_at_creation(made("trainjob"))[1]["value"] == HELD


def test_a_ray_job_is_born_held_only_if_its_cluster_is_its_own_and_ends_with_it() -> None:
    assert table.hold_at_creation(SHARED) == []
    with pytest.raises(UserError, match=r"^RayJob team/train: .* set spec\.shutdownAfterJobFinishes to true$"):
        table.hold_at_creation(made("rayjob", shutdownAfterJobFinishes=False))


def test_a_job_of_volcano_is_called_back_by_the_mark_and_then_an_abort_command() -> None:
    mark, command = table.suspend(table.read(made("volcano")).ref)
    assert mark.body == {"metadata": {"uid": UID, "annotations": HELD}}
    assert (command.verb, command.path, command.body["action"]) == (Verb.CREATE, COMMANDS, "AbortJob")
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": UID, "controller": True}
    assert command.body["target"] == target
    assert command.body["metadata"]["ownerReferences"] == [target]


def test_a_job_of_volcano_is_let_go_from_the_job_to_its_pod_group_and_resumed_at_last() -> None:
    mark, *groups, command = table.resume(table.read(job_object(*ALL["volcano"], annotations=HELD)).ref)
    assert mark.body["metadata"]["annotations"][marks.HELD] is None
    assert [write.path for write in groups] == [f"{PODGROUPS}/train-{UID}", f"{PODGROUPS}/train"]
    expected = {"metadata": {"annotations": HELD | {marks.HELD: None}}}
    assert all(write.may_be_missing and write.body == expected for write in groups)
    assert command.body["action"] == "ResumeJob"


def test_the_patch_at_creation_keeps_other_annotations() -> None:
    patch = table.hold_at_creation(job_object(*ALL["volcano"], annotations={"a": "b"}))
    assert patch == [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b", **HELD}}]


def test_a_deployment_is_born_with_the_gate_in_its_template_beside_those_of_others() -> None:
    document = made("deployment", template=template())
    document["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    spec = patched(document, table.hold_at_creation(document))["spec"]["template"]["spec"]
    assert spec["schedulingGates"] == [{"name": "example.com/quota"}, {"name": gates.GATE}]
    assert gates.is_gated(Part("spec.", spec))


def test_a_gate_is_lifted_by_its_name_and_only_from_that_very_pod_which_may_be_gone_to_be_called_back() -> None:
    write = gates.remove_gate("team", "serve-0", UID)
    assert (write.verb, write.path) == (Verb.PATCH_LISTS, "/api/v1/namespaces/team/pods/serve-0")
    assert write.body["metadata"] == {"uid": UID}
    assert write.body["spec"] == {"schedulingGates": [{"name": gates.GATE, "$patch": "delete"}]}
    write = gates.delete_pod("team", "serve-0", UID)
    assert (write.verb, write.uid, write.may_be_missing) == (Verb.DELETE, UID, True)
