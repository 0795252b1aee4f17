"""Bindings without kube-scheduler: for a pod that ignores its offers, and for one that it has forgotten."""

import logging

from msgspec.structs import replace

from hived.values.errors import HivedError, UserError
from hived_extender.service.announcements import Announcements
from hived_extender.service.cluster_cache import ClusterCache
from hived_extender.service.effects import BindPod
from hived_extender.service.notices import Reason
from hived_extender.service.outbox import Outbox
from hived_extender.service.pods import PodRecord, PodState
from hived_extender.service.wakes import Wakes

FORCE = "force"

FORCE_WAITS_S = (0.2, 1.0, 5.0)
"""After each attempt but the last one; then kube-scheduler is asked to try the pod again."""

log = logging.getLogger(__name__)


class ForcedBindings:
    """Each is tried a few times."""

    def __init__(self, cache: ClusterCache, outbox: Outbox, announcements: Announcements, wakes: Wakes) -> None:
        self._cache = cache
        self._outbox = outbox
        self._announcements = announcements
        self._wakes = wakes
        self._failures: dict[str, int] = {}  # by uid

    def bind(self, record: PodRecord, why: str) -> None:
        """Bind a pod that has a place, unless that is under way."""
        node = record.place.node
        if record.writing.count or record.place.info is None:
            return
        record.writing = record.writing.begun()
        self._outbox.metrics.forced_bindings.inc()
        self._announcements.say(record, Reason.FORCED_BINDING, f"bound to node {node} without kube-scheduler: {why}")
        log.info("force bind", extra={"fields": {"pod": record.key, "node": node, "reason": why}})
        self._failures[record.uid] = 0
        self.time_came(record)

    def time_came(self, record: PodRecord) -> bool:
        """The next attempt is due. True if the pod cannot be bound so, and kube-scheduler is to try it again."""
        if record.state is not PodState.BINDING:
            return self._give_up(record)
        node = record.place.node
        annotations = self._cache.bound.to_write(record, node)
        self._outbox.send(BindPod(record.named, node, record.seen.version, annotations, "force"))
        return False

    def wrote(self, record: PodRecord, error: HivedError | None) -> bool:
        """An attempt has succeeded or failed. True as for `time_came`."""
        count = self._failures.get(record.uid)
        if error is None or count is None:
            self._failures.pop(record.uid, None)
            return False
        # One without an answer may be written yet, until the pod has another version.
        if not isinstance(error, UserError):
            record.writing = replace(record.writing, is_unanswered=True)
        if count == len(FORCE_WAITS_S):
            return self._give_up(record)
        self._failures[record.uid] = count + 1
        self._outbox.wake_in((FORCE, record.uid), FORCE_WAITS_S[count])
        return False

    def forget(self, uid: str) -> None:
        """The pod is bound, or gone."""
        self._failures.pop(uid, None)
        self._outbox.timers.drop((FORCE, uid))

    def forget_all(self) -> None:
        """The term is over."""
        for uid in list(self._failures):
            self.forget(uid)

    def _give_up(self, record: PodRecord) -> bool:
        self.forget(record.uid)
        record.writing = record.writing.ended()
        if record.state is PodState.BINDING:
            self._wakes.ask(record)
        return True
