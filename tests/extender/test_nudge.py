"""Which pods are woken after a change that made room: those that cannot have seen it."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hived_extender import nudge
from hived_extender.nudge import Nudger

DELAY_S = 0.05


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def nudger(woken: list[str]) -> Iterator[Nudger]:
    nudger = Nudger(woken.append, DELAY_S)
    yield nudger
    nudger.close()


def pass_by(is_so: Callable[[], bool] = lambda: False, within_s: float = 4 * DELAY_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.005)


def test_a_pod_refused_just_before_is_woken_once(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.room_made()
    nudger.room_made()
    pass_by()
    assert woken == ["p"]


def test_a_pod_asked_about_since_then_has_seen_the_change(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.refused("q")
    nudger.room_made()
    nudger.refused("p")
    pass_by()
    assert woken == ["q"]


def test_a_pod_that_has_its_node_is_left_alone(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.settled("p")
    nudger.room_made()
    pass_by()
    assert woken == []


def test_a_pod_refused_long_before_is_left_to_kube_scheduler(
    nudger: Nudger, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nudge, "EVE_S", 0.01)
    nudger.refused("p")
    pass_by(within_s=0.03)
    nudger.refused("q")
    nudger.room_made()
    pass_by()
    assert woken == ["q"]


def test_a_change_that_kube_scheduler_cannot_see_wakes_everybody(
    nudger: Nudger, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nudge, "EVE_S", 0.01)
    nudger.refused("p")
    pass_by(within_s=0.03)
    nudger.room_made(is_announced=False)
    pass_by()
    assert woken == ["p"]


def test_the_end_waits_for_a_waking_under_way() -> None:
    begun, woken = threading.Event(), []

    def wake(uid: str) -> None:
        begun.set()
        time.sleep(DELAY_S)
        woken.append(uid)

    nudger = Nudger(wake, 0.0)
    nudger.refused("p")
    nudger.room_made()
    assert begun.wait(5)
    nudger.close()
    assert woken == ["p"]


def test_a_later_change_wakes_again(nudger: Nudger, woken: list[str]) -> None:
    for _ in range(2):
        nudger.refused("p")
        nudger.room_made()
        pass_by()
    assert woken == ["p", "p"]


def test_nobody_is_woken_after_the_end(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.room_made()
    nudger.close()
    nudger.refused("q")
    nudger.room_made()
    pass_by()
    assert woken == []
