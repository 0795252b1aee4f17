"""When a write to the API server is tried again that was refused: later each time, up to a minute."""

import msgspec

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""Seconds before a refused write is tried again; the time doubles."""


class Backoff(msgspec.Struct):
    """Of the writes of one object. `at_s` is when the next one is due; 0 if none was refused."""

    wait_s: float = 0.0
    at_s: float = 0.0

    def wrote(self, now: float, *, refused: bool) -> None:
        """A write was carried out, or refused."""
        self.wait_s = min(max(FIRST_RETRY_S, 2 * self.wait_s), LONGEST_RETRY_S) if refused else 0.0
        self.at_s = now + self.wait_s if refused else 0.0
