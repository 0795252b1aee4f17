"""Why a unit waits, as values; words are made of them where they are shown."""

from typing import Literal

import msgspec

from hived_extender.queues.reservation import Certainty

QUOTA_KEPT = "what is left of its quota is kept for a job that others leave for"
"""Why a unit does not borrow: it would be above its quota once such jobs have their cells."""


class Reason(msgspec.Struct, frozen=True, tag_field="kind"):
    """A reason; see the kinds below."""


class Running(Reason, frozen=True, tag="running"):
    """It does not wait. `is_borrowed`: on cells that may be taken back; `is_due`: not before others of its queue."""

    is_borrowed: bool
    is_due: bool


class Leaving(Reason, frozen=True, tag="leaving"):
    """Its cells go to `winner`. One that `moves` leaves for cells of its own, which are due for it."""

    winner: str
    moves: bool = False


class Held(Reason, frozen=True, tag="held"):
    """Its owner said `hived hold`."""


class PodsLate(Reason, frozen=True, tag="pods late"):
    """Cells were held, and its pods did not come `within_s`: it takes no turn until then."""

    within_s: float
    until_s: float


class OverUserLimit(Reason, frozen=True, tag="user limit"):
    """Its user has as many jobs as the queue allows: `limit` that run, or that wait."""

    user: str
    limit: int
    waits: bool


class OverQuota(Reason, frozen=True, tag="quota"):
    """The quota tree refuses it; the text is that of Kube Queue."""

    text: str


class NotPromised(Reason, frozen=True, tag="not promised"):
    """It is above its queue's guarantee, and may not borrow: its queue never does, or it is not `is_preemptible`."""

    queue: str
    is_preemptible: bool = True


class NeverFits(Reason, frozen=True, tag="never fits"):
    """It is more than its queue is guaranteed, however little runs, and may not borrow. Or `is_anywhere`: no cluster as
    empty and healthy as can be has cells for it.
    """

    queue: str
    is_anywhere: bool = False


class Impossible(Reason, frozen=True, tag="impossible"):
    """No turn helps: it asks for something that cannot be."""

    text: str


class MakingRoom(Reason, frozen=True, tag="making room"):
    """It is due, and starts when `victims` units have left, all of which borrow if it `is_lent`."""

    victims: tuple[str, ...]
    is_lent: bool = True


class NoHardware(Reason, frozen=True, tag="no hardware"):
    """It is due, and the live cluster has no cells for it, as with bad nodes."""

    text: str


class NotItsTurn(Reason, frozen=True, tag="turn"):
    """So many units of its queue are before it, besides those that are held. Of the first that does not fit, when its
    start is reserved.

    `start_s` is None if that is unknown, and `late_s` is the time of 9 of 10 cases of an estimate. `is_blocked`:
    policy `Block` lets nobody past the first one. `behind`: it may not go past a first one that has these cells
    reserved, or that waits for its quota, perhaps on borrowed cells; "min" of one that waits for its own. One that
    `only_borrows` never gets cells of its own: it is opportunistic, or larger than its virtual cluster. One that
    `spares_others` preempts nobody, and jobs of lower priority have cells of its virtual cluster.
    """

    before: int
    start_s: float | None = None
    certainty: Certainty = Certainty.UNKNOWN
    is_first: bool = False
    is_blocked: bool = False
    late_s: float | None = None
    behind: Literal["", "cells", "quota", "min"] = ""
    borrowing: str = ""  # why it does not run ahead on borrowed cells
    only_borrows: bool = False
    spares_others: bool = False

    @property
    def awaits_cells(self) -> bool:
        """Does it wait for cells alone? Those before the first, if any, can only borrow, and wait for other cells."""
        return self.is_first or not (self.before or self.is_blocked or self.behind in ("quota", "min"))
