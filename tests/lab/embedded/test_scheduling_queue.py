"""The scheduler's queue on a clock of the test's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived_lab.embedded.scheduler import Pace, SchedulingQueue

PACE = Pace(backoff_initial_s=1, backoff_longest_s=10, flush_s=300, settle_s=0.5)


@pytest.fixture
def queue() -> SchedulingQueue:
    """An empty queue."""
    return SchedulingQueue(PACE)


def pop_all(queue: SchedulingQueue, now: float) -> list[str]:
    popped = []
    while (uid := queue.pop(now)) is not None:
        popped.append(uid)
    return popped


def test_higher_priority_goes_first_then_who_came_first(queue: SchedulingQueue) -> None:
    for uid, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        queue.add(uid, priority)
    assert pop_all(queue, 0) == ["b", "d", "a", "c"]


def test_adding_a_known_pod_changes_nothing(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    assert queue.pop(0) == "a"
    queue.add("a", 0)
    assert queue.pop(0) is None


def test_a_parked_pod_waits_for_an_event(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    queue.pop(0)
    queue.park("a", 0)
    assert queue.pop(299) is None
    queue.wake("a", 299)
    assert queue.pop(299.4) is None
    assert queue.pop(299.5) == "a"


def test_a_parked_pod_is_tried_again_at_the_latest_after_the_flush_time(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    queue.pop(0)
    queue.park("a", 10)
    assert queue.next_due() == 310
    assert queue.pop(310) == "a"


def test_an_event_does_not_shorten_the_back_off(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    queue.pop(0)
    queue.park("a", 0)
    queue.wake_all(0.1)
    assert queue.next_due() == 1
    assert queue.pop(0.9) is None
    assert queue.pop(1) == "a"


def test_the_back_off_doubles_up_to_its_limit(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    now, waits = 0.0, []
    for _ in range(6):
        assert queue.pop(now) == "a"
        queue.defer("a", now)
        due = queue.next_due()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 8, 10, 10]


def test_an_event_while_a_pod_is_in_flight_counts_for_it(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    queue.pop(0)
    queue.wake("a", 0)
    queue.park("a", 0)
    assert queue.pop(1) == "a"


def test_an_event_of_an_earlier_attempt_does_not_count_again(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    queue.pop(0)
    queue.wake("a", 0)
    queue.park("a", 0)
    queue.pop(1)
    queue.park("a", 1)
    assert queue.next_due() == 301


def test_a_removed_pod_is_gone_wherever_it_was(queue: SchedulingQueue) -> None:
    for uid in "abcd":
        queue.add(uid, 0)
    for uid in ("a", "b"):
        assert queue.pop(0) == uid
    queue.park("a", 0)
    for uid in "abc":
        queue.remove(uid)
    queue.park("b", 0)
    queue.defer("b", 0)
    assert pop_all(queue, 1000) == ["d"]
    assert "b" not in queue
    assert len(queue) == 1


def test_a_pod_that_comes_again_after_its_removal_is_taken_once(queue: SchedulingQueue) -> None:
    queue.add("a", 0)
    queue.remove("a")
    queue.add("a", 0)
    assert pop_all(queue, 0) == ["a"]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "pop", "park", "defer", "wake", "wake_all", "time"]),
            st.sampled_from("abc"),
        )
    )
)
def test_no_pod_is_lost_or_taken_twice(steps: list[tuple[str, str]]) -> None:
    queue, now = SchedulingQueue(PACE), 0.0
    waiting: set[str] = set()
    in_flight: set[str] = set()
    for step, uid in steps:
        if step == "add":
            queue.add(uid, 0)
            waiting |= {uid} - in_flight
        elif step == "remove":
            queue.remove(uid)
            waiting.discard(uid)
            in_flight.discard(uid)
        elif step == "pop":
            popped = queue.pop(now)
            assert popped is None or popped in waiting
            waiting -= {popped}
            in_flight |= {popped} - {None}
        elif step in ("park", "defer") and uid in in_flight:
            getattr(queue, step)(uid, now)
            in_flight.remove(uid)
            waiting.add(uid)
        elif step == "wake":
            queue.wake(uid, now)
        elif step == "wake_all":
            queue.wake_all(now)
        elif step == "time":
            now += 0.7
    assert sorted(pop_all(queue, now + 1000)) == sorted(waiting)
