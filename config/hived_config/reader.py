"""Typed reading of YAML nodes; every mistake is noted with its node, and reading goes on.

Places are not tracked while reading. A mistake holds its node, and the path of a node is looked up only for a report.
So a correct file pays nothing for good messages.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Sequence

import yaml

from hived_config.document import PLAIN, QUOTED
from hived_config.errors import ConfigError, Mistake

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
    """Whether the value is absent: empty, `~` or `null`, unquoted."""
    return isinstance(node, yaml.ScalarNode) and node.tag == PLAIN and node.value in NULLS


def closest(name: str, known: Collection[str]) -> str:
    """The known name that `name` is most likely a misspelling of, or ""."""
    if len(name) > MAX_MISSPELT:
        return ""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else ""


def shorten(text: str, limit: int = 60) -> str:
    """Text as messages quote it: on one line, and not longer than a line."""
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
        """How many warnings, and how many mistakes."""
        self._misspelt: set[tuple[int, str]] = set()

    def note(self, node: yaml.Node, found: str, expected: str, suggestion: str = "", is_warning: bool = False) -> None:
        """Note a mistake (or a warning) at a node. Raises ConfigError where there are more than anybody mends."""
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
        """Whether anything but warnings was noted, here or in the document around."""
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
        """The values of a mapping by name; a name that is not `known` is noted (a warning if lenient) and left out."""
        values = {}
        for name, key, value in self.fields(node, what):
            if name in known:
                values[name] = value
            else:
                meant = _FORMER.get(name) or closest(name, known)
                expected = f"one of {', '.join(known)}"
                self.note(key, f"unknown key {shorten(name)}", expected, meant, self._lenient)
                self._misspelt.add((id(node), meant))
        return values

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
