"""Waking pods: few calls at once, fewer still while the API server does not answer, and none is forgotten."""

import pytest

from hived.values.errors import UserError
from hived_extender.kube.client import KubeError
from hived_extender.machine.effects import Now, Outbox, TouchPod
from hived_extender.machine.pods import PodRecord, PodState, PodTable
from hived_extender.machine.retries import AT_ONCE, RETRY_S, SILENT_S, SWEEP, Retries, Wakes

SILENT = KubeError(0, "NoAnswer", "connection refused")
REFUSED = KubeError(403, "Forbidden", "a policy forbids to change this pod")


class Waking:
    """Pods that wait, and what is done to wake them."""

    def __init__(self, count: int) -> None:
        self.outbox = Outbox()
        self.retries = Retries(self.outbox, 0.0)
        self.pods = PodTable()
        self.wakes = Wakes(self.outbox, self.pods, self.retries)
        self.records = [self.pods.add(f"u{number}", f"p{number}", "ns") for number in range(count)]

    def ask(self, records: list[PodRecord]) -> list[TouchPod]:
        """Have these woken; returns the calls that this makes."""
        for record in records:
            self.wakes.ask(record)
        return self.take()

    def take(self) -> list[TouchPod]:
        return [effect for effect in self.outbox.take() if isinstance(effect, TouchPod)]

    def to_be_tried(self) -> int:
        """How many pods are tried again in a while, which could not be woken."""
        at = self.outbox.now.at + RETRY_S
        self.outbox.now = Now(at)
        if self.outbox.timers.pop_due(at) is not None:
            self.retries.time_came(*SWEEP)
        count = 0
        while uids := self.retries.take_slice():
            count += len(uids)
        return count


def test_some_pods_are_woken_at_once() -> None:
    waking = Waking(200)
    assert len(waking.ask(waking.records)) == AT_ONCE


def test_the_next_pod_is_woken_when_another_has_been() -> None:
    waking = Waking(200)
    for effect in waking.ask(waking.records):
        waking.wakes.wrote(effect, None)
    assert [effect.pod.uid for effect in waking.take()] == [one.uid for one in waking.records[AT_ONCE : 2 * AT_ONCE]]


def test_after_a_wake_without_an_answer_none_is_tried_for_a_while() -> None:
    waking = Waking(200)
    (effect,) = waking.ask(waking.records[:1])
    waking.wakes.wrote(effect, SILENT)
    assert waking.ask(waking.records[1:]) == []
    assert waking.to_be_tried() == 200


def test_pods_that_wait_for_their_turn_are_not_tried_either() -> None:
    waking = Waking(200)
    effects = waking.ask(waking.records)
    for effect in effects:
        waking.wakes.wrote(effect, SILENT)
    assert waking.take() == []
    assert waking.to_be_tried() == 200


def test_after_that_while_they_are_woken_again() -> None:
    waking = Waking(2)
    (effect,) = waking.ask(waking.records[:1])
    waking.wakes.wrote(effect, SILENT)
    waking.outbox.now = Now(SILENT_S)
    assert len(waking.ask(waking.records[1:])) == 1


def test_a_pod_that_the_api_server_refuses_to_change_keeps_nobody_waiting() -> None:
    waking = Waking(2)
    (effect,) = waking.ask(waking.records[:1])
    waking.wakes.wrote(effect, REFUSED)
    assert len(waking.ask(waking.records[1:])) == 1
    assert waking.to_be_tried() == 1


@pytest.mark.parametrize("error", [None, REFUSED])
def test_a_pod_that_was_woken_or_has_its_node_is_not_tried_again(error: KubeError | None) -> None:
    waking = Waking(1)
    (effect,) = waking.ask(waking.records)
    if error is not None:
        waking.records[0].state = PodState.BOUND
    waking.wakes.wrote(effect, error)
    assert waking.to_be_tried() == 0


def test_nobody_is_woken_after_the_end_of_a_term() -> None:
    waking = Waking(200)
    effects = waking.ask(waking.records)
    waking.wakes.forget_all()
    for effect in effects:
        waking.wakes.wrote(effect, None)
    assert waking.take() == []


def test_a_wake_that_came_too_late_for_its_term_keeps_nobody_waiting() -> None:
    waking = Waking(2)
    (effect,) = waking.ask(waking.records[:1])
    waking.wakes.wrote(effect, UserError("this replica does not lead any more", code=503))
    assert len(waking.ask(waking.records[1:])) == 1
