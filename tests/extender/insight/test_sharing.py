"""An answer is computed once for all who ask in a moment, and errors are not kept."""

import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from hived.values.errors import UserError
from hived_extender.insight.answering import OLDEST_S, PART_IN_NEED, REST, REST_IN_NEED, SharedAnswers
from tests.expecting import expect_soon

CALLERS = 20


class _Answer:
    """One that can be referred to weakly."""


class Counting:
    """Counts how often it computes, and waits until it may go on."""

    def __init__(self) -> None:
        self.count = 0
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self) -> int:
        self.count += 1
        self.begun.set()
        assert self.may_end.wait(30)
        return self.count


def test_twenty_callers_cost_as_one() -> None:
    shared: SharedAnswers[int] = SharedAnswers(1.0, lambda: 0.0)
    compute = Counting()
    with ThreadPoolExecutor(CALLERS) as threads:
        first = threads.submit(shared.get, "q", compute)
        assert compute.begun.wait(30)
        others = [threads.submit(shared.get, "q", compute) for _ in range(CALLERS - 1)]
        compute.may_end.set()
        assert {one.result(30) for one in (first, *others)} == {1}
    assert compute.count == 1


def test_an_answer_ends_and_other_questions_have_their_own() -> None:
    now = [0.0]
    shared: SharedAnswers[int] = SharedAnswers(2.0, lambda: now[0])
    answers = iter(range(10))
    assert [shared.get(question, lambda: next(answers)) for question in "aab"] == [0, 0, 1]
    now[0] = 2.0
    assert shared.get("a", lambda: next(answers)) == 2


def test_an_answer_that_took_much_cpu_is_kept_longer_and_less_for_who_needs_a_newer_one() -> None:
    now, cpu = [0.0], [0.0]
    shared: SharedAnswers[int] = SharedAnswers(2.0, lambda: now[0], cpu=lambda: cpu[0])
    answers = iter(range(10))

    def compute() -> int:
        now[0] += 60.0  # others have the machine meanwhile
        cpu[0] += 0.1
        return next(answers)

    assert shared.get("a", compute) == 0
    now[0] += 0.1 * REST - 0.5
    assert shared.get("a", compute) == 0
    assert shared.get("a", compute, needs_newer=True) == 1
    now[0] += 0.1 * REST_IN_NEED - 0.1
    assert shared.get("a", compute, needs_newer=True) == 1
    now[0] += 0.1 * REST
    assert shared.get("a", compute) == 2


def test_no_answer_is_kept_for_longer_than_a_bound() -> None:
    now, cpu = [0.0], iter([0.0, 100.0, 100.0, 100.0])
    shared: SharedAnswers[int] = SharedAnswers(2.0, lambda: now[0], cpu=lambda: next(cpu))
    answers = iter(range(10))
    assert shared.get("a", lambda: next(answers)) == 0
    now[0] = OLDEST_S - 0.1
    assert shared.get("a", lambda: next(answers)) == 0
    now[0] = OLDEST_S
    assert shared.get("a", lambda: next(answers)) == 1


def test_who_needs_a_new_answer_gets_one_begun_after_the_question_and_twenty_cost_as_one() -> None:
    shared: SharedAnswers[int] = SharedAnswers(0.0, lambda: 0.0)
    compute = Counting()
    with ThreadPoolExecutor(CALLERS) as threads:
        first = threads.submit(shared.get, "q", compute)
        assert compute.begun.wait(30)
        others = [threads.submit(shared.get_new, "q", compute) for _ in range(CALLERS - 1)]
        expect_soon(threads._work_queue.empty)
        compute.may_end.set()
        assert first.result(30) == 1
        assert min(one.result(30) for one in others) == 2
    assert shared.get_new("q", compute) == compute.count > 2


def test_a_new_answer_waits_for_the_rest_of_an_older_one() -> None:
    shared: SharedAnswers[int] = SharedAnswers(2.0, time.monotonic)
    answers = iter(range(10))
    began = time.monotonic()
    assert [shared.get_new("q", lambda: next(answers)) for _ in range(3)] == [0, 1, 2]
    assert time.monotonic() - began >= 2 * 2.0 * PART_IN_NEED
    assert shared.get("q", lambda: next(answers)) == 2


def test_an_error_is_raised_and_not_kept() -> None:
    shared: SharedAnswers[int] = SharedAnswers(2.0, lambda: 0.0)

    def fail() -> int:
        raise UserError("not now")

    with pytest.raises(UserError, match="not now"):
        shared.get("a", fail)
    assert shared.get("a", lambda: 5) == 5


def test_the_oldest_answers_make_room() -> None:
    shared: SharedAnswers[int] = SharedAnswers(2.0, lambda: 0.0, most=2)
    for number, question in enumerate("abc"):
        shared.get(question, lambda number=number: number)  # type: ignore[misc]  # mypy wants a type for the default
    assert shared.get("c", lambda: 9) == 2
    assert shared.get("a", lambda: 9) == 9


def test_answers_that_have_ended_are_forgotten() -> None:
    now = [0.0]
    shared: SharedAnswers[_Answer] = SharedAnswers(2.0, lambda: now[0])
    first = weakref.ref(shared.get("a", _Answer))
    assert first() is not None
    now[0] = 2.0
    shared.get("b", _Answer)
    assert first() is None
