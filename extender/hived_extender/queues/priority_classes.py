"""PriorityClasses whose pods preempt nobody. Templates of jobs name a class; only pods say what it means for them."""

import threading
from collections.abc import Callable, Iterable

from hived_extender.kube.optional_kinds import Object, ObjectKind
from hived_extender.pods.wire import Pod
from hived_extender.service.pods import NEVER

CLASSES = ObjectKind("scheduling.k8s.io", "priorityclasses", ("v1",))


class WatchedClasses:
    """See the module. Thread-safe. `wake` is called when a class comes or goes that preempts nobody."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._never: dict[str, None] = {}

    def preempts(self, pods: Iterable[Pod]) -> bool:
        """May others leave for a job of these pods? Not if one of them says so, or its class."""
        specs = [pod.spec for pod in pods if pod.spec is not None]
        return not any(
            spec.preemption_policy == NEVER or (not spec.preemption_policy and spec.priority_class_name in self._never)
            for spec in specs
        )

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `optional_kinds.Told`."""
        with self._lock:
            self._never = {_name(item): None for item in items if _is_never(item)}
        self._wake()

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        if _is_never(item):
            with self._lock:
                self._never = {**self._never, _name(item): None}
            self._wake()

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `optional_kinds.Told`."""
        with self._lock:
            self._never = {name: None for name in self._never if name != _name(item)}

    def unserved(self, kind: ObjectKind) -> None:
        """See `optional_kinds.Told`."""
        self.listed(kind, [])


def _name(item: Object) -> str:
    return str((item.get("metadata") or {}).get("name") or "")


def _is_never(item: Object) -> bool:
    return item.get("preemptionPolicy") == NEVER
