"""Answers that many callers ask for at once: each is computed once, by one of them, and kept for a moment."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")

MOST_KEPT = 1024

REST = 50.0
"""An answer is kept for so many times the time that it took: all that ask again and again have 2 % of a core."""

REST_IN_NEED = 5.0
"""The same for a caller who needs a newer one."""

PART_IN_NEED = 0.1
"""Of the seconds for which it is kept at least, for the same caller."""


class _Kept(msgspec.Struct, Generic[V]):
    """An answer that is being computed, or was: when that ended, and how long it took, in seconds."""

    future: Future[V]
    ended: float = 0.0
    spent: float = 0.0


class SharedAnswers(Generic[V]):
    """By question; thread-safe. Twenty pages that ask alike cost as one.

    An answer is given for `kept_s` seconds of `clock`, or for longer if it took long (`REST`). An error is given to all
    that wait for it, and not kept.
    """

    def __init__(self, kept_s: float, clock: Callable[[], float], most: int = MOST_KEPT) -> None:
        self._kept_s, self._clock, self._most = kept_s, clock, most
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, _Kept[V]] = OrderedDict()

    def get(self, question: Hashable, compute: Callable[[], V], *, needs_newer: bool = False) -> V:
        """The answer to a question, `compute()` unless somebody has it, or computes it now. Raises as `compute`.

        A caller who needs what is not in an older answer has it computed anew earlier than others.
        """
        with self._lock:
            kept = self._answers.get(question)
            is_ours = kept is None or not self._lasts(kept, needs_newer=needs_newer)
            if kept is None or is_ours:
                kept = self._answers[question] = _Kept(Future())
                self._answers.move_to_end(question)
                self._forget()
        if is_ours:
            self._compute(question, kept, compute)
        return kept.future.result()

    def _lasts(self, kept: _Kept[V], *, needs_newer: bool = False) -> bool:
        part, rest = (PART_IN_NEED, REST_IN_NEED) if needs_newer else (1.0, REST)
        return not kept.future.done() or self._clock() < kept.ended + max(part * self._kept_s, rest * kept.spent)

    def _compute(self, question: Hashable, kept: _Kept[V], compute: Callable[[], V]) -> None:
        began = self._clock()
        try:
            answer = compute()
        except BaseException as error:
            with self._lock:
                if self._answers.get(question) is kept:
                    del self._answers[question]
            kept.future.set_exception(error)
            return
        kept.ended = self._clock()
        kept.spent = kept.ended - began
        kept.future.set_result(answer)

    def _forget(self) -> None:
        """Those that have ended, and the oldest if there are too many.

        Those under way stay: others wait for them all the same, but would ask anew. Cost O(answers).
        """
        done = [(question, kept) for question, kept in self._answers.items() if kept.future.done()]
        over = len(self._answers) - self._most
        for number, (question, kept) in enumerate(done):
            if number < over or not self._lasts(kept):
                del self._answers[question]
