"""What the queues ask of quotas: how much is used, and who may use more. `hived_extender.quotas` counts by a tree."""

from collections.abc import Mapping
from typing import Protocol

from hived_extender.queues.units import Unit


class Ledger(Protocol):
    """Use by queue. There is one of all that runs, and one of each own schedule."""

    def take(self, unit: Unit) -> None:
        """The unit runs from now on."""

    def give(self, unit: Unit) -> None:
        """It runs no more."""

    def refusal(self, unit: Unit) -> str | None:
        """Why it may not run beside all that does, by max and the number of jobs; None if it may."""

    def is_within_min(self, unit: Unit) -> bool:
        """Is it part of the guaranteed use, beside all that runs?"""

    def share(self, queue: str) -> float:
        """Dominant share of the queue's use, as the order across queues has it."""

    def guaranteed(self, queue: str) -> Mapping[str, float] | None:
        """What the queue is guaranteed, by resource; None if that is the cells of its virtual cluster."""

    def total(self) -> Mapping[str, float] | None:
        """All that is guaranteed to anybody, by resource; None if that is cells."""

    def borrows(self, queue: str) -> bool:
        """May jobs of the queue run above its guarantee?"""


class Unlimited:
    """Without a tree: queues are virtual clusters, guaranteed by their cells alone, and borrow where rules say so."""

    def __init__(self) -> None:
        self._leaves: dict[str, int] = {}

    def take(self, unit: Unit) -> None:
        """See `Ledger`."""
        self._leaves[unit.queue] = self._leaves.get(unit.queue, 0) + unit.leaf_count

    def give(self, unit: Unit) -> None:
        """See `Ledger`."""
        self._leaves[unit.queue] -= unit.leaf_count

    def refusal(self, unit: Unit) -> str | None:
        """See `Ledger`."""
        return None

    def is_within_min(self, unit: Unit) -> bool:
        """See `Ledger`."""
        return True

    def share(self, queue: str) -> float:
        """See `Ledger`: leaf cells; a virtual cluster is compared with itself only."""
        return float(self._leaves.get(queue, 0))

    def guaranteed(self, queue: str) -> Mapping[str, float] | None:
        """See `Ledger`."""
        return None

    def total(self) -> Mapping[str, float] | None:
        """See `Ledger`."""
        return None

    def borrows(self, queue: str) -> bool:
        """See `Ledger`."""
        return False
