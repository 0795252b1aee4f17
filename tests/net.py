"""Everything that a user can touch, read from the code, one fact a line: `python -m tests.net --write` makes the list.

Commands, routes, configuration, metrics, Helm values and manifests come through the door that a user has. Names without
such a door (annotations, reasons of events, variables of the environment, files, fields) are texts of the code that
look like one. No fact names a module, so a move of code changes none.
"""

import ast
import gc
import importlib
import inspect
import json
import pkgutil
import re
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
import yaml
from click.testing import CliRunner
from flask import Flask
from prometheus_client import REGISTRY, CollectorRegistry

from hived_cli import main
from hived_lab.start import start_embedded
from hived_simulator.queued import NAMES as QUEUES
from tests.places import ROOT
from tests.test_waiting_messages import messages

LIST = Path(__file__).with_name("net.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [ROOT / each for each in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
CONFIG = """\
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n0}]
virtualClusters: {a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}}
rules: 2
queues: {enabled: true}
"""


Object = dict[str, Any]
Scope = Mapping[str, Any]

KINDS_OF_TEXT = {
    "qualified name": r"[a-z0-9-]+(\.[a-z0-9-]+)+/[\w./{}-]*",  # annotations, labels, gates, resources, API groups
    "word": r"[A-Z][a-z0-9]+[A-Za-z0-9]*",  # reasons of events, conditions, states, kinds, fields of the extender's API
    "key": r"[a-z]+[a-z0-9]*[A-Z]\w*",
    "name": r"[a-z][a-z0-9]*(-[a-z0-9{}]+)+",  # objects of Kubernetes, causes, policies, formats
    "column": r"[a-z][a-z0-9]*(_[a-z0-9]+)+",
    "variable": r"[A-Z][A-Z0-9]*(_[A-Z0-9{}]+)+",
    "path": r"/[\w/{}.<>:-]+",
    "file": r"[\w.{}-]+\.(ya?ml|jsonl?|csv|gz|svg|crt|key|txt|pem|html|css|js|md|zst|parquet)",
}
READERS = {"text", "whole", "number", "flag", "texts", "section", "sections", "document", "plain"}
"""Methods of documents that people write; the key comes first."""

NO_DOORS = {
    "isinstance", "issubclass", "cast", "replace", "TypeVar", "NewType", "getattr", "setattr", "partial", "map", "set",
    "len", "defaultdict", "get_type_hints",
}  # fmt: skip
"""Calls that neither read nor write what they are given."""

RECORDS = {"StructOf", "_Certify"}
"""Keys of a configuration with the structs that they become, which are no JSON."""


def facts() -> list[str]:
    """All facts, sorted."""
    modules = _modules()
    found = {
        *_commands(modules),
        *_configuration(),
        *_service(),
        *_packaging(),
        *_deployment(),
        *_texts(modules),
        *_documents(modules),
        *_waiting(),
        *(f"name {each}" for each in QUEUES if "-" in each),
    }
    return sorted(" ".join(fact.split()) for fact in found)


# ---- doors


def _commands(modules: Mapping[str, "Source"]) -> Iterator[str]:
    """Commands with arguments, options and exit codes."""
    for name, entry in PROJECT["project"]["scripts"].items():
        module, _, attribute = entry.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            continue  # another way to call the same commands
        for path, each in _below(command, click.Context(command, info_name=name)):
            yield f"command {path}"
            yield from (f"command {path}: {_parameter(one)}" for one in each.params)
            ends = _exit_codes(inspect.unwrap(each.callback), module, modules, set()) if each.callback else ()
            yield from (f"command {path}: exit code {code}" for code in ends)
        for source in modules.values():
            if source.name.startswith(module):
                yield from (f"exit code {code}" for code in source.exit_codes(source.tree))


def _exit_codes(called: Any, package: str, modules: Mapping[str, "Source"], seen: set[Any]) -> set[int]:
    """Numbers with which a function or class, or another one of the same package that it names, ends the program."""
    source = modules.get(getattr(called, "__module__", ""))
    if source is None or not source.name.startswith(package) or called in seen:
        return set()
    seen.add(called)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    body = next((each for each in source.tree.body if isinstance(each, kinds) and each.name == called.__name__), None)
    found = source.exit_codes(body) if body else set()
    for name in {node.id for node in (ast.walk(body) if body else ()) if isinstance(node, ast.Name)}:
        value = source.scope.get(name)
        if inspect.isfunction(value) or inspect.isclass(value):
            found |= _exit_codes(value, package, modules, seen)
    return found


def _below(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _below(child, click.Context(child, info_name=name, parent=context))


def _parameter(parameter: click.Parameter) -> str:
    said = parameter.to_info_dict()
    names = "/".join([*said["opts"], *said.get("secondary_opts", ())])
    kind = {key: value for key, value in said["type"].items() if value and key not in ("param_type", "case_sensitive")}
    name = kind.pop("name")
    details = f"{name} {json.dumps(kind, sort_keys=True, default=str)}" if kind else name
    more = [key for key in ("required", "multiple", "is_flag", "count", "hidden") if said.get(key)]
    more += [f"{key}={said[key]!r}" for key in ("nargs", "envvar") if said[key] not in (None, 1)]
    default = "made at run time" if callable(parameter.default) else json.dumps(said["default"], default=str)
    return f"{said['param_type_name']} {names} {details} {' '.join(more)} default {default}"


def _configuration() -> Iterator[str]:
    """Keys of configurations, and values of the Helm chart."""
    schema = json.loads(CliRunner().invoke(main, ["config", "schema"]).stdout)
    for name, each in [("document", schema), *schema["definitions"].items()]:
        yield from _properties(f"configuration {name}", each)
    values = json.loads((ROOT / "charts/hived/values.schema.json").read_text())
    yield from _properties("Helm value", values)
    for path, value in _leaves(yaml.safe_load((ROOT / "charts/hived/values.yaml").read_text())):
        yield f"Helm default {path}: {json.dumps(value)}"


def _properties(of: str, schema: Object) -> Iterator[str]:
    """The keys of an object in JSON schema, with all that is said of them but descriptions."""
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        yield f"{of}.{name}{' required' if name in required else ''}: {json.dumps(_bare(each), sort_keys=True)}"
        yield from _properties(f"{of}.{name}", each)


def _bare(schema: Any) -> Any:
    prose = ("description", "title", "x-default", "properties", "summary")
    if isinstance(schema, dict):
        return {key: _bare(value) for key, value in schema.items() if key not in prose}
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _service() -> Iterator[str]:
    """Routes, JSON of answers, and metrics of a service that runs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hivedscheduler.yaml"
        file.write_text(CONFIG)
        with start_embedded(file, has_webhook=True) as running:
            with urllib.request.urlopen(f"{running.extender.url}/openapi.json") as answer:
                # without the longer names of two structs that are called the same
                document = json.loads(re.sub(r"\bhived_[\w.]+\.", "", answer.read().decode()))
            things = gc.get_objects()
            apps = [each for each in things if type(each) is Flask]
            registries = [each for each in things if type(each) is CollectorRegistry and each is not REGISTRY]
            for app in apps:
                for rule in app.url_map.iter_rules():
                    yield f"route {','.join(sorted(rule.methods - {'HEAD', 'OPTIONS'}))} {rule.rule}"
            for registry in registries:
                yield from _metrics(registry)
    for path, operations in document["paths"].items():
        for method, one in operations.items():
            yield f"openapi {method.upper()} {path}: {json.dumps(_bare(one), sort_keys=True)}"
    for name, schema in document["components"]["schemas"].items():
        yield from _properties(f"openapi {name}", schema)


def _metrics(registry: Any) -> Iterator[str]:
    instruments = {id(each): each for each in registry._names_to_collectors.values()}
    for each in instruments.values():
        if hasattr(each, "_labelnames"):
            buckets = f" buckets {[*each._upper_bounds]}" if hasattr(each, "_upper_bounds") else ""
            yield f"metric {each._type} {each._name} {[*each._labelnames]}{buckets}"
    for family in registry.collect():
        if hasattr(family, "_labelnames"):
            yield f"metric {family.type} {family.name} {[*family._labelnames]}"


# ---- files


def _packaging() -> Iterator[str]:
    """What can be installed, and made in a checkout."""
    project = PROJECT["project"]
    yield f"distribution {project['name']} for Python {project['requires-python']}"
    yield from (f"program {name}" for name in project["scripts"])
    yield from (f"extra {name}" for name in project["optional-dependencies"])
    for target in re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE):
        yield f"make {target}"
    for folder in ("examples", "config/samples", "config/deploy", "charts"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"delivered {path.relative_to(ROOT).as_posix()}"


def _deployment() -> Iterator[str]:
    """Objects of the manifests, with rights, arguments, variables, ports and volumes."""
    for path in sorted([*(ROOT / "config/deploy").rglob("*.yaml"), *(ROOT / "charts").rglob("crds/*.yaml")]):
        for each in yaml.safe_load_all(path.read_text()):
            if isinstance(each, dict) and isinstance(each.get("metadata"), dict) and "kind" in each:
                yield from _object(each)


def _object(item: Object) -> Iterator[str]:
    name = f"object {item['kind']} {item['metadata'].get('name', '')}"
    yield name
    yield from (f"{name}: data {key}" for key in {**item.get("data", {}), **item.get("stringData", {})})
    for rule in item.get("rules") or ():
        yield f"{name}: rule {json.dumps(rule, sort_keys=True)}"
    for hook in item.get("webhooks") or ():
        yield f"{name}: webhook {json.dumps({key: hook[key] for key in hook if key != 'clientConfig'}, sort_keys=True)}"
    spec = ((item.get("spec") or {}).get("template") or {}).get("spec") or {}
    for one in spec.get("containers", ()):
        yield from (f"{name}: argument {each}" for each in [*one.get("command", ()), *one.get("args", ())])
        yield from (f"{name}: variable {each['name']}" for each in one.get("env", ()))
        yield from (f"{name}: port {json.dumps(each, sort_keys=True)}" for each in one.get("ports", ()))
        yield from (f"{name}: mount {each['mountPath']}" for each in one.get("volumeMounts", ()))


# ---- texts


class Source:
    """A module of the product: its tree, and its values."""

    def __init__(self, name: str, module: ModuleType) -> None:
        assert module.__file__ is not None
        self.name = name
        self.scope: Scope = vars(module)
        self.tree = ast.parse(Path(module.__file__).read_text())
        self.nodes = [*ast.walk(self.tree)]

    def texts(self) -> Iterator[str]:
        """Texts that are values, {} for each part that is not known; no docstrings, names of types, log lines."""
        silent = {id(inner) for node in self.nodes for outer in _silent(node) for inner in ast.walk(outer)}
        for node in self.nodes:
            if isinstance(node, ast.JoinedStr | ast.BinOp) and id(node) not in silent:
                silent |= {id(part) for part in _parts(node)}
                text = self.text(node)
                if text is not None:
                    yield text
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
                yield node.value

    def text(self, node: ast.AST) -> str | None:
        """A text, put together from the module's values; None for what is none."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(each) or "{}" for each in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.text(node.left), self.text(node.right)
            return None if left is None and right is None else f"{left or '{}'}{right or '{}'}"
        value = self.value(node)
        value = value.value if isinstance(value, Enum) else value
        return value if isinstance(value, str) else None

    def value(self, node: ast.AST | None) -> Any:
        """The value of an expression of names, attributes and types; None for one that is made when the code runs."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.scope.get(node.id)
        if isinstance(node, ast.Attribute):
            of = self.value(node.value)
            return getattr(of, node.attr, None) if isinstance(of, ModuleType | type | Enum) else None
        is_union = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
        return self._type(node) if is_union or isinstance(node, ast.Subscript) else None

    def _type(self, node: ast.AST) -> Any:
        try:
            return eval(ast.unparse(node), dict(self.scope))
        except Exception:  # a value of a function, not a type
            return None

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Each call, with the last word of what is called."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                yield (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id), node

    def exit_codes(self, body: ast.AST) -> set[int]:
        """Numbers with which a part of this module ends the program."""
        ends: list[ast.AST] = []
        for node in ast.walk(body):
            if isinstance(node, ast.Call) and re.fullmatch(r"SystemExit|\w+\.exit", ast.unparse(node.func)):
                ends += node.args[:1]
            elif isinstance(node, ast.Assign) and "exit_code" in ast.unparse(node.targets[0]):
                ends.append(node.value)
        values = [self.value(each) for end in ends for each in ast.walk(end)]
        values += [each for end in values if isinstance(end, Mapping) for each in end.values()]
        return {each for each in values if type(each) is int}

    def identifiers(self) -> Iterator[str]:
        """Names that this module gives to values, functions, parameters and attributes."""
        for node in self.nodes:
            for field in ("id", "attr", "arg", "name", "module"):
                name = getattr(node, field, None)
                yield from name.split(".") if isinstance(name, str) else ()


def _modules() -> dict[str, Source]:
    """All modules of the product, by name."""
    names = [package.name for package in PACKAGES]
    for package in PACKAGES:
        names += [each.name for each in pkgutil.walk_packages([str(package)], f"{package.name}.")]
    modules = {name: importlib.import_module(name) for name in names}
    return {name: Source(name, each) for name, each in modules.items() if str(each.__file__).endswith(".py")}


def _silent(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node whose texts are for readers and tools of the code."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    for field in ("annotation", "returns"):
        if isinstance(inner := getattr(node, field, None), ast.AST):
            yield inner
    if isinstance(node, ast.Assign) and any("__" in ast.unparse(each) for each in node.targets):
        yield node.value
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Name) and called.id in NO_DOORS:
            yield node
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "log":
            yield node


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The pieces of a text that is put together, but no texts inside calls of it."""
    if isinstance(node, ast.JoinedStr):
        yield from node.values
    if isinstance(node, ast.BinOp):
        for side in (node.left, node.right):
            yield side
            yield from _parts(side)


def _texts(modules: Mapping[str, Source]) -> Iterator[str]:
    """Texts that look like a name that others see."""
    identifiers = {name for source in modules.values() for name in source.identifiers()}
    packages = {package.name for package in PACKAGES}
    patterns = {kind: re.compile(pattern) for kind, pattern in KINDS_OF_TEXT.items()}
    for source in modules.values():
        for text in [*source.texts(), *_qualified(source.scope)]:
            for kind, pattern in patterns.items():
                is_ours = text in packages or (kind == "column" and text in identifiers)
                if pattern.fullmatch(text) and not is_ours:
                    yield f"{kind} {text}"
        for name, call in source.calls():
            first = call.args[0] if call.args else None
            if first and name == "get" and "environ" in ast.unparse(call.func):
                variable = source.text(first) or ""
                yield from [f"variable {variable}"] if variable.isupper() else ()
            if name in READERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield f"key of a document {first.value}"


def _qualified(value: Any, depth: int = 4) -> Iterator[str]:
    """Names with a domain among the values of a module, wherever they were put together."""
    if isinstance(value, str):
        yield from [value] if "/" in value and re.fullmatch(KINDS_OF_TEXT["qualified name"], value) else ()
    elif depth and isinstance(value, tuple | list | set | frozenset):
        yield from (text for each in value for text in _qualified(each, depth - 1))
    elif depth and isinstance(value, Mapping):
        yield from (text for pair in value.items() for each in pair for text in _qualified(each, depth - 1))
    elif depth and isinstance(value, type) and issubclass(value, Enum):
        yield from (text for each in value for text in _qualified(each.value, depth - 1))


# ---- JSON


def _documents(modules: Mapping[str, Source]) -> Iterator[str]:
    """JSON that is stored or read: own formats object by object, objects of others field by field."""
    for source in modules.values():
        for name, call in source.calls():
            if name in NO_DOORS | RECORDS:
                continue
            is_own = name in ("Decoder", "decode") and "inspector" not in ast.unparse(call.func)
            for given in [*call.args, *(each.value for each in call.keywords if each.arg == "type")]:
                for schema in _schemas(source.value(given)):
                    fields = {key: _kind(each) for key, each in schema.get("properties", {}).items()}
                    if is_own:
                        must = schema.get("required", ())
                        said = [f"{key}{'' if key in must else '?'} {kind}" for key, kind in sorted(fields.items())]
                        yield from [f"json {{{', '.join(said)}}}"] if said else ()
                    else:
                        yield from (f"{_kind_of(field)} {field}" for field in fields)


def _kind_of(field: str) -> str:
    kinds = (kind for kind in ("key", "name", "word") if re.fullmatch(KINDS_OF_TEXT[kind], field))
    return next(kinds, "field")


def _schemas(kind: Any) -> list[Object]:
    """The structs of a type."""
    try:
        return [*msgspec.json.schema_components([kind])[1].values()] if not isinstance(kind, str | int | None) else []
    except Exception:  # no type, or one without JSON
        return []


def _kind(schema: Object) -> str:
    """A type in JSON schema, in few words."""
    if "$ref" in schema:
        return "object"
    if "const" in schema or "enum" in schema:
        return "|".join(json.dumps(each) for each in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return "|".join(sorted(_kind(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items') or {})}]"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{{{_kind(schema['additionalProperties'])}}}"
    return str(schema.get("type", "any"))


def _waiting() -> Iterator[str]:
    """Messages of waiting pods, as the page about them has them."""
    return (f"message {text}" for text in messages())


if __name__ == "__main__":
    found = "".join(f"{fact}\n" for fact in facts())
    if "--write" in sys.argv[1:]:
        LIST.write_text(found)
    else:
        sys.stdout.write(found)
