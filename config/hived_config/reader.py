"""Reads documents: typed values of YAML nodes. Every mistake is noted with its place, and reading continues.

`Reader` reads the nodes of one document. A kind of value (`ValueKind`) defines its reading and its description for
editors and people. A `Record` states the keys of one mapping: it reads the values, and the JSON schema and the tables
of the reference are made of it. Patterns use the part of regular expressions that Python and editors share.

Places are not tracked while reading. A mistake holds its node, and the path of a node is looked up only for a report.
So a correct file pays nothing for good messages.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import msgspec
import yaml
from msgspec.structs import astuple

from hived_config.document import PLAIN, QUOTED, ConfigError, Mistake

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
TRUES = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"))
FALSES = frozenset(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"))
TEXT_TAGS = (PLAIN, QUOTED, "tag:yaml.org,2002:str")
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

MAX_MISTAKES = 1000
"""As many mistakes as people can mend in one go. Each costs a place in the document and a line."""

MAX_MISSPELT = 100
"""Characters of a name that may be a misspelling of another one: comparing costs their product."""

SAME_WORD = 0.85
"""The likeness of names from which on one is a misspelling of the other, and no other word."""

_BARE_KEY = re.compile(r"[\w-]+", re.ASCII)

_FORMER = {
    "gpuTypes": "skuTypes",
    "reservationId": "pinnedCellId",
    "reservedCells": "pinnedCells",
    "pinnedCells": "pinnedCells of the virtual cluster, beside virtualCells",
}
"""The present words for old keys of HiveD, and for keys that people often write a level too deep."""

Field = tuple[str, yaml.Node, yaml.Node]


def is_null(node: yaml.Node) -> bool:
    """True for an absent value: empty, `~` or `null`, unquoted."""
    return isinstance(node, yaml.ScalarNode) and node.tag == PLAIN and node.value in NULLS


def closest(name: str, known: Collection[str]) -> str:
    """The known name that `name` is most likely a misspelling of, or ""."""
    if len(name) > MAX_MISSPELT:
        return ""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else ""


def is_clearly(name: str, meant: str) -> bool:
    """Is a name a word with a typing error or two?"""
    return difflib.SequenceMatcher(None, name.casefold(), meant.casefold()).ratio() >= SAME_WORD


def shorten(text: str, limit: int = 60) -> str:
    """Shorten text for a message to one line of usual length."""
    quoted = repr(text)
    return quoted if len(quoted) <= limit else quoted[: limit - 4] + "...'"


def printable(text: str) -> str:
    """Text for one line of a message: characters that would break the line are escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def path_to(name: str, parent: str) -> str:
    """The path of the value under `name` in the mapping at the path `parent`."""
    step = f"{parent}.{name}" if _BARE_KEY.fullmatch(name) else f"{parent}[{shorten(name)}]"
    return step.removeprefix(".")


