"""Objects that stand beside jobs in a file, such as a Service: created as they are, where they stand in the file.

Only kinds of a namespace that make no pods of their own, so that every pod still comes from hived's reading of the
file. One that exists already is left alone if it has all that the file says.
"""

import base64
from typing import Any

from hived_jobs.documents import Document
from hived_jobs.submission import PlannedJob, Submission

KINDS = {
    "v1": (
        "ConfigMap", "Endpoints", "LimitRange", "PersistentVolumeClaim", "ResourceQuota", "Secret", "Service",
        "ServiceAccount",
    ),
    "autoscaling/v2": ("HorizontalPodAutoscaler",),
    "discovery.k8s.io/v1": ("EndpointSlice",),
    "networking.k8s.io/v1": ("Ingress", "NetworkPolicy"),
    "policy/v1": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding"),
    "scheduling.k8s.io/v1alpha1": ("Workload",),
    "scheduling.k8s.io/v1alpha2": ("PodGroup",),
    "scheduling.sigs.k8s.io/v1alpha1": ("PodGroup",),
    "scheduling.volcano.sh/v1beta1": ("PodGroup",),
    "scheduling.x-k8s.io/v1alpha1": ("PodGroup",),
}  # fmt: skip


def plan_object(document: Document, submission: Submission) -> PlannedJob:
    """No pods, and the object. Raises UserError, with file, line and place, for one that has no name."""
    root = document.section()
    metadata = root.section("metadata")
    name, namespace = metadata.text("name"), metadata.text("namespace", "") or submission.namespace
    if root.text("kind") == "HorizontalPodAutoscaler":
        root.warn("spec", "changes nothing: the pods of a job have no controller that it could scale")
    manifest: dict[str, Any] = document.value()  # type: ignore[assignment]  # a mapping, as its kind has been read
    manifest["metadata"] |= {"name": name, "namespace": namespace}
    return PlannedJob((), objects=(manifest,))


def has_all(stored: Any, wanted: Any) -> bool:
    """Whether a stored value has all that a written one says; the API server adds defaults of its own."""
    if isinstance(wanted, dict):
        if not isinstance(stored, dict):
            return False
        return all(value is None or (key in stored and has_all(stored[key], value)) for key, value in wanted.items())
    if isinstance(wanted, list):
        is_as_long = isinstance(stored, list) and len(stored) == len(wanted)
        return is_as_long and all(map(has_all, stored, wanted))
    return bool(stored == wanted)


def as_stored(manifest: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server keeps it: the texts of a Secret among its data."""
    texts = manifest.get("stringData")
    if manifest["kind"] != "Secret" or not isinstance(texts, dict):
        return manifest
    data = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
    kept = {key: value for key, value in manifest.items() if key != "stringData"}
    return {**kept, "data": {**(manifest.get("data") or {}), **data}}
