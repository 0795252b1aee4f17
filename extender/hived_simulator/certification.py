"""A trace replayed for its outcomes alone, and the certificate of a configuration that is made of three such runs.

A certificate compares the configuration in force, the new one, and its private clusters. Jobs of a virtual cluster
start in the order of submission, and guaranteed jobs never run over their quota. Nothing is drawn by chance: the same
trace and the same texts give the same certificate on every machine.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from hived import __version__
from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_extender.api.certificates import (
    PERCENT,
    REPORTED,
    SIZE_LIMIT,
    Certificate,
    CertifiedTrace,
    CertifiedVc,
    by_badness,
)
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Loop, Manner, Series
from hived_simulator.private import PrivateClusters
from hived_simulator.results import Outcome, excesses, later, outcomes
from hived_simulator.tasks import tasks_of, within_bounds
from hived_simulator.tenants import AUTO, assigned
from hived_simulator.traces.jobs import Job, Trace

Tell = Callable[[int, int], None]
"""Called with the tasks that are done, and with all."""


class Stopped(Exception):
    """Raised by `tell` to end a run that was interrupted."""


class Ran(msgspec.Struct, frozen=True):
    """The end of a run: its outcomes in the order of the jobs, and the part of all leaf cells that was in use until the
    last submission.
    """

    outcomes: Sequence[Outcome]
    utilisation: float


def run(
    cluster: SimulatedCluster,
    jobs: Sequence[Job],
    vc_of: Mapping[str, str],
    manner: Manner,
    tell: Tell = lambda done, of: None,
) -> Ran:
    """Run jobs on a fresh cluster; `vc_of` is the virtual cluster of each tenant. Cost: a minute for 20,000 jobs."""
    tasks = [task for number, job in enumerate(jobs) for task in tasks_of(job, number, vc_of[job.tenant])]
    loop = Loop(cluster, tasks, (), manner, 0.0)
    loop.series = Series(0.0)  # not read
    loop.run(lambda: tell(len(tasks) - loop.now.open_count, len(tasks)))
    there_s = cluster.measure().leaf_count * loop.measured_s
    used_s = sum(usage.used_s for usage in loop.usage.values())
    return Ran(outcomes(tasks, [0] * len(tasks)), used_s / there_s if there_s else 0.0)


SEED = 0
DIGITS = 3
"""Of seconds."""


class ConfigText(NamedTuple):
    """A configuration: its text, and the cluster in it."""

    text: str
    cluster: ClusterSpec

    @property
    def sha256(self) -> str:
        """Of the text, as the service has it."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


class Wish(msgspec.Struct, frozen=True):
    """The options of a certification.

    percent : by how much a mean delay may grow
    tenants : as for `hived simulate`: TENANT=VC texts, or `auto`
    """

    percent: float = PERCENT
    has_backfill: bool = False
    tenants: tuple[str, ...] = ()


def described(trace: Trace, name: str, sha256: str = "", days: float = 0.0) -> CertifiedTrace:
    """A trace as a certificate names it; without a SHA-256, that of its jobs as JSON. Cost O(jobs)."""
    digest = sha256 or hashlib.sha256(msgspec.json.encode(trace.jobs)).hexdigest()
    last_s = trace.jobs[-1].submitted_s if trace.jobs else 0.0
    first, last = (f"{date:%Y-%m-%dT%H:%M:%SZ}" if (date := trace.date(s)) else "" for s in (0.0, last_s))
    return CertifiedTrace(name, digest, len(trace.jobs), days, first, last)


