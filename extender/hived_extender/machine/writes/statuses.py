"""Writes the progress of gangs into the objects that describe them, in the words of each kind's tools.

An object is written at its last seen version only: after a conflict it is checked again. Later statuses by others stay
until the gang changes. scheduler-plugins: the phases of its controller, which counts existing and running pods.
Volcano: the phases of its scheduler; its controllers create pods from Inqueue on, and without a queue nothing precedes
that. Kubernetes: a condition.
"""

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from hived_config.words import counted
from hived_extender.jobs.kinds import coscheduling, native, volcano
from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import timestamp, with_transition
from hived_extender.machine.effects import WriteStatuses
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.gangs.table import waits_for_us

Object = Mapping[str, Any]

_FINAL = {"Finished", "Failed", "Completed"}


def status_patch(kind: str, state: GangState, found: Object, now: str) -> dict[str, Any]:
    """The patch of an object's status, as it was found; empty if it is up to date.

    `now` is the time in Kubernetes' format.
    """
    make = _STATUS.get(kind)
    old: Object = found.get("status") or {}
    if kind == native.PODGROUPS.name and native.is_former(found):
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
    """The phase by the counts of existing and running pods; "" if the minimum exists and waits."""
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
        reason = "tasks in gang are ready to be scheduled"
        said = _condition("Scheduled", "True", reason, _have_nodes(state))
    else:
        reason = "NotEnoughTasks" if state.pod_count < minimum else "NotEnoughResources"
        said = _condition("Unschedulable", "True", reason, _volcano_wait(state, minimum))
    conditions = _merged(old, said, {"transitionID": str(uuid.uuid4())}, now, takes_place_of="Unschedulable Scheduled")
    return {"phase": phase, **_counts(state), "conditions": conditions}


def _volcano_wait(state: GangState, minimum: int) -> str:
    """Return why a gang waits: how many tasks it lacks, in Volcano's words, then our own."""
    counts = {
        "Pending": state.pod_count - state.scheduled - state.succeeded - state.failed,
        "Running": state.running,
        "Bound": state.scheduled - state.running,
        "Succeeded": state.succeeded,
        "Failed": state.failed,
    }
    listed = ", ".join(f"{count} {phase}" for phase, count in counts.items() if count > 0)
    lacks = minimum - state.scheduled - state.succeeded
    told = f"{lacks}/{state.pod_count} tasks in gang unschedulable: pod group is not ready"
    said = state.obstacle or _waiting(state, minimum)
    return f"{', '.join(filter(None, (told, listed)))}, {minimum} minAvailable; {said}"


def _native_formerly(state: GangState, minimum: int, old: Object, now: str) -> dict[str, Any]:
    before = _find(old, native.FORMER_CONDITION)
    said = _scheduled(native.FORMER_CONDITION, state, minimum)
    return {} if _is_true(before) else {"conditions": _merged(old, said, {}, now)}


def _native(state: GangState, minimum: int, old: Object, now: str) -> dict[str, Any]:
    """The status with its condition; one of the former name is taken over, as after an upgrade of Kubernetes."""
    said = _scheduled(native.CONDITION, state, minimum)
    before, former = _find(old, native.CONDITION), _find(old, native.FORMER_CONDITION)
    if _is_true(before) and former is None:
        return {}
    known = next((one for one in (before, former) if one is not None and _is_true(one)), None)
    if known is not None:
        said = {**known, "type": native.CONDITION}
        kept = [each for each in old.get("conditions") or () if each not in (before, former)]
        return {"conditions": [*kept, said]}
    return {"conditions": _merged(old, said, {}, now, takes_place_of=native.FORMER_CONDITION)}


def _is_true(condition: Object | None) -> bool:
    """True once scheduled: Kubernetes keeps a group so, even with more pods."""
    return condition is not None and condition.get("status") == "True"


def _scheduled(kind: str, state: GangState, minimum: int) -> dict[str, Any]:
    if state.scheduled + state.succeeded >= minimum:
        return _condition(kind, "True", "Scheduled", _have_nodes(state))
    return _condition(kind, "False", "Unschedulable", state.obstacle or _waiting(state, minimum))


def _have_nodes(state: GangState) -> str:
    return f"{counted(state.scheduled, 'pod')} {'has' if state.scheduled == 1 else 'have'} a node"


