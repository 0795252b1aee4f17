"""Jobs of the large set-ups: random ones at a load, and two weeks of Philly where the shared folder has them."""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

from tests.places import SHARED
from tests.quality.plain import OPPORTUNISTIC

PHILLY = SHARED / "data" / "philly.csv.gz"
GPUS = 8
Sizes = tuple[tuple[tuple[int, ...], int], ...]  # of the pods of a job, and how many such jobs there are
SIZES: Sizes = (
    ((1,), 30), ((2,), 12), ((4,), 13), ((8,), 15), ((4,) * 2, 3), ((4,) * 4, 3), ((8,) * 2, 8), ((8,) * 4, 8),
    ((8,) * 8, 5), ((8,) * 16, 3),
)  # fmt: skip
MIXED_SIZES: Sizes = (
    ((1,), 25), ((2,), 10), ((4,), 10), ((8,), 12), ((1, 8), 8), ((2, 4), 8), ((4, 8, 8), 8), ((1, 1, 4, 8), 6),
    ((2,) * 3 + (8,) * 4, 5), ((4,) * 4 + (8,) * 8, 3),
)  # fmt: skip
MEDIAN_S, MEAN_S = 3600.0, 3600.0 * 1.6487  # of log-normal durations with sigma 1


@dataclass(frozen=True, slots=True)
class Job:
    """A job: times in seconds; `sizes` are the leaves of its pods."""

    name: str
    vc: str
    submitted: float
    duration: float
    sizes: tuple[int, ...]
    priority: int = 0

    @property
    def leaf_count(self) -> int:
        """Leaves of all pods."""
        return sum(self.sizes)


def random_jobs(
    quotas: dict[str, int], load: float, opportunistic: float, count: int, seed: int, kinds: Sizes = SIZES
) -> list[Job]:  # fmt: skip
    """Jobs in order of submission, which ask for a load of what the VCs are promised, as a share of 1.

    quotas : VC -> leaves
    opportunistic : share of the jobs that are opportunistic
    """
    random = Random(f"jobs {load} {opportunistic} {seed}")
    total = sum(quotas.values())
    mean_leaves = sum(sum(sizes) * weight for sizes, weight in kinds) / sum(weight for _, weight in kinds)
    gap = mean_leaves * MEAN_S / (load * total)
    now, jobs = 0.0, []
    sizes, weights = zip(*kinds, strict=True)
    for number in range(count):
        now += random.expovariate(1 / gap)
        vc = random.choices(list(quotas), list(quotas.values()))[0]
        wanted = random.choices(sizes, weights)[0]
        duration = MEDIAN_S * min(20.0, random.lognormvariate(0, 1))
        priority = OPPORTUNISTIC if random.random() < opportunistic else 0
        jobs.append(Job(f"j{number}", vc, now, duration, wanted, priority))
    return jobs


def philly_jobs(days: float = 1.5, first: str = "2017-10-16", last: str = "2017-10-29") -> list[Job]:
    """The jobs of Philly submitted on these days, both included, with their arrivals pressed into `days` days.

    Durations stay as they are. A job of n GPUs has n // 8 pods of 8, and one of the remainder.
    """
    jobs = []
    for row in _rows():
        if not first <= row["timestamp"][:10] <= last:
            continue
        submitted = (_seconds(row["timestamp"]) - _seconds(f"{first} 00:00:00")) * days / _day_count(first, last)
        gpus = int(row["num_gpus"])
        sizes = (*((gpus % GPUS,) if gpus % GPUS else ()), *(GPUS,) * (gpus // GPUS))
        jobs.append(Job("", row["cluster"], submitted, max(1.0, float(row["duration"])), sizes))
    jobs.sort(key=lambda job: job.submitted)
    return [replace(job, name=f"j{number}") for number, job in enumerate(jobs)]


def quotas_by_work(jobs: list[Job], node_count: int) -> dict[str, int]:
    """Nodes of each VC in proportion to the GPU-hours of its jobs, at least one: VC -> nodes."""
    work: dict[str, float] = defaultdict(float)
    for job in jobs:
        work[job.vc] += job.leaf_count * job.duration
    total = sum(work.values())
    shares = {vc: work[vc] / total * node_count for vc in sorted(work)}
    nodes = {vc: max(1, int(share)) for vc, share in shares.items()}
    for vc in sorted(shares, key=lambda vc: (int(shares[vc]) - shares[vc], vc)):
        if sum(nodes.values()) < node_count:
            nodes[vc] += 1
    while sum(nodes.values()) > node_count:
        nodes[max(nodes, key=lambda vc: (nodes[vc], vc))] -= 1
    return nodes


def that_fit(jobs: list[Job], nodes: dict[str, int]) -> list[Job]:
    """The jobs that their VC could ever run: others would end a first-come queue."""
    return [job for job in jobs if len(job.sizes) <= nodes.get(job.vc, 0)]


def _rows() -> Iterator[dict[str, str]]:
    with gzip.open(PHILLY, "rt", newline="") as file:
        yield from csv.DictReader(file)


def _seconds(text: str) -> float:
    return (datetime.fromisoformat(text) - datetime(2017, 1, 1)).total_seconds()


def _day_count(first: str, last: str) -> int:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).days + 1
