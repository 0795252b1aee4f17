"""Gangs whose status must be written into the objects that describe them.

Best effort, by the leader alone, at most once in `INTERVAL_S`. A new leader writes changes of earlier terms.
"""

from collections import deque
from collections.abc import Collection, Iterable

from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.machine.effects import Outbox, WriteStatuses
from hived_extender.machine.gangs.plans import GangState, state_of
from hived_extender.machine.gangs.table import Gangs

TIMER = "statuses"
RETRY = "statuses again"
TIMERS = (TIMER, RETRY)

INTERVAL_S = 1.0
"""Between rounds: what changes faster is written once."""

AT_ONCE = 64
"""Gangs of one write, whose pods are counted while others wait."""

RETRY_S = 10.0
"""Before a gang is tried again whose status the API server refused, or was not there to take."""

FORGET_FROM = 10_000
"""Gangs that wait to be written while another replica leads. From there on those without pods are forgotten."""


class Statuses:
    """Plans the writes of gang statuses in rounds."""

    def __init__(self, outbox: Outbox, gangs: Gangs) -> None:
        self._outbox = outbox
        self._gangs = gangs
        self._sources: dict[GangKey, ObjectRef] = {}
        self._todo: dict[GangKey, None] = {}
        self._failed: dict[GangKey, None] = {}
        self._forget_from = FORGET_FROM
        self._round: deque[GangKey] = deque()
        self._is_busy = False
        self._is_leading = False

    @property
    def pending(self) -> tuple[GangKey, ...]:
        """The gangs to check."""
        return tuple({**self._todo, **self._failed})

    def changed(self, keys: Iterable[GangKey]) -> None:
        """Note changed gangs."""
        self._todo.update(dict.fromkeys(keys))
        self._begin_round()

    def lead(self, is_leading: bool) -> None:
        """Begin or end a term."""
        self._is_leading = is_leading
        self._begin_round()

    def time_came(self, kind: str, _: str) -> None:
        """Begin the next round, or retry failed gangs."""
        if kind == RETRY:
            self._todo, self._failed = {**self._failed, **self._todo}, {}
        else:
            self._is_busy = False
        self._begin_round()

    def wrote(self, effect: WriteStatuses, changed: Collection[GangKey], failed: Collection[GangKey]) -> None:
        """Take the result of a write: gangs `changed` by others meanwhile, and `failed` ones to retry later."""
        for key, state in effect.states.items():
            if state is None and key not in changed and key not in failed:
                self._sources.pop(key, None)
        self._todo.update(dict.fromkeys(changed))
        self._failed.update(dict.fromkeys(failed))
        if self._failed and (RETRY, "") not in self._outbox.timers:
            self._outbox.wake_in((RETRY, ""), RETRY_S)
        if self._round:
            self._send()
        else:
            self._outbox.wake_in((TIMER, ""), INTERVAL_S)

    def _begin_round(self) -> None:
        if not self._is_leading:
            self._forget_gone()
        elif self._todo and not self._is_busy:
            self._round, self._todo = deque(key for key in self._todo if key not in self._failed), {}
            if self._round:
                self._is_busy = True
                self._send()

    def _send(self) -> None:
        keys = [self._round.popleft() for _ in range(min(len(self._round), AT_ONCE))]
        states = {key: self._state_of(key) for key in keys}
        for key, state in states.items():
            if state is not None and state.source is not None:
                self._sources[key] = state.source
        self._outbox.send(WriteStatuses(states, {key: self._sources[key] for key in keys if key in self._sources}))

    def _state_of(self, key: GangKey) -> GangState | None:
        gang = self._gangs.get(key)
        return None if gang is None else state_of(gang, self._gangs.plan(key))

    def _forget_gone(self) -> None:
        if len(self._todo) >= self._forget_from:
            self._todo = {key: None for key in self._todo if self._gangs.get(key) is not None}
            self._forget_from = max(FORGET_FROM, 2 * len(self._todo))
