"""Stand-ins for the controllers of job objects, so that jobs wait, start and are called back without Kubernetes.

Jobs are as in `batch_jobs.py`, JobSets as in `job_sets.py`. A job of Kubeflow that is not suspended has its pods, as
`hived submit` would make them; one that is suspended has none. The status says Suspended, Succeeded or Failed in the
words of its kind, and counts its pods as that kind does. A pod that failed or was evicted is made again while the job
is not suspended, unless its policy retries no such failure, which ends the job; ends of pods count once. A QueueUnit
goes with its job. Runs on the event loop of the API server.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import msgspec

from hived.errors import UserError
from hived_extender.job_kinds.kubeflow import REPLICA_SPECS
from hived_jobs.documents import stored_document
from hived_jobs.kinds import plan_document
from hived_jobs.policies import Event
from hived_jobs.submission import PlannedJob, Submission
from hived_lab.embedded import batch_jobs, job_sets
from hived_lab.embedded.apiserver import models
from hived_lab.embedded.apiserver.bodies import ApiError, Body
from hived_lab.embedded.apiserver.kinds import timestamp, turn_condition
from hived_lab.embedded.apiserver.models import DeleteOptions, Preconditions
from hived_lab.embedded.apiserver.registry import Registry, follow, look_at
from hived_lab.embedded.apiserver.resources import JOB_OBJECTS, JOB_SETS, JOBS, PODS, QUEUE_UNITS, ResourceType
from hived_lab.embedded.apiserver.store import Key, Revision
from hived_lab.embedded.batch_jobs import FINALIZER, Backoff, expiry_s, is_over

SCHEDULER = "hived"
RETRY_S = 1.0
"""Until what was refused is tried again."""

GARBAGE_S = 1.0
"""Between two looks for QueueUnits whose job is gone."""

log = logging.getLogger(__name__)
_OWNERS = {each.kind: each for each in (*JOB_OBJECTS, PODS)}
_NOBODY = "somebody"
_OVER = {"Succeeded", "Failed"}
_FOREGROUND = "foregroundDeletion"
"""The finalizer of a Job that goes when its pods are gone."""

_CONTROLLERS = {"Job": batch_jobs.CONTROLLER, "JobSet": job_sets.CONTROLLER}
_FAILED = {"MPIJob": "MPIJobMPIJobFailed"}
"""Reasons of failures that do not only begin with the kind."""

_DECIDING = {"PyTorchJob": ("master", "worker"), "TFJob": ("chief", "master", "worker"), "MPIJob": ("launcher",)}
"""The first of these roles that a job has says when it has succeeded."""


class JobControllers:
    """All job objects of one embedded cluster."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._jobs: dict[str, tuple[ResourceType, Key]] = {}  # by uid
        self._succeeded: dict[str, set[str]] = {}  # names of pods, by uid of the job
        self._backoffs: dict[str, Backoff] = {}  # of Jobs, by uid
        self._timers: dict[str, asyncio.TimerHandle] = {}  # the next look at a Job, by uid

    async def run(self) -> None:
        """Play the controllers until cancelled."""
        await asyncio.gather(
            *(follow(self._registry, each, _Looker(self, each), lambda: []) for each in JOB_OBJECTS),
            *(follow(self._registry, each, _OwnerLooker(self, each), lambda: []) for each in (PODS, JOBS)),
            self._collect_garbage(),
        )

    def job_seen(self, resource: ResourceType, key: Key) -> None:
        """Make the pods or Jobs of a job be as it says now."""
        revision = self._registry.collection(resource).revisions.get(key)
        self._remove_orphans(resource, key, revision)
        if revision is None:
            return
        if resource.kind in _CONTROLLERS:
            self._controlled_seen(resource, revision)
        elif not is_over(revision.body):
            self._jobs[revision.view.metadata.uid] = resource, key
            self._reconcile(resource, revision)

    async def _collect_garbage(self) -> None:
        while True:
            await asyncio.sleep(GARBAGE_S)
            owners = [self._registry.collection(each).revisions.values() for each in _OWNERS.values()]
            there = {owner.view.metadata.uid for each in owners for owner in each}
            for key, unit in list(self._registry.collection(QUEUE_UNITS).revisions.items()):
                owned = [owner for owner in unit.view.metadata.owner_references if owner.kind in _OWNERS]
                if owned and not any(owner.uid in there for owner in owned):
                    self._registry.delete(QUEUE_UNITS, key, DeleteOptions())

    def owned_seen(self, resource: ResourceType, key: Key) -> None:
        """Look at the jobs that own a pod or a Job."""
        revision = self._registry.collection(resource).revisions.get(key)
        uids = [owner.uid for owner in revision.view.metadata.owner_references] if revision is not None else []
        for kind, job in [self._jobs[uid] for uid in uids if uid in self._jobs]:
            self.job_seen(kind, job)
        if revision is None:  # whose it was is not known any more
            for kind, job in [each for each in self._jobs.values() if each[1].namespace == key.namespace]:
                self.job_seen(kind, job)

    def _remove_orphans(self, resource: ResourceType, key: Key, present: Revision | None) -> None:
        """Delete what earlier jobs of this name have left."""
        kept = present.view.metadata.uid if present is not None else ""
        for uid in [uid for uid, job in self._jobs.items() if uid != kept and job[1] == key and job[0] is resource]:
            del self._jobs[uid]
            self._succeeded.pop(uid, None)
            self._backoffs.pop(uid, None)
            self._cancel_timer(uid)
            self._drop_pods(uid)
            for job in self._owned(JOBS, uid):
                self._delete(JOBS, job)

    def _drop_pods(self, uid: str) -> None:
        for pod in self._owned(PODS, uid):
            self._release(pod)
            self._delete(PODS, pod)

    def _controlled_seen(self, resource: ResourceType, job: Revision) -> None:
        uid, now_s, again_s = job.view.metadata.uid, time.time(), None
        self._jobs[uid] = resource, job.key
        self._cancel_timer(uid)
        if job.body["spec"].get("managedBy", _CONTROLLERS[resource.kind]) != _CONTROLLERS[resource.kind]:
            return
        if job.view.metadata.deletion_timestamp:
            self._drop_pods(uid)
            if not self._owned(PODS, uid):
                self._drop_finalizer(resource, job, _FOREGROUND)
            return
        if resource is JOB_SETS:
            again_s = self._take_set(job)
        elif not is_over(job.body):
            again_s = self._take(job, now_s)
        if is_over(job.body):
            again_s = expiry_s(job.body, now_s)
            if again_s == 0.0:
                self._registry.delete(resource, job.key, DeleteOptions())
                return
        if again_s is not None:
            loop = asyncio.get_running_loop()
            self._timers[uid] = loop.call_later(again_s, look_at, _Looker(self, resource), job.key)

    def _take_set(self, job_set: Revision) -> float | None:
        """Do what a JobSet needs now; returns when to look at it again."""
        jobs = {job.key.name: job for job in self._owned(JOBS, job_set.view.metadata.uid)}
        step = job_sets.next_step(job_set, [job.body for job in jobs.values()])
        for body in step.deleted:
            job = jobs[body["metadata"]["name"]]
            if not job.view.metadata.deletion_timestamp:
                held = {**body["metadata"], "finalizers": [*body["metadata"].get("finalizers", ()), _FOREGROUND]}
                self._registry.update(JOBS, job.key, {**body, "metadata": held})
                self._delete(JOBS, job)
        try:
            for body in step.changed:
                self._registry.update(JOBS, jobs[body["metadata"]["name"]].key, body)
            for body in step.made:
                self._registry.create(JOBS, body)
        except ApiError as error:
            log.error("the Jobs of JobSet %s/%s are not as they should be: %s", *job_set.key, error)
            return RETRY_S
        if step.status != job_set.body.get("status"):
            self._registry.update(JOB_SETS, job_set.key, {**job_set.body, "status": step.status}, is_status=True)
        return None

    def _take(self, job: Revision, now_s: float) -> float | None:
        """Do what a Job needs now; returns when to look at it again."""
        uid, loop_s = job.view.metadata.uid, asyncio.get_running_loop().time()
        wanted = job.body["spec"]["selector"].get("matchLabels", {}).items()
        owned = [pod for pod in self._owned(PODS, uid) if wanted <= pod.view.metadata.labels.items()]
        pods = {pod.view.metadata.uid: pod for pod in owned}
        bodies = [pod.body for pod in pods.values()]
        step = batch_jobs.next_step(job.body, bodies, self._backoffs.get(uid, Backoff()), loop_s=loop_s, now_s=now_s)
        try:
            for manifest in step.made:
                self._registry.create(PODS, manifest)
        except ApiError as error:
            log.error("the pods of Job %s/%s are not made: %s", *job.key, error)
            return RETRY_S
        self._backoffs[uid] = step.backoff
        for body in step.dropped:
            self._release(pods[body["metadata"]["uid"]])
        for body in step.deleted:
            self._delete(PODS, pods[body["metadata"]["uid"]])
        if step.status != job.body.get("status"):
            self._registry.update(JOBS, job.key, {**job.body, "status": step.status}, is_status=True)
        for body in step.counted:
            self._release(pods[body["metadata"]["uid"]])
        return step.again_s

    def _cancel_timer(self, uid: str) -> None:
        if (timer := self._timers.pop(uid, None)) is not None:
            timer.cancel()

    def _release(self, pod: Revision) -> None:
        """Take the finalizer of Jobs off a pod, if it is there and has one."""
        self._drop_finalizer(PODS, pod, FINALIZER)

    def _drop_finalizer(self, resource: ResourceType, held: Revision, finalizer: str) -> None:
        found = self._registry.collection(resource).revisions.get(held.key)
        if found is None or found.view.metadata.uid != held.view.metadata.uid:
            return
        metadata = found.body["metadata"]
        left = [each for each in metadata.get("finalizers", ()) if each != finalizer]
        if len(left) < len(metadata.get("finalizers", ())):
            self._registry.update(resource, held.key, {**found.body, "metadata": {**metadata, "finalizers": left}})

    def _reconcile(self, resource: ResourceType, job: Revision) -> None:
        uid, is_suspended = job.view.metadata.uid, _is_suspended(job.body)
        pods = {pod.key.name: pod for pod in self._owned(PODS, uid)}
        done = self._succeeded.setdefault(uid, set())
        done.update(name for name, pod in pods.items() if _phase(pod) == "Succeeded")
        try:
            plan = _plan(resource, job.body)
        except UserError as error:
            self._write_status(resource, job, [("Failed", "True", "Unusable", error.message)], {})
            return
        failed = [] if is_suspended else _final_failures(plan, pods.values())
        if is_suspended:
            for pod in pods.values():
                if _phase(pod) not in _OVER:
                    self._delete(PODS, pod)
        elif not failed and not _is_done(job.body, plan, done):
            self._make_pods(plan, job, pods, done)
        self._tell(resource, job, plan, is_suspended=is_suspended, failed=failed)

    def _make_pods(self, plan: PlannedJob, job: Revision, pods: dict[str, Revision], done: set[str]) -> None:
        owner = {
            "apiVersion": job.body["apiVersion"],
            "kind": job.body["kind"],
            "name": job.key.name,
            "uid": job.view.metadata.uid,
            "controller": True,
        }
        for planned in plan.pods[: plan.width]:
            found = pods.get(planned.name)
            if found is not None and _phase(found) == "Failed":
                self._delete(PODS, found)
            elif found is None and planned.name not in done:
                manifest = dict(planned.manifest)
                manifest["metadata"] = {
                    **manifest["metadata"], "namespace": job.key.namespace, "ownerReferences": [owner],
                }  # fmt: skip
                self._registry.create(PODS, manifest)

    def _tell(
        self, resource: ResourceType, job: Revision, plan: PlannedJob, *, is_suspended: bool, failed: list[str]
    ) -> None:
        kind, done = job.body["kind"], self._succeeded[job.view.metadata.uid]
        phases = {pod.key.name: _phase(pod) for pod in self._owned(PODS, job.view.metadata.uid)}
        conditions = [("Suspended", "True", f"{kind}Suspended", "")]
        if not is_suspended:
            conditions = [("Suspended", "False", f"{kind}Resumed", "")]
        left = {name for name, phase in phases.items() if phase not in _OVER}
        if failed:
            reason = _FAILED.get(kind, f"{kind}Failed")
            conditions.append(("Failed", "True", reason, f"failed: {', '.join(failed)}"))
        elif _is_done(job.body, plan, done):
            conditions.append(("Succeeded", "True", f"{kind}Succeeded", "its pods have succeeded"))
            if kind != "MPIJob":  # of a job that is done no pod counts as active
                done = done | left
        if len(conditions) > 1 and kind == "MPIJob":
            phases = {name: phase for name, phase in phases.items() if name not in left}
        counts = _counts(job.body, plan, phases, done)
        has_ended, is_by_code = len(conditions) > 1, any(policy.exit_codes for policy in plan.rules.policies)
        # The operator leaves it out for a failure by restartPolicy ExitCode.
        if has_ended and not (failed and is_by_code):
            counts["completionTime"] = timestamp()
        self._write_status(resource, job, conditions, counts)
        clean = (job.body["spec"].get("runPolicy") or {}).get("cleanPodPolicy", "None") if has_ended else "None"
        for pod in self._owned(PODS, job.view.metadata.uid) if clean != "None" else ():
            if clean == "All" or _phase(pod) not in _OVER:
                self._delete(PODS, pod)

    def _write_status(
        self, resource: ResourceType, job: Revision, conditions: list[tuple[str, str, str, str]], counts: Body
    ) -> None:
        current = self._registry.get(resource, job.key)
        status: Body = {**current.body.get("status", {}), **counts}
        for condition in conditions:
            turned = turn_condition(status, *condition)
            if turned is not status and condition[0] == "Suspended":
                turned.pop("startTime", None)
            status = turned
        if not _is_suspended(job.body):
            status.setdefault("startTime", timestamp())
        if status != current.body.get("status"):
            self._registry.update(resource, job.key, {**current.body, "status": status}, is_status=True)

    def _owned(self, resource: ResourceType, uid: str) -> list[Revision]:
        found = self._registry.collection(resource).revisions.values()
        return [one for one in found if any(owner.uid == uid for owner in one.view.metadata.owner_references)]

    def _delete(self, resource: ResourceType, one: Revision) -> None:
        uid = one.view.metadata.uid
        if not one.view.metadata.deletion_timestamp and one.key in self._registry.collection(resource).revisions:
            self._registry.delete(resource, one.key, DeleteOptions(preconditions=Preconditions(uid=uid)))


