"""Events that the scheduler loop writes, folded: the same message about the same object counts up one event."""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hived_extender.embedded.apiserver.kinds import micro_timestamp, timestamp
from hived_extender.kube import KubeClient, KubeError

COMPONENT = "default-scheduler"
REMEMBERED_EVENTS = 4096

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    path: str
    count: int


class EventRecorder:
    """Writes events about pods; to be used from one thread. A write that fails is logged and forgotten."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()

    def record(self, pod: Mapping[str, Any], event_type: str, reason: str, message: str) -> None:
        """Say something about `pod`; `event_type` is Normal or Warning."""
        metadata = pod["metadata"]
        key = (metadata["uid"], event_type, reason, message)
        try:
            known = self._known.get(key)
            if known is None or not self._count_up(known):
                self._known[key] = self._create(metadata, event_type, reason, message)
        except KubeError as error:
            log.info("the event %s about %s/%s is lost: %s", reason, metadata["namespace"], metadata["name"], error)
            return
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED_EVENTS:
            self._known.popitem(last=False)

    def _count_up(self, known: _Known) -> bool:
        """Return False if the event has expired on the server."""
        try:
            self._kube.patch(known.path, {"count": known.count + 1, "lastTimestamp": timestamp()})
        except KubeError as error:
            if error.is_not_found:
                return False
            raise
        known.count += 1
        return True

    def _create(self, metadata: Mapping[str, Any], event_type: str, reason: str, message: str) -> _Known:
        namespace, now = metadata["namespace"], timestamp()
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
        stored = self._kube.create(
            path,
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{metadata['name']}.", "namespace": namespace},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": namespace,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
                "type": event_type,
                "reason": reason,
                "message": message,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "eventTime": micro_timestamp(),
                "action": "Scheduling",
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
                "reportingInstance": COMPONENT,
            },
        )
        return _Known(f"{path}/{quote(stored['metadata']['name'], safe='')}", 1)
