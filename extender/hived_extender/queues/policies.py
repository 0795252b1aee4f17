"""The policies of queues: the order of units (rule 29.2), and the effect of one that does not fit (rule 29.4).

`Round` is a former name of `Priority`. Each kind (rule 29.11) has its units sorted as its queue is; a walk merges the
kinds. So a turn costs as much as there are kinds and starts, not units.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from hived.values.errors import UserError
from hived.values.specs import PodSpec
from hived_config.rules import QueuePolicy
from hived_extender.queues.units import Unit

Rank = tuple[float, ...]

At = tuple[Rank, str]
"""The order of a queue: a unit's priority, what its policy makes of its place, and its key."""


class Kind(NamedTuple):
    """All that an answer to a unit can depend on (rule 29.11). `owner` is empty where no rule asks for it."""

    queue: str
    spec: PodSpec  # of a group without a name
    request: tuple[tuple[str, float], ...]
    is_preemptible: bool
    limit_s: float | None
    owner: tuple[str, ...]
    needs: str
    preempts: bool
    minimum: object


class Kinds:
    """A number for each kind that has units. A later kind never gets the same, so refusals may outlive a kind."""

    def __init__(self) -> None:
        self._kinds: dict[int, Kind] = {}
        self._numbers: dict[Kind, int] = {}
        self._units: dict[int, int] = {}
        self._next = 0

    def __getitem__(self, number: int) -> Kind:
        return self._kinds[number]

    def __len__(self) -> int:
        return len(self._kinds)

    def join(self, unit: Unit, asks_owner: bool) -> int:
        """The number of a unit's kind, which has one more. Cost: a hash of its spec."""
        kind = Kind(
            unit.queue, unit.spec.of_group(""), tuple(sorted(unit.request.items())), unit.is_preemptible,
            unit.limit_s, unit.owner if asks_owner else (), unit.needs, unit.preempts,
            None if unit.minimum is None else (unit.minimum.shape, unit.chosen),
        )  # fmt: skip
        number = self._numbers.setdefault(kind, self._next)
        if number == self._next:
            self._next += 1
            self._kinds[number] = kind
        self._units[number] = self._units.get(number, 0) + 1
        return number

    def leave(self, number: int) -> bool:
        """A kind has one unit fewer. True if that was the last one, so that the kind is forgotten."""
        self._units[number] -= 1
        if self._units[number]:
            return False
        del self._units[number], self._numbers[self._kinds.pop(number)]
        return True


class Line:
    """Units by kind, each kind in order."""

    def __init__(self) -> None:
        self._of_kind: dict[int, list[At]] = {}
        self.count = 0

    def add(self, kind: int, at: At) -> None:
        """Cost O(log units), and a move of memory."""
        insort(self._of_kind.setdefault(kind, []), at)
        self.count += 1

    def remove(self, kind: int, at: At) -> bool:
        """Take a unit out; False if it is not in the line."""
        found = self._of_kind.get(kind)
        if found is None:
            return False
        index = bisect_left(found, at)
        if index == len(found) or found[index] != at:
            return False
        del found[index]
        if not found:
            del self._of_kind[kind]
        self.count -= 1
        return True

    def has(self, kind: int, at: At) -> bool:
        """Is a unit in the line?"""
        found = self._of_kind.get(kind, [])
        index = bisect_left(found, at)
        return index < len(found) and found[index] == at

    def kinds(self) -> list[int]:
        """The kinds that have units, in the order in which they came."""
        return list(self._of_kind)

    def units(self, kind: int) -> list[At]:
        """The units of a kind in order; not to be changed."""
        return self._of_kind.get(kind, [])


class Walk:
    """One walk along a line. `rank` says how a kind's first unit compares with that of others; it may grow meanwhile.

    All others of the kind of a unit are left out, unless `took` is called.
    """

    def __init__(self, line: Line, rank: Callable[[int], Rank]) -> None:
        """Cost O(kinds)."""
        self._line, self._rank = line, rank
        self._heap: list[tuple[Rank, At, int]] = [(rank(kind), line.units(kind)[0], kind) for kind in line.kinds()]
        heapify(self._heap)
        self._kind = -1

    def __iter__(self) -> Iterator[str]:
        while self._heap:
            rank, at, kind = heappop(self._heap)
            now = self._rank(kind)
            if now != rank:
                heappush(self._heap, (now, at, kind))
                continue
            self._kind = kind
            yield at[1]

    def took(self) -> None:
        """The unit has left the line; the next one of its kind is in the walk."""
        if units := self._line.units(self._kind):
            heappush(self._heap, (self._rank(self._kind), units[0], self._kind))


WAKE_S = 30.0
"""`Block`: a unit that did not fit is tried again after so long, although nothing is known to have changed."""

THROTTLE_S = 5.0
"""`Block`: the unit that blocks its queue is not tried more often than this."""

FORGET_S = 180.0
"""`Block`: a block that nothing has touched for so long is forgotten."""


class Policy(StrEnum):
    """The way in which a queue is served; see `POLICIES`."""

    HIVED = "hived"
    PRIORITY = "Priority"
    BLOCK = "Block"

    @property
    def row(self) -> "Row":
        """Its row of the table."""
        return POLICIES[self]


