"""Queues that would go: which jobs wait in them, and what becomes of these jobs. For any thread."""

from collections.abc import Callable, Iterable, Mapping

from hived_config.loader import Configuration
from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.queues.book import JobRecord, Step
from hived_extender.queues.calling import is_let_go
from hived_extender.queues.desk import QueueDesk
from hived_extender.queues.tree_use import MOST_NAMED

LOCK_S = 1.0
"""How long a turn is waited for: the API server waits for a review, and somebody for a plan."""

UNKNOWN = "which jobs wait in queues is not known at the moment: see hived get queue --jobs"
LET_GO = "queues are switched off: these jobs that wait are let go at once, whether or not there are cells"
STAYS = (
    "queues are switched off: these jobs that wait stay suspended, as their authors or hived hold have them, and hived "
    "lists them no more; spec.suspend: false starts one"
)
VC_GOES = "virtual clusters go: these jobs that wait stay held, and are refused while their pods ask for one of these"
QUOTA_GOES = (
    "quotas go: these jobs that wait in them belong to the quota of their namespace then, else to none; where their "
    "label names one that goes, they are refused"
)


def without_queues(desk: QueueDesk, new: Configuration) -> list[str]:
    """Which waiting jobs would lose their queue by a configuration. Cost O(jobs)."""

    def told(waiting: list[JobRecord]) -> list[str]:
        if new.rules.queueing.is_enabled:
            lost = [entry for entry in waiting if entry.unit and entry.unit.vc not in new.cluster.virtual_clusters]
            return _named(lost, VC_GOES)
        freed = {entry.key: entry for entry in waiting if is_let_go(entry.job, entry.kept)}
        return _named(freed.values(), LET_GO) + _named((one for one in waiting if one.key not in freed), STAYS)

    return _of_waiting(desk, told)


def without_quotas(desk: QueueDesk, tree: QuotaTree) -> list[str]:
    """Which waiting jobs would lose their quota by another tree. Cost O(jobs)."""
    before: Mapping[str, object] = {} if desk.quotas.tree is None else desk.quotas.tree.quotas

    def told(waiting: list[JobRecord]) -> list[str]:
        lost = (one for one in waiting if one.unit and one.unit.queue in before and one.unit.queue not in tree.quotas)
        return _named(lost, QUOTA_GOES)

    return _of_waiting(desk, told)


def _of_waiting(desk: QueueDesk, told: Callable[[list[JobRecord]], list[str]]) -> list[str]:
    if not desk.lock.acquire(timeout=LOCK_S):
        return [UNKNOWN]
    try:
        entries = () if desk.turns is None else desk.turns.book.entries.values()
        return told([entry for entry in entries if entry.step is Step.WAITING])
    finally:
        desk.lock.release()


def _named(entries: Iterable[JobRecord], fate: str) -> list[str]:
    """A sentence about some jobs with their number, and the names of the first; nothing of none."""
    names = sorted(str(entry.job.ref) for entry in entries)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return [f"{fate} ({len(names)}): {', '.join(names[:MOST_NAMED])}{more}"] if names else []