def describe(node: yaml.Node) -> str:
    """A node in the words of a message."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if is_null(node):
        return "nothing"
    if node.tag != PLAIN:
        return f"the text {shorten(node.value)}" if node.tag in TEXT_TAGS else f"a value tagged {shorten(node.tag)}"
    if node.value in TRUES or node.value in FALSES:
        return f"the boolean {node.value}"
    return shorten(node.value)[1:-1]


class Reader:
    """Reads the nodes of one document and collects the mistakes in them.

    Parameters
    ----------
    file : the name of the file in messages
    root : the document
    first_line : the number of lines of the file before the document
    prefix : the path of the document, if it stands inside another one
    lenient : unknown keys are warnings
    around : the mistakes of the document around it
    """

    def __init__(
        self,
        file: str,
        root: yaml.Node,
        first_line: int = 0,
        prefix: str = "",
        lenient: bool = False,
        around: Sequence[Mistake] = (),
    ) -> None:
        self.root = root
        self._around = around
        self._file = file
        self._first_line = first_line
        self._prefix = prefix
        self._lenient = lenient
        self._noted: list[tuple[yaml.Node, str, str, str, bool]] = []
        self._counts = {True: 0, False: 0}
        self.left_out = ""  # the checks that a mistake has made impossible
        """The numbers of warnings (True) and of mistakes."""
        self._misspelt: set[tuple[int, str]] = set()

    def note(self, node: yaml.Node, found: str, expected: str, suggestion: str = "", is_warning: bool = False) -> None:
        """Note a mistake (or a warning) at a node. Raises ConfigError after MAX_MISTAKES."""
        self._counts[is_warning] += 1
        if self._counts[is_warning] <= MAX_MISTAKES:
            self._noted.append((node, printable(found), printable(expected), printable(suggestion), is_warning))
        elif not is_warning:
            more = Mistake(self._file, self.line(node), "", f"more than {MAX_MISTAKES} mistakes", "these mended first")
            raise ConfigError([*self.mistakes(), more])

    def note_twice(self, key: yaml.ScalarNode, first: yaml.Node) -> None:
        """Note that a mapping has a key a second time."""
        self.note(key, f"{shorten(key.value)} given twice (first on line {self.line(first)})", "each key once")

    @property
    def has_mistakes(self) -> bool:
        """True if a mistake was noted, here or in the document around."""
        return self._counts[False] > 0 or not all(mistake.is_warning for mistake in self._around)

    def mistakes(self) -> list[Mistake]:
        """Everything noted, in file order, each once. Cost O(document) if there is any, O(1) otherwise."""
        if not self._noted:
            return list(self._around)
        paths = dict(_paths(self.root, self._prefix))
        unsaid = self._counts[True] - MAX_MISTAKES
        if unsaid > 0:
            self._noted.append((self.root, f"{unsaid} more warnings", "none", "", True))
            self._counts[True] = MAX_MISTAKES
        listed = [
            Mistake(self._file, self.line(node), paths.get(id(node), self._prefix), found, expected, suggestion, warns)
            for node, found, expected, suggestion, warns in self._noted
        ]
        return sorted(dict.fromkeys([*self._around, *listed]), key=lambda mistake: mistake.line)

    def line(self, node: yaml.Node) -> int:
        """The line of a node in its file, counted from 1."""
        return self._first_line + int(node.start_mark.line) + 1

    # ---- collections

    def fields(self, node: yaml.Node | None, what: str) -> list[Field]:
        """(name, key node, value node) of a mapping, merge keys applied; nothing for an absent one.

        Notes: not a mapping, a key that is not a scalar, a key given twice (the first one counts).
        """
        if not isinstance(node, yaml.MappingNode):
            if node is not None and not is_null(node):
                self.note(node, describe(node), what)
            return []
        found: dict[str, Field] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.note(key, f"{describe(key)} as a key", "a name")
            elif key.value == "<<" and key.tag == PLAIN:
                merged.extend(value.value if isinstance(value, yaml.SequenceNode) else [value])
            elif key.value in found:
                self.note_twice(key, found[key.value][1])
            else:
                found[key.value] = (key.value, key, value)
        for source in merged:
            for field in self.fields(source, "a mapping to merge"):
                found.setdefault(field[0], field)
        return list(found.values())

    def known_fields(self, node: yaml.Node, what: str, known: Collection[str]) -> dict[str, yaml.Node]:
        """The values of a mapping by name; a name that is not `known` is noted (a warning if lenient).

        A clear misspelling of a key that is absent stands for it, so that it hides no other mistake. Other names are
        left out.
        """
        values: dict[str, yaml.Node] = {}
        misspelt: dict[str, yaml.Node] = {}
        for name, key, value in self.fields(node, what):
            if name in known:
                values[name] = value
            else:
                meant = _FORMER.get(name) or closest(name, known)
                expected = f"one of {', '.join(known)}"
                self.note(key, f"unknown key {shorten(name)}", expected, meant, self._lenient)
                self._misspelt.add((id(node), meant))
                if not self._lenient and meant in known and is_clearly(name, meant):
                    misspelt.setdefault(meant, value)
        return misspelt | values

    def missing(self, parent: yaml.Node, key: str, what: str) -> None:
        """Note that a mapping has no `key`, unless a mistake was noted already that explains it."""
        is_explained = (id(parent), key) in self._misspelt and not self._lenient
        if isinstance(parent, yaml.MappingNode) and not is_explained:
            self.note(parent, f"no {key}", what)

    def items(self, node: yaml.Node | None, what: str, item_what: str) -> list[yaml.Node]:
        """The items of a list of mappings; nothing for an absent one. An item that is no mapping is noted."""
        if node is None or is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.note(node, describe(node), what)
            return []
        for item in node.value:
            if is_null(item):
                self.note(item, "nothing", item_what)
        return list(node.value)

    # ---- scalars

    def text(self, node: yaml.Node | None, what: str) -> str:
        """A scalar exactly as written, unresolved by YAML's rules; "" if absent, or noted as not being text."""
        if node is None:
            return ""
        if isinstance(node, yaml.ScalarNode) and node.tag in TEXT_TAGS:
            return "" if node.tag == PLAIN and node.value in NULLS else str(node.value)
        self.note(node, describe(node), what)
        return ""

    def name(self, node: yaml.Node | None, what: str) -> str:
        """Text that people and Kubernetes can tell apart: printable, no blanks around it; "" if absent."""
        text = self.text(node, what)
        if node is not None and (text != text.strip() or not text.isprintable()):
            self.note(node, shorten(text), f"{what}, printable and without blanks around it")
        return text


