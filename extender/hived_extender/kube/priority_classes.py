"""PriorityClasses, for questions about pods that do not exist yet: the API server has not written onto them what their
class says. Thread-safe.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from hived_extender.kube.client import KubeClient, KubeError

log = logging.getLogger(__name__)

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

KEPT_S = 30.0
"""For so long the classes that were read last are good."""


class _Metadata(msgspec.Struct):
    name: str = ""


class PriorityClass(msgspec.Struct, rename="camel"):
    """A class as the API server has it."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class PriorityClasses:
    """The classes as last listed. Without the right to list them, or without an answer, there are none."""

    def __init__(self, kube: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube, self._clock = kube, clock
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._by_name: Mapping[str, PriorityClass] = {}

    def find(self, name: str) -> PriorityClass | None:
        """The class of a name; for "" the one of pods that name none. None if there is no such class.

        Cost: a list call, if the last one was a while ago.
        """
        with self._lock:
            if self._read_at is None or self._clock() - self._read_at > KEPT_S:
                self._by_name, self._read_at = self._read(), self._clock()
            if name:
                return self._by_name.get(name)
            return next((one for one in self._by_name.values() if one.global_default), None)

    def _read(self) -> Mapping[str, PriorityClass]:
        try:
            found = self._kube.list_objects(PRIORITY_CLASSES, PriorityClass)
        except KubeError as error:
            log.warning("PriorityClasses not read", extra={"fields": {"reason": str(error)}})
            return {}
        return {one.metadata.name: one for one in found.items}
