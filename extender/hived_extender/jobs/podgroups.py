"""The objects that pods name as their gang: PodGroups and Workloads, of every kind that the API server has.

A reader gets the latest version of an object that the watch delivered, even before listeners are called.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from hived_extender.jobs.kinds.description import ObjectKind, ObjectRef
from hived_extender.jobs.kinds.table import OBJECTS
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import OptionalKinds

Object = dict[str, Any]


class Objects:
    """Follows the objects. Any thread may read at any time; none is known before `start`."""

    def __init__(self, kube: KubeClient, metrics: Metrics) -> None:
        self._on_change: Callable[[ObjectRef], None] = lambda ref: None
        self._objects: dict[ObjectRef, Object] = {}
        self._lock = threading.Lock()  # for changes of these; never held during a call of `_on_change`
        self._kinds = OptionalKinds(kube, metrics, OBJECTS, self, "gang objects")

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object as it was told last, not to be changed; None if it does not exist. `kind` is `ObjectKind.name`."""
        return self._objects.get(ObjectRef(kind, namespace, name))

    def collection(self, kind: str) -> str:
        """The API server's path of all objects of a kind, `ObjectKind.name`; "" if it has none."""
        return self._kinds.path(lambda one: one.name == kind)

    def start(self, on_change: Callable[[ObjectRef], None]) -> None:
        """Begins to follow. `on_change` is called for each object that comes, goes or changes beyond its status."""
        self._on_change = on_change
        self._kinds.start()

    def stop(self) -> None:
        """Follow nothing any more. Does not wait for a call under way."""
        self._kinds.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end after `stop`, up to so long for each thread."""
        self._kinds.join(timeout_s)

    def wait_until_listed(self, timeout_s: float) -> bool:
        """Wait until all objects are known. False if that takes longer, as where it is not allowed to list them."""
        return self._kinds.wait_until_listed(timeout_s)

    # Told by the watches

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `kube.watch.Told`."""
        there = {_ref(kind, item): item for item in items}
        self._take({**dict.fromkeys(ref for ref in self._of(kind) if ref not in there), **there})

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        self._take({_ref(kind, item): item})

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        self._take({_ref(kind, item): None})

    def unserved(self, kind: ObjectKind) -> None:
        """See `kube.watch.Told`."""
        self._take(dict.fromkeys(self._of(kind)))

    def _of(self, kind: ObjectKind) -> list[ObjectRef]:
        with self._lock:
            return [ref for ref in self._objects if ref.kind == kind.name]

    def _take(self, changes: Mapping[ObjectRef, Object | None]) -> None:
        """Take in what objects are now, and tell of it."""
        with self._lock:
            told = [ref for ref, item in changes.items() if _meaning(item) != _meaning(self._objects.get(ref))]
            for ref, item in changes.items():
                if item is None:
                    self._objects.pop(ref, None)
                else:
                    self._objects[ref] = item
        for ref in told:
            self._on_change(ref)


def _ref(kind: ObjectKind, item: Object) -> ObjectRef:
    return kind.ref(item["metadata"].get("namespace", ""), item["metadata"]["name"])


def _meaning(item: Object | None) -> object:
    """The parts of an object that a dialect may read, and its identity."""
    if item is None:
        return None
    metadata = item["metadata"]
    version = item.get("apiVersion")
    return item.get("spec"), metadata.get("labels"), metadata.get("annotations"), metadata.get("uid"), version
