"""Tentative questions of people, on a copy of the machine: kube-scheduler's calls wait for the copy alone.

The copy is a process of its own (`apart.py`), in which the machine handles the question as it would here. What becomes
of it there is lost with the process. Making it holds the lock for some milliseconds, so all questions together have the
lock for a tenth of the time at the most. A question has `LONGEST_S`, and each caller has one under way.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import msgpack

from hived.values.errors import InvariantError, UserError
from hived_extender.api.waiting import PodOutcome
from hived_extender.machine.apart import ApartError, compute_apart
from hived_extender.machine.effects import Now
from hived_extender.machine.machine import Machine
from hived_extender.machine.runner import Runner
from hived_extender.machine.stimuli import WhatIfAsked

LONGEST_S = 15.0
"""For one question; 512 pods as one gang at 512 nodes take 2.4 s of CPU."""

MOST = 3
"""Questions that are answered or wait for it. The others are refused, as each takes a thread from other calls."""

REST = 9.0
"""Times the time that the last copy held the lock, before the next one is made."""

TOO_MANY = 429
UNAVAILABLE = 503


class _Answer(msgspec.Struct):
    """The outcomes, or why there are none."""

    outcomes: list[PodOutcome] = []
    refusal: str = ""
    code: int = 400


_ANSWER = msgpack.Decoder(_Answer)


class Questions:
    """Answers tentative questions, a few at a time. Thread-safe."""

    def __init__(self, machine: Machine, runner: Runner) -> None:
        self._machine, self._runner = machine, runner
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._callers: list[str] = []
        self._turn = threading.Lock()
        self._rests_until = 0.0

    def ask(self, asked: WhatIfAsked) -> list[PodOutcome]:
        """The outcomes of the pods.

        Raises UserError (503) if that takes too long, and InvariantError if the machine is broken.
        """
        with self._turn:
            time.sleep(max(0.0, self._rests_until - time.monotonic()))
            if self._runner.fault:
                raise InvariantError(f"stopped after an internal error: {self._runner.fault}")
            now = Now(self._runner.clock_s, self._runner.wall_s)
            try:
                found = compute_apart(lambda: self._answer(asked, now), self._lock(), LONGEST_S)
            except ApartError as error:
                raise UserError(f"{error}; ask about fewer pods, or again later", UNAVAILABLE) from error
        answer = _ANSWER.decode(found)
        if answer.refusal:
            raise UserError(answer.refusal, answer.code)
        return answer.outcomes

    def _answer(self, asked: WhatIfAsked, now: Now) -> bytes:
        """The machine's answer, in the process of its own; without effects, and without a record."""
        if os.getpid() != self._process and (core := self._machine.cache.core) is not None:
            core.record_nothing()
        found, _ = self._machine.handle(asked, now)
        if isinstance(found, UserError):
            return msgpack.encode(_Answer(refusal=found.message, code=found.code))
        return msgpack.encode(_Answer(outcomes=found))

    @contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """A place for one question of this caller, before it is read. Of one unknown ("") `MOST` alone counts.

        Raises UserError (429) if there is none.
        """
        with self._guard:
            if caller and caller in self._callers:
                raise UserError("an earlier question of yours is being answered; wait for its answer", TOO_MANY)
            if len(self._callers) >= MOST:
                raise UserError(f"{MOST} questions are being answered; ask again in a moment", TOO_MANY)
            self._callers.append(caller)
        try:
            yield
        finally:
            with self._guard:
                self._callers.remove(caller)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """The machine's lock, held while the process is made."""
        with self._runner.look():
            began = time.monotonic()
            yield
            held_s = time.monotonic() - began
        self._rests_until = time.monotonic() + REST * held_s
