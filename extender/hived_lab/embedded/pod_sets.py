"""Controllers of kinds that keep so many pods of each template: ReplicaSet, StatefulSet, LeaderWorkerSet, RayCluster.

A kind is a row of `SETS`: the pods that it wants, as parts that go together, and its status. A pod that has ended is
made anew, of a LeaderWorkerSet with its whole group. Claims of volumes, services and rolling updates are not played; of
a RayJob its own pods stand for the cluster and the Job that its controller makes. A Deployment keeps one ReplicaSet, a
RayService one RayCluster.
"""

import copy
import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from hived_extender.api.inspection import parse_time
from hived_extender.jobs.document import Part
from hived_extender.jobs.kinds.ray import roles_of
from hived_extender.kube.clocks import timestamp
from hived_jobs.submission import add_env
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import turn_condition
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step
from hived_lab.embedded.planned_jobs import keep_one, owned

_LWS = "leaderworkerset.sigs.k8s.io/"


class _Wanted(NamedTuple):
    """A pod that shall be there. Those of one `part` are made anew together; "" is for a pod alone."""

    name: str
    template: Body
    labels: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    part: str = ""


Running = Collection[str]
"""The names of the pods that run."""


class Set(NamedTuple):
    """A kind: its pods, its status by the names of those that run, and whether one comes only after those before it."""

    pods: Callable[[Body], list[_Wanted]]
    status: Callable[[Body, list[_Wanted], Running], Body]
    is_in_order: Callable[[Body], bool] = lambda spec: False


# ---- the kinds


def _stateful(job: Body) -> list[_Wanted]:
    spec, name = job["spec"], job["metadata"]["name"]
    return [
        _Wanted(f"{name}-{at}", spec["template"], {"apps.kubernetes.io/pod-index": str(at)})
        for at in range(spec.get("replicas", 1))
    ]


def _replicas(job: Body) -> list[_Wanted]:
    spec, name = job["spec"], job["metadata"]["name"]
    return [_Wanted(f"{name}-{_suffix(f'{name}/{at}')}", spec["template"]) for at in range(spec.get("replicas", 1))]


def _suffix(text: str) -> str:
    """Five characters that stand for a random end of a name."""
    return hashlib.sha256(text.encode()).hexdigest()[:5]


def _count_replicas(_job: Body, wanted: list[_Wanted], running: Running) -> Body:
    return {"replicas": len(wanted), "readyReplicas": len(running), "currentReplicas": len(wanted)}


def _groups(job: Body) -> list[_Wanted]:
    spec, name = job["spec"], job["metadata"]["name"]
    parts, found = spec["leaderWorkerTemplate"], list[_Wanted]()
    size = parts.get("size", 1)
    for group in range(spec.get("replicas", 1)):
        for at in range(size):
            template = parts.get("leaderTemplate", parts["workerTemplate"]) if at == 0 else parts["workerTemplate"]
            labels = {f"{_LWS}name": name, f"{_LWS}group-index": str(group), f"{_LWS}worker-index": str(at)}
            namespace = job["metadata"]["namespace"]
            env = {
                "LWS_LEADER_ADDRESS": f"{name}-{group}.{name}.{namespace}",
                "LWS_GROUP_SIZE": str(size),
                "LWS_WORKER_INDEX": str(at),
            }
            pod = f"{name}-{group}" if at == 0 else f"{name}-{group}-{at}"
            found.append(_Wanted(pod, template, labels, env, part=str(group)))
    return found


def _count_groups(_job: Body, wanted: list[_Wanted], running: Running) -> Body:
    groups = dict.fromkeys(one.part for one in wanted)
    ready = [each for each in groups if all(one.name in running for one in wanted if one.part == each)]
    return {"replicas": len(groups), "readyReplicas": len(ready)}