def _paths(root: yaml.Node, prefix: str) -> Iterator[tuple[int, str]]:
    """(id of node, path) for every node below `root`, each once: aliased nodes have the path of their first use."""
    seen: set[int] = set()
    stack = [(root, prefix)]
    while stack:
        node, path = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield id(node), path
        if isinstance(node, yaml.SequenceNode):
            stack.extend((item, f"{path}[{i}]") for i, item in reversed(list(enumerate(node.value))))
        elif isinstance(node, yaml.MappingNode):
            for key, value in reversed(node.value):
                name = key.value if isinstance(key, yaml.ScalarNode) else "?"
                step = path_to(name, path)
                stack.append((value, step))
                stack.append((key, step))


Schema = dict[str, Any]

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_ALMOST_INTEGER = re.compile(r"\+?0*([0-9]{1,12})(\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)

_BOOLEAN_WORDS = sorted(word for word in TRUES | FALSES if word.lower() not in ("true", "false"))
"""YAML 1.1 takes these for booleans, and editors for text."""


class ValueKind:
    """One kind of value.

    `what` names it in messages, `words` in the reference.
    """

    what: str
    words: str

    def read(self, reader: Reader, node: yaml.Node) -> Any:
        """The value; a harmless one after noting why there is none."""
        raise NotImplementedError

    def schema(self) -> Schema:
        """The kind as JSON schema."""
        raise NotImplementedError

    def written(self, value: Any) -> Any:
        """A value as a file could have it."""
        return as_written(value)


@dataclass(frozen=True)
class Text(ValueKind):
    """A scalar exactly as written, unresolved by YAML's rules; read as "" where the pattern does not fit.

    A name is text that people and Kubernetes can tell apart: printable, and no blanks around it.
    """

    what: str
    pattern: str = ""
    is_name: bool = False
    words = "text"

    def fits(self, text: str) -> bool:
        """True if the text is of this kind."""
        is_telling = not self.is_name or (text == text.strip() and text.isprintable())
        return is_telling and self._has_pattern(text)

    def read(self, reader: Reader, node: yaml.Node) -> str:
        text = reader.name(node, self.what) if self.is_name else reader.text(node, self.what)
        if self._has_pattern(text):
            return text
        reader.note(node, describe(node), self.what)
        return ""

    def schema(self) -> Schema:
        # Text may look like a number, a boolean or nothing wherever these fit.
        looks = (("number", "4"), ("boolean", "no"), ("null", ""))
        types = ["string", *(name for name, example in looks if self.fits(example))]
        trimmed = r"(?!\s)(?!.*\s$)" if self.is_name else ""
        return {"type": types} | ({"pattern": f"^{trimmed}({self.pattern})$"} if self.pattern else {})

    def _has_pattern(self, text: str) -> bool:
        return not self.pattern or re.fullmatch(self.pattern, text, re.ASCII) is not None


def name_text(what: str, pattern: str = ".+") -> Text:
    """A name, not empty by default."""
    return Text(what, pattern, is_name=True)


class Integer(ValueKind):
    """A whole number within bounds, written as decimal digits."""

    def __init__(self, what: str, minimum: int, maximum: int = INT32_MAX) -> None:
        self.what = what
        self.minimum = minimum
        self.maximum = maximum
        is_bounded = maximum not in (INT32_MAX, INT64_MAX)
        self.words = f"whole number, {f'from {minimum} to {maximum}' if is_bounded else f'at least {minimum}'}"

    def read(self, reader: Reader, node: yaml.Node) -> int | None:
        if not isinstance(node, yaml.ScalarNode) or node.tag != PLAIN or not _INTEGER.fullmatch(node.value):
            reader.note(node, describe(node), self.what, _integer_meant(node))
            return None
        # More digits than any bound has: Python refuses to convert thousands of them.
        beyond = self.minimum - 1 if node.value[0] == "-" else self.maximum + 1
        value = int(node.value) if len(node.value) <= 20 else beyond
        if self.minimum <= value <= self.maximum:
            return value
        bound, word = (self.minimum, "at least") if value < self.minimum else (self.maximum, "at most")
        is_said = str(bound) in self.what.split()
        reader.note(node, describe(node), self.what if is_said else f"{self.what}, {word} {bound}")
        return None

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True)
class Number(ValueKind):
    """A decimal number that is not negative, and above zero if `above_zero` names one.

    `unit` : what 1 of it is in the unit of the value, such as 60 for minutes that become seconds
    """

    what: str
    above_zero: str = ""
    unit: float = 1.0
    words = "number"

    def read(self, reader: Reader, node: yaml.Node) -> float:
        if isinstance(node, yaml.ScalarNode) and node.tag == PLAIN and _NUMBER.fullmatch(node.value):
            value = float(node.value)
            if not value and self.above_zero:
                reader.note(node, describe(node), self.above_zero)
            return value * self.unit
        reader.note(node, describe(node), self.what)
        return 0.0

    def written(self, value: Any) -> Any:
        if value is None or self.unit == 1:
            return value
        return int(value / self.unit) if not value % self.unit else value / self.unit

    def schema(self) -> Schema:
        return {"type": "number", "minimum": 0}


