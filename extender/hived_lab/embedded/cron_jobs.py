"""Kubernetes' controller of CronJobs as a function: from a CronJob and its Jobs to its next step.

Schedules are in UTC. A run that was missed is not made up for. `concurrencyPolicy` and the limits of history are
honoured.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from hived.values.errors import UserError
from hived_extender.kube.clocks import timestamp
from hived_jobs.schedules import read_schedule
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step, condition, is_over
from hived_lab.embedded.planned_jobs import owned

MINUTE_S = 60.0
_HISTORY = {"Complete": ("successfulJobsHistoryLimit", 3), "Failed": ("failedJobsHistoryLimit", 1)}


def next_step(
    cron: Revision, jobs: Collection[Revision], last_s: float | None, *, now_s: float, **_clocks: float
) -> Step:
    """Return what a CronJob needs; `last_s` is when it was looked at last, in seconds since 1970."""
    spec, active = cron.body["spec"], [job for job in jobs if not is_over(job.body)]
    step = Step({**cron.body.get("status", {})}, now_s, again_s=MINUTE_S - now_s % MINUTE_S)
    step.status["active"] = [{"kind": "Job", "name": job.key.name, "namespace": job.key.namespace} for job in active]
    step.deleted = [job.body for job in _beyond_history(spec, jobs)]
    minute = datetime.fromtimestamp(now_s - now_s % MINUTE_S, UTC)
    try:
        is_due = last_s is not None and last_s < minute.timestamp() and read_schedule(spec["schedule"]).is_due(minute)
    except UserError:
        return Step(step.status, now_s)  # Kubernetes refuses it
    policy = spec.get("concurrencyPolicy", "Allow")
    if not is_due or spec.get("suspend") or (policy == "Forbid" and active):
        return step
    if policy == "Replace":
        step.deleted += [job.body for job in active]
    template = spec["jobTemplate"]
    told = {key: dict((template.get("metadata") or {}).get(key) or {}) for key in ("labels", "annotations")}
    name = f"{cron.key.name}-{int(minute.timestamp() // MINUTE_S)}"
    step.made = [owned({"metadata": {"name": name, **told}, "spec": template["spec"]}, cron)]
    step.status["lastScheduleTime"] = timestamp()
    return step


def _beyond_history(spec: Body, jobs: Collection[Revision]) -> list[Revision]:
    """The Jobs that have ended and are more than are kept, oldest first."""
    found = []
    for kind, (key, default) in _HISTORY.items():
        over = [job for job in jobs if condition(job.body.get("status", {}), kind)]
        over.sort(key=lambda job: job.view.metadata.creation_timestamp)
        found += over[: max(len(over) - spec.get(key, default), 0)]
    return found
