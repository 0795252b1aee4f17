"""Kueue's own definitions of its kinds, where the module that the end-to-end tests build it from has been fetched."""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

Json = dict[str, Any]

MODULE = "sigs.k8s.io/kueue"
PIN = Path(__file__).parents[2] / "e2e" / "tools" / "kueue" / "go.mod"


def folder() -> Path | None:
    """The module of the version that is pinned; None if it is not here."""
    pinned = re.search(rf"{re.escape(MODULE)} (v\S+)", PIN.read_text())
    assert pinned, f"{PIN} does not pin {MODULE}"
    modules = os.environ.get("GOMODCACHE") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "pkg" / "mod"
    found = Path(modules) / f"{MODULE}@{pinned[1]}"
    return found if found.is_dir() else None


@cache
def definition(plural: str) -> Json:
    """The CustomResourceDefinition of one kind. Skips the test if the module is not here."""
    found = folder()
    if found is None:
        pytest.skip(f"{MODULE} has not been fetched; python -m tests.e2e.tools --controllers does so")
    file = found / "config" / "components" / "crd" / "bases" / f"kueue.x-k8s.io_{plural}.yaml"
    read: Json = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)  # it makes plain values alone
    return read


def schema(plural: str, version: str) -> Json:
    """The schema of one version of a kind."""
    (found,) = [one for one in definition(plural)["spec"]["versions"] if one["name"] == version]
    read: Json = found["schema"]["openAPIV3Schema"]
    return read


def closed(schema: Json) -> Json:
    """The same as JSON schema has it, and with a complaint about fields that the API server would prune."""
    made = {key: value for key, value in schema.items() if key in ("type", "required", "enum", "maxItems", "minItems")}
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "items" in schema:
        made["items"] = closed(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = closed(schema["additionalProperties"])
    if "properties" in schema:
        made["properties"] = {name: closed(each) for name, each in schema["properties"].items()}
        made["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return made
