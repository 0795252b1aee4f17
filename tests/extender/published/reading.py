"""Notes which fields the product reads of a document, and compares them with a schema."""

import ast
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import msgspec
import pytest

from hived_extender.jobs import document
from hived_extender.jobs.document import Part
from hived_extender.jobs.kinds import native
from tests.extender.published.schemas import Json, at, is_open

Read = tuple[str, str]
"""A path such as "spec.tasks[].name", and the type that is expected there; "" for any."""

_OF_PART = {
    "text": "string",
    "flag": "boolean",
    "whole": "integer",
    "seconds": "integer",
    "part": "object",
    "parts": "array",
    "members": "object",
    "texts": "object",
    "plain": "object",
}
_OF_READERS = {document.whole: "integer", document.count: "integer", native._priority: "integer"}
"""Others read a text."""

_READ = Part.read


def reads_of(read: Callable[[], Any]) -> set[Read]:
    """The fields that a call reads by way of `Part`."""
    found: set[Read] = set()

    def note(place: str, key: str, expected: str) -> None:
        if place in ("label ", "annotation "):
            return  # a pod's own
        if "/" in key:  # a label or an annotation, whose value is a text, whatever it is read as
            key, expected = "key", "string" if expected else ""
        path = place.partition(": ")[2]
        steps = [step.partition("[") for step in f"{path.strip(' .')}.{key}".strip(".").split(".")]
        found.add((".".join(f"{name}[]" if bracket else name for name, bracket, _ in steps), expected))

    within: list[str] = []

    def of_part(method: Any, expected: str) -> Any:
        def noted(self: Part, key: str, *rest: Any) -> Any:
            if not within:
                reader = rest[0] if rest else None
                is_read = method is _READ
                note(self.place, key, _OF_READERS.get(reader, "string") if is_read else expected)
            within.append(key)  # a method may use another one
            try:
                return method(self, key, *rest)
            finally:
                within.pop()

        return noted

    with pytest.MonkeyPatch.context() as patched:
        for name, expected in _OF_PART.items():
            patched.setattr(Part, name, of_part(getattr(Part, name), expected))
        for name in ("__contains__", "read"):
            patched.setattr(Part, name, of_part(getattr(Part, name), ""))
        read()
    return found


def keys_in(module: ModuleType) -> set[str]:
    """The keys that a module names where it reads by way of `Part`."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr in _OF_PART or (node.func.attr == "read" and len(node.args) > 1):
                found.add(_constant(module, node.args[0]))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            found.add(_constant(module, node.left) if isinstance(node.left, ast.Constant) else "")
    return found - {""}


def differences(schema: Json, reads: set[Read]) -> list[str]:
    """What is read and not published, and, with their types, what is published otherwise."""
    found = []
    for path, expected in sorted(reads):
        there = at(schema, path)
        if there is None:
            found.append(path)
        elif not is_open(there) and expected and there.get("type") != expected:
            found.append(f"{path}: {there.get('type')}")
    return found


def differences_of_struct(kind: type[Any], schema: Json) -> list[str]:
    """The same of all fields of a struct."""
    return list(_differences(msgspec.inspect.type_info(kind), schema, ""))


_TYPES = {
    msgspec.inspect.StrType: "string",
    msgspec.inspect.IntType: "integer",
    msgspec.inspect.BoolType: "boolean",
    msgspec.inspect.FloatType: "number",
}


def _differences(kind: Any, schema: Json, path: str) -> Iterator[str]:
    if is_open(schema) or isinstance(kind, msgspec.inspect.AnyType | msgspec.inspect.RawType):
        return
    if isinstance(kind, msgspec.inspect.UnionType):
        kinds = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
        if len(kinds) > 1 and schema.get("x-kubernetes-int-or-string"):
            return
        (kind,) = kinds
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            here = f"{path}.{field.encode_name}".removeprefix(".")
            there = at(schema, field.encode_name)
            if there is None:
                yield here
            else:
                yield from _differences(field.type, there, here)
        return
    expected = "array" if isinstance(kind, msgspec.inspect.ListType) else _TYPES.get(type(kind), "object")
    if schema.get("type") != expected:
        yield f"{path}: {schema.get('type')}"
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from _differences(kind.item_type, schema["items"], f"{path}[]")
    elif isinstance(kind, msgspec.inspect.DictType) and "additionalProperties" in schema:
        yield from _differences(kind.value_type, schema["additionalProperties"], f"{path}.*")


def _constant(module: ModuleType, node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    value = getattr(module, node.id, "") if isinstance(node, ast.Name) else ""
    return value if isinstance(value, str) else ""
