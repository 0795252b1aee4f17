"""The load: seeded jobs of every kind, drawn so that each kind gets its share of the GPUs, not of the jobs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from hived.values.specs import OPPORTUNISTIC_PRIORITY, GroupSpec, MemberSpec, PodRequest, PodSpec

LOW_PRIORITY, HIGH_PRIORITY = 0, 100


@dataclass(frozen=True, slots=True)
class JobKind:
    """`pod_count` pods of `gpus_per_pod`; `share` is the part of all GPUs that jobs of this kind get."""

    pod_count: int
    gpus_per_pod: int
    share: float

    @property
    def label(self) -> str:
        """As rows of the table name it."""
        return f"{self.pod_count}x{self.gpus_per_pod}"

    @property
    def gpu_count(self) -> int:
        """GPUs of the whole job."""
        return self.pod_count * self.gpus_per_pod


KINDS = (
    JobKind(1, 1, 0.08),
    JobKind(1, 2, 0.08),
    JobKind(1, 4, 0.10),
    JobKind(1, 8, 0.16),
    JobKind(8, 8, 0.20),
    JobKind(32, 8, 0.20),
    JobKind(128, 8, 0.18),
)
"""Ascending size: a job that does not fit is replaced by one of the next smaller kind."""

SMALLEST = KINDS[0]
GANGS = tuple(kind for kind in KINDS if kind.pod_count > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One affinity group and its pods, in the order in which they are scheduled."""

    kind: JobKind
    vc: str
    priority: int
    pods: tuple[PodRequest, ...]

    @property
    def is_guaranteed(self) -> bool:
        """Does it count against its VC?"""
        return self.priority != OPPORTUNISTIC_PRIORITY


class JobSource:
    """Makes jobs; the same seed makes the same jobs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._made = 0

    def make(self, kind: JobKind, vc: str, priority: int) -> Job:
        """A job with a name of its own."""
        name = f"job-{self._made}"
        self._made += 1
        spec = PodSpec(
            virtual_cluster=vc,
            priority=priority,
            leaf_cell_count=kind.gpus_per_pod,
            group=GroupSpec(f"bench/{name}", (MemberSpec(kind.pod_count, kind.gpus_per_pod),)),
        )
        return Job(
            kind, vc, priority,
            tuple(PodRequest(f"{name}-{i}", f"{name}-{i}", "bench", spec) for i in range(kind.pod_count)),
        )  # fmt: skip

    def pick_kind(self, gpu_limit: int) -> JobKind:
        """A kind that needs at most `gpu_limit` (> 0) GPUs, by its share."""
        fitting = fitting_kinds(gpu_limit)
        return self.random.choices(fitting, [kind.share / kind.gpu_count for kind in fitting])[0]

    def pick_priority(self) -> int:
        """One of the two guaranteed priorities."""
        return self.random.choice((LOW_PRIORITY, HIGH_PRIORITY))


def fitting_kinds(gpu_limit: int) -> Sequence[JobKind]:
    """The kinds that need at most `gpu_limit` GPUs, ascending."""
    return [kind for kind in KINDS if kind.gpu_count <= gpu_limit]
