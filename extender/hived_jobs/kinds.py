"""The table of every kind of job, by apiVersion and kind. To take a new one, write a planner and name it here.

Where a cluster has the kind of a job, its object is created as it is, also of a kind that is not in the table. Pods are
made from it here where the cluster lacks the kind. Objects that stand beside jobs in a file, such as a Service, are
created as they are.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hived_config.reader import closest
from hived_extender.jobs.kinds import table
from hived_jobs import dlrover, kubeflow, objects, openpai, pod, volcano, workloads
from hived_jobs.documents import Document, read_documents
from hived_jobs.served import INSTALLS, Served
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
    ("kubeflow.org/v1", "XGBoostJob"): kubeflow.plan_xgboost_job,
    ("kubeflow.org/v1", "PaddleJob"): kubeflow.plan_paddle_job,
    ("kubeflow.org/v1", "JAXJob"): kubeflow.plan_jax_job,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano.plan_volcano_job,
    ("elastic.iml.github.io/v1alpha1", "ElasticJob"): dlrover.plan_elastic_job,
    ("batch/v1", "Job"): workloads.plan_plain_job,
    ("apps/v1", "Deployment"): workloads.plan_deployment,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): workloads.plan_jobset,
}
_NAMES = {each for _, each in PLANNERS} | {kind.kind for kind in table.KINDS} | {each for _, each in objects.ROLES}
"""Kinds of jobs, for messages about misspelt ones."""


def plan_jobs(file: str, submission: Submission, served: Served | None = None) -> tuple[list[PlannedJob], list[str]]:
    """Plans of all documents of a file, in order ("-": standard input), and warnings for the submitter.

    Raises UserError, with file and line, for the first document that cannot be used.
    """
    return plan_documents(read_jobs(file), submission, served)


def read_jobs(file: str) -> list[Document]:
    """Return the documents of a file ("-": standard input), without a cluster.

    Raises UserError, with file and line, unless all say what they are.
    """
    documents = read_documents(file)
    for document in documents:
        _kind_of(document)
    return documents


def plan_documents(
    documents: Sequence[Document], submission: Submission, served: Served | None = None
) -> tuple[list[PlannedJob], list[str]]:
    """As `plan_jobs`, of documents that were read before."""
    jobs: list[PlannedJob] = []
    warnings: list[str] = []
    for document in documents:
        jobs.append(replace(plan_document(document, submission, served), source=document))
        warnings += document.warnings
    return jobs, warnings


def plan_document(document: Document, submission: Submission, served: Served | None = None) -> PlannedJob:
    """The plan of one document: its object where the cluster has the kind, else pods. Raises UserError, KubeError.

    Without `served` nothing is known of a cluster, and kinds in the table become pods.
    """
    version, kind = _kind_of(document)
    if not version:
        return openpai.plan_openpai_job(document, submission)
    if kind in KINDS.get(version, ()):
        return plan_object(document, submission)
    planner = PLANNERS.get((version, kind))
    if planner is not None and not makes_no_pods(version, kind, served):
        return planner(document, submission)
    resource = None if served is None else served.find(version, kind)
    if served is not None and resource is None:
        raise document.section().refuse("kind", _unserved(version, kind, served))
    is_namespaced = resource is None or resource.is_namespaced
    fields = served.spec_fields(version, kind) if served is not None and kind == "TrainJob" else ()
    return objects.plan_as_object(document, submission, planner, is_namespaced=is_namespaced, fields=fields)


def makes_no_pods(version: str, kind: str, served: Served | None) -> bool:
    """Does `plan_document` make an object of a kind, whose pods are its controller's? Raises KubeError."""
    if (version, kind) not in PLANNERS:
        return True
    return kind != "Pod" and served is not None and served.find(version, kind) is not None


def _kind_of(document: Document) -> tuple[str, str]:
    """(apiVersion, kind) of a document; empty for a job of OpenPAI. Raises UserError."""
    root = document.section()
    if "protocolVersion" in root and "kind" not in root:
        return "", ""
    version, kind = root.text("apiVersion", ""), root.text("kind", "")
    if not version or not kind:
        lacks = "kind" if version else "apiVersion"
        if not version and not kind:
            lacks = "apiVersion and kind, or protocolVersion: 2 of an OpenPAI job"
        raise root.refuse("", f"found no {lacks}")
    return version, kind


def _unserved(version: str, kind: str, served: Served) -> str:
    """Return why an object cannot be created, and what to do about it."""
    said = f"this cluster has no {kind} ({version})"
    if others := served.versions(version, kind):
        return f"{said}: write apiVersion: {others[0]}, which it has"
    group = version.rpartition("/")[0]
    meant = closest(kind, _NAMES)
    if meant and meant != kind and group not in INSTALLS:
        return f"{said}; did you mean {meant}?" + (f" Else install what serves {group}" if "." in group else "")
    install = INSTALLS.get(group, f"what serves {group}" if "." in group else "")
    return f"{said}: install {install}, or take it out of the file" if install else f"{said}: correct it"
