"""OpenPAI's list of jobs: the answer of `GET /api/v2/jobs`, as a list or with `withTotalCount` below `data`.

Times are milliseconds since 1970. `launchedTime` is of the latest attempt, so that earlier ones of a job with retries
count as waiting. GPUs are given for the job as a whole, and are divided among its tasks.
"""

from collections.abc import Callable

import msgspec

from hived_traces.documents import objects, typed
from hived_traces.draft import Draft
from hived_traces.fields import Unusable, count, positive_span, spread
from hived_traces.formats.format import Format
from hived_traces.jobs import Job
from hived_traces.sources import Source


class _Entry(msgspec.Struct, rename="camel"):
    name: str
    username: str | None = None
    state: str | None = None
    virtual_cluster: str | None = None
    submission_time: float | None = None
    created_time: float | None = None
    launched_time: float | None = None
    completed_time: float | None = None
    retries: int | None = None
    total_gpu_number: int | str | None = None
    total_task_number: int | None = None


def _recognises(head: str) -> bool:
    return head.lstrip()[:1] in ("[", "{") and '"virtualCluster"' in head and '"totalTaskNumber"' in head


def _read(source: Source, draft: Draft) -> None:
    draft.note("GPUs are given for whole jobs: divided among the tasks as evenly as they go")
    entries = [(draft.line, entry) for entry in typed(objects(source, draft, ("data",)), draft, _Entry)]
    last = max((time or 0.0 for _, each in entries for time in _times(each)), default=0.0)
    draft.take(entries, _to_job(draft, last))


def _times(entry: _Entry) -> tuple[float | None, ...]:
    return entry.submission_time, entry.created_time, entry.launched_time, entry.completed_time


def _to_job(draft: Draft, last: float) -> Callable[[tuple[int, _Entry]], Job]:
    is_tenant_user = draft.tenant_key("virtualCluster", ("virtualCluster", "username", "user")) != "virtualCluster"

    def to_job(row: tuple[int, _Entry]) -> Job:
        draft.line, entry = row
        leaves = count(str(entry.total_gpu_number or 0), "totalGpuNumber")
        if leaves <= 0:
            raise Unusable("asks for no GPU")
        if not entry.launched_time:
            raise Unusable("never ran")
        submitted = entry.submission_time or entry.created_time
        if not submitted:
            raise Unusable("has no time of submission")
        if entry.completed_time is None:
            draft.remark("jobs that still ran, counted up to the latest time of the trace")
        if entry.retries:
            draft.remark("jobs that were tried again, whose earlier attempts count as waiting")
        ran = (entry.completed_time or last) - entry.launched_time
        return Job(
            f"{entry.username}~{entry.name}" if entry.username else entry.name,
            (entry.username if is_tenant_user else entry.virtual_cluster) or "",
            submitted / 1000,
            positive_span(ran / 1000, "completedTime - launchedTime"),
            spread(leaves, entry.total_task_number or 1),
            user=entry.username or "",
            started_s=entry.launched_time / 1000,
            status=entry.state or "",
        )

    return to_job


FORMAT = Format("openpai", "OpenPAI, list of jobs", _recognises, _read)
