"""The objects that pods name as their gang: PodGroups and Workloads, of every kind that the API server has.

Most clusters have few of these kinds, and one may come when jobs already run. So the API server is asked again and
again which there are, and each is followed for as long as it is there. A reader of an object gets the last word of
the watch. Changes can be read before anybody is told of them.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, Resource
from hived_extender.pods.dialects import KINDS
from hived_extender.pods.dialects.description import ObjectRef
from hived_extender.pods.dialects.kinds import Kind

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 60.0
RETRY_S = 5.0

Object = dict[str, Any]


class Objects:
    """See the module. Any thread may read at any time; nothing is there before `start`."""

    def __init__(self, kube: KubeClient, metrics: Metrics) -> None:
        self._kube = kube
        self._metrics = metrics
        self._on_change: Callable[[ObjectRef], None] = lambda ref: None
        self._objects: dict[ObjectRef, Object] = {}
        self._reflectors: dict[str, Reflector[Object]] = {}  # by path
        self._unlisted: set[str] | None = None  # paths; None until it is known which there are
        self._lock = threading.Condition()  # for changes of these three; never held while anybody is told of one
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kinds of gang objects", daemon=True)

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object as it was told last, not to be changed; None if it does not exist. `kind` is `Kind.name`."""
        return self._objects.get(ObjectRef(kind, namespace, name))

    def collection(self, kind: str) -> str:
        """The path under which the API server has all objects of a kind, "" if it has none. `kind` is `Kind.name`."""
        for path in tuple(self._reflectors):
            _, _, group, _, plural = path.split("/")
            if f"{plural}.{group}" == kind:
                return path
        return ""

    def start(self, on_change: Callable[[ObjectRef], None]) -> None:
        """Begin to follow. `on_change` is told of every object that comes, goes or means something else than before:
        its status has no meaning.
        """
        self._on_change = on_change
        self._thread.start()

    def stop(self) -> None:
        """Follow nothing any more. Does not wait for a call under way."""
        with self._lock:
            self._is_stopping.set()
            for reflector in self._reflectors.values():
                reflector.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end after `stop`, up to so long for each thread."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        for reflector in self._reflectors.values():
            reflector.join(timeout_s)

    def wait_until_listed(self, timeout_s: float) -> bool:
        """Wait until all objects are known. False if that takes longer, as where it is not allowed to list them."""
        with self._lock:
            return self._lock.wait_for(lambda: self._unlisted is not None and not self._unlisted, timeout_s)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self._follow(self._served())
                wait_s = LOOK_INTERVAL_S
            except KubeError as error:
                log.warning("cannot see which kinds of gangs there are", extra={"fields": {"cause": str(error)}})
                wait_s = RETRY_S
            except Exception:
                log.exception("the API server's answer which kinds of gangs there are was not understood")
                wait_s = LOOK_INTERVAL_S
            self._is_stopping.wait(wait_s)

    def _served(self) -> dict[str, Kind]:
        """The kinds that the API server has, by the path of the version to be read."""
        groups = {group["name"]: group["versions"] for group in self._kube.get("/apis").get("groups") or ()}
        served = {}
        for kind in KINDS:
            there = {each["version"] for each in groups.get(kind.group, ())}
            bases = [f"/apis/{kind.group}/{version}" for version in kind.versions if version in there]
            base = next((base for base in bases if kind.plural in self._plurals(base)), None)
            if base is not None:
                served[f"{base}/{kind.plural}"] = kind
        return served

    def _plurals(self, base: str) -> set[str]:
        try:
            return {resource["name"] for resource in self._kube.get(base).get("resources") or ()}
        except KubeError as error:
            if error.is_not_found:  # it has gone this very moment
                return set()
            raise

    def _follow(self, served: Mapping[str, Kind]) -> None:
        """Follow these kinds and no others."""
        with self._lock:
            if self._is_stopping.is_set():
                return
            for path in self._reflectors.keys() - served.keys():
                self._reflectors.pop(path).stop()
                log.info("follows gang objects no more", extra={"fields": {"path": path}})
            new = [path for path in served if path not in self._reflectors]
            for path in new:
                resource = self._resource(path, served[path])
                self._reflectors[path] = Reflector(self._kube, resource, self._metrics)
                self._reflectors[path].start()
                log.info("follows gang objects", extra={"fields": {"path": path}})
            self._unlisted = {path for path in self._unlisted or () if path in served} | set(new)
            self._lock.notify_all()
            kinds = {kind.name for kind in served.values()}
            left = [ref for ref in self._objects if ref.kind not in kinds]
        self._take(dict.fromkeys(left))

    def _resource(self, path: str, kind: Kind) -> Resource[Object]:
        return Resource(
            path,
            dict,
            partial(self._listed, path, kind),
            lambda item: self._take({_ref(kind, item): item}, path),
            lambda item: self._take({_ref(kind, item): None}, path),
        )

    def _listed(self, path: str, kind: Kind, items: list[Object]) -> None:
        there = {_ref(kind, item): item for item in items}
        with self._lock:
            gone = [ref for ref in self._objects if ref.kind == kind.name and ref not in there]
        self._take({**dict.fromkeys(gone), **there}, path)
        with self._lock:
            if self._unlisted:
                self._unlisted.discard(path)
                self._lock.notify_all()

    def _take(self, changes: Mapping[ObjectRef, Object | None], path: str = "") -> None:
        """Take in what objects are now, and tell of it; not from a watch that has been ended."""
        with self._lock:
            if path and path not in self._reflectors:
                return
            told = [ref for ref, item in changes.items() if _meaning(item) != _meaning(self._objects.get(ref))]
            for ref, item in changes.items():
                if item is None:
                    self._objects.pop(ref, None)
                else:
                    self._objects[ref] = item
        for ref in told:
            self._on_change(ref)


def _ref(kind: Kind, item: Object) -> ObjectRef:
    return kind.ref(item["metadata"].get("namespace", ""), item["metadata"]["name"])


def _meaning(item: Object | None) -> object:
    """The parts of an object that a dialect may read, and its identity."""
    if item is None:
        return None
    metadata = item["metadata"]
    return item.get("spec"), metadata.get("labels"), metadata.get("annotations"), metadata.get("uid")
