"""Situations of jobs, and what is seen of a job and its pods then: played on the embedded cluster, and by
`make e2e-controllers` with the real controllers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hived_extender.kube.client import KubeClient
from hived_lab.embedded.nodes import EXIT_CODE, RUN_SECONDS, STOP_SECONDS
from tests.expecting import expect_equal

NODE = "n1"
PODS = "/api/v1/namespaces/{}/pods"
KINDS = {
    "Job": ("batch/v1", ""),
    "PyTorchJob": ("kubeflow.org/v1", "pytorch"),
    "TFJob": ("kubeflow.org/v1", "tensorflow"),
    "MPIJob": ("kubeflow.org/v1", "mpi"),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", ""),
}
"""The API version of each kind, and the name that its containers have to have."""

ENDS = ("Suspended", "Succeeded", "Failed")
"""The conditions of jobs of Kubeflow that the stand-in has."""
INDEX = "batch.kubernetes.io/job-completion-index"
_MARKS = {
    "global-replicas": "3", "group-name": "work", "group-replicas": "1", "job-global-index": "2",
    "job-group-index": "0", "job-index": "0", "job-key": "known", "jobset-name": "one", "jobset-uid": "known",
    "replicatedjob-name": "work", "replicatedjob-replicas": "1", "restart-attempt": "0",
}  # fmt: skip
_JOB_SET = "jobset.sigs.k8s.io/"
JOB_SET_MARKS = {f"{_JOB_SET}{name}": value for name, value in _MARKS.items()}
"""Labels of the pods of a JobSet, which are annotations as well."""
FAILURES = "batch.kubernetes.io/job-index-failure-count"
TOLD = {"told": "yes"}
TEMPLATE = {
    "metadata": {"name": "not-read", "annotations": TOLD},
    "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
}
OWNER = {
    "apiVersion": "batch/v1", "kind": "Job", "name": "one", "uid": "", "controller": True, "blockOwnerDeletion": True
}  # fmt: skip
LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")

Json = dict[str, Any]


class See(NamedTuple):
    """What is seen soon: of its status what is not 0, of its pods phase and index, sorted."""

    pods: Sequence[str] = ()
    counts: Mapping[str, Any] = {}
    conditions: Sequence[str] = ()
    is_started: bool = True


class Ends(NamedTuple):
    """Running pods that end with this code: so many, or those of these indexes or names besides the job's."""

    count: int = 1
    code: int = 0
    indexes: Sequence[int | str] = ()


class Deletes(NamedTuple):
    """A running pod that somebody deletes, or evicts."""

    is_evicted: bool = False


class DeletesJob(NamedTuple):
    """A Job of a JobSet that somebody deletes."""

    name: str


class Patches(NamedTuple):
    """A change of the Job's spec."""

    spec: Json


class Gone(NamedTuple):
    """Job and pods are gone soon; with `is_deleted` since somebody deletes the Job."""

    is_deleted: bool = False


class Shape(NamedTuple):
    """What its only pod has: a name that begins so, labels, annotations, a host name, variables."""

    base: str
    labels: tuple[str, ...] = LABELS
    annotations: Mapping[str, str] = TOLD
    hostname: str = ""
    variables: tuple[str, ...] = ()


Step = See | Ends | Deletes | DeletesJob | Patches | Gone | Shape


@dataclass(frozen=True)
class Situation:
    """A job with this spec, and the steps one after another."""

    spec: Json
    steps: Sequence[Step]
    kind: str = "Job"


_PHASES = {"-": "Failed", "+": "Succeeded"}


def _pods(text: str) -> list[str]:
    """The phases and names of pods: those with - have failed, with + succeeded."""
    return [f"{_PHASES.get(pod[-1], 'Running')} {pod.rstrip('+-')}" for pod in text.split()]


def _look(text: str, *conditions: str, is_started: bool = True, **counts: Any) -> See:
    """Pods of a Job: each word a pod of that index, or else each letter a pod: r runs, + has succeeded, - has failed.

    The counts of the status follow from the pods, but for those given.
    """
    is_indexed = any(map(str.isdecimal, text))
    pods = _pods(text) if is_indexed else [_PHASES.get(pod, "Running") for pod in text]
    done, failed = ([pod for pod in pods if pod.startswith(phase)] for phase in ("Succeeded", "Failed"))
    running = len(pods) - len(done) - len(failed)
    known = {"active": running, "ready": running, "succeeded": len(done), "failed": len(failed)}
    if is_indexed:
        known["completedIndexes"] = _written([int(pod.rpartition(" ")[2]) for pod in done])
    return See(pods, {key: value for key, value in {**known, **counts}.items() if value}, conditions, is_started)


