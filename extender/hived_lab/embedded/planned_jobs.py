"""Jobs whose pods are those that `hived submit` would make: their plans, and what their policies ask for next."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from hived_jobs.documents import stored_document
from hived_jobs.kinds import plan_document
from hived_jobs.policies import END_OF, Phase, TaskPod, decide, outcome
from hived_jobs.submission import SCHEDULER, PlannedJob, Submission
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step

OVER = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended."""


def plan_of(body: Body) -> PlannedJob:
    """The pods of a job. Raises UserError."""
    wanted = {key: value for key, value in body.items() if key != "status"}
    wanted["metadata"] = {
        key: value for key, value in body["metadata"].items() if key in ("name", "namespace", "labels", "annotations")
    }
    place = f"{body['kind']} {body['metadata']['namespace']}/{body['metadata']['name']}"
    document = stored_document(msgspec.json.encode(wanted).decode(), place)
    return plan_document(document, Submission("", scheduler_name=SCHEDULER))


def owned(manifest: Body, job: Revision) -> Body:
    """An object in the job's namespace, owned by the job."""
    owner = {key: job.body[key] for key in ("apiVersion", "kind")}
    owner |= {"name": job.key.name, "uid": job.view.metadata.uid, "controller": True, "blockOwnerDeletion": True}
    metadata = {**manifest["metadata"], "namespace": job.key.namespace, "ownerReferences": [owner]}
    return {**manifest, "metadata": metadata}


def keep_one(job: Revision, there: Collection[Revision], wanted: Body) -> Step:
    """The step after which a job has this object, and no other of its kind."""
    name, step = wanted["metadata"]["name"], Step({})
    step.deleted = [each.body for each in there if each.key.name != name]
    known = next((each.body for each in there if each.key.name == name), None)
    if known is None:
        step.made = [owned(wanted, job)]
    elif known["spec"] != wanted["spec"]:
        step.changed = [{**known, "spec": wanted["spec"]}]
    return step


def phase_of(pod: Revision) -> str:
    """A pod's phase."""
    return str(pod.view.status.phase)


def exit_code(pod: Revision) -> int:
    """The highest exit code of a pod's containers."""
    ends = [one.state.terminated for one in pod.view.status.container_statuses]
    return max((end.exit_code for end in ends if end is not None), default=0)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job.

    `has_begun`: its pods were made once, so one that is missing was evicted. `going` has the uid of each pod that has
    to go before it is made again.
    """

    has_begun: bool = False
    going: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """Names of pods to make and to delete now, a restart that counts, and the phase of the job's end, if any."""

    progress: Progress
    made: Collection[str] = ()
    deleted: Collection[str] = ()
    is_restart: bool = False
    end: Phase | None = None
    reason: str = ""


def turn_of(plan: PlannedJob, pods: Collection[Revision], progress: Progress, retries: int) -> Turn:
    """The next turn of a job that is not suspended and has been restarted so often."""
    seen = {
        pod.key.name: TaskPod(
            pod.key.name,
            pod.view.metadata.uid,
            phase_of(pod),
            exit_code(pod),
            bool(pod.view.metadata.deletion_timestamp),
        )
        for pod in pods
    }
    tasks = {planned.name: planned.role for planned in plan.pods}
    if any(name in seen and seen[name].uid == uid for name, uid in progress.going.items()):
        return Turn(progress)
    if progress.going or not progress.has_begun:
        return Turn(Progress(has_begun=True), made=[name for name in tasks if name not in seen])
    reaction = decide(plan.rules, tasks, seen)
    if reaction is None:
        return Turn(progress, end=outcome(plan.rules, tasks, seen))
    if reaction.policy is None:
        return Turn(progress, made=reaction.names)
    if reaction.action in END_OF:
        return Turn(progress, end=END_OF[reaction.action], reason=reaction.reason)
    limit = plan.rules.max_retries
    if limit is not None and retries >= limit:
        return Turn(progress, end=Phase.FAILED, reason=f"{reaction.reason}, after {limit} restarts")
    going = {name: seen[name].uid for name in reaction.names if name in seen}
    return Turn(replace(progress, going=going or {"": ""}), deleted=going, is_restart=True, reason=reaction.reason)
