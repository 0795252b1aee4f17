"""Composes YAML text into a tree of nodes that keeps every scalar as written, and reports mistakes with their places.

YAML 1.1 would turn the node name `no` into False, `010` into 8 and `12:30:45` into a number. Only the schema knows
where text is wanted and where a number is, so nothing is resolved here: a scalar keeps its text and whether it was
plain. Composing without constructing also makes 16,384 nodes quick, and each node still knows its line.

Input that would exhaust the machine is refused early: the size of a file, its nodes and their nesting are bounded
(libyaml itself would overrun the C stack). Aliases are bounded by the size of the document that they would expand to.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import yaml

from hived.values.errors import UserError


class Mistake(msgspec.Struct, frozen=True):
    """One mistake in one file.

    `line` counts from 1 and is 0 when the file has no such place (it is missing, or not text). `path` is the place in
    the document, such as `physicalCluster.physicalCells[3].cellAddress`; it is empty for the document itself. A warning
    does not keep the file from being used.
    """

    file: str
    line: int
    path: str
    found: str
    expected: str
    suggestion: str = ""
    is_warning: bool = False

    def __str__(self) -> str:
        """One line: `file:line: path: found ..., expected ... (did you mean ...?)`."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        where = f" {self.path}:" if self.path else ""
        severity = " warning:" if self.is_warning else ""
        hint = f" (did you mean {self.suggestion}?)" if self.suggestion else ""
        return f"{place}:{severity}{where} found {self.found}, expected {self.expected}{hint}"


class ConfigError(UserError):
    """A configuration that cannot be used; `mistakes` lists everything wrong with it, in file order.

    `left_out` says which checks could not be made because of them; "" if all were.
    """

    def __init__(self, mistakes: Sequence[Mistake], left_out: str = "") -> None:
        self.mistakes, self.left_out = tuple(mistakes), left_out
        lines = [str(mistake) for mistake in self.mistakes]
        if left_out:
            lines.append(not_checked(self.mistakes[0].file, left_out))
        super().__init__("\n".join(lines))


def not_checked(file: str, left_out: str) -> str:
    """The line about checks that have to wait until the mistakes are corrected."""
    return f"{file}: not checked yet, because of these mistakes: {left_out}"


PLAIN = "plain"
QUOTED = "quoted"

MAX_FILE_BYTES = 64 * 2**20
MAX_NESTING = 256
MAX_ALIASED_NODES = 1_000_000
MAX_NODES = 3_000_000
"""Of YAML in a document. A file for 16,384 nodes that spells out their 8 devices and what they are plugged into has
640,000; each costs about half a kilobyte while it is read.
"""


class TooManyNodesError(Exception):
    """`near` is the last node that was read before the one that is too many."""

    def __init__(self, most: int, near: yaml.Node | None) -> None:
        super().__init__(f"more than {most} nodes")
        self.most = most
        self.line = 0 if near is None else int(near.start_mark.line)


class Composer(yaml.CBaseLoader):
    """Composes with libyaml: the tag of a node only says "plain" or not, and nodes and nesting are bounded."""

    most_nodes = MAX_NODES
    most_levels = MAX_NESTING
    depth = 0
    count = 0

    def resolve(self, _kind: type, _value: object, implicit: Any) -> str:
        """The tag of a node that was written without one. `implicit` is a pair for scalars."""
        return PLAIN if implicit is True or (implicit and implicit[0]) else QUOTED

    def descend_resolver(self, parent: yaml.Node | None, _index: object) -> None:
        """The composer enters a node."""
        self.count += 1
        if self.count > self.most_nodes:
            before = parent.value[-1] if parent is not None and parent.value else parent
            raise TooManyNodesError(self.most_nodes, before[0] if isinstance(before, tuple) else before)
        self.depth += 1
        if self.depth > self.most_levels:
            mark = parent.start_mark if parent else None
            raise yaml.MarkedYAMLError(problem=f"nesting deeper than {self.most_levels} levels", problem_mark=mark)

    def ascend_resolver(self) -> None:
        """The composer leaves a node."""
        self.depth -= 1


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector, which would walk hundreds of thousands of live nodes again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_text(path: Path, file: str) -> str:
    """A whole file as UTF-8; messages name it `file`.

    Raises ConfigError when it is missing, unreadable, a directory, huge or not UTF-8.
    """
    try:
        with path.open("rb") as stream:
            return read_stream(stream, file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Mistake(file, 0, "", f"no readable file ({reason})", "a YAML file")]) from error


