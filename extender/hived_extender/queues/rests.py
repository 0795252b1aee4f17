"""Rests: a job for which cells were held in vain, or lent and taken back, steps back, longer each time.

So no job is started and called back over and over, and its cells serve others. One whose pods did not come in time
takes no turn (`Late`). One that gave borrowed cells back to others borrows no more (`Returned`), and starts on cells of
its own whenever its turn comes. A rest is over early if the clock was set back meanwhile.
"""

from typing import ClassVar, Self

import msgspec
from msgspec.structs import replace

from hived_extender.kube.events import timestamp

FIRST_S = 900.0
"""The first rest of a job that gave borrowed cells back."""


class Rest(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often it came to this, until when the job rests, in seconds since 1970, and how long the first rest is."""

    count: int = 0
    until_s: float = 0.0
    first_s: float = 0.0

    FREE: ClassVar[int] = 0
    """So often nothing follows."""
    FACTOR: ClassVar[float] = 2.0
    LONGEST_S: ClassVar[float] = 0.0
    """Each rest is so many times as long as the one before, and none is longer, unless the first one is."""

    @property
    def length_s(self) -> float:
        """How long the present rest is in all."""
        times = self.count - self.FREE
        return (
            min(self.first_s * self.FACTOR ** min(times - 1, 20), max(self.LONGEST_S, self.first_s)) if times else 0.0
        )

    @property
    def is_on(self) -> bool:
        """Is it not said to be over? See `at`."""
        return self.until_s > 0.0

    def after(self, now: float, first_s: float) -> Self:
        """The next one, which begins now."""
        following = replace(self, count=self.count + 1, until_s=0.0, first_s=first_s)
        return replace(following, until_s=now + following.length_s) if following.length_s else following

    def goes_on(self, now: float) -> bool:
        """Is it not over yet?"""
        return 0.0 < self.until_s - now <= self.length_s

    def at(self, now: float) -> Self:
        """The same; one that is over says so."""
        return self if not self.is_on or self.goes_on(now) else replace(self, until_s=0.0)


class Late(Rest, frozen=True, omit_defaults=True):
    """How often in a row the pods of a job did not come within `first_s`, and until when it takes no turn."""

    LONGEST_S: ClassVar[float] = 6 * 3600.0

    @property
    def notice(self) -> str:
        """Words for its owner, which stay true; "" if it does not rest."""
        return f"it takes no turn before {timestamp(self.until_s)}" if self.is_on else ""


class Returned(Rest, frozen=True, omit_defaults=True):
    """How often a job gave borrowed cells back, and until when it borrows no more; not at all after the first time."""

    FREE: ClassVar[int] = 1
    FACTOR: ClassVar[float] = 4.0
    LONGEST_S: ClassVar[float] = 64 * 3600.0

    @property
    def notice(self) -> str:
        """Words for its owner, which stay true; "" if it does not rest."""
        return f"it borrows no cells before {timestamp(self.until_s)}" if self.is_on else ""

    @property
    def reason(self) -> str:
        """Why the job does not borrow."""
        return f"it gave borrowed cells back {self.count} times, and borrows again at {timestamp(self.until_s)}"


IN_TIME, NONE_RETURNED = Late(), Returned()
"""Of a job whose pods came, or that had no cells yet; of one that has given no borrowed cells back."""
