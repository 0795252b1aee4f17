"""The machine in the world: a lock, a thread that tells the time, and a pool that writes."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hived.values.errors import InvariantError, UserError
from hived_extender.machine.effects import Awaits, Effect, HoldBindings, Now, ReadPod, ReleaseBindings, TouchPod, Write
from hived_extender.machine.pods import PodName
from hived_extender.machine.runner import BusyError, Runner
from hived_extender.machine.stimuli import Closing, NodesListed, PodGone, Stimulus, TimeCame, TryWaiting, Wrote
from tests.extender.machine.small_cluster import PATIENCE_S, wait_until

ASK = NodesListed(())
TOUCH = TouchPod(PodName("u", "ns", "p"))
READ = ReadPod(PodName("u", "ns", "p"))


class Told:
    """A machine that answers as it is told, and notes what it was told."""

    def __init__(self) -> None:
        self.term = 1
        self.due_at = math.inf
        self.has_backlog = self.has_turn = False
        self.told: list[Stimulus] = []
        self.answers: dict[type, Any] = {}
        self.effects: dict[type, tuple[Effect, ...]] = {}
        self.on: Callable[[Stimulus], object] = lambda stimulus: None
        self.cache = SimpleNamespace(core=None)

    def handle(self, stimulus: Stimulus, now: Now) -> tuple[Any, tuple[Effect, ...]]:
        self.told.append(stimulus)
        if isinstance(stimulus, TimeCame):
            self.due_at = math.inf
        self.on(stimulus)
        return self.answers.get(type(stimulus)), self.effects.get(type(stimulus), ())

    def count(self, kind: type) -> int:
        return sum(isinstance(one, kind) for one in self.told)


class Writes:
    """Carries effects out; `call` is made for each."""

    def __init__(self) -> None:
        self.call: Callable[[], object] = lambda: None
        self.allowed: list[bool] = []

    def write(self, effect: Write, may_write: Callable[[], bool]) -> Wrote:
        self.call()
        self.allowed.append(may_write())
        return Wrote(effect)


@pytest.fixture
def machine() -> Told:
    return Told()


@pytest.fixture
def writes() -> Writes:
    return Writes()


@pytest.fixture
def runner(machine: Told, writes: Writes) -> Iterator[Runner]:
    runner = Runner(machine, writes)
    runner.holds = lambda: True
    runner.start()
    yield runner
    runner.close(0.0)


def test_what_the_machine_answers_is_returned(runner: Runner, machine: Told) -> None:
    machine.answers[NodesListed] = "the answer"
    assert runner.handle(ASK) == "the answer"


def test_an_error_that_the_machine_answers_is_raised(runner: Runner, machine: Told) -> None:
    machine.answers[NodesListed] = UserError("no")
    with pytest.raises(UserError, match="no"):
        runner.handle(ASK)


def test_the_machine_is_told_when_a_time_has_come(runner: Runner, machine: Told) -> None:
    machine.on = lambda stimulus: setattr(machine, "due_at", time.monotonic() + 0.05) if stimulus is ASK else None
    began = time.monotonic()
    runner.handle(ASK)
    wait_until(lambda: machine.count(TimeCame))
    assert time.monotonic() - began >= 0.05


def begin_backlog(runner: Runner, machine: Told) -> None:
    """A time has come after which there are pods to be tried."""
    machine.due_at = time.monotonic()
    runner.handle(ASK)


def test_a_backlog_is_worked_off_slice_by_slice(runner: Runner, machine: Told) -> None:
    machine.on = lambda stimulus: setattr(machine, "has_backlog", machine.count(TryWaiting) < 10)
    begin_backlog(runner, machine)
    wait_until(lambda: machine.count(TryWaiting) >= 10)
    assert machine.count(TryWaiting) == 10


def test_others_are_served_between_two_slices(runner: Runner, machine: Told) -> None:
    machine.on = lambda stimulus: time.sleep(0.02) if isinstance(stimulus, TryWaiting) else None
    machine.has_backlog = True
    begin_backlog(runner, machine)
    wait_until(lambda: machine.count(TryWaiting))
    before = machine.count(TryWaiting)
    for _ in range(20):
        runner.handle(ASK)
    assert machine.count(TryWaiting) - before < 5


def test_the_machine_is_told_what_came_of_an_effect(runner: Runner, machine: Told) -> None:
    machine.effects[NodesListed] = (TOUCH,)
    runner.handle(ASK)
    wait_until(lambda: machine.count(Wrote))
    assert Wrote(TOUCH) in machine.told


def test_an_effect_of_an_earlier_term_must_not_be_written(runner: Runner, machine: Told, writes: Writes) -> None:
    machine.effects[NodesListed] = (TOUCH,)
    writes.call = lambda: setattr(machine, "term", 2)
    runner.handle(ASK)
    wait_until(lambda: Wrote(TOUCH, is_current=False) in machine.told)
    assert writes.allowed == [False]


def test_an_effect_must_not_be_written_without_the_lease(runner: Runner, machine: Told, writes: Writes) -> None:
    runner.holds = lambda: False
    machine.effects[NodesListed] = (TOUCH,)
    runner.handle(ASK)
    wait_until(lambda: writes.allowed)
    assert writes.allowed == [False]


def test_effects_are_carried_out_side_by_side_without_the_lock(runner: Runner, machine: Told, writes: Writes) -> None:
    together = threading.Barrier(8)
    writes.call = lambda: together.wait(PATIENCE_S)
    machine.effects[NodesListed] = (TOUCH,) * 8
    runner.handle(ASK)
    wait_until(lambda: machine.count(Wrote) == 8)
    assert not together.broken


def test_whoever_asked_carries_out_what_the_answer_awaits(runner: Runner, machine: Told, writes: Writes) -> None:
    threads: list[threading.Thread] = []
    writes.call = lambda: threads.append(threading.current_thread())
    machine.answers = {NodesListed: Awaits(READ), Wrote: "it was read"}
    assert runner.handle(ASK) == "it was read"
    assert threads == [threading.current_thread()]


def test_whoever_must_not_wait_is_told_that_others_are_served(runner: Runner, machine: Told) -> None:
    with runner.look(), pytest.raises(BusyError):
        runner.handle(ASK, wait_s=0)
    assert machine.told == []


def test_a_mistake_of_the_machine_stops_everything(runner: Runner, machine: Told) -> None:
    machine.on = lambda stimulus: 1 / 0
    with pytest.raises(InvariantError, match="ZeroDivisionError"):
        runner.handle(ASK)
    machine.on = lambda stimulus: None
    with pytest.raises(InvariantError, match="stopped after an internal error"):
        runner.handle(ASK)
    assert machine.told == [ASK]


def test_a_mistake_when_a_time_has_come_stops_everything(runner: Runner, machine: Told) -> None:
    machine.on = lambda stimulus: 1 / 0 if isinstance(stimulus, TimeCame) else None
    machine.due_at = 0.0
    runner.handle(ASK)
    wait_until(lambda: runner.fault)
    with pytest.raises(InvariantError, match="stopped after an internal error"):
        runner.handle(ASK)


def test_a_mistake_in_a_result_stops_everything(runner: Runner, machine: Told) -> None:
    machine.on = lambda stimulus: 1 / 0 if isinstance(stimulus, Wrote) else None
    machine.effects[NodesListed] = (TOUCH,)
    runner.handle(ASK)
    wait_until(lambda: runner.fault)


def test_a_mistake_of_whoever_holds_the_lock_stops_everything(runner: Runner) -> None:
    with pytest.raises(InvariantError), runner.exclusive():
        raise KeyError("cell")
    assert "KeyError" in runner.fault


def test_a_refusal_by_whoever_holds_the_lock_stops_nothing(runner: Runner) -> None:
    with pytest.raises(UserError), runner.exclusive():
        raise UserError("not now")
    assert runner.fault == ""


def test_what_has_stopped_can_be_looked_at_and_closed(runner: Runner, machine: Told) -> None:
    with pytest.raises(InvariantError), runner.exclusive():
        raise KeyError("cell")
    with runner.look() as seen:
        assert seen is machine
    runner.close(PATIENCE_S)
    assert not runner._thread.is_alive()


def test_the_lock_is_free_while_something_is_written(runner: Runner, machine: Told, writes: Writes) -> None:
    begun, may_go = threading.Event(), threading.Event()
    writes.call = lambda: (begun.set(), may_go.wait(PATIENCE_S))
    machine.effects[NodesListed] = (TOUCH,)
    runner.handle(ASK)
    assert begun.wait(PATIENCE_S)
    runner.handle(PodGone("u"), wait_s=0)
    may_go.set()
    assert machine.told == [ASK, PodGone("u")]


def test_the_error_of_what_an_answer_awaits_is_raised(runner: Runner, machine: Told) -> None:
    machine.answers = {NodesListed: Awaits(READ), Wrote: UserError("cannot be read")}
    with pytest.raises(UserError, match="cannot be read"):
        runner.handle(ASK)


def test_a_write_that_breaks_is_logged(
    runner: Runner, machine: Told, writes: Writes, caplog: pytest.LogCaptureFixture
) -> None:
    writes.call = lambda: 1 / 0
    machine.effects[NodesListed] = (TOUCH,)
    runner.handle(ASK)
    wait_until(lambda: caplog.records)
    assert caplog.messages == ["a call in the background failed"]


def test_a_binding_is_held_until_it_is_released(runner: Runner, machine: Told) -> None:
    machine.effects = {NodesListed: (HoldBindings(("u",)),), PodGone: (ReleaseBindings(("u",)),)}
    runner.handle(ASK)
    held = runner.hold_of("u")
    assert held is not None
    assert not held.done()
    runner.handle(PodGone("u"))
    assert held.done()
    assert runner.hold_of("u") is None


def test_a_binding_that_is_held_twice_is_released_for_whoever_came_first(runner: Runner, machine: Told) -> None:
    machine.effects = {NodesListed: (HoldBindings(("u",)),), PodGone: (ReleaseBindings(("u",)),)}
    runner.handle(ASK)
    held = runner.hold_of("u")
    runner.handle(ASK)
    runner.handle(PodGone("u"))
    assert held is not None
    assert held.done()


def test_nothing_is_held_once_the_machine_is_broken(runner: Runner, machine: Told) -> None:
    machine.effects = {NodesListed: (HoldBindings(("u",)),)}
    runner.handle(ASK)
    held = runner.hold_of("u")
    with pytest.raises(InvariantError), runner.exclusive():
        raise KeyError("cell")
    assert held is not None
    assert held.done()


def test_the_end_waits_for_a_write_under_way(runner: Runner, machine: Told, writes: Writes) -> None:
    begun = threading.Event()

    def call() -> None:
        begun.set()
        time.sleep(0.05)

    writes.call = call
    machine.effects[NodesListed] = (TOUCH,)
    runner.handle(ASK)
    assert begun.wait(PATIENCE_S)
    runner.close(PATIENCE_S)
    assert machine.count(Wrote) == 1


def test_the_end_waits_for_a_slice_under_way_and_no_more(runner: Runner, machine: Told) -> None:
    machine.has_backlog = True
    begin_backlog(runner, machine)
    wait_until(lambda: machine.count(TryWaiting))
    runner.close(0.0)
    count = machine.count(TryWaiting)
    time.sleep(0.05)
    assert machine.count(TryWaiting) == count


def test_the_end_waits_for_what_follows_from_a_write(runner: Runner, machine: Told, writes: Writes) -> None:
    begun, may_go = threading.Event(), threading.Event()
    writes.call = lambda: (begun.set(), may_go.wait(PATIENCE_S))
    machine.effects = {NodesListed: (TOUCH,), Wrote: (READ,)}
    machine.on = lambda stimulus: machine.effects.pop(Wrote) if stimulus == Wrote(READ) else None
    runner.handle(ASK)
    assert begun.wait(PATIENCE_S)
    closing = threading.Thread(target=runner.close, args=(PATIENCE_S,))
    closing.start()
    wait_until(lambda: machine.count(Closing))
    may_go.set()
    closing.join(PATIENCE_S)
    assert [one.effect for one in machine.told if isinstance(one, Wrote)] == [TOUCH, READ]


def test_what_is_decided_at_the_end_is_still_written(runner: Runner, machine: Told, writes: Writes) -> None:
    machine.effects[Closing] = (TOUCH,)
    runner.close(PATIENCE_S)
    assert writes.allowed == [True]


def test_nothing_is_written_after_the_end(runner: Runner, machine: Told, writes: Writes) -> None:
    runner.close(0.0)
    machine.effects[NodesListed] = (TOUCH,)
    runner.handle(ASK)
    time.sleep(0.05)
    assert writes.allowed == []


def test_no_time_is_told_after_the_end(runner: Runner, machine: Told) -> None:
    runner.close(0.0)
    machine.due_at = 0.0
    runner.handle(ASK)
    time.sleep(0.05)
    assert machine.count(TimeCame) == 0
