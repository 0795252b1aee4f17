"""What the submitter says beside the file, and what every pod of ours carries whatever it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hived.errors import UserError
from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.rules import PRIORITY_WORDS
from hived_extender.annotations import SCHEDULING_SPEC

Manifest = dict[str, Any]
"""A Kubernetes object as plain JSON values."""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod to create, and its HiveD priority."""

    manifest: Manifest
    priority: int

    @property
    def priority_class_name(self) -> str:
        """The PriorityClass that agrees with its HiveD priority."""
        return priority_class_name(self.priority)


@dataclass(frozen=True, slots=True)
class Submission:
    """The submitter's wishes; None leaves the decision to the file.

    `cluster` is None when no configuration could be found: kinds that need it say so.
    """

    user: str
    virtual_cluster: str | None = None
    priority: int | None = None
    scheduler_name: str | None = None
    cluster: ClusterSpec | None = None

    def scheduler_for(self, virtual_cluster: str) -> str:
        """The scheduler that serves a virtual cluster: OpenPAI runs one kube-scheduler per VC."""
        return self.scheduler_name or f"hivedscheduler-ds-{virtual_cluster.lower()}"


def parse_priority(text: str) -> int:
    """A priority from one of OpenPAI's words or a number from -1 to 1000. Raises UserError for anything else."""
    if text in PRIORITY_WORDS:
        return PRIORITY_WORDS[text]
    try:
        priority = int(text)
    except ValueError:
        priority = OPPORTUNISTIC_PRIORITY - 1
    if not OPPORTUNISTIC_PRIORITY <= priority <= MAX_GUARANTEED_PRIORITY:
        words, numbers = ", ".join(PRIORITY_WORDS), f"{OPPORTUNISTIC_PRIORITY} to {MAX_GUARANTEED_PRIORITY}"
        raise UserError(f"priority {text!r}: expected {words} or a number from {numbers}")
    return priority


def priority_class_name(priority: int) -> str:
    """The PriorityClass that gives a pod the Kubernetes priority equal to its HiveD priority.

    Kubernetes looks for victims among pods of lower Kubernetes priority only, so the two must agree.
    """
    return "hived-opportunistic" if priority == OPPORTUNISTIC_PRIORITY else f"hived-priority-{priority}"


def _priority_class(priority: int) -> Manifest:
    """The PriorityClass object of that name."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(priority)},
        "value": priority,
        "description": f"Pods of HiveD priority {priority}",
    }


def priority_classes(pods: Sequence[PlannedPod]) -> list[Manifest]:
    """The PriorityClasses of ours that these pods name, each once, highest first."""
    named = {pod.priority for pod in pods if pod.manifest["spec"].get("priorityClassName") == pod.priority_class_name}
    return [_priority_class(priority) for priority in sorted(named, reverse=True)]


def scheduling_annotation(spec: Mapping[str, object]) -> dict[str, str]:
    """The annotation that carries a scheduling spec, as JSON text (which is also YAML)."""
    return {SCHEDULING_SPEC: msgspec.json.encode(spec).decode()}
