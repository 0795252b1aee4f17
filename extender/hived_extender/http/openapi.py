"""The OpenAPI description of every path, made from the table of routes and the structs that it names."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hived_extender.api.configuration import Refusal
from hived_extender.http.routing import Route

_REF = "#/components/schemas/{name}"
_TEXT = {"type": "string"}


def openapi_document(version: str, routes: Sequence[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes."""
    bodies = [body for route in routes for body in (route.takes, route.gives) if body is not None]
    schemas, components = msgspec.json.schema_components([*bodies, Refusal], ref_template=_REF)
    components["FilterArgs"]["properties"]["NodeNames"] = {"type": "array", "items": _TEXT}
    schema_of = {repr(body): schema for body, schema in zip(bodies, schemas, strict=False)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "HiveD scheduler extender", "version": version, "license": {"name": "MIT"}},
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    if route.gives is None:
        content: dict[str, Any] = {"text/plain": {"schema": _TEXT}}
    else:
        content = _json(schema_of[repr(route.gives)])
    answers = {"200": {"description": "The answer.", "content": content}}
    for status in route.fails_alike:
        answers[str(status)] = {"description": "Not now.", "content": content}
    for status in route.errors:
        answers[str(status)] = {"description": "What is wrong.", "content": _json(_TEXT)}
    for status in route.refusals:
        answers[str(status)] = {"description": "Refused.", "content": _json({"$ref": _REF.format(name="Refusal")})}
    operation: dict[str, Any] = {"summary": route.summary, "responses": answers}
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": _json(schema_of[repr(route.takes)])}
    parameters = [{"name": key, "in": "query", "required": False, "schema": _TEXT} for key in route.query]
    if "{name}" in route.path:
        parameters = [{"name": "name", "in": "path", "required": True, "schema": _TEXT}, *parameters]
    if parameters:
        operation["parameters"] = parameters
    return operation


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
