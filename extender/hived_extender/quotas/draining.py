"""Jobs that leave since their quota was lowered below its use: by the policy of the quota that is over."""

from collections.abc import Mapping, Sequence

import msgspec

from hived_extender.quotas.tree import QuotaTree
from hived_extender.quotas.usage import EPSILON, Usage

WAIT = "wait"
"""The policy by which jobs end by themselves."""


class Running(msgspec.Struct, frozen=True):
    """A job that runs. `lost_work` are the device-seconds that it loses if it has to leave now."""

    key: str
    queue: str
    request: Mapping[str, float]
    started_s: float
    lost_work: float = 0.0
    is_preemptible: bool = True


def drained(usage: Usage, running: Sequence[Running]) -> dict[str, str]:
    """The keys of jobs that have to leave, none needlessly, each with the quota that is over.

    Quotas of policy "wait" let them end. Jobs that may not be preempted stay. Cost O(quotas + jobs x depth).
    """
    found: dict[str, str] = {}
    tree = usage.tree
    for name, excess in usage.over().items():
        policy = tree.quotas[name].drain
        if policy == WAIT:
            continue
        below = [job for job in running if _is_below(tree, job.queue, name)]
        gone = [job for job in below if job.key in found]
        for job in sorted(below, key=_ORDERS[policy]):
            if job.is_preemptible and job.key not in found and _helps(job, excess, gone):
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


_ORDERS = {
    "preempt-newest": lambda job: (-job.started_s, job.key),
    "preempt-least-work": lambda job: (job.lost_work, -job.started_s, job.key),
}


def _is_below(tree: QuotaTree, queue: str, name: str) -> bool:
    return any(quota.name == name for quota in tree.path(queue))
