"""Reads Kueue's objects from files, folders and standard input: YAML or JSON, documents and Lists.

Every mistake of all files is noted at its line. A field that is not known here is a remark: Kueue may be newer.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from hived_cli.migrate.fields import FIELDS, GROUP, LEFT_OUT, VERSIONS
from hived_config.access import NAMESPACE_NAME
from hived_config.document import ConfigError, Mistake, compose_all, read_stream, read_text
from hived_config.reader import Reader, closest, describe, is_null, name_text, shorten

SUFFIXES = (".yaml", ".yml", ".json")
"""The files of a folder that are read."""

STANDARD_INPUT = "standard input"
_NAMES = name_text("the name of the object", r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAMESPACED = {"LocalQueue"}


class Remark(msgspec.Struct, frozen=True):
    """A remark about one place in a file; `is_lost` if it has no counterpart."""

    file: str
    line: int
    object: str
    field: str
    text: str
    is_lost: bool = False

    def __str__(self) -> str:
        """One line: `file:line: ClusterQueue research, spec.stopPolicy: no counterpart: ...`."""
        what = ", ".join(filter(None, (self.object, self.field)))
        return f"{self.file}:{self.line}: {what}: {'no counterpart: ' * self.is_lost}{self.text}"


@dataclass(frozen=True)
class PlaceInFile:
    """A node of a document."""

    reader: Reader
    file: str
    node: yaml.Node

    @property
    def line(self) -> int:
        """Its line in the file."""
        return self.reader.line(self.node)


@dataclass(frozen=True)
class KueueObject:
    """One object: its values by the paths of `FIELDS`, each with its place.

    A path in a list has the numbers of its items in the place of `[]`: `spec.levels[0].nodeLabel`.
    """

    kind: str
    name: str
    namespace: str
    place: PlaceInFile
    values: dict[str, tuple[Any, PlaceInFile]]

    def value(self, path: str, default: Any = None) -> Any:
        """The value at a path, as a word if it is one of several."""
        value = self.values[path][0] if path in self.values else default
        return value.value if isinstance(value, Enum) else value

    def at(self, path: str) -> PlaceInFile:
        """The place of a path; that of the object if there is none."""
        return self.values[path][1] if path in self.values else self.place

    def each(self, path: str) -> Iterator[str]:
        """The paths of the items of a list, in order."""
        number = 0
        while any(known == f"{path}[{number}]" or known.startswith(f"{path}[{number}].") for known in self.values):
            yield f"{path}[{number}]"
            number += 1

    @property
    def title(self) -> str:
        """The object for people: `LocalQueue vision/main`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass
class KueueObjects:
    """All objects of all files, by kind and in order, and the remarks so far."""

    found: dict[str, list[KueueObject]] = field(default_factory=lambda: {kind: [] for kind in FIELDS})
    remarks: list[Remark] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)
    broken: list[Mistake] = field(default_factory=list)
    is_whole: bool = True
    """False if an object could not be read so far that its name is known."""

    def of(self, kind: str) -> list[KueueObject]:
        """The objects of a kind."""
        return self.found[kind]

    def by_name(self, kind: str) -> dict[str, KueueObject]:
        """The objects of a kind that has no namespaces."""
        return {each.name: each for each in self.found[kind]}

    def remark(self, found: KueueObject, path: str, text: str, *, is_lost: bool = False) -> None:
        """Say something of a field of an object."""
        place = found.at(path)
        self.remarks.append(Remark(place.file, place.line, found.title, path, text, is_lost))

    def refuse(self) -> None:
        """Raise ConfigError with every mistake of all files, if there is one."""
        noted = [each for reader in self.readers for each in reader.mistakes() if not each.is_warning]
        if mistakes := [*self.broken, *noted]:
            raise ConfigError(mistakes, "" if self.is_whole else "whether there are all objects that others name")


def read_objects(paths: Iterable[Path]) -> KueueObjects:
    """Read all objects of Kueue. Mistakes are noted. Raises ConfigError if there is none, and no ClusterQueue."""
    objects = KueueObjects()
    files: list[str] = []
    for path in paths:
        for file, read in _texts(path):
            files.append(file)
            try:
                roots = compose_all(read(), file)
            except ConfigError as error:
                objects.broken += error.mistakes
                objects.is_whole = False
                continue
            for root in roots:
                reader = Reader(file, root, lenient=True)
                objects.readers.append(reader)
                _read_document(objects, PlaceInFile(reader, file, root))
    for kind, found in objects.found.items():
        _refuse_twice(kind, found)
    noted = [each for reader in objects.readers for each in reader.mistakes()]
    if objects.broken or any(not each.is_warning for each in noted):
        return objects
    for each in noted:
        text = f"{each.found}" + (f", did you mean {each.suggestion}?" if each.suggestion else "")
        objects.remarks.append(Remark(each.file, each.line, "", each.path, text, is_lost=True))
    if not objects.of("ClusterQueue"):
        kinds = {kind: len(every) for kind, every in objects.found.items()} | objects.others
        given = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()) if count) or "no object"
        expected = "at least one ClusterQueue: kubectl get clusterqueues -o yaml has them"
        raise ConfigError([Mistake(", ".join(files), 0, "", given, expected)])
    return objects


