"""Pods of jobs with held cells: they take these cells (rule 32.2), or the hold is lost. Not thread-safe."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hived.cells.topology import BoolArray
from hived.life.groups import bind_info_of_slot, member_slots
from hived.values.decisions import Bind
from hived.values.events import Offer
from hived.values.specs import PodRequest, sizes_of
from hived_extender.jobs.job import JobName
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.gangs.plans import Round
from hived_extender.machine.gangs.rounds import Rounds, single_request
from hived_extender.machine.held import Held, HeldJobs, Taker, are_whole
from hived_extender.machine.pods import PodRecord, PodState

log = logging.getLogger(__name__)


class HeldPods:
    """Answers the pods of held jobs."""

    def __init__(self, cache: ClusterCache, jobs: HeldJobs) -> None:
        self._cache, self._jobs = cache, jobs
        self._looked_at: tuple[object, int] | None = None

    def bar_of(self, record: PodRecord) -> str:
        """The queue in which a pod's job waits, "" if none."""
        return self._cache.jobs.bar_of(record)

    def is_held_for(self, record: PodRecord) -> bool:
        """True if cells are held for a waiting pod."""
        held = self._of(record)
        return held is not None and held.stand_in is not None

    def sizes_for(self, record: PodRecord) -> list[int]:
        """The leaf cells of each held slot of a waiting pod's job."""
        held = self._of(record)
        return [] if held is None else held.sizes

    @property
    def rounds(self) -> Rounds:
        """The rounds of all gangs."""
        return self._cache.rounds

    def answer(
        self, core: Core, record: PodRecord, request: PodRequest, offer: Offer | None, *, commit: bool
    ) -> Bind | None:
        """Take the held cells of a pod's group; None if it must look for others.

        Without `commit` it only asks.
        """
        held = self._of(record)
        if held is None or held.answer is None:
            return None
        if commit and core.reserves(request):
            core.delete(request)  # it was about to take others' cells
        if core.has_group(request.spec.group.name):
            return None
        if record.uid in held.given:
            self._release_lost(core, held, "kube-scheduler does not offer the node that a pod was given")
            return None
        if not held.has_room_for(request):
            return None
        if not commit:
            return held.answer
        request = self._as_held(held, record, request)
        count = len(sizes_of(request.spec.group.members))
        if not self._give(core, held, [(request, _rows(offer, count))]):
            return None
        record.request, held.given[record.uid] = request, record
        slot = member_slots(request.spec.group.members, request.spec.leaf_cell_count).start
        return Bind(bind_info_of_slot(core.state, core.state.groups[request.spec.group.name], slot))

    def start(self, core: Core, round_: Round, asker: PodRecord) -> bool:
        """Start a round on its held cells at once; False if it must look for others.

        Pods of several jobs, or of a partly held job, cannot: their held cells are freed to be found like any others.
        """
        members = [record for part in round_.parts for record in part.members]
        found = {id(held): held for record in members if (held := self._of(record)) is not None and held.stand_in}
        if not found:
            return False
        held = next(iter(found.values()))
        if len(found) > 1 or any(self._of(record) is not held for record in members):
            for one in found.values():
                self._release_lost(core, one, "its pods start together with others")
            return False
        sizes = Counter(sizes_of([member for part in round_.parts for member in part.request.spec.group.members]))
        if not sizes <= Counter(held.sizes):
            return False  # others of its pods, which are still to come, have these slots
        takers: list[Taker] = []
        for part in round_.parts:
            rows = _rows(self._cache.rounds.offer(part, exact=asker), len(part.slots))
            pods = zip(part.members, rows, strict=False)
            takers += [(self._as_held(held, record, single_request(record)), [row]) for record, row in pods]
        if not self._give(core, held, takers):
            return False
        for record, (request, _) in zip(members, takers, strict=True):
            held.given[record.uid] = record
            self._cache.pods.place(record, request, core.bind_info_of(request.spec.group.name))
        self._cache.rounds.has_started(core, round_)
        return True

    def look(self) -> None:
        """Release holds that lost cells, or whose slots went to pods that wait again (rule 32.3)."""
        core, placed = self._cache.core, self._cache.jobs.take_placed()
        if core is None or not self._jobs.by_key:
            return
        for job in placed:
            self._free_spare_slots(core, job)
        is_changed = not self.has_looked(core)
        self.spared(core)
        holds = [one for one in self._jobs.by_key.values() if not one.is_lost]
        is_changed = is_changed and not are_whole(core, holds)
        for held in holds if is_changed else [one for one in holds if one.given]:
            pods = [self._cache.pods.get(uid) for uid in held.given]
            if any(one is None or not one.state.has_node for one in pods):
                self._release_lost(core, held, "a pod has lost the cells that it was given")
            held.given = {one.uid: one for one in pods if one is not None and one.state is PodState.BINDING}
            if is_changed and not held.is_lost and not held.is_whole(core):
                self._release_lost(core, held, "its cells are needed by others, or bad")

    def _free_spare_slots(self, core: Core, job: JobName) -> None:
        """Free slots of pods placed elsewhere before their job was known."""
        held = self._jobs.of(job)
        if held is None or held.is_lost or held.stand_in is None:
            return
        placed = [one for one in self._jobs.placed(held.hold.job) if not one.seen.is_leaving]
        left = sizes_of(held.hold.spec.group.members)
        count = max(len(left) - len(placed), 0)
        if len(held.sizes) <= count:
            return
        for info in (one.place.info for one in placed):
            if info is not None and (size := len(info.leaf_cell_indices)) in left:
                left.remove(size)
        held.keep(core, left[:count])
        self._jobs.note(job)
        log.info("cells given back", extra={"fields": {"job": held.hold.key, "pods": len(placed)}})

    def has_looked(self, core: Core) -> bool:
        """True if nothing changed since the last look."""
        return self._looked_at == (core, core.change_count)

    def spared(self, core: Core) -> None:
        """Note that all changes since a look left other holds alone."""
        self._looked_at = core, core.change_count

    def lose_all(self) -> None:
        """Drop all holds with their state: the queue must ask again."""
        for held in self._jobs.by_key.values():
            held.stand_in, held.is_lost = None, True
            held.given.clear()
            self._jobs.note(held.hold.job.job_name)

    def _of(self, record: PodRecord) -> Held | None:
        """The hold of a pod's job, None if nothing is held any more."""
        held = self._jobs.of_pod(record)
        return None if held is None or held.is_lost else held

    def _give(self, core: Core, held: Held, takers: Sequence[Taker]) -> bool:
        if held.give(core, takers):
            return True
        self._release_lost(core, held, "there are no slots on nodes that kube-scheduler offers")
        return False

    def _release_lost(self, core: Core, held: Held, why: str) -> None:
        held.release(core)
        held.is_lost, held.answer = True, None
        self._jobs.note(held.hold.job.job_name)
        log.warning("cells are held no longer", extra={"fields": {"job": held.hold.key, "reason": why}})

    def _as_held(self, held: Held, record: PodRecord, request: PodRequest) -> PodRequest:
        """Make a gang pod lazily preemptible only if all of its job is."""
        if not record.is_of_dialect:
            return request
        spec = replace(request.spec, lazy_preemption=held.hold.spec.lazy_preemption)
        return replace(request, spec=spec)


def _rows(offer: Offer | None, count: int) -> list[BoolArray | None]:
    """The nodes of each slot."""
    return [None] * count if offer is None else [offer.nodes[slot] for slot in range(count)]
