"""Kubeflow's controllers of its training jobs as a function: from a job and its pods to its next step.

A job that is not suspended has its pods, as `hived submit` would make them; one that is suspended has none. Its status
says Created, Running, Suspended, Succeeded or Failed in the words of its kind, the last change last, and counts its
pods as that kind does. A pod that failed or was evicted is made again, unless its policy retries no such failure, which
ends the job; ends of pods count once.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hived.values.errors import UserError
from hived_extender.jobs.kinds.kubeflow import REPLICA_SPECS
from hived_extender.kube.clocks import timestamp
from hived_jobs.policies import Event
from hived_jobs.submission import PlannedJob
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import turn_condition
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step, is_over
from hived_lab.embedded.planned_jobs import OVER, exit_code, owned, phase_of, plan_of

_FAILED = {"MPIJob": "MPIJobMPIJobFailed"}
"""Reasons of failures that do not only begin with the kind."""

_DECIDING = {
    "PyTorchJob": ("master", "worker"),
    "TFJob": ("chief", "master", "worker"),
    "MPIJob": ("launcher",),
    "XGBoostJob": ("master",),
    "PaddleJob": ("master", "worker"),
    "JAXJob": ("worker",),
}
"""The first of these roles that a job has says when it has succeeded."""


def next_step(job: Revision, pods: Collection[Revision], done: frozenset[str] | None, **_clocks: float) -> Step:
    """Return what a job needs; `done` has the names of pods that have succeeded, whether they are there or not."""
    if is_over(job.body):
        return Step(job.body["status"], done)
    phases = {pod.key.name: phase_of(pod) for pod in pods}
    done = (done or frozenset()) | {name for name, phase in phases.items() if phase == "Succeeded"}
    step = Step(dict(job.body.get("status", {})), done)
    try:
        plan = plan_of(job.body)
    except UserError as error:
        _turn(step, job, "Failed", "Unusable", error.message)
        return step
    failed = [] if _is_suspended(job.body) else _final_failures(plan, pods)
    is_done = _is_done(job.body, plan, done)
    if _is_suspended(job.body):
        step.deleted = [pod.body for pod in pods if phase_of(pod) not in OVER]
    elif not failed and not is_done:
        wanted = {planned.name: planned for planned in plan.pods[: plan.width]}
        step.deleted = [pod.body for pod in pods if pod.key.name in wanted and phase_of(pod) == "Failed"]
        missing = [planned for name, planned in wanted.items() if name not in phases and name not in done]
        step.made = [owned(planned.manifest, job) for planned in missing]
    for body in step.deleted:
        del phases[body["metadata"]["name"]]
    phases |= {body["metadata"]["name"]: "Pending" for body in step.made}
    _tell(step, job, plan, phases, failed=failed, is_done=is_done and not _is_suspended(job.body))
    clean = (job.body["spec"].get("runPolicy") or {}).get("cleanPodPolicy", "None")
    if is_over({"status": step.status}) and clean != "None":
        step.deleted = [pod.body for pod in pods if clean == "All" or phase_of(pod) not in OVER]
    return step


def _tell(
    step: Step, job: Revision, plan: PlannedJob, phases: Mapping[str, str], *, failed: list[str], is_done: bool
) -> None:
    """Write the status: whether the job is suspended or over, and the counts of its pods, by the phases given."""
    kind, done = job.body["kind"], step.memory
    _turn(step, job, "Created", f"{kind}Created", f"{kind} {job.key.name} is created")
    left = {name for name, phase in phases.items() if phase not in OVER}
    _turn(step, job, "Suspended", f"{kind}{'Suspended' if _is_suspended(job.body) else 'Resumed'}", "")
    if not is_done and any(phases.get(name) == "Running" for name in _deciding(job.body, plan)):
        _turn(step, job, "Running", f"{kind}Running", f"{kind} {job.key.name} is running")
    if failed:
        _turn(step, job, "Failed", _FAILED.get(kind, f"{kind}Failed"), f"failed: {', '.join(failed)}")
    elif is_done:
        _turn(step, job, "Succeeded", f"{kind}Succeeded", "its pods have succeeded")
        if kind != "MPIJob":  # of a job that is done no pod counts as active
            done = done | left
    if (failed or is_done) and kind == "MPIJob":
        phases = {name: phase for name, phase in phases.items() if name not in left}
    step.status |= _counts(job.body, plan, phases, done)
    # The operator leaves it out for a failure by restartPolicy ExitCode.
    if is_done or (failed and not any(policy.exit_codes for policy in plan.rules.policies)):
        step.status["completionTime"] = timestamp()


def _turn(step: Step, job: Revision, condition: str, reason: str, message: str) -> None:
    """Say a condition, behind all others if it is news; a job that is suspended or over runs no more."""
    is_suspended = _is_suspended(job.body)
    value = "False" if condition == "Suspended" and not is_suspended else "True"
    turned = turn_condition(step.status, condition, value, reason, message)
    if turned is not step.status:
        if condition == "Suspended":
            turned.pop("startTime", None)
        if condition in ("Suspended", *OVER):
            turned = turn_condition(turned, "Running", "False", reason, message)
        turned["conditions"].sort(key=lambda one: one["type"] == condition)
    step.status = turned
    if not is_suspended:
        step.status.setdefault("startTime", timestamp())


def _is_done(body: Body, plan: PlannedJob, done: Collection[str]) -> bool:
    """True if the pods that decide about a job have succeeded."""
    pods = _deciding(body, plan)
    return bool(pods) and set(pods) <= set(done)


def _deciding(body: Body, plan: PlannedJob) -> list[str]:
    """The pods that decide about a job."""
    pods = [pod.name for pod in plan.pods]
    if roles := _DECIDING.get(body["kind"]):
        by_role = {role: [pod.name for pod in plan.pods if pod.role == role] for role in roles}
        role = next((role for role in roles if by_role[role]), "")
        is_first_enough = body["kind"] == "TFJob" and body["spec"].get("successPolicy") != "AllWorkers"
        pods = by_role.get(role, [])[: 1 if is_first_enough else None]
    return pods


def _final_failures(plan: PlannedJob, pods: Iterable[Revision]) -> list[str]:
    """The pods of a job of Kubeflow that have failed for good, which ends it."""
    planned = {pod.name: pod for pod in plan.pods}
    found = []
    for pod in pods:
        if phase_of(pod) == "Failed" and (known := planned.get(pod.key.name)):
            is_kept = known.manifest["spec"].get("restartPolicy") != "Never"
            code = exit_code(pod)
            if not is_kept and not any(each.fits(Event.POD_FAILED, known.role, code) for each in plan.rules.policies):
                found.append(pod.key.name)
    return found


def _counts(body: Body, plan: PlannedJob, phases: Mapping[str, str], done: Collection[str]) -> Body:
    """The part of a job's status that counts its pods, as its kind has it."""
    specs = body["spec"][REPLICA_SPECS[body["kind"]]]
    roles: dict[str, list[str]] = {name.lower(): [] for name in specs}
    for pod in plan.pods:
        roles[pod.role].append(pod.name)
    return {
        "replicaStatuses": {
            name: {
                "active": sum(phases.get(pod, "Failed") not in OVER and pod not in done for pod in pods),
                "succeeded": sum(pod in done for pod in pods),
                "failed": sum(phases.get(pod) == "Failed" for pod in pods),
            }
            for name, pods in ((name, roles[name.lower()]) for name in specs)
        }
    }


def _is_suspended(body: Body) -> bool:
    spec: dict[str, Any] = body.get("spec") or {}
    return bool((spec.get("runPolicy") or spec).get("suspend"))
