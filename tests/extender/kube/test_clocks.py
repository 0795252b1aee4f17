"""Hived's own clock beside a wall clock that is set while it runs."""

import logging

import pytest

from hived_extender.kube.clocks import SteadyClock


class Machine:
    """A machine with both clocks."""

    def __init__(self) -> None:
        self.wall_s, self.passed_s = 1e9, 50.0

    def go_on(self, seconds: float, *, jump_s: float = 0.0) -> None:
        """So many seconds pass, and the wall clock is set by some besides."""
        self.passed_s += seconds
        self.wall_s += seconds + jump_s


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> SteadyClock:
    return SteadyClock(lambda: machine.wall_s, lambda: machine.passed_s)


@pytest.mark.parametrize("jump_s", [6 * 3600.0, -12 * 3600.0, -0.5, 1e9])
def test_time_goes_on_evenly_whatever_the_wall_clock_does(machine: Machine, clock: SteadyClock, jump_s: float) -> None:
    machine.go_on(10)
    assert clock.now() == 1e9 + 10
    machine.go_on(5, jump_s=jump_s)
    assert clock.now() == 1e9 + 15


def test_a_setting_is_told_once_and_so_is_the_next(
    machine: Machine, clock: SteadyClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for jump_s in (0, 0.5, 3600, 0, -7200, 3600, 0):
        machine.go_on(15, jump_s=jump_s)
        clock.tell_jumps()
    told = [(one.levelname, getattr(one, "fields", {}).get("seconds")) for one in caplog.records]
    assert told == [("WARNING", 3600), ("WARNING", -3600), ("INFO", None)]
