"""The cells of virtual clusters as a table that a search may change, and the delay that each virtual cluster has.

Guaranteed jobs start as in a private cluster of their virtual cluster's cells. So the delay of one depends on its own
cells alone, and is found by a replay of its own jobs. No replay is made twice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hived.errors import UserError
from hived.layout import build_topology
from hived.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, VirtualCellSpec
from hived_config.chains import Chain
from hived_config.division import chains_of
from hived_config.promises import CellTypePlace, counts_of
from hived_simulator.estates import divide
from hived_simulator.loop import Manner
from hived_simulator.outcomes import Outcome
from hived_simulator.private import PrivateClusters
from hived_simulator.replaying import Tell, run
from hived_simulator.traces.jobs import Job

NEVER_FACTOR = 10
"""A job that never starts counts as waiting so many times as long as the trace with its longest job takes."""

Counts = Mapping[CellTypePlace, int]
Table = Mapping[str, Counts]
"""By virtual cluster, the number of cells of each type; pinned cells are not in it."""


class BudgetError(Exception):
    """No replay is left."""


class Delay(NamedTuple):
    """The guaranteed jobs of one virtual cluster: seconds from submission to start, of all together."""

    total_s: float
    jobs: int
    outcomes: Sequence[Outcome] = ()

    @property
    def mean_s(self) -> float:
        """Of one job."""
        return self.total_s / self.jobs if self.jobs else 0.0

    @property
    def never(self) -> int:
        """Jobs that never start."""
        return sum(one.delay_s is None for one in self.outcomes)

    @property
    def started_mean_s(self) -> float:
        """Of one job that starts."""
        found = [one.delay_s for one in self.outcomes if one.delay_s is not None]
        return sum(found) / len(found) if found else 0.0


class Sizes:
    """See the module. `most` is how many replays of one virtual cluster's jobs there may be."""

    def __init__(
        self, cluster: ClusterSpec, jobs: Sequence[Job], vc_of: Mapping[str, str], manner: Manner, most: int,
        tell: Callable[[int], Tell] = lambda number: lambda done, of: None,
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.chains: dict[str, Chain] = chains_of(cluster)
        self.present: Table = {vc: counts_of(cluster, vc) for vc in cluster.virtual_clusters}
        self.replays = 0
        self.most = most
        self._jobs: dict[str, list[Job]] = {vc: [] for vc in cluster.virtual_clusters}
        for job in jobs:
            if job.priority != OPPORTUNISTIC_PRIORITY:
                self._jobs[vc_of[job.tenant]].append(job)
        last_s = max((job.submitted_s for job in jobs), default=0.0)
        self._never_s = NEVER_FACTOR * (last_s + max((job.duration_s for job in jobs), default=0.0))
        self._manner = manner
        self._tell = tell
        self._delays: dict[tuple[str, tuple[tuple[CellTypePlace, int], ...]], Delay] = {}
        self._fits: dict[tuple[tuple[CellTypePlace, int], ...], bool] = {}

    def path(self, place: CellTypePlace) -> str:
        """The cell type of a place as a file spells it."""
        chain, depth = place
        return ".".join(self.chains[chain].types[: depth + 1])

    def leaves(self, place: CellTypePlace) -> int:
        """Leaf cells of one cell."""
        chain, depth = place
        return self.chains[chain].leaf_counts[depth]

    def has_jobs(self, vc: str) -> bool:
        """Whether a virtual cluster has guaranteed jobs."""
        return bool(self._jobs[vc])

    def delay(self, vc: str, counts: Counts) -> Delay:
        """The delay of a virtual cluster with these cells. Raises BudgetError if that takes one replay too many."""
        jobs = self._jobs[vc]
        if not jobs:
            return Delay(0.0, 0)
        key = (vc, _key(counts))
        if key not in self._delays:
            if self.replays >= self.most:
                raise BudgetError
            self.replays += 1
            alone = self._with({vc: counts})
            vc_of, tell = {job.tenant: vc for job in jobs}, self._tell(self.replays)
            found = run(PrivateClusters(alone), jobs, vc_of, self._manner, tell)
            total_s = sum(self._never_s if one.delay_s is None else one.delay_s for one in found.outcomes)
            self._delays[key] = Delay(total_s, len(jobs), found.outcomes)
        return self._delays[key]

    def fits(self, table: Table) -> bool:
        """Whether the hardware suffices for all together. Cost O(cells), once for each sum of cells."""
        sums: dict[CellTypePlace, int] = {}
        for counts in table.values():
            for place, count in counts.items():
                sums[place] = sums.get(place, 0) + count
        key = _key(sums)
        if key not in self._fits:
            try:
                divide(build_topology(self._with(table)))
                self._fits[key] = True
            except UserError:
                self._fits[key] = False
        return self._fits[key]

    def spec(self, table: Table) -> ClusterSpec:
        """The configuration with these cells."""
        return self._with(table)

    def _with(self, table: Table) -> ClusterSpec:
        """The configuration with these virtual clusters alone."""
        virtual = {
            vc: replace(
                self.cluster.virtual_clusters[vc],
                virtual_cells=tuple(
                    VirtualCellSpec(self.path(place), count) for place, count in sorted(counts.items()) if count
                ),
            )
            for vc, counts in table.items()
        }
        return replace(self.cluster, virtual_clusters=virtual)


def _key(counts: Counts) -> tuple[tuple[CellTypePlace, int], ...]:
    return tuple(sorted((place, count) for place, count in counts.items() if count))
