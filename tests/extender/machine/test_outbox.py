"""Timers: one for each key, the earliest first. Effects: each is taken once, in order."""

import math

from hived_extender.machine.effects import Now, Outbox, ReleaseBindings, Timers, TouchPod
from hived_extender.machine.pods import PodName


def test_the_earliest_is_due_first() -> None:
    timers = Timers()
    for at in (3.0, 1.0, 2.0):
        timers.set(("part", at), at)
    assert [timers.pop_due(9.0) for _ in range(4)] == [("part", 1.0), ("part", 2.0), ("part", 3.0), None]


def test_nothing_is_due_before_its_time() -> None:
    timers = Timers()
    timers.set(("part", "p"), 2.0)
    assert timers.pop_due(1.9) is None
    assert timers.due_at == 2.0


def test_a_key_that_is_set_again_has_its_last_time_only() -> None:
    timers = Timers()
    timers.set(("part", "p"), 1.0)
    timers.set(("part", "p"), 2.0)
    assert timers.pop_due(1.5) is None
    assert (timers.pop_due(2.0), timers.pop_due(9.0)) == (("part", "p"), None)


def test_a_key_that_was_dropped_is_never_due() -> None:
    timers = Timers()
    timers.set(("part", "p"), 1.0)
    timers.drop(("part", "p"))
    assert (timers.due_at, timers.pop_due(9.0)) == (math.inf, None)


def test_keys_of_one_moment_are_due_in_the_order_in_which_they_were_set() -> None:
    timers = Timers()
    for name in "bca":
        timers.set(("part", name), 1.0)
    assert [timers.pop_due(1.0) for _ in range(3)] == [("part", name) for name in "bca"]


def test_a_key_that_is_set_again_and_again_takes_no_more_room() -> None:
    timers = Timers()
    for at in range(10_000):
        timers.set(("part", "p"), float(at))
    assert len(timers._heap) < 200


def test_clearing_up_forgets_no_key() -> None:
    timers = Timers()
    for at in range(50):
        timers.set(("kept", at), float(at))
    for at in range(1_000):
        timers.set(("part", "p"), 100.0 + at)
    assert [timers.pop_due(99.0) for _ in range(51)] == [*(("kept", at) for at in range(50)), None]


def test_a_delay_counts_from_the_moment_of_the_stimulus() -> None:
    outbox = Outbox()
    outbox.now = Now(10.0, 1e9)
    outbox.wake_in(("part", "p"), 2.5)
    assert outbox.timers.due_of(("part", "p")) == 12.5


def test_effects_are_taken_once_in_the_order_in_which_they_were_sent() -> None:
    outbox, effects = Outbox(), (TouchPod(PodName("u", "ns", "p")), ReleaseBindings(("u",)))
    for effect in effects:
        outbox.send(effect)
    assert (outbox.take(), outbox.take()) == (effects, ())
