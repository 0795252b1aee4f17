"""A tenant whose leaf may use 4 GPUs and run 2 jobs, and who tries each road to more."""

import time
from collections.abc import Iterator
from typing import Any

from hived_extender.jobs.annotations import PREFIX, SCHEDULING_SPEC
from hived_extender.jobs.kinds.marks import KUEUE_QUEUE
from tests.attacks.attack import Run
from tests.attacks.clusters import EVIL, GPU, GPUS, LATER_S, MORE, SOON_S, Cluster, Deed, Hostile, Made, job, pod

TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"
NODES = 4
MOST_GPUS, MOST_JOBS = 4, 2
EACH = 2
"""GPUs of a pod. Each road asks for four of them."""

QUIET_S = 1.5
GANG = "gang.scheduling.koordinator.sh/"
TOO_LARGE = "makes gangs larger than they say"
"""They wait in their queue as a whole, and are more than the quota: nothing of them has to run."""

ABSENT = "makes pods whose {} does not exist"
KINDS = {
    "Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1",
    "RayService": "ray.io/v1", "RayCluster": "ray.io/v1", "PyTorchJob": "kubeflow.org/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2", "Workflow": "example.org/v1", "Pod": "v1",
}  # fmt: skip
"""Of owners, by their API version. Controllers of a real cluster delete pods whose owner is not there."""


def attack(cluster: Cluster, run: Run) -> None:
    """Each road in turn, beside a tree of quotas."""
    most = {GPU: MOST_GPUS, "kube-queue/max-jobs": MOST_JOBS}
    leaf = {"name": EVIL, "namespaces": [EVIL, MORE], "min": {GPU: MOST_GPUS}, "max": most}
    everything = {GPU: NODES * GPUS}
    root = {"name": "root", "min": everything, "max": everything, "children": [leaf]}
    tree = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
            "metadata": {"name": "elasticquotatree"}, "spec": {"root": root}}  # fmt: skip
    cluster.admin.create(TREES, tree)
    cluster.await_so("the tree is in force", lambda: EVIL in str(cluster.get("/v1/inspect/queues")))
    deeds = list(_deeds())
    for deed in deeds[: run.count(len(deeds))]:
        cluster.carry_out(deed)


def _most_used(cluster: Cluster, *, may_be_none: bool = False) -> str:
    """More than the quota must never run, and something within it should."""
    most = 0
    until, quiet = time.monotonic() + SOON_S, time.monotonic() + QUIET_S * (2 if may_be_none else 1)
    while time.monotonic() < min(until, quiet if most or may_be_none else until):
        used = EACH * len(cluster.started())
        if used > most:
            most, quiet = used, time.monotonic() + QUIET_S
        time.sleep(LATER_S)
    if not most and not may_be_none:
        raise TimeoutError("nothing runs, not even within the quota")
    return f"{most} GPUs of {MOST_GPUS}" if most > MOST_GPUS else ""


def _lose_few(cluster: Cluster) -> str:
    return _most_used(cluster, may_be_none=True)


def _deeds() -> Iterator[Deed]:
    for title, made in _roads():
        may_be_none = title == TOO_LARGE or title in map(ABSENT.format, KINDS)
        yield Deed(title, made, _lose_few if may_be_none else _most_used)


def _roads() -> Iterator[tuple[str, list[Made]]]:
    """By title, four objects that ask for 8 GPUs together."""
    four = range(4)
    yield "makes plain pods", [_pod(f"plain-{one}") for one in four]
    yield "makes opportunistic pods", [_pod(f"lent-{one}", priority=-1) for one in four]
    yield "writes hived's annotation", [pod(f"own-{one}", notes=_own(), gpus=0) for one in four]
    yield "declares affinity groups", [pod(f"group-{one}", notes=_own(f"g{one // 2}", 2), gpus=0) for one in four]
    for title, size in (("makes gangs", 2), (TOO_LARGE, 4)):
        said = [{f"{GANG}name": f"k{size}-{one // size}", f"{GANG}min-available": "2"} for one in four]
        yield title, [_pod(f"gang-{size}-{one}", notes=said[one]) for one in four]
    off = {f"{PREFIX}queue": "off"}
    yield "annotates queue: off", [_job(f"off-{one}", notes=off) for one in four]
    yield "labels queue: off", [_job(f"label-{one}", labels=off) for one in four]
    yield "labels jobs for Kueue", [_job(f"kueue-{one}", labels={KUEUE_QUEUE: "no"}) for one in four]
    label = {"jobset.sigs.k8s.io/jobset-name": "set"}
    yield "labels jobs as a JobSet's", [_job(f"set-{one}", of_pods=label) for one in four]
    for kind, api in KINDS.items():
        owner = {"apiVersion": api, "kind": kind, "name": "no", "uid": f"no-{kind.lower()}", "controller": True}
        meta = {"ownerReferences": [owner]}
        yield ABSENT.format(kind), [_pod(f"{kind.lower()}-{one}", metadata=meta) for one in four]
    yield "uses two namespaces", [_pod(f"two-{one}", (EVIL, MORE)[one % 2]) for one in four]
    yield "resumes jobs", [_job(f"resumed-{one}") for one in four]
    quota = "quota.scheduling.alibabacloud.com/name"
    for name in ("nobody", "root", "victim"):
        yield f"names the leaf {name}", [_pod(f"leaf-{name}-{one}", labels={quota: name}) for one in four]


def _pod(name: str, namespace: str = EVIL, **more: Any) -> Made:
    return pod(name, namespace, gpus=EACH, **more)


def _job(name: str, **more: Any) -> Made:
    return job(name, gpus=EACH, **more)


def _own(group: str = "", pods: int = 1) -> dict[str, str]:
    members = (
        f', "affinityGroup": {{"name": "{group}", "members": [{{"podNumber": {pods}, "leafCellNumber": {EACH}}}]}}'
    )
    text = f'{{"virtualCluster": "{EVIL}", "priority": 0, "leafCellNumber": {EACH}{members if group else ""}}}'
    return {SCHEDULING_SPEC: text}


QUOTAS = Hostile(
    attack,
    shares={EVIL: NODES},
    settings={"rules": 2, "queues": {"enabled": True}},
    of_vcs={EVIL: {"queue": {"borrow": True}}},
)
