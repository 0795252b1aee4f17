"""Who leaves, and in which order, when borrowed cells are given back.

For a unit that is due: everybody who runs on borrowed cells, those that are due themselves last. The queue most over
its share goes first, then the newest start, then least work lost. The room takes the shortest beginning of this order
that helps, and leaves out whoever could have stayed.

For another borrower w only queues that stay above w's: with x the shares before and y those after,

    y(victim's queue) >= y(w's queue)   and   y(victim's queue) < x(victim's queue)

Why this ends. Each exchange replaces the larger share x(victim's queue) by two smaller or equal ones, so the shares in
descending order get smaller, compared from the front. There are finitely many sets of running units, so exchanges alone
cannot go on for ever.

Why nobody takes turns. A borrower never evicts one that has evicted it, until a unit has come or ended since
(`Exchanges`). A unit that is due never takes part as a victim once it runs guaranteed. So the same two jobs never evict
each other twice without an arrival or an end in between.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hived_extender.queues.ledger import Shares
from hived_extender.queues.units import Unit


@dataclass(frozen=True, slots=True)
class Borrower:
    """A unit that runs on borrowed cells since `start_s`."""

    unit: Unit
    start_s: float
    is_due: bool = False

    def lost(self, now: float) -> float:
        """Work that its eviction would lose, in leaf seconds."""
        return self.unit.leaf_count * (now - self.start_s)


class Exchanges:
    """Which borrower evicted which, since a unit came or ended last."""

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


def for_due(borrowers: Iterable[Borrower], shares: Shares, now: float) -> list[Borrower]:
    """All borrowers in the order in which they should leave for a unit that is due. Cost O(n log n)."""
    order = sorted(borrowers, key=lambda each: (each.is_due, -each.start_s, each.lost(now), each.unit.key))
    free = [each for each in order if not each.is_due]
    return [*_most_over_first(free, shares), *_most_over_first([each for each in order if each.is_due], shares)]


def for_borrower(
    unit: Unit, borrowers: Mapping[str, Sequence[Borrower]], shares: Shares, exchanges: Exchanges, now: float
) -> list[Borrower]:
    """The borrowers that may have to leave for another one, in order. See the module. `borrowers` are by queue."""
    after = shares.with_more(unit)
    own = [
        each
        for queue, of_queue in borrowers.items()
        if queue != unit.queue and shares.share(queue) > after
        for each in of_queue
        if not each.is_due and exchanges.may_evict(each.unit.key, unit.key)
    ]
    own.sort(key=lambda each: (-each.start_s, each.lost(now), each.unit.key))
    left = {each.unit.queue: shares.share(each.unit.queue) for each in own}
    rest = {queue: shares.rest(queue) for queue in left}
    found: list[Borrower] = []
    for each in _most_over_first(own, shares):
        queue = each.unit.queue
        share = rest[queue].without(each.unit)
        if after <= share < left[queue]:
            rest[queue].leave(each.unit)
            left[queue] = share
            found.append(each)
    return found


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
