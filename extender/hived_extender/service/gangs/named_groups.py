"""Pods that name an affinity group in our own words, until they are gone: which of them would have which of its slots.

The core is asked about the whole group with its first pod. Each of its pods may be offered other nodes, so that those
that are there already have to be known.
"""

from collections import Counter

from hived.values.specs import GroupSpec, PodRequest
from hived_extender.service.pods import PodRecord, PodState

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
