"""YAML in pod annotations: read by libyaml with scalars as written, and bounded in size, depth and aliases.

Any text gives a value or a `UserError` in the reference's words.
"""

import time
from typing import TypeAlias, TypeVar

import msgspec
import yaml

from hived.values.errors import UserError
from hived_config.document import PLAIN, Composer, TooManyNodesError
from hived_config.reader import NULLS

Value: TypeAlias = "bool | int | str | list[Value] | dict[str, Value] | None"

YAML_DEPTH_LIMIT = 32
STRUCTURE = (",", ":", "[", "{", "*", "-", "?", "\n", "\r", "\x85", "\u2028", "\u2029")
"""Characters that a node of YAML begins or ends with, one at least; all of its line breaks are among them."""

STEP = 32
"""Nodes that are read before other threads get a turn."""

TURN_S = 1e-4
"""Of that turn. Zero would be none: this thread would have the interpreter again before another wakes."""

OLD_SPELLINGS = {
    "gpuType": "leafCellType",
    "gpuNumber": "leafCellNumber",
    "gpuIsolation": "leafCellIsolation",
    "physicalGpuIndices": "physicalLeafCellIndices",
}
_INTEGERS = frozenset({"priority", "leafCellNumber", "podNumber", "leafCellIsolation", "physicalLeafCellIndices"})
_FLAGS = {**dict.fromkeys(("y", "yes", "true", "on"), True), **dict.fromkeys(("n", "no", "false", "off"), False)}
_FLAG_KEYS = frozenset({"gangReleaseEnable", "lazyPreemptionEnable", "ignoreK8sSuggestedNodes", "elastic"})


class Limits(msgspec.Struct, frozen=True):
    """Characters and nodes, those of aliases counted each time; an honest annotation has a few dozen."""

    size: int
    nodes: int


USUAL = Limits(32 * 1024, 5_000)
LARGE = Limits(256 * 1024, 100_000)
"""For the places of a gang of thousands of pods, one plain word or number on each line, as HiveD writes them."""

_T = TypeVar("_T")


def _yaml_error(text: str, problem: object) -> UserError:
    shown = text[:200].encode("utf-8", "backslashreplace").decode()
    return UserError(f'Failed to unmarshal YAML "{shown}" to Object: {problem}')


def has_old_spelling(text: str) -> bool:
    """Is a key spelt as before HiveD knew of anything but GPUs? Then JSON is read as YAML, which knows both."""
    if "gpu" in text or "Gpu" in text:
        for old in OLD_SPELLINGS:  # a generator takes five times as long, and names of nodes often have gpu in them
            if old in text:
                return True
    return False


def check_size(text: str, limit: int) -> None:
    """Raise UserError if a text has more characters."""
    if len(text) > limit:
        raise _yaml_error(text, f"{len(text)} characters, at most {limit} are read")


def most_nodes(text: str) -> int:
    """A bound on the nodes of a YAML text, aliases left aside. Cost: a dozen scans of the text."""
    return 2 + 2 * sum(map(text.count, STRUCTURE))


def read_yaml(text: str, limits: Limits = USUAL) -> Value:
    """The document as plain values: known numbers and truth values converted, all other scalars as written.

    A null document is an empty mapping, and null entries of a mapping count as absent. Raises UserError. Other threads
    get a turn every 0.2 ms. Cost: some 3 us a node.
    """
    check_size(text, limits.size)
    try:
        text.encode()
        composer = _Composer(text)
        composer.most_nodes = limits.nodes
        root = composer.get_single_node()
        value = None if root is None else _Values(limits.nodes).read(root, "", 0)
    except (yaml.YAMLError, UnicodeError, TooManyNodesError) as error:
        raise _yaml_error(text, error) from None
    return {} if value is None else value


def convert(text: str, tree: Value, into: type[_T]) -> _T:
    """A tree that was read from `text`, as a struct. Raises UserError where types differ."""
    try:
        return msgspec.convert(tree, into)
    except msgspec.ValidationError as error:
        raise _yaml_error(text, error) from None


class _Composer(Composer):
    """Gives other threads a turn."""

    most_levels = YAML_DEPTH_LIMIT

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:
        super().descend_resolver(parent, index)
        if not self.count % STEP:
            time.sleep(TURN_S)


class _Values:
    """Values of nodes, those behind aliases counted each time, so that reading ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def read(self, node: yaml.Node, key: str, depth: int) -> Value:
        """The value of a node that stands below a key."""
        if isinstance(node, yaml.ScalarNode):
            self._enter(node, depth)
            return _meaning(node.value, key) if node.tag == PLAIN else str(node.value)
        if isinstance(node, yaml.SequenceNode):
            self._enter(node, depth)
            return [self.read(item, key, depth + 1) for item in node.value]
        fields = {name: self.read(value, name, depth + 1) for name, value in self._fields(node, depth).items()}
        return {name: value for name, value in fields.items() if value is not None}

    def _fields(self, node: yaml.Node, depth: int) -> dict[str, yaml.Node]:
        """The values of a mapping by key: of a key given twice the last one, and merged ones where it has none."""
        self._enter(node, depth)
        own: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError("a mapping key is not a scalar")
            if key.value != "<<" or key.tag != PLAIN:
                name = str(key.value)
                own[OLD_SPELLINGS.get(name, name)] = value
                continue
            for source in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                if not isinstance(source, yaml.MappingNode):
                    raise yaml.YAMLError("a merge key needs mappings")
                merged.update(self._fields(source, depth + 1))
        return merged | own

    def _enter(self, node: yaml.Node, depth: int) -> None:
        self._count += 1
        if self._count > self._most:
            raise TooManyNodesError(self._most, node)
        if depth > YAML_DEPTH_LIMIT:
            raise yaml.YAMLError(f"nested deeper than {YAML_DEPTH_LIMIT}")


def _meaning(text: str, key: str) -> Value:
    """The value of an unquoted scalar that stands below a key: known numbers and truth values converted."""
    if text in NULLS:
        return None
    if key in _INTEGERS:
        return _number(text)
    return _FLAGS.get(text.lower(), text) if key in _FLAG_KEYS else text


def _number(text: str) -> int | str:
    """A YAML 1.1 integer; anything else stays text, for the type check to refuse."""
    digits = text.replace("_", "")
    try:
        if digits.lstrip("+-").startswith("0") and digits.lstrip("+-").isdigit():
            return int(digits, 8)
        return int(digits, 0)
    except ValueError:
        return text
