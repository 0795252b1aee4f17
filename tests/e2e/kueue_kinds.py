"""Custom resources with the names and rules of Kueue's that hived meets, as far as it reads and writes them.

Kueue itself is not installed. Fields that hived neither reads nor writes may have any content.
"""

from typing import Any

Json = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "kueue.x-k8s.io"
ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": "object", "additionalProperties": TEXT}
WHOLE: Json = {"type": "integer", "format": "int32"}
TIME: Json = {"type": "string", "format": "date-time"}

CONDITION: Json = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": TIME,
        "message": {"type": "string", "maxLength": 32768},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {"type": "string", "maxLength": 316},
    },
}
CONDITIONS: Json = {
    "type": "array",
    "items": CONDITION,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
UPDATE: Json = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 63},
        "labels": TEXTS,
        "annotations": TEXTS,
        "nodeSelector": TEXTS,
        "tolerations": {"type": "array", "maxItems": 8, "items": ANYTHING},
    },
}


def check_state(*, has_retries: bool) -> Json:
    """An item of `status.admissionChecks`. Versions before Kueue 0.16 have no fields for retries."""
    retries = {"requeueAfterSeconds": WHOLE, "retryCount": WHOLE} if has_retries else {}
    return {
        "type": "object",
        "required": ["lastTransitionTime", "message", "name", "state"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 316},
            "state": {"type": "string", "enum": ["Pending", "Ready", "Retry", "Rejected"]},
            "lastTransitionTime": TIME,
            "message": {"type": "string", "maxLength": 32768},
            "podSetUpdates": {"type": "array", "maxItems": 8, "x-kubernetes-list-type": "atomic", "items": UPDATE},
            **retries,
        },
    }


def workload_schema(*, has_retries: bool) -> Json:
    """The schema of a Workload."""
    pod_set: Json = {
        "type": "object",
        "required": ["template"],
        "properties": {
            "name": {"type": "string", "default": "main"},
            "count": {**WHOLE, "default": 1},
            "template": ANYTHING,
        },
    }
    status = {
        "conditions": CONDITIONS,
        "admission": ANYTHING,
        "admissionChecks": {
            "type": "array",
            "maxItems": 8,
            "items": check_state(has_retries=has_retries),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    }
    spec = {
        "queueName": TEXT,
        "active": {"type": "boolean", "default": True},
        "priority": WHOLE,
        "priorityClassName": TEXT,
        "priorityClassSource": TEXT,
        "priorityClassRef": ANYTHING,
        "podSets": {
            "type": "array",
            "minItems": 1,
            "maxItems": 8,
            "items": pod_set,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    }
    return {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": status},
    }


CHECK_SCHEMA: Json = {
    "spec": {
        "type": "object",
        "required": ["controllerName"],
        "properties": {"controllerName": TEXT, "parameters": ANYTHING},
    },
    "status": {"type": "object", "properties": {"conditions": CONDITIONS}},
}
FLAVOR_SCHEMA: Json = {"spec": {"type": "object", "properties": {"nodeLabels": TEXTS}}}


def definitions(version: str) -> list[Json]:
    """The CustomResourceDefinitions of one version of Kueue's API."""
    has_retries = version == "v1beta2"
    return [
        _definition("Workload", "workloads", version, workload_schema(has_retries=has_retries), "Namespaced"),
        _definition("AdmissionCheck", "admissionchecks", version, CHECK_SCHEMA, "Cluster"),
        _definition("ResourceFlavor", "resourceflavors", version, FLAVOR_SCHEMA, "Cluster"),
    ]


def _definition(kind: str, plural: str, version: str, schema: Json, scope: str) -> Json:
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": schema}},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Kubernetes wants to know who approved of a kind in a group of its own.
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [served],
        },
    }
