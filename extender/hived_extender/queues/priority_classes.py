"""PriorityClasses whose pods preempt nobody. Templates of jobs name a class; only pods say what it means for them."""

import threading
from collections.abc import Callable, Iterable

from hived_extender.jobs.wire import Pod
from hived_extender.kube.watch import Object, ObjectKind
from hived_extender.machine.pods import NEVER

CLASSES = ObjectKind("scheduling.k8s.io", "priorityclasses", ("v1",))


class WatchedClasses:
    """See the module. Thread-safe. `wake` is called when a class comes or goes that preempts nobody.

    Jobs may come before their class, and classes may go: `take_changed` says that all jobs are to be looked at again.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._never: dict[str, bool] = {}  # by name, whether it is the class of pods that name none
        self._has_changed = False

    def preempts(self, pods: Iterable[Pod]) -> bool:
        """May others leave for a job of these pods? Not if one of them says so, or its class."""
        never = self._never
        unnamed = any(never.values())
        for spec in [pod.spec for pod in pods if pod.spec is not None]:
            name = spec.priority_class_name
            if spec.preemption_policy == NEVER:
                return False
            if not spec.preemption_policy and (name in never if name else unnamed):
                return False
        return True

    def take_changed(self) -> bool:
        """Are there other such classes than at the last call?"""
        with self._lock:
            changed, self._has_changed = self._has_changed, False
            return changed

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `kube.watch.Told`."""
        self._put({_name(item): _is_default(item) for item in items if _is_never(item)})
        self._wake()

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`. A class that was deleted and made anew may have another policy."""
        others = {name: each for name, each in self._never.items() if name != _name(item)}
        self._put(others | ({_name(item): _is_default(item)} if _is_never(item) else {}))

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        self._put({name: each for name, each in self._never.items() if name != _name(item)})

    def unserved(self, kind: ObjectKind) -> None:
        """See `kube.watch.Told`."""
        self.listed(kind, [])

    def _put(self, never: dict[str, bool]) -> None:
        with self._lock:
            if never == self._never:
                return
            self._never, self._has_changed = never, True
        self._wake()


def _name(item: Object) -> str:
    return str((item.get("metadata") or {}).get("name") or "")


def _is_never(item: Object) -> bool:
    return item.get("preemptionPolicy") == NEVER


def _is_default(item: Object) -> bool:
    return item.get("globalDefault") is True
