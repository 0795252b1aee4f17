"""Reads pods with other schedulers' annotations, and keeps gangs and named groups up to date.

A pod is read when seen first, after its own changes, and after changes of objects that it names. An ended pod is
remembered until it is deleted, as some gangs count it. `NamedGroups` has the pods of affinity groups: the core is asked
about the whole group with its first pod, and each pod may be offered other nodes. Not thread-safe.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import GroupSpec, PodRequest, count_pods
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.kinds import kueue
from hived_extender.jobs.kinds.description import Description, GangKey, ObjectRef
from hived_extender.jobs.wire import Pod, PodSpec
from hived_extender.machine.gangs.gang import Ended
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.pods import OWN_WORDS, PodRecord, PodState, Translation

_WRITTEN_BY_US = PREFIX + "pod-"


class Members:
    """Pods of gangs. `on_change` is called with a changed gang, and whether others may start because of it."""

    def __init__(self, interpreter: Interpreter, gangs: Gangs, on_change: Callable[[GangKey, bool], None]) -> None:
        self._interpreter = interpreter
        self._gangs = gangs
        self._on_change = on_change
        self._naming: defaultdict[ObjectRef, dict[str, Pod]] = defaultdict(dict)
        self._rules_count = 0

    def forget_readings(self) -> None:
        """Read each pod again when it is seen next."""
        self._rules_count += 1

    def read(self, record: PodRecord, pod: Pod, *, is_changed: bool = False) -> None:
        """Read a pod's request and put it into its gang, unless nothing changed.

        `is_changed`: an object that it names has changed.
        """
        digest = hash((self._rules_count, _digest(pod)))
        if digest == record.translation.digest and not is_changed:
            return
        was_known = record.is_of_dialect
        self.leave(record)
        found = record.translation = translate(self._interpreter, pod, None if pod.node else record.namespace, digest)
        spec = record.reading.spec if record.reading is not None else None
        asks_nothing = record.gang is None and found.ask is not None and not found.ask.leaf_cell_count
        if pod.is_ours and asks_nothing and isinstance(spec, UserError):
            record.translation = replace(found, mistake=spec.message)
        for ref in found.objects:
            self._naming[ref][record.uid] = pod
        self._gangs.join(record)
        if record.gang is not None:
            self._on_change(record.gang, was_known)

    def leave(self, record: PodRecord) -> None:
        """Remove a pod that is gone or has hived's annotation from now on. Harmless for others."""
        gang = record.gang
        self._gangs.leave(record)
        self._unname(record.uid, record.translation.objects)
        record.translation = OWN_WORDS
        if gang is not None:
            self._on_change(gang, True)

    def end(self, pod: Pod, description: Description | None) -> None:
        """Note an ended pod that is not deleted; `description` is None if it was unknown before."""
        uid, is_leaving = pod.metadata.uid, bool(pod.metadata.deletion_timestamp)
        known = self._gangs.ended.get(uid)
        if known is not None and known.is_leaving == is_leaving:
            return
        if known is not None:
            description = known.description
        if description is None:
            with suppress(UserError):
                description = self._interpreter.describe(pod)
        if description is None or description.gang is None:
            return
        if description.missing and description.source is not None:
            self._naming[description.source][uid] = pod
        ended = Ended(description, pod.has_succeeded, pod.metadata.created or "", pod.owner, is_leaving)
        self._gangs.end(uid, ended)
        self._on_change(description.gang, True)

    def forget_end(self, uid: str) -> None:
        """Forget an ended pod that was deleted."""
        ended = self._gangs.ended.get(uid)
        self._gangs.forget(uid)
        if ended is not None and ended.description.gang is not None:
            self._unname(uid, [ended.description.source] if ended.description.source is not None else [])
            self._on_change(ended.description.gang, True)

    def naming(self, ref: ObjectRef) -> list[tuple[str, Pod]]:
        """(uid, pod) of the pods that name an object, as last read."""
        return sorted(self._naming.get(ref, {}).items())

    def _unname(self, uid: str, refs: Iterable[ObjectRef]) -> None:
        for ref in refs:
            self._naming[ref].pop(uid, None)
            if not self._naming[ref]:
                del self._naming[ref]


def translate(interpreter: Interpreter, pod: Pod, namespace: str | None, digest: int) -> Translation:
    """The request of a pod with another scheduler's annotations. `namespace` needs access, None if the pod runs
    already.
    """
    found = Translation(digest, objects=interpreter.objects_of(pod))
    try:
        description = interpreter.describe(pod)
        found = replace(found, description=description)
        ask = interpreter.ask(pod, description)
        if namespace is not None:
            interpreter.check_access(namespace, ask.virtual_cluster, ask.priority)
    except UserError as error:
        return replace(found, mistake=error.message)
    return replace(found, ask=ask)


