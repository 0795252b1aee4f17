"""The status of a PodGroup for its gang, in the words that the tools of each kind read.

scheduler-plugins: the phases of their own controller, which counts pods as they exist and run. Formerly it told how far
scheduling had come as well. Volcano: the phases that its scheduler writes; its controllers create pods from Inqueue on,
and as there is no queue to wait in, nothing comes before that. Kubernetes: a condition.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from hived_extender.kube.transitions import with_transition
from hived_extender.pods.dialects import native_podgroup, podgroup, podgroup_old, volcano
from hived_extender.service.gangs.states import GangState

Object = Mapping[str, Any]

_FINAL = {"Finished", "Failed", "Completed"}


def status_patch(kind: str, state: GangState, found: Object, now: str) -> dict[str, Any]:
    """The patch of the status of an object of this kind, as it was found; nothing if it says that already.

    `now` is the time as Kubernetes writes it.
    """
    make = _STATUS.get(kind)
    old: Object = found.get("status") or {}
    if kind == native_podgroup.KIND.name and native_podgroup.is_former(found):
        make = _native_formerly
    if make is None or (not state.pod_count and old.get("phase") in _FINAL):  # what has ended stays so without its pods
        return {}
    wanted = make(state, _minimum(found), old, now)
    return {key: value for key, value in wanted.items() if (old.get(key) or type(value)()) != value}


def _minimum(found: Object) -> int:
    spec: Object = found.get("spec") or {}
    policy: Object = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    minimum = spec.get("minMember") or policy.get("minCount")
    return max(1, minimum) if isinstance(minimum, int) else 1


def _scheduler_plugins(state: GangState, minimum: int, old: Object, now: str) -> dict[str, Any]:
    return {"phase": _phase(state, minimum) or "Scheduling", **_counts(state), **_start(state, old, now)}


def _scheduler_plugins_formerly(state: GangState, minimum: int, old: Object, now: str) -> dict[str, Any]:
    scheduled = state.scheduled + state.succeeded
    waits_for = "Scheduled" if scheduled >= minimum else "Scheduling" if scheduled else "PreScheduling"
    phase = _phase(state, minimum) or waits_for
    return {"phase": phase, "scheduled": scheduled, **_counts(state), **_start(state, old, now)}


def _phase(state: GangState, minimum: int) -> str:
    """The phase as far as it follows from how many pods there are and run; "" if the minimum is there and waits."""
    if state.succeeded >= minimum:
        return "Finished"
    if state.failed and state.failed + state.running + state.succeeded >= minimum:
        return "Failed"
    if state.running + state.succeeded >= minimum:
        return "Running"
    return "Pending" if state.pod_count < minimum else ""


def _counts(state: GangState) -> dict[str, Any]:
    return {"running": state.running, "succeeded": state.succeeded, "failed": state.failed}


def _start(state: GangState, old: Object, now: str) -> dict[str, Any]:
    is_first = state.scheduled and not old.get("scheduleStartTime")
    return {"scheduleStartTime": now} if is_first else {}


def _volcano(state: GangState, minimum: int, old: Object, now: str) -> dict[str, Any]:
    over = state.succeeded + state.failed
    has_minimum = state.scheduled + state.succeeded >= minimum
    if state.pod_count and state.pod_count == over:
        return {"phase": "Completed", **_counts(state)}
    phase = "Running" if has_minimum else "Unknown" if state.scheduled else "Inqueue"
    if has_minimum:
        said = _condition("Scheduled", "True", "Scheduled", f"{state.scheduled} pods have a node")
    else:
        reason = "NotEnoughTasks" if state.pod_count < minimum else "NotEnoughResources"
        said = _condition("Unschedulable", "True", reason, state.obstacle or _waiting(state, minimum))
    conditions = _merged(old, said, {"transitionID": str(uuid.uuid4())}, now, takes_place_of="Unschedulable Scheduled")
    return {"phase": phase, **_counts(state), "conditions": conditions}


def _native_formerly(state: GangState, minimum: int, old: Object, now: str) -> dict[str, Any]:
    before = _find(old, native_podgroup.FORMER_CONDITION)
    said = _scheduled(native_podgroup.FORMER_CONDITION, state, minimum)
    return {} if _is_true(before) else {"conditions": _merged(old, said, {}, now)}


def _native(state: GangState, minimum: int, old: Object, now: str) -> dict[str, Any]:
    """A condition by the former name is taken over, as after an upgrade of Kubernetes."""
    said = _scheduled(native_podgroup.CONDITION, state, minimum)
    before, former = _find(old, native_podgroup.CONDITION), _find(old, native_podgroup.FORMER_CONDITION)
    if _is_true(before) and former is None:
        return {}
    known = next((one for one in (before, former) if one is not None and _is_true(one)), None)
    if known is not None:
        said = {**known, "type": native_podgroup.CONDITION}
        kept = [each for each in old.get("conditions") or () if each not in (before, former)]
        return {"conditions": [*kept, said]}
    return {"conditions": _merged(old, said, {}, now, takes_place_of=native_podgroup.FORMER_CONDITION)}


def _is_true(condition: Object | None) -> bool:
    """Once scheduled a group stays so to Kubernetes, and more pods do not change that."""
    return condition is not None and condition.get("status") == "True"


def _scheduled(kind: str, state: GangState, minimum: int) -> dict[str, Any]:
    if state.scheduled + state.succeeded >= minimum:
        return _condition(kind, "True", "Scheduled", f"{state.scheduled} pods have a node")
    return _condition(kind, "False", "Unschedulable", state.obstacle or _waiting(state, minimum))


def _waiting(state: GangState, minimum: int) -> str:
    others = "; the events of the others say what is missing" if state.pod_count else ""
    return f"{state.scheduled + state.succeeded} of {minimum} pods have a node{others}"


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _find(status: Object, kind: str) -> Object | None:
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), None)


def _merged(
    old: Object, said: dict[str, Any], more: Mapping[str, Any], now: str, takes_place_of: str = ""
) -> list[Any]:
    """The conditions with what is `said` among them, as new if it is; those of other types stay."""
    before = _find(old, said["type"])
    if before is None or any(before.get(key) != value for key, value in said.items()):
        before = with_transition({**said, **more}, before, now)
    gone = {said["type"], *takes_place_of.split()}
    return [*(each for each in old.get("conditions") or () if each.get("type") not in gone), before]


_STATUS: dict[str, Callable[[GangState, int, Object, str], dict[str, Any]]] = {
    podgroup.KIND.name: _scheduler_plugins,
    podgroup_old.KIND.name: _scheduler_plugins_formerly,
    volcano.KIND.name: _volcano,
    native_podgroup.KIND.name: _native,
}
