"""Kinds of values: how each is read, and how editors and people see it, said in one place.

A `Record` states the keys of one mapping. Readers take values by it, `schema.py` makes the JSON schema of it, and
`reference.py` the tables. Patterns are written in the part of regular expressions that Python and editors share.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import yaml

from hived_config.document import PLAIN
from hived_config.reader import FALSES, INT32_MAX, INT64_MAX, TRUES, Field, Reader, closest, describe, is_null, shorten

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
        """Whether the text is of this kind."""
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
    """A decimal number that is not negative."""

    what: str
    words = "number"

    def read(self, reader: Reader, node: yaml.Node) -> float:
        if isinstance(node, yaml.ScalarNode) and node.tag == PLAIN and _NUMBER.fullmatch(node.value):
            return float(node.value)
        reader.note(node, describe(node), self.what)
        return 0.0

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
        """Whether a key without a value counts as absent."""
        return not self.is_required if self.is_nullable is None else self.is_nullable

    def schema(self) -> Schema:
        """The kind of its values, described; `x-default` is a default that is no value but a rule."""
        schema = _or_null(self.kind.schema()) if self.may_be_null else self.kind.schema()
        if "$ref" in schema:  # editors do not look at the words beside a reference
            schema = {"allOf": [schema]}
        default = {} if self.default is None else {"default": as_written(self.default)}
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
    """A value as a configuration has it."""
    if isinstance(value, Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _or_null(schema: Schema) -> Schema:
    """The schema, and nothing as well."""
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return schema | {"type": [*dict.fromkeys([*types, "null"])]}
    if "enum" in schema:
        return schema | {"enum": [*schema["enum"], None]}
    return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
