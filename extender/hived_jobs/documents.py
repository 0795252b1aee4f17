"""Job files as written: YAML documents whose values know the line they stand on.

A job file is written by hand, so a mistake must be answered with its file, line and place in the document. Values are
therefore read straight from YAML's nodes, typed by the caller's question: `text("name")` of `name: 010` is "010", and
`whole("instances")` of `instances: two` is a `UserError` that says where. Unread keys become warnings.

A manifest is for Kubernetes to interpret, so plain values follow YAML 1.1: `hostNetwork: yes` becomes a truth value.
Keys stay as written, and so do dates, numbers in base 60 such as `12:30`, and `1e3`. Where Kubernetes takes nothing but
texts, as in labels and annotations, a number or a truth value without quotes is the text as written, with a warning.

The nodes come from `hived_config.document`, which keeps scalars as written and bounds size, nesting and aliases.
Invariant: every mapping of a `Document` has scalar keys, each once, and merges mappings only.
"""

import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_config.document import PLAIN, ConfigError, compose, compose_all, read_stream, read_text
from hived_config.reader import (
    FALSES,
    INT32_MAX,
    TEXT_TAGS,
    TRUES,
    Reader,
    describe,
    is_null,
    path_to,
    printable,
    shorten,
)

_TAG = "tag:yaml.org,2002:"
_COLLECTION_TAGS = (PLAIN, f"{_TAG}map", f"{_TAG}seq")
_BOOLEANS = yaml.constructor.SafeConstructor.bool_values
_RESOLVER: Any = yaml.resolver.Resolver()


def plain_value(reader: Reader, node: yaml.Node) -> object:
    """A node as null, truth value, number, text, list or mapping by text; aliases become copies.

    Notes with the reader: tags that JSON has no type for, and values that do not fit their tag or JSON.
    """
    if isinstance(node, yaml.ScalarNode):
        return _scalar(reader, node)
    if node.tag not in _COLLECTION_TAGS:
        reader.note(node, f"a value tagged {shorten(node.tag)}", "plain YAML")
    if isinstance(node, yaml.SequenceNode):
        return [plain_value(reader, item) for item in node.value]
    return {name: plain_value(reader, value) for name, _, value in reader.fields(node, "")}


def _scalar(reader: Reader, node: yaml.ScalarNode) -> object:
    tag = node.tag
    if tag == PLAIN:
        tag = _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False))
    parse = _PARSERS.get(tag)
    if parse is None:
        if node.tag not in TEXT_TAGS:
            reader.note(node, describe(node), "plain YAML")
        return node.value
    try:
        return parse(node.value)
    except (KeyError, ValueError):
        if node.tag == PLAIN:
            return node.value
        reader.note(node, f"{shorten(node.value)} tagged {shorten(node.tag)}", "a value of that type")
    except OverflowError:
        reader.note(node, describe(node), "a number that JSON can hold, or a text in quotes")
    return None


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    unsigned = digits.lstrip("+-")
    if len(unsigned) > 66:  # the longest of 64 bits, 0b...
        raise OverflowError
    is_octal = unsigned.startswith("0") and unsigned.isdecimal()
    number = int(digits, 8 if is_octal else 0)
    if not -(2**63) <= number < 2**64:
        raise OverflowError
    return number


def _float(text: str) -> float:
    number = float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not isfinite(number):
        raise OverflowError
    return number


_PARSERS: Mapping[str, Callable[[str], object]] = {
    f"{_TAG}null": lambda _: None,
    f"{_TAG}bool": lambda text: _BOOLEANS[text.lower()],
    f"{_TAG}int": _integer,
    f"{_TAG}float": _float,
}


_TEXT_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "selector"})
_TEXT_LISTS = frozenset({"args", "command"})
_VARIABLES, _NAMED_VARIABLES, _VALUE = "env", "envs", "value"
"""Keys of Kubernetes' objects below which values are texts; of variables only their `value` is."""

Place = tuple[yaml.Node, int, str]
"""A mapping or list, the index of a value in it, and the path of that value."""


