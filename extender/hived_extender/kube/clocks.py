"""The time of day by a clock that never jumps, and the time that has passed.

The machine's wall clock may be set by hours, either way. What is compared with a moment that this process noted earlier
uses `wall_s`: the wall clock as this process first read it, and the seconds that have passed since. What lasts only as
long as the process uses `passed_s`. Moments of other machines are compared with `wall_s` as well.
"""

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

FAR_S = 60.0
"""A wall clock that is so far from ours has been set; adjusted clocks stay within a second or two."""


_PASSING: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""macOS has no CLOCK_BOOTTIME."""


def passed_s() -> float:
    """Seconds on a clock that only goes forward, and goes on while the machine sleeps, on Linux."""
    return time.clock_gettime(_PASSING)


class SteadyClock:
    """See the module. Thread-safe: nothing changes but what has been told."""

    def __init__(self, wall: Callable[[], float] = time.time, passed: Callable[[], float] = passed_s) -> None:
        self._wall, self._passed = wall, passed
        self._offset_s = wall() - passed()
        self._told_s = 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        return self._passed() + self._offset_s

    def tell_jumps(self) -> None:
        """Warn once of each setting of the wall clock."""
        off_s = self._wall() - self.now()
        if abs(off_s - self._told_s) < FAR_S:
            return
        self._told_s = off_s if abs(off_s) >= FAR_S else 0.0
        if self._told_s:
            log.warning(
                "the clock of this machine was set; hived goes on by its own: restart it if the new time is right",
                extra={"fields": {"seconds": round(off_s)}},
            )
        else:
            log.info("the clock of this machine agrees with that of hived again")


CLOCK = SteadyClock()


def wall_s() -> float:
    """Seconds since 1970, by the clock of this process."""
    return CLOCK.now()
