"""Which jobs could be in the way of a waiting one, by counting: the only ones that are worth a trial.

A count of free leaf cells, node by node, before and after jobs end. It knows nothing of levels above nodes, offers and
wishes; the core does. So a job that counts may not help, and the order of trials is by lost work.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from hived.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, PodSpec
from hived.state import State
from hived.topology import NO_CELL, IntArray, LongArray
from hived.views import views_to_try
from hived_extender.defrag.model import NO_BIN, View

MOST_IN_PAIRS = 32
"""Jobs of which pairs are looked at, those with the least lost work."""


class Holding:
    """The jobs that have cells where a part of a waiting job looks, at its priority or above.

    `jobs` are their names, `room` the free leaf cells of each node, `held` the leaf cells of job i in node j as
    (i, j, count).
    """

    def __init__(
        self, state: State, spec: PodSpec, groups: Sequence[tuple[str, Sequence[str]]], *, of_hardware: bool
    ) -> None:
        """`groups` are the jobs with their groups, those with the least lost work first. Cost O(cells + groups).

        `of_hardware`: count the hardware that others have, and not the cells of the job's virtual cluster, which may be
        free and have no good hardware.
        """
        self.jobs = [name for name, _ in groups]
        self._sizes = [(one.leaf_cell_count, one.pod_count) for one in spec.group.members]
        if of_hardware:
            spec = replace(spec, priority=OPPORTUNISTIC_PRIORITY, pinned_cell_id="")
        is_guaranteed = spec.priority >= MIN_GUARANTEED_PRIORITY
        rooms, jobs, bins, counts, offset = [], [], [], [], 0
        leaves = [_leaves(state, names, spec, is_guaranteed=is_guaranteed) for _, names in groups]
        flat = np.concatenate([*leaves, np.empty(0, np.int32)]).astype(np.int32)
        job_of = np.repeat(np.arange(len(leaves)), [len(each) for each in leaves])
        for view in [view for views in views_to_try(state, spec) for view in views]:
            own, room = (_virtual if is_guaranteed else _physical)(state, view, flat)
            here = own != NO_BIN
            pairs, count = np.unique(job_of[here] * len(room) + own[here], return_counts=True)
            of_job, of_bin = pairs // max(len(room), 1), pairs % max(len(room), 1)
            np.subtract.at(room, of_bin, count)
            rooms.append(np.maximum(room, 0))
            jobs.append(of_job)
            bins.append(of_bin + offset)
            counts.append(count)
            offset += len(room)
        empty = np.empty(0, np.int64)
        self.room: LongArray = np.concatenate([*rooms, empty]).astype(np.int64)
        self.held = tuple(np.concatenate([*one, empty]).astype(np.int64) for one in (jobs, bins, counts))

    def singles(self) -> list[str]:
        """The jobs one of which alone might make enough room, in their order."""
        enough = np.ones(len(self.jobs), np.bool_)
        of_job, of_bin, count = self.held
        for size, wanted in self._sizes:
            before = self.room // size
            gain = np.bincount(of_job, (self.room[of_bin] + count) // size - before[of_bin], len(self.jobs))
            enough &= before.sum() + gain >= wanted
        enough &= np.bincount(of_job, minlength=len(self.jobs)) > 0
        return [self.jobs[job] for job in np.flatnonzero(enough)]

    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of jobs that might make enough room together, though neither does alone; in order of their jobs."""
        alone = set(self.singles())
        of_job, of_bin, count = self.held
        with_cells = np.unique(of_job).tolist()
        near = [job for job in with_cells if self.jobs[job] not in alone][:MOST_IN_PAIRS]
        found = []
        for one, other in combinations(near, 2):
            mine = (of_job == one) | (of_job == other)
            room = self.room.copy()
            np.add.at(room, of_bin[mine], count[mine])
            if all((room // size).sum() >= wanted for size, wanted in self._sizes):
                found.append((one, other))
        return [(self.jobs[one], self.jobs[other]) for one, other in sorted(found, key=lambda pair: (sum(pair), pair))]


def _leaves(state: State, names: Sequence[str], spec: PodSpec, *, is_guaranteed: bool) -> IntArray:
    """The leaf cells of groups that keep a part from its own: those of its VC at its priority or above, or any."""
    found = [np.empty(0, np.int32)]
    vc = state.topology.vc_index[spec.virtual_cluster]
    for name in names:
        group = state.groups[name]
        if not is_guaranteed:
            found.append(group.physical[group.physical != NO_CELL])
        elif group.virtual is not None and group.vc == vc and group.priority >= spec.priority:
            found.append(group.virtual[group.virtual != NO_CELL])
    return np.concatenate(found)


def _virtual(state: State, number: int, leaves: IntArray) -> tuple[IntArray, LongArray]:
    """The bin of each leaf in a view of a VC, and the leaves of each bin that can be had."""
    view = View(state, number)
    return view.bins_of(leaves), view.capacity()


def _physical(state: State, number: int, leaves: IntArray) -> tuple[IntArray, LongArray]:
    """The same in a view of a chain, for opportunistic jobs: leaves that others use do not count."""
    arrays, cells = state.arrays, state.cells
    bins = arrays.view_cell[arrays.view_start[number] : arrays.view_start[number + 1]]
    bin_of = np.full(len(arrays.parent), NO_BIN, np.int32)
    room = np.zeros(len(bins), np.int64)
    for bin_, cell in enumerate(bins.tolist()):
        first = int(arrays.first_leaf[cell])
        own = slice(first, first + int(arrays.leaf_count[arrays.chain_level[cell]]))
        bin_of[own] = bin_
        room[bin_] = int(((cells.bad[own] == 0) & (cells.priority[own] == FREE_PRIORITY)).sum())
    own_bins = bin_of[leaves]
    here = own_bins[own_bins != NO_BIN]
    np.add.at(room, here, 1)  # taken off again by whoever holds them
    return own_bins, room