def _ray_pods(job: Body, cluster: Body) -> list[_Wanted]:
    name, found = job["metadata"]["name"], list[_Wanted]()
    for role in roles_of(Part("", cluster)):
        node_type = "head" if role.name == "head" else "worker"
        labels = {"ray.io/cluster": name, "ray.io/node-type": node_type, "ray.io/group": role.name}
        names = [f"{name}-head"] if node_type == "head" else [f"{name}-{role.name}-{at}" for at in range(role.count)]
        found += [_Wanted(each, role.template, labels) for each in names]
    return found


def _cluster(job: Body) -> list[_Wanted]:
    return [] if job["spec"].get("suspend") else _ray_pods(job, job["spec"])


def _tell_cluster(job: Body, wanted: list[_Wanted], running: Running) -> Body:
    is_suspended = bool(job["spec"].get("suspend"))
    state = "suspended" if is_suspended else "ready" if len(running) == len(wanted) else ""
    status = {**job.get("status", {}), "observedGeneration": 1, "state": state}
    workers = [one.name for one in wanted if one.labels["ray.io/node-type"] == "worker"]
    status |= {"desiredWorkerReplicas": len(workers), "readyWorkerReplicas": sum(one in running for one in workers)}
    value = "True" if is_suspended and not running else "False"
    reason = "UserSuspended" if is_suspended else "UserResumed"
    return turn_condition(status, "RayClusterSuspended", value, reason, "")


SETS: Mapping[str, Set] = {
    "ReplicaSet": Set(_replicas, _count_replicas),
    "StatefulSet": Set(_stateful, _count_replicas, lambda spec: spec.get("podManagementPolicy") != "Parallel"),
    "LeaderWorkerSet": Set(_groups, _count_groups),
    "RayCluster": Set(_cluster, _tell_cluster),
}


# ---- their next step


def next_step(job: Revision, pods: Collection[Revision], _memory: None, **_clocks: float) -> Step:
    """Return what an object needs that has these pods."""
    kind = SETS[job.body["kind"]]
    wanted = kind.pods(job.body)
    return _keep(job, pods, wanted, kind.status, is_in_order=kind.is_in_order(job.body["spec"]))


def _keep(
    job: Revision,
    pods: Collection[Revision],
    wanted: list[_Wanted],
    status: Callable[[Body, list[_Wanted], Running], Body],
    *,
    is_in_order: bool,
) -> Step:
    there, names = {pod.key.name: pod for pod in pods}, {one.name for one in wanted}
    lost = {one.part or one.name for one in wanted if one.name in there and _has_ended(there[one.name])}
    gone = {one.name for one in wanted if (one.part or one.name) in lost}
    running = [name for name, pod in there.items() if name in names - gone and pod.view.status.phase == "Running"]
    step = Step(status(job.body, wanted, running))
    step.deleted = [pod.body for name, pod in there.items() if name not in names or name in gone]
    for one in wanted:
        if one.name not in there:
            step.made.append(_manifest(one, job))
        if is_in_order and one.name not in running:
            break
    return step


