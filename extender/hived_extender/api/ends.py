"""Words about the ends of jobs, and about evictions before: the same in the service's sentences and in commands."""

from hived_extender.api.waiting import Ended, Preempted

EVICTIONS: dict[str, str] = {
    "": "",
    "priority": "",
    "reclaim": "lent cells were reclaimed",
    "move": "it was moved to make room",
    "node-lost": "its node was lost",
    "drained": "its node was drained",
    "tainted": "its node has a taint",
    "kubelet": "its kubelet evicted it",
}
"""Kinds of evictions as people read them."""

NOT_BY_JOBS = ("node-lost", "drained", "tainted", "kubelet")

NOT_BY_EXIT = ("Completed", "Preempted", "Evicted")
"""States of which an exit code says nothing."""


NEVER_RAN = "it never ran"

UNSEEN = "it ended while no replica of hived led"


def preempted_words(found: Preempted, moment: str, by: str) -> str:
    """A preemption or eviction at a `moment`, for the job `by`: `preempted at 14:02 for prod-7 (priority 100)`."""
    verb = "evicted" if found.why in NOT_BY_JOBS else "preempted"
    rank = "" if found.priority is None else f" ({_rank(found.priority)})"
    why = f": {EVICTIONS[found.why]}" if EVICTIONS[found.why] else ""
    return f"{verb} at {moment}" + (f" for {by}{rank}" if by else "") + why


def attempt_words(attempts: int) -> str:
    """Which attempt of a job this was: `attempt 3, as it failed before`."""
    return f"attempt {attempts}, as it failed before"


def exit_words(ended: Ended) -> str:
    """`exit code 137 (OOMKilled) of pod a/b on node n3`; "" if nothing is known."""
    reason = EVICTIONS.get(ended.reason, ended.reason)
    if ended.exit_code is None or (ended.exit_code == 0 and reason):
        said = reason
    else:
        said = f"exit code {ended.exit_code}" + (f" ({reason})" if reason else "")
    if not said or not ended.pod:
        return said
    return f"{said} of pod {ended.pod}" + (f" on node {ended.node}" if ended.node else "")


def _rank(priority: int) -> str:
    return "opportunistic" if priority < 0 else f"priority {priority}"
