"""The custom resources of PodGroups as their projects install them, as far as pods and hived use them."""

from typing import Any

from hived_extender.jobs.kinds.description import ObjectKind
from hived_extender.jobs.kinds.table import OBJECTS

INTEGER = {"type": "integer", "format": "int32"}
SPEC = {
    "minMember": INTEGER,
    "minTaskMember": {"type": "object", "additionalProperties": INTEGER},
    "minResources": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "networkTopology": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "scheduleTimeoutSeconds": INTEGER,
    "priorityClassName": {"type": "string"},
    "queue": {"type": "string"},
}
CUSTOM = [kind for kind in OBJECTS if kind.group != "scheduling.k8s.io"]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(kind: ObjectKind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind of `CUSTOM`."""
    properties = {
        "spec": {"type": "object", "properties": SPEC},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    version = {
        "name": kind.versions[0],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Kubernetes wants to know who approved of a kind in a group of its own.
        "metadata": {"name": kind.name, "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": kind.group,
            "names": {"kind": "PodGroup", "plural": kind.plural, "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def path_of(kind: ObjectKind, namespace: str = "default") -> str:
    """Where objects of a kind of `CUSTOM` are made."""
    return f"/apis/{kind.group}/{kind.versions[0]}/namespaces/{namespace}/{kind.plural}"
