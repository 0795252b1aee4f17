"""Job files as written: YAML documents whose values know the line they stand on.

A job file is written by hand, so a mistake must be answered with its file, line and place in the document. Values are
therefore read straight from YAML's nodes, typed by the caller's question: `text("name")` of `name: 010` is "010", and
`whole("instances")` of `instances: two` is a `UserError` that says where. Keys that nobody asked for become warnings.
"""

import sys
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import yaml

from hived.errors import UserError

_NULL = "tag:yaml.org,2002:null"
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document of a file: its root node, and the warnings that reading it gave."""

    file: str
    root: yaml.Node
    warnings: list[str] = field(default_factory=list)

    def section(self) -> "Section":
        """The whole document as a section. Raises UserError unless it is a mapping."""
        return Section(self, "", self.root)

    def value(self) -> object:
        """The document as plain Python values, typed by YAML's own rules."""
        return _plain(self.root)


class Section:
    """A mapping inside a document; an absent one reads as empty.

    Every reader marks its key as known, and asking twice for a section gives the same one, so that `warn_unknown` on
    the outermost section can report every key that nobody asked for.
    """

    def __init__(self, document: Document, path: str, node: yaml.Node | None, key: yaml.Node | None = None) -> None:
        self._document = document
        self._path = path
        self._start = key or node or document.root
        self._nodes: dict[str, yaml.Node] = {}
        self._keys: dict[str, yaml.Node] = {}
        self._known: set[str] = set()
        self._children: dict[str, list[Section]] = {}
        if node is None or node.tag == _NULL:
            return
        if not isinstance(node, yaml.MappingNode):
            raise self._error(path, node, "expected a mapping of names to values")
        yaml.constructor.SafeConstructor().flatten_mapping(node)
        self._keys = {name.value: name for name, _ in node.value}
        self._nodes = {name.value: value for name, value in node.value}

    def __contains__(self, key: str) -> bool:
        return key in self._nodes and self._nodes[key].tag != _NULL

    def text(self, key: str, default: str | None = None) -> str:
        """The text at `key`, as written. Without a default a missing or empty value is a mistake."""
        node = self._scalar(key, "a text")
        if node is None or not node.value:
            if default is None:
                raise self.refuse(key, "missing; expected a text")
            return default
        return str(node.value)

    def whole(self, key: str, default: int | None = None, minimum: int = 0) -> int:
        """The whole number at `key`, at least `minimum`."""
        expected = f"a whole number, {minimum} or more"
        node = self._scalar(key, expected)
        if node is None:
            if default is None:
                raise self.refuse(key, f"missing; expected {expected}")
            return default
        if not node.value.isascii() or not node.value.isdigit() or int(node.value) < minimum:
            raise self.refuse(key, f"found {node.value!r}, expected {expected}")
        return int(node.value)

    def number(self, key: str, default: float) -> float:
        """The number at `key`, 0 or more."""
        node = self._scalar(key, "a number")
        if node is None:
            return default
        try:
            number = float(node.value)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise self.refuse(key, f"found {node.value!r}, expected a number, 0 or more")
        return number

    def flag(self, key: str, default: bool) -> bool:
        """The truth at `key`."""
        node = self._scalar(key, "true or false")
        if node is None:
            return default
        if node.value.lower() not in _BOOLEANS:
            raise self.refuse(key, f"found {node.value!r}, expected true or false")
        return _BOOLEANS[node.value.lower()]

    def texts(self, key: str) -> list[str]:
        """The list of texts at `key`, or a single text as a list of one; empty if absent."""
        self._known.add(key)
        if key not in self:
            return []
        node = self._nodes[key]
        items = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(item, yaml.ScalarNode) for item in items):
            raise self.refuse(key, "expected a list of texts")
        return [str(item.value) for item in items]

    def section(self, key: str) -> "Section":
        """The mapping at `key`; an empty one if absent."""
        self._known.add(key)
        if key not in self._children:
            node, start = self._nodes.get(key), self._keys.get(key)
            self._children[key] = [Section(self._document, self._join(key), node, start)]
        return self._children[key][0]

    def sections(self, key: str) -> list["Section"]:
        """The list of mappings at `key`; empty if absent."""
        self._known.add(key)
        if key not in self:
            return []
        if key not in self._children:
            node = self._nodes[key]
            if not isinstance(node, yaml.SequenceNode):
                raise self.refuse(key, "expected a list")
            path = self._join(key)
            self._children[key] = [Section(self._document, f"{path}[{i}]", item) for i, item in enumerate(node.value)]
        return self._children[key]

    def members(self) -> dict[str, "Section"]:
        """Every name of this mapping with the mapping it stands for."""
        return {key: self.section(key) for key in self._nodes}

    def skip(self, *keys: str) -> None:
        """Mark keys as known though nothing reads them; without keys, all of them."""
        self._known.update(keys or self._nodes)

    def warn_unknown(self) -> None:
        """Warn about every key, here and in the sections read, that no reader asked for; they change nothing."""
        for key in self._nodes:
            if key not in self._known:
                close = get_close_matches(key, self._known - self._nodes.keys(), n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                self.warn(key, f"unknown key, ignored{hint}")
            for child in self._children.get(key, ()):
                child.warn_unknown()

    def warn(self, key: str, message: str) -> None:
        """Note something about `key` that does not stop the job."""
        self._document.warnings.append(self._located(self._join(key), self._keys.get(key, self._start), message))

    def refuse(self, key: str, message: str) -> UserError:
        """The error that names this file, the line of `key` and its path in the document."""
        return self._error(self._join(key), self._keys.get(key, self._start), message)

    def _scalar(self, key: str, expected: str) -> yaml.ScalarNode | None:
        self._known.add(key)
        if key not in self:
            return None
        node = self._nodes[key]
        if not isinstance(node, yaml.ScalarNode):
            raise self.refuse(key, f"expected {expected}")
        return node

    def _join(self, key: str) -> str:
        return ".".join(part for part in (self._path, key) if part)

    def _error(self, path: str, node: yaml.Node, message: str) -> UserError:
        return UserError(self._located(path, node, message))

    def _located(self, path: str, node: yaml.Node, message: str) -> str:
        place = f"{self._document.file}:{node.start_mark.line + 1}"
        return f"{place}: {path}: {message}" if path else f"{place}: {message}"


def read_documents(file: str) -> list[Document]:
    """Every document of a YAML file; "-" reads standard input. Raises UserError if it cannot be read or parsed."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(f"{file}: cannot be read: {reason}") from error
    name = "<stdin>" if file == "-" else file
    try:
        documents = [Document(name, node) for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node]
    except yaml.YAMLError as error:
        raise UserError(_syntax_error(name, error)) from error
    if not documents:
        raise UserError(f"{name}: is empty; expected a job or a pod manifest")
    for document in documents:
        _refuse_duplicate_keys(document)
    return documents


def _refuse_duplicate_keys(document: Document) -> None:
    """Raise UserError for a key written twice in one mapping: YAML would keep the last without a word."""
    seen: set[int] = set()
    nodes = [document.root]
    while nodes:
        node = nodes.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes.extend(node.value)
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(f"{document.file}:{key.start_mark.line + 1}: a key must be a plain text")
            line = key.start_mark.line + 1
            if lines.setdefault(key.value, line) != line:
                raise UserError(f"{document.file}:{line}: {key.value}: written twice, first on line {lines[key.value]}")
            nodes.append(value)


def _syntax_error(file: str, error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"{file}:{mark.line + 1}: not valid YAML at column {mark.column + 1}: {error.problem}"
    return f"{file}: not valid YAML: {error}"


def _plain(node: yaml.Node) -> object:
    return yaml.constructor.SafeConstructor().construct_document(node)