def ray_job(job: Revision, pods: Collection[Revision], _memory: None, *, now_s: float, **_clocks: float) -> Step:
    """Return what a RayJob needs: a cluster, then a submitter, whose end is that of the job."""
    spec, status = job.body["spec"], dict(job.body.get("status", {}))
    there = {pod.key.name: pod for pod in pods}
    if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
        step = Step(status)
        step.deleted = [pod.body for pod in pods if spec.get("shutdownAfterJobFinishes") and not _has_ended(pod)]
        return step
    if spec.get("suspend"):
        step = Step({"jobDeploymentStatus": "Suspending" if pods else "Suspended"})
        step.deleted = [pod.body for pod in pods]
        return step
    status.setdefault("startTime", timestamp())
    wanted = _ray_pods(job.body, spec["rayClusterSpec"])
    submitter = _submitter(job.body)
    cluster = [pod for pod in pods if pod.key.name != submitter.name]
    step = _keep(job, cluster, wanted, lambda *_: status, is_in_order=False)
    step.status = status | {"jobDeploymentStatus": "Initializing"}
    if all(one.name in there and there[one.name].view.status.phase == "Running" for one in wanted):
        step.status |= {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
        if submitter.name not in there:
            step.made.append(_manifest(submitter, job))
    phase = there[submitter.name].view.status.phase if submitter.name in there else ""
    if phase in ("Succeeded", "Failed"):
        is_done = phase == "Succeeded"
        told = ("Complete", "SUCCEEDED", "") if is_done else ("Failed", "FAILED", "AppFailed")
        return _ended(step, *told)
    left_s = _left_s(spec, status, now_s)
    if left_s is not None and left_s <= 0:
        step.deleted = [pod.body for pod in pods]
        return _ended(step, "Failed", "STOPPED", "DeadlineExceeded")
    step.again_s = left_s
    return step


def deployment(job: Revision, sets: Collection[Revision], _memory: None, **_clocks: float) -> Step:
    """Return what a Deployment needs: a ReplicaSet of its template; those of earlier templates are deleted."""
    spec = job.body["spec"]
    digest = _suffix(msgspec.json.encode(spec["template"], order="sorted").decode())
    told, mark = spec["template"].get("metadata") or {}, {"pod-template-hash": digest}
    labels = {**(told.get("labels") or {}), **mark}
    wanted = {
        "replicas": spec.get("replicas", 1),
        "template": {**spec["template"], "metadata": {**told, "labels": labels}},
        "selector": {"matchLabels": {**(spec.get("selector") or {}).get("matchLabels", {}), **mark}},
    }
    metadata = {"name": f"{job.key.name}-{digest}", "labels": labels}
    step = keep_one(job, sets, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": wanted})
    ready = sum(each.body.get("status", {}).get("readyReplicas", 0) for each in sets)
    step.status = {"replicas": wanted["replicas"], "readyReplicas": ready, "availableReplicas": ready}
    return step


def ray_service(job: Revision, clusters: Collection[Revision], _memory: None, **_clocks: float) -> Step:
    """Return what a RayService needs: a RayCluster."""
    labels = {"ray.io/originated-from-cr-name": job.key.name, "ray.io/originated-from-crd": job.body["kind"]}
    metadata = {"name": f"{job.key.name}-{_suffix(job.view.metadata.uid)}", "labels": labels}
    spec = job.body["spec"].get("rayClusterConfig") or {}
    step = keep_one(
        job, clusters, {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}
    )
    is_ready = any(each.body.get("status", {}).get("state") == "ready" for each in clusters)
    step.status = {"serviceStatus": "Running" if is_ready else "", "observedGeneration": 1}
    return step


def _ended(step: Step, deployment: str, job: str, reason: str) -> Step:
    step.made = []
    step.status |= {"jobDeploymentStatus": deployment, "jobStatus": job, "reason": reason, "endTime": timestamp()}
    return step


def _left_s(spec: Body, status: Body, now_s: float) -> float | None:
    limit_s, started = spec.get("activeDeadlineSeconds"), parse_time(status["startTime"])
    return None if limit_s is None or started is None else float(started.timestamp() + limit_s - now_s)


def _submitter(job: Body) -> _Wanted:
    """The pod that submits, which needs no devices: by its own template, or with the image of the head."""
    spec, name = job["spec"], f"{job['metadata']['name']}-submitter"
    if template := spec.get("submitterPodTemplate"):
        return _Wanted(name, template)
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container = {"name": "ray-job-submitter", "image": head.get("image", "")}
    return _Wanted(name, {"spec": {"containers": [container], "restartPolicy": "Never"}})


def _has_ended(pod: Revision) -> bool:
    return pod.view.status.phase in ("Succeeded", "Failed")


def _manifest(wanted: _Wanted, job: Revision) -> Body:
    told = wanted.template.get("metadata") or {}
    metadata = {
        "name": wanted.name,
        "labels": {**(told.get("labels") or {}), **wanted.labels},
        "annotations": dict(told.get("annotations") or {}),
    }
    spec: dict[str, Any] = {**copy.deepcopy(wanted.template["spec"]), "hostname": wanted.name[:63]}
    if wanted.env:
        add_env(spec, wanted.env)
    return owned({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, job)
