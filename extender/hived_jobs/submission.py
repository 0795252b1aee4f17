"""The submitter's wishes beside the file, and the plan that a document becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_extender.pods.annotations import SCHEDULING_SPEC
from hived_extender.pods.priorities import priority_class_name
from hived_jobs.policies import NO_RULES, Rules

Manifest = dict[str, Any]
"""A Kubernetes object as plain JSON values."""


class NoConfigurationError(UserError):
    """A job cannot be planned without the cluster's configuration."""


class TooLargeError(UserError):
    """A job asks for more than it can ever have."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod to create, its HiveD priority if that is known by now, and the role that it has in its job."""

    manifest: Manifest
    priority: int | None
    role: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def priority_class_name(self) -> str:
        """The PriorityClass that agrees with its HiveD priority; "" if that is not known."""
        return "" if self.priority is None else priority_class_name(self.priority)


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """The pods and objects that one document becomes.

    Attributes
    ----------
    pods : in the order in which they are created
    objects : what the pods find each other by (services, host files, keys); created before them
    kind, name, namespace, virtual_cluster, document : of a job that somebody has to look after: its document, as JSON
        has it, is kept in the cluster. Empty and None for plain pods, and all but the name for OpenPAI jobs; no virtual
        cluster where pods have their own
    rules : what to do when its pods end or go
    width : at most so many of the pods are unfinished at a time; None for all
    is_suspended : no pod is created until somebody resumes the job
    """

    pods: Sequence[PlannedPod]
    objects: Sequence[Manifest] = ()
    kind: str = ""
    name: str = ""
    namespace: str = ""
    virtual_cluster: str = ""
    document: Manifest | None = None
    rules: Rules = NO_RULES
    width: int | None = None
    is_suspended: bool = False

    def first_pods(self) -> Sequence[PlannedPod]:
        """The pods to create now; none of a job that is suspended."""
        return self.pods[: 0 if self.is_suspended else self.width]


@dataclass(frozen=True, slots=True)
class Submission:
    """The submitter's wishes; None leaves the decision to the file.

    `cluster` is None when no configuration could be found: kinds that need it say so. `namespace` is for what
    names none.
    """

    user: str
    virtual_cluster: str | None = None
    priority: int | None = None
    scheduler_name: str | None = None
    cluster: ClusterSpec | None = None
    namespace: str = "default"

    def scheduler_for(self, virtual_cluster: str) -> str:
        """The scheduler that serves a virtual cluster: OpenPAI runs one kube-scheduler per VC."""
        return self.scheduler_name or f"hivedscheduler-ds-{virtual_cluster.lower()}"


def priority_classes(pods: Sequence[PlannedPod]) -> list[Manifest]:
    """The PriorityClasses of ours that these pods name, each once, highest first."""
    named = {
        pod.priority
        for pod in pods
        if pod.priority is not None and pod.manifest["spec"].get("priorityClassName") == pod.priority_class_name
    }
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": priority_class_name(priority)},
            "value": priority,
            "description": f"Pods of HiveD priority {priority}",
        }
        for priority in sorted(named, reverse=True)
    ]


def scheduling_annotation(spec: Mapping[str, object]) -> dict[str, str]:
    """The annotation that carries a scheduling spec, as JSON text (which is also YAML)."""
    return {SCHEDULING_SPEC: msgspec.json.encode(spec).decode()}
