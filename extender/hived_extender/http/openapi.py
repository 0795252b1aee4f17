"""The OpenAPI description of every path, made from the wire structs and a table of what each path takes and gives."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hived_extender.pods.wire import (
    BIND_PATH,
    DEVICES_PATH,
    FILTER_PATH,
    PREEMPT_PATH,
    SHORTAGES_PATH,
    WHAT_IF_PATH,
    BindArgs,
    BindResult,
    ConfigPlanArgs,
    ConfigPushArgs,
    FilterArgs,
    FilterResult,
    PreemptArgs,
    PreemptResult,
    WhatIfArgs,
    WhatIfResult,
)

_STRUCTS = (
    FilterArgs,
    FilterResult,
    PreemptArgs,
    PreemptResult,
    BindArgs,
    BindResult,
    WhatIfArgs,
    WhatIfResult,
    ConfigPlanArgs,
    ConfigPushArgs,
)
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _map(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": of}


_CELL = {
    "cellType": _TEXT,
    "cellAddress": _TEXT,
    "cellState": {"enum": ["Free", "Used", "Reserving", "Reserved"]},
    "cellHealthiness": {"enum": ["Healthy", "Bad"]},
    "cellPriority": {"type": "integer", "minimum": -2, "maximum": 1000},
    "leafCellType": _TEXT,
    "isNodeLevel": {"type": "boolean"},
}

_VERSION = {"version": _INTEGER, "when": _TEXT, "who": _TEXT, "why": _TEXT, "sha256": _TEXT, "text": _TEXT}
_JOB = {"name": _TEXT, "vc": _TEXT, "priority": _INTEGER, "pods": _TEXTS, "verdict": _TEXT, "reason": _TEXT}

_CELLS = {
    "ConfigVersion": _object(_VERSION),
    "Config": _object(
        _VERSION
        | {
            "source": _TEXT,
            "clusterId": _TEXT,
            "isPushable": _BOOLEAN,
            "refused": {"anyOf": [_object({"reason": _TEXT, "when": _TEXT}), {"type": "null"}]},
        }
    ),
    "ConfigReport": _object(
        {
            "baseVersion": _INTEGER,
            "identical": _BOOLEAN,
            "refusals": _TEXTS,
            "warnings": _TEXTS,
            "changes": {"type": "object"},
            "groups": _object({"unaffected": _INTEGER, "affected": _array(_object(_JOB))}),
            "waiting": _array(_object(_JOB)),
            "affectsRunning": _BOOLEAN,
            "needsAllowDowngrade": _BOOLEAN,
        }
    ),
    "Refusal": _object({"message": _TEXT, "plan": {"anyOf": [_ref("ConfigReport"), {"type": "null"}]}}),
    "PhysicalCell": _object(
        _CELL | {"vc": _TEXT, "cellChildren": _array(_ref("PhysicalCell")), "virtualCell": _ref("VirtualCell")}
    ),
    "VirtualCell": _object(_CELL | {"cellChildren": _array(_ref("VirtualCell")), "physicalCell": _ref("PhysicalCell")}),
    "LostDevices": _object(
        {
            "node": _TEXT,
            "leafCellType": _TEXT,
            "resource": _TEXT,
            "leafCells": _INTEGER,
            "lostLeafCells": _INTEGER,
            "knownDevices": _array(_INTEGER),
            "missingDevices": _INTEGER,
            "usedBy": _array(_object({"name": _TEXT, "devices": _INTEGER, "byClaim": _BOOLEAN})),
            "reason": _TEXT,
        }
    ),
    "Shortage": _object(
        {
            "chain": _TEXT,
            "virtualClusters": _TEXTS,
            "shortCells": _map(_INTEGER),
            "message": _TEXT,
            "reasons": _TEXTS,
        }
    ),
    "VirtualClusters": _map(_array(_ref("VirtualCell"))),
    "AffinityGroup": _object(
        {
            "metadata": _object({"name": _TEXT}),
            "status": _object(
                {
                    "vc": _TEXT,
                    "priority": {"type": "integer"},
                    "state": {"enum": ["Allocated", "Preempting", "BeingPreempted"]},
                    "physicalPlacement": _map(_array({"type": "integer"})),
                    "virtualPlacement": _map(_TEXTS),
                    "allocatedPods": _TEXTS,
                    "preemptingPods": _TEXTS,
                    "lazyPreemptionStatus": _object({"preemptor": _TEXT, "preemptionTime": _TEXT}),
                }
            ),
        }
    ),
}

_BODIES = {
    FILTER_PATH: _ref("FilterArgs"),
    PREEMPT_PATH: _ref("PreemptArgs"),
    BIND_PATH: _ref("BindArgs"),
    WHAT_IF_PATH: _ref("WhatIfArgs"),
    "/v1/config/plan": _ref("ConfigPlanArgs"),
    "POST /v1/config": _ref("ConfigPushArgs"),
}

_ANSWERS: dict[str, dict[str, Any]] = {
    "/": _object({"paths": _TEXTS}),
    FILTER_PATH: _ref("FilterResult"),
    PREEMPT_PATH: _ref("PreemptResult"),
    BIND_PATH: _ref("BindResult"),
    WHAT_IF_PATH: _ref("WhatIfResult"),
    DEVICES_PATH: _array(_ref("LostDevices")),
    SHORTAGES_PATH: _array(_ref("Shortage")),
    "/v1/inspect/affinitygroups/": _object({"items": {"anyOf": [_array(_ref("AffinityGroup")), {"type": "null"}]}}),
    "/v1/inspect/affinitygroups/{name}": _ref("AffinityGroup"),
    "/v1/inspect/clusterstatus": _object(
        {"physicalCluster": _array(_ref("PhysicalCell")), "virtualClusters": _ref("VirtualClusters")}
    ),
    "/v1/inspect/clusterstatus/physicalcluster": _array(_ref("PhysicalCell")),
    "/v1/inspect/clusterstatus/virtualclusters/": _ref("VirtualClusters"),
    "/v1/inspect/clusterstatus/virtualclusters/{name}": _array(_ref("VirtualCell")),
    "/v1/config": _ref("Config"),
    "POST /v1/config": _object({"version": _INTEGER, "outcome": _ref("ConfigReport")}),
    "/v1/config/plan": _ref("ConfigReport"),
    "/v1/config/versions": _object({"items": _array(_ref("ConfigVersion"))}),
    "/v1/config/versions/{name}": _ref("ConfigVersion"),
    "/healthz": _object({"status": _TEXT, "fault": _TEXT}),
    "/readyz": _object({"status": _TEXT, "reason": _TEXT}),
    "/openapi.json": {"type": "object"},
}

_ERRORS: dict[str, tuple[str, ...]] = {
    PREEMPT_PATH: ("400", "500", "503"),
    WHAT_IF_PATH: ("400", "500", "503"),
    "/v1/inspect/affinitygroups/": ("503",),
    "/v1/inspect/affinitygroups/{name}": ("400", "503"),
    DEVICES_PATH: ("503",),
    SHORTAGES_PATH: ("503",),
    "/v1/inspect/clusterstatus": ("503",),
    "/v1/inspect/clusterstatus/physicalcluster": ("503",),
    "/v1/inspect/clusterstatus/virtualclusters/": ("503",),
    "/v1/inspect/clusterstatus/virtualclusters/{name}": ("400", "503"),
    "POST /v1/config": ("400", "401", "403", "500", "503"),
    "/v1/config/plan": ("400", "500", "503"),
    "/v1/config/versions": ("503",),
    "/v1/config/versions/{name}": ("404", "503"),
}

_REFUSALS = {"POST /v1/config": ("409", "422")}

_STATUSES = {"/healthz": "500", "/readyz": "503"}
"""Paths that answer with another status too, in the same form."""


def openapi_document(version: str, summaries: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes: (method, path) -> what it does."""
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    components["FilterArgs"]["properties"]["NodeNames"] = _TEXTS
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), summary in summaries.items():
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, summary)
    return {
        "openapi": "3.1.0",
        "info": {"title": "HiveD scheduler extender", "version": version, "license": {"name": "MIT"}},
        "paths": paths,
        "components": {"schemas": components | _CELLS},
    }


def _operation(method: str, path: str, summary: str) -> dict[str, Any]:
    key = f"{method} {path}" if f"{method} {path}" in _ANSWERS else path
    answers = {"200": _content("The answer.", key)}
    if path in _STATUSES:
        answers[_STATUSES[path]] = _content("Not now.", key)
    for status in _ERRORS.get(key, ()):
        answers[status] = {"description": "What is wrong.", "content": {"application/json": {"schema": _TEXT}}}
    for status in _REFUSALS.get(key, ()):
        answers[status] = {"description": "Refused.", "content": {"application/json": {"schema": _ref("Refusal")}}}
    operation: dict[str, Any] = {"summary": summary, "responses": answers}
    if key in _BODIES:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _BODIES[key]}}}
    if "{name}" in path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": _TEXT}]
    return operation


def _content(description: str, key: str) -> dict[str, Any]:
    if key not in _ANSWERS:
        return {"description": description, "content": {"text/plain": {"schema": _TEXT}}}
    return {"description": description, "content": {"application/json": {"schema": _ANSWERS[key]}}}
