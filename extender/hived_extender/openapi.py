"""The OpenAPI description of every path, made from the wire structs and a table of what each path takes and gives."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hived_extender.wire import (
    BIND_PATH,
    FILTER_PATH,
    PREEMPT_PATH,
    WHAT_IF_PATH,
    BindArgs,
    BindResult,
    FilterArgs,
    FilterResult,
    PreemptArgs,
    PreemptResult,
    WhatIfArgs,
    WhatIfResult,
)

_STRUCTS = (FilterArgs, FilterResult, PreemptArgs, PreemptResult, BindArgs, BindResult, WhatIfArgs, WhatIfResult)
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}


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

_CELLS = {
    "PhysicalCell": _object(
        _CELL | {"vc": _TEXT, "cellChildren": _array(_ref("PhysicalCell")), "virtualCell": _ref("VirtualCell")}
    ),
    "VirtualCell": _object(_CELL | {"cellChildren": _array(_ref("VirtualCell")), "physicalCell": _ref("PhysicalCell")}),
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
}

_ANSWERS: dict[str, dict[str, Any]] = {
    "/": _object({"paths": _TEXTS}),
    FILTER_PATH: _ref("FilterResult"),
    PREEMPT_PATH: _ref("PreemptResult"),
    BIND_PATH: _ref("BindResult"),
    WHAT_IF_PATH: _ref("WhatIfResult"),
    "/v1/inspect/affinitygroups/": _object({"items": {"anyOf": [_array(_ref("AffinityGroup")), {"type": "null"}]}}),
    "/v1/inspect/affinitygroups/{name}": _ref("AffinityGroup"),
    "/v1/inspect/clusterstatus": _object(
        {"physicalCluster": _array(_ref("PhysicalCell")), "virtualClusters": _ref("VirtualClusters")}
    ),
    "/v1/inspect/clusterstatus/physicalcluster": _array(_ref("PhysicalCell")),
    "/v1/inspect/clusterstatus/virtualclusters/": _ref("VirtualClusters"),
    "/v1/inspect/clusterstatus/virtualclusters/{name}": _array(_ref("VirtualCell")),
    "/healthz": _object({"status": _TEXT, "fault": _TEXT}),
    "/readyz": _object({"status": _TEXT, "reason": _TEXT}),
    "/openapi.json": {"type": "object"},
}

_ERRORS: dict[str, tuple[str, ...]] = {
    PREEMPT_PATH: ("400", "500", "503"),
    WHAT_IF_PATH: ("400", "500", "503"),
    "/v1/inspect/affinitygroups/": ("503",),
    "/v1/inspect/affinitygroups/{name}": ("400", "503"),
    "/v1/inspect/clusterstatus": ("503",),
    "/v1/inspect/clusterstatus/physicalcluster": ("503",),
    "/v1/inspect/clusterstatus/virtualclusters/": ("503",),
    "/v1/inspect/clusterstatus/virtualclusters/{name}": ("400", "503"),
}

_STATUSES = {"/healthz": "500", "/readyz": "503"}
"""Paths that answer with another status too, in the same form."""


def openapi_document(version: str, summaries: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes: (method, path) -> what it does."""
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    components["FilterArgs"]["properties"]["NodeNames"] = _TEXTS
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), summary in summaries.items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, summary)
    return {
        "openapi": "3.1.0",
        "info": {"title": "HiveD scheduler extender", "version": version, "license": {"name": "MIT"}},
        "paths": paths,
        "components": {"schemas": components | _CELLS},
    }


def _operation(path: str, summary: str) -> dict[str, Any]:
    answers = {"200": _content("The answer.", path)}
    if path in _STATUSES:
        answers[_STATUSES[path]] = _content("Not now.", path)
    for status in _ERRORS.get(path, ()):
        answers[status] = {"description": "What is wrong.", "content": {"application/json": {"schema": _TEXT}}}
    operation: dict[str, Any] = {"summary": summary, "responses": answers}
    if path in _BODIES:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _BODIES[path]}}}
    if "{name}" in path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": _TEXT}]
    return operation


def _content(description: str, path: str) -> dict[str, Any]:
    if path not in _ANSWERS:
        return {"description": description, "content": {"text/plain": {"schema": _TEXT}}}
    return {"description": description, "content": {"application/json": {"schema": _ANSWERS[path]}}}
