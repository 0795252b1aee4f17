"""Affinity groups without their missing pods: they gave back these cells, or started without them.

The core's group then has fewer slots, or is a group of the last pod alone. Pods keep their author's text; only the bind
info has the remaining slots. Rule 26.14 says when a group starts so, 26.15 which cells a later pod gets.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hived.cells.state import Group
from hived.values.errors import UserError
from hived.values.specs import BindInfo, GroupSpec, PodRequest, PodSpec, sizes_of
from hived_config.words import counted


class ShrunkGroups:
    """Groups as their authors wrote them, by uid, and the pods of each by name. Not thread-safe."""

    def __init__(self) -> None:
        self._written: dict[str, GroupSpec] = {}
        self._pods: dict[str, dict[str, int]] = {}  # leaf cells by group and uid
        self._early: dict[str, tuple[GroupSpec, GroupSpec]] = {}  # the written group and the part, by uid

    def __bool__(self) -> bool:
        return bool(self._pods or self._early)

    def start_without(self, group: GroupSpec, sizes: Mapping[str, int], alone: str) -> None:
        """Let waiting pods start without the others of their group; leaf cells by uid, see `part_of` for `alone`."""
        part = part_of(group, Counter(sizes.values()), alone)
        self._early |= dict.fromkeys(sizes, (group, part))

    def whole(self, uid: str, group: GroupSpec) -> GroupSpec:
        """The group of a waiting pod as its author wrote it: `group`, unless that is a part which starts."""
        return self._early.get(uid, (group, group))[0]

    def wait_for(self, uid: str, group: GroupSpec) -> list[str]:
        """Let a group wait for its others again as a new pod has come; the uids of its pods that would not have.

        Cost O(pods that start without others).
        """
        if uid in self._early or group.name in self._pods:
            return []
        early = [each for each, (written, _) in self._early.items() if written == group]
        for each in early:
            del self._early[each]
        return early

    def put(self, uid: str, written: GroupSpec, size: int) -> None:
        """Add a pod of this size that has cells in a part of its author's group."""
        self.lost(uid)
        self._written[uid] = written
        self._pods.setdefault(written.name, {})[uid] = size

    def forget(self, uid: str) -> None:
        """Remove a pod that is gone."""
        self._early.pop(uid, None)
        self.lost(uid)

    def lost(self, uid: str) -> None:
        """Note that a pod has no cells any more; it may wait for the same part of its group."""
        written = self._written.pop(uid, None)
        if written is not None:
            del self._pods[written.name][uid]
            if not self._pods[written.name]:
                del self._pods[written.name]

    def written(self, request: PodRequest) -> PodRequest:
        """The request of a pod as its author wrote it."""
        group = self._written.get(request.uid)
        return request if group is None else _in_group(request, group)

    def as_placed(self, request: PodRequest, info: BindInfo, alone: str) -> PodRequest:
        """The request of a bound pod, cut to the slots of its bind info; `alone` names a group of its own.

        Unchanged if all slots are there, or if the bind info is of another group.
        """
        slots = Counter(len(each.leaf_cell_indices) for member in info.members for each in member)
        group = request.spec.group
        wanted = Counter({member.leaf_cell_count: member.pod_count for member in group.members})
        if slots == wanted or not slots <= wanted or not slots[request.spec.leaf_cell_count]:
            return request
        self.put(request.uid, group, request.spec.leaf_cell_count)
        return _in_group(request, part_of(group, slots, alone))

    def as_returned(self, request: PodRequest, present: Group | None, alone: str) -> PodRequest:
        """The request of a waiting pod whose group, `present` or not, has given cells back or starts without others.

        Unchanged if it does not. Raises UserError if the group has all its pods of this size.
        """
        group, size = request.spec.group, request.spec.leaf_cell_count
        pods = {uid: each for uid, each in self._pods.get(group.name, {}).items() if uid != request.uid}
        if not pods or self._written[next(iter(pods))] != group:
            written, part = self._early.get(request.uid, (group, group))
            return _in_group(request, part) if written == group else request
        if present is not None and _has_free_slot(present, size, request.uid):
            return _in_group(request, present.spec.group)
        wanted = sum(member.pod_count for member in group.members if member.leaf_cell_count == size)
        if sum(each == size for each in pods.values()) >= wanted:
            cells = counted(size, "leaf cell")
            raise UserError(f"affinity group {group.name} has all its pods of {cells}: delete one of them first")
        return _in_group(request, part_of(group, Counter({size: 1}), alone))


def part_of(group: GroupSpec, slots: Counter[int], alone: str) -> GroupSpec:
    """The group cut to these slots by size; a single slot is called `alone`."""
    members = tuple(
        replace(member, pod_count=slots[member.leaf_cell_count])
        for member in group.members
        if slots[member.leaf_cell_count]
    )
    return GroupSpec(alone if slots.total() == 1 else group.name, members)


def with_group(spec: PodSpec, group: GroupSpec) -> PodSpec:
    """The spec with another group."""
    return replace(spec, group=group)


def _in_group(request: PodRequest, group: GroupSpec) -> PodRequest:
    return replace(request, spec=with_group(request.spec, group))


def _has_free_slot(group: Group, size: int, uid: str) -> bool:
    sizes = sizes_of(group.spec.group.members)
    return any(
        (holder is None or holder.uid == uid) and each == size
        for holder, each in zip(group.holders, sizes, strict=True)
    )
