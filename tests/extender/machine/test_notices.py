"""When something is told of a pod, moment by moment."""

import math

from hived_extender.machine.notices import ALLOCATED, Announced, Condition, Notice, Pace, PodNotices, Reason

PACE = Pace(hold_s=0, change_s=0, repeat_s=10, burst=4, refill_s=300, reserve=2)
WAITING = Condition(False, "Waiting", "no room")
HAS_CELLS = Condition(True, ALLOCATED, "node n1")
AWAY = Announced(0, is_away=True)


def notices() -> PodNotices:
    return PodNotices("u", "ns", "p", PACE, 0.0)


def tell(one: PodNotices, now: float) -> list[tuple[str, str, int]]:
    """Write what is due: reason, message, times."""
    taken = one.take(now)
    has_looked = taken.condition is not None
    one.wrote(taken.notices, Announced(len(taken.notices), has_looked=has_looked, stored=taken.condition), now)
    return [(notice.reason.value, notice.message, notice.times) for notice in taken.notices]


def say_and_tell(one: PodNotices, message: str, now: float) -> list[tuple[str, str, int]]:
    one.say(Reason.WAITING, message, now, now)
    return tell(one, now)


def test_the_same_words_are_told_again_after_a_while_with_their_count() -> None:
    one = notices()
    assert say_and_tell(one, "no room", 0) == [("Waiting", "no room", 1)]
    for second in range(1, 10):
        assert say_and_tell(one, "no room", second) == []
    assert one.due_at() == 10
    assert tell(one, 10) == [("Waiting", "no room", 9)]
    assert one.due_at() == math.inf


def test_other_words_are_told_at_once_until_the_tokens_are_spent() -> None:
    one = notices()
    told = [say_and_tell(one, f"reason {number}", number) for number in range(6)]
    assert [bool(each) for each in told] == [True] * 4 + [False] * 2
    assert tell(one, 299) == []
    assert tell(one, 301) == [("Waiting", "reason 5", 1)]


def test_words_that_flap_are_told_once_per_refill_for_ever() -> None:
    one = notices()
    told = sum(len(say_and_tell(one, "ab"[second % 2], second)) for second in range(3600))
    assert told == PACE.burst + 3599 // PACE.refill_s


def test_repeats_leave_tokens_for_other_words() -> None:
    one = notices()
    told = sum(len(say_and_tell(one, "no room", second)) for second in range(250))
    assert told == PACE.burst - PACE.reserve
    assert say_and_tell(one, "a bad node", 250) == [("Waiting", "a bad node", 1)]


def test_being_scheduled_is_told_without_a_token_and_ends_an_untold_wait() -> None:
    one = notices()
    for number in range(8):
        say_and_tell(one, f"reason {number}", 0)
    one.say(Reason.SCHEDULED, "node n1", 1, 1)
    assert tell(one, 1) == [("Scheduled", "node n1", 1)]
    assert one.due_at() == math.inf


def test_a_preempting_pod_no_longer_waits() -> None:
    one = notices()
    one.say(Reason.WAITING, "no room", 0, 0)
    one.say(Reason.PREEMPTING, "victims", 0, 0)
    assert tell(one, 0) == [("Preempting", "victims", 1)]


def test_what_could_not_be_written_is_told_later_with_its_count() -> None:
    one = notices()
    one.say(Reason.WAITING, "no room", 5.0, 5.0)
    taken = one.take(5).notices
    one.say(Reason.WAITING, "no room", 6.0, 6.0)
    one.wrote(taken, AWAY, 6.0)
    assert one.take(7).notices == [Notice(Reason.WAITING, "no room", 2, 5.0)]


def test_what_could_not_be_written_is_not_told_when_it_is_over() -> None:
    for end in (
        lambda one: one.say(Reason.SCHEDULED, "node n1", 1, 1),
        lambda one: one.say(Reason.PREEMPTING, "victims", 1, 1),
        lambda one: one.leave(),
    ):
        one = notices()
        one.say(Reason.WAITING, "no room", 0, 0)
        taken = one.take(0).notices
        end(one)
        one.wrote(taken, AWAY, 1)
        assert "Waiting" not in {reason for reason, _, _ in tell(one, 2)}


def test_of_a_pod_that_is_gone_only_what_befell_it_is_told() -> None:
    one = notices()
    one.say(Reason.PREEMPTED, "its cells are needed", 0, 0)
    one.say(Reason.WAITING, "no room", 0, 0)
    one.want(WAITING, 0)
    one.leave()
    assert tell(one, 0) == [("Preempted", "its cells are needed", 1)]
    assert one.due_at() == math.inf


def test_a_condition_is_due_only_while_it_differs() -> None:
    one = notices()
    one.want(WAITING, 0)
    assert one.take(0).condition == WAITING
    one.know(WAITING)
    one.want(WAITING, 0)
    assert one.due_at() == math.inf


