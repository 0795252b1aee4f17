"""A moment by which a waiting job starts, whatever its holders do within the limits that they declared.

Jobs that end early may let others in, and these may delay a job that would have started sooner had nobody ended early.
So the worst play is no bound. This is one: take away jobs that run, those with the earliest limits first, until the
core has a place for the job. Until it starts, one of these runs, or one of the waiting jobs that may come before it.
The first are over by the last limit of theirs, and each of the others runs for its own limit at most. The sum is a
bound, for one job at a time. It assumes that no new jobs of its priority come, that no hardware fails, and that jobs
which wait are served in their order; docs/forecast.md says more.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL, BoolArray
from hived.scheduler import Asked, handle, plan_in_turn
from hived.values.decisions import Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import PodDeleted
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest, Rules, VirtualClusterSpec
from hived_extender.insight.scene import Runner, Scene, Waiter, may_have
from hived_extender.pods.declared import MOST_S

MOST_ASKS = 200
"""Questions to the core for one bound; beyond that, it is asked less often, and the bound is later."""

SCHEDULING_S = 60.0
"""For kube-scheduler to ask again once there is room, and to bind."""


def bound_of(scene: Scene, number: int, spare: State | None = None) -> float:
    """Seconds from now by which a waiting job starts at the latest; infinite if the declared limits do not say, or add
    up to more than MOST_S.

    `spare` is the state of an earlier play that is over. Cost: a copy of the state, and a deletion for each pod.
    """
    waiter = scene.waiters[number]
    grace_s = _most_grace_s(scene)
    is_free = grace_s == math.inf  # nobody counts on evictions
    rivals_s = _rivals_s(scene, number, grace_s)
    if not waiter.is_asked or rivals_s >= MOST_S:
        return math.inf
    is_alone = _is_alone(scene, waiter)
    limited = sorted(
        (runner.left_s, index)
        for index, runner in enumerate(scene.runners)
        if runner.left_s is not None
        and (not is_alone or runner.vc == waiter.entry.vc or (is_free and runner.is_opportunistic))
    )
    state = copy_state(scene.state, spare)
    for group in list(state.groups.values()):
        if group.state is GroupState.PREEMPTING:
            _remove(state, group)
    opened = np.zeros(len(state.topology.node_names), np.bool_)
    stride = max(len(limited) // MOST_ASKS, 1)
    grace_s = 0.0 if is_free else grace_s
    if _has_place(scene, state, waiter, opened, is_free=is_free):
        return _within_reason(rivals_s + grace_s + SCHEDULING_S)
    for count, (left_s, index) in enumerate(limited, 1):
        for name in scene.runners[index].groups:
            if name in state.groups:
                leaves = state.groups[name].physical
                opened[state.arrays.node[leaves[leaves != NO_CELL]]] = True
                _remove(state, state.groups[name])
        is_due = count % stride == 0 or count == len(limited)
        if is_due and _has_place(scene, state, waiter, opened, is_free=is_free):
            return _within_reason(left_s + rivals_s + grace_s + SCHEDULING_S)
    return math.inf


def _within_reason(seconds: float) -> float:
    return seconds if seconds < MOST_S else math.inf


def _rivals_s(scene: Scene, number: int, grace_s: float) -> float:
    """Seconds for which waiting jobs that may get cells before this one have them, one after the other."""
    is_alone = _is_alone(scene, scene.waiters[number])
    return sum(
        math.inf if rival.entry.limit_s is None else rival.entry.limit_s + grace_s
        for other, rival in enumerate(scene.waiters)
        if _may_come_first(scene, number, other, is_alone=is_alone, is_free=grace_s == math.inf)
    )


def _may_come_first(scene: Scene, number: int, other: int, *, is_alone: bool, is_free: bool) -> bool:
    """May another waiting job get cells that this one needs, and keep them from it?

    Later ones of its own kind come after it. Jobs that it may evict do not keep cells from it by better rules. By the
    reference's rules guaranteed ones may, as it looks at one placement only (rule 18.5); opportunistic ones have no
    part in this placement, unless the job could not use some nodes even if they were empty. All may where nobody counts
    on evictions, and the job has to find a place that `is_free`.
    """
    waiter, rival = scene.waiters[number], scene.waiters[other]
    if other == number or (rival.kind == waiter.kind and other > number):
        return False
    if waiter.is_opportunistic or (is_free and rival.is_opportunistic):
        return True
    is_own = rival.entry.vc == waiter.entry.vc
    is_lower = rival.is_opportunistic or (is_own and rival.entry.priority < waiter.entry.priority)
    if is_lower and not is_free and scene.state.spec.rules is Rules.BETTER:
        return False
    if rival.is_opportunistic and not is_free and not waiter.is_restricted:
        return False
    return not is_alone or is_own


def _is_alone(scene: Scene, waiter: Waiter) -> bool:
    """Does VC safety keep other virtual clusters out of the job's way? It does where every node is healthy and offered,
    for jobs with cells of one virtual cell.
    """
    own = scene.state.spec.virtual_clusters.get(waiter.entry.vc, VirtualClusterSpec(waiter.entry.vc))
    return scene.is_whole and not waiter.is_opportunistic and not waiter.is_restricted and not own.combines


def _most_grace_s(scene: Scene) -> float:
    """How long an eviction takes at the most; infinite if nobody knows of a job that somebody who waits may evict."""
    highest: dict[str, int] = {}
    for waiter in scene.waiters:
        highest[waiter.entry.vc] = max(highest.get(waiter.entry.vc, waiter.entry.priority), waiter.entry.priority)
    is_any = any(priority > OPPORTUNISTIC_PRIORITY for priority in highest.values())
    return max((_eviction_s(runner, highest, is_any=is_any) for runner in scene.runners), default=0.0)


def _eviction_s(runner: Runner, highest: Mapping[str, int], *, is_any: bool) -> float:
    """The same of one job, given the highest priority that waits in each virtual cluster."""
    may_be_evicted = is_any if runner.is_opportunistic else highest.get(runner.vc, runner.priority) > runner.priority
    return max(runner.gone_s, runner.grace_s) if may_be_evicted else runner.grace_s


def _has_place(scene: Scene, state: State, waiter: Waiter, opened: BoolArray, *, is_free: bool) -> bool:
    """Would the core start the job, if need be once others have left? Not so if the place has to be free."""
    offers = waiter.offers(opened, keeps_rules=True)
    asked = [Asked(request, offer=offer) for request, offer in zip(waiter.entry.requests, offers, strict=True)]
    (found,) = plan_in_turn(state, [asked], scene.at)
    refusals = (Wait, Preempt) if is_free else (Wait,)
    return not isinstance(found, UserError) and all(
        not isinstance(decision, refusals) and may_have(state, waiter.entry, decision) for decision in found
    )


def _remove(state: State, group: Group) -> None:
    for pod in list(_pods(group)):
        handle(state, PodDeleted(pod))


def _pods(group: Group) -> Iterator[PodRequest]:
    yield from group.preempting_pods.values()
    for slots in group.slots_of.values():
        pod = group.holders[slots[0]]
        if pod is not None:
            yield pod
