"""Reading pods that ask in the words of other schedulers, and keeping them in their gangs as they change.

A pod is read when it is seen first, when what it says has changed, and when an object that it names has. One that is
over is remembered until it is deleted, as some gangs count it. Not thread-safe.

Pods that name an affinity group in our own words, until they are gone: which of them would have which of its slots.

The core is asked about the whole group with its first pod. Each of its pods may be offered other nodes, so that those
that are there already have to be known.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import GroupSpec, PodRequest
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
    """`on_change` is called with a gang that has changed, and whether others may start for it."""

    def __init__(self, interpreter: Interpreter, gangs: Gangs, on_change: Callable[[GangKey, bool], None]) -> None:
        self._interpreter = interpreter
        self._gangs = gangs
        self._on_change = on_change
        self._naming: defaultdict[ObjectRef, dict[str, Pod]] = defaultdict(dict)
        self._rules_count = 0

    def forget_readings(self) -> None:
        """Pods may mean something else from now on: each is read anew when it is seen next."""
        self._rules_count += 1

    def read(self, record: PodRecord, pod: Pod, *, is_changed: bool = False) -> None:
        """Make out what a pod asks for and put it into its gang, unless it reads as it did before.

        `is_changed`: an object that it names is another now.
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
        """The pod is gone, or asks in our own words from now on. Harmless for one that never did otherwise."""
        gang = record.gang
        self._gangs.leave(record)
        self._unname(record.uid, record.translation.objects)
        record.translation = OWN_WORDS
        if gang is not None:
            self._on_change(gang, True)

    def end(self, pod: Pod, description: Description | None) -> None:
        """A pod is over, but still there; `description` is None if it was not known before."""
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
        """A pod that was over is deleted."""
        ended = self._gangs.ended.get(uid)
        self._gangs.forget(uid)
        if ended is not None and ended.description.gang is not None:
            self._unname(uid, [ended.description.source] if ended.description.source is not None else [])
            self._on_change(ended.description.gang, True)

    def naming(self, ref: ObjectRef) -> list[tuple[str, Pod]]:
        """(uid, pod) of those that name an object, as they were when they were read."""
        return sorted(self._naming.get(ref, {}).items())

    def _unname(self, uid: str, refs: Iterable[ObjectRef]) -> None:
        for ref in refs:
            self._naming[ref].pop(uid, None)
            if not self._naming[ref]:
                del self._naming[ref]


def translate(interpreter: Interpreter, pod: Pod, namespace: str | None, digest: int) -> Translation:
    """The request of a pod in the words of other schedulers. `namespace` needs access, None if the pod runs already."""
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
    """Of all that a pod may say, but what we write onto it ourselves: equal for equal pods."""
    spec = pod.spec or PodSpec()
    said = [*pod.labels.items(), *pod.annotations.items(), *(spec.node_selector or {}).items()]
    owner = pod.owner.uid if pod.owner is not None else ""
    words = frozenset(item for item in said if not item[0].startswith(_WRITTEN_BY_US))
    return hash((str(spec.affinity), owner, words, kueue.TOPOLOGY_GATE in pod.gates))


MOST_SLOTS = 4096
"""A group of more pods is asked about as if all were like the first."""


class NamedGroups:
    """Not thread-safe. A change costs O(1)."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodRecord]] = {}  # by group and uid
        self._name_of: dict[str, str] = {}

    def put(self, record: PodRecord, group: GroupSpec) -> None:
        """The pod names this group. One that is of a single pod is of no interest."""
        self.remove(record.uid)
        if _count(group) > 1:
            self._pods.setdefault(group.name, {})[record.uid] = record
            self._name_of[record.uid] = group.name

    def remove(self, uid: str) -> None:
        """The pod is gone."""
        name = self._name_of.pop(uid, None)
        if name is not None:
            del self._pods[name][uid]
            if not self._pods[name]:
                del self._pods[name]

    def missing(self, group: GroupSpec) -> str:
        """Why an opportunistic group that has no cells yet waits for pods that would take them, "" if all are there.

        The first pod of a group takes cells for all of it. One pod could take a cluster for a gang of ghosts. Pods of
        another size than a slot do not take it, nor those that scheduling gates hold.
        """
        wanted = _count(group)
        if wanted == 1:
            return ""
        sizes = Counter(
            one.request.spec.leaf_cell_count
            for one in self._pods.get(group.name, {}).values()
            if one.request is not None and _waits_for(one, group)
        )
        slots = Counter[int]()
        for member in group.members:
            slots[member.leaf_cell_count] += member.pod_count
        there = (slots & sizes).total()
        if there >= wanted:
            return ""
        has = f"has {there} of its {wanted} pods"
        return f"affinity group {group.name} is opportunistic and {has}: it waits for the others"

    def made_whole(self, uid: str, group: GroupSpec) -> list[str]:
        """The uids of the pods that waited for this one, the last of its group, to exist."""
        if _count(group) == 1 or self.missing(group):
            return []
        return [one.uid for one in self._pods[group.name].values() if one.uid != uid and _waits_for(one, group)]

    def waiting(self, name: str) -> list[PodRecord]:
        """The pods that name a group and wait: each could take a slot of it. Cost O(pods of the group)."""
        return [one for one in self._pods.get(name, {}).values() if _waits(one)]

    def slots(self, record: PodRecord, request: PodRequest) -> list[PodRecord]:
        """For each slot of a group that has no cells yet the pod that would have it, in canonical order. `record`,
        which is asked about, is the first of its size, and stands for pods that are not there yet.

        The pod alone if there are no others. Cost O(pods of the group).
        """
        group = request.spec.group
        named = self._pods.get(group.name, {})
        if record.uid not in named or len(named) < 2 or _count(group) > MOST_SLOTS:
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


def _count(group: GroupSpec) -> int:
    return sum(member.pod_count for member in group.members)


def _waits_for(record: PodRecord, group: GroupSpec) -> bool:
    """Would the pod have a slot if the group were placed now? One that is leaving or held would not."""
    return _waits(record) and record.request is not None and record.request.spec.group == group


def _waits(record: PodRecord) -> bool:
    return record.state is PodState.WAITING and not record.seen.is_leaving