def test_that_a_pod_has_cells_is_written_only_over_the_opposite() -> None:
    fresh, waited = notices(), notices()
    waited.observe(WAITING)
    for one in (fresh, waited):
        one.want(HAS_CELLS, 0)
    assert fresh.take(0).condition is None
    assert waited.take(0).condition == HAS_CELLS


def test_a_wait_that_is_being_written_when_the_pod_is_scheduled_is_taken_back() -> None:
    one = notices()
    one.want(WAITING, 0)
    taken = one.take(0).condition
    one.want(HAS_CELLS, 0)
    assert one.due_at() == math.inf
    one.know(taken)
    assert one.take(1).condition == HAS_CELLS


def test_our_own_write_is_newer_than_what_a_watch_shows() -> None:
    one = notices()
    one.observe(WAITING)
    one.observe(None)
    assert one.stored is None
    one.know(WAITING)
    one.observe(None)
    assert one.stored == WAITING


def test_conditions_that_flap_are_limited_as_events_are() -> None:
    one = notices()
    written = 0
    for second in range(100):
        one.want(Condition(False, "Waiting", "ab"[second % 2]), second)
        taken = one.take(second)
        if taken.condition is not None:
            one.know(taken.condition)
            written += 1
    assert written == PACE.burst


PATIENT = Pace(hold_s=1.5, change_s=5, repeat_s=10, burst=4, refill_s=300, reserve=2)


def patient() -> PodNotices:
    return PodNotices("u", "ns", "p", PATIENT, 0.0)


def test_a_wait_is_told_when_it_has_lasted_a_moment_with_the_latest_reason() -> None:
    one = patient()
    assert say_and_tell(one, "2 of 3 pods created", 0) == []
    assert say_and_tell(one, "no room", 1) == []
    assert one.due_at() == 1.5
    assert tell(one, 1.5) == [("Waiting", "no room", 1)]


def test_nothing_is_told_of_a_wait_that_ends_within_a_moment() -> None:
    one = patient()
    one.say(Reason.WAITING, "no room", 0, 0)
    one.want(WAITING, 0)
    one.place()
    assert one.due_at() == math.inf
    one.say(Reason.SCHEDULED, "node n1", 60, 60)
    one.want(HAS_CELLS, 60)
    assert tell(one, 60) == [("Scheduled", "node n1", 1)]
    assert one.stored is None


def test_a_pod_that_loses_its_place_waits_anew() -> None:
    one = patient()
    one.say(Reason.WAITING, "no room", 0, 0)
    one.place()
    one.say(Reason.WAITING, "a taint", 1, 1)
    assert one.due_at() == 2.5


def test_another_reason_is_told_a_while_after_the_last_one() -> None:
    one = patient()
    say_and_tell(one, "1 of 3 pods created", 0)
    assert tell(one, 1.5) == [("Waiting", "1 of 3 pods created", 1)]
    assert say_and_tell(one, "2 of 3 pods created", 2) == []
    assert say_and_tell(one, "no room", 3) == []
    assert one.due_at() == 6.5
    assert tell(one, 6.5) == [("Waiting", "no room", 1)]


def test_event_and_condition_of_a_wait_are_due_together() -> None:
    one = patient()
    one.say(Reason.WAITING, "no room", 0, 0)
    one.want(WAITING, 0)
    taken = one.take(1.5)
    assert (len(taken.notices), taken.condition) == (1, WAITING)


def test_a_mistake_is_told_at_once() -> None:
    one = patient()
    one.say(Reason.INVALID_SPEC, "no such virtual cluster", 0, 0)
    assert tell(one, 0) == [("InvalidSpec", "no such virtual cluster", 1)]


def test_a_reason_to_wait_that_was_taken_back_in_time_is_not_told() -> None:
    one = PodNotices("u", "ns", "p", Pace(), 0.0)
    one.say(Reason.WAITING, "2 of 3 pods created", 0, 0)
    one.want(Condition(False, "Waiting", "2 of 3 pods created"), 0)
    one.take_back()
    assert one.due_at() == math.inf


def test_after_a_reason_was_taken_back_the_wait_goes_on() -> None:
    one = PodNotices("u", "ns", "p", Pace(hold_s=1.5), 0.0)
    one.say(Reason.WAITING, "2 of 3 pods created", 0, 0)
    one.take_back()
    one.say(Reason.WAITING, "no room", 1, 1)
    assert one.due_at() == 1.5


def test_a_mistake_is_not_taken_back_with_a_reason_to_wait() -> None:
    one = notices()
    one.say(Reason.INVALID_SPEC, "no such VC", 0, 0)
    one.take_back()
    assert tell(one, 0) == [("InvalidSpec", "no such VC", 1)]
