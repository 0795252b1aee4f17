"""A clock that never jumps, times of transitions, and waits before another try."""

import logging

import pytest

from hived_extender.kube.clocks import FIRST_RETRY_S, LONGEST_RETRY_S, Backoff, SteadyClock, with_transition


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


def test_the_time_doubles_up_to_the_longest() -> None:
    backoff, times = Backoff(), []
    for _ in range(8):
        times.append(backoff.failed(100.0))
        assert backoff.at_s == 100.0 + times[-1]
    assert times == [FIRST_RETRY_S * 2**number for number in range(6)] + [LONGEST_RETRY_S] * 2


def test_a_write_that_was_carried_out_ends_the_wait() -> None:
    backoff = Backoff()
    backoff.failed(100.0)
    backoff.succeeded()
    assert backoff.at_s == 0.0
    backoff.failed(102.0)
    assert backoff.at_s == 102.0 + FIRST_RETRY_S


CONDITION = {"type": "Ready", "status": "True", "reason": "New"}


def test_the_first_time_is_now() -> None:
    assert with_transition(CONDITION, None, "t1") == {**CONDITION, "lastTransitionTime": "t1"}


def test_the_time_stays_while_the_status_does() -> None:
    before = {**CONDITION, "reason": "Old", "lastTransitionTime": "t0"}
    assert with_transition(CONDITION, before, "t1")["lastTransitionTime"] == "t0"


def test_another_status_has_another_time() -> None:
    before = {**CONDITION, "status": "False", "lastTransitionTime": "t0"}
    assert with_transition(CONDITION, before, "t1")["lastTransitionTime"] == "t1"


def test_the_value_may_have_another_key() -> None:
    before = {"state": "Pending", "status": "x", "lastTransitionTime": "t0"}
    assert with_transition({"state": "Ready"}, before, "t1", key="state")["lastTransitionTime"] == "t1"
