"""Writes events and conditions about pods."""

import logging
import math
import socket
import threading
import time

from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.kube.events import EventRecorder, timestamp
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.wire import Pod
from hived_extender.service.effects import Announce
from hived_extender.service.notices import CONDITION_TYPE, Announced, Condition, Notice

COMPONENT = "hived"
COMPLAINT_INTERVAL_S = 60.0

log = logging.getLogger(__name__)


class Teller:
    """Thread-safe for different pods. Counts events, as repeated ones are counted up."""

    def __init__(self, kube: KubeClient, metrics: Metrics) -> None:
        self._kube = kube
        self._metrics = metrics
        self._recorder = EventRecorder(kube, COMPONENT, socket.gethostname()[:128])
        self._lock = threading.Lock()  # guards the complaints
        self._next_complaint = -math.inf
        self._unsaid_complaints = 0

    def forget_counts(self) -> None:
        """Another replica may count the same events up from now on."""
        self._recorder.forget_counts()

    def tell(self, effect: Announce) -> Announced:
        """Write the notices, then the condition, until the API server is found to be away. Raises nothing."""
        for count, notice in enumerate(effect.notices):
            if not self._write_event(effect, notice):
                return Announced(count, is_away=True)
        if effect.condition is None:
            return Announced(len(effect.notices))
        return self._write_condition(effect, effect.condition)

    def _write_event(self, effect: Announce, notice: Notice) -> bool:
        """Return False if it should be tried again."""
        pod, reason = effect.pod, notice.reason
        try:
            is_new = self._recorder.record(
                pod,
                reason.event_type,
                reason.value,
                notice.message,
                times=notice.times,
                since_s=notice.since_s,
                about=effect.about,
            )
        except KubeError as error:
            self._metrics.events.labels("failed").inc()
            self._complain(f"the event {reason.value} about {pod.key} is not written", str(error))
            return not _is_passing(error)
        self._metrics.events.labels("created" if is_new else "counted").inc()
        return True

    def _write_condition(self, effect: Announce, wanted: Condition) -> Announced:
        name, stored, count = effect.pod, effect.stored, len(effect.notices)
        path = pod_path(name.namespace, name.name)
        try:
            if not effect.is_stored_known:
                pod: Pod = self._kube.get(path, Pod)
                if pod.metadata.uid != name.uid:
                    raise KubeError(404, "NotFound", f"pod {name.uid} is gone, another one has its name")
                stored = Condition.read(pod.condition(CONDITION_TYPE))
            if wanted != stored:
                # The uid keeps the call from touching a later pod of the same name.
                item = _written(wanted, stored)
                body = {"metadata": {"uid": name.uid}, "status": {"conditions": [item]}}
                self._kube.patch_lists(f"{path}/status", body)
                self._metrics.conditions.labels("written").inc()
        except KubeError as error:
            if error.is_not_found:
                return Announced(count, is_gone=True)
            self._metrics.conditions.labels("failed").inc()
            self._complain(f"the condition of {name.key} is not written", str(error))
            if _is_passing(error):
                return Announced(count, has_looked=True, is_stored_known=False, is_away=True)
            # Else it would be refused again.
        return Announced(count, has_looked=True, stored=wanted)

    def _complain(self, message: str, reason: str) -> None:
        """Log that something is lost or late, at most once in a while."""
        with self._lock:
            now = time.monotonic()
            if now < self._next_complaint:
                self._unsaid_complaints += 1
                return
            unsaid, self._unsaid_complaints = self._unsaid_complaints, 0
            self._next_complaint = now + COMPLAINT_INTERVAL_S
        log.warning(message, extra={"fields": {"reason": reason, "others": unsaid}})


def _is_passing(error: KubeError) -> bool:
    """Whether the same call may succeed later."""
    return error.reason == "NoAnswer" or error.status in (408, 429) or error.status >= 500


def _written(wanted: Condition, stored: Condition | None) -> dict[str, str]:
    """The item of a pod's conditions; merged into the one that is there, which keeps its time if its status stays."""
    item = {
        "type": CONDITION_TYPE,
        "status": "True" if wanted.is_true else "False",
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if stored is None or stored.is_true != wanted.is_true:
        item["lastTransitionTime"] = timestamp()
    return item
