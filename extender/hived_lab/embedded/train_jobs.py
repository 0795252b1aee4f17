"""Kubeflow Trainer's controller of TrainJobs as a function: from a TrainJob and its JobSet to its next step.

No runtimes are kept: each is taken for one of equal nodes alone, as Kubeflow's `torch-distributed` is.
"""

from collections.abc import Collection
from typing import Any

from hived_jobs.submission import SCHEDULER
from hived_jobs.trainer import pod_metadata
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.kinds import turn_condition
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step, condition, is_over
from hived_lab.embedded.planned_jobs import keep_one

CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
_NODE = "node"
_TO_CONTAINER = {"image": "image", "command": "command", "args": "args", "env": "env", "resourcesPerNode": "resources"}


def next_step(job: Revision, sets: Collection[Revision], _memory: None, **_clocks: float) -> Step:
    """Return what a TrainJob needs: a JobSet of its name, suspended as it is, whose end is its own."""
    status = dict(job.body.get("status", {}))
    if is_over(job.body):
        return Step(status)
    is_suspended = bool(job.body["spec"].get("suspend"))
    step = keep_one(job, sets, _job_set(job, is_suspended=is_suspended))
    told: Body = next((each.body.get("status", {}) for each in sets), {})
    step.status = {**status, "jobsStatus": told.get("replicatedJobsStatus", [])}
    reason = "Suspended" if is_suspended else "Resumed"
    step.status = turn_condition(step.status, "Suspended", str(is_suspended), reason, "")
    for here, there in (("Complete", "Completed"), ("Failed", "Failed")):
        if end := condition(told, there):
            step.status = turn_condition(step.status, here, "True", end["reason"], end["message"])
    return step


def _job_set(job: Revision, *, is_suspended: bool) -> Body:
    trainer: dict[str, Any] = job.body["spec"].get("trainer") or {}
    container = {key: trainer[said] for said, key in _TO_CONTAINER.items() if said in trainer}
    spec = {
        "restartPolicy": "Never",
        "schedulerName": SCHEDULER,
        "containers": [{"name": _NODE, "image": "pytorch/pytorch", **container}],
    }
    count = trainer.get("numNodes", 1)
    patched = {key: pod_metadata(job.body["spec"], key) for key in ("labels", "annotations")}
    template = {"metadata": patched, "spec": spec}
    jobs = {"parallelism": count, "completions": count, "backoffLimit": 0, "template": template}
    metadata = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    replicated = {"name": _NODE, "replicas": 1, "template": {"metadata": metadata, "spec": jobs}}
    told = {key: job.body["spec"].get(key) or {} for key in ("labels", "annotations")}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": job.key.name, **told},
        "spec": {"suspend": is_suspended, "replicatedJobs": [replicated]},
    }
