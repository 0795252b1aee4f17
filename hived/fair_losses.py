"""What borrowers lose, weighed between their virtual clusters: who tells the truth of its saves is not hit for it.

A checkpoint makes the loss of a group smaller. If losses of several virtual clusters were compared as they are, those
whose jobs report checkpoints would leave again and again (rule 8.15).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hived.state import NO_TIME, Group, State

MOST_WEIGHT = 4
"""A virtual cluster that has borrowed least counts at most so many times as much as the one that has borrowed most."""

Losses = npt.NDArray[np.int64]


def weighed_losses(state: State, groups: Sequence[Group], losses: Losses, now_ms: int) -> Losses:
    """The losses of groups on lent cells as they are compared, in leaf-milliseconds; int64, shape (groups,).

    losses : true ones, as `loss_of` has them

    They are the true ones unless the groups are of several virtual clusters, and one of these has saved its work. Cost
    O(groups log groups).
    """
    if now_ms == NO_TIME or not state.has_saves or not any(group.since_ms > group.started_ms for group in groups):
        return losses
    vcs = np.array([group.vc for group in groups])
    if (vcs == vcs[0]).all():
        return losses
    leaves = np.array([len(group.physical) for group in groups], np.int64)
    ages = _ages(np.array([group.started_ms for group in groups], np.int64), now_ms)
    unsaved = _ages(np.array([group.since_ms for group in groups], np.int64), now_ms)
    found, most = np.empty(len(groups), np.int64), int(np.bincount(vcs, leaves).max())
    for vc in np.unique(vcs).tolist():
        own = np.flatnonzero(vcs == vc)
        exchanged = _exchanged(leaves[own], ages[own], unsaved[own])
        found[own] = exchanged * min(MOST_WEIGHT, most / int(leaves[own].sum()))
    return found


def _ages(moments: Losses, now_ms: int) -> Losses:
    return np.where(moments == NO_TIME, 0, np.maximum(now_ms - moments, 0))


def _exchanged(leaves: Losses, ages: Losses, unsaved: Losses) -> Losses:
    """The ages of all leaves of one virtual cluster, given out anew: the least to the group with least unsaved work.

    So its reports decide which of its own groups is the cheapest, and not how cheap the cheapest is.
    """
    by_age, by_unsaved = np.lexsort((leaves, ages)), np.lexsort((leaves, ages, unsaved))
    counts, lost = np.cumsum(leaves[by_age]), np.cumsum((leaves * ages)[by_age])
    up_to = np.cumsum(leaves[by_unsaved])
    at = np.searchsorted(counts, up_to)
    found = np.empty(len(leaves), np.int64)
    found[by_unsaved] = np.diff(lost[at] - (counts[at] - up_to) * ages[by_age][at], prepend=0)
    return found
