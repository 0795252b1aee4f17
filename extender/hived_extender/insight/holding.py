"""The jobs that could be in the way of a waiting one, by counting: the only ones that are worth a trial.

A count of free leaf cells, node by node, before and after jobs end. It knows nothing of levels above nodes, offers and
wishes; the core does. So a job that counts may not help, and the order of trials is by lost work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice

import numpy as np

from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.cells.views import views_to_try
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, PodSpec

MOST_APART = 24
"""Jobs on any nodes of which pairs are looked at, the ones with the least lost work."""

MOST_TOGETHER = 64
"""Nodes of which pairs of jobs are looked at."""

MOST_ON_A_NODE = 4
"""Jobs of one node of which pairs are looked at."""

NO_JOB = -1


class Holding:
    """The jobs that have cells where a part of a waiting job looks, and that it cannot preempt.

    Attributes
    ----------
    jobs : their names, those that lose least first
    room : free leaf cells of each node of the views, shape (bins,)
    held : (job, bin, leaf cells), three arrays of one length; jobs are indices into `jobs`
    """

    def __init__(
        self, state: State, spec: PodSpec, jobs: Mapping[str, Sequence[str]], now_s: float, *, of_hardware: bool
    ) -> None:
        """`jobs` are the groups of each job; `now_s` is in seconds since 1970. Cost O(cells + groups).

        `of_hardware`: count the hardware that others have, and not the cells of the job's virtual cluster, which may be
        free and have no good hardware.
        """
        if of_hardware:
            spec = replace(spec, priority=OPPORTUNISTIC_PRIORITY, pinned_cell_id="")
        self._sizes = [(one.leaf_cell_count, one.pod_count) for one in spec.group.members]
        rooms, bins, numbers, offset = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for view in [view for views in views_to_try(state, spec) for view in views]:
            leaves, bin_of, count = _leaves_of(state, view)
            is_free, group = _use(state, leaves, spec.priority)
            rooms.append(np.bincount(bin_of[is_free], minlength=count))
            blocked = group != NO_GROUP
            bins.append(bin_of[blocked] + offset)
            numbers.append(group[blocked].astype(np.int64))
            offset += count
        self.room: LongArray = np.concatenate(rooms)
        self._order(state, jobs, np.concatenate(numbers), np.concatenate(bins), int(now_s * 1000))

    def _order(
        self, state: State, jobs: Mapping[str, Sequence[str]], numbers: LongArray, bins: LongArray, now_ms: int
    ) -> None:
        """Count the leaf cells of each job by bin; jobs by lost work, of equals the older ones first."""
        names, lost = list(jobs), np.zeros(len(jobs), np.int64)
        job_of = np.full(state.group_total + 1, NO_JOB, np.int64)
        for job, groups in enumerate(jobs.values()):
            for name in groups:
                group = state.groups[name]
                job_of[group.number] = job
                if 0 <= group.since_ms < now_ms:
                    lost[job] += len(group.physical) * (now_ms - group.since_ms)
        own = job_of[numbers]
        here = own != NO_JOB
        present = np.unique(own[here])
        present = present[np.argsort(lost[present], kind="stable")]
        self.jobs = [names[job] for job in present.tolist()]
        place = np.full(len(names) + 1, NO_JOB, np.int64)
        place[present] = np.arange(len(present))
        width = max(len(self.room), 1)
        pairs, counts = np.unique(place[own[here]] * width + bins[here], return_counts=True)
        self.held: tuple[LongArray, LongArray, LongArray] = (pairs // width, pairs % width, counts.astype(np.int64))

    def singles(self) -> list[str]:
        """The jobs one of which alone might make enough room, in their order."""
        return [self.jobs[job] for job in self._alone()]

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of jobs that might make enough room together, though neither does alone, in order of their jobs."""
        alone = set(self._alone())
        found = [pair for pair in dict.fromkeys((*self._apart(), *self._together())) if not alone & set(pair)]
        enough = sorted((pair for pair in found if self._make_room(pair)), key=lambda pair: (sum(pair), pair))
        return [(self.jobs[one], self.jobs[other]) for one, other in enough]

    def _alone(self) -> list[int]:
        enough = np.ones(len(self.jobs), np.bool_)
        for size, wanted in self._sizes:
            enough &= int((self.room // size).sum()) + self._gain(size) >= wanted
        found: list[int] = np.flatnonzero(enough).tolist()
        return found

    def _gain(self, size: int) -> LongArray:
        """How many pods of a size fit more once each job has ended; shape (jobs,)."""
        of_job, of_bin, count = self.held
        more = (self.room[of_bin] + count) // size - self.room[of_bin] // size
        return np.bincount(of_job, more, len(self.jobs)).astype(np.int64)

    def _apart(self) -> list[tuple[int, int]]:
        """Pairs of jobs each of which makes room for some pods."""
        size = self._sizes[-1][0]
        some = np.flatnonzero(self._gain(size) > 0)[:MOST_APART].tolist()
        return list(combinations(some, 2))

    def _together(self) -> list[tuple[int, int]]:
        """Pairs of jobs on one node that make room there."""
        of_job, of_bin, count = self.held
        size, least = self._sizes[0][0], np.full(len(self.room), len(self.jobs), np.int64)
        np.minimum.at(least, of_bin, of_job)
        total = self.room + np.bincount(of_bin, count, len(self.room)).astype(np.int64)
        is_open = (total >= size) & (self.room < size) & (np.bincount(of_bin, minlength=len(self.room)) > 1)
        found: list[tuple[int, int]] = []
        nodes = np.flatnonzero(is_open)
        for node in islice(nodes[np.argsort(least[nodes], kind="stable")].tolist(), MOST_TOGETHER):
            found += combinations(sorted(of_job[of_bin == node].tolist())[:MOST_ON_A_NODE], 2)
        return found

    def _make_room(self, pair: tuple[int, int]) -> bool:
        of_job, of_bin, count = self.held
        mine = (of_job == pair[0]) | (of_job == pair[1])
        bins, which = np.unique(of_bin[mine], return_inverse=True)
        more = np.bincount(which, count[mine]).astype(np.int64)
        before = self.room[bins]
        return all(
            int((self.room // size).sum() + ((before + more) // size - before // size).sum()) >= wanted
            for size, wanted in self._sizes
        )


def _leaves_of(state: State, view: int) -> tuple[IntArray, LongArray, int]:
    """The leaves of a view, the candidate node of each, and how many of these there are."""
    arrays = state.arrays
    nodes = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]]
    counts = arrays.leaf_count[arrays.chain_level[nodes]].astype(np.int64)
    bin_of = np.repeat(np.arange(len(nodes)), counts)
    within = np.arange(len(bin_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return (arrays.first_leaf[nodes][bin_of] + within).astype(np.int32), bin_of, len(nodes)


def _use(state: State, leaves: IntArray, priority: int) -> tuple[BoolArray, IntArray]:
    """Whether each leaf can be had at this priority, and else the group that has it; NO_GROUP if it stays bad."""
    cells = state.cells
    is_blocked = cells.priority[leaves] >= max(priority, FREE_PRIORITY + 1)
    physical = leaves if priority < MIN_GUARANTEED_PRIORITY else cells.bound[leaves]
    known = np.where(physical == NO_CELL, 0, physical)
    group = np.where(cells.reserving[known] != NO_GROUP, cells.reserving[known], cells.using[known])
    is_good = cells.bad[leaves] == 0
    can_be_good = is_good | (priority >= MIN_GUARANTEED_PRIORITY)  # a virtual cell gets other hardware once it is free
    group = np.where(is_blocked & (physical != NO_CELL) & can_be_good, group, NO_GROUP)
    return is_good & ~is_blocked, group