def _texts(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """The names of the files of a path, and what reads each: it raises ConfigError where that cannot be done."""
    if str(path) == "-":
        yield STANDARD_INPUT, _standard_input
        return
    name = click.format_filename(path)
    if not path.is_dir():
        yield name, lambda: read_text(path, name)
        return
    files = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
    for each in files:
        yield from _texts(each)
    if not files:
        yield name, lambda: _refuse(name, "no file in it", f"files that end in {', '.join(SUFFIXES)}")


def _standard_input() -> str:
    if sys.stdin is None:
        return _refuse(STANDARD_INPUT, "nothing, as it is closed", "objects of Kueue")
    return read_stream(sys.stdin.buffer, STANDARD_INPUT)


def _refuse(file: str, found: str, expected: str) -> str:
    raise ConfigError([Mistake(file, 0, "", found, expected)])


def _read_document(objects: KueueObjects, place: PlaceInFile) -> None:
    """An object, or the objects of a List."""
    reader = place.reader
    given = {name: value for name, _, value in reader.fields(place.node, "an object of Kubernetes (a mapping)")}
    if not isinstance(place.node, yaml.MappingNode):
        objects.is_whole = False
        return
    version, kind = (reader.text(given.get(key), f"the {key} of an object") for key in ("apiVersion", "kind"))
    if not version or not kind:
        objects.is_whole = False
        reader.missing(
            place.node, "kind" if version else "apiVersion", "apiVersion and kind, as kubectl get -o yaml has them"
        )
        return
    if kind == "List" or (kind.endswith("List") and "items" in given):
        for item in reader.items(given.get("items"), "a list of objects", "an object"):
            _read_document(objects, PlaceInFile(reader, place.file, item))
        return
    group, _, own = version.rpartition("/")
    if group != GROUP:
        objects.others[kind] = objects.others.get(kind, 0) + 1
        return
    if kind in LEFT_OUT:
        name = reader.text(_part(reader, given.get("metadata"), "name"), "the name of the object")
        title = f"{kind} {name}".strip()
        objects.remarks.append(Remark(place.file, place.line, title, "", LEFT_OUT[kind].replace("`", ""), is_lost=True))
    elif kind not in FIELDS:
        objects.is_whole = False
        found = f"kind {shorten(kind)} of {GROUP}"
        reader.note(given["kind"], found, f"one of {', '.join(FIELDS)}", closest(kind, FIELDS))
    elif own not in VERSIONS:
        objects.is_whole = False
        plural = re.sub("ys$", "ies", re.sub("sss$", "sses", f"{kind.lower()}s"))
        expected = f"{' or '.join(VERSIONS)}: kubectl get {plural}.{VERSIONS[-1]}.{GROUP} -A -o yaml has it"
        reader.note(given["apiVersion"], f"version {shorten(own)}", expected)
    else:
        _read_object(objects, kind, place, given)


def _part(reader: Reader, node: yaml.Node | None, name: str) -> yaml.Node | None:
    return next((value for key, _, value in reader.fields(node, "a mapping") if key == name), None)


def _read_object(objects: KueueObjects, kind: str, place: PlaceInFile, given: Mapping[str, yaml.Node]) -> None:
    reader = place.reader
    metadata = given.get("metadata")
    if metadata is None:
        objects.is_whole = False
        reader.missing(place.node, "metadata", "metadata with a name")
        return
    name_node = _part(reader, metadata, "name")
    if name_node is None:
        reader.missing(metadata, "name", "the name of the object")
    name = _NAMES.read(reader, name_node) if name_node is not None else ""
    objects.is_whole &= bool(name)
    namespace = ""
    if kind in _NAMESPACED:
        node = _part(reader, metadata, "namespace")
        namespace = "default" if node is None else NAMESPACE_NAME.read(reader, node)
    found = KueueObject(kind, name, namespace, place, {})
    names = [*dict.fromkeys(path.split(".")[0] for path in FIELDS[kind])]
    known = reader.known_fields(place.node, f"a {kind}", ["apiVersion", "kind", "metadata", "status", *names])
    for key in names:
        if key in known:
            _read_field(found, key, key, known[key])
    objects.found[kind].append(found)
    for path, (value, _) in found.values.items():
        table = FIELDS[kind][_general(path)]
        if text := table.remark(value):
            objects.remark(found, path, text.replace("`", ""), is_lost=not table.becomes)


def _read_field(found: KueueObject, general: str, path: str, node: yaml.Node) -> None:
    """Read what is at a path: `general` has `[]` where `path` has the number of an item."""
    if is_null(node):
        return
    table, reader = FIELDS[found.kind], found.place.reader
    if (own := table.get(general)) is not None:
        found.values[path] = own.kind.read(reader, node), PlaceInFile(reader, found.place.file, node)
    elif any(each.startswith(f"{general}[]") for each in table):
        if not isinstance(node, yaml.SequenceNode):
            reader.note(node, describe(node), "a list")
            return
        for number, item in enumerate(node.value):
            if is_null(item):
                reader.note(item, "nothing", "an item")
            _read_field(found, f"{general}[]", f"{path}[{number}]", item)
    else:
        below = [each[len(general) + 1 :] for each in table if each.startswith(f"{general}.")]
        names = [*dict.fromkeys(each.split(".")[0].split("[")[0] for each in below)]
        for name, value in reader.known_fields(node, f"a mapping of {', '.join(names)}", names).items():
            _read_field(found, f"{general}.{name}", f"{path}.{name}", value)


def _general(path: str) -> str:
    return re.sub(r"\[\d+\]", "[]", path)


def _refuse_twice(kind: str, found: Iterable[KueueObject]) -> None:
    first: dict[str, KueueObject] = {}
    for each in found:
        if each.name and each.title in first:
            before = first[each.title].place
            again = f"{each.title} a second time (first: {before.file}:{before.line})"
            each.place.reader.note(each.place.node, again, f"each {kind} once")
        first.setdefault(each.title, each)
