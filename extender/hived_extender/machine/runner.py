"""Runs the machine in the world: one lock, one thread for time, one pool for writes.

A stimulus is handled under the lock; its effects are carried out on the pool without it, and each result is the next
stimulus. The machine, not the runner, limits concurrent writes and retries. When the machine breaks a rule of its own,
the service stops: every verb raises InvariantError, with the cause in `fault`, until a restart rebuilds the state from
the pods' annotations.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from msgspec.structs import replace

from hived.values.errors import InvariantError, UserError
from hived_extender.kube.clocks import wall_s
from hived_extender.kube.logs import tell_failure
from hived_extender.machine.effects import Awaits, Effect, HoldBindings, Now, ReleaseBindings, Write
from hived_extender.machine.machine import Machine
from hived_extender.machine.stimuli import Closing, Stimulus, TakeTurn, TimeCame, TryWaiting, Wrote

log = logging.getLogger(__name__)

THREADS = 64
"""More than the machine ever has under way at once, but for bindings by force."""

REST: dict[type[Any], int] = {TryWaiting: 9, TakeTurn: 1}
"""The time for others before the next slice of waiting pods, or of a turn, in times of the length of the last.

A lock is not handed over to whoever waits for it. Under a backlog every change makes thousands of tries; they may take
a tenth of a core, and turns of queues half of one.
"""


class BusyError(UserError):
    """The lock is taken, and the caller must not wait for it."""


class Writes(Protocol):
    """Carries out effects; `writes.Writer` is one."""

    def write(self, effect: Write, may_write: Callable[[], bool]) -> Wrote:
        """Call the API server and return the result. `may_write` is true while the deciding term goes on."""


class _Exclusive:
    """A context manager as a class: a generator would cost a filter call a hundredth of its time."""

    __slots__ = ("_runner", "_wait_s")

    def __init__(self, runner: "Runner", wait_s: float | None) -> None:
        self._runner = runner
        self._wait_s = wait_s

    def __enter__(self) -> Machine:
        return self._runner.take(self._wait_s)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._runner.give_back(error)


class Runner:
    """Runs the machine; thread-safe. `holds` tells at once whether the term of leadership goes on."""

    def __init__(self, machine: Machine, writes: Writes) -> None:
        self.holds: Callable[[], bool] = lambda: False
        self.fault = ""
        self._machine = machine
        self._writes = writes
        self._lock = threading.Lock()
        self._timer_set = threading.Condition(self._lock)
        self._handled = threading.Condition(self._lock)  # notified while there are `_waiters`
        self._waiters = 0
        self._due_at = math.inf
        self._held: dict[str, Future[None]] = {}
        self._is_closing = False
        self._awaits_end = (
            False  # somebody waits for the writes under way: the timers' thread need not be woken for each
        )
        self._under_way = 0
        self._pool = ThreadPoolExecutor(THREADS, "write")
        self._thread = threading.Thread(target=self._keep_time, name="timers", daemon=True)

    def start(self) -> None:
        """Start the timer thread."""
        self._thread.start()

    def handle(self, stimulus: Stimulus, *, wait_s: float | None = None) -> Any:
        """Handle a stimulus, start its effects, and return the answer. Raises the answer if it is an error.

        If the answer awaits an effect, this thread carries it out first. Raises BusyError if the lock is taken for
        longer than `wait_s`, and InvariantError once the machine is broken.
        """
        with self.exclusive(wait_s=wait_s) as machine:
            answer, term = self.handle_within(stimulus), machine.term
        if isinstance(answer, Awaits):
            answer = self._write(answer.effect, term)
        if isinstance(answer, UserError):
            raise answer
        return answer

    def handle_within(self, stimulus: Stimulus) -> Any:
        """As `handle`, for a caller with the lock; an error is returned."""
        machine = self._machine
        answer, effects = machine.handle(stimulus, self._now())
        if effects:
            self._carry_out(effects, machine.term)
        if machine.due_at < self._due_at:
            self._due_at = machine.due_at
            self._timer_set.notify_all()
        if self._waiters:
            self._handled.notify_all()
        return answer

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until it is so; asked with the lock, after each stimulus. False if that takes longer."""
        with self._handled:
            self._waiters += 1
            try:
                return self._handled.wait_for(is_so, timeout_s)
            finally:
                self._waiters -= 1

    def exclusive(self, *, wait_s: float | None = None) -> "_Exclusive":
        """Hold the lock. Any exception but UserError, the machine's or the caller's, stops the service.

        Raises InvariantError then and ever after, and BusyError if the lock is taken for longer than `wait_s`.
        """
        return _Exclusive(self, wait_s)

    def take(self, wait_s: float | None) -> Machine:
        """The beginning of `exclusive`."""
        self._acquire(wait_s)
        if self.fault:
            self._lock.release()
            raise InvariantError(f"stopped after an internal error: {self.fault}")
        return self._machine

    def give_back(self, error: BaseException | None) -> None:
        """The end of `exclusive`, by an error or in order."""
        try:
            if isinstance(error, Exception) and not isinstance(error, UserError):
                self._stop(error)
        finally:
            self._lock.release()

    def _acquire(self, wait_s: float | None) -> None:
        if not self._lock.acquire(timeout=-1 if wait_s is None else wait_s):
            raise BusyError("busy")

    @contextmanager
    def look(self, *, wait_s: float | None = None) -> Iterator[Machine]:
        """Hold the lock to read, even when the service has stopped.

        Raises BusyError if the lock is taken for longer than `wait_s`.
        """
        self._acquire(wait_s)
        try:
            yield self._machine
        finally:
            self._lock.release()

    def wait_until_free(self) -> None:
        """Wait until the lock is free; it may be taken again at once."""
        with self._lock:
            pass

    def hold_of(self, uid: str) -> Future[None] | None:
        """A future done when this pod's binding is released; None if it is not held. Never waits."""
        return self._held.get(uid)

    def close(self, timeout_s: float) -> None:
        """Stop the threads; waits for writes under way, and `timeout_s` for writes that follow."""
        with suppress(InvariantError):
            self.handle(Closing())
        with self._lock:
            until = time.monotonic() + timeout_s
            self._awaits_end = True
            while self._under_way and (left_s := until - time.monotonic()) > 0:
                self._timer_set.wait(left_s)
            self._is_closing = True
            self._timer_set.notify_all()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _stop(self, error: Exception) -> None:
        self.fault = f"{type(error).__name__}: {error}"
        core = self._machine.cache.core
        fields = {"event": repr(core.last_event) if core else ""}
        log.critical("stopped after an internal error", exc_info=error, extra={"fields": fields})
        self._release(tuple(self._held))  # their callers get the error now, and not when they give up
        raise InvariantError(f"stopped after an internal error: {self.fault}") from error

    @property
    def wall_s(self) -> float:
        """Seconds since 1970, as in stimuli."""
        return self._now().wall

    @property
    def clock_s(self) -> float:
        """Seconds of a monotonic clock."""
        return self._now().at

    def _now(self) -> Now:
        return Now(time.monotonic(), wall_s())

    def _carry_out(self, effects: Iterable[Effect], term: int) -> None:
        for effect in effects:
            if isinstance(effect, HoldBindings):
                for uid in effect.uids:  # whoever waits for an earlier hold of the pod waits on
                    self._held.setdefault(uid, Future())
            elif isinstance(effect, ReleaseBindings):
                self._release(effect.uids)
            elif not self._is_closing:
                self._submit(effect, term)

    def _release(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if (held := self._held.pop(uid, None)) is not None:
                held.set_result(None)

    def _submit(self, effect: Write, term: int) -> None:
        self._under_way += 1
        self._pool.submit(self._write_later, effect, term).add_done_callback(tell_failure)

    def _write_later(self, effect: Write, term: int) -> None:
        try:
            with suppress(InvariantError):  # the fault is on record, and nobody waits for this
                self._write(effect, term)
        finally:
            with self._lock:
                self._under_way -= 1
                if self._awaits_end:
                    self._timer_set.notify_all()

    def _write(self, effect: Write, term: int) -> Any:
        """Carry out an effect of this term, and handle its result; an error is returned."""
        wrote = self._writes.write(effect, lambda: self._machine.term == term and self.holds())
        with self.exclusive() as machine:
            return self.handle_within(replace(wrote, is_current=machine.term == term))

    def _keep_time(self) -> None:
        rests = dict.fromkeys(REST, -math.inf)
        while True:
            with self._lock:
                while not self._is_closing:
                    self._due_at = self._machine.due_at
                    # Only this thread makes a backlog or begins a turn, and only others set timers meanwhile.
                    at, stimulus = self._next(rests)
                    wait_s = at - time.monotonic()
                    if wait_s <= 0:
                        break
                    self._timer_set.wait(wait_s if wait_s < math.inf else None)
                if self._is_closing or self.fault:
                    return
            began = time.monotonic()
            try:
                self.handle(stimulus)
            except InvariantError:
                return
            if (rest := REST.get(type(stimulus))) is not None:
                now = time.monotonic()
                rests[type(stimulus)] = now + rest * (now - began)

    def _next(self, rests: Mapping[type[Any], float]) -> tuple[float, Stimulus]:
        """The next work of this thread, and when it may begin; infinity if there is none."""
        found: list[tuple[float, Stimulus]] = [(self._due_at, TimeCame())]
        if self._machine.has_turn:
            found.append((rests[TakeTurn], TakeTurn()))
        if self._machine.has_backlog:
            found.append((rests[TryWaiting], TryWaiting()))
        return min(found, key=lambda each: each[0])
