"""Schemas of objects, as their CustomResourceDefinitions have them, and documents that fit them."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.e2e.tools import sources

Json = dict[str, Any]

OPEN: Json = {"x-kubernetes-preserve-unknown-fields": True}
"""Takes anything."""

HOW = "python -m tests.e2e.tools --published fetches it"


def module(folder: str, path: str) -> Path:
    """Where a module is. Skips the test if it has not been fetched."""
    found = sources.source(folder, path)
    if found is None:
        pytest.skip(f"{path} {sources.pinned(folder, path)} is not here: {HOW}")
    return found


@cache
def definition(file: Path, kind: str, version: str) -> Json:
    """The schema of one version of a kind, from a file with CustomResourceDefinitions."""
    for read in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader):  # it makes plain values alone
        if read and read["kind"] == "CustomResourceDefinition" and read["spec"]["names"]["kind"] == kind:
            (found,) = [one for one in read["spec"]["versions"] if one["name"] == version]
            made: Json = found["schema"]["openAPIV3Schema"]
            return made
    raise AssertionError(f"{file} does not define {kind}")


def is_open(schema: Json) -> bool:
    """Does it take fields of any name?"""
    return bool(schema.get("x-kubernetes-preserve-unknown-fields")) and "properties" not in schema


def at(schema: Json, path: str) -> Json | None:
    """The schema at a path such as "spec.tasks[].name", None if it has none. A map has every name."""
    for step in path.split("."):
        name = step.removesuffix("[]")
        if name:
            if is_open(schema):
                return OPEN
            below = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if not isinstance(below, dict):
                return None
            schema = below
        if step.endswith("[]"):
            schema = schema.get("items", {})
    return schema


def validate(document: Any, schema: Json, *, is_whole: bool = True) -> None:
    """Raise ValidationError where a document does not fit, or has a field that the API server would prune.

    Without `is_whole` no field has to be there, as in a patch.
    """
    Draft202012Validator(_closed(schema, is_whole=is_whole)).validate(document)


def _closed(schema: Json, *, is_whole: bool) -> Json:
    words = ("type", "enum", "maxItems", "minItems", *(("required",) if is_whole else ()))
    made = {key: value for key, value in schema.items() if key in words}
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "items" in schema:
        made["items"] = _closed(schema["items"], is_whole=is_whole)
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _closed(schema["additionalProperties"], is_whole=is_whole)
    if "properties" in schema:
        made["properties"] = {name: _closed(each, is_whole=is_whole) for name, each in schema["properties"].items()}
        made["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return made


def filled(schema: Json, chosen: Mapping[str, Any], path: str = "") -> Any:
    """A document with every field of a schema. `chosen` has values by the end of a path, such as "status.phase"."""
    for end, value in chosen.items():
        if f".{path}".endswith(f".{end}"):
            return value
    if "properties" in schema:
        named = ((name, each, f"{path}.{name}".removeprefix(".")) for name, each in schema["properties"].items())
        return {name: filled(each, chosen, below) for name, each, below in named}
    if isinstance(schema.get("additionalProperties"), dict):
        return {"key": filled(schema["additionalProperties"], chosen, f"{path}.key")}
    if schema.get("type") == "array":
        return [filled(schema["items"], chosen, path + "[]")]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("format") == "date-time":
        return "2026-11-29T12:00:00Z"
    plain = {"string": "text", "integer": 1, "number": 1, "boolean": True, "object": {}}
    return 1 if schema.get("x-kubernetes-int-or-string") else plain.get(schema.get("type", "object"))
