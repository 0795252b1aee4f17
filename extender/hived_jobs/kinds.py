"""The table of every kind of job, by apiVersion and kind. To take a new one, write a planner and name it here.

Objects that stand beside jobs in a file, such as a Service, are created as they are: only kinds of a namespace that
make no pods of their own, so that every pod still comes from hived's reading of the file.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hived_jobs import dlrover, kubeflow, openpai, pod, volcano, workloads
from hived_jobs.documents import Document, read_documents
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
    """True if a stored value has everything that a written one says; the API server adds defaults of its own."""
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


Planner = Callable[[Document, Submission], PlannedJob]
"""Makes a plan of a document. Raises UserError, with file, line and place."""

PLANNERS: Mapping[tuple[str, str], Planner] = {
    ("v1", "Pod"): pod.plan_pod,
    ("kubeflow.org/v1", "PyTorchJob"): kubeflow.plan_pytorch_job,
    ("kubeflow.org/v1", "TFJob"): kubeflow.plan_tensorflow_job,
    ("kubeflow.org/v1", "MPIJob"): kubeflow.plan_mpi_job,
    ("kubeflow.org/v2beta1", "MPIJob"): kubeflow.plan_mpi_job,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano.plan_volcano_job,
    ("elastic.iml.github.io/v1alpha1", "ElasticJob"): dlrover.plan_elastic_job,
    ("batch/v1", "Job"): workloads.plan_plain_job,
    ("apps/v1", "Deployment"): workloads.plan_deployment,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): workloads.plan_jobset,
}
_VERSIONS = {
    (kind, planner): ", ".join(version for (version, each), its in PLANNERS.items() if (each, its) == (kind, planner))
    for (_, kind), planner in PLANNERS.items()
}
NAMES = ("OpenPAI job (protocolVersion: 2)", *(f"{kind} ({versions})" for (kind, _), versions in _VERSIONS.items()))
"""The kinds of jobs as messages have them."""


def plan_jobs(file: str, submission: Submission) -> tuple[list[PlannedJob], list[str]]:
    """Plans of all documents of a file, in order ("-": standard input), and warnings for the submitter.

    Raises UserError, with file and line, for the first document that cannot be used.
    """
    return plan_documents(read_jobs(file), submission)


def read_jobs(file: str) -> list[Document]:
    """Return the documents of a file ("-": standard input), without a cluster.

    Raises UserError, with file and line, unless all are known kinds.
    """
    documents = read_documents(file)
    for document in documents:
        _planner(document)
    return documents


def plan_documents(documents: Sequence[Document], submission: Submission) -> tuple[list[PlannedJob], list[str]]:
    """As `plan_jobs`, of documents that were read before."""
    jobs: list[PlannedJob] = []
    warnings: list[str] = []
    for document in documents:
        jobs.append(plan_document(document, submission))
        warnings += document.warnings
    return jobs, warnings


def plan_document(document: Document, submission: Submission) -> PlannedJob:
    """The plan of one document. Raises UserError."""
    return _planner(document)(document, submission)


def _planner(document: Document) -> Planner:
    root = document.section()
    if "protocolVersion" in root and "kind" not in root:
        return openpai.plan_openpai_job
    version, kind = root.text("apiVersion", ""), root.text("kind", "")
    if planner := PLANNERS.get((version, kind)):
        return planner
    if kind in KINDS.get(version, ()):
        return plan_object
    found = f"{kind} ({version})" if "kind" in root else "no kind of job"
    names = ", ".join((*NAMES, "Service (v1) and others that make no pods"))
    raise root.refuse("", f"found {found}, expected one of: {names}; create others with kubectl")
