"""The past as forecasts need it, learned by looking at one snapshot after the other.

A job that runs in one snapshot and not in the next has ended in between. A job that waits gets a forecast, and again
each time it has waited twice as long; once it runs, the forecasts are compared with the actual wait.
"""

import math

import msgspec

from hived.state import GroupState
from hived_extender.insight.corrections import Corrections, Corrector, Outcome
from hived_extender.insight.durations import Durations, Ended
from hived_extender.insight.scene import Scene, Waiter
from hived_extender.insight.store import Store

MOST_OPEN = 2000
"""Forecasts that wait for their outcome."""

FIRST_AGAIN_S = 300.0


class Raw(msgspec.Struct, frozen=True):
    """A forecast in seconds from now, before it is corrected. Infinite: it is not known.

    `bound_s` follows from declared limits. `reserved_s` is when the cells are free at the latest that can be reserved
    at once; None if others have to end first.
    """

    likely_s: float = math.inf
    by_s: float = math.inf
    bound_s: float = math.inf
    reserved_s: float | None = None
    is_now: bool = False


class _Running(msgspec.Struct, frozen=True):
    vc: str
    leaves: int
    since_s: float
    is_evicted: bool


class _Open(msgspec.Struct, frozen=True):
    """A forecast, in seconds from when it was made."""

    vc: str
    is_opportunistic: bool
    made_s: float
    likely_s: float
    by_s: float

    def outcome(self, at_s: float) -> Outcome:
        return Outcome(self.vc, self.is_opportunistic, self.likely_s, self.by_s, at_s - self.made_s)


class Past:
    """See the module. Not thread-safe: whoever shares it takes a lock."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self.durations = Durations(store)
        self.corrections = Corrections(store)
        self._running: dict[str, _Running] = {}
        self._open: dict[str, list[_Open]] = {}

    def look(self, scene: Scene) -> None:
        """Learn from a snapshot, which is later than the one before."""
        at_s = scene.at
        now = {one.name: one for one in scene.runners}
        gone = [known for name, known in self._running.items() if name not in now]
        self.durations.add(
            [Ended(one.vc, one.leaves, max(at_s - one.since_s, 0.0), not one.is_evicted, at_s) for one in gone]
        )
        groups = scene.state.groups
        self._running = {
            name: _Running(
                one.vc,
                one.leaves,
                at_s - one.age_s,
                any(groups[group].state is GroupState.BEING_PREEMPTED for group in one.groups),
            )
            for name, one in now.items()
        }
        started = {name: at_s - one.age_s for name, one in now.items()}
        waiting = {waiter.entry.name for waiter in scene.waiters}
        for job in [job for job in self._open if job not in waiting]:
            made = self._open.pop(job)
            if job in started:
                self.corrections.add([one.outcome(max(started[job], one.made_s)) for one in made])

    def wants_forecast(self, job: str, at_s: float) -> bool:
        """Should a forecast of a waiting job be noted now? Bounded: few of each job, MOST_OPEN of all."""
        made = self._open.get(job, ())
        if not made:
            return sum(map(len, self._open.values())) < MOST_OPEN
        again_s: float = FIRST_AGAIN_S * 2 ** (len(made) - 1)
        return at_s - made[0].made_s >= again_s

    def note(self, waiter: Waiter, at_s: float, raw: Raw) -> None:
        """A forecast was made. Only those that were played are judged: others do not depend on the past."""
        if raw.by_s < math.inf and raw.reserved_s is None and not raw.is_now:
            one = _Open(waiter.entry.vc, waiter.is_opportunistic, at_s, raw.likely_s, raw.by_s)
            self._open.setdefault(waiter.entry.name, []).append(one)

    def corrector(self, at_s: float) -> Corrector:
        """The corrections of now."""
        made = sorted((one for each in self._open.values() for one in each), key=lambda one: one.made_s)
        return self.corrections.at(one.outcome(at_s) for one in made)
