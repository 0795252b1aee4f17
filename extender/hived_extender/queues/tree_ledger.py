"""Use of a quota tree as the queues count it; see `ledger.Ledger`."""

from collections.abc import Mapping

from hived_extender.queues.units import Unit
from hived_extender.quotas.tree import QuotaTree
from hived_extender.quotas.usage import Usage


class TreeLedger:
    """A leaf's `min` is its guarantee, its `max` the most that it may use. Units of no leaf are not counted."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree
        self._usage = Usage(tree)

    def take(self, unit: Unit) -> None:
        """See `Ledger`."""
        if unit.queue in self._tree.quotas:
            self._usage.take(unit.queue, unit.request, is_preemptible=unit.is_preemptible)

    def give(self, unit: Unit) -> None:
        """See `Ledger`."""
        if unit.queue in self._tree.quotas:
            self._usage.give_back(unit.queue, unit.request, is_preemptible=unit.is_preemptible)

    def refusal(self, unit: Unit) -> str | None:
        """See `Ledger`."""
        if unit.queue not in self._tree.quotas:
            return None
        found = self._usage.refusal(unit.queue, unit.request, is_preemptible=unit.is_preemptible)
        return None if found is None else found.text

    def is_within_min(self, unit: Unit) -> bool:
        """See `Ledger`. A guaranteed job counts for max and the number of jobs like any other."""
        if unit.queue not in self._tree.quotas:
            return True
        is_within = self._usage.is_within_min(unit.queue, unit.request)
        return is_within and self._usage.refusal(unit.queue, unit.request) is None

    def share(self, queue: str) -> float:
        """See `Ledger`."""
        return self._usage.dominant_share(queue) if queue in self._tree.quotas else 0.0

    def guaranteed(self, queue: str) -> Mapping[str, float] | None:
        """See `Ledger`."""
        quota = self._tree.quotas.get(queue)
        return None if quota is None else quota.min

    def total(self) -> Mapping[str, float] | None:
        """See `Ledger`: of all leaves together. Cells, if none is guaranteed anything."""
        total: dict[str, float] = {}
        for leaf in self._tree.leaves():
            for name, amount in leaf.min.items():
                total[name] = total.get(name, 0.0) + amount
        return {name: amount for name, amount in total.items() if amount > 0} or None

    def borrows(self, queue: str) -> bool:
        """See `Ledger`: up to its `max`."""
        return queue in self._tree.quotas
