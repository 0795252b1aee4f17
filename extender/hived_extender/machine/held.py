"""Cells held for one job: a stand-in group takes them, and its slots go to pods as these come.

A pod that takes a slot becomes a group of its own by a split: its physical and virtual cells stay. The other slots go
on as a smaller stand-in. `HeldJobs` has all such jobs, and the question to the core about each. Not thread-safe.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from hived.cells.state import GroupState
from hived.cells.topology import NO_CELL, BoolArray, IntArray
from hived.life.allocation import split_bind_info
from hived.life.groups import bind_info_for, bind_info_of_slot, is_placed, nodes_of_slots, placements_of
from hived.life.victims import leaving_with
from hived.scenario import Asked
from hived.values.decisions import Bind
from hived.values.errors import UserError
from hived.values.events import Offer, Phase
from hived.values.specs import FREE_PRIORITY, BindInfo, PodPlacement, PodRequest, sizes_of
from hived_extender.jobs.job import JobName, JobRef
from hived_extender.kube_rules.demands import DemandsReader
from hived_extender.machine.claims import Allowed
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.jobs import is_of
from hived_extender.machine.offers import Asking
from hived_extender.machine.pods import PodRecord
from hived_extender.machine.stand_ins import like, ranges_of, stand_in_name
from hived_extender.machine.stimuli import Hold
from hived_extender.machine.victim_sets import Wanted

Taker = tuple[PodRequest, Sequence[BoolArray | None]]
"""A pod that brings a group, and for each slot of that the nodes that it may use; None for all."""


_NONE = np.zeros(0, np.int32)


class Held:
    """One hold. `stand_in` is the pod of the group with the remaining cells, None if none.

    `answer` is the last answer about it. `given` are the pods, by uid, with slots and no binding yet.
    """

    def __init__(self, hold: Hold, name: str) -> None:
        self.hold, self.name = hold, name
        self.stand_in: PodRequest | None = None
        self.answer: Bind | None = None
        self.given: dict[str, PodRecord] = {}
        self.is_lost = False

    @property
    def sizes(self) -> list[int]:
        """The leaf cells of each slot still held."""
        return sizes_of(self.stand_in.spec.group.members) if self.stand_in is not None else []

    def request(self, sizes: Sequence[int]) -> PodRequest:
        """The stand-in's request for slots of these sizes."""
        job = self.hold.job
        return PodRequest(f"{self.name}:0", job.name, job.namespace, like(self.hold.spec, self.name, sizes))

    def has_room_for(self, request: PodRequest) -> bool:
        """True if there are slots for all pods of a request's group."""
        left = self.sizes
        for size in sizes_of(request.spec.group.members):
            if size not in left:
                return False
            left.remove(size)
        return True

    def is_whole(self, core: Core) -> bool:
        """True if all held cells are present, healthy and not reserved for others."""
        if self.stand_in is None:
            return True
        group = core.state.groups.get(self.name)
        if group is None or not core.has_all_cells(self.name) or core.is_victim(self.stand_in):
            return False
        return not core.state.cells.bad[group.physical].any()

    def release(self, core: Core) -> None:
        """Free all held cells."""
        if self.stand_in is not None:
            core.delete(self.stand_in)
            self.stand_in = None

    def keep(self, core: Core, sizes: Sequence[int]) -> None:
        """Hold at most slots of these sizes, and free the others."""
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
        """Hold the answered nodes, in the own virtual cells if the request names them."""
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
        """Hold the cells of an answer, if all are free now."""
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
        """Give pods slots on nodes that they may use; False, and nothing changes, if a pod gets none.

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
        """Replace the stand-in by pods with slightly other requests; on failure False, and all cells are freed."""
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
        """A slot for each taker, fewest choices first; None if one gets none."""
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
        """The places of all pods of the job: by size, placed pods first, then held slots."""
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
    """True if each hold `is_whole`; False in doubt. Cost O(holds + leaves), in numpy."""
    groups = [core.state.groups.get(held.name) for held in holds if held.stand_in is not None]
    sound = [
        one for one in groups if one is not None and one.lazy_preemptor is None and one.state is GroupState.ALLOCATED
    ]
    if len(sound) < len(groups):
        return False
    leaves = np.concatenate([_NONE, *(group.physical for group in sound)])
    return not ((leaves == NO_CELL) | (core.state.cells.bad[leaves] == 1)).any()


def _own_placement(info: BindInfo) -> PodPlacement:
    """The placement of the pod of a bind info."""
    size = len(info.leaf_cell_indices)
    return next(
        one for member in info.members for one in member if len(one.leaf_cell_indices) == size and is_placed(info, one)
    )


def _choices(nodes: IntArray, sizes: Sequence[int], size: int, mask: BoolArray | None) -> BoolArray:
    """The slots of this size on a node of the mask."""
    is_size: BoolArray = np.array(sizes) == size
    return is_size if mask is None else is_size & mask[nodes]


class HeldJobs:
    """`by_key` has every hold, even one that is lost and to be asked again; a job has one at most.

    `changed` has the jobs whose holds changed since the follower last looked; None without a follower.
    """

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._demands = DemandsReader()
        self.by_key: dict[str, Held] = {}
        self._keys: dict[JobName, str] = {}
        self.changed: dict[JobName, None] | None = None

    def put(self, held: Held) -> None:
        """Add a hold."""
        self.by_key[held.hold.key] = held
        self._keys[held.hold.job.job_name] = held.hold.key
        self.note(held.hold.job.job_name)

    def note(self, job: JobName) -> None:
        """Note a changed hold of a job."""
        self._cache.jobs.note(job)
        if self.changed is not None:
            self.changed[job] = None

    def pop(self, key: str) -> Held | None:
        """Remove a hold and return it."""
        held = self.by_key.pop(key, None)
        if held is not None and self._keys.get(held.hold.job.job_name) == key:
            del self._keys[held.hold.job.job_name]
        if held is not None:
            self.note(held.hold.job.job_name)
        return held

    def clear(self) -> None:
        """Remove all holds."""
        for held in self.by_key.values():
            self.note(held.hold.job.job_name)
        self.by_key.clear()
        self._keys.clear()

    def of(self, job: JobName | None) -> Held | None:
        """The hold of a job; None if it has none."""
        key = self._keys.get(job) if job is not None else None
        return self.by_key.get(key) if key is not None else None

    def of_pod(self, record: PodRecord) -> Held | None:
        """The hold of a pod's job; None if it has none."""
        held = self.of(record.job_object)
        return held if held is not None and is_of(record, held.hold.job) else None

    def placed(self, job: JobRef) -> list[PodRecord]:
        """The pods of a job with cells."""
        pods = self._cache.jobs.pods_of(job)
        return [one for one in pods if one.state.has_node and one.is_in_core and one.place.info is not None]

    def asking(self, core: Core, hold: Hold) -> Asking | None:
        """The request for all pods of a job without pods; None if it has any. Cost O(slots x nodes).

        Nodes blocked only by other pods count as allowed once these have left.
        """
        held = Held(hold, stand_in_name(0, hold.key))
        asked = self.asked(core, held, others_leave=True)
        if asked is None:
            return None
        slots = range(len(sizes_of(asked.pod.spec.group.members)))
        if not hold.pods:
            return Asking(asked)
        records = self._records(hold, slots)
        rules = next(filter(None, map(self._cache.offers.refusals, records)), "")
        return self._cache.offers.asking(asked, records, rules)

    def asked(self, core: Core, held: Held, *, others_leave: bool = False) -> Asked | None:
        """The request for all slots without a pod; None if there are none.

        `others_leave`: ask as if others had left.
        """
        hold, left = held.hold, sizes_of(held.hold.spec.group.members)
        slots = self._slots_left(hold)
        if not slots:
            return None
        request = held.request([left[slot] for slot in slots])
        return Asked(request, offer=self._offer(hold, request, slots, others_leave), own=_own(core, hold, slots))

    def wanted(self, core: Core, held: Held) -> Wanted | None:
        """As `asked`, with the template pods of these slots; None without templates."""
        asked, hold = self.asked(core, held), held.hold
        if asked is None or asked.offer is None:
            return None
        return Wanted(asked.pod, self._records(hold, self._slots_left(hold)), asked.offer)

    def _slots_left(self, hold: Hold) -> list[int]:
        left = sizes_of(hold.spec.group.members)
        slots = list(range(len(left)))
        for record in self.placed(hold.job):
            size = len(record.place.info.leaf_cell_indices) if record.place.info is not None else 0
            taken = next((slot for slot in reversed(slots) if left[slot] == size), None)
            if taken is not None:
                slots.remove(taken)
        return slots

    def allowed(self, core: Core, hold: Hold, asked: Asked) -> Allowed | None:
        """The change of a hold's offer as others leave; None if any nodes will do."""
        before = asked.offer
        if before is None or not hold.pods:
            return None
        records, residents = self._records(hold, self._slots_left(hold)), self._cache.nodes.residents

        def allowed(gone: Sequence[PodRequest], left: BoolArray) -> Offer:
            uids = {pod.uid for pod in gone} | residents.lent.keys()
            where = left.copy()
            for uid, resident in residents.leaving.items():
                uids.add(uid)
                if (at := core.state.topology.node_index.get(resident.node)) is not None:
                    where[at] = True
            with residents.supposing(uids, {}):
                return self._cache.offers.once_left(asked.pod, records, before, where)

        return allowed

    def _offer(self, hold: Hold, request: PodRequest, slots: Sequence[int], others_leave: bool) -> Offer | None:
        """The nodes that Kubernetes' rules allow the templates; any node without templates."""
        if not hold.pods:
            return None
        return self._cache.offers.of(request, self._records(hold, slots), others_leave=others_leave)

    def _records(self, hold: Hold, slots: Iterable[int]) -> list[PodRecord]:
        """The template pod of each slot; equal ones are the same object."""
        slots, records = list(slots), dict[int, PodRecord]()
        for pod in (hold.pods[slot] for slot in slots):
            if id(pod) not in records:
                meta = pod.metadata
                record = PodRecord(f"{hold.key}#{len(records)}", meta.name, meta.namespace)
                record.ruled = self._demands.read_pod(pod)
                records[id(pod)] = record
        return [records[id(hold.pods[slot])] for slot in slots]

    def pods_of(self, job: JobRef) -> list[PodRequest]:
        """The pods of a job, and its stand-in, as the core knows them."""
        pods = [one.request for one in self.placed(job) if one.request is not None]
        held = self.of(job.job_name)
        return pods + ([held.stand_in] if held is not None and held.stand_in is not None else [])

    def on_lent_cells(self, core: Core) -> list[PodRequest]:
        """The pods of all opportunistic groups, held ones included. Cost O(groups)."""
        groups = [group for group in core.state.groups.values() if group.virtual is None]
        return [pod for group in groups for pod in group.holders if pod is not None]

    def opportunistic(self, core: Core) -> dict[str, list[PodRequest]]:
        """The pods of opportunistic groups outside queues, newest first; a gang counts as one group."""
        core.before_victims()
        found, told = dict[str, list[PodRequest]](), set[str]()
        for name, group in reversed(core.state.groups.items()):
            if group.virtual is not None or not group.slots_of or name in told:
                continue
            records = [self._cache.pods.get(uid) for uid in group.slots_of]
            if any(one is None or self.of_pod(one) is not None for one in records):
                continue
            together = [one.name for one in leaving_with(core.state, [group])]
            told.update(together)
            found[name] = core.pods_of(together)
        return found


def _own(core: Core, hold: Hold, slots: Sequence[int]) -> IntArray | None:
    """The virtual leaf cells of a hold for some slots; None if it names none, or pods of it have them."""
    if not hold.own:
        return None
    own, sizes = np.array(hold.own, np.int64), sizes_of(hold.spec.group.members)
    if len(slots) == len(sizes):
        return own.astype(np.int32)
    if len(own) != sum(sizes) or (own < 0).any() or (own >= len(core.state.cells.priority)).any():
        raise UserError(f"own cells of {hold.key} are no virtual leaf cells, one for each leaf cell of its pods")
    free: dict[int, list[IntArray]] = {}
    for size, leaves in zip(sizes, ranges_of(sizes), strict=True):
        if (core.state.cells.priority[own[leaves]] == FREE_PRIORITY).all():
            free.setdefault(size, []).append(own[leaves].astype(np.int32))
    try:
        return np.concatenate([free[sizes[slot]].pop(0) for slot in slots])
    except (KeyError, IndexError):
        return None
