"""The table of every kind of job, by apiVersion and kind. To take a new one, write a planner and name it here."""

from collections.abc import Callable, Mapping, Sequence

from hived_jobs import companions, dlrover, kubeflow, mpi, openpai, pod, volcano, workloads
from hived_jobs.documents import Document, read_documents
from hived_jobs.submission import PlannedJob, Submission

Planner = Callable[[Document, Submission], PlannedJob]
"""Makes a plan of a document. Raises UserError, with file, line and place."""

PLANNERS: Mapping[tuple[str, str], Planner] = {
    ("v1", "Pod"): pod.plan_pod,
    ("kubeflow.org/v1", "PyTorchJob"): kubeflow.plan_pytorch_job,
    ("kubeflow.org/v1", "TFJob"): kubeflow.plan_tensorflow_job,
    ("kubeflow.org/v1", "MPIJob"): mpi.plan_mpi_job,
    ("kubeflow.org/v2beta1", "MPIJob"): mpi.plan_mpi_job,
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
    """The documents of a file ("-": standard input). Raises UserError, with file and line, unless all are known kinds.

    It needs no cluster: whoever names a wrong file need not reach one to hear of it.
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
    if kind in companions.KINDS.get(version, ()):
        return companions.plan_object
    found = f"{kind} ({version})" if "kind" in root else "no kind of job"
    names = ", ".join((*NAMES, "Service (v1) and others that make no pods"))
    raise root.refuse("", f"found {found}, expected one of: {names}; create others with kubectl")
