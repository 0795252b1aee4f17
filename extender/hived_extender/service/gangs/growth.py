"""Gangs that are being created at this moment: whether the answer about one of their pods may wait a little.

kube-scheduler asks about the first pod of a gang before the last one exists. Refused, the pod backs off for a second or
two, and both of us write about it; answered a little later, it starts with its mates. kube-scheduler asks about no
other pod meanwhile. So an answer waits for `MOST_S` at most, and the next one may only after `REST` times as long.
"""

import math
import time
from collections.abc import Callable

from hived_extender.pods.dialects.description import GangKey
from hived_extender.service.pods import UnknownPodError

GROWING_S = 0.1
"""After the last new pod a gang is taken to grow for so long."""

MOST_S = 0.5
REST = 4


class GrowingError(UnknownPodError):
    """The pod's gang may be complete in a moment: ask again."""


class Growth:
    """Not thread-safe. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._grown: dict[GangKey, float] = {}
        self._waiting: dict[GangKey, float] = {}  # since when answers wait for a gang
        self._not_before = -math.inf

    def has_grown(self, key: GangKey) -> None:
        """A pod of this gang has been created."""
        now = self._clock()
        self._grown.pop(key, None)
        self._grown[key] = now  # the gang that grew last is at the end
        while now - next(iter(self._grown.values())) > GROWING_S:
            del self._grown[next(iter(self._grown))]

    def may_wait(self, key: GangKey, *, is_forming: bool) -> bool:
        """kube-scheduler asks about a pod of this gang: may the answer wait for more pods?"""
        now = self._clock()
        is_worth_it = is_forming and now - self._grown.get(key, -math.inf) <= GROWING_S
        since = self._waiting.get(key)
        if since is None:
            if is_worth_it and now >= self._not_before:
                self._waiting = {one: began for one, began in self._waiting.items() if now - began <= MOST_S}
                self._waiting[key] = now
                return True
            return False
        if is_worth_it and now - since < MOST_S:
            return True
        del self._waiting[key]
        self._not_before = now + REST * min(now - since, MOST_S)
        return False
