"""The live cluster as the queues see it: two questions. The service answers them, or a simulator, or a test's own core.

The queues never evict by themselves: they order victims to leave, and hold the cells once these have left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hived.values.decisions import Bind, Wait
from hived_extender.queues.units import Unit


@dataclass(frozen=True, slots=True)
class Ask:
    """Cells for a unit: opportunistic ones if `is_borrowed`, else these virtual leaves, in slot order; any if empty."""

    unit: Unit
    is_borrowed: bool
    own: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """Cells that a unit gets once these have left, and not later."""

    ask: Ask
    leaving: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """Room that is being made for others: by units that were told to leave, for claims in turn.

    Questions in the queues' order have the same number as a `walk`, 0 stands for none: see `RoomMade`.
    """

    leaving: tuple[str, ...] = ()
    claims: tuple[Claimed, ...] = ()
    walk: int = 0


@dataclass(frozen=True, slots=True)
class Lent:
    """Units on borrowed cells, by key, in the order in which they should leave; and room that is being made already."""

    borrowers: tuple[str, ...]
    pending: Pending


@dataclass(frozen=True, slots=True)
class Victims:
    """These units, by key, and these opportunistic groups of no job have to leave; none of them could stay."""

    keys: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoCells(Wait):
    """There are no cells, whichever nodes Kubernetes would allow. So there are none for others that ask for as many."""


@dataclass(frozen=True, slots=True)
class NoQuota(Wait):
    """There may be cells, and a quota does not allow them: no leaving of borrowers helps."""


@dataclass(frozen=True, slots=True)
class RoomMade(Wait):
    """Cells may have come free since the first question of the walk, so units that were refused come first. Nothing is
    held.
    """


class Room(Protocol):
    """The live cluster."""

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        """Hold cells for a unit without evictions: it has them from now on.

        The pending claims still get theirs in turn, each once those have left that it waits for; a claim that
        cannot have them anyway does not count. `NoCells` is only said of a unit that would borrow, `RoomMade` of one
        that is asked about in a walk.
        """

    def upgrade(self, ask: Ask) -> tuple[int, ...] | None:
        """Make the borrowed cells of a unit that runs guaranteed ones, behind its own virtual leaves, and move nothing.

        Returns these leaves in the order of the slots that have them, () if that is not known of all. None, and nothing
        changes, if the hardware cannot be behind them.
        """

    def victims(self, ask: Ask, candidates: Sequence[str], pending: Pending) -> Victims | None:
        """Return the least set of these running units that has to leave, besides those that leave; None if all do not
        help.

        The pending claims get their cells. `candidates` are in the order in which they should leave. For a
        guaranteed unit, opportunistic groups of no job come after them. Nothing changes.
        """
