"""All that the queues know of one unit, and the part of it that outlives a process."""

from dataclasses import dataclass

import msgspec

from hived_extender.queues.order import At
from hived_extender.queues.rests import IN_TIME, NONE_RETURNED, Late, Returned
from hived_extender.queues.units import Unit


class Memo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is to be kept of a unit, besides the unit itself, so that new queues go on as the old ones.

    Attributes
    ----------
    place : its place in the order, None for `created_s`
    due_s : when its own schedule started it, None if it has not
    started_s : when its present run started, None if it does not run
    is_borrowed : the present run is on borrowed cells
    is_held : `hived hold`
    promised_s : the limit by which it went past the first unit that did not fit, None if it has not
    late : how often its pods did not come, and until when it takes no turn
    evicted : when it was told to leave for another unit, whose key may be masked; None if it runs, or never was
    returned : how often it gave borrowed cells back, and until when it borrows no more
    """

    place: float | None = None
    due_s: float | None = None
    started_s: float | None = None
    is_borrowed: bool = False
    is_held: bool = False
    promised_s: float | None = None
    evicted: tuple[float, str] | None = None
    late: Late = IN_TIME
    returned: Returned = NONE_RETURNED


@dataclass(slots=True)
class Run:
    """A unit has cells in the live cluster."""

    start_s: float
    is_borrowed: bool


@dataclass(slots=True)
class Entry:
    """A unit, where it stands, and what became of it."""

    unit: Unit
    place: float
    kind: int
    is_held: bool = False
    is_over: bool = False  # its user has too many that wait
    run: Run | None = None
    is_leaving: bool = False
    leaving_for: str = ""  # "" for nobody: it was suspended, or has lost its cells
    ran_s: float | None = None  # has really ended after so long, and is yet to be played in its own schedule
    impossible: str = ""
    promised_s: float | None = None  # as `Memo` has it
    late: Late = IN_TIME  # as `Memo` has it; both rests are told once they are over
    returned: Returned = NONE_RETURNED  # as `Memo` has it
    whole: Unit | None = None  # as it asked, if it starts with fewer pods

    @property
    def at(self) -> At:
        """Its place among equals."""
        return self.place, self.unit.key

    @property
    def is_waiting(self) -> bool:
        """Has it no cells, and may get some?"""
        return self.run is None and self.ran_s is None

    @property
    def is_aside(self) -> bool:
        """Is it in no turn, though nothing else is in its way?"""
        return self.is_held or self.late.is_on

    @property
    def is_standing(self) -> bool:
        """Does it take part in turns?"""
        return not (self.is_aside or self.is_over or self.impossible)
