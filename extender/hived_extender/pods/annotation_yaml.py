"""YAML as it stands in pod annotations: read with scalars as written, and bounded in size, depth and alias expansion.

Whatever the text, the outcome is a value or a `UserError` in the reference's words.
"""

import time
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec
import yaml

from hived.values.errors import UserError
from hived_extender.pods.plain_yaml import OLD_SPELLINGS, Value, meaning, read_plain

YAML_DEPTH_LIMIT = 32
STRUCTURE = (",", ":", "[", "{", "*", "-", "?", "\n", "\r", "\x85", "\u2028", "\u2029")
"""Characters that a node of YAML begins or ends with, one at least; all of its line breaks are among them."""

STEP = 32
"""Nodes that are read before other threads get a turn."""

TURN_S = 1e-4
"""Of that turn. Zero would be none: this thread would have the interpreter again before another wakes."""


class Limits(msgspec.Struct, frozen=True):
    """Characters and nodes, those of aliases counted each time; an honest annotation has a few dozen."""

    size: int
    nodes: int


USUAL = Limits(32 * 1024, 5_000)
PLAIN = Limits(256 * 1024, 100_000)
"""For the places of a gang of thousands of pods, one plain word or number on each line, as HiveD writes them."""


class _Scalar(msgspec.Struct, frozen=True):
    """A scalar as written. Unquoted text alone may mean a number, a truth value or null."""

    text: str
    is_plain: bool


_Tree: TypeAlias = "_Scalar | list[_Tree] | dict[str, _Tree]"
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
    get a turn every 0.3 ms. Cost: some 5 us a node, a tenth if the text is plain.
    """
    plain = read_plain(text)
    return plain if plain is not None else parse_yaml(text, limits)


def parse_yaml(text: str, limits: Limits = USUAL) -> Value:
    """The same of any text, by a parser."""
    check_size(text, limits.size)
    try:
        text.encode()
        tree = _Composer(text, limits.nodes).document()
    except (yaml.YAMLError, UnicodeError, _TooBig) as error:
        raise _yaml_error(text, error) from None
    value = _typed(tree, "")
    return {} if value is None else value


def convert(text: str, tree: Value, into: type[_T]) -> _T:
    """A tree that was read from `text`, as a struct. Raises UserError where types differ."""
    try:
        return msgspec.convert(tree, into)
    except msgspec.ValidationError as error:
        raise _yaml_error(text, error) from None


class _TooBig(Exception):
    """The document exceeds a limit that no honest annotation reaches."""


class _Composer:
    """Builds a tree from PyYAML's event stream, which unlike its own composer needs no recursion.

    Invariant: `_node_count` counts every node of the tree with aliases expanded, and never exceeds the limit; so
    walking the tree is bounded although aliased branches are shared.
    """

    def __init__(self, text: str, node_limit: int) -> None:
        self._node_limit = node_limit
        self._events = yaml.parse(text, Loader=yaml.CSafeLoader)
        self._anchors: dict[str, tuple[_Tree, int]] = {}
        self._node_count = 0

    def document(self) -> _Tree:
        root: _Tree = _Scalar("", True)
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                root = self._node(next(self._events), 0)
                break
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise yaml.YAMLError("more than one document")
        return root

    def _node(self, event: yaml.Event, depth: int) -> _Tree:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise yaml.YAMLError(f"undefined alias {event.anchor!r}")
            node, size = self._anchors[event.anchor]
            self._count(size)
            return node
        start = self._node_count
        self._count(1)
        node = self._fresh_node(event, depth)
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self._anchors[event.anchor] = node, self._node_count - start
        return node

    def _fresh_node(self, event: yaml.Event, depth: int) -> _Tree:
        if depth > YAML_DEPTH_LIMIT:
            raise _TooBig(f"nested deeper than {YAML_DEPTH_LIMIT}")
        if isinstance(event, yaml.ScalarEvent):
            return _Scalar(event.value, is_plain=event.implicit[0])
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._node(child, depth + 1) for child in iter(self._next_in(yaml.SequenceEndEvent), None)]
        return self._mapping(depth)

    def _next_in(self, end: type[yaml.Event]) -> Callable[[], yaml.Event | None]:
        def advance() -> yaml.Event | None:
            event = next(self._events)
            return None if isinstance(event, end) else event

        return advance

    def _mapping(self, depth: int) -> dict[str, _Tree]:
        own: dict[str, _Tree] = {}
        merged: dict[str, _Tree] = {}
        for event in iter(self._next_in(yaml.MappingEndEvent), None):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if not isinstance(key, _Scalar):
                raise yaml.YAMLError("a mapping key is not a scalar")
            if key == _Scalar("<<", True):
                for source in reversed(value if isinstance(value, list) else [value]):
                    if not isinstance(source, dict):
                        raise yaml.YAMLError("a merge key needs mappings")
                    merged.update(source)
            else:
                own[OLD_SPELLINGS.get(key.text, key.text)] = value
        return merged | own

    def _count(self, size: int) -> None:
        self._node_count += size
        if self._node_count > self._node_limit:
            raise _TooBig(f"more than {self._node_limit} nodes")
        if not self._node_count % STEP:
            time.sleep(TURN_S)


def _typed(node: _Tree, key: str) -> Value:
    if isinstance(node, dict):
        entries = {name: _typed(child, name) for name, child in node.items()}
        return {name: value for name, value in entries.items() if value is not None}
    if isinstance(node, list):
        return [_typed(child, key) for child in node]
    return meaning(node.text, key) if node.is_plain else node.text
