"""How much each queue uses beyond its guarantee, by weight: the share that decides who borrows, and who gives back.

    share(queue) = max over resources of (used - guaranteed) / all / weight

`used` is everything that runs of the queue, guaranteed or borrowed, less what was told to leave. So a queue below its
guarantee has a negative share: it comes first, and takes back what others borrow.
"""

from collections.abc import Callable, Mapping

from hived_extender.queues.units import Unit

CELLS = "cells"
"""The resource that is always counted: leaf cells."""


class Shares:
    """Use of all queues. `guaranteed` has amounts by resource; a resource that `total` lacks is not counted."""

    def __init__(
        self, total: Mapping[str, float], guaranteed: Callable[[str], Mapping[str, float]],
        weight: Callable[[str], float], half_life_s: float = 0.0,
    ) -> None:  # fmt: skip
        self._total = {name: amount for name, amount in total.items() if amount > 0}
        self._guaranteed, self._weight, self._half_life_s = guaranteed, weight, half_life_s
        self._used: dict[str, dict[str, float]] = {}
        self._average: dict[str, tuple[float, float]] = {}  # decayed share, and when it was true
        self._known: dict[str, float] = {}

    def take(self, unit: Unit) -> None:
        """The unit uses its cells from now on."""
        self._add(unit, 1)

    def give(self, unit: Unit) -> None:
        """It does no more."""
        self._add(unit, -1)

    def _add(self, unit: Unit, sign: int) -> None:
        used = self._used.setdefault(unit.queue, {})
        for name, amount in self._amounts(unit).items():
            used[name] = used.get(name, 0.0) + sign * amount
        self._known.pop(unit.queue, None)

    def _amounts(self, unit: Unit) -> dict[str, float]:
        counted = {name: amount for name, amount in unit.request.items() if name in self._total}
        counted[CELLS] = float(unit.leaf_count)
        return counted

    def share(self, queue: str) -> float:
        """The present share."""
        found = self._known.get(queue)
        if found is None:
            found = self._known[queue] = self._share(queue, {})
        return found

    def with_more(self, unit: Unit) -> float:
        """The share of a unit's queue if it ran as well."""
        return self._share(unit.queue, self._amounts(unit))

    def without(self, units: list[Unit]) -> float:
        """The share of the queue of these units if they did not run. At least one, all of one queue."""
        less: dict[str, float] = {}
        for unit in units:
            for name, amount in self._amounts(unit).items():
                less[name] = less.get(name, 0.0) - amount
        return self._share(units[0].queue, less)

    def _share(self, queue: str, more: Mapping[str, float]) -> float:
        used, guaranteed = self._used.get(queue, {}), self._guaranteed(queue)
        over = [
            (used.get(name, 0.0) + more.get(name, 0.0) - guaranteed.get(name, 0.0)) / total
            for name, total in self._total.items()
            if name in used or name in more or name in guaranteed
        ]
        most = max(over, default=0.0)
        # a heavy queue below its guarantee is not further below for its weight
        return most / self._weight(queue) if most > 0 else most

    def in_order(self, queue: str) -> float:
        """The share by which borrowers are ordered: past use counts too if there is a half-life."""
        return (
            max(self.share(queue), self._average.get(queue, (0.0, 0.0))[0]) if self._half_life_s else self.share(queue)
        )

    def advance(self, now: float) -> None:
        """Let past use decay up to now."""
        if not self._half_life_s:
            return
        for queue in self._used:
            average, since = self._average.get(queue, (0.0, now))
            kept = 0.5 ** (max(now - since, 0.0) / self._half_life_s)
            self._average[queue] = (average * kept + max(self.share(queue), 0.0) * (1 - kept), now)