def _make_texts(file: str, reader: Reader, prefix: str) -> list[str]:
    """Make texts of the values of an object that Kubernetes takes as nothing else; returns a warning for each."""
    warnings = []
    for node, index, path in _places_of_texts(reader.root, prefix):
        key, value = node.value[index] if isinstance(node, yaml.MappingNode) else (None, node.value[index])
        if not isinstance(value, yaml.ScalarNode) or value.tag != PLAIN:
            continue
        if isinstance(_scalar(Reader(file, value), value), str):
            continue
        text = "" if is_null(value) else value.value
        made = yaml.ScalarNode(f"{_TAG}str", text, value.start_mark, value.end_mark)
        node.value[index] = made if key is None else (key, made)
        if text:
            said = f"found {describe(value)}, taken as a text; Kubernetes refuses it without quotes: write {text!r}"
            warnings.append(f"{file}:{reader.line(value)}: {path}: {printable(said)}")
    return warnings


def _places_of_texts(root: yaml.Node, prefix: str) -> Iterator[Place]:
    """The places of an object that hold texts, each once in each role of the mapping or list around it."""
    seen: set[tuple[int, str]] = set()
    stack = [(root, prefix, "")]
    while stack:
        node, path, part = stack.pop()
        if (id(node), part) in seen:
            continue
        seen.add((id(node), part))
        inner = []
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                if part in _TEXT_LISTS:
                    yield node, index, f"{path}[{index}]"
                inner.append((item, f"{path}[{index}]", part))
        elif isinstance(node, yaml.MappingNode):
            for index, (key, value) in enumerate(node.value):
                name = str(key.value)
                if part in _TEXT_MAPS or (part == _VARIABLES and name == _VALUE):
                    yield node, index, path_to(name, path)
                below = part if name == _MERGE else _VARIABLES if part == _NAMED_VARIABLES else name
                inner.append((value, path_to(name, path), below))
        stack += reversed(inner)


_MERGE = "<<"
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)


_FIELD = re.compile(r"\b(?:metadata|spec)(?:\.[\w/-]+|\[[^\]\s]+\])+")
"""A field in the messages of API servers."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document of a file, and the warnings that reading it gave. `path` is its place if it is inside another.

    Raises ConfigError, listing them all, for mappings that break the invariant.
    """

    file: str
    reader: Reader
    path: str = ""
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for node in _nodes(self.reader.root):
            if isinstance(node, yaml.MappingNode):
                self.reader.fields(node, "")
        _raise_noted(self.reader)
        if "kind" in self.section():
            self.warnings.extend(_make_texts(self.file, self.reader, self.path))

    def section(self) -> "Section":
        """The whole document as a section. Raises UserError unless it is a mapping."""
        return Section(self, self.path, self.reader.root)

    def value(self) -> object:
        """The document as plain values. Raises ConfigError for values that have no JSON."""
        value = plain_value(self.reader, self.reader.root)
        _raise_noted(self.reader)
        return value

    def written(self) -> Any:
        """The document as JSON that reads as it does: every scalar as a text, as written, but null."""
        return _written(self.reader, self.reader.root)

    def place_of(self, message: str) -> str:
        """The "FILE:LINE: " of the first field that an API server's message names, such as `spec.containers[0].image`.

        A field that is missing has the line of what lacks it; "" where the message names none.
        """
        named = _FIELD.search(message)
        node, line, rest = self.reader.root, 0, named[0] if named is not None else ""
        while rest:
            inner: list[tuple[str, yaml.Node, yaml.Node]] = []
            if isinstance(node, yaml.MappingNode):
                fields = self.reader.fields(node, "")
                inner = [(form, key, value) for name, key, value in fields for form in (name, f"[{name}]")]
            elif isinstance(node, yaml.SequenceNode):
                inner = [(f"[{at}]", item, item) for at, item in enumerate(node.value)]
            inner = [each for each in inner if rest == each[0] or rest.startswith((f"{each[0]}.", f"{each[0]}["))]
            if not inner:
                break
            form, key, node = max(inner, key=lambda each: len(each[0]))
            line, rest = self.reader.line(key), rest[len(form) :].removeprefix(".")
        return f"{self.file}:{line}: " if line else ""

    def copy(self) -> "Document":
        """The same document with warnings of its own, for a reader whose warnings are of no use."""
        return Document(self.file, self.reader, self.path)

    def put(self, place: Sequence[str | int], value: object) -> None:
        """Set a value of JSON, with the mappings around it that are not there; a number in `place` is that of an item.

        A section that was read before keeps what it has. Raises UserError where another value is in the way.
        """
        node, section = self.reader.root, self.section()
        for at, step in enumerate(place):
            if isinstance(step, int):
                node = node.value[step]
                continue
            if not isinstance(node, yaml.MappingNode):
                raise section.refuse("", f"found {describe(node)}, expected a mapping with {step}")
            is_last = at == len(place) - 1
            found = next((each for name, _, each in self.reader.fields(node, "") if name == step), None)
            if is_last or found is None or is_null(found):
                found = _node(value if is_last else {}, node)
                node.value = [*(pair for pair in node.value if pair[0].value != step), (_node(step, node), found)]
            node = found


