"""Slots of running affinity groups without a pod: cells are held for pods to come, then given back (rule 26.15).

A pod that failed or was deleted may be recreated, and others may not exist yet. Others could use borrowed cells, so
these are held for less time.
"""

import logging
import math

from hived.cells.state import Group, GroupState
from hived.values.specs import sizes_of
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.effects import Outbox

log = logging.getLogger(__name__)

TIMER = "empty slots"

LENT_S = 30.0
"""The time that lent cells are kept for a pod that does not exist."""

OWN_S = 600.0
"""The time for cells of the virtual cluster's own; and lent ones for a pod that exists and waits."""

AGAIN_S = 5.0
"""Until the next look at a group that is being preempted."""

SUCCEEDED = -math.inf
"""The time since which the slot of a pod that has succeeded is empty."""


class EmptySlots:
    """Times empty slots of groups and gives their cells back. Not thread-safe."""

    def __init__(self, cache: ClusterCache, outbox: Outbox) -> None:
        self._cache, self._outbox = cache, outbox
        self._since: dict[str, dict[int, float]] = {}  # of slots that were empty when they were looked at, by group

    def forget_all(self) -> None:
        """Drop all groups at the end of a term."""
        for name in self._since:
            self._outbox.timers.drop((TIMER, name))
        self._since.clear()

    def begin(self) -> None:
        """Begin a term: the age of empty slots counts from now."""
        core = self._core
        for name in [] if core is None else list(core.state.groups):
            self._watch(name)

    def look(self) -> None:
        """Take news of groups' pods. Cost O(slots) for a new group, O(1) for each pod that goes."""
        begun, left = self._cache.take_group_news()
        for name in begun:
            self._watch(name)
        for name, slots, has_succeeded in left:
            group = self._group(name)
            if group is None:
                self._drop(name)
                continue
            since = self._since.setdefault(name, {})
            since |= dict.fromkeys(slots, SUCCEEDED if has_succeeded else self._outbox.now.at)
            self._wake(name, group)

    def time_came(self, _: str, name: str) -> None:
        """Give back slots of a group that were empty for too long."""
        core, group = self._core, self._group(name)
        if core is None or group is None:
            self._drop(name)
            return
        since = self._since[name] = {slot: at for slot, at in self._since[name].items() if group.holders[slot] is None}
        due = self._due(group)
        if not due:
            self._wake(name, group)
        elif group.state is not GroupState.ALLOCATED:
            self._outbox.wake_in((TIMER, name), AGAIN_S)
        else:
            self._give_back(core, name, group, due, since)

    def _give_back(self, core: Core, name: str, group: Group, due: list[int], since: dict[int, float]) -> None:
        kept = self._cache.bound.shrink(core, group, due)
        self._drop(name)
        if not kept:
            return
        log.info("slots given back", extra={"fields": {"group": name, "pods": len(due)}})
        self._cache.group_shrank(name)
        left = self._group(name)
        if left is not None:
            self._since[name] = {new: since[old] for new, old in enumerate(kept) if old in since}
            self._wake(name, left)

    @property
    def _core(self) -> Core | None:
        return self._cache.core

    def _group(self, name: str) -> Group | None:
        """An allocated group of several slots whose pods have hived's annotation."""
        group = None if self._core is None else self._core.state.groups.get(name)
        if group is None or group.state is GroupState.PREEMPTING or len(group.holders) < 2:
            return None
        return group

    def _watch(self, name: str) -> None:
        group = self._group(name)
        if group is None or name in self._since:
            return
        now = self._outbox.now.at
        self._since[name] = {slot: now for slot, holder in enumerate(group.holders) if holder is None}
        self._wake(name, group)

    def _drop(self, name: str) -> None:
        self._since.pop(name, None)
        self._outbox.timers.drop((TIMER, name))

    def _wake(self, name: str, group: Group) -> None:
        """Set the timer for the group's first empty slot."""
        since = self._since[name]
        if not since:
            return
        now = self._outbox.now.at
        at = min(each + _kept_s(group) for each in since.values())
        # after the present stimulus, and later if a waiting pod holds a slot
        delay = max(at - now, 0.0) if at > now or SUCCEEDED in since.values() else _kept_s(group)
        key = TIMER, name
        if self._outbox.timers.due_of(key) > now + delay:
            self._outbox.wake_in(key, delay)

    def _due(self, group: Group) -> list[int]:
        """The slots to give back (rule 26.15); waiting pods hold the newest empty slots of their size."""
        now, since, sizes = self._outbox.now.at, self._since[group.name], sizes_of(group.members)
        waiting = self._cache.waiting_sizes(group.spec.group)
        due: list[int] = []
        for slot in sorted(since, key=lambda each: (-since[each], each)):
            is_wanted = waiting[sizes[slot]] > 0
            waiting[sizes[slot]] -= 1
            if is_wanted and since[slot] == SUCCEEDED:
                since[slot] = now
            if is_wanted and (group.virtual is not None or now < since[slot] + OWN_S):
                continue
            if now >= since[slot] + _kept_s(group):
                due.append(slot)
        return sorted(due)


def _kept_s(group: Group) -> float:
    return LENT_S if group.virtual is None else OWN_S
