"""Stand-ins for the controllers of job objects, so that jobs wait, start and are requeued without Kubernetes.

A kind is one row of `KINDS`: a pure function from a job and its children to the next step, which is carried out here.
The children of a JobSet or a CronJob are Jobs, that of a Deployment is a ReplicaSet, those of most kinds are pods. A
Job of Volcano has a PodGroup beside its pods. QueueUnits and PodGroups go with their jobs. Runs on the event loop of
the API server.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from hived_extender.jobs.kinds.kubeflow import REPLICA_SPECS
from hived_lab.embedded import (
    batch_jobs,
    cron_jobs,
    elastic_jobs,
    job_sets,
    kubeflow_jobs,
    pod_sets,
    train_jobs,
    volcano_jobs,
)
from hived_lab.embedded.apiserver.bodies import ApiError
from hived_lab.embedded.apiserver.models import DeleteOptions, Preconditions
from hived_lab.embedded.apiserver.registry import Registry, follow, look_at
from hived_lab.embedded.apiserver.resources import (
    JOB_OBJECTS,
    JOB_SETS,
    JOBS,
    POD_SETS,
    PODS,
    QUEUE_UNITS,
    RAY_CLUSTERS,
    REPLICA_SETS,
    VOLCANO_COMMANDS,
    VOLCANO_POD_GROUPS,
    ResourceType,
)
from hived_lab.embedded.apiserver.store import Key, Revision
from hived_lab.embedded.batch_jobs import FINALIZER, Step, expiry_s, is_over

RETRY_S = 1.0
"""Until a refused write is tried again."""

GARBAGE_S = 1.0
"""Between two looks for QueueUnits whose job is gone."""

log = logging.getLogger(__name__)
_OWNERS = (*JOB_OBJECTS, PODS)
_CHILDREN = (PODS, JOBS, JOB_SETS, REPLICA_SETS, RAY_CLUSTERS)
"""All that the controllers make, but what is beside a job."""

_OWNER_KINDS = {each.kind for each in _OWNERS}
_GOING_WITH_OWNERS = (QUEUE_UNITS, VOLCANO_POD_GROUPS)
_FOREGROUND = "foregroundDeletion"
"""The finalizer of a Job that goes when its pods are gone."""


class Kind(NamedTuple):
    """A kind of job. A job whose `managedBy` names another controller is left alone.

    `beside` is the resource of the one object that goes with each, which `next_step` is given too.
    """

    next_step: Callable[..., Step]
    controller: str = ""
    children: ResourceType = PODS
    beside: ResourceType | None = None


KINDS: Mapping[str, Kind] = {
    "jobs.batch": Kind(batch_jobs.next_step, batch_jobs.CONTROLLER),
    "jobsets.jobset.x-k8s.io": Kind(job_sets.next_step, job_sets.CONTROLLER, JOBS),
    **{f"{kind.lower()}s.kubeflow.org": Kind(kubeflow_jobs.next_step) for kind in REPLICA_SPECS},
    "trainjobs.trainer.kubeflow.org": Kind(train_jobs.next_step, train_jobs.CONTROLLER, JOB_SETS),
    "elasticjobs.elastic.iml.github.io": Kind(elastic_jobs.next_step),
    "jobs.batch.volcano.sh": Kind(volcano_jobs.next_step, beside=VOLCANO_POD_GROUPS),
    "rayjobs.ray.io": Kind(pod_sets.ray_job),
    "rayclusters.ray.io": Kind(pod_sets.next_step),
    "rayservices.ray.io": Kind(pod_sets.ray_service, children=RAY_CLUSTERS),
    "deployments.apps": Kind(pod_sets.deployment, children=REPLICA_SETS),
    "replicasets.apps": Kind(pod_sets.next_step),
    "statefulsets.apps": Kind(pod_sets.next_step),
    "cronjobs.batch": Kind(cron_jobs.next_step, children=JOBS),
    "leaderworkersets.leaderworkerset.x-k8s.io": Kind(pod_sets.next_step),
}
"""By `ResourceType.label`."""


class JobControllers:
    """All job objects of one embedded cluster."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._jobs: dict[str, tuple[ResourceType, Key]] = {}  # these three by uid
        self._memories: dict[str, Any] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        """Play the controllers until cancelled."""
        await asyncio.gather(
            *(follow(self._registry, each, partial(self.job_seen, each)) for each in (*JOB_OBJECTS, *POD_SETS)),
            *(
                follow(self._registry, each, partial(self.child_seen, each))
                for each in (*_CHILDREN, VOLCANO_POD_GROUPS)
            ),
            follow(self._registry, VOLCANO_COMMANDS, self._command_seen),
            self._collect_garbage(),
        )

    def job_seen(self, resource: ResourceType, key: Key) -> None:
        """Make the children of a job be as it says now."""
        job = self._registry.collection(resource).revisions.get(key)
        uid, now_s = job.view.metadata.uid if job is not None else "", time.time()
        for earlier in [each for each, job in self._jobs.items() if each != uid and job == (resource, key)]:
            self._forget(earlier)
        if job is None:
            return
        self._jobs[uid] = resource, key
        self._cancel_timer(uid)
        kind, spec = KINDS[resource.label], job.body.get("spec", {})
        if spec.get("managedBy", kind.controller) != kind.controller:
            return
        if job.view.metadata.deletion_timestamp:
            self._delete_pods(uid)
            if not self._owned(PODS, uid):
                self._drop_finalizer(resource, job, _FOREGROUND)
            return
        children = self._owned(kind.children, uid)
        loop = asyncio.get_running_loop()
        beside = {} if kind.beside is None else {"group": next(iter(self._owned(kind.beside, uid)), None)}
        step = kind.next_step(job, children, self._memories.get(uid), loop_s=loop.time(), now_s=now_s, **beside)
        again_s = self._carry_out(step, resource, job, {child.key.name: child for child in children})
        if is_over(job.body):
            again_s = expiry_s(job.body, now_s)
            if again_s == 0.0:
                self._registry.delete(resource, job.key, DeleteOptions())
                return
        if again_s is not None:
            self._timers[uid] = loop.call_later(again_s, look_at, partial(self.job_seen, resource), key)

    def child_seen(self, resource: ResourceType, key: Key) -> None:
        """Look at the jobs that own a pod or a Job; if it is gone, at all jobs of its namespace."""
        child = self._registry.collection(resource).revisions.get(key)
        if child is None:
            jobs = [job for job in self._jobs.values() if job[1].namespace == key.namespace]
        else:
            jobs = [self._jobs[owner.uid] for owner in child.view.metadata.owner_references if owner.uid in self._jobs]
        for job in jobs:
            self.job_seen(*job)

    def _carry_out(
        self, step: Step, resource: ResourceType, job: Revision, children: Mapping[str, Revision]
    ) -> float | None:
        """Carry out what a job needs; returns when to look at it again."""
        kind, uid = KINDS[resource.label].children, job.view.metadata.uid
        for body in step.dropped:
            self._drop_finalizer(PODS, children[body["metadata"]["name"]], FINALIZER)
        for body in step.deleted:
            self._delete(kind, children[body["metadata"]["name"]])
        try:
            for body in step.beside:
                self._registry.create(KINDS[resource.label].beside or kind, body)
            for body in step.changed:
                self._registry.update(kind, children[body["metadata"]["name"]].key, body)
            for body in step.made:
                self._registry.create(kind, body)
        except ApiError as error:
            log.error("the children of %s %s/%s are not as they should be: %s", resource.kind, *job.key, error)
            return RETRY_S
        self._memories[uid] = step.memory
        if step.status != job.body.get("status"):
            self._registry.update(resource, job.key, {**job.body, "status": step.status}, is_status=True)
        for body in step.counted:
            self._drop_finalizer(PODS, children[body["metadata"]["name"]], FINALIZER)
        return step.again_s

    async def _collect_garbage(self) -> None:
        while True:
            await asyncio.sleep(GARBAGE_S)
            owners = [self._registry.collection(each).revisions.values() for each in _OWNERS]
            there = {owner.view.metadata.uid for each in owners for owner in each}
            for resource in _GOING_WITH_OWNERS:
                for key, one in list(self._registry.collection(resource).revisions.items()):
                    owned = [owner for owner in one.view.metadata.owner_references if owner.kind in _OWNER_KINDS]
                    if owned and not any(owner.uid in there for owner in owned):
                        self._registry.delete(resource, key, DeleteOptions())

    def _command_seen(self, key: Key) -> None:
        """Obey a Command to a Job of Volcano, and delete it."""
        command = self._registry.collection(VOLCANO_COMMANDS).revisions.get(key)
        if command is None:
            return
        self._registry.delete(VOLCANO_COMMANDS, key, DeleteOptions())
        uid = command.body.get("target", {}).get("uid", "")
        if (known := self._jobs.get(uid)) is None:
            return
        resource, job_key = known
        job = self._registry.collection(resource).revisions.get(job_key)
        if job is not None and KINDS[resource.label].next_step is volcano_jobs.next_step:
            status = volcano_jobs.obey(job.body.get("status", {}), command.body.get("action", ""))
            if status != job.body.get("status", {}):
                self._registry.update(resource, job_key, {**job.body, "status": status}, is_status=True)

    def _forget(self, uid: str) -> None:
        """Delete what a job that is gone has left."""
        del self._jobs[uid]
        self._memories.pop(uid, None)
        self._cancel_timer(uid)
        self._delete_pods(uid)
        for resource in _CHILDREN[1:]:
            for child in self._owned(resource, uid):
                self._registry.delete(resource, child.key, DeleteOptions())

    def _cancel_timer(self, uid: str) -> None:
        if (timer := self._timers.pop(uid, None)) is not None:
            timer.cancel()

    def _owned(self, resource: ResourceType, uid: str) -> list[Revision]:
        found = self._registry.collection(resource).revisions.values()
        return [one for one in found if any(owner.uid == uid for owner in one.view.metadata.owner_references)]

    def _delete_pods(self, uid: str) -> None:
        for pod in self._owned(PODS, uid):
            self._drop_finalizer(PODS, pod, FINALIZER)
            self._delete(PODS, pod)

    def _delete(self, resource: ResourceType, child: Revision) -> None:
        """Delete a pod, or a Job once its pods are gone."""
        metadata = child.view.metadata
        if metadata.deletion_timestamp or child.key not in self._registry.collection(resource).revisions:
            return
        if resource is JOBS:
            held = {**child.body["metadata"], "finalizers": [*metadata.finalizers, _FOREGROUND]}
            self._registry.update(JOBS, child.key, {**child.body, "metadata": held})
        self._registry.delete(resource, child.key, DeleteOptions(preconditions=Preconditions(uid=metadata.uid)))

    def _drop_finalizer(self, resource: ResourceType, held: Revision, finalizer: str) -> None:
        """Take a finalizer off an object, if it is there and has one."""
        found = self._registry.collection(resource).revisions.get(held.key)
        if found is None or found.view.metadata.uid != held.view.metadata.uid:
            return
        metadata = found.body["metadata"]
        left = [each for each in metadata.get("finalizers", ()) if each != finalizer]
        if len(left) < len(metadata.get("finalizers", ())):
            self._registry.update(resource, held.key, {**found.body, "metadata": {**metadata, "finalizers": left}})
