"""The jobs that cells are held for, and what is asked of the core for one of them. Not thread-safe."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from hived.cells.topology import BoolArray, IntArray
from hived.life.victims import leaving_with
from hived.scheduler import Asked
from hived.values.errors import UserError
from hived.values.events import Offer
from hived.values.specs import FREE_PRIORITY, PodRequest
from hived_extender.job_kinds.job import JobName, JobRef
from hived_extender.kube_rules.demands import Demands
from hived_extender.kube_rules.reader import DemandsReader
from hived_extender.service.claims import Allowed
from hived_extender.service.cluster_cache import ClusterCache
from hived_extender.service.core import Core
from hived_extender.service.held import Held
from hived_extender.service.jobs import is_of
from hived_extender.service.pods import PodRecord
from hived_extender.service.stand_ins import ranges_of, sizes_of, stand_in_name
from hived_extender.service.stimuli import Hold
from hived_extender.service.victim_sets import Wanted


class Asking(msgspec.Struct, frozen=True, eq=False):
    """A question to the core about a hold. `fit` has the nodes that could take each pod once others leave: bool, shape
    (slots, nodes), or one row for all slots. `demands` are those of its templates; `rules` says which rules of
    Kubernetes refuse which nodes for good, "" if none is known.
    """

    asked: Asked
    fit: BoolArray
    demands: tuple[Demands, ...]
    rules: str = ""


class HeldJobs:
    """`by_key` has every hold, also one that is lost and to be asked again; a job has one at most.

    `changed` has the jobs whose holds are others than before, for who follows them; None if nobody does.
    """

    def __init__(self, cache: ClusterCache) -> None:
        self._cache = cache
        self._demands = DemandsReader()
        self.by_key: dict[str, Held] = {}
        self._keys: dict[JobName, str] = {}
        self.changed: dict[JobName, None] | None = None

    def put(self, held: Held) -> None:
        """Cells are held, or are to be."""
        self.by_key[held.hold.key] = held
        self._keys[held.hold.job.job_name] = held.hold.key
        self.note(held.hold.job.job_name)

    def note(self, job: JobName) -> None:
        """The hold of a job is another one."""
        if self.changed is not None:
            self.changed[job] = None

    def pop(self, key: str) -> Held | None:
        """Forget a hold; returns it."""
        held = self.by_key.pop(key, None)
        if held is not None and self._keys.get(held.hold.job.job_name) == key:
            del self._keys[held.hold.job.job_name]
        if held is not None:
            self.note(held.hold.job.job_name)
        return held

    def clear(self) -> None:
        """Forget all."""
        for held in self.by_key.values():
            self.note(held.hold.job.job_name)
        self.by_key.clear()
        self._keys.clear()

    def of(self, job: JobName | None) -> Held | None:
        """The hold of a job, None if it has none."""
        key = self._keys.get(job) if job is not None else None
        return self.by_key.get(key) if key is not None else None

    def of_pod(self, record: PodRecord) -> Held | None:
        """The hold of a pod's job, None if it has none."""
        held = self.of(record.job_object)
        return held if held is not None and is_of(record, held.hold.job) else None

    def placed(self, job: JobRef) -> list[PodRecord]:
        """The pods of a job that have cells."""
        pods = self._cache.jobs.pods_of(job)
        return [one for one in pods if one.state.has_node and one.is_in_core and one.place.info is not None]

    def asking(self, core: Core, hold: Hold) -> Asking | None:
        """The request for all pods of a job that has none yet; None if it has. Cost O(slots x nodes).

        Nodes that only others' pods are in the way on are nodes that Kubernetes allows once they have left.
        """
        held = Held(hold, stand_in_name(0, hold.key))
        asked = self.asked(core, held, others_leave=True)
        if asked is None:
            return None
        slots = range(len(sizes_of(asked.pod.spec.group.members)))
        if not hold.pods:
            return Asking(asked, np.ones((1, len(core.node_names)), np.bool_), ())
        records = self._records(hold, slots)
        demands = dict.fromkeys(one.ruled.demands for one in records if one.ruled is not None)
        rules = next(filter(None, map(self._cache.offers.refusals, records)), "")
        return Asking(asked, self._cache.offers.could_take(records), tuple(demands), rules)

    def asked(self, core: Core, held: Held, *, others_leave: bool = False) -> Asked | None:
        """The request for all slots that no pod of the job has yet; None if there are none.

        `others_leave`: it is asked whether it would have cells once others have left.
        """
        hold, left = held.hold, sizes_of(held.hold.spec.group.members)
        slots = self._slots_left(hold)
        if not slots:
            return None
        request = held.request([left[slot] for slot in slots])
        return Asked(request, offer=self._offer(hold, request, slots, others_leave), own=_own(core, hold, slots))

    def wanted(self, core: Core, held: Held) -> Wanted | None:
        """The same with the pods of these slots, by their templates; None where these are not known."""
        asked, hold = self.asked(core, held), held.hold
        if asked is None or asked.offer is None:
            return None
        return Wanted(asked.pod, self._records(hold, self._slots_left(hold)), asked.offer)

    def _slots_left(self, hold: Hold) -> list[int]:
        """The slots that no pod of the job has yet."""
        left = sizes_of(hold.spec.group.members)
        slots = list(range(len(left)))
        for record in self.placed(hold.job):
            size = len(record.place.info.leaf_cell_indices) if record.place.info is not None else 0
            taken = next((slot for slot in reversed(slots) if left[slot] == size), None)
            if taken is not None:
                slots.remove(taken)
        return slots

    def allowed(self, core: Core, hold: Hold, asked: Asked) -> Allowed | None:
        """How the offer of a request for a hold changes as others leave; None if any nodes will do."""
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
        """The nodes that Kubernetes' rules allow pods like the templates, as far as is known; any without templates."""
        if not hold.pods:
            return None
        return self._cache.offers.of(request, self._records(hold, slots), others_leave=others_leave)

    def _records(self, hold: Hold, slots: Iterable[int]) -> list[PodRecord]:
        """Pods like the templates, one for each slot; equal ones are the same object."""
        slots, records = list(slots), dict[int, PodRecord]()
        for pod in (hold.pods[slot] for slot in slots):
            if id(pod) not in records:
                meta = pod.metadata
                record = PodRecord(f"{hold.key}#{len(records)}", meta.name, meta.namespace)
                record.ruled = self._demands.read(pod)
                records[id(pod)] = record
        return [records[id(hold.pods[slot])] for slot in slots]

    def pods_of(self, job: JobRef) -> list[PodRequest]:
        """The pods of a job, and its stand-in, as the core knows them."""
        pods = [one.request for one in self.placed(job) if one.request is not None]
        held = self.of(job.job_name)
        return pods + ([held.stand_in] if held is not None and held.stand_in is not None else [])

    def on_lent_cells(self, core: Core) -> list[PodRequest]:
        """The pods of all opportunistic groups, those that are held for jobs among them. Cost O(groups)."""
        groups = [group for group in core.state.groups.values() if group.virtual is None]
        return [pod for group in groups for pod in group.holders if pod is not None]

    def opportunistic(self, core: Core) -> dict[str, list[PodRequest]]:
        """The pods of opportunistic groups of no job of a queue, newest groups first; a gang counts as one of these."""
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
    """The virtual leaves of a hold for some of its slots; None if it names none, or pods of it have them."""
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
