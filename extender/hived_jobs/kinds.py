"""Every kind of job, one module each.

A kind's module has the names of its `NAMES`, and answers two questions: `matches(document)`, is this mine, and
`plan_job(document, submission)`, what is it to become. To take a new kind, write its module and name it in `KINDS`.
"""

from collections.abc import Sequence
from typing import Protocol

from hived_jobs import companions, dlrover, kubeflow, mpi, openpai, pod, volcano, workloads
from hived_jobs.documents import Document, read_documents
from hived_jobs.submission import PlannedJob, PlannedPod, Submission


class Kind(Protocol):
    """What a module of this package offers."""

    @property
    def NAMES(self) -> tuple[str, ...]:  # a constant of the modules
        """What it takes, as messages have it."""
        ...

    def matches(self, document: Document) -> bool:
        """Whether the document is a job of this kind."""
        ...

    def plan_job(self, document: Document, submission: Submission) -> PlannedJob:
        """What it stands for; raises UserError."""
        ...


KINDS: Sequence[Kind] = (openpai, pod, kubeflow, mpi, volcano, dlrover, workloads, companions)


def plan_jobs(file: str, submission: Submission) -> tuple[list[PlannedJob], list[str]]:
    """What every document of a file stands for, in order ("-": standard input), and warnings for the submitter.

    Raises UserError, with file and line, for the first document that cannot be used.
    """
    jobs: list[PlannedJob] = []
    warnings: list[str] = []
    for document in read_documents(file):
        jobs.append(plan_document(document, submission))
        warnings += document.warnings
    return jobs, warnings


def plan_file(file: str, submission: Submission) -> tuple[list[PlannedPod], list[str]]:
    """All pods of a file that are to be created now, and the warnings of `plan_jobs`."""
    jobs, warnings = plan_jobs(file, submission)
    return [pod for job in jobs for pod in job.first_pods()], warnings


def plan_document(document: Document, submission: Submission) -> PlannedJob:
    """What one document stands for. Raises UserError."""
    for kind in KINDS:
        if kind.matches(document):
            return kind.plan_job(document, submission)
    root = document.section()
    names = ", ".join(name for kind in KINDS for name in kind.NAMES)
    found = f"{root.text('kind', '')} ({root.text('apiVersion', '')})" if "kind" in root else "no kind of job"
    raise root.refuse("", f"found {found}, expected one of: {names}; create others with kubectl")