def _written(reader: Reader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return None if is_null(node) else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_written(reader, item) for item in node.value]
    return {name: _written(reader, value) for name, _, value in reader.fields(node, "")}


class Section:
    """A mapping inside a document; an absent one reads as empty.

    Every reader marks its key as known, and a section is made once. So `warn_unknown` on the outermost section can
    report every key that was not asked for.
    """

    def __init__(self, document: Document, path: str, node: yaml.Node | None, key: yaml.Node | None = None) -> None:
        self._document = document
        self._path = path
        self._start = key or node or document.reader.root
        self._known: set[str] = set()
        self._children: dict[str, list[Section]] = {}
        if node is not None and not isinstance(node, yaml.MappingNode) and not is_null(node):
            raise self.refuse("", f"found {describe(node)}, expected a mapping of names to values")
        fields = document.reader.fields(node, "")
        self._keys = {name: key for name, key, _ in fields}
        self._nodes = {name: value for name, _, value in fields}

    def __contains__(self, key: str) -> bool:
        return key in self._nodes and not is_null(self._nodes[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def text(self, key: str, default: str | None = None) -> str:
        """The text at `key`, as written. Without a default a missing or empty value is a mistake."""
        node = self._scalar(key, "a text")
        if node is None or not node.value:
            if default is None:
                raise self.refuse(key, "missing; expected a text")
            return default
        return str(node.value)

    def whole(self, key: str, default: int | None = None, minimum: int = 0, maximum: int = INT32_MAX) -> int:
        """The whole number at `key`, in decimal and within bounds. Without a default a missing one is a mistake."""
        expected = f"a whole number from {minimum} to {maximum}"
        node = self._scalar(key, expected)
        if node is None:
            if default is None:
                raise self.refuse(key, f"missing; expected {expected}")
            return default
        if not _WHOLE.fullmatch(node.value) or not minimum <= int(node.value) <= maximum:
            raise self.refuse(key, f"found {shorten(node.value)}, expected {expected}")
        return int(node.value)

    def number(self, key: str, default: float) -> float:
        """The number at `key`, 0 or more."""
        expected = f"a number from 0 to {INT32_MAX}"
        node = self._scalar(key, expected)
        if node is None:
            return default
        try:
            number = float(node.value)
        except ValueError:
            number = -1.0
        if not 0 <= number <= INT32_MAX:
            raise self.refuse(key, f"found {shorten(node.value)}, expected {expected}")
        return number

    def flag(self, key: str, default: bool) -> bool:
        """The truth at `key`."""
        node = self._scalar(key, "true or false")
        if node is None:
            return default
        if node.value not in TRUES | FALSES:
            raise self.refuse(key, f"found {shorten(node.value)}, expected true or false")
        return node.value in TRUES

    def texts(self, key: str) -> list[str]:
        """The list of texts at `key`, or a single text as a list of one; empty if absent."""
        self._known.add(key)
        if key not in self:
            return []
        node = self._nodes[key]
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for item in items:
            if not isinstance(item, yaml.ScalarNode) or item.tag not in TEXT_TAGS:
                raise self.refuse(key, f"found {describe(item)}, expected a list of texts")
        return [str(item.value) for item in items]

    def section(self, key: str) -> "Section":
        """The mapping at `key`; an empty one if absent."""
        self._known.add(key)
        if key not in self._children:
            node, start = self._nodes.get(key), self._keys.get(key, self._start)
            self._children[key] = [Section(self._document, self._path_to(key), node, start)]
        return self._children[key][0]

    def sections(self, key: str) -> list["Section"]:
        """The list of mappings at `key`; empty if absent."""
        self._known.add(key)
        if key not in self:
            return []
        if key not in self._children:
            node = self._nodes[key]
            if not isinstance(node, yaml.SequenceNode):
                raise self.refuse(key, f"found {describe(node)}, expected a list")
            path = self._path_to(key)
            items = [Section(self._document, f"{path}[{i}]", item) for i, item in enumerate(node.value)]
            for section, item in zip(items, node.value, strict=True):
                if is_null(item):
                    raise section.refuse("", "found nothing, expected a mapping of names to values")
            self._children[key] = items
        return self._children[key]

    def document(self, key: str) -> "Section":
        """The mapping that stands at `key` as a text in YAML; an empty one if absent.

        Lines count in the outer file; for a text that is no literal block (`key: |`) they are near, not exact.
        """
        node = self._scalar(key, "a text in YAML")
        path = self._path_to(key)
        if node is None:
            return Section(self._document, path, None, self._keys.get(key, self._start))
        file, reader = self._document.file, self._document.reader
        first_line = reader.line(node) - (0 if node.style in ("|", ">") else 1)
        try:
            roots = compose_all(node.value, file, first_line)
        except ConfigError as error:
            raise ConfigError([replace(mistake, path=path) for mistake in error.mistakes]) from error
        if len(roots) > 1:
            raise self.refuse(key, f"found {len(roots)} YAML documents, expected one")
        if not roots:
            return Section(self._document, path, None, self._keys[key])
        return Document(file, Reader(file, roots[0], first_line, path), path, self._document.warnings).section()

    def plain(self, key: str) -> Any:
        """The value at `key`, as Kubernetes reads it; None if absent. Raises ConfigError for values without JSON."""
        self._known.add(key)
        if key not in self:
            return None
        value = plain_value(self._document.reader, self._nodes[key])
        _raise_noted(self._document.reader)
        return value

    def members(self) -> dict[str, "Section"]:
        """Every name of this mapping with the mapping it stands for."""
        return {key: self.section(key) for key in self}

    def skip(self, *keys: str) -> None:
        """Mark keys as known though nothing reads them; without keys, all of them."""
        self._known.update(keys or self._nodes)

    def warn_unknown(self) -> None:
        """Warn about every key, here and in the sections read, that no reader asked for; they change nothing."""
        for key in self:
            if key not in self._known:
                close = get_close_matches(key, self._known - self._nodes.keys(), n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self.warn(key, f"unknown key, ignored{hint}")
            for child in self._children.get(key, ()):
                child.warn_unknown()

    def warn_unused(self, **reasons: str) -> None:
        """Warn about each of these keys that is there: it changes nothing, and why."""
        for key, why in reasons.items():
            self._known.add(key)
            if key in self:
                self.warn(key, f"not honoured: {why}")

    def warn(self, key: str, message: str) -> None:
        """Note something about `key` that does not stop the job."""
        self._document.warnings.append(self._located(key, message))

    def refuse(self, key: str, message: str) -> UserError:
        """Return an error with this file, the line of `key` and its path; without a key, those of the section."""
        return UserError(self._located(key, message))

    def _scalar(self, key: str, expected: str) -> yaml.ScalarNode | None:
        self._known.add(key)
        if key not in self:
            return None
        node = self._nodes[key]
        if not isinstance(node, yaml.ScalarNode) or node.tag not in TEXT_TAGS:
            raise self.refuse(key, f"found {describe(node)}, expected {expected}")
        return node

    def _path_to(self, key: str) -> str:
        return path_to(key, self._path)

    def _located(self, key: str, message: str) -> str:
        node = self._keys.get(key, self._start) if key else self._start
        path = self._path_to(key) if key else self._path
        place = f"{self._document.file}:{self._document.reader.line(node)}:"
        return " ".join(part for part in (place, path and f"{path}:", printable(message)) if part)


def read_documents(file: str) -> list[Document]:
    """Every document of a YAML or JSON file that is not empty, and of each List its items; "-" reads standard input.

    One with `metadata.generateName` alone gets a name. Raises UserError if it cannot be read or parsed, or there is
    none.
    """
    name = "<stdin>" if file == "-" else file.encode(errors="replace").decode()
    if _URL.match(name):
        raise UserError(f"{name}: is an address; fetch it first: curl -fsSL {name} | hived submit -")
    if file != "-" and Path(file).is_dir():
        raise UserError(f"{name}: is a folder; name the files in it, such as {name.rstrip('/')}/*.yaml")
    text = read_stream(sys.stdin.buffer, name) if file == "-" else read_text(Path(file), name)
    roots = [root for root in compose_all(text, name) if not is_null(root)]
    if not roots:
        raise UserError(f"{name}: is empty; expected a job or a pod manifest")
    documents = [item for root in roots for item in _items(Document(name, Reader(name, root)))]
    for document in documents:
        _give_name(document)
    return documents


_URL = re.compile(r"https?://", re.IGNORECASE)
_SUFFIX, _SUFFIX_LENGTH, _MOST_BASE = "bcdfghjklmnpqrstvwxz2456789", 5, 58
"""Characters of a made name, how many, and how much of `generateName` is before them, as Kubernetes has them."""


def _items(document: Document) -> list[Document]:
    """The items of a List; any other document is alone."""
    root = document.section()
    if root.text("kind", "") != "List" or root.text("apiVersion", "") != "v1":
        return [document]
    items = root.sections("items")
    if not items:
        raise root.refuse("items", "found none, expected at least one job or pod manifest")
    nodes = next(value for name, _, value in document.reader.fields(document.reader.root, "") if name == "items").value
    places = [f"items[{index}]" for index in range(len(nodes))]
    found = [
        Document(document.file, Reader(document.file, node, prefix=place), place)
        for place, node in zip(places, nodes, strict=True)
    ]
    return [item for each in found for item in _items(each)]


def _give_name(document: Document) -> None:
    """Make the name that the API server would make of `metadata.generateName`."""
    root = document.section()
    if "kind" not in root or "metadata" not in root:
        return
    metadata = root.section("metadata")
    if "name" not in metadata and "generateName" in metadata:
        suffix = "".join(secrets.choice(_SUFFIX) for _ in range(_SUFFIX_LENGTH))
        document.put(("metadata", "name"), metadata.text("generateName")[:_MOST_BASE] + suffix)


def stored_document(text: str, place: str) -> Document:
    """A document that was kept as JSON; messages name it `place`. Raises ConfigError if it cannot be read."""
    return Document(place, Reader(place, compose(text, place)))


def _node(value: object, near: yaml.Node) -> yaml.Node:
    """A value of JSON as YAML, on the line of a node near it."""
    found = compose(json.dumps(value), "")
    for each in _nodes(found):
        each.start_mark = near.start_mark
    return found


def _nodes(root: yaml.Node) -> Iterable[yaml.Node]:
    """Every node of a document, aliased ones once."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            stack.extend(value for _, value in node.value)


def _raise_noted(reader: Reader) -> None:
    mistakes = reader.mistakes()
    if mistakes:
        raise ConfigError(mistakes)