class Boolean(ValueKind):
    """True or false in any of YAML's spellings."""

    what = "true or false"
    words = "`true` or `false`"

    def read(self, reader: Reader, node: yaml.Node) -> bool | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == PLAIN and node.value in TRUES | FALSES:
            return node.value in TRUES
        reader.note(node, describe(node), self.what)
        return None

    def schema(self) -> Schema:
        return {"enum": [True, False, *_BOOLEAN_WORDS]}


class Choice(ValueKind):
    """One of the words that are an enumeration's values."""

    def __init__(self, choices: type[Enum], what: str = "") -> None:
        self._choices = {str(choice.value): choice for choice in choices}
        self.what = what or " or ".join(self._choices)
        self.words = " or ".join(f"`{word}`" for word in self._choices)

    def read(self, reader: Reader, node: yaml.Node) -> Any:
        word = reader.text(node, self.what)
        if word not in self._choices:
            reader.note(node, describe(node), self.what, closest(word, self._choices))
        return self._choices.get(word)

    def schema(self) -> Schema:
        return {"enum": [*self._choices]}


class Either(ValueKind):
    """A text, or else a mapping; messages name the text, as it is shorter."""

    words = "text or mapping"

    def __init__(self, text: Text, mapping: "Record") -> None:
        self.text = text
        self.mapping = mapping
        self.what = text.what

    def schema(self) -> Schema:
        return {"anyOf": [self.text.schema(), self.mapping.schema()]}


