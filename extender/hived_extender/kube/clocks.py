"""Time: a clock that never jumps, moments as Kubernetes writes them, and waits before another try.

The machine's wall clock may be set by hours, either way. What is compared with a moment that this process noted earlier
uses `wall_s`: the wall clock as this process first read it, and the seconds that have passed since. What lasts only as
long as the process uses `passed_s`. Moments of other machines are compared with `wall_s` as well.
"""

import logging
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

log = logging.getLogger(__name__)

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""Before a write to the API server is tried again that was refused."""

FAR_S = 60.0
"""A wall clock that is so far from ours has been set; adjusted clocks stay within a second or two."""


_PASSING: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""macOS has no CLOCK_BOOTTIME."""


def passed_s() -> float:
    """Seconds on a clock that only goes forward, and goes on while the machine sleeps, on Linux."""
    return time.clock_gettime(_PASSING)


class SteadyClock:
    """The time of day as this process goes on by it. Thread-safe: nothing changes but what has been told."""

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


def timestamp(seconds: float | None = None, digits: int = 0) -> str:
    """A moment (seconds of the epoch; None is now) as Kubernetes writes it, with so many digits of its second."""
    moment = time.time() if seconds is None else seconds
    fraction = f".{int(moment % 1 * 10**digits):0{digits}d}" if digits else ""
    return f"{_second(int(moment // 1))}{fraction}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def with_transition(
    entry: dict[str, Any], before: Mapping[str, Any] | None, now: str, key: str = "status"
) -> dict[str, Any]:
    """An entry with the time of its last transition: `now`, unless `before` has the same value under `key`."""
    is_same = before is not None and before.get(key) == entry[key]
    since = before.get("lastTransitionTime", now) if before is not None and is_same else now
    return {**entry, "lastTransitionTime": since}


class Backoff(msgspec.Struct):
    """Retries of something that failed: after `first_s`, then later each time, up to `longest_s`.

    `at_s` is the time of the next try; 0 if the last one did not fail.
    """

    first_s: float = FIRST_RETRY_S
    longest_s: float = LONGEST_RETRY_S
    wait_s: float = 0.0
    at_s: float = 0.0

    def failed(self, now: float = 0.0) -> float:
        """Seconds to the next try."""
        self.wait_s = min(max(self.first_s, 2 * self.wait_s), self.longest_s)
        self.at_s = now + self.wait_s
        return self.wait_s

    def succeeded(self) -> None:
        """The next failure is the first one again."""
        self.wait_s = self.at_s = 0.0
