"""CronJobs between their runs, as rows of lists: when the next run is by their schedules.

A schedule has five fields of numbers, names, lists, ranges and steps, or is one of the words such as `@hourly`. The
service does not follow CronJobs, but their runs, which are Jobs: whoever asks reads these by their own rights.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hived.values.errors import UserError
from hived_extender.api.waiting import Job, PodCounts, When
from hived_extender.jobs.annotations import SCHEDULING_SPEC, read_spec
from hived_extender.jobs.asks import PRIORITY, VIRTUAL_CLUSTER, parse_priority
from hived_extender.jobs.document import Part
from hived_extender.jobs.job import Role, typed
from hived_extender.jobs.kinds.marks import user_said
from hived_extender.kube.client import KubeClient
from hived_extender.kube.clocks import timestamp, wall_s
from hived_jobs.objects import seen_job
from hived_jobs.pod import NO_SCHEDULER

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
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = {name: place for place, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))} | {
    name: place for place, name in enumerate(_MONTHS, 1)
}
_MOST_DAYS = 8 * 366 + 1
"""Between two leap days at most, as around the year 2100."""


class Schedule(NamedTuple):
    """Minutes of an hour, hours, days of a month, months, and days of a week from Sunday, 0.

    If `is_either` day, one of the two is enough: neither is `*`.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either: bool

    def is_due(self, moment: datetime) -> bool:
        """Is there a run in this minute?"""
        return moment.minute in self.minutes and moment.hour in self.hours and self._has(moment.date())

    def next_after(self, moment: datetime) -> datetime | None:
        """The first run after a moment, in the moment's time zone; None if there is never one. Cost O(days)."""
        for each in range(_MOST_DAYS):
            day = moment.date() + timedelta(days=each)
            for hour in sorted(self.hours) if self._has(day) else ():
                for minute in sorted(self.minutes):
                    found = datetime(day.year, day.month, day.day, hour, minute, tzinfo=moment.tzinfo)
                    if found > moment:
                        return found
        return None

    def _has(self, day: date) -> bool:
        fits = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (any(fits) if self.is_either else all(fits))


def read_schedule(text: str) -> Schedule:
    """Raises UserError for a schedule that cannot be read."""
    fields = _WORDS.get(text, text).lower().split()
    if len(fields) != len(_BOUNDS):
        raise UserError(f"schedule {text!r}: expected 5 fields")
    minutes, hours, days, months, weekdays = map(_values, fields, *zip(*_BOUNDS, strict=True))
    is_either = not {fields[2][0], fields[4][0]} & {"*", "?"}
    return Schedule(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), is_either)


def _values(field: str, first: int, last: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        start, dash, end = span.partition("-")
        try:
            low = first if span in ("*", "?") else _number(start)
            high = last if span in ("*", "?") or (step and not dash) else _number(end or start)
            found |= set(range(low, high + 1, int(step or 1)))
        except ValueError as error:
            raise UserError(f"schedule: {part!r} is no number, range or step") from error
    if not found or min(found) < first or max(found) > last:
        raise UserError(f"schedule: {field!r} is not between {first} and {last}")
    return frozenset(found)


def _number(text: str) -> int:
    return _NAMES[text] if text in _NAMES else int(text)


def cron_jobs(kube: KubeClient, namespace: str = "") -> list[Job]:
    """The CronJobs without a run now whose pods hived would place, by name: of a namespace, or of all for "".

    Raises KubeError.
    """
    where = f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
    listed = kube.list_objects(f"/apis/batch/v1/{where}cronjobs", dict).items
    found = (_row({"apiVersion": "batch/v1", "kind": "CronJob"} | each, wall_s()) for each in listed)
    return sorted((row for row in found if row is not None), key=lambda row: row.name)


def _row(cron: dict[str, Any], now_s: float) -> Job | None:
    """The row of a CronJob; None while a run of it is there, which has its own, and if none of its pods is ours."""
    status = cron.get("status") or {}
    try:
        seen = seen_job(cron)
    except UserError:  # of a form that only the API server knows
        return None
    if status.get("active") or seen is None or not any(map(_is_ours, seen.roles)):
        return None
    metadata = Part("", seen.roles[0].template).part("metadata")
    labels, annotations = metadata.texts("labels"), metadata.texts("annotations")
    vc, priority = _asked(annotations)
    sentence, when = _next_run(cron, now_s)
    ran = max(status.get("lastSuccessfulTime") or "", status.get("lastScheduleTime") or "")
    return Job(
        name=str(seen.ref),
        state="Held",
        namespace=seen.ref.namespace,
        user=user_said(seen.labels, seen.annotations) or user_said(labels, annotations),
        vc=vc,
        priority=priority,
        since=ran or cron["metadata"].get("creationTimestamp") or "",
        cause="held",
        sentence=sentence if ran else f"{sentence}; it has not run yet",
        when=when,
        api_version=seen.ref.api_version,
        counts=PodCounts(wanted=sum(role.count for role in seen.roles)),
    )


def _is_ours(role: Role) -> bool:
    """Do pods of a role ask for devices, or for a scheduler that is not Kubernetes' own?"""
    spec = Part("", role.template).part("spec")
    resources = [container.part("resources").part("limits") for container in spec.parts("containers")]
    return spec.text("schedulerName") not in NO_SCHEDULER or any("/" in name for each in resources for name in each)


def _asked(annotations: Mapping[str, str]) -> tuple[str, int | None]:
    """Read the virtual cluster and the priority of pods; "" and None if missing or unreadable."""
    with suppress(UserError):
        if SCHEDULING_SPEC in annotations:
            spec = read_spec(annotations[SCHEDULING_SPEC])
            return spec.virtual_cluster, spec.priority
        if vc := annotations.get(VIRTUAL_CLUSTER):
            return vc, parse_priority(annotations[PRIORITY]) if PRIORITY in annotations else None
    return "", None


def _next_run(cron: dict[str, Any], now_s: float) -> tuple[str, When]:
    """When a CronJob runs next, in a sentence that says why, and as lists have it."""
    spec, metadata = cron["spec"], cron["metadata"]
    if spec.get("suspend"):
        name = typed(metadata["name"], metadata["namespace"])
        return f"it is suspended: hived release {name} lets it run again", When(kind="unknown", because="it is held")
    zone = spec.get("timeZone") or ""
    said = f"its schedule {spec['schedule']!r}{f' in {zone}' if zone else ''}"
    try:
        moment = datetime.fromtimestamp(now_s, ZoneInfo(zone) if zone else UTC)
        found = read_schedule(spec["schedule"]).next_after(moment)
    except (UserError, ZoneInfoNotFoundError, ValueError):
        return f"it runs by {said}, which hived cannot read", When(kind="unknown", because=f"it runs by {said}")
    if found is None:
        return f"it never runs by {said}", When(kind="never")
    at = timestamp(found.timestamp())
    return f"its next run is at {at}, by {said}", When(kind="unknown", because=f"not before {at}", earliest=at)
