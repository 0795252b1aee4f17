"""Creating what was planned, in the order in which Kubernetes needs it."""

import time
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

from hived.errors import UserError
from hived_extender.jobs.submission import Manifest, PlannedPod, priority_classes
from hived_extender.kube import KubeClient, KubeError

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"

ADMISSION_S = 10.0
"""For the admission of pods to hear of a new PriorityClass: it reads them from a watch, each API server its own."""

ADMISSION_CHECK_S = 0.1


def create_pods(kube: KubeClient, namespace: str, pods: Sequence[PlannedPod]) -> list[Manifest]:
    """Create the priority classes that are missing, then the pods one by one; returns them as stored.

    A pod that names a namespace of its own goes there. Raises UserError if two pods have one name, before anything is
    created, or for a pod that the API server refuses. Then, and when it is interrupted, the pods created before are
    deleted again, because a gang that lacks a member would hold its cells and wait.
    """
    _refuse_equal_names(namespace, pods)
    for priority_class in priority_classes(pods):
        try:
            kube.create(PRIORITY_CLASSES, priority_class)
        except KubeError as error:
            if not error.is_conflict:
                raise
    created: list[Manifest] = []
    for pod in pods:
        where, name = _place(namespace, pod)
        try:
            created.append(_create_pod(kube, where, pod))
        except KubeError as error:
            reason = f"pod {where}/{name}: {error}"
            if error.is_conflict:
                reason = f"pod {name} exists already in namespace {where}; delete it or rename the job"
            if error.status == 0:
                reason += f"; it may have been created all the same: look for it with kubectl get pod -n {where} {name}"
            raise UserError(reason + _take_back(kube, created), error.status) from error
        except BaseException:
            _take_back(kube, created)
            raise
    return created


def _create_pod(kube: KubeClient, namespace: str, pod: PlannedPod) -> Manifest:
    until = time.monotonic() + ADMISSION_S
    while True:
        try:
            return kube.create(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", pod.manifest)
        except KubeError as error:
            is_early = error.status == 403 and f"no PriorityClass with name {pod.priority_class_name} " in error.message
            if not is_early or time.monotonic() > until:
                raise
        time.sleep(ADMISSION_CHECK_S)


def _place(namespace: str, pod: PlannedPod) -> tuple[str, str]:
    metadata = pod.manifest["metadata"]
    return metadata.get("namespace", namespace), metadata["name"]


def _refuse_equal_names(namespace: str, pods: Sequence[PlannedPod]) -> None:
    names = Counter(_place(namespace, pod) for pod in pods)
    for (where, name), count in names.items():
        if count > 1:
            raise UserError(f"{count} pods are named {name} in namespace {where}; nothing was created")


def _take_back(kube: KubeClient, created: Sequence[Manifest]) -> str:
    """Delete pods again; what the message about the failure has to say of it."""
    left = []
    for pod in reversed(created):
        metadata = pod["metadata"]
        try:
            kube.delete_pod(metadata["namespace"], metadata["name"], uid=metadata["uid"])
        except KubeError as error:
            if not error.is_not_found:
                left.append(f"{metadata['namespace']}/{metadata['name']}")
    if left:
        return f"; created before and not deleted again: {', '.join(left)}"
    if not created:
        return ""
    which = "pod created before it was" if len(created) == 1 else f"{len(created)} pods created before it were"
    return f"; the {which} deleted again"