@dataclass(frozen=True)
class ListOf(ValueKind):
    """A list, read item by item."""

    what: str
    item: ValueKind
    is_never_empty: bool = False
    words = "list"

    def items(self, reader: Reader, node: yaml.Node | None) -> list[yaml.Node]:
        """The nodes of the items; nothing for an absent list."""
        return reader.items(node, self.what, self.item.what)

    def read(self, reader: Reader, node: yaml.Node) -> list[Any]:
        return [self.item.read(reader, item) for item in self.items(reader, node)]

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema()} | ({"minItems": 1} if self.is_never_empty else {})


@dataclass(frozen=True)
class MapOf(ValueKind):
    """A mapping whose keys are names of the user's own; one that `names` does not fit is noted as no such `noun`."""

    what: str
    values: ValueKind
    noun: str = ""
    names: Text = Text("a name")
    words = "mapping by name"

    def fields(self, reader: Reader, node: yaml.Node | None) -> list[Field]:
        """(name, key node, value node) of each entry; nothing for an absent mapping."""
        fields = reader.fields(node, self.what)
        for name, key, _ in fields:
            if not self.names.fits(name):
                reader.note(key, f"{self.noun} {shorten(name)}", self.names.what)
        return fields

    def read(self, reader: Reader, node: yaml.Node) -> dict[str, Any]:
        return {name: self.values.read(reader, value) for name, _, value in self.fields(reader, node)}

    def schema(self) -> Schema:
        names = self.names.schema()
        limits = {"propertyNames": {"pattern": names["pattern"]}} if "pattern" in names else {}
        return {"type": "object", "additionalProperties": self.values.schema()} | limits


@dataclass(frozen=True)
class Key:
    """One key of a mapping.

    Attributes
    ----------
    description : its meaning, for people
    default : stands for an absent value; `rule` describes a default that depends on other keys
    is_required : whether the mapping is wrong without it
    is_nullable : whether a key without a value counts as absent; None: unless it is required
    """

    name: str
    kind: ValueKind
    description: str
    default: Any = None
    rule: str = ""
    is_required: bool = False
    is_nullable: bool | None = None

    @property
    def may_be_null(self) -> bool:
        """True if a key without a value counts as absent."""
        return not self.is_required if self.is_nullable is None else self.is_nullable

    def schema(self) -> Schema:
        """The kind of its values, described; `x-default` is a default that is no value but a rule."""
        schema = _or_null(self.kind.schema()) if self.may_be_null else self.kind.schema()
        if "$ref" in schema:  # editors do not look at the words beside a reference
            schema = {"allOf": [schema]}
        default = {} if self.default is None else {"default": self.kind.written(self.default)}
        return {"description": self.description} | schema | default | ({"x-default": self.rule} if self.rule else {})


