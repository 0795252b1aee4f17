"""Jobs that leave since their quota was lowered below its use: by the policy of the quota that is over."""

from collections.abc import Mapping, Sequence

import msgspec

from hived_extender.quotas.tree import QuotaTree
from hived_extender.quotas.usage import EPSILON, Usage

WAIT = "wait"
"""The policy by which jobs end by themselves."""


class Running(msgspec.Struct, frozen=True):
    """A job that runs. `lost_work` are the device-seconds that it loses if it has to leave now.

    `is_borrowed`: on cells that are taken back, and so before jobs on cells of their own virtual cluster.
    """

    key: str
    queue: str
    request: Mapping[str, float]
    started_s: float
    lost_work: float = 0.0
    is_preemptible: bool = True
    is_borrowed: bool = False


def drained(usage: Usage, running: Sequence[Running]) -> dict[str, str]:
    """The keys of jobs that have to leave, none needlessly, each with the quota that is over.

    Borrowers leave first. Quotas of policy "wait" let jobs end. Jobs that may not be preempted stay. Cost
    O(quotas), and of each that is over O(jobs x (log jobs + depth)).
    """
    return _chosen(usage, [job for job in running if job.is_preemptible], waits=False)


def going_over(usage: Usage, running: Sequence[Running]) -> dict[str, str]:
    """The keys of jobs that are above a quota, none needlessly, each with the quota, whether they leave or not.

    The policy of the quota chooses them; of policy "wait" these are the newest. Cost as of `drained`.
    """
    return _chosen(usage, running, waits=True)


def _chosen(usage: Usage, running: Sequence[Running], *, waits: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    tree = usage.tree
    for name, excess in usage.over().items():
        policy = tree.quotas[name].drain
        if policy == WAIT and not waits:
            continue
        below = [job for job in running if _is_below(tree, job.queue, name)]
        gone = [job for job in below if job.key in found]
        order = _ORDERS[policy]
        for job in sorted(below, key=lambda job: (not job.is_preemptible, not job.is_borrowed, order(job))):
            if job.key not in found and _helps(job, excess, gone):
                gone.append(job)
        for job in list(gone):
            rest = [each for each in gone if each is not job]
            if job.key not in found and not _is_missing(excess, rest):
                gone = rest
        found |= {job.key: name for job in gone if job.key not in found}
    return found


def _left(excess: Mapping[str, float], gone: Sequence[Running]) -> dict[str, float]:
    """The part of an excess that stays when these jobs are gone."""
    return {name: amount - sum(job.request.get(name, 0.0) for job in gone) for name, amount in excess.items()}


def _is_missing(excess: Mapping[str, float], gone: Sequence[Running]) -> bool:
    return any(amount > EPSILON for amount in _left(excess, gone).values())


def _helps(job: Running, excess: Mapping[str, float], gone: Sequence[Running]) -> bool:
    left = _left(excess, gone)
    return any(amount > EPSILON and job.request.get(name, 0.0) for name, amount in left.items())


def _newest(job: Running) -> tuple[float, float, str]:
    return 0.0, -job.started_s, job.key


def _least_work(job: Running) -> tuple[float, float, str]:
    return job.lost_work, -job.started_s, job.key


_ORDERS = {WAIT: _newest, "preempt-newest": _newest, "preempt-least-work": _least_work}


def _is_below(tree: QuotaTree, queue: str, name: str) -> bool:
    return any(quota.name == name for quota in tree.path(queue))
