"""A trace as text: in our own format, which keeps everything, or as a table for other programs."""

import csv
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from hived_simulator.traces import own
from hived_simulator.traces.fields import to_text
from hived_simulator.traces.jobs import Job, Trace

COLUMNS = (
    "name", "tenant", "user", "submit_time", "duration_s", "gpus", "pods", "started", "leaf_type", "priority", "status",
)  # fmt: skip
"""Of the table; `submit_time` and `started` are dates, or seconds where the trace tells no date."""
BATCH = 1024


def _table(trace: Trace) -> Iterator[bytes]:
    def fields(job: Job) -> tuple[object, ...]:
        started = "" if job.started_s is None else _moment(trace, job.started_s)
        priority = "" if job.priority is None else job.priority
        times = (_moment(trace, job.submitted_s), _plain(job.duration_s))
        shape = (job.leaf_count, to_text(job.pods))
        return (job.name, job.tenant, job.user, *times, *shape, started, job.leaf_type, priority, job.status)

    return _rows(trace, COLUMNS, fields)


def _philly(trace: Trace) -> Iterator[bytes]:
    def fields(job: Job) -> tuple[object, ...]:
        since = datetime.fromtimestamp((trace.start or 0.0) + job.submitted_s, UTC).replace(tzinfo=None)
        work = job.duration_s * job.leaf_count
        return (since.isoformat(" "), job.duration_s, job.leaf_count, round(work, 6), job.tenant)

    return _rows(trace, ("timestamp", "duration", "num_gpus", "gpu_time", "cluster"), fields)


def _rows(trace: Trace, header: tuple[str, ...], fields: Callable[[Job], tuple[object, ...]]) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for number, job in enumerate(trace.jobs, 1):
        writer.writerow(fields(job))
        if number % BATCH == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def _moment(trace: Trace, seconds: float) -> str:
    date = trace.date(seconds)
    return _plain(seconds) if date is None else date.isoformat().replace("+00:00", "Z")


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


WRITERS: dict[str, Callable[[Trace], Iterator[bytes]]] = {"hived": own.to_lines, "csv": _table, "philly-csv": _philly}
"""Forms by name, each with a function from a trace to its bytes, in pieces."""


def losses(trace: Trace, form: str) -> list[str]:
    """The properties of this trace that a form cannot keep, in words."""
    if form == own.NAME:
        return []
    jobs = trace.jobs
    lost = {
        "notes": bool(trace.notes),
        "whether pods start together": any(not job.is_gang for job in jobs),
        "wishes to be below one cell": any(job.within_cell for job in jobs),
        "checkpoints": any(job.checkpoint_s for job in jobs),
    }
    if form == "philly-csv":
        lost |= {
            "names": True,
            "shapes of gangs": any(len(job.pods) > 1 or job.pods[0].count > 1 for job in jobs),
            "users": any(job.user for job in jobs),
            "starts": any(job.started_s is not None for job in jobs),
            "models of GPU": any(job.leaf_type for job in jobs),
            "priorities": any(job.priority is not None for job in jobs),
            "statuses": any(job.status for job in jobs),
            "that there is no date": trace.start is None,
        }
    return [what for what, is_lost in lost.items() if is_lost]
