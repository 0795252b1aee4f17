"""What the service writes onto pods: their bindings, and the touch that makes kube-scheduler try one again.

**Fencing.** The API server does not know who leads, so a replica that was paused at the wrong moment could still write
a binding long after another took over. Every binding therefore names the pod's `resourceVersion`, known before
leadership was last checked, and whoever begins to lead first touches every pod without a node (`touch`), which changes
that version. A late binding then fails as a conflict, wherever it was held up: in this process, in a socket, or in the
API server.

Every call may take seconds and is made without any lock. Calls that nobody waits for run on a few threads of their own.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, cast

from hived.errors import UserError
from hived_extender.kube.client import KubeError, pod_path
from hived_extender.kube.logs import tell_failure
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.annotations import PREFIX
from hived_extender.pods.proofs import SIGNED, Prover
from hived_extender.pods.wire import Pod
from hived_extender.service.pods import PodRecord

log = logging.getLogger(__name__)

RETRY_ANNOTATION = PREFIX + "pod-retry-at"
"""Written on a waiting pod; the change of the pod is the event that kube-scheduler needs. The time is written without
colons, so that it can be a label's value as well.
"""

BACKGROUND_THREADS = 16
BIND_TRIES = 5
"""Versions of a pod that are tried: somebody else may write to it at the same moment."""

FORCE_WAITS_S = (0.0, 0.2, 1.0, 5.0)
"""Before each attempt to bind by force; after the last one, kube-scheduler is asked to try the pod again."""


SILENT_S = 1.0
"""After a wake without an answer, others are not tried: thousands of them would keep the service from its work."""


class KubeApi(Protocol):
    """What is asked of the API server; `kube.KubeClient` is one. Every method raises KubeError."""

    def bind_pod(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str], *, version: str = ""
    ) -> None:
        """Bind a pod and annotate it, if it still has this version."""

    def get(self, path: str, item_type: type[Any]) -> Any:
        """Read one object."""

    def patch(self, path: str, body: Mapping[str, Any], item_type: type[Any] = dict) -> Any:
        """Merge into one object and return it as it is then."""


class Binder:
    """Thread-safe. Of a `PodRecord` it reads only uid, namespace and name, which never change, and the version; it
    notes which version a binding was tried with last.

    `may_write` tells whether the term of leadership in which a binding was decided goes on.
    """

    def __init__(self, kube: KubeApi, metrics: Metrics, prover: Prover) -> None:
        self._kube = kube
        self._prover = prover
        self._metrics = metrics
        # Apart, since some of the former wait between their tries.
        self._background = ThreadPoolExecutor(BACKGROUND_THREADS, "binder")
        self._wakes = ThreadPoolExecutor(BACKGROUND_THREADS, "wake")
        self._is_closing = threading.Event()
        self._silent_until = 0.0

    def write(
        self, record: PodRecord, node: str, annotations: Mapping[str, str], origin: str, may_write: Callable[[], bool]
    ) -> None:
        """Bind the pod and annotate it. Binding it to the same node again is a success.

        Raises UserError if this replica does not lead any more (503), the pod is not what it was (409), or the API
        server refuses or does not answer (502).
        """
        try:
            self._bind(record, node, annotations, may_write)
        except (UserError, KubeError) as error:
            text = f"{record.key} cannot be bound to {node}: {error}"
            self._tell(record, node, origin, "error", str(error))
            raise UserError(text, code=error.code if isinstance(error, UserError) else 502) from error
        self._tell(record, node, origin, "ok")

    def write_later(
        self,
        record: PodRecord,
        node: str,
        annotations: Mapping[str, str],
        may_write: Callable[[], bool],
        when_done: Callable[[bool], None],
    ) -> None:
        """Bind the pod in the background, trying a few times; kube-scheduler has given the pod up for minutes.

        `when_done` is told whether the pod was bound.
        """

        def run() -> None:
            is_bound = False
            try:
                for wait_s in FORCE_WAITS_S:
                    if self._is_closing.wait(wait_s) or not may_write():
                        return
                    with suppress(UserError):
                        self.write(record, node, annotations, "force", may_write)
                        is_bound = True
                        return
            finally:
                when_done(is_bound)

        self._background.submit(run).add_done_callback(tell_failure)

    def ask_retry_later(self, record: PodRecord, when_failed: Callable[[], None]) -> None:
        """In the background, make kube-scheduler try a pod again; `when_failed` is called if that did not succeed."""

        def run() -> None:
            if self._is_closing.is_set():
                return
            if time.monotonic() < self._silent_until:
                when_failed()
                return
            try:
                self._touch(record)
            except KubeError as error:
                if error.status == 0:
                    self._silent_until = time.monotonic() + SILENT_S
                log.warning("retry not asked", extra={"fields": {"pod": record.key, "reason": str(error)}})
                when_failed()

        self._wakes.submit(run).add_done_callback(tell_failure)

    def annotate_later(
        self,
        record: PodRecord,
        changed: Mapping[str, str],
        anew: Mapping[str, str],
        is_bare: bool,
        may_write: Callable[[], bool],
    ) -> None:
        """In the background, change annotations of a bound pod and prove them, trying a few times.

        `anew` is all that was written onto it: it replaces what is there, unless that is proven. For `is_bare` see
        `Proof`.
        """

        def run() -> None:
            for wait_s in FORCE_WAITS_S:
                if self._is_closing.wait(wait_s) or not may_write():
                    return
                try:
                    self._annotate(record, changed, anew, is_bare)
                    return
                except KubeError as error:
                    if error.is_not_found:
                        return
                    if not error.is_conflict:
                        fields = {"pod": record.key, "reason": str(error)}
                        log.warning("bind info not written anew", extra={"fields": fields})

        self._background.submit(run).add_done_callback(tell_failure)

    def _annotate(self, record: PodRecord, changed: Mapping[str, str], anew: Mapping[str, str], is_bare: bool) -> None:
        pod: Pod = self._kube.get(pod_path(record.namespace, record.name), Pod)
        meta = pod.metadata
        if meta.uid != record.uid or not pod.node:
            return
        is_proven = self._prover.proof_of(meta.uid, pod.node, meta.created or "", pod.annotations) is not None
        texts = {name: pod.annotations[name] for name in SIGNED if name in pod.annotations} if is_proven else dict(anew)
        texts |= changed
        proof = self._prover.sign(meta.uid, pod.node, texts, is_bare=is_bare)
        # The version keeps what is signed from being changed in between.
        about = {"uid": meta.uid, "resourceVersion": meta.version, "annotations": texts | proof}
        self._kube.patch(pod_path(record.namespace, record.name), {"metadata": about})

    def touch(self, records: Iterable[PodRecord], *, is_lenient: bool = False) -> Iterator[Pod]:
        """Change the version of every pod now; yields each as it is then. Those that are gone are left out.

        A pod that the API server will not have changed, for an admission policy or for want of the right to, is yielded
        as it is, with an error in the log: one such pod must not keep everybody from being served. Where `is_lenient`,
        that goes for any refusal, such as that of an admission webhook which is down. Raises KubeError otherwise.
        """
        with ThreadPoolExecutor(BACKGROUND_THREADS, "fence") as pool:
            for pod in pool.map(lambda record: self._touch_or_tell(record, is_lenient), records):
                if pod is not None:
                    yield pod

    def ping(self, record: PodRecord) -> str:
        """Touch one pod; returns its version then, "" if the API server did not do it."""
        try:
            return self._mark(record, "annotations").metadata.version
        except KubeError as error:
            log.info("no ping", extra={"fields": {"pod": record.key, "reason": str(error)}})
            return ""

    def read(self, namespace: str, name: str) -> Pod:
        """A pod as it is now. Raises UserError (502) if the API server does not say."""
        try:
            pod: Pod = self._kube.get(pod_path(namespace, name), Pod)
        except KubeError as error:
            raise UserError(f"{namespace}/{name} cannot be read: {error}", code=502) from error
        return pod

    def close(self) -> None:
        """Wait for calls under way; start no more, nor those that still wait for a thread."""
        self._is_closing.set()
        for pool in (self._background, self._wakes):
            pool.shutdown(wait=True, cancel_futures=True)

    def _bind(
        self, record: PodRecord, node: str, annotations: Mapping[str, str], may_write: Callable[[], bool]
    ) -> None:
        version = record.version
        for _ in range(BIND_TRIES):
            # The version was read before; a replica that led then leads now, or the pod has been touched since.
            if not may_write():
                raise UserError("this replica does not lead any more", code=503)
            try:
                record.tried_version = version
                self._kube.bind_pod(record.namespace, record.name, record.uid, node, annotations, version=version)
                return
            except KubeError as error:
                if not error.is_conflict:
                    raise
                version = self._version_to_bind(record, node, version, error)
                if not version:
                    return
        raise UserError(f"the pod changed {BIND_TRIES} times meanwhile", code=409)

    def _version_to_bind(self, record: PodRecord, node: str, tried: str, conflict: KubeError) -> str:
        """The version that the pod has now, "" if it is bound to that node; raises `conflict` if that was no matter of
        versions.
        """
        pod: Pod = self._kube.get(pod_path(record.namespace, record.name), Pod)
        if pod.metadata.uid == record.uid and pod.node == node:
            return ""
        if pod.metadata.uid != record.uid or pod.node or pod.metadata.version == tried:
            raise conflict
        return pod.metadata.version

    def _touch_or_tell(self, record: PodRecord, is_lenient: bool) -> Pod | None:
        try:
            return self._touch(record)
        except KubeError as error:
            if error.status not in (400, 403, 422) and not (is_lenient and error.status):
                raise
            log.error("a pod cannot be fenced", extra={"fields": {"pod": record.key, "reason": str(error)}})
        return cast(Pod, self._kube.get(pod_path(record.namespace, record.name), Pod))

    def _touch(self, record: PodRecord) -> Pod | None:
        try:
            try:
                return self._mark(record, "annotations")
            except KubeError as error:
                if not (error.is_conflict or error.is_invalid):
                    raise
                pod: Pod = self._kube.get(pod_path(record.namespace, record.name), Pod)
                if pod.metadata.uid != record.uid:
                    return None
                if error.is_conflict:
                    return pod  # others changed it, again and again while we tried
                # Its annotations are as large as they may be, which an API server does not mind when it binds.
                return self._mark(record, "labels")
        except KubeError as error:
            if error.is_not_found:
                return None
            raise

    def _mark(self, record: PodRecord, where: str) -> Pod:
        """Write the time into the annotations or the labels of the pod."""
        now = time.time()
        moment = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        # The uid keeps a later pod of the same name as it is.
        body = {"metadata": {"uid": record.uid, where: {RETRY_ANNOTATION: moment}}}
        return cast(Pod, self._kube.patch(pod_path(record.namespace, record.name), body, Pod))

    def _tell(self, record: PodRecord, node: str, origin: str, outcome: str, reason: str = "") -> None:
        self._metrics.binds.labels(origin, outcome).inc()
        fields = {"pod": record.key, "node": node, "origin": origin, "outcome": outcome, "reason": reason}
        log.log(logging.WARNING if reason else logging.INFO, "bind", extra={"fields": fields})
