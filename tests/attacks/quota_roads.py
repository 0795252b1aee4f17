"""A tenant of the embedded cluster whose leaf may use 4 GPUs and run 2 jobs, and who tries each road to more."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from hived_extender.job_kinds.marks import KUEUE_QUEUE
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_lab.embedded.lifetimes import RUN_SECONDS
from hived_lab.start import Embedded, start_embedded
from tests.attacks.attack import Outcome, Run

PREFIX = "hivedscheduler.microsoft.com/"
GPU = "nvidia.com/gpu"
PODS, JOBS = "/api/v1/namespaces/{}/pods", "/apis/batch/v1/namespaces/{}/jobs"
TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"
NAMESPACES = ("default", "more")
MOST_GPUS, MOST_JOBS = 4, 2
SOON_S, LATER_S, QUIET_S = 60.0, 0.05, 1.5
TOO_LARGE = "a gang larger than it says"
"""It waits in its queue as a whole, and is more than the quota: nothing of it has to run."""

CONFIG = """\
rules: 2
queues: {enabled: true}
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n0}, {cellType: NODE, cellAddress: n1}]
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 2}], queue: {borrow: true}}
"""

Json = dict[str, Any]


def run(run: Run) -> Outcome:
    """Each road in turn, on one cluster."""
    outcome, file = Outcome(), run.folder / "cluster.yaml"
    file.write_text(CONFIG)
    with (
        start_embedded(file, has_webhook=True) as running,
        closing(KubeClient.connect(kubeconfig=str(running.cluster.hived_kubeconfig))) as kube,
    ):
        kube.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACES[1]}})
        everything = {GPU: 16}
        most = {GPU: MOST_GPUS, "kube-queue/max-jobs": MOST_JOBS}
        leaf = {"name": "a", "namespaces": list(NAMESPACES), "min": {GPU: MOST_GPUS}, "max": most}
        root = {"name": "root", "min": everything, "max": everything, "children": [leaf]}
        kube.create(TREES, {"metadata": {"name": "elasticquotatree"}, "spec": {"root": root}})
        tenant = _Tenant(running, kube, outcome)
        tenant.await_so(lambda: running.extender.service.machine.holds.quotas.tree is not None)
        for road, bodies in _roads():
            tenant.take(road, bodies)
    return outcome


def _roads() -> Iterator[tuple[str, list[tuple[str, Json]]]]:
    """The name of each road, and its objects, with their collections; each asks for 8 GPUs by 4 jobs together."""
    four = range(4)
    yield "plain pods", [(PODS, _pod(f"plain-{one}")) for one in four]
    yield "opportunistic pods", [(PODS, _pod(f"lent-{one}", priority=-1)) for one in four]
    yield "own annotations", [(PODS, _pod(f"own-{one}", notes=_own(), gpus=0)) for one in four]
    yield "affinity groups", [(PODS, _pod(f"group-{one}", notes=_own(f"g{one // 2}", 2), gpus=0)) for one in four]
    gang = "gang.scheduling.koordinator.sh/"
    for title, size in (("gangs", 2), (TOO_LARGE, 4)):
        said = [{f"{gang}name": f"k{size}-{one // size}", f"{gang}min-available": "2"} for one in four]
        yield title, [(PODS, _pod(f"gang-{size}-{one}", notes=said[one])) for one in four]
    off = {f"{PREFIX}queue": "off"}
    yield "queue: off, annotated", [(JOBS, _job(f"off-{one}", notes=off)) for one in four]
    yield "queue: off, labelled", [(JOBS, _job(f"label-{one}", labels=off)) for one in four]
    yield "Kueue's label", [(JOBS, _job(f"kueue-{one}", labels={KUEUE_QUEUE: "no"})) for one in four]
    label = {"jobset.sigs.k8s.io/jobset-name": "set"}
    yield "a JobSet's label", [(JOBS, _job(f"set-{one}", of_pods=label)) for one in four]
    for kind, api in (("Deployment", "apps/v1"), ("RayService", "ray.io/v1"), ("Workflow", "example.org/v1")):
        owner = {"apiVersion": api, "kind": kind, "name": "no", "uid": f"no-{kind}", "controller": True}
        yield (
            f"a {kind} that does not exist",
            [(PODS, _pod(f"{kind.lower()}-{one}", ownerReferences=[owner])) for one in four],
        )
    yield "several namespaces", [(PODS, _pod(f"two-{one}", namespace=NAMESPACES[one % 2])) for one in four]
    yield "resumed jobs", [(JOBS, _job(f"resumed-{one}")) for one in four]
    quota = {"quota.scheduling.alibabacloud.com/name": "nobody"}
    yield "a leaf that does not exist", [(PODS, _pod(f"nobody-{one}", labels=quota)) for one in four]


def _own(group: str = "", pods: int = 1) -> dict[str, str]:
    members = f', "affinityGroup": {{"name": "{group}", "members": [{{"podNumber": {pods}, "leafCellNumber": 2}}]}}'
    text = f'{{"virtualCluster": "a", "priority": 0, "leafCellNumber": 2{members if group else ""}}}'
    return {f"{PREFIX}pod-scheduling-spec": text}


def _pod(
    name: str,
    *,
    gpus: int = 2,
    priority: int = 0,
    notes: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    **metadata: Any,
) -> Json:
    said = {f"{PREFIX}virtual-cluster": "a", f"{PREFIX}priority": str(priority), RUN_SECONDS: "100000"}
    limits = {GPU: gpus} if gpus else {f"{PREFIX}pod-scheduling-enable": 1}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {**said, **(notes or {})},
            "labels": dict(labels or {}),
            **metadata,
        },
        "spec": {"schedulerName": "hived", "restartPolicy": "Never", "containers": [container]},
    }


def _job(
    name: str,
    notes: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    of_pods: Mapping[str, str] | None = None,
) -> Json:
    body = _pod(name, labels=of_pods)
    template = {
        "metadata": {key: body["metadata"][key] for key in ("annotations", "labels")},
        "spec": body["spec"],
    }
    metadata = {"name": name, "namespace": "default", "annotations": dict(notes or {}), "labels": dict(labels or {})}
    return {"metadata": metadata, "spec": {"parallelism": 1, "completions": 1, "suspend": False, "template": template}}


class _Tenant:
    def __init__(self, running: Embedded, kube: KubeClient, outcome: Outcome) -> None:
        self._running, self._kube, self._outcome = running, kube, outcome

    def take(self, road: str, bodies: list[tuple[str, Json]]) -> None:
        """Create all of these; more than the quota must never run, and all of it should."""
        self._outcome.tried += 1
        with self._created(bodies):
            most = 0
            until, quiet = time.monotonic() + SOON_S, time.monotonic() + QUIET_S
            while time.monotonic() < min(until, quiet if most else until):
                used = self._used()
                if used > most:
                    most, quiet = used, time.monotonic() + QUIET_S
                time.sleep(LATER_S)
        if most > MOST_GPUS:
            self._outcome.let_in.append(f"{road}: {most} GPUs of {MOST_GPUS}")
        elif not most and road != TOO_LARGE:
            self._outcome.fault(f"{road}: nothing runs, not even within the quota")
        else:
            self._outcome.refused += 1

    def await_so(self, is_so: Any) -> None:
        """Wait until it is so."""
        until = time.monotonic() + SOON_S
        while not is_so():
            if time.monotonic() > until:
                raise TimeoutError("the cluster is not as it should be")
            time.sleep(LATER_S)

    @contextmanager
    def _created(self, bodies: list[tuple[str, Json]]) -> Iterator[None]:
        for path, body in bodies:
            self._kube.create(path.format(body["metadata"]["namespace"]), body)
        yield
        for path, body in bodies:
            if path is JOBS:
                self._kube.delete(f"{JOBS.format('default')}/{body['metadata']['name']}")
        for pod in self._pods():
            try:
                meta = pod["metadata"]
                self._kube.delete(pod_path(meta["namespace"], meta["name"]), grace_period_s=0)
            except KubeError:
                continue  # it is gone with its job
        self.await_so(lambda: not self._pods())

    def _used(self) -> int:
        """The GPUs of all pods that have a node."""
        return 2 * sum(bool(pod["spec"].get("nodeName")) for pod in self._pods())

    def _pods(self) -> list[Json]:
        return [pod for namespace in NAMESPACES for pod in self._kube.get(PODS.format(namespace))["items"]]