def certify(
    old: ConfigText,
    new: ConfigText,
    trace: Trace,
    traced: CertifiedTrace,
    wish: Wish,
    tell: Callable[[str], Tell] = lambda part: lambda done, of: None,
) -> Certificate:
    """Replay a trace three times and compare.

    Parameters
    ----------
    old, new : the configuration in force, and the one that is to be pushed
    traced : what is known of the trace
    tell : gives a function for the progress of each part; that may raise `Stopped`

    Raises UserError if tenants have no virtual cluster, or nothing is left to replay. Cost: that of three runs.
    """
    vc_of = _assigned(trace, old.cluster, new.cluster, wish.tenants, may_leave_out=traced.days > 0)
    jobs = within_bounds([job for job in trace.jobs if job.tenant in vc_of])
    if not jobs and not traced.days:
        raise UserError(f"{traced.name}: no job is of a virtual cluster of either configuration: nothing to replay")
    manner = Manner(has_backfill=wish.has_backfill)

    def ran(part: str, cluster: SimulatedCluster) -> Sequence[Outcome]:
        return run(cluster, jobs, vc_of, manner, tell(part)).outcomes

    before = ran("in force", HivedCluster(old.cluster))
    after = ran("new", HivedCluster(new.cluster))
    private = ran("private", PrivateClusters(new.cluster))
    vcs = compared(before, after, private)
    found = Certificate(
        trace=replace(traced, jobs=len(jobs)),
        old_sha256=old.sha256,
        new_sha256=new.sha256,
        version=__version__,
        seed=SEED,
        percent=wish.percent,
        has_backfill=wish.has_backfill,
        vcs=tuple(by_badness(vcs, wish.percent)[:REPORTED]),
        vc_count=len(vcs),
    )
    return _bounded(found)


def compared(before: Sequence[Outcome], after: Sequence[Outcome], private: Sequence[Outcome]) -> list[CertifiedVc]:
    """The guaranteed jobs of each virtual cluster in three runs of the same jobs, ascending by name."""
    triples = [each for each in zip(before, after, private, strict=True) if each[1].priority != OPPORTUNISTIC_PRIORITY]
    triples.sort(key=lambda each: each[1].vc)
    ends_s = max((one.ended_s or one.submitted_s for run in (before, after) for one in run), default=0.0)
    return [_compared(vc, list(own), ends_s) for vc, own in groupby(triples, key=lambda each: each[1].vc)]


def _compared(vc: str, triples: Sequence[tuple[Outcome, Outcome, Outcome]], ends_s: float) -> CertifiedVc:
    started = [(old, new) for old, new, _ in triples if old.started_s is not None or new.started_s is not None]
    news, owns = [new for _, new, _ in triples], [own for *_, own in triples]
    late = later(zip(news, excesses(news, owns), owns, strict=True))
    lost = sum(
        new.started_s is None and (old.started_s is not None or own.started_s is not None) for old, new, own in triples
    )
    return CertifiedVc(
        vc=vc,
        jobs=len(triples),
        old_delay_s=_mean([_waited_s(old, ends_s) for old, _ in started]),
        new_delay_s=_mean([_waited_s(new, ends_s) for _, new in started]),
        later=late.count - late.never,
        later_max_s=round(late.max_s, DIGITS),
        lost=lost,
    )


def _waited_s(one: Outcome, ends_s: float) -> float:
    """From submission to start; to the end of the replay for a job that never starts."""
    return ends_s - one.submitted_s if one.delay_s is None else one.delay_s


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), DIGITS) if values else 0.0


def _bounded(certificate: Certificate) -> Certificate:
    while len(msgspec.json.encode(certificate)) > SIZE_LIMIT and certificate.vcs:
        certificate = replace(certificate, vcs=certificate.vcs[: len(certificate.vcs) * 3 // 4])
    return certificate


def _assigned(
    trace: Trace, old: ClusterSpec, new: ClusterSpec, written: Sequence[str], *, may_leave_out: bool
) -> dict[str, str]:
    """The virtual cluster of each tenant. Of a record, tenants without one in either configuration are left out."""
    both = dataclasses.replace(new, virtual_clusters={**old.virtual_clusters, **new.virtual_clusters})
    if may_leave_out and not written:
        return {
            tenant: tenant for tenant in {job.tenant: None for job in trace.jobs} if tenant in both.virtual_clusters
        }
    return assigned(trace, old if list(written) == [AUTO] else both, written, "--certify-tenants")
