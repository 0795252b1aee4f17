"""The live cluster as the queues ask it: the service holds cells for jobs, and says who would have to leave.

`Surroundings` are the work and hardware beside the queues: guaranteed pods of no queued job, and the health of nodes.
Both bear on the own schedules. They are read off the core, and told to the queues as differences.
Not thread-safe.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from hived.cells.state import GroupState, State
from hived.life.groups import bind_info_of_slot, virtual_leaves
from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, BindInfo, PodSpec, count_pods, sizes_of
from hived_extender.jobs.job import JobName, JobRef
from hived_extender.jobs.wire import Pod
from hived_extender.machine import claims as service
from hived_extender.machine import holds
from hived_extender.machine import quota_bound as service_quotas
from hived_extender.machine.core import Core
from hived_extender.machine.machine import Machine
from hived_extender.machine.offers import Asking
from hived_extender.machine.pods import PodRecord
from hived_extender.machine.recording.operations import STAND_IN
from hived_extender.machine.stimuli import Claimed, Hold, HoldAsked, HoldShrunk, UpgradeAsked, VictimsAsked
from hived_extender.machine.stimuli import Victims as Leaving
from hived_extender.queues.own_schedule import behind_node
from hived_extender.queues.queues import Queues
from hived_extender.queues.room import Ask, Lent, NoCells, NoQuota, Pending, RoomMade, Victims
from hived_extender.queues.units import Unit, pods_of

log = logging.getLogger(__name__)


class Differences(msgspec.Struct, frozen=True):
    """New groups, groups that are gone, and nodes with their health; virtual leaves that are in use on bad ones."""

    new: Mapping[str, tuple[PodSpec, BindInfo]]
    gone: Sequence[str]
    nodes: Mapping[str, bool]
    behind: Mapping[str, int]


class Surroundings:
    """The state of one core as the queues know it."""

    def __init__(self, queues: Queues, core: Core) -> None:
        self._queues = queues
        self._touched = core.follow()
        self._queued: dict[JobName, set[str]] = {}
        self._owners: dict[str, int] = {}  # groups of queued jobs, with how many these are
        self._groups: dict[str, bytes] = {}  # with their virtual leaves
        self._refused: dict[str, None] = {}
        self._bad: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None

    def leave(self, core: Core) -> None:
        """Look no more."""
        core.unfollow(self._touched)

    def look(self, core: Core, queued: Mapping[JobName, set[str]]) -> Differences | None:
        """The differences since the last look, None if nothing has changed.

        `queued` has the groups of queued jobs that may have others now. A group that was refused is new in the next
        differences. Cost O(nodes + groups of no queue), little for each that has not changed.
        """
        state, changed = core.state, dict(self._touched)
        self._touched.clear()
        changed |= {name: None for name in self._groups if _is_victim(state, name)}
        for job, groups in queued.items():
            before = self._queued.pop(job, set[str]())
            changed |= dict.fromkeys(sorted(before ^ groups))
            for name in before:
                self._owners[name] -= 1
                if not self._owners[name]:
                    del self._owners[name]
            for name in groups:
                self._owners[name] = self._owners.get(name, 0) + 1
            if groups:
                self._queued[job] = groups
        bad = np.array(state.cells.node_bad, np.bool_)
        was = self._bad if self._bad is not None else np.zeros_like(bad)  # queues begin with healthy nodes
        turned = np.flatnonzero(bad != was).tolist()
        nodes = {core.node_names[node]: not bad[node] for node in turned}
        if not (changed or nodes):
            return None
        self._bad = bad
        changed |= self._refused
        new, gone = dict[str, tuple[PodSpec, BindInfo]](), list[str]()
        for name in changed:
            before_leaves, leaves = self._groups.pop(name, None), self._leaves_of(state, name)
            if before_leaves is not None and leaves != before_leaves:
                gone.append(name)
            if leaves is not None:
                self._groups[name] = leaves
                if leaves != before_leaves:
                    group = state.groups[name]
                    new[name] = group.spec, bind_info_of_slot(state, group, 0)
            else:
                self._refused.pop(name, None)
        return Differences(new, gone, nodes, {core.node_names[node]: behind_node(state, node) for node in turned})

    def _leaves_of(self, state: State, name: str) -> bytes | None:
        """The virtual leaves of a group that is guaranteed work of no queue; None of others."""
        group = state.groups.get(name)
        if group is None or group.state is not GroupState.ALLOCATED or group.virtual is None:
            return None
        is_other = name in self._owners or name.startswith(STAND_IN)
        is_guaranteed = group.spec.priority >= MIN_GUARANTEED_PRIORITY
        return group.virtual.tobytes() if is_guaranteed and not is_other else None

    def tell(self, found: Differences) -> None:
        """Tell the queues."""
        if found.nodes:
            self._queues.health(found.nodes, found.behind)
        for name in found.gone:
            self._queues.told_gone(name)
        for name, (spec, info) in found.new.items():
            try:
                self._queues.told_running(name, spec, info)
                self._refused.pop(name, None)
            except UserError as error:
                self._refuse(name, error)
        self._queues.room_made()

    def _refuse(self, name: str, error: UserError) -> None:
        """A group has no place in the own schedules yet, as a job that is about to leave them has its cells there."""
        self._groups.pop(name, None)
        if name not in self._refused:
            self._refused[name] = None
            log.warning("work of no queue counts nothing", extra={"fields": {"group": name, "reason": error.message}})


def _is_victim(state: State, name: str) -> bool:
    group = state.groups.get(name)
    return group is not None and group.state is not GroupState.ALLOCATED


def groups_within(pods: Iterable[PodRecord], leaf_count: float) -> set[str]:
    """The groups of a job's pods, of the first ones that have so many leaf cells together.

    Any client may add pods to a job, and some kinds grow by themselves. Those beyond its size are work of no queue.
    """
    found: set[str] = set()
    for request in (one.request for one in pods if one.is_in_core):
        if request is not None and (request.spec.group.name in found or leaf_count > 0):
            found.add(request.spec.group.name)
            leaf_count -= request.spec.leaf_cell_count
    return found


class LiveRoom:
    """See `room.Room`. `jobs` has the job of each unit, and the pods of its templates, by key.

    `outside` are claims of guaranteed work of no queue, which come before those of all units.
    """

    def __init__(
        self,
        machine: Machine,
        jobs: Mapping[str, tuple[JobRef, Sequence[tuple[Pod, int]]]],
        outside: Mapping[str, Claimed],
    ) -> None:
        self._machine, self._outside = machine, outside
        self._jobs = jobs
        self._keys: dict[JobRef, str] = {}

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        """See `room.Room`. A request that can never be met waits: its unit says why."""
        return self._asked(HoldAsked(self._hold(ask), self._claims(pending), is_start=True, walk=pending.walk))

    def upgrade(self, ask: Ask) -> tuple[int, ...] | None:
        """See `room.Room`."""
        if not self._machine.ask(UpgradeAsked(self._hold(ask))):
            return None
        job, _ = self._jobs[ask.unit.key]
        core, cache = self._machine.cache.core, self._machine.cache
        requests = [one.request for one in cache.jobs.pods_of(job)]
        held = self._machine.holds.virtual_of(ask.unit.key)
        groups = list(dict.fromkeys(each.spec.group.name for each in requests if each is not None))
        return () if core is None else leaves_of(core.state, ask.unit, groups, held)

    def hold_again(self, ask: Ask) -> Bind | Wait:
        """Hold the cells of a job that has been resumed already: those that its pods have not taken."""
        return self._asked(HoldAsked(self._hold(ask)))

    def shrink(self, ask: Ask) -> tuple[int, ...]:
        """Hold cells for fewer pods of a job from now on. Returns the virtual leaves of those that are still held."""
        found: tuple[int, ...] = self._machine.ask(HoldShrunk(self._hold(ask)))
        return found

    def _asked(self, asked: HoldAsked) -> Bind | Wait:
        try:
            found: Bind | Wait = self._machine.ask(asked)
        except UserError as error:
            if error.code == 503:
                raise
            return Wait(error.message)
        if isinstance(found, service_quotas.OverQuota):
            return NoQuota(found.reason)
        if isinstance(found, holds.RoomMade):
            return RoomMade(found.reason)
        return NoCells(found.reason) if isinstance(found, holds.NoCells) else found

    def victims(self, ask: Ask, candidates: Sequence[str], pending: Pending) -> Victims | None:
        """See `room.Room`."""
        by_job = {self._jobs[key][0]: key for key in candidates if key in self._jobs}
        try:
            found: Leaving | None = self._machine.ask(
                VictimsAsked(
                    self._hold(ask),
                    tuple(by_job),
                    self._refs(pending.leaving),
                    self._claims(pending),
                    spares_others=ask.is_borrowed,
                )
            )
        except UserError as error:
            if error.code == 503:
                raise
            return None
        return None if found is None else Victims(tuple(by_job[job] for job in found.jobs), found.groups)

    def lent(self, found: Lent) -> service.Lent:
        """The same with the jobs of units, and with the outside claims."""
        pending = found.pending
        return service.Lent(self._refs(found.borrowers), self._refs(pending.leaving), self._claims(pending))

    def question(self, unit: Unit, *, is_borrowed: bool = False) -> Asking | None:
        """The question to the core about cells for a unit, its own or borrowed ones; None if it is known no more.

        Changes nothing.
        """
        if unit.key not in self._jobs:
            return None
        return self._machine.holds.question(self._hold(Ask(unit, is_borrowed)))

    def _hold(self, ask: Ask) -> Hold:
        unit = ask.unit
        job, of_job = self._jobs[unit.key]
        counts = pods_of(unit, [count for _, count in of_job])
        pods = [(pod, count) for (pod, _), count in zip(of_job, counts, strict=True) if count]
        spec = replace(unit.spec.of_group(unit.key), lazy_preemption=False)
        if ask.is_borrowed:
            spec = replace(spec, priority=OPPORTUNISTIC_PRIORITY, pinned_cell_id="")
        slots = count_pods(spec.group.members)
        if sum(count for _, count in pods) != slots:
            pods = []
        slots_pods = tuple(pod for pod, count in pods for _ in range(count))
        return Hold(unit.key, job, spec, ask.own, slots_pods, unit.queue, unit.request, unit.is_preemptible)

    def _claims(self, pending: Pending) -> tuple[Claimed, ...]:
        leaving = self._refs(pending.leaving)
        outside = [
            Claimed(claim.hold, tuple(job for job in claim.leaving if job in leaving))
            for claim in self._outside.values()
        ]
        of_units = [
            Claimed(self._hold(claim.ask), self._refs(claim.leaving))
            for claim in pending.claims
            if claim.ask.unit.key in self._jobs
        ]
        return (*outside, *of_units)

    def _refs(self, keys: Sequence[str]) -> tuple[JobRef, ...]:
        return tuple(self._jobs[key][0] for key in keys if key in self._jobs)


def leaves_of(
    state: State, unit: Unit, groups: Sequence[str], held: tuple[int, ...], *, is_leaving: bool = False
) -> tuple[int, ...]:
    """The virtual leaves that a unit has, in slot order; empty if they are not all known, or it has borrowed them.

    Of one that is leaving, those of the pods that are left.

    They are not written onto jobs: the cells that pods are bound to say it, whoever leads.
    `groups` are the groups of its pods, `held` the leaves of the slots that no pod has yet.
    """
    if is_leaving:
        return tuple(leaf for name in groups for leaf in virtual_leaves(state, name))
    left = sizes_of(unit.spec.group.members)
    slots: list[tuple[int, tuple[int, ...]]] = []
    for name in groups:
        leaves = virtual_leaves(state, name)
        sizes = sizes_of(state.groups[name].spec.group.members) if leaves else []
        for size in sizes:
            if size not in left:
                return ()
            left.remove(size)
        slots += _split(sizes, leaves)
    if sum(left) != len(held):
        return ()
    slots += _split(left, held)
    slots.sort(key=lambda slot: slot[0])  # members are sorted by size
    return tuple(leaf for _, leaves in slots for leaf in leaves)


def _split(sizes: list[int], leaves: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """The leaves of each slot, with its size."""
    found, at = [], 0
    for size in sizes:
        found.append((size, leaves[at : at + size]))
        at += size
    return found
