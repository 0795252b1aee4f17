"""Answers that many callers ask for at once: each is computed once, by one of them, and kept for a moment."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

V = TypeVar("V")

MOST_KEPT = 1024


class SharedAnswers(Generic[V]):
    """By question; thread-safe. Twenty pages that ask alike cost as one.

    An answer is given for `kept_s` seconds of `clock`. An error is given to all that wait for it, and not kept.
    """

    def __init__(self, kept_s: float, clock: Callable[[], float], most: int = MOST_KEPT) -> None:
        self._kept_s, self._clock, self._most = kept_s, clock, most
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Future[V], float]] = OrderedDict()  # with the moment of its end

    def get(self, question: Hashable, compute: Callable[[], V]) -> V:
        """The answer to a question, `compute()` unless somebody has it, or computes it now. Raises as `compute`."""
        with self._lock:
            found = self._answers.get(question)
            if found is not None and (not found[0].done() or self._clock() < found[1]):
                future = found[0]
                is_ours = False
            else:
                future, is_ours = Future(), True
                self._answers[question] = future, 0.0
                self._answers.move_to_end(question)
                self._forget()
        if is_ours:
            self._compute(question, future, compute)
        return future.result()

    def _compute(self, question: Hashable, future: "Future[V]", compute: Callable[[], V]) -> None:
        try:
            answer = compute()
        except BaseException as error:
            self._drop(question, future)
            future.set_exception(error)
            return
        with self._lock:
            if (found := self._answers.get(question)) is not None and found[0] is future:
                self._answers[question] = future, self._clock() + self._kept_s
        future.set_result(answer)

    def _drop(self, question: Hashable, future: "Future[V]") -> None:
        with self._lock:
            if (found := self._answers.get(question)) is not None and found[0] is future:
                del self._answers[question]

    def _forget(self) -> None:
        """Those that have ended, and the oldest if there are too many.

        Those under way stay: others wait for them all the same, but would ask anew. Cost O(answers).
        """
        done = [(question, end) for question, (future, end) in self._answers.items() if future.done()]
        now, over = self._clock(), len(self._answers) - self._most
        for number, (question, end) in enumerate(done):
            if number < over or end <= now:
                del self._answers[question]
