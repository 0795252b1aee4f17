"""Lost work: the leaf-seconds of work that are lost if a group leaves now (rule 8.12).

The core has no clock: events carry the start of a pod, its last checkpoint, and the present time. A group loses
(number of its leaves) x (now - since), where `since` is the later of two times: the earliest start of its pods, and
the latest checkpoint. An unknown start counts as no loss, and so does a request without the time. Opportunistic,
elastic and guaranteed groups are counted alike.

The times of a group follow from the pods in its slots, in any order of events: a restart that replays them ends with
the same losses. Milliseconds are whole numbers, so sums are exact.

Losses of several tenants are weighed (rule 8.15): a checkpoint makes the loss of a group smaller, and a tenant that
reports checkpoints must not be preempted again and again for it. A tenant is a namespace in a virtual cluster.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hived.cells.journal import remember
from hived.cells.state import NO_TIME, Group, State, Work
from hived.cells.topology import NO_CELL, IntArray
from hived.values.errors import UserError
from hived.values.specs import NO_TIMES, Rules, WorkTimes

LATEST_S = 2.0**33
"""Seconds since 1970; a million leaves times as many milliseconds still fit an int64."""


def milliseconds(time_s: float | None) -> int:
    """A time in whole milliseconds since 1970, NO_TIME for None. Raises UserError if it is no time."""
    if time_s is None:
        return NO_TIME
    if not 0 <= time_s < LATEST_S:  # nor NaN
        raise UserError(f"a time must be at least 0 and less than {LATEST_S:.0f} seconds since 1970, not {time_s}")
    return math.floor(time_s * 1000)


def check_times(times: WorkTimes | None) -> None:
    """Raise UserError if one of a pod's times is no time."""
    if times is not None:
        milliseconds(times.started_s)
        milliseconds(times.saved_s)


def note_times(state: State, group: Group, uid: str, times: WorkTimes) -> None:
    """Record the times of the pod with this uid, which has a slot of the group. Can be undone.

    Cost O(1) as a rule; O(pods of the group) if an earlier time of the pod is replaced, O(leaves) if `since` changes.
    """
    before = group.times.get(uid, NO_TIMES)
    if times != before:
        remember(state, _put, state, group, uid, before)
        _put(state, group, uid, times)


def note_first_times(state: State, group: Group, uid: str, times: WorkTimes | None) -> None:
    """Record the times of a pod that takes a slot or is reported again; unknown times replace none."""
    if times is not None and times != NO_TIMES:
        note_times(state, group, uid, times)


def forget_times(state: State, group: Group, uid: str) -> None:
    """Drop the times of the pod with this uid as it leaves its slots. Can be undone. Cost as `note_times`."""
    note_times(state, group, uid, NO_TIMES)


def since_of(group: Group) -> int:
    """The time since which a group's work is unsaved, in milliseconds since 1970; NO_TIME if its start is unknown.

    Cost O(pods of the group); `Group.since_ms` has the same.
    """
    starts = [times.started_s for times in group.times.values() if times.started_s is not None]
    saves = [times.saved_s for times in group.times.values() if times.saved_s is not None]
    return max(milliseconds(min(starts)), milliseconds(max(saves, default=None))) if starts else NO_TIME


def started_of(group: Group) -> int:
    """The earliest start of a group's pods in milliseconds since 1970, checkpoints aside; NO_TIME if unknown.

    Cost O(pods of the group); `Group.started_ms` has the same.
    """
    starts = [times.started_s for times in group.times.values() if times.started_s is not None]
    return milliseconds(min(starts, default=None))


def loss_of(group: Group, now_ms: int) -> int:
    """The leaf-milliseconds of work that are lost if a group leaves at `now_ms`; 0 if a time is NO_TIME.

    Cost O(leaves of the group); `losses_of_leaves` has it for many groups at once.
    """
    if NO_TIME in (now_ms, group.since_ms):
        return 0
    return int(np.count_nonzero(group.physical != NO_CELL)) * max(now_ms - group.since_ms, 0)


def losses_of_leaves(state: State, leaves: IntArray, now_ms: int) -> npt.NDArray[np.int64]:
    """For each physical leaf the loss of the group that uses it, in leaf-milliseconds; int64, shape of `leaves`.

    A group counts once, so losses of leaves are not to be added up: see `victim_choice`. 0 for unused leaves.
    Cost O(leaves), in numpy.
    """
    work = state.work
    if now_ms == NO_TIME or work is None:
        return np.zeros(len(leaves), np.int64)
    return work.leaf_count[leaves] * np.maximum(now_ms - work.since_ms[leaves], 0)


