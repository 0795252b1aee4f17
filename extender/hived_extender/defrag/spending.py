"""The budgets of an hour: how much the plans of each virtual cluster have cost since then.

A plan counts from the moment that it begins. Where replicas share a Secret, the list is kept there too, and is written
before anybody is moved. So neither a restart nor another leader has a new budget. Without a Secret each term has one.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from hived_config.rules import Budget
from hived_extender.defrag.limits import Limits
from hived_extender.kube.client import KubeError

HOUR_S = 3600.0
TRIES = 3
"""Times that the list is written, as long as others change the Secret at the same moment."""


class Spent(msgspec.Struct, frozen=True, order=True):
    """The cost of one plan: when it began, in seconds since 1970, for which VC, GPU-hours and groups."""

    at: float
    vc: str
    gpu_hours: float
    groups: int


class Ledger(Protocol):
    """Where replicas keep a text together; `BindingSecret` is one."""

    def read_moves(self) -> tuple[bytes, str]:
        """The text, and the version to be changed. Raises KubeError."""

    def write_moves(self, text: bytes, version: str) -> None:
        """Replace the text, if the version is still the one given. Raises KubeError."""


class Spending:
    """See the module. Thread-safe. `now` has seconds since 1970."""

    def __init__(self, ledger: Ledger | None, now: Callable[[], float]) -> None:
        self._ledger = ledger
        self._now = now
        self._lock = threading.Lock()
        self._spent: list[Spent] = []
        self._term: int | None = None

    def begin_term(self, term: int) -> None:
        """Read what other replicas have spent, once for each term. Raises KubeError, and tries anew the next time."""
        with self._lock:
            if term != self._term:
                self._spent = [] if self._ledger is None else self._recent(_read(self._ledger)[0])
                self._term = term

    def left(self, vc: str, budget: Budget) -> Limits:
        """The part of a budget that is left in this hour."""
        with self._lock:
            spent = [one for one in self._recent(self._spent) if one.vc == vc]
        groups = None if budget.groups is None else max(0, budget.groups - sum(one.groups for one in spent))
        return Limits(max(0.0, budget.gpu_hours - sum(one.gpu_hours for one in spent)), groups)

    def add(self, vc: str, gpu_hours: float, groups: int, *, begins_anyway: bool = False) -> Spent:
        """Count a plan that is about to begin. Raises KubeError where that cannot be written.

        With `begins_anyway` it counts here even then; otherwise it has to be given up, and does not count.
        """
        with self._lock:
            one = Spent(self._now(), vc, gpu_hours, groups)
            before = self._recent(self._spent)
            self._spent = [*before, one]
            try:
                self._write(lambda stored: {*stored, one})
            except KubeError:
                if not begins_anyway:
                    self._spent = before
                raise
            return one

    def take_back(self, one: Spent) -> None:
        """A plan did not begin after all. Raises KubeError: it counts for other replicas then."""
        with self._lock:
            self._spent = [each for each in self._spent if each != one]
            self._write(lambda stored: {each for each in stored if each != one})

    def _write(self, change: Callable[[list[Spent]], Iterable[Spent]]) -> None:
        if self._ledger is None:
            return
        for tries_left in range(TRIES - 1, -1, -1):
            stored, version = _read(self._ledger)
            changed = sorted(change(self._recent(stored)))
            try:
                self._ledger.write_moves(msgspec.json.encode(changed), version)
                return
            except KubeError as error:
                if not error.is_conflict or not tries_left:
                    raise

    def _recent(self, spent: Iterable[Spent]) -> list[Spent]:
        """The plans of this hour. Clocks of replicas differ: a plan of the future counts as one of now."""
        now = self._now()
        return [
            one if one.at <= now else msgspec.structs.replace(one, at=now) for one in spent if one.at > now - HOUR_S
        ]


def _read(ledger: Ledger) -> tuple[list[Spent], str]:
    text, version = ledger.read_moves()
    try:
        return (msgspec.json.decode(text, type=list[Spent]) if text else []), version
    except msgspec.MsgspecError as error:
        raise KubeError(0, "Invalid", f"the costs of moves that are kept cannot be read: {error}") from error
