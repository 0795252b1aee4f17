"""Events about pods, folded: the same message about the same pod counts up one event instead of adding another.

An event's name follows from its text and its pod. So another replica, or this process after a restart, counts up the
event that is there already. A creation whose answer was lost can be repeated.
"""

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import timestamp

NORMAL = "Normal"
WARNING = "Warning"

NODE = "Node"
"""The kind of a `NodeRef`."""

MESSAGE_LIMIT = 1024
"""Bytes; what Kubernetes allows the note of an event."""

BURST, REFILL_S, RESERVE = 25, 300.0, 12
"""Events that one object may have at once, and seconds until it may have another one, as those of Kubernetes' own
components; and the events that repeats leave to other words.
"""

REMEMBERED_EVENTS = 16_384
_NAME_LIMIT = 253
_DIGEST_LENGTH = 16


class PodRef(Protocol):
    """The pod that an event is about."""

    @property
    def uid(self) -> str:
        """Its identity."""

    @property
    def namespace(self) -> str:
        """The namespace of the pod and of its events."""

    @property
    def name(self) -> str:
        """Its name."""


class NodeRef(msgspec.Struct, frozen=True):
    """A node as something to tell about, in the way of kubelet: known by its name, its events in one namespace."""

    name: str
    namespace: str = "default"

    @property
    def uid(self) -> str:
        """Its name."""
        return self.name


class Tokens(msgspec.Struct):
    """The token bucket of the events about one object, at a moment; by any one clock."""

    left: float
    at_s: float
    burst: float = BURST
    refill_s: float = REFILL_S

    def due_at(self, reserve: float = 0.0) -> float:
        """Return when there is a token besides this reserve; -infinity if there is one already."""
        missing = 1.0 + reserve - self.left
        return self.at_s + missing * self.refill_s if missing > 0 else -math.inf

    def take(self, now: float) -> None:
        """Take one."""
        gained = max(0.0, now - self.at_s) / self.refill_s
        self.left, self.at_s = min(self.burst, self.left + gained) - 1.0, now


class EventsApi(Protocol):
    """The calls to the API server; `kube.KubeClient` is one. Every method raises KubeError."""

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object in a collection."""

    def get(self, path: str, item_type: type[Any]) -> Any:
        """Read one object."""

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge into one object."""


class _Counted(msgspec.Struct):
    count: int | None = None


class EventRecorder:
    """Writes events as `component`. Thread-safe, as long as no two threads write the same message about the same pod.

    Remembers the counts of the last REMEMBERED_EVENTS events; a count that is forgotten is read again.
    """

    def __init__(self, kube: EventsApi, component: str, instance: str = "") -> None:
        self._kube = kube
        self._component = component
        self._instance = instance or component
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, int] = OrderedDict()

    def record(
        self,
        pod: PodRef,
        event_type: str,
        reason: str,
        message: str,
        *,
        times: int = 1,
        since_s: float | None = None,
        about: str = "Pod",
    ) -> bool:
        """Say something about `pod` that happened `times` times, first at `since_s` (seconds of the epoch).

        With 0 `times` an event of this name that is there already stays as it is, so that replicas write it once.

        `about` is the kind of object, where it is no pod, behind its "group/version/" if that is not "v1".

        `event_type` is NORMAL or WARNING. Returns True if this is a new event, False if one was counted up. Raises
        KubeError; then it is not known whether the event was written.
        """
        message = clipped(message)
        collection = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/events"
        name = _event_name(pod, self._component, event_type, reason, message)
        path = f"{collection}/{quote(name, safe='')}"
        known = self._recall(path)
        if known is not None and (not times or self._count_up(path, known + times)):
            return False
        event = self._event(pod, name, event_type, reason, message, times or 1, since_s)
        version, _, event["involvedObject"]["kind"] = about.rpartition("/")
        event["involvedObject"]["apiVersion"] = version or "v1"
        if about == NODE:
            del event["involvedObject"]["namespace"]
        try:
            self._kube.create(collection, event)
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
            if not times:
                return False
            stored: _Counted = self._kube.get(path, _Counted)
            if not self._count_up(path, (stored.count or 1) + times):
                raise  # it has expired in this very moment
            return False
        self._remember(path, times or 1)
        return True

    def forget_counts(self) -> None:
        """Others may count the same events up from now on; each is read again before it is counted."""
        with self._lock:
            self._counts.clear()

    def _count_up(self, path: str, count: int) -> bool:
        """Return False if the event has expired on the server."""
        try:
            self._kube.patch(path, {"count": count, "lastTimestamp": timestamp()})
        except KubeError as error:
            if error.is_not_found:
                return False
            raise
        self._remember(path, count)
        return True

    def _recall(self, path: str) -> int | None:
        with self._lock:
            return self._counts.get(path)

    def _remember(self, path: str, count: int) -> None:
        with self._lock:
            self._counts[path] = count
            self._counts.move_to_end(path)
            while len(self._counts) > REMEMBERED_EVENTS:
                self._counts.popitem(last=False)

    def _event(
        self, pod: PodRef, name: str, event_type: str, reason: str, message: str, times: int, since_s: float | None
    ) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": event_type,
            "reason": reason,
            "message": message,
            "count": times,
            "firstTimestamp": timestamp(since_s),
            "lastTimestamp": timestamp(),
            # Optional here, but clients of events.k8s.io, which shows the same objects, count on these two.
            "eventTime": timestamp(since_s and int(since_s), 6),
            "action": "Scheduling",
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def clipped(message: str) -> str:
    """A message of at most MESSAGE_LIMIT bytes, whatever is in it."""
    if message.isascii() and len(message) <= MESSAGE_LIMIT:
        return message
    data = message.encode("utf-8", "replace")
    if len(data) <= MESSAGE_LIMIT:
        return data.decode()
    return data[: MESSAGE_LIMIT - 3].decode("utf-8", "ignore") + "..."


def _event_name(pod: PodRef, *saying: str) -> str:
    digest = hashlib.sha256("\0".join((pod.uid, *saying)).encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{pod.name[: _NAME_LIMIT - _DIGEST_LENGTH - 1].rstrip('-.')}.{digest}"