class _Looker:
    """Looks at jobs of one kind."""

    def __init__(self, controllers: JobControllers, resource: ResourceType) -> None:
        self._controllers, self._resource = controllers, resource

    def __call__(self, key: Key) -> None:
        self._controllers.job_seen(self._resource, key)


class _OwnerLooker(_Looker):
    """Looks at the jobs that own objects of one kind."""

    def __call__(self, key: Key) -> None:
        self._controllers.owned_seen(self._resource, key)


def _plan(resource: ResourceType, body: Body) -> PlannedJob:
    """The pods of a job. Raises UserError."""
    wanted = {key: value for key, value in body.items() if key != "status"}
    wanted["metadata"] = {
        key: value for key, value in body["metadata"].items() if key in ("name", "namespace", "labels", "annotations")
    }
    place = f"{resource.kind} {body['metadata']['namespace']}/{body['metadata']['name']}"
    document = stored_document(msgspec.json.encode(wanted).decode(), place)
    return plan_document(document, Submission(_NOBODY, scheduler_name=SCHEDULER))


def _is_done(body: Body, plan: PlannedJob, done: Collection[str]) -> bool:
    """Tell whether a job has succeeded, since these pods have."""
    pods = [pod.name for pod in plan.pods]
    if roles := _DECIDING.get(body["kind"]):
        by_role = {role: [pod.name for pod in plan.pods if pod.role == role] for role in roles}
        role = next((role for role in roles if by_role[role]), "")
        is_first_enough = body["kind"] == "TFJob" and body["spec"].get("successPolicy") != "AllWorkers"
        pods = by_role.get(role, [])[: 1 if is_first_enough else None]
    return bool(pods) and set(pods) <= set(done)


