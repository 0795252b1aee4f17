"""Job files -> pods: one module per kind of job.

A kind's module answers two questions: `matches(document)`, is this mine, and `plan_pods(document, submission)`, which
pods is it. To take a new kind, write its module and name it in `KINDS`.
"""

from collections.abc import Sequence
from typing import Protocol

from hived_extender.jobs import openpai, pod
from hived_extender.jobs.documents import Document, read_documents
from hived_extender.jobs.submission import PlannedPod, Submission


class Kind(Protocol):
    """What a module of this package offers."""

    def matches(self, document: Document) -> bool:
        """Whether the document is a job of this kind."""
        ...

    def plan_pods(self, document: Document, submission: Submission) -> list[PlannedPod]:
        """The pods it stands for; raises UserError."""
        ...


KINDS: Sequence[Kind] = (openpai, pod)


def plan_file(file: str, submission: Submission) -> tuple[list[PlannedPod], list[str]]:
    """The pods of every document of a file in order ("-": standard input), and warnings for the submitter.

    Raises UserError, with file and line, for the first document that cannot be used.
    """
    pods: list[PlannedPod] = []
    warnings: list[str] = []
    for document in read_documents(file):
        pods += _kind(document).plan_pods(document, submission)
        warnings += document.warnings
    return pods, warnings


def _kind(document: Document) -> Kind:
    for kind in KINDS:
        if kind.matches(document):
            return kind
    message = "expected an OpenPAI job (protocolVersion: 2) or a Pod (apiVersion: v1, kind: Pod)"
    raise document.section().refuse("", message)
