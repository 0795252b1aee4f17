"""Volcano's controller of Jobs as a function: from a Job, its pods and its PodGroup to its next step.

The PodGroup is made first, with the annotations of the Job, and the pods once it has been admitted. Policies are obeyed
as `hived submit --watch` obeys them. A Command aborts a Job, another one resumes it, which counts as a retry.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from fractions import Fraction
from typing import Any

from hived.values.errors import UserError
from hived_config.quantities import canonical, exact
from hived_extender.jobs.kinds.koordinator import PREFIX as GANG_WORDS
from hived_extender.jobs.kinds.volcano import ABORT, GROUP_NAMES, RESUME
from hived_extender.kube.clocks import timestamp
from hived_jobs.policies import Phase
from hived_jobs.submission import PlannedJob
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step
from hived_lab.embedded.planned_jobs import OVER, Progress, owned, phase_of, plan_of, turn_of

_ENDS = {"Completed", "Failed", "Terminated"}
_LEAVING = {"Aborting": "Aborted", "Restarting": "Pending"}
"""The phase of a Job whose pods have to go first, and the one after it."""


def next_step(
    job: Revision, pods: Collection[Revision], progress: Progress | None, group: Revision | None, **_clocks: float
) -> Step:
    """Return what a Job needs; `group` is its PodGroup."""
    status, there = dict(job.body.get("status", {})), {pod.key.name: pod for pod in pods}
    step, phase = Step(status, progress or Progress()), status.get("state", {}).get("phase", "Pending")
    if phase in _ENDS:
        return step
    try:
        plan = plan_of(job.body)
    except UserError as error:
        return _turned(step, "Failed", error.message)
    least = job.body["spec"].get("minAvailable") or len(plan.pods)
    if group is None:
        step.beside = [_group(job, plan, least)]
    made, deleted, reason = set[str](), set[str](), status.get("state", {}).get("reason", "")
    if phase in _LEAVING:
        deleted = {name for name, pod in there.items() if phase == "Restarting" or phase_of(pod) not in OVER}
        step.memory = Progress()
        phase = phase if deleted else _LEAVING[phase]
    elif phase != "Aborted" and group is not None and group.view.status.phase not in ("", "Pending"):
        turn = turn_of(plan, pods, step.memory, status.get("retryCount", 0))
        made, deleted, step.memory, reason = set(turn.made), set(turn.deleted), turn.progress, turn.reason or reason
        if turn.end is not None:
            deleted = {name for name, pod in there.items() if phase_of(pod) not in OVER}
            phase = "Aborting" if turn.end is Phase.ABORTED else turn.end.value
        elif turn.is_restart:
            status["retryCount"] = status.get("retryCount", 0) + 1
        elif sum(phase_of(pod) in ("Running", "Succeeded") for pod in pods) >= least:
            phase = "Running"
    names = {planned.name: planned.manifest for planned in plan.pods}
    step.made = [_pod(names[name], job) for name in names if name in made and name not in there]
    step.deleted = [there[name].body for name in sorted(deleted)]
    phases = {name: phase_of(pod) for name, pod in there.items() if name not in deleted}
    _count(status, plan, phases | dict.fromkeys(made, "Pending"), least)
    return _turned(step, phase, reason)


def obey(status: Body, action: str) -> Body:
    """The status of a Job after a Command, which has an effect in one phase only."""
    phase = status.get("state", {}).get("phase", "Pending")
    if action == ABORT and phase in ("Pending", "Running", "Restarting"):
        return {**status, "state": _state("Aborting", "")}
    if action == RESUME and phase in ("Aborting", "Aborted"):
        return {**status, "state": _state("Restarting", ""), "retryCount": status.get("retryCount", 0) + 1}
    return status


def _turned(step: Step, phase: str, reason: str) -> Step:
    before = step.status.get("state", {})
    if (before.get("phase"), before.get("reason", "")) != (phase, reason):
        step.status["state"] = _state(phase, reason)
    return step


def _state(phase: str, reason: str) -> Body:
    return {"phase": phase, "lastTransitionTime": timestamp(), **({"reason": reason} if reason else {})}


def _count(status: Body, plan: PlannedJob, phases: dict[str, str], least: int) -> None:
    """Write how many pods there are by phase, and by task and phase."""
    counts = Counter(phases.values())
    for phase in ("Pending", "Running", "Succeeded", "Failed"):
        status[phase.lower()] = counts[phase]
    tasks: dict[str, Counter[str]] = {planned.role: Counter() for planned in plan.pods}
    for planned in plan.pods:
        if planned.name in phases:
            tasks[planned.role][phases[planned.name]] += 1
    status["taskStatusCount"] = {task: {"phase": dict(sorted(counts.items()))} for task, counts in tasks.items()}
    status["minAvailable"] = least


def _pod(manifest: Body, job: Revision) -> Body:
    """A pod that names the PodGroup, and no gang of Koordinator's."""
    metadata = manifest["metadata"]
    kept = {key: value for key, value in metadata["annotations"].items() if not key.startswith(GANG_WORDS)}
    annotations = {**kept, GROUP_NAMES[0]: group_name(job)}
    return owned({**manifest, "metadata": {**metadata, "annotations": annotations}}, job)


def group_name(job: Revision) -> str:
    """The name of a Job's PodGroup."""
    return f"{job.key.name}-{job.view.metadata.uid}"


def _group(job: Revision, plan: PlannedJob, least: int) -> Body:
    """The PodGroup of a Job: its minimums, and what the first pods that are enough ask for."""
    spec, minimums = job.body["spec"], Counter(planned.role for planned in plan.pods)
    for index, task in enumerate(spec["tasks"]):
        name = task.get("name") or f"default{index}"
        minimums[name] = task.get("minAvailable", minimums[name])
    said = {key: spec[key] for key in ("priorityClassName", "networkTopology") if key in spec}
    wanted = {
        "minMember": least,
        "minTaskMember": dict(minimums),
        "minResources": _resources(plan, least),
        "queue": spec.get("queue", "default"),
    }
    metadata = {key: dict(job.body["metadata"].get(key, {})) for key in ("labels", "annotations")}
    metadata["annotations"].pop("kubectl.kubernetes.io/last-applied-configuration", None)
    manifest = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {**metadata, "name": group_name(job)},
        "spec": {**wanted, **said},
        "status": {"phase": "Pending"},
    }
    return owned(manifest, job)


def _resources(plan: PlannedJob, least: int) -> Body:
    amounts: defaultdict[str, Fraction] = defaultdict(Fraction)
    for planned in plan.pods[:least]:
        for container in planned.manifest["spec"]["containers"]:
            resources: dict[str, Any] = container.get("resources") or {}
            limits, requests = ({**(resources.get(key) or {})} for key in ("limits", "requests"))
            for prefix, found in (("", limits | requests), ("limits.", limits), ("requests.", limits | requests)):
                for name, value in found.items():
                    if not prefix or name in ("cpu", "memory"):
                        amounts[prefix + name] += exact(value) or 0
    told = {name: canonical(f"{float(amount):.3f}") for name, amount in sorted(amounts.items())}
    return {"count/pods": str(least), "pods": str(least), **told}