def read_stream(stream: IO[bytes], file: str) -> str:
    """The rest of a stream as UTF-8; messages name it `file`. Raises ConfigError when it is huge or not UTF-8."""
    content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError([Mistake(file, 0, "", f"more than {MAX_FILE_BYTES} bytes", "a smaller file")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x}, which is not UTF-8"
        raise ConfigError([Mistake(file, line, "", found, "UTF-8 text")]) from error


def compose(text: str, file: str, first_line: int = 0, most_nodes: int = MAX_NODES) -> yaml.Node:
    """Compose the one document in `text`, before which `file` has `first_line` lines. Cost O(text).

    Raises ConfigError on a syntax error, no document, several documents, more than `most_nodes` nodes of YAML, or
    aliases that expand to far more than that.
    """
    with _mistakes_of(text, file, first_line):
        composer = Composer(text)
        composer.most_nodes = most_nodes
        root = composer.get_single_node()
    if root is None:
        raise ConfigError([Mistake(file, first_line, "", "an empty document", "a scheduler configuration")])
    if "*" in text:
        _refuse_alias_bomb(root, file, first_line, min(most_nodes, MAX_ALIASED_NODES))
    return root


def compose_all(text: str, file: str, first_line: int = 0) -> list[yaml.Node]:
    """Compose every document in `text`, of which there may be none; otherwise as `compose`."""
    roots: list[yaml.Node] = []
    with _mistakes_of(text, file, first_line):
        composer = Composer(text)
        while composer.check_node():
            if (root := composer.get_node()) is not None:
                roots.append(root)
    if "*" in text:
        for root in roots:
            _refuse_alias_bomb(root, file, first_line, MAX_ALIASED_NODES)
    return roots


@contextmanager
def _mistakes_of(text: str, file: str, first_line: int) -> Iterator[None]:
    """Turn errors of the parser into ConfigError."""
    try:
        yield
    except TooManyNodesError as error:
        expected = "fewer keys and values: leave out cells below the nodes, which are generated"
        found = f"more than {error.most} keys, values and lists"
        raise ConfigError([Mistake(file, first_line + error.line + 1, "", found, expected)]) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([_syntax_mistake(error, text, file, first_line)]) from error


def _syntax_mistake(error: Exception, text: str, file: str, first_line: int) -> Mistake:
    mark = getattr(error, "problem_mark", None)
    line = first_line + mark.line + 1 if mark is not None else first_line
    if isinstance(error, yaml.reader.ReaderError):
        # Its position counts characters in one parser and bytes in the other, so look for the character itself.
        at = next((i for i, char in enumerate(text) if ord(char) == error.character), 0)
        line = first_line + text.count("\n", 0, at) + 1
        return Mistake(file, line, "", f"the character U+{error.character:04X}", "printable text")
    if getattr(error, "context", None) == "expected a single document in the stream":
        return Mistake(file, line, "", "a second document", "a single document")
    if mark is not None and _is_indented_by_tab(text, mark.line):
        return Mistake(file, line, "", "a tab", "spaces: YAML takes no tabs before the text of a line")
    problem = getattr(error, "problem", None) or str(error) or "nesting too deep"
    found, written = f"text that is not YAML ({' '.join(str(problem).split())})", _line(text, mark.line if mark else -1)
    if written.rstrip() == "...":
        return Mistake(file, line, "", found, "YAML without the line ..., which stands for parts that were left out")
    if "{{" in written:
        return Mistake(file, line, "", found, "YAML, with values in the place of {{ }} of a template")
    return Mistake(file, line, "", found, "YAML")


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number] if 0 <= number < len(lines) else ""


def _is_indented_by_tab(text: str, line: int) -> bool:
    found = _line(text, line)
    return "\t" in found[: len(found) - len(found.lstrip())]


def _refuse_alias_bomb(root: yaml.Node, file: str, first_line: int, most: int) -> None:
    """Raise ConfigError if an alias contains itself, or if aliases expand to a document far too large or too deep.

    An anchor comes before its aliases. So in document order an alias meets a node that has been measured, or one around
    it; the recursion is as deep as the text is nested. Cost O(document).
    """
    measured: dict[int, tuple[int, int]] = {}

    def refuse(node: yaml.Node, found: str, expected: str) -> ConfigError:
        return ConfigError([Mistake(file, first_line + node.start_mark.line + 1, "", found, expected)])

    def measure(node: yaml.Node) -> tuple[int, int]:
        """(number of nodes, height) of the expanded node."""
        if id(node) in measured:
            if measured[id(node)] == (0, 0):
                raise refuse(node, "an alias that contains itself", "a tree")
            return measured[id(node)]
        measured[id(node)] = (0, 0)
        size, height = 1, 0
        if isinstance(node, yaml.CollectionNode):
            for item in node.value:
                for part in item if isinstance(item, tuple) else (item,):
                    part_size, part_height = measure(part)
                    size, height = size + part_size, max(height, part_height)
        measured[id(node)] = (size, height + 1)
        return measured[id(node)]

    size, height = measure(root)
    if size > len(measured) + most:
        raise refuse(root, f"aliases that expand to {size} values", f"at most {most} more than written")
    if height > MAX_NESTING:
        raise refuse(root, f"aliases that nest {height} levels deep", f"at most {MAX_NESTING} levels")