def _waiting(state: GangState, minimum: int) -> str:
    others = "; the events of the others say what is missing" if state.pod_count else ""
    placed = state.scheduled + state.succeeded
    return f"{placed} of {counted(minimum, 'pod')} {'has' if placed == 1 else 'have'} a node{others}"


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _find(status: Object, kind: str) -> Object | None:
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), None)


def _merged(
    old: Object, said: dict[str, Any], more: Mapping[str, Any], now: str, takes_place_of: str = ""
) -> list[Any]:
    """The conditions with `said` among them, as new if changed; other types stay."""
    before = _find(old, said["type"])
    if before is None or any(before.get(key) != value for key, value in said.items()):
        before = with_transition({**said, **more}, before, now)
    gone = {said["type"], *takes_place_of.split()}
    return [*(each for each in old.get("conditions") or () if each.get("type") not in gone), before]


_STATUS: dict[str, Callable[[GangState, int, Object, str], dict[str, Any]]] = {
    coscheduling.PODGROUPS.name: _scheduler_plugins,
    coscheduling.OLD_PODGROUPS.name: _scheduler_plugins_formerly,
    volcano.PODGROUPS.name: _volcano,
    native.PODGROUPS.name: _native,
}


log = logging.getLogger(__name__)


class Found(Protocol):
    """The last seen objects; `podgroups.Objects` is one."""

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object, None if it does not exist."""

    def collection(self, kind: str) -> str:
        """The API path of objects of this kind, "" if it has none."""


class StatusWriter:
    """Writes statuses. `serves` is true of hived's schedulerNames. One call of `write` at a time."""

    def __init__(self, kube: KubeClient, objects: Found, serves: Callable[[str], bool]) -> None:
        self._kube = kube
        self._objects = objects
        self._serves = serves
        self._without_subresource: set[str] = set()  # kinds

    def write(self, effect: WriteStatuses, may_write: Callable[[], bool]) -> tuple[list[GangKey], list[GangKey]]:
        """Write all outdated statuses.

        Returns the gangs that changed meanwhile, or were not reached, and those that failed. Raises nothing.
        """
        changed, failed, cause = list[GangKey](), list[GangKey](), ""
        for key, state in effect.states.items():
            if not may_write():
                changed.append(key)
                continue
            try:
                self._write(key, state, effect.sources.get(key))
            except KubeError as error:
                if error.is_conflict:
                    changed.append(key)  # what the other one wrote will have been seen by the next round
                elif not error.is_not_found:  # else it was deleted this moment
                    failed.append(key)
                    cause = str(error)
            except Exception:
                log.exception("the status of a gang cannot be told")
        if cause:
            fields = {"gangs": [str(key) for key in failed[:8]], "cause": cause}
            log.warning("status not written", extra={"fields": fields})
        return changed, failed

    def _write(self, key: GangKey, state: GangState | None, ref: ObjectRef | None) -> None:
        if ref is None:
            if state is None:
                self._let_in(key)
            return
        collection, found = self._objects.collection(ref.kind), self._objects.get(ref.kind, ref.namespace, ref.name)
        if found is not None and collection:
            status = status_patch(ref.kind, state or GangState(), found, timestamp())
            if status:
                self._patch(ref, collection, found, status)

    def _let_in(self, key: GangKey) -> None:
        """Set the phase of a PodGroup whose controller creates pods only then. Hived has no queue for it here."""
        ref = volcano.PODGROUPS.ref(key.namespace, key.name)
        found, collection = self._objects.get(ref.kind, ref.namespace, ref.name), self._objects.collection(ref.kind)
        if found is not None and collection and waits_for_us(self._kube, self._serves, found):
            self._patch(ref, collection, found, {"phase": "Inqueue"})

    def _patch(self, ref: ObjectRef, collection: str, found: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Patch a status. Old Volcano PodGroups have no status subresource: it is a part of the object."""
        base, _, plural = collection.rpartition("/")
        path = f"{base}/namespaces/{quote(ref.namespace, safe='')}/{plural}/{quote(ref.name, safe='')}"
        body = {"metadata": {"resourceVersion": found["metadata"].get("resourceVersion", "")}, "status": status}
        if ref.kind not in self._without_subresource:
            try:
                self._kube.patch(f"{path}/status", body)
                return
            except KubeError as error:
                if not error.is_not_found:
                    raise
        self._kube.patch(path, body)
        self._without_subresource.add(ref.kind)
