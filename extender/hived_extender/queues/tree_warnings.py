"""Warnings about a quota tree at its admission that follow from the jobs that run now; for any thread."""

from collections.abc import Mapping
from typing import Any

from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.kube.clocks import wall_s
from hived_extender.queues.desk import QueueDesk
from hived_extender.queues.going import LOCK_S, without_quotas
from hived_extender.queues.tree_use import lowered_by


def tree_warnings(desk: QueueDesk, document: Mapping[str, Any], tree: QuotaTree) -> list[str]:
    """Which jobs would be above the quotas of a tree, or lose theirs; why one does not count. Cost O(jobs)."""
    if why := desk.quotas.why_ignored(document):
        return [why]
    if not desk.lock.acquire(timeout=LOCK_S):
        return ["whether jobs are above it is not known at the moment: see hived get queue afterwards"]
    try:
        turns = desk.turns
        found = [] if turns is None else lowered_by(tree, turns.book, turns.queues, wall_s())
    finally:
        desk.lock.release()
    return [*found, *without_quotas(desk, tree)]