class Record(ValueKind):
    """A mapping with these keys and no others, called `name` in the schema."""

    words = "mapping"

    def __init__(self, name: str, what: str, description: str, keys: Sequence[Key], is_nullable: bool = False) -> None:
        self.name = name
        self.what = what
        self.description = description
        self.keys = {key.name: key for key in keys}
        self._is_nullable = is_nullable

    def nodes(self, reader: Reader, node: yaml.Node) -> dict[str, yaml.Node]:
        """The nodes of the values by key; an unknown key is noted and left out."""
        return reader.known_fields(node, self.what, self.keys)

    def given(self, reader: Reader, node: yaml.Node) -> "Given":
        """The mapping at `node`, key by key; an unknown key is noted and left out."""
        return Given(reader, self, node, self.nodes(reader, node))

    def schema(self) -> Schema:
        """A reference to the definition."""
        return {"$ref": f"#/definitions/{self.name}"}

    def definition(self) -> Schema:
        """The keys as JSON schema."""
        return {
            "description": self.description,
            "type": ["object", "null"] if self._is_nullable else "object",
            "properties": {name: key.schema() for name, key in self.keys.items()},
            "required": [name for name, key in self.keys.items() if key.is_required],
            "additionalProperties": False,
        }


class StructOf(Record):
    """A mapping that is read as a struct, whose fields stand in the order of the keys. None of these may be null."""

    def __init__(
        self, name: str, what: str, description: str, keys: Sequence[Key], struct: type[msgspec.Struct]
    ) -> None:
        super().__init__(name, what, description, [replace(key, is_nullable=False) for key in keys])
        self._struct = struct

    def read(self, reader: Reader, node: yaml.Node) -> Any:
        """The struct; one of no use after noting mistakes."""
        if is_null(node):
            reader.note(node, "nothing", self.what)
        given = self.given(reader, node)
        if isinstance(node, yaml.MappingNode):
            self.check(given)
        return self._struct(*map(given.value, self.keys))

    def check(self, given: "Given") -> None:
        """Note keys that do not go together."""

    def written(self, value: Any) -> Any:
        """The mapping as a file could have it, without values that stand for the rule of their key."""
        pairs = zip(self.keys.values(), astuple(value), strict=False)
        return {key.name: key.kind.written(own) for key, own in pairs if own or not key.rule}


@dataclass(frozen=True, slots=True)
class Given:
    """The keys that one mapping of a file has, as nodes and as values."""

    reader: Reader
    record: Record
    node: yaml.Node
    nodes: dict[str, yaml.Node]

    def value(self, name: str, default: Any = None) -> Any:
        """The value under a key, noting mistakes. An absent one is `default`, else the key's own."""
        key = self.record.keys[name]
        node = self._node(key)
        if node is None or (key.may_be_null and is_null(node)):
            return key.default if default is None else default
        return key.kind.read(self.reader, node)

    def part(self, name: str) -> yaml.Node | None:
        """The node under a key that has more below it; None if it is absent, which is noted if it is required."""
        key = self.record.keys[name]
        node = self._node(key)
        if node is None or not is_null(node):
            return node
        if not key.may_be_null:
            self.reader.note(node, "nothing", key.kind.what)
        return None

    def _node(self, key: Key) -> yaml.Node | None:
        node = self.nodes.get(key.name)
        if node is None and key.is_required:
            self.reader.missing(self.node, key.name, key.kind.what)
        return node


def required(reader: Reader, parent: yaml.Node, nodes: Mapping[str, yaml.Node], name: str, kind: ValueKind) -> Any:
    """The value under a key; None after noting its absence at the mapping `parent`."""
    if name in nodes:
        return kind.read(reader, nodes[name])
    reader.missing(parent, name, kind.what)
    return None


def _integer_meant(node: yaml.Node) -> str:
    """The integer that was probably meant, without quotes, fraction, sign or leading zeros; "" if none was."""
    match = _ALMOST_INTEGER.fullmatch(node.value) if isinstance(node, yaml.ScalarNode) else None
    return str(int(match[1])) if match else ""


def as_written(value: Any) -> Any:
    """A word or a list as a configuration has it; other values as they are."""
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _or_null(schema: Schema) -> Schema:
    """Allow null beside a schema."""
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return schema | {"type": [*dict.fromkeys([*types, "null"])]}
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], None]}
    return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
