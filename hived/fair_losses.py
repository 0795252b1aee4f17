"""What borrowers lose, weighed between tenants: who tells the truth of its saves is not hit for it.

A checkpoint makes the loss of a group smaller. If losses of several tenants were compared as they are, those whose jobs
report checkpoints would leave again and again (rule 8.15). A tenant is a namespace in a virtual cluster.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hived.state import NO_TIME, Group, State

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
    """A number for the namespace and virtual cluster of each group; that of its first pod speaks for a group."""
    numbers: dict[tuple[int, str], int] = {}
    found = [(group.vc, next((pod.namespace for pod in group.holders if pod is not None), "")) for group in groups]
    return np.array([numbers.setdefault(tenant, len(numbers)) for tenant in found], np.int64)


def _ages(moments: Losses, now_ms: int) -> Losses:
    return np.where(moments == NO_TIME, 0, np.maximum(now_ms - moments, 0))


def _exchanged(leaves: Losses, ages: Losses, unsaved: Losses) -> Losses:
    """The ages of all leaves of one tenant, given out anew: the least to the group with least unsaved work.

    So its reports decide which of its own groups is the cheapest, and not how cheap the cheapest is.
    """
    by_age, by_unsaved = np.lexsort((leaves, ages)), np.lexsort((leaves, ages, unsaved))
    counts, lost = np.cumsum(leaves[by_age]), np.cumsum((leaves * ages)[by_age])
    up_to = np.cumsum(leaves[by_unsaved])
    at = np.searchsorted(counts, up_to)
    found = np.empty(len(leaves), np.int64)
    found[by_unsaved] = np.diff(lost[at] - (counts[at] - up_to) * ages[by_age][at], prepend=0)
    return found