def _digest(pod: Pod) -> int:
    """A digest of the pod without hived's own writes: equal for equal pods."""
    spec = pod.spec or PodSpec()
    said = [*pod.labels.items(), *pod.annotations.items(), *(spec.node_selector or {}).items()]
    owner = pod.owner.uid if pod.owner is not None else ""
    words = frozenset(item for item in said if not item[0].startswith(_WRITTEN_BY_US))
    return hash((str(spec.affinity), owner, words, kueue.TOPOLOGY_GATE in pod.gates))


MISSING_S = 120.0
"""The time after its newest pod for which an opportunistic group waits for missing ones."""

_PATIENCE = f"{MISSING_S / 60:.0f} minutes after the newest one at most"

MOST_SLOTS = 4096
"""A group of more pods is asked about as if all were like the first."""


class NamedGroups:
    """Pods that name an affinity group, and their slots. Not thread-safe; a change costs O(1)."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodRecord]] = {}  # by group and uid
        self._name_of: dict[str, str] = {}

    def put(self, record: PodRecord, group: GroupSpec) -> None:
        """Add a pod to its group, unless it is the only one."""
        self.remove(record.uid)
        if count_pods(group.members) > 1:
            self._pods.setdefault(group.name, {})[record.uid] = record
            self._name_of[record.uid] = group.name

    def remove(self, uid: str) -> None:
        """Remove a pod that is gone."""
        name = self._name_of.pop(uid, None)
        if name is not None:
            del self._pods[name][uid]
            if not self._pods[name]:
                del self._pods[name]

    def missing(self, group: GroupSpec, written: GroupSpec | None = None) -> str:
        """The reason why an opportunistic group without cells waits for unborn pods (rule 26.14), "" if all exist.

        A part of a `written` group, which lost a pod before its start, tells the pods of that.
        """
        wanted = count_pods(group.members)
        if wanted == 1:
            return ""
        there = len(self.present(group))
        if there >= wanted:
            return ""
        has = f"has {there} of its {count_pods((written or group).members)} pods"
        return f"affinity group {group.name} is opportunistic and {has}: it waits for the others, {_PATIENCE}"

    def present(self, group: GroupSpec) -> dict[str, int]:
        """The leaf cells of the waiting pods that would get a slot, by uid. Cost O(pods of the group).

        Pods of another size than a free slot, or with scheduling gates, do not count.
        """
        free = Counter[int]()
        for member in group.members:
            free[member.leaf_cell_count] += member.pod_count
        found: dict[str, int] = {}
        for one in self._pods.get(group.name, {}).values():
            size = one.request.spec.leaf_cell_count if one.request is not None else 0
            if free[size] and _waits_for(one, group):
                free[size] -= 1
                found[one.uid] = size
        return found

    def waiting_for(self, uid: str, group: GroupSpec) -> list[str]:
        """The uids of pods that waited for this one, the last of its group."""
        if count_pods(group.members) == 1 or self.missing(group):
            return []
        return [one.uid for one in self._pods[group.name].values() if one.uid != uid and _waits_for(one, group)]

    def waiting(self, name: str) -> list[PodRecord]:
        """The waiting pods that name a group: each could take a slot. Cost O(pods of the group)."""
        return [one for one in self._pods.get(name, {}).values() if _waits(one)]

    def slots(self, record: PodRecord, request: PodRequest) -> list[PodRecord]:
        """For each slot of a group without cells the pod that would have it, in canonical order.

        `record`, the asked pod, is the first of its size, and stands for missing pods; alone if there are no others.
        Cost O(pods of the group).
        """
        group = request.spec.group
        named = self._pods.get(group.name, {})
        if record.uid not in named or len(named) < 2 or count_pods(group.members) > MOST_SLOTS:
            return [record]
        by_size: dict[int, list[PodRecord]] = {request.spec.leaf_cell_count: [record]}
        for one in named.values():
            if one is not record and _waits_for(one, group) and one.request is not None:
                by_size.setdefault(one.request.spec.leaf_cell_count, []).append(one)
        slots: list[PodRecord] = []
        for member in group.members:
            pods = by_size.get(member.leaf_cell_count, [])[: member.pod_count]
            slots += pods + [record] * (member.pod_count - len(pods))
        return slots


def _waits_for(record: PodRecord, group: GroupSpec) -> bool:
    """True if the pod would get a slot if the group were placed now; leaving and held pods would not."""
    return _waits(record) and record.request is not None and record.request.spec.group == group


def _waits(record: PodRecord) -> bool:
    return record.state is PodState.WAITING and not record.seen.is_leaving
