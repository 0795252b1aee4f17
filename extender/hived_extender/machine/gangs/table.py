"""All gangs: their pods, gangs that start together, and pods that cannot go on without others.

Nothing is decided or held here. A plan is made on demand and cached until a pod changes. Some controllers, such as
Volcano's and Kubeflow's training-operator, create no pods before their PodGroup has left Pending (rule 26.16). Not
thread-safe.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from hived.values.errors import UserError
from hived_extender.jobs.kinds import marks, volcano
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.machine.gangs.gang import Ended, Gang, task_of
from hived_extender.machine.gangs.plans import Plan, make_plan
from hived_extender.machine.pods import PodRecord


class Gangs:
    """All gangs, by key. `ended` has ended pods, by uid; `change_count` grows with every change of a pod."""

    def __init__(self) -> None:
        self._changed: dict[GangKey, None] = {}
        self._regrouped: dict[GangKey, None] = {}
        self.ended: dict[str, Ended] = {}
        self.change_count = 0
        self._gangs: dict[GangKey, Gang] = {}
        self._listed_by: defaultdict[GangKey, Counter[GangKey]] = defaultdict(Counter)
        self._by_name: dict[str, dict[GangKey, Gang]] = {}
        self._plans: dict[GangKey, Plan] = {}

    # Facts

    def join(self, record: PodRecord) -> None:
        """Add a pod to the gang of its description."""
        description = record.translation.description
        if description is None or description.gang is None:
            return
        gang = self._gang(description.gang)
        gang.members[record.uid] = record
        for other in description.groups or ():
            gang.lists[other] += 1
            self._listed_by[other][gang.key] += 1
        self.changed(gang.key)

    def leave(self, record: PodRecord) -> None:
        """Remove a pod that is gone or is read again; a pod without a gang is ignored."""
        description = record.translation.description
        if description is None or description.gang is None:
            return
        gang = self._gangs.get(description.gang)
        if gang is None or gang.members.pop(record.uid, None) is None:
            return
        self.changed(gang.key)
        for other in description.groups or ():
            _decrement(gang.lists, other)
            _decrement(self._listed_by[other], gang.key)
            if not self._listed_by[other]:
                del self._listed_by[other]
        self._drop_if_empty(gang)

    def end(self, uid: str, ended: Ended) -> None:
        """Note an ended pod that is not deleted, replacing earlier news."""
        key = ended.description.gang
        if key is not None:
            self.ended[uid] = self._gang(key).ended[uid] = ended
            self.changed(key)

    def forget(self, uid: str) -> None:
        """Forget an ended pod that was deleted."""
        ended = self.ended.pop(uid, None)
        if ended is not None and ended.description.gang is not None:
            gang = self._gangs[ended.description.gang]
            self.changed(gang.key)
            del gang.ended[uid]
            self._drop_if_empty(gang)

    def changed(self, key: GangKey) -> None:
        """Drop cached plans after a change of a gang's pod."""
        self.change_count += 1
        gang = self._gangs.get(key)
        if gang is not None:
            gang.changed()
            for namesake in gang.namesakes:  # their plans may name this one's pods
                self._plans.pop(namesake, None)
        self._changed[key] = self._regrouped[key] = None
        plan = self._plans.get(key)
        for other in (key, *(plan.keys if plan is not None else ()), *self.together(key)):
            self._plans.pop(other, None)

    def take_changed(self) -> tuple[GangKey, ...]:
        """The gangs changed since the last call."""
        keys, self._changed = tuple(self._changed), {}
        return keys

    def take_regrouped(self) -> tuple[GangKey, ...]:
        """The same, for telling the core which groups go on together."""
        keys, self._regrouped = tuple(self._regrouped), {}
        return keys

    # Questions

    def get(self, key: GangKey) -> Gang | None:
        """The gang; None if it has no pods."""
        return self._gangs.get(key)

    def all(self) -> Iterable[Gang]:
        """All gangs."""
        return self._gangs.values()

    def plan(self, key: GangKey) -> Plan:
        """The plan for the waiting pods of a gang and of gangs that start with it.

        Cost O(pods x log) of all these gangs after a change, else a look into a table.
        """
        known = self._plans.get(key)
        if known is None:
            known = make_plan(self.together(key), self._gangs)
            self._plans |= {each: known for each in known.keys if each in self._gangs}
        return known

    def together(self, key: GangKey) -> tuple[GangKey, ...]:
        """This gang and all that start with it (rule 26.2), ascending."""
        found, todo = {key}, [key]
        while todo:
            one = todo.pop()
            gang = self._gangs.get(one)
            lists = gang.lists if gang is not None else Counter()
            listed_by = self._listed_by.get(one, Counter())
            near = [
                other
                for other in (*lists, *listed_by)
                if other.namespace == one.namespace or (other in lists and other in listed_by)
            ]
            todo.extend(other for other in near if other not in found)
            found.update(near)
        return tuple(sorted(found))

    def of(self, record: PodRecord) -> list[Gang]:
        """The gang of a pod and all that start with it."""
        keys = () if record.gang is None else self.together(record.gang)
        return [self._gangs[key] for key in keys if key in self._gangs]

    def is_surplus(self, record: PodRecord) -> bool:
        """True if the pod's gang has its minimum without it."""
        gang = self._gang_of(record)
        return gang is not None and self._stands_without(gang, {record.uid})

    def leaving_with(self, victims: Iterable[PodRecord]) -> list[PodRecord]:
        """These pods and all that cannot go on without them (rule 26.12)."""
        leaving = {record.uid: record for record in victims}
        for key in dict.fromkeys(gang.key for gang in map(self._gang_of, leaving.values()) if gang is not None):
            together = [self._gangs[other] for other in self.together(key) if other in self._gangs]
            if not all(self._stands_without(gang, leaving.keys()) for gang in together):
                for gang in together:
                    leaving |= {one.uid: one for one in gang.in_order() if one.state.is_placed}
        return list(leaving.values())

    def placed_with(self, key: GangKey) -> list[PodRecord]:
        """All placed pods of this gang and of those that start with it."""
        return [record for other in self.together(key) for record in self._members(other) if record.state.is_placed]

    def waiting_in(self, keys: Iterable[GangKey]) -> list[PodRecord]:
        """All pods of these gangs without a place or a mistake."""
        members = (record for key in keys for record in self._members(key))
        return [record for record in members if not record.state.is_placed and not record.translation.mistake]

    def mate_with_cells(self, record: PodRecord) -> PodRecord | None:
        """The first pod of its gang that has cells and is not leaving."""
        gang = self._gang_of(record)
        mates = gang.present() if gang is not None else []
        return next((one for one in mates if one.uid != record.uid and one.place.info is not None), None)

    # Inside

    def _gang(self, key: GangKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            namesakes = self._by_name.setdefault(key.name, {})
            gang = self._gangs[key] = namesakes[key] = Gang(key, namesakes)
        return gang

    def _gang_of(self, record: PodRecord) -> Gang | None:
        return self._gangs.get(record.gang) if record.gang is not None else None

    def _drop_if_empty(self, gang: Gang) -> None:
        if not gang.members and not gang.ended:
            del self._gangs[gang.key], gang.namesakes[gang.key]
            if not gang.namesakes:
                del self._by_name[gang.key.name]

    def _stands_without(self, gang: Gang, leaving: Iterable[str]) -> bool:
        try:
            terms = gang.terms()
        except UserError:
            return False
        out = set(leaving)
        staying = [record for record in gang.present() if record.state.is_placed and record.uid not in out]
        tasks = Counter(map(task_of, staying))
        return len(staying) >= terms.minimum and all(tasks[task] >= n for task, n in terms.task_minimums.items())

    def _members(self, key: GangKey) -> list[PodRecord]:
        gang = self._gangs.get(key)
        return gang.in_order() if gang is not None else []


def _decrement(counter: Counter[GangKey], key: GangKey) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


Object = Mapping[str, Any]

FORBIDDEN = 403
PENDING = (None, "", "Pending")


def waits_for_us(kube: KubeClient, serves: Callable[[str], bool], group: Object) -> bool:
    """True if hived must let in this Volcano PodGroup, which has no pods (rule 26.16). Raises KubeError.

    A PodGroup marked as held waits in a queue of hived.
    """
    owner = _owner(group)
    if (group["metadata"].get("annotations") or {}).get(marks.HELD) == "true":
        return False
    if owner is None or (group.get("status") or {}).get("phase") not in PENDING:
        return False
    try:
        spec: Object = _read(kube, owner, group["metadata"]["namespace"]).get("spec") or {}
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return (
            "queues" not in _plurals(kube, f"/apis/{volcano.PODGROUPS.group}/{volcano.PODGROUPS.versions[0]}").values()
        )
    return any(serves(name) for name in _scheduler_names(spec))


def _owner(group: Object) -> Object | None:
    """The controller that made the PodGroup for pods to come; none if Volcano made it for existing pods."""
    owners = group["metadata"].get("ownerReferences") or ()
    owner = next((one for one in owners if one.get("controller")), next(iter(owners), None))
    is_made = owner is not None and group["metadata"]["name"] == volcano.MADE.format(owner.get("uid"))
    return None if is_made else owner


def _read(kube: KubeClient, owner: Object, namespace: str) -> Object:
    version = owner["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _plurals(kube, base).get(owner["kind"])
    if plural is None:  # its kind was deleted this moment
        return {}
    return kube.get(f"{base}/namespaces/{quote(namespace, safe='')}/{plural}/{quote(owner['name'], safe='')}")


def _plurals(kube: KubeClient, base: str) -> dict[str, str]:
    """The plural of each kind in this API group version."""
    resources = kube.get(base).get("resources") or ()
    return {one["kind"]: one["name"] for one in resources if "/" not in one["name"]}


def _scheduler_names(spec: Object) -> set[str]:
    """The schedulerName of an owner's future pods: the templates', else the owner's, else Volcano's."""
    default = spec.get("schedulerName") or volcano.SCHEDULER
    return {pod.get("schedulerName") or default for pod in _pod_specs(spec)} or {default}


def _pod_specs(spec: Object) -> Iterator[Object]:
    left: list[Any] = [spec]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            if isinstance(part.get("containers"), list):
                yield part
            else:
                left += part.values()