def _final_failures(plan: PlannedJob, pods: Iterable[Revision]) -> list[str]:
    """The pods of a job of Kubeflow that have failed for good, which ends it."""
    planned = {pod.name: pod for pod in plan.pods}
    found = []
    for pod in pods:
        if _phase(pod) == "Failed" and (known := planned.get(pod.key.name)):
            is_kept = known.manifest["spec"].get("restartPolicy") != "Never"
            code = _exit_code(pod)
            if not is_kept and not any(each.fits(Event.POD_FAILED, known.role, code) for each in plan.rules.policies):
                found.append(pod.key.name)
    return found


def _exit_code(pod: Revision) -> int:
    ends = [one.state.terminated for one in cast(models.Pod, pod.view).status.container_statuses]
    return max((end.exit_code for end in ends if end is not None), default=0)


def _counts(body: Body, plan: PlannedJob, phases: Mapping[str, str], done: Collection[str]) -> Body:
    """The part of a job's status that counts its pods, as its kind has it. `phases` are those of the pods that are
    there, by name; `done` have succeeded, whether they are there or not.
    """
    specs = body["spec"][REPLICA_SPECS[body["kind"]]]
    roles: dict[str, list[str]] = {name.lower(): [] for name in specs}
    for pod in plan.pods:
        roles[pod.role].append(pod.name)
    return {
        "replicaStatuses": {
            name: {
                "active": sum(phases.get(pod, "Failed") not in _OVER and pod not in done for pod in pods),
                "succeeded": sum(pod in done for pod in pods),
                "failed": sum(phases.get(pod) == "Failed" for pod in pods),
            }
            for name, pods in ((name, roles[name.lower()]) for name in specs)
        }
    }


def _is_suspended(body: Body) -> bool:
    spec: dict[str, Any] = body.get("spec") or {}
    return bool((spec.get("runPolicy") or spec).get("suspend"))


def _phase(pod: Revision) -> str:
    return cast(models.Pod, pod.view).status.phase
