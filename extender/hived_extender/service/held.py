"""Cells that are held for one job: by one stand-in group at first, whose slots go to pods as these come.

A pod that takes a slot becomes a group of its own by a split, so that neither its physical nor its virtual cells
change. The other slots go on as a smaller stand-in.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from hived.cells.state import GroupState
from hived.cells.topology import NO_CELL, BoolArray, IntArray
from hived.life.allocation import split_bind_info
from hived.life.groups import bind_info_for, bind_info_of_slot, is_placed, nodes_of_slots, placements_of
from hived.scheduler import Asked
from hived.values.decisions import Bind
from hived.values.errors import UserError
from hived.values.events import Offer, Phase
from hived.values.specs import BindInfo, PodPlacement, PodRequest
from hived_extender.service.core import Core
from hived_extender.service.pods import PodRecord
from hived_extender.service.stand_ins import like, sizes_of
from hived_extender.service.stimuli import Hold

Taker = tuple[PodRequest, Sequence[BoolArray | None]]
"""A pod that brings a group, and for each slot of that the nodes that it may use; None for all."""


_NONE = np.zeros(0, np.int32)


class Held:
    """One hold. `stand_in` is the pod of the group that holds what is left, None if nothing is. `answer` is what was
    said of it. `given` are the pods, by uid, that have taken slots and are not bound yet.
    """

    def __init__(self, hold: Hold, name: str) -> None:
        self.hold, self.name = hold, name
        self.stand_in: PodRequest | None = None
        self.answer: Bind | None = None
        self.given: dict[str, PodRecord] = {}
        self.is_lost = False

    @property
    def sizes(self) -> list[int]:
        """The leaf cells of each slot that is still held."""
        return sizes_of(self.stand_in.spec.group.members) if self.stand_in is not None else []

    def request(self, sizes: Sequence[int]) -> PodRequest:
        """The stand-in for slots of these sizes."""
        job = self.hold.job
        return PodRequest(f"{self.name}:0", job.name, job.namespace, like(self.hold.spec, self.name, sizes))

    def has_room_for(self, request: PodRequest) -> bool:
        """Are there slots for all pods of a request's group?"""
        left = self.sizes
        for size in sizes_of(request.spec.group.members):
            if size not in left:
                return False
            left.remove(size)
        return True

    def is_whole(self, core: Core) -> bool:
        """Is everything that is held still there, healthy, and nobody's but ours?"""
        if self.stand_in is None:
            return True
        group = core.state.groups.get(self.name)
        if group is None or not core.has_all_cells(self.name) or core.is_victim(self.stand_in):
            return False
        return not core.state.cells.bad[group.physical].any()

    def release(self, core: Core) -> None:
        """Give back what is held."""
        if self.stand_in is not None:
            core.delete(self.stand_in)
            self.stand_in = None

    def keep(self, core: Core, sizes: Sequence[int]) -> None:
        """Hold slots of these sizes at most, and give the others back."""
        if self.stand_in is None:
            return
        left, kept, rest = list(sizes), list[int](), list[int]()
        own = self.sizes
        for slot, size in enumerate(own):
            if size in left:
                left.remove(size)
                kept.append(slot)
            else:
                rest.append(slot)
        if not kept:
            self.release(core)
        elif rest:
            self.stand_in = self.request([own[slot] for slot in kept])
            name = f"{self.name}#gone"
            spec = like(self.hold.spec, name, [own[slot] for slot in rest])
            gone = PodRequest(f"{name}:0", self.hold.job.name, self.hold.job.namespace, spec)
            core.split(self.name, [self.stand_in, gone], [kept, rest])
            core.delete(gone)

    def decide(self, core: Core, asked: Asked, planned: Bind) -> bool:
        """Hold cells on the nodes of an answer, in the own virtual cells if the request names them."""
        if asked.own is None:
            return False
        index, names = core.state.topology.node_index, core.node_names
        nodes = [index[one.node] for member in planned.bind_info.members for one in member]
        rows = np.zeros((len(nodes), len(names)), np.bool_)
        rows[np.arange(len(nodes)), nodes] = True
        found = core.decide(asked.pod, Phase.FILTERING, Offer(rows, np.zeros_like(rows)), commit=True, own=asked.own)
        if isinstance(found, Bind):
            self.stand_in = asked.pod
        return self.stand_in is not None

    def take(self, core: Core, stand_in: PodRequest, planned: Bind) -> bool:
        """Hold the cells of an answer, if nobody uses any of them now."""
        try:
            core.adopt(stand_in, planned.bind_info)
        except UserError:
            return False
        if core.has_all_cells(self.name):
            self.stand_in = stand_in
            return True
        core.delete(stand_in)
        return False

    def give(self, core: Core, takers: Sequence[Taker]) -> bool:
        """Let pods have slots on nodes that they may use; False, and nothing changes, if there are none for all.

        Cost O(pods x slots + leaves).
        """
        if self.stand_in is None:
            return False
        chosen = self._choose(core, takers)
        if chosen is None:
            return False
        pods, slots = [request for request, _ in takers], [*chosen]
        sizes = self.sizes
        rest = sorted(set(range(len(sizes))) - {slot for own in chosen for slot in own})
        before, self.stand_in = self.stand_in, self.request([sizes[slot] for slot in rest]) if rest else None
        if self.stand_in is not None:
            pods.append(self.stand_in)
            slots.append(rest)
        info = bind_info_of_slot(core.state, core.state.groups[self.name], 0)
        try:
            core.split(self.name, pods, slots)
        except UserError:
            return self._adopt(core, before, pods, split_bind_info(info, pods, slots))
        return True

    def _adopt(self, core: Core, before: PodRequest, pods: Sequence[PodRequest], infos: Sequence[BindInfo]) -> bool:
        """The stand-in goes and pods that ask a little differently get its cells; False if they cannot.

        Everything is given back then.
        """
        core.delete(before)
        adopted: list[PodRequest] = []
        try:
            for pod, info in zip(pods, infos, strict=True):
                core.adopt(pod, info)
                adopted.append(pod)
            is_whole = all(core.has_all_cells(pod.spec.group.name) for pod in pods)
        except UserError:
            is_whole = False
        if not is_whole:
            for pod in adopted:
                core.delete(pod)
            self.stand_in = None
        return is_whole

    def _choose(self, core: Core, takers: Sequence[Taker]) -> list[list[int]] | None:
        """Slots for each taker: those with the fewest choices come first. None if somebody gets none."""
        state = core.state
        index, sizes = state.topology.node_index, self.sizes
        nodes = np.array([index[node] for node in nodes_of_slots(state, state.groups[self.name])], np.int32)
        free = np.ones(len(sizes), np.bool_)
        wanted = [
            (place, number, size, mask)
            for place, (request, masks) in enumerate(takers)
            for number, (size, mask) in enumerate(zip(sizes_of(request.spec.group.members), masks, strict=True))
        ]
        choices = {each[:2]: _choices(nodes, sizes, each[2], each[3]) for each in wanted}
        found: dict[tuple[int, int], int] = {}
        for each in sorted(choices, key=lambda each: (int(choices[each].sum()), each)):
            left = np.flatnonzero(choices[each] & free)
            if not len(left):
                return None
            found[each] = int(left[0])
            free[left[0]] = False
        counts = [len(sizes_of(request.spec.group.members)) for request, _ in takers]
        return [[found[place, number] for number in range(count)] for place, count in enumerate(counts)]

    def place_of_all(self, core: Core, placed: Sequence[PodRecord]) -> BindInfo:
        """Where all pods of the job are or will be: by size, pods that have cells first, then slots that are held."""
        by_size: dict[int, list[PodPlacement]] = {m.leaf_cell_count: [] for m in self.hold.spec.group.members}
        chain = ""
        for info in (record.place.info for record in placed):
            if info is not None:
                by_size.get(len(info.leaf_cell_indices), []).append(_own_placement(info))
                chain = info.cell_chain
        if self.stand_in is not None:
            group = core.state.groups[self.name]
            chain = bind_info_of_slot(core.state, group, 0).cell_chain
            for size, member in zip(
                (m.leaf_cell_count for m in group.members), placements_of(core.state, group), strict=True
            ):
                by_size[size] += member
        return bind_info_for(tuple(tuple(found) for found in by_size.values() if found), 0, chain)


def are_whole(core: Core, holds: Iterable[Held]) -> bool:
    """Is each of them whole, as `Held.is_whole` has it? False if one is in doubt. Cost O(holds + leaves), in numpy."""
    groups = [core.state.groups.get(held.name) for held in holds if held.stand_in is not None]
    sound = [
        one for one in groups if one is not None and one.lazy_preemptor is None and one.state is GroupState.ALLOCATED
    ]
    if len(sound) < len(groups):
        return False
    leaves = np.concatenate([_NONE, *(group.physical for group in sound)])
    return not ((leaves == NO_CELL) | (core.state.cells.bad[leaves] == 1)).any()


def _own_placement(info: BindInfo) -> PodPlacement:
    """That of the pod that a bind info is about."""
    size = len(info.leaf_cell_indices)
    return next(
        one for member in info.members for one in member if len(one.leaf_cell_indices) == size and is_placed(info, one)
    )


def _choices(nodes: IntArray, sizes: Sequence[int], size: int, mask: BoolArray | None) -> BoolArray:
    """Which slots have this size, and a node of the mask?"""
    is_size: BoolArray = np.array(sizes) == size
    return is_size if mask is None else is_size & mask[nodes]
