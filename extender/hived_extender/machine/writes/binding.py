"""Writes onto pods: their bindings, and the touch that makes kube-scheduler try one again.

**Fencing.** The API server does not know the leader, and a paused replica could write a binding long after a take-over.
So every binding names the pod's `resourceVersion`, known before leadership was last checked. A new leader first touches
every pod without a node (`fence`): late bindings fail as conflicts, wherever they were held up. Calls may take seconds
and are made without a lock. All functions raise KubeError unless they say otherwise.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from hived.values.errors import UserError
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.bind_info import SIGNED, Prover
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.machine.effects import AnnotatePod, BindPod
from hived_extender.machine.pods import PodName

log = logging.getLogger(__name__)

RETRY_ANNOTATION = PREFIX + "pod-retry-at"
"""Written on a waiting pod; the change of the pod is the event that kube-scheduler needs. The time is written without
colons, so that it can be a label's value as well.
"""

FENCING_THREADS = 16
BIND_TRIES = 5
"""Versions of a pod that are tried: another client may write to it at the same moment."""


def read(kube: KubeClient, pod: PodName) -> Pod:
    """The present pod of that name, which may have another uid."""
    return kube.get(pod_path(pod.namespace, pod.name), Pod)


def bind(kube: KubeClient, effect: BindPod, may_write: Callable[[], bool], tried: Callable[[str], None]) -> None:
    """Bind the pod and annotate it. A repeated binding to the same node succeeds.

    `tried` is told each version tried. Raises UserError too: this replica leads no more (503), or the pod has changed
    (409).
    """
    name, version = effect.pod, effect.version
    for _ in range(BIND_TRIES):
        # The version was read before; a replica that led then leads now, or the pod has been touched since.
        if not may_write():
            raise UserError("this replica does not lead any more", code=503)
        try:
            tried(version)
            kube.bind_pod(name.namespace, name.name, name.uid, effect.node, effect.annotations, version=version)
            return
        except KubeError as error:
            if not error.is_conflict:
                raise
            pod = read(kube, name)
            if pod.metadata.uid == name.uid and pod.node == effect.node:
                return
            if pod.metadata.uid != name.uid or pod.node or pod.metadata.version == version:
                raise  # no matter of versions
            version = pod.metadata.version
    raise UserError(f"the pod changed {BIND_TRIES} times meanwhile", code=409)


def annotate(kube: KubeClient, prover: Prover, effect: AnnotatePod) -> None:
    """Change annotations of a bound pod and prove them; one that is not bound, or was replaced, stays as it is."""
    pod = read(kube, effect.pod)
    meta = pod.metadata
    if meta.uid != effect.pod.uid or not pod.node:
        return
    is_proven = prover.proof_of(meta.uid, pod.node, meta.created or "", pod.annotations) is not None
    texts = {name: pod.annotations[name] for name in SIGNED if name in pod.annotations}
    texts = {**(texts if is_proven else effect.anew), **effect.changed}
    proof = prover.sign(meta.uid, pod.node, texts, is_bare=effect.is_bare, quota=effect.quota)
    # The version keeps what is signed from being changed in between.
    about = {"uid": meta.uid, "resourceVersion": meta.version, "annotations": texts | proof}
    kube.patch(pod_path(effect.pod.namespace, effect.pod.name), {"metadata": about})


def fence(kube: KubeClient, pods: Iterable[PodName], *, is_lenient: bool = False) -> Iterator[Pod]:
    """Change the version of every pod; yields each as it is then, without deleted ones.

    A pod that an admission policy or a missing right keeps from being changed is yielded unchanged, with an error in
    the log: one pod must not block all others. With `is_lenient`, any refusal counts so, such as that of an admission
    webhook which is down.
    """

    def touch_or_tell(name: PodName) -> Pod | None:
        try:
            return touch(kube, name)
        except KubeError as error:
            if error.status not in (400, 403, 422) and not (is_lenient and error.status):
                raise
            log.error("a pod cannot be fenced", extra={"fields": {"pod": name.key, "reason": str(error)}})
        return read(kube, name)

    with ThreadPoolExecutor(FENCING_THREADS, "fence") as pool:
        for pod in pool.map(touch_or_tell, pods):
            if pod is not None:
                yield pod


def ping(kube: KubeClient, name: PodName) -> str:
    """Touch one pod; returns its version then, "" if the API server refused."""
    try:
        return _mark(kube, name, "annotations").metadata.version
    except KubeError as error:
        log.info("no ping", extra={"fields": {"pod": name.key, "reason": str(error)}})
        return ""


def touch(kube: KubeClient, name: PodName) -> Pod | None:
    """Change the version of a pod and return it; None if it is gone."""
    try:
        try:
            return _mark(kube, name, "annotations")
        except KubeError as error:
            if not (error.is_conflict or error.is_invalid):
                raise
            pod = read(kube, name)
            if pod.metadata.uid != name.uid:
                return None
            if error.is_conflict:
                return pod  # others changed it, again and again while we tried
            # Its annotations are at their size limit, which the API server does not check when it binds.
            return _mark(kube, name, "labels")
    except KubeError as error:
        if error.is_not_found:
            return None
        raise


def _mark(kube: KubeClient, name: PodName, where: str) -> Pod:
    now = time.time()
    moment = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
    # The uid protects a later pod of the same name.
    body = {"metadata": {"uid": name.uid, where: {RETRY_ANNOTATION: moment}}}
    return cast(Pod, kube.patch(pod_path(name.namespace, name.name), body, Pod))
