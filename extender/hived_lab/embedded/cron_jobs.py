"""Kubernetes' controller of CronJobs as a function: from a CronJob and its Jobs to its next step.

Schedules have five fields of numbers, lists, ranges and steps, or are one of the words such as `@hourly`, in UTC. A run
that was missed is not made up for. `concurrencyPolicy` and the limits of history are honoured.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from hived.values.errors import UserError
from hived_extender.kube.clocks import timestamp
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.store import Revision
from hived_lab.embedded.batch_jobs import Step, condition, is_over
from hived_lab.embedded.planned_jobs import owned

MINUTE_S = 60.0
_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
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
        is_due = last_s is not None and last_s < minute.timestamp() and _fits(spec["schedule"], minute)
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


def _fits(schedule: str, minute: datetime) -> bool:
    """Is it time? Raises UserError for a schedule that cannot be read."""
    fields = _WORDS.get(schedule, schedule).split()
    if len(fields) != len(_BOUNDS):
        raise UserError(f"schedule {schedule!r}: expected 5 fields")
    at = (minute.minute, minute.hour, minute.day, minute.month, minute.isoweekday() % 7)
    sets = [_values(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)]
    sets[4] |= {0} if 7 in sets[4] else set()
    fits = [value in each for value, each in zip(at, sets, strict=True)]
    is_day = fits[2] or fits[4] if "*" not in (fields[2][0], fields[4][0]) else fits[2] and fits[4]
    return fits[0] and fits[1] and fits[3] and is_day


def _values(field: str, first: int, last: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        start, dash, end = span.partition("-")
        try:
            low = first if span == "*" else int(start)
            high = last if span == "*" or (step and not dash) else int(end or start)
            found |= set(range(low, high + 1, int(step or 1)))
        except ValueError as error:
            raise UserError(f"schedule: {part!r} is no number, range or step") from error
    if not found or min(found) < first or max(found) > last:
        raise UserError(f"schedule: {field!r} is not between {first} and {last}")
    return found
