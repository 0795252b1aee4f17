"""Which pods are woken after a change that made room: those that cannot have seen it."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from hived_extender.service import nudge
from hived_extender.service.nudge import Nudger
from tests.extender.service.world import PATIENCE_S, wait_until

DELAY_S = 0.05


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def nudger(woken: list[str]) -> Iterator[Nudger]:
    def wake(uids: Sequence[str]) -> list[str]:
        woken.extend(uids)
        return []

    nudger = Nudger(wake, DELAY_S)
    yield nudger
    nudger.close()


def settles(woken: list[str], expected: list[str]) -> None:
    """Wait until these are woken; more must not follow in the time that anything due would take."""
    wait_until(lambda: len(woken) >= len(expected))
    time.sleep(4 * DELAY_S)
    assert woken == expected


def test_a_pod_refused_just_before_is_woken_once(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.room_made()
    nudger.room_made()
    settles(woken, ["p"])


def test_a_pod_asked_about_since_then_has_seen_the_change(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.refused("q")
    nudger.room_made()
    nudger.refused("p")
    settles(woken, ["q"])


def test_a_pod_that_has_its_node_is_left_alone(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.settled("p")
    nudger.room_made()
    settles(woken, [])


def test_a_pod_is_tried_again_after_the_next_change_only(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.room_made()
    settles(woken, ["p"])
    nudger.room_made()
    settles(woken, ["p", "p"])


def test_a_pod_that_could_run_is_tried_again_after_others_have_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nudge, "OVERTAKEN_S", DELAY_S)
    tried: list[str] = []

    def wake(uids: Sequence[str]) -> list[str]:
        tried.extend(uids)
        return [uid for uid in uids if uid == "fits"]

    nudger = Nudger(wake, DELAY_S)
    nudger.appeared("fits")
    nudger.appeared("too big")
    settles(tried, ["fits", "too big"])
    nudger.settled("another")
    settles(tried, ["fits", "too big", "fits"])
    nudger.close()


def test_a_waking_that_fails_is_not_the_last(nudger: Nudger, woken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def explode(uids: Sequence[str]) -> list[str]:
        monkeypatch.undo()
        failed.set()
        raise ValueError(uids)

    monkeypatch.setattr(nudger, "_wake", explode)
    nudger.refused("p")
    nudger.room_made()
    assert failed.wait(PATIENCE_S)
    nudger.room_made()
    wait_until(lambda: bool(woken))
    assert woken == ["p"]


def test_a_pod_that_could_not_be_woken_is_tried_again(
    nudger: Nudger, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nudge, "RETRY_S", DELAY_S)
    nudger.refused("p")
    nudger.room_made()
    wait_until(lambda: bool(woken))
    nudger.not_woken("p")
    wait_until(lambda: len(woken) == 2)
    assert woken == ["p", "p"]


def test_a_waking_that_fails_before_it_is_over_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nudge, "RETRY_S", DELAY_S)
    woken: list[str] = []

    def wake(uids: Sequence[str]) -> list[str]:
        if not woken:
            nudger.not_woken("p")
        woken.extend(uids)
        return []

    nudger = Nudger(wake, DELAY_S)
    nudger.refused("p")
    nudger.room_made()
    wait_until(lambda: len(woken) == 2)
    nudger.close()
    assert woken == ["p", "p"]


def test_a_change_is_not_held_up_by_a_pod_that_could_not_be_woken(nudger: Nudger, woken: list[str]) -> None:
    nudger.not_woken("p")
    nudger.refused("q")
    nudger.room_made()
    wait_until(lambda: len(woken) == 2)
    assert woken == ["p", "q"]


def test_a_pod_that_appears_while_others_are_tried_is_tried_too() -> None:
    tried: list[str] = []

    def wake(uids: Sequence[str]) -> list[str]:
        if not tried:
            nudger.appeared("late")
        tried.extend(uids)
        return []

    nudger = Nudger(wake, DELAY_S)
    nudger.appeared("early")
    wait_until(lambda: len(tried) == 2)
    nudger.close()
    assert tried == ["early", "late"]


def test_a_pod_that_is_refused_while_it_is_woken_stays_known(woken: list[str]) -> None:
    def wake(uids: Sequence[str]) -> list[str]:
        if not woken:
            nudger.refused("p")
        woken.extend(uids)
        return []

    nudger = Nudger(wake, DELAY_S)
    nudger.refused("p")
    nudger.room_made()
    wait_until(lambda: bool(woken))
    nudger.room_made()
    wait_until(lambda: len(woken) == 2)
    nudger.close()
    assert woken == ["p", "p"]


def test_many_pods_are_tried_a_few_at_a_time() -> None:
    sizes: list[int] = []
    nudger = Nudger(lambda uids: sizes.append(len(uids)) or [], DELAY_S)
    for number in range(150):
        nudger.refused(f"p{number}")
    nudger.room_made()
    wait_until(lambda: sum(sizes) == 150)
    assert sizes == [4] * 37 + [2]
    nudger.close()


def test_the_end_waits_for_a_waking_under_way() -> None:
    begun, woken = threading.Event(), []

    def wake(uids: Sequence[str]) -> list[str]:
        begun.set()
        time.sleep(DELAY_S)
        woken.extend(uids)
        return []

    nudger = Nudger(wake, 0.0)
    nudger.refused("p")
    nudger.room_made()
    assert begun.wait(PATIENCE_S)
    nudger.close()
    assert woken == ["p"]


def test_the_end_waits_for_no_more_than_the_waking_under_way() -> None:
    begun, tried = threading.Event(), []

    def wake(uids: Sequence[str]) -> list[str]:
        tried.extend(uids)
        begun.set()
        time.sleep(DELAY_S)
        return []

    nudger = Nudger(wake, 0.0)
    for number in range(1000):
        nudger.refused(f"p{number}")
    nudger.room_made()
    assert begun.wait(PATIENCE_S)
    nudger.close()
    assert len(tried) < 1000


def test_a_later_change_wakes_again(nudger: Nudger, woken: list[str]) -> None:
    for count in (1, 2):
        nudger.refused("p")
        nudger.room_made()
        settles(woken, ["p"] * count)


def test_nobody_is_woken_after_the_end(nudger: Nudger, woken: list[str]) -> None:
    nudger.refused("p")
    nudger.room_made()
    nudger.close()
    nudger.refused("q")
    nudger.room_made()
    settles(woken, [])
