"""The queues that there are, with jobs or without, and the amounts that each is guaranteed and bounded by."""

from collections.abc import Iterable

from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.jobs.quotas.backing import cells_of, virtual_cluster_of
from hived_extender.jobs.quotas.tree import MAX_JOBS, QuotaTree


class KnownQueues:
    """Leaves of a quota tree, and virtual clusters that back none of them. `vcs` has the virtual cluster of each."""

    def __init__(self, tree: QuotaTree | None, cluster: ClusterSpec, rules: PodRules) -> None:
        """Cost O(entries of the configuration, quotas)."""
        self._quotas = {} if tree is None else tree.quotas
        self._oversell = 1.0 if tree is None else tree.oversell
        leaves = () if tree is None else tree.leaves()
        self.vcs = {leaf.name: virtual_cluster_of(leaf, cluster) for leaf in leaves}
        self.vcs |= {vc: vc for vc in cluster.virtual_clusters if vc not in self.vcs.values()}
        self._cells = cells_of(cluster, rules.resources_in(cluster))

    def with_others(self, names: Iterable[str]) -> list[str]:
        """All names, ascending, and these, which have jobs."""
        return sorted({*self.vcs, *names})

    def with_objects(self, names: Iterable[str]) -> list[str]:
        """The same and all quotas above leaves."""
        return self.with_others((*self._quotas, *names))

    def guaranteed(self, name: str) -> dict[str, float]:
        """The `min` of a quota; the devices of a virtual cluster's cells."""
        if (quota := self._quotas.get(name)) is not None:
            return dict(quota.min)
        sizes = self._cells.get(name, {})
        return {resource: float(sum(size * count for size, count in each.items())) for resource, each in sizes.items()}

    def most(self, name: str) -> dict[str, float]:
        """The `max` of a quota and its number of jobs, without what is unlimited; nothing of a virtual cluster."""
        quota = self._quotas.get(name)
        if quota is None:
            return {}
        return dict(quota.max) if quota.max_jobs is None else {**quota.max, MAX_JOBS: float(quota.max_jobs)}

    def oversell(self, name: str) -> float:
        """So many times the `min` and `max` of a quota are its limits."""
        return self._oversell if name in self._quotas else 1.0
