"""The live cluster as the queues ask it: the service holds cells for jobs, and says who would have to leave."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hived.cells.state import State
from hived.life.groups import virtual_leaves
from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_extender.jobs.job import JobRef
from hived_extender.jobs.wire import Pod
from hived_extender.machine import claims as service
from hived_extender.machine import holds
from hived_extender.machine import quota_bound as service_quotas
from hived_extender.machine.held import Asking
from hived_extender.machine.runner import Runner
from hived_extender.machine.stand_ins import sizes_of
from hived_extender.machine.stimuli import Claimed, Hold, HoldAsked, HoldShrunk, UpgradeAsked, VictimsAsked
from hived_extender.machine.stimuli import Victims as Leaving
from hived_extender.queues.room import Ask, Lent, NoCells, NoQuota, Pending, RoomMade, Victims
from hived_extender.queues.units import Unit, pods_of


class LiveRoom:
    """See `room.Room`. `jobs` has the job of each unit, and the pods of its templates, by key.

    `outside` are claims of guaranteed work of no queue, which come before those of all units.
    """

    def __init__(
        self,
        runner: Runner,
        jobs: Mapping[str, tuple[JobRef, Sequence[tuple[Pod, int]]]],
        outside: Mapping[str, Claimed],
    ) -> None:
        self._runner, self._outside = runner, outside
        self._jobs = jobs
        self._keys: dict[JobRef, str] = {}

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        """See `room.Room`. A request that can never be met waits: its unit says why."""
        return self._asked(HoldAsked(self._hold(ask), self._claims(pending), is_start=True, walk=pending.walk))

    def upgrade(self, ask: Ask) -> tuple[int, ...] | None:
        """See `room.Room`."""
        if not self._runner.handle(UpgradeAsked(self._hold(ask))):
            return None
        job, _ = self._jobs[ask.unit.key]
        with self._runner.look() as machine:
            core, requests = machine.cache.core, [one.request for one in machine.cache.jobs.pods_of(job)]
            held = machine.holds.virtual_of(ask.unit.key)
            groups = list(dict.fromkeys(each.spec.group.name for each in requests if each is not None))
            return () if core is None else leaves_of(core.state, ask.unit, groups, held)

    def hold_again(self, ask: Ask) -> Bind | Wait:
        """Hold the cells of a job that has been let go already: those that its pods have not taken."""
        return self._asked(HoldAsked(self._hold(ask)))

    def shrink(self, ask: Ask) -> tuple[int, ...]:
        """Hold cells for fewer pods of a job from now on. Returns the virtual leaves of those that are still held."""
        found: tuple[int, ...] = self._runner.handle(HoldShrunk(self._hold(ask)))
        return found

    def _asked(self, asked: HoldAsked) -> Bind | Wait:
        try:
            found: Bind | Wait = self._runner.handle(asked)
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
            found: Leaving | None = self._runner.handle(
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
        with self._runner.look() as machine:
            return machine.holds.question(self._hold(Ask(unit, is_borrowed)))

    def _hold(self, ask: Ask) -> Hold:
        unit = ask.unit
        job, of_job = self._jobs[unit.key]
        counts = pods_of(unit, [count for _, count in of_job])
        pods = [(pod, count) for (pod, _), count in zip(of_job, counts, strict=True) if count]
        spec = replace(unit.spec.of_group(unit.key), lazy_preemption=False)
        if ask.is_borrowed:
            spec = replace(spec, priority=OPPORTUNISTIC_PRIORITY, pinned_cell_id="")
        slots = sum(member.pod_count for member in spec.group.members)
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
