"""The labels of namespaces, for rules that choose namespaces by label."""

import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from hived_extender.jobs.wire import LabelledMetadata
from hived_extender.kube.client import NAMESPACES
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, Resource, WatchApi

_UNKNOWN: Mapping[str, str] = MappingProxyType({})


class Namespace(msgspec.Struct):
    """A Kubernetes namespace, as far as rules look at it."""

    metadata: LabelledMetadata

    @property
    def labels(self) -> dict[str, str]:
        """Its labels; its name is always among them, as an old API server may leave it out."""
        return {**(self.metadata.labels or {}), NAMESPACE_NAME: self.metadata.name}


class Namespaces:
    """Follows the namespaces of the API server. Any thread may read at any time; nothing is known before `start`."""

    def __init__(self, kube: WatchApi, metrics: Metrics) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self._on_change: Callable[[str], None] = lambda namespace: None
        self._is_listed = threading.Event()
        self._is_started = False
        self._lock = threading.Lock()  # for changes; never held during a call of `_on_change`
        resource = Resource(NAMESPACES, Namespace, self._listed, self._seen, self._gone)
        self._reflector = Reflector(kube, resource, metrics)

    def labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace, its name among them; none if the namespace is not known, or not yet."""
        return self._labels.get(namespace, _UNKNOWN)

    def start(self, on_change: Callable[[str], None]) -> None:
        """Begin to follow; only the first call has an effect.

        `on_change` is called with a namespace that is new, gone, or has other labels than before. By then `labels`
        gives the new ones.
        """
        with self._lock:
            if self._is_started:
                return
            self._is_started = True
            self._on_change = on_change
        self._reflector.start()

    def stop(self) -> None:
        """Follow nothing any more. Does not wait for a call under way."""
        self._reflector.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end after `stop`."""
        self._reflector.join(timeout_s)

    def wait_until_listed(self, timeout_s: float) -> bool:
        """Wait until all namespaces are known. False if that takes longer, as where it is not allowed to list them."""
        return self._is_listed.wait(timeout_s)

    def _listed(self, items: list[Namespace]) -> None:
        there: dict[str, Mapping[str, str] | None] = {item.metadata.name: item.labels for item in items}
        with self._lock:
            gone = [name for name in self._labels if name not in there]
        self._take({**dict.fromkeys(gone), **there})
        self._is_listed.set()

    def _seen(self, item: Namespace) -> None:
        self._take({item.metadata.name: item.labels})

    def _gone(self, item: Namespace) -> None:
        self._take({item.metadata.name: None})

    def _take(self, changes: Mapping[str, Mapping[str, str] | None]) -> None:
        with self._lock:
            changed = [name for name, labels in changes.items() if labels != self._labels.get(name)]
            for name in changed:
                labels = changes[name]
                if labels is None:
                    del self._labels[name]
                else:
                    self._labels[name] = labels
        for name in changed:
            self._on_change(name)


class KnownLabels(Mapping[str, Mapping[str, str]]):
    """The labels of namespaces by name, as far as a function knows them; it has none for others."""

    def __init__(self, labels_of: Callable[[str], Mapping[str, str]]) -> None:
        self._labels_of = labels_of

    def __getitem__(self, namespace: str) -> Mapping[str, str]:
        if labels := self._labels_of(namespace):
            return labels
        raise KeyError(namespace)

    def __iter__(self) -> Iterator[str]:
        return iter(())  # the function cannot list them

    def __len__(self) -> int:
        return 0


NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has: its own name."""
