"""The use of a quota tree by jobs that have cells, and which jobs would be above another tree."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from hived.values.errors import UserError
from hived_extender.jobs.quotas.tree import QuotaTree, quota_of
from hived_extender.jobs.quotas.usage import WAIT_POLICY, Running, Usage, drained, going_over
from hived_extender.queues.queued_jobs import JobRecord, QueuedJobs
from hived_extender.queues.units import OtherUse, Unit

MOST_NAMED = 5
"""Jobs in one sentence."""


class TreeUse:
    """The use of a tree by jobs and by pods of no queue; of no tree there is none.

    Each question costs O(jobs x depth), and needs no lock: jobs may change meanwhile.
    """

    def __init__(self, tree: QuotaTree | None, queues: QueuedJobs, now: Callable[[], float]) -> None:
        self._tree, self._queues, self._now = tree, queues, now

    def over(self) -> dict[str, dict[str, float]]:
        """By quota and resource, how much is used above its `max`; without quotas that use no more."""
        return {} if self._tree is None else self._usage(self._tree).over()

    def going_over(self) -> dict[str, str]:
        """The jobs that are above a quota which was lowered, by key, with the quota."""
        if self._tree is None:
            return {}
        return going_over(self._usage(self._tree), self._running(self._tree))

    def drained(self) -> dict[str, str]:
        """The jobs that are to leave quotas which were lowered below their use, where these say so; with the quota."""
        if self._tree is None or all(quota.drain == WAIT_POLICY for quota in self._tree.quotas.values()):
            return {}
        return drained(self._usage(self._tree), self._running(self._tree))

    def _usage(self, tree: QuotaTree) -> Usage:
        return usage_of(tree, self._queues)

    def _running(self, tree: QuotaTree) -> list[Running]:
        return running_in(tree, self._queues, self._now())


def usage_of(tree: QuotaTree, queues: QueuedJobs) -> Usage:
    """The use of a tree by all jobs that have cells, and by pods of no queue. Cost O(jobs x depth)."""
    usage = Usage(tree)
    _take_others(usage, queues.others)
    for _, unit in _with_cells(queues):
        if unit.queue in tree.quotas:
            usage.take(unit.queue, unit.request, is_preemptible=unit.is_preemptible)
    return usage


def running_in(tree: QuotaTree, queues: QueuedJobs, now: float) -> list[Running]:
    """The jobs with cells in quotas of a tree. Cost O(jobs)."""
    return [_running(entry, unit, unit.queue, now) for entry, unit in _with_cells(queues) if unit.queue in tree.quotas]


def _with_cells(queues: QueuedJobs) -> Iterator[tuple[JobRecord, Unit]]:
    """The jobs with cells, each as it counts: one that asks for more by now has the rest, if any, beyond its unit."""
    for entry in list(queues.entries.values()):
        if entry.asks is not None and entry.life.has_cells:
            yield entry, queues.running_unit(entry.key) or entry.asks


def _running(entry: JobRecord, unit: Unit, queue: str, now: float) -> Running:
    ran_s = now - entry.since_s
    return Running(
        entry.key, queue, unit.request, entry.since_s, ran_s * unit.leaf_count, unit.is_preemptible,
        entry.kept.is_borrowed,
    )  # fmt: skip


def lowered_by(tree: QuotaTree, queues: QueuedJobs, now: float) -> list[str]:
    """Return which jobs would be above the quotas of another tree, a sentence for each quota. Cost O(jobs)."""
    usage, running = Usage(tree), list[Running]()
    _take_others(usage, queues.others)
    for entry, unit in _with_cells(queues):
        if queue := _leaf_of(tree, entry):
            usage.take(queue, unit.request, is_preemptible=unit.is_preemptible)
            running.append(_running(entry, unit, queue, now))
    above = going_over(usage, running)
    found = []
    for name, excess in usage.over().items():
        jobs = [str(queues.entries[key].job.ref) for key, quota in above.items() if quota == name]
        amounts = ", ".join(f"{amount:g} {resource}" for resource, amount in excess.items())
        found.append(f"{name}: jobs that run use {amounts} more than its max; {_fate(tree.quotas[name].drain, jobs)}")
    return found


def _take_others(usage: Usage, others: Iterable[OtherUse]) -> None:
    for other in others:
        if (quota := usage.tree.quotas.get(other.queue)) is not None and quota.is_leaf:
            usage.take(other.queue, other.request, jobs=other.jobs)


def _fate(policy: str, jobs: Sequence[str]) -> str:
    """The sentence about the jobs above a quota: none if those of a quota below are enough."""
    if not jobs:
        return "they leave with those of another quota"
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    does = (
        "these run until they end"
        if policy == WAIT_POLICY
        else f"by policy {policy} these are suspended, if they may be"
    )
    return f"{does}: {', '.join(jobs[:MOST_NAMED])}{more}"


def _leaf_of(tree: QuotaTree, entry: JobRecord) -> str:
    try:
        leaf = quota_of(tree, entry.job.labels, entry.job.ref.namespace)
    except UserError:
        return ""
    return "" if leaf is None else leaf.name