def _written(indexes: Sequence[int]) -> str:
    """Indexes as a status has them: 1-3 or 1,2,5."""
    is_run = len(indexes) > 2 and indexes[-1] - indexes[0] == len(indexes) - 1
    return f"{indexes[0]}-{indexes[-1]}" if is_run else ",".join(map(str, indexes))


def _complete(text: str, **counts: Any) -> See:
    reason = "CompletionsReached"
    conditions = f"SuccessCriteriaMet=True {reason}", f"Complete=True {reason}"
    return _look(text, *conditions, completionTime="known", **counts)


def _failed(reason: str, text: str, **counts: Any) -> See:
    return _look(text, f"FailureTarget=True {reason}", f"Failed=True {reason}", **counts)


_TWO = {"parallelism": 2, "completions": 2}
_INDEXED = {"completionMode": "Indexed", **_TWO}
_PER_INDEX = {**_INDEXED, "backoffLimitPerIndex": 0}
_FAIL_0, _FAIL_1 = Ends(code=1, indexes=[0]), Ends(code=1, indexes=[1])
_RESUMED, _RESUME, _SUSPEND = "Suspended=False JobResumed", Patches({"suspend": False}), Patches({"suspend": True})


def _held(text: str = "") -> See:
    return _look(text, "Suspended=True JobSuspended", is_started=False)


