"""How much each queue uses beyond its guarantee, by weight: the share that decides who borrows, and who gives back.

    share(queue) = max over resources of (used - guaranteed) / all / weight

`used` is everything that runs of the queue, guaranteed or borrowed, less what was told to leave. So a queue below its
guarantee has a negative share: it comes first, and takes back what others borrow.
"""

from collections.abc import Callable, Mapping

from hived_extender.queues.units import Unit

CELLS = "cells"
"""The resource that is counted where no quota tree guarantees others: leaf cells."""


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
        for name, amount in self.amounts(unit).items():
            used[name] = used.get(name, 0.0) + sign * amount
        self._known.pop(unit.queue, None)

    def amounts(self, unit: Unit) -> dict[str, float]:
        """The resources of a unit that are counted."""
        counted = {name: amount for name, amount in unit.request.items() if name in self._total}
        if CELLS in self._total:
            counted[CELLS] = float(unit.leaf_count)
        return counted

    def share(self, queue: str) -> float:
        """The present share."""
        found = self._known.get(queue)
        if found is None:
            found = self._known[queue] = self.share_with(queue, {})
        return found

    def with_more(self, unit: Unit) -> float:
        """The share of a unit's queue if it ran as well."""
        return self.share_with(unit.queue, self.amounts(unit))

    def rest(self, queue: str) -> "Rest":
        """The share of a queue as its units leave, one after the other."""
        return Rest(self, queue)

    def share_with(self, queue: str, more: Mapping[str, float]) -> float:
        """The share if that much more were used, by resource."""
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


class Rest:
    """A queue whose units leave in turn. Cost O(resources) for each, however many have left."""

    def __init__(self, shares: Shares, queue: str) -> None:
        self._shares, self._queue = shares, queue
        self._less: dict[str, float] = {}

    def without(self, unit: Unit) -> float:
        """The share without all that have left, and without this unit."""
        return self._shares.share_with(self._queue, self._with(unit))

    def leave(self, unit: Unit) -> None:
        """This unit has left."""
        self._less = self._with(unit)

    def _with(self, unit: Unit) -> dict[str, float]:
        less = dict(self._less)
        for name, amount in self._shares.amounts(unit).items():
            less[name] = less.get(name, 0.0) - amount
        return less
