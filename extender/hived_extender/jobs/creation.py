"""Creating what was planned, in the order in which Kubernetes needs it."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from hived.errors import UserError
from hived_extender.jobs.submission import Manifest, PlannedPod, priority_classes
from hived_extender.kube import KubeClient, KubeError

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def create_pods(kube: KubeClient, namespace: str, pods: Sequence[PlannedPod]) -> Iterator[Manifest]:
    """Create the priority classes that are missing, then the pods one by one; yields each as stored.

    A pod that names a namespace of its own goes there. Raises UserError for a pod that exists already, KubeError for
    any other refusal; pods yielded before that stay.
    """
    for priority_class in priority_classes(pods):
        try:
            kube.create(PRIORITY_CLASSES, priority_class)
        except KubeError as error:
            if not error.is_conflict:
                raise
    for pod in pods:
        metadata = pod.manifest["metadata"]
        where = metadata.get("namespace", namespace)
        try:
            yield kube.create(f"/api/v1/namespaces/{quote(where, safe='')}/pods", pod.manifest)
        except KubeError as error:
            if not error.is_conflict:
                raise
            message = f"pod {metadata['name']} exists already in namespace {where}; delete it or rename the job"
            raise UserError(message, error.status) from error
