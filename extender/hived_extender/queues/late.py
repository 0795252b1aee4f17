"""Steps back: a job whose pods did not come in time takes no turn for a while, longer each time.

So cells that were held in vain go to others, opportunistic pods among them. A rest is over early if the clock was set
back meanwhile.
"""

import msgspec

FACTOR, LONGEST_S = 2.0, 6 * 3600.0
"""Each rest is so many times as long as the one before, and none is longer than LONGEST_S, or than pods had to come."""


class Late(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often in a row the pods of a job did not come within `within_s`, and until when it takes no turn."""

    count: int = 0
    until_s: float = 0.0
    within_s: float = 0.0

    @property
    def length_s(self) -> float:
        """How long the present rest is in all: the first one is as long as pods had to come."""
        return (
            min(self.within_s * FACTOR ** min(self.count - 1, 20), max(LONGEST_S, self.within_s)) if self.count else 0.0
        )

    def after(self, now: float, within_s: float) -> "Late":
        """The next one: cells are given back now that pods did not take."""
        following = Late(self.count + 1, within_s=within_s)
        return Late(following.count, now + following.length_s, within_s)

    def goes_on(self, now: float) -> bool:
        """Is it not over yet?"""
        return 0.0 < self.until_s - now <= self.length_s


IN_TIME = Late()
"""Of a job whose pods came, or that had no cells yet."""
