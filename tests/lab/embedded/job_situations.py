"""Situations of Jobs, and what is seen of a Job and its pods then: played on the embedded cluster, and by
`make e2e-controllers` with the real controller of Jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hived_extender.kube.client import KubeClient
from hived_lab.embedded.lifetimes import EXIT_CODE, RUN_SECONDS
from tests.expecting import expect_soon

NODE = "n1"
JOBS, PODS = "/apis/batch/v1/namespaces/{}/jobs", "/api/v1/namespaces/{}/pods"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
TOLD = {"told": "yes"}
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
    """Running pods that end with this code: so many, or those of these indexes."""

    count: int = 1
    code: int = 0
    indexes: Sequence[int] = ()


class Deletes(NamedTuple):
    """A running pod that somebody deletes, or evicts."""

    is_evicted: bool = False


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


Step = See | Ends | Deletes | Patches | Gone | Shape


@dataclass(frozen=True)
class Situation:
    """A Job with this spec, and the steps one after another."""

    spec: Json
    steps: Sequence[Step]


def _running(count: int, *others: str, **counts: Any) -> See:
    """So many pods run, beside others that have ended."""
    known = {"active": count, "ready": count} if count else {}
    return See([*["Running"] * count, *others], {**known, **counts})


def _indexed(pods: str, **counts: Any) -> See:
    """Pods of an Indexed Job: 0 runs, 1- has failed, 2+ has succeeded."""
    phases = {"-": "Failed", "+": "Succeeded"}
    read = [f"{phases.get(pod[-1], 'Running')} {pod.rstrip('+-')}" for pod in pods.split()]
    active = sum(pod.startswith("Running") for pod in read)
    return See(read, {**({"active": active, "ready": active} if active else {}), **counts})


def _complete(see: See) -> See:
    reason = "CompletionsReached"
    conditions = [f"SuccessCriteriaMet=True {reason}", f"Complete=True {reason}"]
    return see._replace(conditions=conditions, counts={**see.counts, "completionTime": "known"})


def _failed(reason: str, see: See) -> See:
    return see._replace(conditions=[f"FailureTarget=True {reason}", f"Failed=True {reason}"])


_TWO = {"parallelism": 2, "completions": 2}
_INDEXED = {"completionMode": "Indexed", **_TWO}
_HELD = See(conditions=["Suspended=True JobSuspended"], is_started=False)
_RESUMED = ["Suspended=False JobResumed"]

SITUATIONS: Mapping[str, Situation] = {
    "more completions than pods at a time": Situation(
        {"parallelism": 2, "completions": 3},
        [
            _running(2),
            Ends(),
            _running(2, "Succeeded", succeeded=1),
            Ends(2),
            _complete(_running(0, *["Succeeded"] * 3, succeeded=3)),
        ],
    ),
    "fewer completions than pods at a time": Situation(
        {"parallelism": 3, "completions": 1}, [_running(1), Ends(), _complete(_running(0, "Succeeded", succeeded=1))]
    ),
    "no completions": Situation(
        {"parallelism": 2},
        [
            _running(2),
            Ends(),
            _running(1, "Succeeded", succeeded=1),
            Ends(),
            _complete(_running(0, "Succeeded", "Succeeded", succeeded=2)),
        ],
    ),
    "no completions, and the last pod fails": Situation(
        {"parallelism": 2},
        [
            _running(2),
            Ends(),
            _running(1, "Succeeded", succeeded=1),
            Ends(code=1),
            _complete(_running(0, "Failed", "Succeeded", succeeded=1, failed=1)),
        ],
    ),
    "none to complete": Situation({"completions": 0}, [_complete(See())]),
    "fewer pods at a time": Situation(
        {"parallelism": 3, "completions": 4},
        [
            _running(3),
            Patches({"parallelism": 1}),
            _running(1),
            Ends(),
            _running(1, "Succeeded", succeeded=1),
        ],
    ),
    "more pods at a time": Situation(
        {"parallelism": 1, "completions": 4}, [_running(1), Patches({"parallelism": 3}), _running(3)]
    ),
    "no pods at a time": Situation(
        _TWO, [_running(2), Patches({"parallelism": 0}), See(), Patches({"parallelism": 2}), _running(2)]
    ),
    "a failed pod is replaced": Situation(
        {"backoffLimit": 1},
        [
            _running(1),
            Ends(code=1),
            _running(1, "Failed", failed=1),
            Ends(),
            _complete(_running(0, "Failed", "Succeeded", failed=1, succeeded=1)),
        ],
    ),
    "one failure too many": Situation(
        {"backoffLimit": 1},
        [
            _running(1),
            Ends(code=1),
            _running(1, "Failed", failed=1),
            Ends(code=3),
            _failed("BackoffLimitExceeded", _running(0, "Failed", "Failed", failed=2)),
        ],
    ),
    "a failure with other pods at work": Situation(
        {**_TWO, "backoffLimit": 0},
        [_running(2), Ends(code=1), _failed("BackoffLimitExceeded", _running(0, "Failed", failed=2))],
    ),
    "a failure after a success": Situation(
        {**_TWO, "backoffLimit": 0},
        [
            _running(2),
            Ends(),
            _running(1, "Succeeded", succeeded=1),
            Ends(code=1),
            _failed("BackoffLimitExceeded", _running(0, "Failed", "Succeeded", failed=1, succeeded=1)),
        ],
    ),
    "a deleted pod": Situation(_TWO, [_running(2), Deletes(), _running(2, failed=1)]),
    "an evicted pod": Situation(
        {"backoffLimit": 0},
        [_running(1), Deletes(is_evicted=True), _failed("BackoffLimitExceeded", See(counts={"failed": 1}))],
    ),
    "a failed pod of a Job that waits for the end of pods": Situation(
        {"podReplacementPolicy": "Failed"}, [_running(1), Ends(code=1), _running(1, "Failed", failed=1)]
    ),
    "too long": Situation({"activeDeadlineSeconds": 2}, [_failed("DeadlineExceeded", See(counts={"failed": 1}))]),
    "suspended, resumed and suspended again": Situation(
        {**_TWO, "suspend": True},
        [
            _HELD,
            Patches({"suspend": False}),
            _running(2)._replace(conditions=_RESUMED),
            Patches({"suspend": True}),
            _HELD,
            Patches({"suspend": False}),
            _running(2)._replace(conditions=_RESUMED),
        ],
    ),
    "suspended with half of its pods done": Situation(
        _TWO,
        [
            _running(2),
            Ends(),
            _running(1, "Succeeded", succeeded=1),
            Patches({"suspend": True}),
            _HELD._replace(pods=["Succeeded"], counts={"succeeded": 1}),
            Patches({"suspend": False}),
            _running(1, "Succeeded", succeeded=1)._replace(conditions=_RESUMED),
        ],
    ),
    "suspended by birth, and never too long": Situation(
        {"suspend": True, "activeDeadlineSeconds": 600},
        [_HELD, Patches({"suspend": False}), _running(1)._replace(conditions=_RESUMED)],
    ),
    "indexes one after another": Situation(
        {"completionMode": "Indexed", "parallelism": 2, "completions": 4},
        [
            _indexed("0 1"),
            Ends(indexes=[1]),
            _indexed("0 1+ 2", succeeded=1, completedIndexes="1"),
            Ends(indexes=[2]),
            _indexed("0 1+ 2+ 3", succeeded=2, completedIndexes="1,2"),
            Ends(indexes=[3]),
            _indexed("0 1+ 2+ 3+", succeeded=3, completedIndexes="1-3"),
            Ends(),
            _complete(_indexed("0+ 1+ 2+ 3+", succeeded=4, completedIndexes="0-3")),
        ],
    ),
    "a failed index is tried again": Situation(
        _INDEXED, [_indexed("0 1"), Ends(code=1, indexes=[1]), _indexed("0 1 1-", failed=1)]
    ),
    "fewer indexes": Situation(
        _INDEXED, [_indexed("0 1"), Patches({"parallelism": 1, "completions": 1}), _indexed("0")]
    ),
    "more indexes": Situation(
        _INDEXED, [_indexed("0 1"), Patches({"parallelism": 3, "completions": 3}), _indexed("0 1 2")]
    ),
    "an index fails for good": Situation(
        {**_INDEXED, "backoffLimitPerIndex": 0},
        [
            _indexed("0 1"),
            Ends(code=1, indexes=[0]),
            _indexed("0- 1", failed=1, failedIndexes="0"),
            Ends(indexes=[1]),
            _failed("FailedIndexes", _indexed("0- 1+", failed=1, failedIndexes="0", succeeded=1, completedIndexes="1")),
        ],
    ),
    "an index is tried again, and fails for good": Situation(
        {**_INDEXED, "backoffLimitPerIndex": 1},
        [
            _indexed("0 1"),
            Ends(code=1, indexes=[0]),
            _indexed("0 0- 1", failed=1),
            Ends(code=1, indexes=[0]),
            _indexed("0- 0- 1", failed=2, failedIndexes="0"),
        ],
    ),
    "an index is tried again, and succeeds": Situation(
        {**_INDEXED, "backoffLimitPerIndex": 1},
        [
            _indexed("0 1"),
            Ends(indexes=[1]),
            _indexed("0 1+", succeeded=1, completedIndexes="1"),
            Ends(code=1, indexes=[0]),
            _indexed("0 0- 1+", failed=1, succeeded=1, completedIndexes="1"),
            Ends(indexes=[0]),
            _complete(_indexed("0+ 0- 1+", failed=1, succeeded=2, completedIndexes="0,1")),
        ],
    ),
    "more failed indexes than it may have": Situation(
        {**_INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0},
        [
            _indexed("0 1"),
            Ends(code=1, indexes=[1]),
            _failed("MaxFailedIndexesExceeded", _indexed("1-", failed=2, failedIndexes="1")),
        ],
    ),
    "as many failed indexes as it may have": Situation(
        {
            "completionMode": "Indexed",
            "completions": 3,
            "parallelism": 2,
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": 1,
        },
        [
            _indexed("0 1"),
            Ends(code=1, indexes=[1]),
            _indexed("0 1- 2", failed=1, failedIndexes="1"),
        ],
    ),
    "pods": Situation({}, [_running(1), Shape("one-")]),
    "pods of indexes": Situation(
        {"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1},
        [
            _indexed("0"),
            Shape("one-0-", (*LABELS, INDEX), {**TOLD, INDEX: "0", FAILURES: "0"}, "one-0", ("JOB_COMPLETION_INDEX",)),
        ],
    ),
    "deleted": Situation(_TWO, [_running(2), Ends(), _running(1, "Succeeded", succeeded=1), Gone(is_deleted=True)]),
    "removed some time after its end": Situation({"ttlSecondsAfterFinished": 1}, [_running(1), Ends(), Gone()]),
    "of another controller": Situation({"managedBy": "example.com/own"}, [See(is_started=False)]),
}


def play(situation: Situation, kube: KubeClient, namespace: str) -> None:
    """Play a situation in a namespace without Jobs and pods; what is seen has to come soon."""
    player = _Player(kube, namespace)
    template = {
        "metadata": {"name": "not-read", "annotations": TOLD},
        "spec": {"nodeName": NODE, "restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}}
    kube.create(player.jobs, {**job, "spec": {"template": template, **situation.spec}})
    for step in situation.steps:
        player.play(step)


class _Player:
    """Plays steps, and looks."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.jobs, self._pods_path = JOBS.format(namespace), PODS.format(namespace)
        self._kube, self._namespace = kube, namespace

    def play(self, step: Step) -> None:
        match step:
            case See():
                self._await(step)
            case Ends():
                notes = {EXIT_CODE: str(step.code), RUN_SECONDS: "0"}
                for name in self._chosen(step.count, step.indexes):
                    self._kube.patch(f"{self._pods_path}/{name}", {"metadata": {"annotations": notes}})
            case Deletes():
                (name,) = self._chosen(1, ())
                remove = self._kube.evict_pod if step.is_evicted else self._kube.delete_pod
                remove(self._namespace, name)
            case Patches():
                self._kube.patch(f"{self.jobs}/one", {"spec": step.spec})
            case Gone():
                if step.is_deleted:
                    self._kube.delete(f"{self.jobs}/one", with_dependents=True)
                expect_soon(lambda: not self._pods() and not self._kube.get(self.jobs)["items"])
            case Shape():
                (pod,) = self._pods()
                assert _shape(pod) == step, _shape(pod)

    def _await(self, wanted: See) -> None:
        try:
            expect_soon(lambda: self._look() == _sorted(wanted), every_s=0.1)
        except AssertionError:
            assert self._look() == _sorted(wanted), f"{self._look()} is seen, expected {_sorted(wanted)}"

    def _look(self) -> See:
        status = self._kube.get(f"{self.jobs}/one").get("status", {})
        told = dict(status)
        conditions = [f"{one['type']}={one['status']} {one['reason']}" for one in told.pop("conditions", ())]
        is_started = bool(told.pop("startTime", ""))
        if "completionTime" in told:
            told["completionTime"] = "known"
        counts = {name: value for name, value in told.items() if value}
        return _sorted(See([_phase(pod) for pod in self._pods()], counts, conditions, is_started))

    def _pods(self) -> list[Json]:
        items: list[Json] = self._kube.get(self._pods_path)["items"]
        return items

    def _chosen(self, count: int, indexes: Sequence[int]) -> list[str]:
        running = [pod for pod in self._pods() if _phase(pod).startswith("Running")]
        chosen = [pod for pod in running if not indexes or int(pod["metadata"]["annotations"][INDEX]) in indexes]
        names = [pod["metadata"]["name"] for pod in chosen]
        return names if indexes else names[:count]


def _sorted(see: See) -> See:
    return see._replace(pods=sorted(see.pods), counts=dict(see.counts), conditions=list(see.conditions))


def _phase(pod: Json) -> str:
    metadata, phase = pod["metadata"], pod["status"]["phase"]
    index = metadata.get("annotations", {}).get(INDEX, "")
    said = f"Leaving {phase}" if "deletionTimestamp" in metadata else phase
    return f"{said} {index}".strip()


def _shape(pod: Json) -> Shape:
    metadata, spec = pod["metadata"], pod["spec"]
    base = metadata["generateName"]
    assert len(metadata["name"]) == len(base) + 5
    (owner,) = metadata["ownerReferences"]
    assert {**owner, "uid": ""} == OWNER
    assert metadata["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    labels = sorted(metadata["labels"], key=lambda label: (label == INDEX, label))
    variables = tuple(one["name"] for container in spec["containers"] for one in container.get("env", ()))
    return Shape(base, tuple(labels), metadata.get("annotations", {}), spec.get("hostname", ""), variables)
