"""The format of hived: a line that describes the trace, then a line of JSON for each job; nothing is lost in it.

A file of ours is read strictly: a line that is no job is an error, as only programs write such lines.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived_simulator.traces.draft import MAX_JOBS, shown
from hived_simulator.traces.fields import MAX_LEAVES, MAX_SECONDS, MAX_TIME
from hived_simulator.traces.files import Source
from hived_simulator.traces.jobs import Job, Trace

NAME = "hived"
VERSION = 1


class Header(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The first line: `hived_trace` is the version of the format; the rest is that of a `Trace`."""

    hived_trace: int
    name: str
    start: float | None = None
    notes: tuple[str, ...] = ()


_headers = msgspec.json.Decoder(Header)
_jobs = msgspec.json.Decoder(Job)


def recognises(head: str) -> bool:
    """True if a text begins as a file of ours."""
    return head.lstrip().startswith('{"hived_trace"')


def to_lines(trace: Trace) -> Iterator[bytes]:
    """The trace as lines; the same trace gives the same bytes."""
    encode = msgspec.json.Encoder().encode
    yield encode(Header(VERSION, trace.name, trace.start, trace.notes)) + b"\n"
    for job in trace.jobs:
        yield encode(job) + b"\n"


def read(source: Source) -> Trace:
    """The trace in a source. Raises UserError with the line that is wrong."""
    lines = source.lines()
    header = _decoded(_headers, next(lines), f"{source.name}:1")
    if header.hived_trace != VERSION:
        raise UserError(f"{source.name}:1: hived_trace: found version {header.hived_trace}, this hived reads {VERSION}")
    jobs: list[Job] = []
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        place = f"{source.name}:{number}"
        if len(jobs) >= MAX_JOBS:
            raise UserError(f"{place}: has more than {MAX_JOBS} jobs; read a part of it")
        job: Job = _decoded(_jobs, line, place)
        if wrong := _wrong(job):
            raise UserError(f"{place}: {wrong}")
        jobs.append(job)
    if not jobs:
        raise UserError(f"{source.name}: has no job; is it complete?")
    return _ordered(Trace(header.name, tuple(jobs), header.start, header.notes), source.name)


def _decoded(decoder: msgspec.json.Decoder[Any], line: str, place: str) -> Any:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UserError(f"{place}: {error}; found {shown(line[:40])}") from None


def _wrong(job: Job) -> str:
    """The mistake in a job; "" if there is none."""
    if not 0 < job.duration_s <= MAX_SECONDS:
        return f"duration_s: found {job.duration_s}, expected seconds above 0"
    if not abs(job.submitted_s) <= 2 * MAX_TIME:
        return f"submitted_s: found {job.submitted_s}, expected seconds since the trace's start"
    if not job.pods or any(pods.count < 1 or pods.leaf_count < 1 for pods in job.pods):
        return "pods: expected at least one, each with a leaf cell or more"
    if job.leaf_count > MAX_LEAVES:
        return f"pods: found {job.leaf_count} leaf cells together, expected at most {MAX_LEAVES}"
    if not 0 <= job.checkpoint_s <= MAX_SECONDS:
        return f"checkpoint_s: found {job.checkpoint_s}, expected seconds, 0 for no checkpoints"
    return ""


def _ordered(trace: Trace, name: str) -> Trace:
    """The same jobs in order, from the first submission on. Raises UserError if two have one name."""
    seen: set[str] = set()
    for job in trace.jobs:
        if job.name in seen:
            raise UserError(f"{name}: two jobs have the name {shown(job.name)}; rename one of them")
        seen.add(job.name)
    jobs = tuple(sorted(trace.jobs, key=lambda job: (job.submitted_s, job.name)))
    return rebased(msgspec.structs.replace(trace, jobs=jobs))


def rebased(trace: Trace) -> Trace:
    """The same trace, begun with its first submission."""
    first = trace.jobs[0].submitted_s
    if first == 0:
        return trace
    jobs = tuple(
        msgspec.structs.replace(
            job,
            submitted_s=round(job.submitted_s - first, 6),
            started_s=None if job.started_s is None else round(job.started_s - first, 6),
        )
        for job in trace.jobs
    )
    start = None if trace.start is None else trace.start + first
    return msgspec.structs.replace(trace, jobs=jobs, start=start)
