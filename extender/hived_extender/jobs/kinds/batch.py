"""Kubernetes' Job (batch/v1): `spec.suspend`."""

from itertools import chain

from hived_extender.jobs.document import Part
from hived_extender.jobs.job import Document, Job, PodTally
from hived_extender.jobs.kinds.kind import Source, Switch, job_of, kind_with, role_of, root_of, state_of

_DIGITS = 10
"""Of an index of a Job."""


def pods_at_once(spec: Part, status: Part | None = None) -> int:
    """The number of pods of a JobSpec with this status that run at a time; at least one, unless `parallelism` is 0.

    As in Kubernetes' controller, an index that has failed for good gets no pod. A Job without `completions` gets no
    pods once one has succeeded.
    """
    parallelism = spec.whole("parallelism", 1)
    succeeded = status.whole("succeeded", 0) if status is not None else 0
    if status is None or (not succeeded and "completions" not in spec):
        left = spec.whole("completions", parallelism)
    elif "completions" not in spec:
        left = status.whole("active", 0)
    else:
        left = spec.whole("completions", parallelism) - succeeded - _count_indexes(status.text("failedIndexes"))
    return min(parallelism, max(left, 1))


def _count_indexes(text: str) -> int:
    """The number of indexes in a text such as "1,3-5"; 0 if it cannot be read."""
    return sum(map(len, _ranges(text)))


def indexes_of(text: str) -> set[int]:
    """The indexes in such a text; none if it cannot be read."""
    return set(chain(*_ranges(text)))


def _ranges(text: str) -> list[range]:
    parts = [part.partition("-") for part in text.split(",") if part]
    if not all(_is_index(first) and (not dash or _is_index(last)) for first, dash, last in parts):
        return []
    return [range(int(first), int(last if dash else first) + 1) for first, dash, last in parts]


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS


def _read(switch: Switch, document: Document) -> Job:
    root = root_of(document)
    spec, status = root.part("spec"), root.part("status")
    role = role_of(spec, root.part("metadata").text("name"), pods_at_once(spec, status))
    active = status.whole("active", 0) + status.whole("terminating", 0)
    limit_s = spec.seconds("activeDeadlineSeconds")
    wanted = spec.whole("completions", spec.whole("parallelism", 1))
    tally = PodTally(wanted, status.whole("succeeded", 0), status.whole("failed", 0))
    return job_of(root, [role], state_of(root, switch, active), limit_s=limit_s, tally=tally)


JOB = kind_with(Switch("jobs"), "batch", "Job", ("v1",), _read)
SOURCE = Source(jobs=(JOB,))
