"""What the scheduler writes to the API server: bindings, and the nudge that makes kube-scheduler try a pod again.

Every call may take seconds and is made without any lock. Calls that nobody waits for run on a few threads of their own.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from hived.errors import UserError
from hived.specs import BindInfo
from hived_extender.annotations import PREFIX, bind_annotations
from hived_extender.kube import KubeError, pod_path
from hived_extender.metrics import Metrics
from hived_extender.pods import PodRecord
from hived_extender.wire import Pod

log = logging.getLogger(__name__)

RETRY_ANNOTATION = PREFIX + "pod-retry-at"
"""Written on a waiting pod; the change of the pod is the event that kube-scheduler needs."""

BACKGROUND_THREADS = 8
FORCE_WAITS_S = (0.0, 0.2, 1.0, 5.0)
"""Before each attempt to bind by force; after the last one, the pod's next filter call starts over."""


class KubeApi(Protocol):
    """What is asked of the API server; `kube.KubeClient` is one. Every method raises KubeError."""

    def bind_pod(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Bind a pod and annotate it."""

    def get(self, path: str, item_type: type[Any]) -> Any:
        """Read one object."""

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge into one object."""


class Binder:
    """Thread-safe. Of a `PodRecord` it reads only what never changes: uid, namespace and name."""

    def __init__(self, kube: KubeApi, metrics: Metrics) -> None:
        self._kube = kube
        self._metrics = metrics
        self._background = ThreadPoolExecutor(BACKGROUND_THREADS, "binder")
        self._is_closing = threading.Event()

    def write(self, record: PodRecord, info: BindInfo, origin: str) -> None:
        """Bind the pod. Binding it to the same node again is a success.

        Raises UserError (502) if the API server refuses or does not answer.
        """
        try:
            self._kube.bind_pod(record.namespace, record.name, record.uid, info.node, bind_annotations(info))
        except KubeError as error:
            if not (error.is_conflict and self._is_bound(record, info.node)):
                self._tell(record, info, origin, "error", str(error))
                raise UserError(f"{record.key} cannot be bound to {info.node}: {error}", code=502) from error
        self._tell(record, info, origin, "ok")

    def write_later(self, record: PodRecord, info: BindInfo, when_done: Callable[[], None]) -> None:
        """Bind the pod in the background, trying a few times; kube-scheduler has given the pod up for minutes."""

        def run() -> None:
            try:
                for wait_s in FORCE_WAITS_S:
                    if self._is_closing.wait(wait_s):
                        return
                    with suppress(UserError):
                        self.write(record, info, "force")
                        return
            finally:
                when_done()

        self._background.submit(run)

    def ask_retry_later(self, record: PodRecord) -> None:
        """In the background, make kube-scheduler try a pod again."""

        def run() -> None:
            annotations = {RETRY_ANNOTATION: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            try:
                self._kube.patch(pod_path(record.namespace, record.name), {"metadata": {"annotations": annotations}})
            except KubeError as error:
                if error.is_not_found:
                    return  # deleted meanwhile
                log.warning("retry not asked", extra={"fields": {"pod": record.key, "reason": str(error)}})

        self._background.submit(run)

    def close(self) -> None:
        """Wait for calls under way; start no more, nor those that still wait for a thread."""
        self._is_closing.set()
        self._background.shutdown(wait=True, cancel_futures=True)

    def _tell(self, record: PodRecord, info: BindInfo, origin: str, outcome: str, reason: str = "") -> None:
        self._metrics.binds.labels(origin, outcome).inc()
        fields = {"pod": record.key, "node": info.node, "origin": origin, "outcome": outcome, "reason": reason}
        log.log(logging.WARNING if reason else logging.INFO, "bind", extra={"fields": fields})

    def _is_bound(self, record: PodRecord, node: str) -> bool:
        try:
            pod: Pod = self._kube.get(pod_path(record.namespace, record.name), Pod)
        except KubeError:
            return False
        return pod.metadata.uid == record.uid and pod.node == node
