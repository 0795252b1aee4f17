"""An observer of its own, directly at the API server: it notes every version of every node and pod, and judges nothing.

Versions are one order for both kinds, so that it is known exactly in which order things were stored. Only before a list
something may have happened unseen; notes of a list say so of themselves.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hived_extender.kube.client import NODES, PODS, KubeClient, KubeError
from tests.e2e.mixed.facts import Json, PodSeen, Seen, node_seen, pod_seen

RETRY_S = 0.1
EVENTS = "/api/v1/events"


class Observer:
    """Watches from `start` to `stop`; `connect` makes a client for each of its watches."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        self._notes: list[Seen] = []
        self._lock = threading.Lock()
        self._watchers = [
            _Watcher(connect(), NODES, node_seen, self._note),
            _Watcher(connect(), PODS, pod_seen, self._note),
        ]

    def start(self) -> None:
        """Begin to watch."""
        for one in self._watchers:
            one.start()

    def stop(self) -> None:
        """End; its clients are closed."""
        for one in self._watchers:
            one.stop()

    def notes(self) -> list[Seen]:
        """Everything until now, in the order in which it was stored."""
        with self._lock:
            return sorted(self._notes, key=lambda seen: seen.version)

    def pods(self) -> list[PodSeen]:
        """Every pod that is there, as it is now."""
        last = {seen.uid: seen for seen in self.notes() if isinstance(seen, PodSeen)}
        return [seen for seen in last.values() if not seen.is_gone]

    def _note(self, seen: Seen) -> None:
        with self._lock:
            self._notes.append(seen)


class _Watcher:
    """Follows one collection in a thread of its own, and goes on when an API server that was away is back."""

    def __init__(self, kube: KubeClient, path: str, read: Callable[..., Seen], note: Callable[[Seen], None]) -> None:
        self._kube = kube
        self._path = path
        self._read = read
        self._note = note
        self._present: dict[str, Seen] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"observer of {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._kube.close()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                version = version or self._list()
                for event in self._kube.watch(self._path, dict[str, Any], version):
                    if event.object is not None:
                        self._take(event.object, is_gone=event.type == "DELETED")
                    version = event.resource_version or version
            except KubeError as error:
                if error.status:
                    version = ""
                self._stop.wait(RETRY_S)

    def _list(self) -> str:
        """Note what differs from what was seen before; returns the version to go on from."""
        listing = self._kube.list_objects(self._path, dict[str, Any])
        there = {found["metadata"]["uid"] for found in listing.items}
        for uid in self._present.keys() - there:
            gone = replace(
                self._present.pop(uid),
                version=int(listing.resource_version),
                at=time.monotonic(),
                is_gone=True,
                is_listed=True,
            )
            self._note(gone)
        for found in listing.items:
            before = self._present.get(found["metadata"]["uid"])
            if before is None or before.version < int(found["metadata"]["resourceVersion"]):
                self._take(found, is_listed=True)
        return listing.resource_version

    def _take(self, found: Json, *, is_gone: bool = False, is_listed: bool = False) -> None:
        seen = self._read(found, time.monotonic(), is_gone=is_gone, is_listed=is_listed)
        uid = found["metadata"]["uid"]
        if is_gone:
            self._present.pop(uid, None)
        else:
            self._present[uid] = seen
        self._note(seen)


def forced_bindings(kube: KubeClient) -> list[str]:
    """Events about pods that were bound without kube-scheduler."""
    found = kube.list_objects(EVENTS, dict[str, Any], field_selector="reason=ForcedBinding").items
    return [f"{one['involvedObject']['name']} was bound by force: {one.get('message', '')}" for one in found]
