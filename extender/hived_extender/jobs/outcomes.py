"""Ends of pods, by their own status: exit code, reason, and who ended them.

Statuses are untrusted and may lack any part. Reading takes microseconds.
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.progress import seconds_of
from hived_extender.jobs.wire import Pod, PodStatus, Terminated

EvictionName = Literal["", "priority", "reclaim", "move", "node-lost", "drained", "tainted", "kubelet"]
"""The reason why a job lost its cells before its end, "" if unknown: a higher priority of its virtual cluster; lent
cells that were reclaimed; a move against fragmentation; its node is lost, was drained, or has a taint; its kubelet
evicted it.
"""

DONE = PREFIX + "job-done"
"""Label of a pod that is deleted because its job is complete without it."""

PREEMPTED: tuple[EvictionName, ...] = ("priority", "reclaim", "move")
"""Those by which cells go to another job."""

_BY_CONDITION: dict[str, EvictionName] = {
    "EvictionByEvictionAPI": "drained",
    "DeletionByTaintManager": "tainted",
    "DeletionByPodGC": "node-lost",
    "TerminationByKubelet": "kubelet",
    "PreemptionByScheduler": "priority",
}
"""By the reason of Kubernetes' condition DisruptionTarget."""

_BY_REASON: dict[str, EvictionName] = {
    "Evicted": "kubelet",
    "NodeLost": "node-lost",
    "NodeShutdown": "kubelet",
    "Terminated": "kubelet",
    "Preempting": "kubelet",
}
"""By the reason in a pod's status. A node that shuts down gracefully says `Terminated`."""

_DISRUPTED = "DisruptionTarget"

_ENDS = ("Complete", "Completed", "Succeeded", "Failed")
"""Conditions of a job that has ended, in the words of its kind."""

_USUAL = ("Completed", "Error")
"""Reasons of containers that say no more than the exit code."""

LONGEST_REASON = 64


class Outcome(msgspec.Struct, frozen=True):
    """The end of a pod. `exit_code` is that of the container that failed, else 0; None if no container has ended.

    `reason` says more than the code: `OOMKilled`, `DeadlineExceeded`. `evicted` is why others ended the pod, "" if none
    did. `at_s` is when its last container ended, in seconds since 1970; None if unknown.
    """

    has_succeeded: bool = False
    has_failed: bool = False
    exit_code: int | None = None
    reason: str = ""
    evicted: EvictionName = ""
    at_s: float | None = None


NO_OUTCOME = Outcome()


def evicted_of(status: PodStatus | None) -> EvictionName:
    """Return why others end a pod, by its status; "" if nothing says so."""
    if status is None:
        return ""
    for each in status.conditions or ():
        if each.type == _DISRUPTED and each.status == "True":
            return _BY_CONDITION.get(each.reason or "", "drained")
    return _BY_REASON.get(status.reason or "", "")


def outcome_of(pod: Pod) -> Outcome:
    """The end of a pod whose containers have all ended, or which is being deleted (rule 35.4)."""
    status = pod.status
    if status is None:
        return NO_OUTCOME
    ends = _ends(status)
    failed = next((one for one in ends if one.exit_code), None)
    moments = [at_s for one in ends if (at_s := seconds_of(one.finished or "")) is not None]
    said = status.reason or (failed.reason if failed is not None else "") or ""
    return Outcome(
        has_succeeded=status.phase == "Succeeded",
        has_failed=status.phase == "Failed",
        exit_code=failed.exit_code if failed is not None else 0 if ends else None,
        reason="" if said in _USUAL else said[:LONGEST_REASON],
        evicted=evicted_of(status),
        at_s=max(moments, default=None),
    )


def job_end_of(document: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return when the object of a job ended, in seconds since 1970, and why it failed; None and "" for what is not
    said.

    Kinds differ: a completion time, conditions, or a reason in the status itself.
    """
    status, last = _last_true(document, _ENDS)
    moments = status.get("completionTime"), status.get("endTime"), last.get("lastTransitionTime")
    at_s = next((found for each in moments if (found := seconds_of(str(each or ""))) is not None), None)
    state = status.get("state")
    reasons = last.get("reason"), status.get("reason"), state.get("reason") if isinstance(state, Mapping) else None
    return at_s, next((str(each)[:LONGEST_REASON] for each in reasons if each), "")


def held_since(document: Mapping[str, Any]) -> float | None:
    """Since when the object of a job is suspended, in seconds since 1970; None if it does not say so."""
    return seconds_of(str(_last_true(document, ("Suspended",))[1].get("lastTransitionTime") or ""))


def _last_true(document: Mapping[str, Any], types: Collection[str]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The status of an object, and the last condition of these types that is true; empty for what is not there."""
    status = document.get("status")
    status = status if isinstance(status, Mapping) else {}
    conditions = [one for one in status.get("conditions") or () if isinstance(one, Mapping)]
    met = (one for one in reversed(conditions) if one.get("type") in types and one.get("status") == "True")
    return status, next(met, {})


def _ends(status: PodStatus) -> list[Terminated]:
    """The ends of containers, those of init containers first, as they are the first to fail."""
    states = [one.state for one in (*(status.init_containers or ()), *(status.containers or ()))]
    return [state.terminated for state in states if state is not None and state.terminated is not None]
