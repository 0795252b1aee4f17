"""DLRover's controller of ElasticJobs as a function: from a job and its pods to its next step.

The master is there from the start, also of a job that is suspended, and ends with the job. The pods of the other roles
are those that `hived submit` would make; one that fails is replaced.
"""

from collections.abc import Collection

from hived.values.errors import UserError
from hived_extender.jobs.kinds.dlrover import MASTER
from hived_extender.kube.clocks import timestamp
from hived_jobs.policies import Phase
from hived_jobs.submission import PlannedJob
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step
from hived_lab.embedded.planned_jobs import OVER, Progress, owned, phase_of, plan_of, turn_of


def next_step(job: Revision, pods: Collection[Revision], progress: Progress | None, **_clocks: float) -> Step:
    """Return what a job needs."""
    status = dict(job.body.get("status", {}))
    if status.get("phase") in OVER:
        return Step(status, progress)
    step = Step(status, progress or Progress())
    try:
        plan = plan_of(job.body)
    except UserError as error:
        step.status |= {"phase": "Failed", "message": error.message, "completionTime": timestamp()}
        return step
    wanted = {planned.name: planned.manifest for planned in plan.pods}
    master = next((name for name in wanted if MASTER in name), "") or f"elasticjob-{job.key.name}-{MASTER}-0"
    wanted.setdefault(master, _master(master, plan))
    there = {pod.key.name: pod for pod in pods}
    made, deleted, end = set[str](), set[str](), None
    if job.body["spec"].get("suspend"):
        deleted = {name for name, pod in there.items() if name != master and phase_of(pod) not in OVER}
        step.memory, step.status["phase"] = Progress(), "Suspended"
    else:
        workers = [pod for name, pod in there.items() if name in wanted and (name != master or MASTER in _roles(plan))]
        turn = turn_of(plan, workers, step.memory, step.status.get("restarts", 0))
        made, deleted, end = set(turn.made), set(turn.deleted), turn.end
        step.memory = turn.progress
        if turn.is_restart:
            step.status["restarts"] = step.status.get("restarts", 0) + 1
        is_running = any(phase_of(pod) == "Running" for pod in workers)
        step.status["phase"] = "Running" if is_running or status.get("phase") == "Running" else "Pending"
    if end is not None:
        deleted |= {name for name, pod in there.items() if phase_of(pod) not in OVER}
        phase = "Succeeded" if end is Phase.COMPLETED else "Failed"
        step.status |= {"phase": phase, "completionTime": timestamp()}
    elif master not in there:
        made.add(master)
    step.made = [owned(wanted[name], job) for name in wanted if name in made and name not in there]
    step.deleted = [there[name].body for name in sorted(deleted)]
    phases = {name: phase_of(pod) for name, pod in there.items() if name not in deleted}
    phases |= dict.fromkeys(made - there.keys(), "Pending")
    step.status["replicaStatuses"] = _counts(job.body, plan, phases)
    step.status.setdefault("startTime", timestamp())
    return step


def _roles(plan: PlannedJob) -> set[str]:
    return {planned.role for planned in plan.pods}


def _master(name: str, plan: PlannedJob) -> Body:
    """The master that the controller makes of a job without a template for it: it takes no cells."""
    image = next((one.manifest["spec"]["containers"][0].get("image", "") for one in plan.pods), "")
    labels = {"app": "dlrover", "elasticjob.dlrover/name": plan.name, "elasticjob.dlrover/replica-type": MASTER}
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": image or "dlrover"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _counts(body: Body, plan: PlannedJob, phases: dict[str, str]) -> Body:
    """The pods of each role by their phase."""
    found: Body = {}
    for role in body["spec"]["replicaSpecs"]:
        pods = [phases.get(planned.name) for planned in plan.pods if planned.role == role.lower()]
        counted = {"pending": "Pending", "active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
        found[role] = {key: pods.count(phase) for key, phase in counted.items()}
    return found
