"""Reserved cells without users, on nodes that kube-scheduler does not offer to the waiting pod (rule 27.13).

kube-scheduler may not have seen the users leave, and is woken again. Not thread-safe.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from hived.values.specs import PodRequest
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.effects import Outbox
from hived_extender.machine.pods import Offered, PodRecord
from hived_extender.machine.retries import Retries, Wakes

LOOK_S = 1.0
"""The time that kube-scheduler has to see that pods have left a node, until it is told of the pod that waits for it."""

UNASKED_S = 15.0
"""The time that it has to ask about that pod at all."""

MOST_LOOKS = 5
"""After so many questions in which it does not offer such a node, the pod's cells are looked for elsewhere."""

LOOK = "emptied"
UNASKED = "unasked"
TIMERS = (LOOK, UNASKED)


class _Watched(msgspec.Struct, frozen=True):
    """Requests whose reserved cells have no users any more, and the offer known then."""

    requests: tuple[PodRequest, ...]
    offered: Offered | None


class EmptiedCells:
    """Wakes kube-scheduler for pods whose reserved cells are free."""

    def __init__(self, cache: ClusterCache, outbox: Outbox, retries: Retries, wakes: Wakes) -> None:
        self._cache = cache
        self._outbox = outbox
        self._retries = retries
        self._wakes = wakes
        self._looks: Counter[str] = Counter()  # by uid
        self.is_clearing: Callable[[PodRequest], bool] = lambda request: False
        """Do pods still have to leave for a request that use none of its cells?"""
        self._watched: dict[str, _Watched] = {}

    def time_came(self, kind: str, uid: str) -> None:
        """Wake kube-scheduler, which must look again or has not asked about a pod at all."""
        record, core = self._cache.pods.get(uid), self._cache.core
        if record is None or core is None:
            return
        if kind == LOOK:
            self._wakes.ask(record)
        else:
            self._not_asked(core, record)

    def are_refused(self, core: Core, record: PodRecord, requests: Sequence[PodRequest]) -> bool:
        """Handle a question about a pod without an offer of its reserved nodes.

        True once these nodes count as refused: the pod must be tried again at once.
        """
        if any(map(self.is_clearing, requests)):
            self.look_soon(record)
            return False
        self._looks[record.uid] += 1
        if self._looks[record.uid] < MOST_LOOKS:
            self.look_soon(record)
            return False
        self._refuse(core, record, requests)
        return True

    def look_soon(self, record: PodRecord) -> None:
        """Wake kube-scheduler for a pod in a moment; repeated calls until then count once."""
        if (LOOK, record.uid) not in self._outbox.timers:
            self._outbox.wake_in((LOOK, record.uid), LOOK_S)

    def watch(self, core: Core, record: PodRecord, requests: Sequence[PodRequest]) -> None:
        """Wake kube-scheduler for a pod if its reserved cells have no users any more.

        It never asks if its own filters leave the pod no node, and other pods want the cells.
        """
        if any(map(self.is_clearing, requests)):
            return
        key = (UNASKED, record.uid)
        if key not in self._outbox.timers and any(core.is_emptied(request) for request in requests):
            self._watched[record.uid] = _Watched(tuple(requests), record.offer.latest)
            self._outbox.wake_in(key, UNASKED_S)

    def forget(self, uid: str) -> None:
        """Stop watching a pod that is bound or gone."""
        for kind in TIMERS:
            self._outbox.timers.drop((kind, uid))
        self._watched.pop(uid, None)
        self._looks.pop(uid, None)

    def forget_all(self) -> None:
        """Drop everything at the end of a term."""
        for uid in (*self._watched, *self._looks):
            self.forget(uid)

    def _not_asked(self, core: Core, record: PodRecord) -> None:
        known = self._watched.pop(record.uid)
        if record.state.has_node or record.offer.latest is not known.offered:
            return
        emptied = [request for request in known.requests if core.is_emptied(request)]
        if emptied:
            self._refuse(core, record, emptied)
            self._retries.appeared(record.uid)

    def _refuse(self, core: Core, record: PodRecord, requests: Sequence[PodRequest]) -> None:
        del self._looks[record.uid]
        for request in requests:
            for node in core.nodes_of(request.spec.group.name):
                if not self._cache.offers.includes(record, node):
                    self._cache.offers.refuse(record, node)