def _put(state: State, group: Group, uid: str, times: WorkTimes) -> None:
    is_new = uid not in group.times
    if times == NO_TIMES:
        group.times.pop(uid, None)
    else:
        group.times[uid] = times
    if is_new and len(group.times) > 1 and not _is_relevant(group, times):
        return
    state.has_saves |= times.saved_s is not None
    group.started_ms = started_of(group)
    since = since_of(group)
    if since != group.since_ms:
        group.since_ms = since
        _write(state, group)


def _is_relevant(group: Group, times: WorkTimes) -> bool:
    """True if the times of one more pod can change its group's: an earlier start, or a later checkpoint."""
    if group.since_ms == NO_TIME:
        return True
    return 0 <= milliseconds(times.started_s) < group.since_ms or milliseconds(times.saved_s) > group.since_ms


def _write(state: State, group: Group) -> None:
    """Write the times of a group to the arrays of kernels."""
    if state.spec.rules is not Rules.BETTER:
        return
    if state.work is None:
        count = state.topology.physical_count
        state.work = Work(np.full(count, NO_TIME, np.int64), np.zeros(count, np.int64))
    held = group.physical[group.physical != NO_CELL]
    state.work.since_ms[held] = group.since_ms
    state.work.leaf_count[held] = 0 if group.since_ms == NO_TIME else len(held)


MOST_WEIGHT = 4
"""A tenant that has borrowed least counts at most so many times as much as the one that has borrowed most."""

Losses = npt.NDArray[np.int64]


def weighed_losses(state: State, groups: Sequence[Group], losses: Losses, now_ms: int) -> Losses:
    """The losses of groups on lent cells as they are compared, in leaf-milliseconds; int64, shape (groups,).

    losses : true ones, as `loss_of` has them

    They are the true ones unless the groups are of several tenants, and one of these has saved its work. Cost
    O(groups log groups).
    """
    if now_ms == NO_TIME or not state.has_saves or not any(group.since_ms > group.started_ms for group in groups):
        return losses
    tenants = _tenants(groups)
    if (tenants == tenants[0]).all():
        return losses
    vcs = np.array([group.vc for group in groups])
    leaves = np.array([len(group.physical) for group in groups], np.int64)
    ages = _ages(np.array([group.started_ms for group in groups], np.int64), now_ms)
    unsaved = _ages(np.array([group.since_ms for group in groups], np.int64), now_ms)
    of_vc, of_tenant = np.bincount(vcs, leaves), np.bincount(tenants, leaves)
    found = np.empty(len(groups), np.int64)
    for tenant in range(len(of_tenant)):
        own = np.flatnonzero(tenants == tenant)
        vc = vcs[own[0]]
        most = of_tenant[tenants[vcs == vc]].max()
        weight = of_vc.max() / of_vc[vc] * most / of_tenant[tenant]
        found[own] = _exchanged(leaves[own], ages[own], unsaved[own]) * min(MOST_WEIGHT, weight)
    return found


def _tenants(groups: Sequence[Group]) -> npt.NDArray[np.int64]:
    """Number the tenant of each group: the namespace and virtual cluster of its first pod."""
    numbers: dict[tuple[int, str], int] = {}
    found = [(group.vc, next((pod.namespace for pod in group.holders if pod is not None), "")) for group in groups]
    return np.array([numbers.setdefault(tenant, len(numbers)) for tenant in found], np.int64)


def _ages(moments: Losses, now_ms: int) -> Losses:
    return np.where(moments == NO_TIME, 0, np.maximum(now_ms - moments, 0))


def _exchanged(leaves: Losses, ages: Losses, unsaved: Losses) -> Losses:
    """Deal the ages of one tenant's leaves out anew: the least to the group with least unsaved work.

    So its reports decide which of its own groups is the cheapest, and not how cheap the cheapest is.
    """
    by_age, by_unsaved = np.lexsort((leaves, ages)), np.lexsort((leaves, ages, unsaved))
    counts, lost = np.cumsum(leaves[by_age]), np.cumsum((leaves * ages)[by_age])
    up_to = np.cumsum(leaves[by_unsaved])
    at = np.searchsorted(counts, up_to)
    found = np.empty(len(leaves), np.int64)
    found[by_unsaved] = np.diff(lost[at] - (counts[at] - up_to) * ages[by_age][at], prepend=0)
    return found
