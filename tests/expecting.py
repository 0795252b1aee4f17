"""The assertion that something comes to be, for tests of what runs beside them."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 60.0
"""For everything that is sure to happen, however busy the machine is; nothing takes that long but a failure."""

T = TypeVar("T")


def expect_soon(look: Callable[[], T], within_s: float = PATIENCE_S, every_s: float = 0.01) -> T:
    """The result of `look` as soon as that is true; fails when it is not in time."""
    until = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < until, f"still {found!r} after {within_s:g} s"
        time.sleep(every_s)
    return found


def expect_equal(look: Callable[[], T], wanted: T, what: str, within_s: float = PATIENCE_S, every_s: float = 0.01) -> T:
    """Assert that `look` comes to return what is wanted; `what` names it in the message."""
    until = time.monotonic() + within_s
    while (found := look()) != wanted and time.monotonic() < until:
        time.sleep(every_s)
    assert found == wanted, f"{what}: {found!r} after {within_s:g} s, expected {wanted!r}"
    return found
