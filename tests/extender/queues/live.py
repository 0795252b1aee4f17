"""A live cluster for queues: a real core, in which jobs run whose cells the queues hold and give back."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import State
from hived.life.groups import virtual_leaves
from hived.scheduler import handle, idle_state
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import (
    GroupSplit,
    GroupsUpgraded,
    NodeHealthChanged,
    PodAllocated,
    PodDeleted,
    ScheduleRequested,
)
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PodRequest, PodSpec, sizes_of
from hived_extender.machine.stand_ins import like
from hived_extender.queues.room import Ask, Claimed, NoCells, Pending, Victims
from hived_extender.queues.units import Unit


def stand_in(ask: Ask) -> PodRequest:
    """One pod that brings the cells of a whole gang; the same object for the same question, as the core wants it."""
    return _stand_in(ask.unit.key, ask.unit.spec, ask.is_borrowed)


@lru_cache(maxsize=1 << 14)
def _stand_in(key: str, asked: PodSpec, is_borrowed: bool) -> PodRequest:
    spec = replace(asked.of_group(key, True), lazy_preemption=False)
    if is_borrowed:
        spec = replace(spec, priority=OPPORTUNISTIC_PRIORITY, pinned_cell_id="")
    return PodRequest(key, key, "", spec)


def decide(state: State, ask: Ask) -> Bind | Preempt | Wait:
    event = ScheduleRequested(stand_in(ask))
    if ask.own:
        event = replace(event, own=np.array(ask.own, np.int32))
    try:
        found = handle(state, event)
    except UserError as error:
        return Wait(str(error))
    assert isinstance(found, Bind | Preempt | Wait)
    return found


class Live:
    """Every group is a unit or, of no job, one that was told by `add`."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.state = idle_state(spec)
        self.pods: dict[str, PodRequest] = {}
        self.asked = 0
        self.others: list[str] = []  # groups of no job, oldest first

    def copied(self) -> "Live":
        """Another cluster that is as this one is now."""
        found = copy.copy(self)
        found.state, found.pods, found.others = copy_state(self.state), dict(self.pods), list(self.others)
        return found

    def release(self, key: str) -> None:
        handle(self.state, PodDeleted(self.pods.pop(key)))
        if key in self.others:
            self.others.remove(key)

    def shrink(self, unit: Unit, kept: Sequence[int]) -> None:
        """All pods of a job end but those in these slots, ascending, which are all that it needs from now on."""
        group, key, before = self.state.groups[unit.key], unit.key, self.pods[unit.key]
        sizes = sizes_of(group.members)
        rest = [slot for slot in range(len(sizes)) if slot not in kept]
        self.pods[key] = PodRequest(key, key, "", like(before.spec, key, [sizes[slot] for slot in kept]))
        gone = PodRequest(f"{key}#", key, "", like(before.spec, f"{key}#", [sizes[slot] for slot in rest]))
        handle(self.state, GroupSplit(key, (self.pods[key], gone), (tuple(kept), tuple(rest))))
        handle(self.state, PodDeleted(gone))

    def set_health(self, node: str, is_healthy: bool) -> None:
        handle(self.state, NodeHealthChanged(node, is_healthy))

    def add(self, ask: Ask) -> Bind:
        """Work of no job starts."""
        found = decide(self.state, ask)
        assert isinstance(found, Bind), found
        self._take(self.state, ask, found)
        self.pods[ask.unit.key] = stand_in(ask)
        self.others.append(ask.unit.key)
        return found

    # Room

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        self.asked += 1
        found = decide(self.state, ask)
        if isinstance(found, Bind) and self._leaves_room(ask, pending.claims):
            return self._hold(ask, found)
        if isinstance(found, Wait):
            return NoCells(found.reason) if ask.is_borrowed else found
        return Wait("others use its cells")

    def victims(self, ask: Ask, candidates: Sequence[str], pending: Pending) -> Victims | None:
        self.asked += 1
        order = [*candidates] if ask.is_borrowed else [*candidates, *reversed(self.others)]
        low, high = -1, len(order)
        if not self._fits(pending, ask, order):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(pending, ask, order[:middle]):
                high = middle
            else:
                low = middle
        gone = order[:high]
        for key in list(gone):
            fewer = [each for each in gone if each != key]
            if self._fits(pending, ask, fewer):
                gone = fewer
        keys = tuple(key for key in gone if key not in self.others)
        return Victims(keys, tuple(key for key in gone if key in self.others))

    def upgrade(self, ask: Ask) -> tuple[int, ...] | None:
        pod = stand_in(ask)
        try:
            handle(self.state, GroupsUpgraded((pod,), np.array(ask.own, np.int32)))
        except UserError:
            return None
        self.pods[ask.unit.key] = pod
        return virtual_leaves(self.state, ask.unit.key)

    def _hold(self, ask: Ask, found: Bind) -> Bind:
        self._take(self.state, ask, found)
        self.pods[ask.unit.key] = stand_in(ask)
        return found

    def _take(self, state: State, ask: Ask, found: Bind) -> None:
        handle(state, PodAllocated(stand_in(ask), found.bind_info))

    def _release(self, state: State, keys: Sequence[str]) -> None:
        for key in keys:
            if key in state.groups:
                handle(state, PodDeleted(self.pods[key]))

    def _place_all(self, state: State, claims: Sequence[Claimed]) -> list[str]:
        """The claims that get their cells in turn."""
        placed: list[str] = []
        for claim in claims:
            self._release(state, claim.leaving)
            found = decide(state, claim.ask)
            if isinstance(found, Bind):
                self._take(state, claim.ask, found)
                placed.append(claim.ask.unit.key)
        return placed

    def _leaves_room(self, ask: Ask, claims: Sequence[Claimed]) -> bool:
        if not claims:
            return True
        after = copy_state(self.state)
        found = decide(after, ask)  # only the state that decided knows the virtual cells
        assert isinstance(found, Bind)
        self._take(after, ask, found)
        placed = self._placed(after, claims)
        return all(len(each) == len(claims) for each in placed) or placed == self._placed(self.state, claims)

    def _placed(self, state: State, claims: Sequence[Claimed]) -> tuple[list[str], list[str]]:
        """The claims that get their cells one after the other, and if all leave together."""
        together = copy_state(state)
        self._release(together, [key for claim in claims for key in claim.leaving])
        return self._place_all(copy_state(state), claims), self._place_all(together, claims)

    def _fits(self, pending: Pending, ask: Ask, gone: Sequence[str]) -> bool:
        """Has it cells if the others get theirs one after the other, and also if all leave together?"""
        one_by_one, together = copy_state(self.state), copy_state(self.state)
        self._place_all(one_by_one, pending.claims)
        self._release(one_by_one, (*pending.leaving, *gone))
        self._release(together, (*pending.leaving, *gone))
        self._place_all(together, pending.claims)
        return all(isinstance(decide(state, ask), Bind) for state in (one_by_one, together))