SITUATIONS: Mapping[str, Situation] = {
    "more completions than pods at a time": Situation(
        {"parallelism": 2, "completions": 3}, [_look("rr"), Ends(), _look("rr+"), Ends(2), _complete("+++")]
    ),
    "fewer completions than pods at a time": Situation(
        {"parallelism": 3, "completions": 1}, [_look("r"), Ends(), _complete("+")]
    ),
    "no completions": Situation({"parallelism": 2}, [_look("rr"), Ends(), _look("r+"), Ends(), _complete("++")]),
    "no completions, and the last pod fails": Situation(
        {"parallelism": 2}, [_look("rr"), Ends(), _look("r+"), Ends(code=1), _complete("-+")]
    ),
    "none to complete": Situation({"completions": 0}, [_complete("")]),
    "fewer pods at a time": Situation(
        {"parallelism": 3, "completions": 4},
        [_look("rrr"), Patches({"parallelism": 1}), _look("r"), Ends(), _look("r+")],
    ),
    "more pods at a time": Situation(
        {"parallelism": 1, "completions": 4}, [_look("r"), Patches({"parallelism": 3}), _look("rrr")]
    ),
    "no pods at a time": Situation(
        _TWO, [_look("rr"), Patches({"parallelism": 0}), See(), Patches({"parallelism": 2}), _look("rr")]
    ),
    "a failed pod is replaced": Situation(
        {"backoffLimit": 1}, [_look("r"), Ends(code=1), _look("r-"), Ends(), _complete("-+")]
    ),
    "one failure too many": Situation(
        {"backoffLimit": 1},
        [_look("r"), Ends(code=1), _look("r-"), Ends(code=3), _failed("BackoffLimitExceeded", "--")],
    ),
    "a failure with other pods at work": Situation(
        {**_TWO, "backoffLimit": 0}, [_look("rr"), Ends(code=1), _failed("BackoffLimitExceeded", "-", failed=2)]
    ),
    "a failure after a success": Situation(
        {**_TWO, "backoffLimit": 0},
        [_look("rr"), Ends(), _look("r+"), Ends(code=1), _failed("BackoffLimitExceeded", "-+")],
    ),
    "a deleted pod": Situation(_TWO, [_look("rr"), Deletes(), _look("rr", failed=1)]),
    "an evicted pod": Situation(
        {"backoffLimit": 0}, [_look("r"), Deletes(is_evicted=True), _failed("BackoffLimitExceeded", "", failed=1)]
    ),
    "a failed pod of a Job that waits for the end of pods": Situation(
        {"podReplacementPolicy": "Failed"}, [_look("r"), Ends(code=1), _look("r-")]
    ),
    "too long": Situation({"activeDeadlineSeconds": 2}, [_failed("DeadlineExceeded", "", failed=1)]),
    "suspended, resumed and suspended again": Situation(
        {**_TWO, "suspend": True},
        [_held(), _RESUME, _look("rr", _RESUMED), _SUSPEND, _held(), _RESUME, _look("rr", _RESUMED)],
    ),
    "suspended with half of its pods done": Situation(
        _TWO, [_look("rr"), Ends(), _look("r+"), _SUSPEND, _held("+"), _RESUME, _look("r+", _RESUMED)]
    ),
    "suspended by birth, and never too long": Situation(
        {"suspend": True, "activeDeadlineSeconds": 600}, [_held(), _RESUME, _look("r", _RESUMED)]
    ),
    "indexes one after another": Situation(
        {"completionMode": "Indexed", "parallelism": 2, "completions": 4},
        [
            _look("0 1"),
            Ends(indexes=[1]),
            _look("0 1+ 2"),
            Ends(indexes=[2]),
            _look("0 1+ 2+ 3"),
            Ends(indexes=[3]),
            _look("0 1+ 2+ 3+"),
            Ends(),
            _complete("0+ 1+ 2+ 3+"),
        ],
    ),
    "a failed index is tried again": Situation(_INDEXED, [_look("0 1"), _FAIL_1, _look("0 1 1-")]),
    "fewer indexes": Situation(_INDEXED, [_look("0 1"), Patches({"parallelism": 1, "completions": 1}), _look("0")]),
    "more indexes": Situation(_INDEXED, [_look("0 1"), Patches({"parallelism": 3, "completions": 3}), _look("0 1 2")]),
    "an index fails for good": Situation(
        _PER_INDEX,
        [
            _look("0 1"),
            _FAIL_0,
            _look("0- 1", failedIndexes="0"),
            Ends(indexes=[1]),
            _failed("FailedIndexes", "0- 1+", failedIndexes="0"),
        ],
    ),
    "an index is tried again, and fails for good": Situation(
        {**_INDEXED, "backoffLimitPerIndex": 1},
        [_look("0 1"), _FAIL_0, _look("0 0- 1"), _FAIL_0, _look("0- 0- 1", failedIndexes="0")],
    ),
    "an index is tried again, and succeeds": Situation(
        {**_INDEXED, "backoffLimitPerIndex": 1},
        [
            _look("0 1"),
            Ends(indexes=[1]),
            _look("0 1+"),
            _FAIL_0,
            _look("0 0- 1+"),
            Ends(indexes=[0]),
            _complete("0+ 0- 1+"),
        ],
    ),
    "more failed indexes than it may have": Situation(
        {**_PER_INDEX, "maxFailedIndexes": 0},
        [_look("0 1"), _FAIL_1, _failed("MaxFailedIndexesExceeded", "1-", failed=2, failedIndexes="1")],
    ),
    "as many failed indexes as it may have": Situation(
        {**_PER_INDEX, "completions": 3, "maxFailedIndexes": 1},
        [_look("0 1"), _FAIL_1, _look("0 1- 2", failedIndexes="1")],
    ),
    "pods": Situation({}, [_look("r"), Shape("one-")]),
    "pods of indexes": Situation(
        {"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1},
        [
            _look("0"),
            Shape("one-0-", (*LABELS, INDEX), {**TOLD, INDEX: "0", FAILURES: "0"}, "one-0", ("JOB_COMPLETION_INDEX",)),
        ],
    ),
    "deleted": Situation(_TWO, [_look("rr"), Ends(), _look("r+"), Gone(is_deleted=True)]),
    "removed some time after its end": Situation({"ttlSecondsAfterFinished": 1}, [_look("r"), Ends(), Gone()]),
    "of another controller": Situation({"managedBy": "example.com/own"}, [See(is_started=False)]),
}


def _roles(kind: str, restart: str = "", **roles: int) -> Json:
    """The roles of a job of Kubeflow, each with so many pods."""
    spec = {**TEMPLATE["spec"], "containers": [{"name": KINDS[kind][1], "image": "x"}]}
    policy = {"restartPolicy": restart} if restart else {}
    template = {"metadata": {"annotations": TOLD}, "spec": spec}
    return {role: {"replicas": count, "template": template, **policy} for role, count in roles.items()}


def _pytorch(
    steps: Sequence[Step], restart: str = "", *, policy: Mapping[str, Any] | None = None, **roles: int
) -> Situation:
    made = _roles("PyTorchJob", restart, **(roles or {"Master": 1, "Worker": 2}))
    return Situation({"pytorchReplicaSpecs": made, "runPolicy": policy or {}}, steps, "PyTorchJob")


def _tensorflow(steps: Sequence[Step], **roles: int) -> Situation:
    return Situation({"tfReplicaSpecs": _roles("TFJob", "", **roles)}, steps, "TFJob")


def _mpi(steps: Sequence[Step]) -> Situation:
    return Situation({"mpiReplicaSpecs": _roles("MPIJob", Launcher=1, Worker=1)}, steps, "MPIJob")


_ROLES = {"master": "Master", "worker": "Worker", "ps": "PS", "launcher": "Launcher"}


def _seen(pods: str, *conditions: str, is_started: bool = True, is_timed: bool = True, **others: Json) -> See:
    """Pods of a job of Kubeflow: those with - have failed, with + succeeded.

    What its status counts for each role follows from them, but for the roles given.
    """
    counts: dict[str, Json] = {}
    for pod in pods.split():
        of_role = counts.setdefault(_ROLES[pod.partition("-")[0].rstrip("+-")], {})
        how = {"-": "failed", "+": "succeeded"}.get(pod[-1], "active")
        of_role[how] = of_role.get(how, 0) + 1
    is_over = any("Suspended" not in one for one in conditions)
    known = {"completionTime": "known"} if is_over and is_timed else {}
    return See(
        _pods(pods), {role: its for role, its in {**counts, **others}.items() if its} | known, conditions, is_started
    )


_STARTED = _seen("master-0 worker-0 worker-1")
_FAIL_WORKER, _DONE_WORKER = Ends(code=1, indexes=["worker-1"]), Ends(indexes=["worker-1"])
_FAILED_WORKER = _seen("master-0 worker-0 worker-1-", "Failed=True PyTorchJobFailed")


def _succeeding(left: str) -> list[Step]:
    """A worker ends, then the master, after which these pods are left."""
    ends = {"Master": {"succeeded": 1}, "Worker": {"succeeded": 2}}
    return [
        _STARTED,
        _DONE_WORKER,
        _seen("master-0 worker-0 worker-1+"),
        Ends(indexes=["master-0"]),
        _seen(left, "Succeeded=True PyTorchJobSucceeded", **ends),
    ]


KUBEFLOW: Mapping[str, Situation] = {
    "a master has succeeded": _pytorch(_succeeding("master-0+ worker-0 worker-1+")),
    "workers without a master": _pytorch(
        [
            _seen("worker-0 worker-1"),
            Ends(indexes=["worker-0"]),
            _seen("worker-0+ worker-1"),
            _DONE_WORKER,
            _seen("worker-0+ worker-1+", "Succeeded=True PyTorchJobSucceeded"),
        ],
        Worker=2,
    ),
    "a failed worker that is replaced": _pytorch([_STARTED, _FAIL_WORKER, _STARTED], "OnFailure"),
    "a failed worker that is not replaced": _pytorch([_STARTED, _FAIL_WORKER, _FAILED_WORKER], "Never"),
    "a worker that failed by its own fault": _pytorch(
        [_STARTED, _FAIL_WORKER, _seen("master-0 worker-0 worker-1-", "Failed=True PyTorchJobFailed", is_timed=False)],
        "ExitCode",
    ),
    "a worker that its machine failed": _pytorch(
        [_STARTED, Ends(code=137, indexes=["worker-1"]), _STARTED], "ExitCode"
    ),
    "suspended and resumed": _pytorch(
        [
            _seen("", "Suspended=True PyTorchJobSuspended", is_started=False),
            Patches({"runPolicy": {"suspend": False}}),
            _STARTED._replace(conditions=["Suspended=False PyTorchJobResumed"]),
        ],
        policy={"suspend": True},
    ),
    "running pods go with its end": _pytorch(_succeeding("master-0+ worker-1+"), policy={"cleanPodPolicy": "Running"}),
    "all pods go with its failure": _pytorch(
        [_STARTED, _FAIL_WORKER, _FAILED_WORKER._replace(pods=[])], "Never", policy={"cleanPodPolicy": "All"}
    ),
    "the first worker has succeeded": _tensorflow(
        [
            _seen("ps-0 worker-0 worker-1"),
            Ends(indexes=["worker-0"]),
            _seen(
                "ps-0 worker-0+ worker-1", "Succeeded=True TFJobSucceeded", PS={"succeeded": 1}, Worker={"succeeded": 2}
            ),
        ],
        PS=1,
        Worker=2,
    ),
    "a launcher has succeeded": _mpi(
        [
            _seen("launcher worker-0"),
            Ends(indexes=["launcher"]),
            _seen("launcher+ worker-0", "Succeeded=True MPIJobSucceeded", Worker={}),
        ]
    ),
    "a launcher has failed": _mpi(
        [
            _seen("launcher worker-0"),
            Ends(code=1, indexes=["launcher"]),
            _seen("launcher- worker-0", "Failed=True MPIJobMPIJobFailed", Worker={}),
        ]
    ),
    "a failed parameter server": _tensorflow(
        [_seen("ps-0 worker-0"), Ends(code=1, indexes=["ps-0"]), _seen("ps-0- worker-0", "Failed=True TFJobFailed")],
        PS=1,
        Worker=1,
    ),
}


def _job_set(steps: Sequence[Step], *roles: Json, **spec: Any) -> Situation:
    """A JobSet with these replicated jobs, else with a lead and two Jobs of two workers."""
    return Situation({"replicatedJobs": list(roles or (_LEAD, _WORK)), **spec}, steps, "JobSet")


def _role(name: str, jobs: int = 1, pods: int = 1, *, notes: Json | None = None, **more: Any) -> Json:
    """So many Jobs of so many pods each, without retries; `notes` are annotations of the pods."""
    template = {**TEMPLATE, "metadata": {"annotations": {**TOLD, **(notes or {})}}}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {"name": name, "replicas": jobs, "template": {"spec": {**spec, **more.pop("spec", {})}}, **more}


def _set(pods: str, *conditions: str, restarts: int = 0, counted: int | None = None, **roles: str) -> See:
    """Pods of a JobSet as of an Indexed Job; of each replicated job: Jobs Ready, active, Done, Failed, Held."""
    counts: Json = {name: {_COUNTED[one]: told.count(one) for one in told} for name, told in roles.items() if told}
    ends = [one.partition("=")[0] for one in conditions if one.startswith(("Completed=True", "Failed=True"))]
    counted = restarts if counted is None else counted
    known = {"restarts": restarts, "restartsCountTowardsMax": counted, "terminalState": "".join(ends)}
    return See(_pods(pods), {**counts, **{key: value for key, value in known.items() if value}}, conditions, False)


_COUNTED = {"R": "ready", "a": "active", "D": "succeeded", "F": "failed", "H": "suspended"}
_LEAD, _WORK = _role("lead"), _role("work", jobs=2, pods=2)
_ALL = "lead-0-0 work-0-0 work-0-1 work-1-0 work-1-1"
_AT_WORK = _set(_ALL, lead="Ra", work="RaRa")
_DONE = "Completed=True AllJobsCompleted"
_FAIL_ONE = Ends(code=1, indexes=["work-1-1"])

_NEW, _BY_INDEX = {"told": "anew"}, {"completionMode": "Indexed"}


def _shape_of_work(told: Mapping[str, str], **marks: str) -> Shape:
    """The only pod of the replicated job work; `marks` are labels of the JobSet with other values."""
    others = {f"{_JOB_SET}{mark}": value for mark, value in marks.items()}
    labels, notes = (*LABELS, *JOB_SET_MARKS, INDEX), {**told, **JOB_SET_MARKS, **others, INDEX: "0"}
    return Shape("one-work-0-0-", labels, notes, "one-work-0-0", ("JOB_COMPLETION_INDEX",))


JOB_SETS: Mapping[str, Situation] = {
    "all Jobs have succeeded": _job_set(
        [
            _AT_WORK,
            Ends(indexes=["lead-0-0", "work-0-0", "work-1-1"]),
            _set("lead-0-0+ work-0-0+ work-0-1 work-1-0 work-1-1+", lead="D", work="RaRa"),
            Ends(indexes=["work-0-1"]),
            _set("lead-0-0+ work-0-0+ work-0-1+ work-1-0 work-1-1+", lead="D", work="RaD"),
            Ends(indexes=["work-1-0"]),
            _set("lead-0-0+ work-0-0+ work-0-1+ work-1-0+ work-1-1+", _DONE, lead="D", work="DD"),
        ]
    ),
    "the Jobs that matter have succeeded": _job_set(
        [_AT_WORK, Ends(indexes=["lead-0-0"]), _set("lead-0-0+", _DONE, lead="D")],
        successPolicy={"operator": "All", "targetReplicatedJobs": ["lead"]},
    ),
    "any Job has succeeded": _job_set(
        [_AT_WORK, Ends(indexes=["work-0-0", "work-0-1"]), _set("work-0-0+ work-0-1+", _DONE, work="D")],
        successPolicy={"operator": "Any"},
    ),
    "a Job has failed": _job_set(
        [_AT_WORK, _FAIL_ONE, _set("work-1-1-", "Failed=True FailedJobs", work="F")], _LEAD, _WORK
    ),
    "a failed pod that its Job replaces": _job_set(
        [_set("work-0-0", work="Ra"), Ends(code=1), _set("work-0-0 work-0-0-", work="Ra")],
        _role("work", spec={"backoffLimit": 1}),
    ),
    "a restart, and none too many": _job_set(
        [
            _AT_WORK,
            _FAIL_ONE,
            _AT_WORK._replace(counts={**_AT_WORK.counts, "restarts": 1, "restartsCountTowardsMax": 1}),
            _FAIL_ONE,
            _set("work-1-1-", "Failed=True ReachedMaxRestarts", work="F", restarts=1),
        ],
        failurePolicy={"maxRestarts": 1},
    ),
    "a restart while pods still leave": _job_set(
        [
            _set("work-0-0 work-1-0", work="RaRa"),
            Ends(code=1, indexes=["work-0-0"]),
            _set("", work="Ra", restarts=1)._replace(pods=["Running work-0-0", "Leaving Running work-1-0"]),
            _set("work-0-0 work-1-0", work="RaRa", restarts=1),
        ],
        _role("work", jobs=2, notes={STOP_SECONDS: "5"}),
        failurePolicy={"maxRestarts": 1},
    ),
    "a restart that waits until all pods are gone": _job_set(
        [
            _set("work-0-0 work-1-0", work="RaRa"),
            Ends(code=1, indexes=["work-0-0"]),
            _set("", restarts=1)._replace(pods=["Leaving Running work-1-0"]),
            _set("work-0-0 work-1-0", work="RaRa", restarts=1),
        ],
        _role("work", jobs=2, notes={STOP_SECONDS: "5"}),
        failurePolicy={"maxRestarts": 1, "restartStrategy": "BlockingRecreate"},
    ),
    "a restart that is not counted": _job_set(
        [_set("work-0-0", work="Ra"), Ends(code=1), _set("work-0-0", work="Ra", restarts=1, counted=0)],
        _role("work"),
        failurePolicy={
            "maxRestarts": 0,
            "rules": [
                {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["work"]}
            ],
        },
    ),
    "a failure that ends it at once": _job_set(
        [
            _AT_WORK,
            Ends(code=1, indexes=["lead-0-0"]),
            _set("lead-0-0-", "Failed=True FailJobSetFailurePolicyAction", lead="F"),
        ],
        failurePolicy={
            "maxRestarts": 5,
            "rules": [
                {"name": "other", "action": "RestartJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
                {"name": "end", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]},
            ],
        },
    ),
    "suspended, resumed and suspended again": _job_set(
        [
            _set("", "Suspended=True SuspendedJobs", lead="H", work="HH"),
            Patches({"suspend": False}),
            _AT_WORK._replace(conditions=["Suspended=False ResumeJobs"]),
            Patches({"suspend": True}),
            _set("", "Suspended=True SuspendedJobs", lead="H", work="HH"),
            Patches({"suspend": False}),
            _AT_WORK._replace(conditions=["Suspended=False ResumeJobs"]),
        ],
        suspend=True,
    ),
    "suspended with a Job done": _job_set(
        [
            _AT_WORK,
            Ends(indexes=["lead-0-0", "work-0-0"]),
            _set("lead-0-0+ work-0-0+ work-0-1 work-1-0 work-1-1", lead="D", work="RaRa"),
            Patches({"suspend": True}),
            _set("lead-0-0+ work-0-0+", "Suspended=True SuspendedJobs", lead="D", work="HH"),
            Patches({"suspend": False}),
            _set("lead-0-0+ work-0-0+ work-0-1 work-1-0 work-1-1", "Suspended=False ResumeJobs", lead="D", work="RaRa"),
        ]
    ),
    "one after another": _job_set(
        [
            _set(
                "lead-0-0 work-0-0",
                "StartupPolicyInProgress=False InOrderStartupPolicyInProgress",
                "StartupPolicyCompleted=True InOrderStartupPolicyCompleted",
                lead="Ra",
                work="Ra",
            )
        ],
        _LEAD,
        _role("work"),
        startupPolicy={"startupPolicyOrder": "InOrder"},
    ),
    "after the end of others": _job_set(
        [_set("lead-0-0", lead="Ra"), Ends(), _set("lead-0-0+ work-0-0", lead="D", work="Ra")],
        _LEAD,
        _role("work", dependsOn=[{"name": "lead", "status": "Complete"}]),
    ),
    "after the start of others": _job_set(
        [_set("lead-0-0 work-0-0", lead="Ra", work="Ra")],
        _LEAD,
        _role("work", dependsOn=[{"name": "lead", "status": "Ready"}]),
    ),
    "pods": _job_set(
        [_set("work-0-0", lead="DD", work="Ra"), _shape_of_work(TOLD)],
        _role("lead", jobs=2, pods=0),
        _role("work", groupName="work"),
    ),
    "pods that are changed before it is resumed": _job_set(
        [
            _set("", "Suspended=True SuspendedJobs", work="H"),
            Patches({"replicatedJobs": [_role("work", groupName="work", notes=_NEW, spec=_BY_INDEX)]}),
            Patches({"suspend": False}),
            _set("work-0-0", "Suspended=False ResumeJobs", work="Ra"),
            _shape_of_work(_NEW, **{"global-replicas": "1", "job-global-index": "0"}),
        ],
        _role("work", groupName="work"),
        suspend=True,
    ),
    "a Job that somebody deletes": _job_set(
        [
            _set("work-0-0 work-1-0", work="RaRa"),
            DeletesJob("one-work-1"),
            _set("", work="RaRa")._replace(pods=["Leaving Running work-1-0", "Running work-0-0", "Running work-1-0"]),
            _set("work-0-0 work-1-0", work="RaRa"),
        ],
        _role("work", jobs=2, notes={STOP_SECONDS: "5"}),
    ),
    "deleted": _job_set([_AT_WORK, Gone(is_deleted=True)]),
    "removed some time after its end": _job_set(
        [_set("work-0-0", work="Ra"), Ends(), Gone()], _role("work"), ttlSecondsAfterFinished=1
    ),
    "of another controller": _job_set([See(is_started=False)], _role("work"), managedBy="example.com/own"),
}


def play(situation: Situation, kube: KubeClient, namespace: str) -> None:
    """Play a situation in a namespace without Jobs and pods; what is seen has to come soon."""
    version, _ = KINDS[situation.kind]
    player = _Player(kube, namespace, situation.kind)
    template = {"template": TEMPLATE} if situation.kind == "Job" else {}
    job = {"apiVersion": version, "kind": situation.kind, "metadata": {"name": "one"}}
    kube.create(player.jobs, {**job, "spec": {**template, **situation.spec}})
    for step in situation.steps:
        player.play(step)


class _Player:
    """Plays steps, and looks."""

    def __init__(self, kube: KubeClient, namespace: str, kind: str) -> None:
        self.jobs = f"/apis/{KINDS[kind][0]}/namespaces/{namespace}/{kind.lower()}s"
        self._pods_path, self._kind = PODS.format(namespace), kind
        self._kube, self._namespace = kube, namespace

    def play(self, step: Step) -> None:
        match step:
            case See():
                expect_equal(self._look, _sorted(step), "the job and its pods", every_s=0.1)
            case Ends():
                notes = {EXIT_CODE: str(step.code), RUN_SECONDS: "0"}
                for name in self._chosen(step.count, step.indexes):
                    self._kube.patch(f"{self._pods_path}/{name}", {"metadata": {"annotations": notes}})
            case Deletes():
                (name,) = self._chosen(1, ())
                remove = self._kube.evict_pod if step.is_evicted else self._kube.delete_pod
                remove(self._namespace, name)
            case DeletesJob():
                jobs = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
                self._kube.delete(f"{jobs}/{step.name}", with_dependents=True)
            case Patches():
                self._kube.patch(f"{self.jobs}/one", {"spec": step.spec})
            case Gone():
                if step.is_deleted:
                    self._kube.delete(f"{self.jobs}/one", with_dependents=True)
                left = "the job and pods that are left"
                expect_equal(lambda: [*self._kube.get(self.jobs)["items"], *self._pods()], [], left)
            case Shape():
                (pod,) = self._pods()
                assert _shape(pod) == step, _shape(pod)

    def _look(self) -> See:
        status = self._kube.get(f"{self.jobs}/one").get("status", {})
        told = dict(status)
        conditions = [f"{one['type']}={one['status']} {one['reason']}" for one in told.pop("conditions", ())]
        is_started = bool(told.pop("startTime", ""))
        if "completionTime" in told:
            told["completionTime"] = "known"
        for its in told.pop("replicatedJobsStatus", ()):
            told[its["name"]] = {name: count for name, count in its.items() if count and name != "name"}
        if KINDS[self._kind][0] == "kubeflow.org/v1":
            conditions = [one for one in conditions if one.startswith(ENDS)]
            told.pop("lastReconcileTime", None)
            for role, its in told.pop("replicaStatuses", {}).items():
                told[role] = {name: count for name, count in its.items() if count and name != "selector"}
        counts = {name: value for name, value in told.items() if value}
        return _sorted(See([_phase(pod) for pod in self._pods()], counts, conditions, is_started))

    def _pods(self) -> list[Json]:
        items: list[Json] = self._kube.get(self._pods_path)["items"]
        return items

    def _chosen(self, count: int, indexes: Sequence[int]) -> list[str]:
        running = [pod for pod in self._pods() if _phase(pod).startswith("Running")]
        wanted = set(map(str, indexes))
        chosen = [pod for pod in running if not wanted or _phase(pod).rpartition(" ")[2] in wanted]
        names = [pod["metadata"]["name"] for pod in chosen]
        return names if indexes else names[:count]


def _sorted(see: See) -> See:
    return see._replace(pods=sorted(see.pods), counts=dict(see.counts), conditions=list(see.conditions))


def _phase(pod: Json) -> str:
    metadata, phase = pod["metadata"], pod["status"]["phase"]
    name = metadata.get("generateName", metadata["name"]).removeprefix("one-").removesuffix("-")
    said = f"Leaving {phase}" if "deletionTimestamp" in metadata else phase
    return f"{said} {name}".strip()


def _shape(pod: Json) -> Shape:
    metadata, spec = pod["metadata"], pod["spec"]
    base = metadata["generateName"]
    assert len(metadata["name"]) == len(base) + 5
    (owner,) = metadata["ownerReferences"]
    assert {**owner, "uid": "", "name": "one"} == OWNER
    told = dict(metadata.get("annotations", {}))
    marks = {mark: metadata["labels"][mark] for mark in JOB_SET_MARKS if mark in metadata["labels"]}
    assert marks.items() <= told.items()
    told |= {mark: "known" for mark in marks if JOB_SET_MARKS[mark] == "known"}
    assert metadata["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    labels = sorted(metadata["labels"], key=lambda label: (label == INDEX, label))
    variables = tuple(one["name"] for container in spec["containers"] for one in container.get("env", ()))
    return Shape(base, tuple(labels), told, spec.get("hostname", ""), variables)
