"""Warnings before queues or quotas change: which jobs lose their queue or are above their quota. For any thread."""

from collections.abc import Iterable, Mapping
from typing import Any

from hived_config.loader import Configuration
from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.kube.clocks import wall_s
from hived_extender.queues.controller import QueueController, should_resume
from hived_extender.queues.queued_jobs import JobRecord
from hived_extender.queues.table import Life
from hived_extender.queues.tree_use import MOST_NAMED, lowered_by

RESUMED = "queues are switched off: these jobs that wait are resumed at once, whether or not there are cells"
STAYS = (
    "queues are switched off: these jobs that wait stay suspended, as their authors or hived hold have them, and hived "
    "lists them no more; spec.suspend: false starts one"
)
VC_GOES = "virtual clusters go: these jobs that wait stay held, and are refused while their pods ask for one of these"
QUOTA_GOES = (
    "quotas go: these jobs that wait in them belong to the quota of their namespace then, else to none; where their "
    "label names one that goes, they are refused"
)


def without_queues(controller: QueueController, new: Configuration) -> list[str]:
    """Return which waiting jobs would lose their queue by a configuration. Cost O(jobs)."""

    waiting = _waiting(controller)
    if new.rules.queueing.is_enabled:
        lost = [entry for entry in waiting if entry.asks and entry.asks.vc not in new.cluster.virtual_clusters]
        return _named(lost, VC_GOES)
    freed = {entry.key: entry for entry in waiting if should_resume(entry.job, entry.kept)}
    return _named(freed.values(), RESUMED) + _named((one for one in waiting if one.key not in freed), STAYS)


def without_quotas(controller: QueueController, tree: QuotaTree) -> list[str]:
    """Return which waiting jobs would lose their quota by another tree. Cost O(jobs)."""
    before: Mapping[str, object] = {} if controller.quotas.tree is None else controller.quotas.tree.quotas
    asked = ((one, one.asks.queue) for one in _waiting(controller) if one.asks)
    return _named((one for one, queue in asked if queue in before and queue not in tree.quotas), QUOTA_GOES)


def _waiting(controller: QueueController) -> list[JobRecord]:
    entries = () if controller.turns is None else list(controller.turns.queues.entries.values())
    return [entry for entry in entries if entry.life is Life.WAITING]


def _named(entries: Iterable[JobRecord], fate: str) -> list[str]:
    """A sentence about some jobs with their number, and the names of the first; nothing of none."""
    names = sorted(str(entry.job.ref) for entry in entries)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return [f"{fate} ({len(names)}): {', '.join(names[:MOST_NAMED])}{more}"] if names else []


def tree_warnings(controller: QueueController, document: Mapping[str, Any], tree: QuotaTree) -> list[str]:
    """Return which jobs would be above the quotas of a tree, or lose theirs; why one does not count. Cost O(jobs)."""
    if why := controller.quotas.why_ignored(document):
        return [why]
    turns = controller.turns
    found = [] if turns is None else lowered_by(tree, turns.queues, wall_s())
    return [*found, *without_quotas(controller, tree)]
