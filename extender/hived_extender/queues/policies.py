"""The policies of queues: which unit is tried next, and what one that does not fit means for those behind it.

`hived` reserves a start for the first unit that does not fit; others go past it if they do not delay it. `Priority`
goes past it, and a large gang may wait for long. `Block` lets nobody past: it blocks its queue until something leaves
or joins. `Round` is a former name of `Priority`.
"""

from enum import StrEnum

import msgspec

from hived.values.errors import UserError

WAKE_S = 30.0
"""`Block`: a unit that did not fit is tried again after so long, although nothing is known to have changed."""

THROTTLE_S = 5.0
"""`Block`: the unit that blocks its queue is not tried more often than this."""

FORGET_S = 180.0
"""`Block`: a block that nothing has touched for so long is forgotten."""


class Policy(StrEnum):
    """How a queue is served."""

    HIVED = "hived"
    PRIORITY = "Priority"
    BLOCK = "Block"


_NAMES = {
    "": Policy.HIVED,
    "hived": Policy.HIVED,
    "priority": Policy.PRIORITY,
    "round": Policy.PRIORITY,
    "block": Policy.BLOCK,
    "strictpriority": Policy.BLOCK,
    "strictconsistency": Policy.PRIORITY,
}


def policy_named(text: str) -> Policy:
    """The policy of this name, in any case. Raises UserError for a name that is none."""
    found = _NAMES.get(text.lower())
    if found is None:
        raise UserError(f"queue policy {text!r} is unknown, expected one of hived, Priority, Block and Round")
    return found


class QueueRules(msgspec.Struct, frozen=True):
    """How one queue is served.

    Attributes
    ----------
    policy : see the module
    priority : of the queue among those of its virtual cluster, under policies other than `hived`
    weight : of its share of what is borrowed
    borrows : may its jobs run above the guarantee? None for the quota tree's word, which is no without a tree
    max_depth : so many units are looked at, from the front; 0 for all
    most_running, most_waiting : of one user's jobs in this queue; None for any number
    """

    policy: Policy = Policy.HIVED
    priority: int = 0
    weight: float = 1.0
    borrows: bool | None = None
    max_depth: int = 0
    most_running: int | None = None
    most_waiting: int | None = None


class Rules(msgspec.Struct, frozen=True):
    """How all queues are served: `queues` by full name, `default` for others.

    `half_life_s`: borrowed use of the past counts in the order of borrowers, less with time; 0 for present use alone.
    """

    default: QueueRules = QueueRules()
    queues: dict[str, QueueRules] = msgspec.field(default_factory=dict)
    half_life_s: float = 0.0

    def of(self, queue: str) -> QueueRules:
        """The rules of a queue."""
        return self.queues.get(queue, self.default)

    def rank(self, queue: str, priority: int, share: float) -> tuple[float, ...]:
        """How a unit of a queue with this share compares with those of other queues of its virtual cluster."""
        own = self.of(queue)
        if own.policy is Policy.HIVED:
            return (0.0, -float(priority), share, 0.0)
        return (-float(own.priority), 0.0, share, -float(priority))


class _Block:
    """A queue that is blocked by its first unit: since when, tried when, and at which count of changes."""

    __slots__ = ("change", "key", "since_s", "tried_s")

    def __init__(self, key: str, now: float, change: int) -> None:
        self.key, self.since_s, self.tried_s, self.change = key, now, now, change


class Blocks:
    """The queues that `Block` has blocked."""

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
