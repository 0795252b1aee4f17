"""Microsoft's Philly cluster, 2017: the published JSON, and the condensed table that AdaptDL and Sia have.

Times are those of the cluster, without a zone. In the table `duration` is of all attempts, without waiting; jobs have
no name, and their shape is not given. In the JSON a job has attempts, each with the GPUs that it ran on. That tells how
the job was placed, not its wish, so shapes are made as for the table unless they are wanted as placed.
"""

from collections import Counter

import msgspec

from hived_traces.documents import objects, typed
from hived_traces.draft import Draft
from hived_traces.fields import NOTHING, Unusable, count, duration, instant, moment, packed
from hived_traces.formats.format import Format
from hived_traces.jobs import Job, Pods
from hived_traces.sources import Source
from hived_traces.tables import Fields, Table, has_columns

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def _is_table(head: str) -> bool:
    return has_columns(head, COLUMNS)


def _read_table(source: Source, draft: Draft) -> None:
    node = draft.options.node_leaf_cells
    draft.note_shapes()
    draft.note_zone()

    def to_job(fields: Fields) -> Job:
        timestamp, ran, gpus, cluster = fields
        return Job(
            f"job-{draft.line - 1:07d}",
            cluster,
            moment(timestamp, "timestamp", draft.zone),
            duration(ran),
            packed(count(gpus, "num_gpus"), node),
        )

    table = Table(source, draft, COLUMNS)
    draft.take(table.rows("timestamp", "duration", "num_gpus", table.tenant_column("cluster")), to_job)


class _Machine(msgspec.Struct):
    """`gpus` of one machine that an attempt ran on."""

    gpus: list[str] = []


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] | None = None


class _Entry(msgspec.Struct):
    jobid: str
    submitted_time: str
    vc: str | None = None
    user: str | None = None
    status: str | None = None
    attempts: list[_Attempt] | None = None


def _is_json(head: str) -> bool:
    return head.lstrip()[:1] in ("[", "{") and '"attempts"' in head and '"jobid"' in head


def _read_json(source: Source, draft: Draft) -> None:
    """Two passes: jobs that still ran are counted up to the latest time that the trace tells."""
    draft.note_zone()
    if not draft.options.is_as_placed:
        draft.note_shapes()
    column = draft.tenant_key("vc", ("vc", "user"))
    entries = [(draft.line, entry) for entry in typed(objects(source, draft), draft, _Entry)]
    last = max((time for _, entry in entries for time in _times(entry, draft)), default=0.0)

    def to_job(row: tuple[int, _Entry]) -> Job:
        draft.line, entry = row
        attempts = entry.attempts or []
        shapes = [shape for each in attempts if (shape := _shape(each))]
        if not shapes:
            raise Unusable("never ran")
        ran, started = _ran(attempts, last, draft)
        leaves = sum(pods.count * pods.leaf_count for pods in shapes[-1])
        return Job(
            entry.jobid,
            getattr(entry, column) or "",
            instant(entry.submitted_time, "submitted_time", draft.zone),
            ran,
            shapes[-1] if draft.options.is_as_placed else packed(leaves, draft.options.node_leaf_cells),
            user=entry.user or "",
            started_s=started,
            status=entry.status or "",
        )

    draft.take(entries, to_job)


def _times(entry: _Entry, draft: Draft) -> list[float]:
    """All times of an entry that can be read."""
    found = []
    for text in (entry.submitted_time, *(time for each in entry.attempts or () for time in _ends(each))):
        if text not in NOTHING:
            try:
                found.append(instant(text, "", draft.zone))
            except Unusable:
                continue
    return found


def _ends(attempt: _Attempt) -> tuple[str, str]:
    return attempt.start_time or "", attempt.end_time or ""


def _ran(attempts: list[_Attempt], last: float, draft: Draft) -> tuple[float, float | None]:
    """Seconds of all attempts together, and when the first one started."""
    ran, started = 0.0, None
    for number, attempt in enumerate(attempts, 1):
        begin, end = _ends(attempt)
        if begin in NOTHING:
            draft.remark("attempts without a start, not counted")
            continue
        since = instant(begin, "start_time", draft.zone)
        started = since if started is None else started
        if end not in NOTHING:
            ran += max(0.0, instant(end, "end_time", draft.zone) - since)
        elif number == len(attempts):
            draft.remark("jobs that still ran, counted up to the latest time of the trace")
            ran += max(0.0, last - since)
        else:
            draft.remark("attempts without an end that were not the last, not counted")
    return ran, started


def _shape(attempt: _Attempt) -> tuple[Pods, ...]:
    sizes = Counter(len(each.gpus) for each in attempt.detail or () if each.gpus)
    return tuple(Pods(sizes[size], size) for size in sorted(sizes))


TABLE = Format("philly-csv", "Philly, condensed table (AdaptDL, Sia)", _is_table, _read_table)
JSON = Format("philly-json", "Philly, job log as published", _is_json, _read_json)
