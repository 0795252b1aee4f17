"""The use of quotas and shares: which queue may use more, borrows next, and gives back first.

The share of a queue (rule 31.2) is negative below its guarantee: such a queue comes first, and reclaims cells. Rule
31.4 has the order of borrowers that leave for an entitled unit. For another borrower w only queues give back that stay
above w's (rule 31.5): with x the shares before and y those after,

    y(victim's queue) >= y(w's queue)   and   y(victim's queue) < x(victim's queue)

Why this ends. Each exchange replaces the larger share x(victim's queue) by two smaller or equal ones, so the shares in
descending order get smaller, compared from the front. There are finitely many sets of running units, so exchanges alone
cannot go on for ever. Within a queue the priority of those that run only rises (rule 31.12).

Why two units do not evict each other in turns: see rule 31.6, which `Exchanges` keeps. A unit that runs guaranteed is
no victim.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.jobs.quotas.usage import Usage
from hived_extender.queues.policies import Rules
from hived_extender.queues.units import OtherUse, Unit


class Ledger(Protocol):
    """Use by queue. There is one of all that runs, and one of each own schedule."""

    def take(self, unit: Unit) -> None:
        """The unit runs from now on."""

    def give(self, unit: Unit) -> None:
        """It runs no more."""

    def take_others(self, other: OtherUse) -> None:
        """Pods of no unit have cells from now on."""

    def give_others(self, other: OtherUse) -> None:
        """They have them no more."""

    def refusal(self, unit: Unit) -> str | None:
        """Return why it may not run beside all that does, by max and the number of jobs; None if it may."""

    def is_within_min(self, unit: Unit) -> bool:
        """Is it part of the guaranteed use, beside all that runs?"""

    def share(self, queue: str) -> float:
        """Dominant share of the queue's use, as the order across queues has it."""

    def guaranteed(self, queue: str) -> Mapping[str, float] | None:
        """The guarantee of a queue, by resource; None if that is the cells of its virtual cluster."""

    def total(self) -> Mapping[str, float] | None:
        """The sum of all guarantees, by resource; None if that is cells."""

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

    def take_others(self, other: OtherUse) -> None:
        """See `Ledger`: cells alone count."""

    def give_others(self, other: OtherUse) -> None:
        """See `Ledger`."""

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

    def take_others(self, other: OtherUse) -> None:
        """See `Ledger`."""
        self._usage.take(other.queue, other.request, jobs=other.jobs)

    def give_others(self, other: OtherUse) -> None:
        """See `Ledger`."""
        self._usage.give_back(other.queue, other.request, jobs=other.jobs)

    def refusal(self, unit: Unit) -> str | None:
        """See `Ledger`."""
        if unit.queue not in self._tree.quotas:
            return None
        found = self._usage.refusal(unit.queue, unit.request)
        if found is None and not unit.is_preemptible:
            found = self._usage.refusal(unit.queue, unit.request, is_preemptible=False)
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


class Use:
    """All that runs in the live cluster, or in all own schedules: by quota and by user."""

    def __init__(self, ledger: Ledger, rules: Rules) -> None:
        self.ledger, self._rules = ledger, rules
        self._jobs: dict[tuple[str, str, str], int] = {}  # by `Unit.owner`

    def take(self, unit: Unit) -> None:
        """The unit runs from now on."""
        self.ledger.take(unit)
        self._jobs[unit.owner] = self._jobs.get(unit.owner, 0) + 1

    def give(self, unit: Unit) -> None:
        """It runs no more."""
        self.ledger.give(unit)
        self._jobs[unit.owner] -= 1

    def is_over_users_limit(self, unit: Unit) -> bool:
        """Has its user as many jobs that run as the queue allows (rule 29.6)?"""
        most = self._rules.of(unit.queue).most_running
        return most is not None and self._jobs.get(unit.owner, 0) >= most


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


@dataclass(frozen=True, slots=True)
class Borrower:
    """A unit that runs on borrowed cells since `start_s`."""

    unit: Unit
    start_s: float
    is_entitled: bool = False

    def lost(self, now: float) -> float:
        """Work that its eviction would lose, in leaf seconds."""
        return self.unit.leaf_count * (now - self.start_s)


class Exchanges:
    """Borrowers and the borrowers that they evicted, since a unit came or ended last (rule 31.6)."""

    def __init__(self) -> None:
        self._victims: dict[tuple[str, str], None] = {}

    def evicted(self, victim: str, winner: str) -> None:
        """The winner has got the victim's cells."""
        self._victims[winner, victim] = None

    def may_evict(self, victim: str, winner: str) -> bool:
        """Has the victim not evicted the winner, nor the winner the victim already?"""
        return (victim, winner) not in self._victims and (winner, victim) not in self._victims

    def forget(self) -> bool:
        """A unit has come or ended. True if that allows some exchange."""
        had_any = bool(self._victims)
        self._victims.clear()
        return had_any


def for_entitled(borrowers: Iterable[Borrower], shares: Shares, now: float) -> list[Borrower]:
    """All borrowers in the order in which they leave for an entitled unit (rule 31.4). Cost O(n log n)."""
    order = sorted(borrowers, key=lambda each: (each.is_entitled, -each.start_s, each.lost(now), each.unit.key))
    free = [each for each in order if not each.is_entitled]
    return [*_most_over_first(free, shares), *_most_over_first([each for each in order if each.is_entitled], shares)]


def for_borrower(
    unit: Unit, borrowers: Mapping[str, Sequence[Borrower]], shares: Shares, exchanges: Exchanges, now: float
) -> list[Borrower]:
    """The borrowers that may have to leave for another one, in order (rules 31.5, 31.12). `borrowers` are by queue."""

    def may_leave(each: Borrower) -> bool:
        return not each.is_entitled and exchanges.may_evict(each.unit.key, unit.key)

    lower = [each for each in borrowers.get(unit.queue, ()) if each.unit.priority < unit.priority and may_leave(each)]
    lower.sort(key=lambda each: (each.unit.priority, -each.start_s, each.lost(now), each.unit.key))
    after = shares.with_more(unit)
    others = [
        each
        for queue, of_queue in borrowers.items()
        if queue != unit.queue and shares.share(queue) > after
        for each in of_queue
        if may_leave(each)
    ]
    others.sort(key=lambda each: (-each.start_s, each.lost(now), each.unit.key))
    left = {each.unit.queue: shares.share(each.unit.queue) for each in others}
    rest = {queue: shares.rest(queue) for queue in left}
    found: list[Borrower] = []
    for each in _most_over_first(others, shares):
        queue = each.unit.queue
        share = rest[queue].without(each.unit)
        if after <= share < left[queue]:
            rest[queue].leave(each.unit)
            left[queue] = share
            found.append(each)
    return [*lower, *found]


def _most_over_first(ordered: list[Borrower], shares: Shares) -> Iterator[Borrower]:
    """One after the other from the queue that is most over its share once the earlier ones have left."""
    queues: dict[str, deque[Borrower]] = {}
    for each in ordered:
        queues.setdefault(each.unit.queue, deque()).append(each)
    share = {queue: shares.share(queue) for queue in queues}
    rest = {queue: shares.rest(queue) for queue in queues}
    while queues:
        queue = max(queues, key=lambda name: (share[name], name))
        each = queues[queue].popleft()
        yield each
        if not queues[queue]:
            del queues[queue]
        else:
            share[queue] = rest[queue].without(each.unit)
            rest[queue].leave(each.unit)
