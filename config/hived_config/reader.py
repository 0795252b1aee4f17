"""Typed reading of YAML nodes; every mistake is noted with its node and reading goes on.

Places are not tracked while reading. A mistake holds its node, and the path of a node in the document is looked up only
when there is something to report, so a correct file pays nothing for good messages.
"""

import difflib
import re
from collections.abc import Collection, Iterator

import yaml

from hived_config.document import PLAIN, QUOTED
from hived_config.errors import Mistake

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
TRUES = frozenset(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"))
FALSES = frozenset(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"))
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_BARE_KEY = re.compile(r"[\w-]+", re.ASCII)
_TEXT_TAGS = (PLAIN, QUOTED, "tag:yaml.org,2002:str")

Field = tuple[str, yaml.Node, yaml.Node]


def is_null(node: yaml.Node) -> bool:
    """Whether the value is absent: empty, `~` or `null`, unquoted."""
    return isinstance(node, yaml.ScalarNode) and node.tag == PLAIN and node.value in NULLS


def closest(name: str, known: Collection[str]) -> str:
    """The known name that `name` is most likely a misspelling of, or ""."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else ""


def shorten(text: str, limit: int = 60) -> str:
    """Text as messages quote it: on one line, and not longer than a line."""
    quoted = repr(text)
    return quoted if len(quoted) <= limit else quoted[: limit - 3] + "..."


def describe(node: yaml.Node) -> str:
    """What stands in the file, in the words of a message."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if is_null(node):
        return "nothing"
    value = shorten(node.value)
    if node.tag == PLAIN:
        if node.value in TRUES or node.value in FALSES:
            return f"the boolean {node.value}"
        return node.value if _DECIMAL.fullmatch(node.value) and len(node.value) < 60 else value
    return f"the text {value}" if node.tag in _TEXT_TAGS else f"{node.tag} {value}"


class Reader:
    """Reads the nodes of one document and collects what is wrong with them."""

    def __init__(
        self, file: str, root: yaml.Node, first_line: int = 0, prefix: str = "", lenient: bool = False
    ) -> None:
        self.root = root
        self._file = file
        self._first_line = first_line
        self._prefix = prefix
        self._lenient = lenient
        self._noted: list[tuple[yaml.Node, str, str, str, bool]] = []

    def note(self, node: yaml.Node, found: str, expected: str, suggestion: str = "", is_warning: bool = False) -> None:
        """Note a mistake (or a warning) at a node."""
        self._noted.append((node, found, expected, suggestion, is_warning))

    def has_mistakes(self) -> bool:
        """Whether anything noted so far keeps the file from being used."""
        return any(not is_warning for *_, is_warning in self._noted)

    def mistakes(self) -> list[Mistake]:
        """Everything noted, in file order, each once. Cost O(document) if there is any, O(1) otherwise."""
        if not self._noted:
            return []
        paths = dict(_paths(self.root, self._prefix))
        listed = {
            Mistake(self._file, self.line(node), paths.get(id(node), self._prefix), *rest): None
            for node, *rest in self._noted
        }
        return sorted(listed, key=lambda mistake: mistake.line)

    def line(self, node: yaml.Node) -> int:
        """The line of a node in its file, counted from 1."""
        return self._first_line + int(node.start_mark.line) + 1

    # ---- collections

    def fields(self, node: yaml.Node, what: str) -> list[Field]:
        """(name, key node, value node) of a mapping, merge keys applied; nothing for an absent one.

        Notes: not a mapping, a key that is not text, a key given twice (the first one counts).
        """
        if is_null(node):
            return []
        if not isinstance(node, yaml.MappingNode):
            self.note(node, describe(node), what)
            return []
        found: dict[str, Field] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.note(key, f"{describe(key)} as a key", "a name")
            elif key.value == "<<" and key.tag == PLAIN:
                merged.append(value)
            elif key.value in found:
                first = self.line(found[key.value][1])
                self.note(key, f"{shorten(key.value)} given twice (first on line {first})", "each key once")
            else:
                found[key.value] = (key.value, key, value)
        for value in merged:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                for field in self.fields(source, "a mapping to merge"):
                    found.setdefault(field[0], field)
        return list(found.values())

    def known_fields(self, node: yaml.Node, what: str, known: Collection[str]) -> dict[str, yaml.Node]:
        """The values of a mapping by name; a name that is not `known` is noted and left out."""
        values = {}
        for name, key, value in self.fields(node, what):
            if name in known:
                values[name] = value
            else:
                self.unknown_key(key, known)
        return values

    def unknown_key(self, key: yaml.Node, known: Collection[str]) -> None:
        """Note a key that nobody reads; a warning when lenient."""
        expected = "one of " + ", ".join(known)
        self.note(key, f"unknown key {shorten(key.value)}", expected, closest(key.value, known), self._lenient)

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """The items of a list; nothing for an absent one."""
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        if not is_null(node):
            self.note(node, describe(node), what)
        return []

    # ---- scalars

    def text(self, node: yaml.Node, what: str) -> str:
        """A scalar exactly as written, whatever YAML would make of it; "" if absent or not a scalar."""
        if isinstance(node, yaml.ScalarNode) and node.tag in _TEXT_TAGS:
            return "" if node.tag == PLAIN and node.value in NULLS else str(node.value)
        self.note(node, describe(node), what)
        return ""

    def integer(self, node: yaml.Node, what: str, minimum: int, maximum: int = INT32_MAX) -> int | None:
        """A decimal integer within bounds, or None after noting why it is not."""
        if not isinstance(node, yaml.ScalarNode) or node.tag != PLAIN or not _DECIMAL.fullmatch(node.value):
            self.note(node, describe(node), what, _integer_suggestion(node))
            return None
        # Beyond 20 digits nothing fits, and Python refuses to convert thousands of them.
        value = int(node.value) if len(node.value) <= 20 else maximum + 1
        if minimum <= value <= maximum:
            return value
        limits = f"{what} of at least {minimum}" if value < minimum else f"{what} of at most {maximum}"
        self.note(node, shorten(node.value).strip("'"), limits)
        return None

    def number(self, node: yaml.Node, what: str) -> float:
        """A finite number, not negative, written in decimal; 0 after noting why it is not."""
        is_plain = isinstance(node, yaml.ScalarNode) and node.tag == PLAIN
        if is_plain and re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", node.value, re.ASCII):
            return float(node.value)
        self.note(node, describe(node), what)
        return 0.0

    def boolean(self, node: yaml.Node, what: str) -> bool:
        """True or false in any of YAML 1.1's spellings; False if absent or after noting why it is not one."""
        if is_null(node):
            return False
        if isinstance(node, yaml.ScalarNode) and node.tag == PLAIN:
            if node.value in TRUES:
                return True
            if node.value in FALSES:
                return False
        self.note(node, describe(node), what)
        return False


def _integer_suggestion(node: yaml.Node) -> str:
    """How the integer was probably meant: without quotes, fraction or leading zeros."""
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        return ""
    if node.tag == QUOTED and _DECIMAL.fullmatch(node.value):
        return f"{node.value} without quotes"
    if re.fullmatch(r"\+?0*[0-9]{1,12}(\.0*)?", node.value, re.ASCII):
        return str(int(node.value.split(".")[0]))
    return ""


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
                step = f"{path}.{name}" if _BARE_KEY.fullmatch(name) else f"{path}[{name!r}]"
                stack.append((value, step.removeprefix(".")))
                stack.append((key, step.removeprefix(".")))