class Row(NamedTuple):
    """The meaning of a policy, for the first unit that does not get cells and those behind it.

    Attributes
    ----------
    aliases : other names than its own by which users name it, in lower case
    reserves : a unit that does not fit has a reservation, and others are backfilled past it
    blocks : a unit that does not fit closes its queue
    keeps_quota : a unit that waits for its quota closes its queue (rule 29.5)
    across : orders units of different queues, by the queue's priority, the unit's, and the queue's share
    within : orders units of one queue and priority, by a unit and its place; one of higher priority comes first
    """

    aliases: tuple[str, ...]
    reserves: bool
    blocks: bool
    keeps_quota: bool
    across: Callable[[int, int, float], Rank]
    within: Callable[[Unit, float], Rank]


def _by_unit(_: int, priority: int, share: float) -> Rank:
    """By the unit's priority."""
    return 0.0, -float(priority), share


def _by_queue(of_queue: int, priority: int, share: float) -> Rank:
    """By the queue's priority, as Kube Queue does."""
    return -float(of_queue), 0.0, share


def _by_place(_: Unit, place: float) -> Rank:
    """By place alone (rule 29.3)."""
    return (place,)


POLICIES = {
    Policy.HIVED: Row(("",), reserves=True, blocks=False, keeps_quota=True, across=_by_unit, within=_by_place),
    Policy.PRIORITY: Row(
        ("round", "strictconsistency"),
        reserves=False,
        blocks=False,
        keeps_quota=False,
        across=_by_queue,
        within=_by_place,
    ),
    Policy.BLOCK: Row(
        ("strictpriority",), reserves=False, blocks=True, keeps_quota=True, across=_by_queue, within=_by_place
    ),
}

_NAMED = {name: policy for policy, row in POLICIES.items() for name in (policy.lower(), *row.aliases)}

*_FIRST, _LAST = (policy.value for policy in QueuePolicy)
EXPECTED = f"expected one of {', '.join(_FIRST)} and {_LAST}"
"""The end of messages about other names."""


def find_policy(text: str) -> Policy | None:
    """The policy of this name, in any case; None for a name that is none."""
    return _NAMED.get(text.lower())


def policy_named(text: str) -> Policy:
    """The same. Raises UserError for a name that is none."""
    found = find_policy(text)
    if found is None:
        raise UserError(f"queue policy {text!r} is unknown, {EXPECTED}")
    return found


class QueueRules(msgspec.Struct, frozen=True):
    """The rules of one queue.

    Attributes
    ----------
    policy : order, and effect of a unit that does not fit
    priority : of the queue among those of its virtual cluster, under policies that order `_by_queue`
    weight : of its share of what is borrowed
    borrows : may its jobs run above the guarantee? None for the quota tree's word, which is no without a tree
    max_depth : so many units are looked at, from the front (rule 29.7); 0 for all
    most_running, most_waiting : of one user's jobs in this queue (rule 29.6); None for any number
    """

    policy: Policy = Policy.HIVED
    priority: int = 0
    weight: float = 1.0
    borrows: bool | None = None
    max_depth: int = 0
    most_running: int | None = None
    most_waiting: int | None = None


class Rules(msgspec.Struct, frozen=True):
    """The rules of all queues: `queues` by full name, `default` for others.

    `half_life_s`: borrowed use of the past counts in the order of borrowers, less with time; 0 for present use alone.
    """

    default: QueueRules = QueueRules()
    queues: dict[str, QueueRules] = msgspec.field(default_factory=dict)
    half_life_s: float = 0.0

    def of(self, queue: str) -> QueueRules:
        """The rules of a queue."""
        return self.queues.get(queue, self.default)

    def at(self, unit: Unit, place: float) -> At:
        """Return the place of a unit among those of its queue, as a sort key."""
        return (-float(unit.priority), *self.of(unit.queue).policy.row.within(unit, place)), unit.key

    def rank(self, queue: str, priority: int, share: float) -> Rank:
        """Return the rank of a unit of a queue with this share among units of other queues of its virtual cluster.

        Units of equal rank are ordered by `at`. Those of queues with another order within never have an equal rank.
        """
        own = self.of(queue)
        row = own.policy.row
        rule = next(number for number, other in enumerate(POLICIES.values()) if other.within is row.within)
        return *row.across(own.priority, priority, share), float(rule)


class _Block:
    """A queue that is blocked by its first unit: since when, tried when, and at which count of changes."""

    __slots__ = ("change", "key", "since_s", "tried_s")

    def __init__(self, key: str, now: float, change: int) -> None:
        self.key, self.since_s, self.tried_s, self.change = key, now, now, change


class Blocks:
    """The queues that `Block` has closed (rule 29.4)."""

    def __init__(self) -> None:
        self._blocks: dict[str, _Block] = {}

    def may_try(self, queue: str, key: str, now: float, change: int) -> bool:
        """May this unit, the first of its queue, be tried now? `change` counts releases, additions and deletions."""
        block = self._blocks.get(queue)
        if block is None:
            return True
        if now - block.tried_s >= FORGET_S:
            del self._blocks[queue]
            return True
        if block.key == key and now - block.tried_s < THROTTLE_S:
            return False
        return block.key != key or block.change != change or now - block.tried_s >= WAKE_S

    def refused(self, queue: str, key: str, now: float, change: int) -> None:
        """The first unit of a queue did not fit."""
        block = self._blocks.get(queue)
        if block is None or block.key != key:
            self._blocks[queue] = _Block(key, now, change)
        else:
            block.tried_s, block.change = now, change

    def started(self, queue: str) -> None:
        """The first unit of a queue has started."""
        self._blocks.pop(queue, None)
