"""YAML text -> a tree of nodes that keeps every scalar as it was written.

YAML 1.1 would turn the node name `no` into False, `010` into 8 and `12:30:45` into a number. Only the schema knows
where text is wanted and where a number is, so nothing is resolved here: a scalar keeps its text and whether it was
plain. Composing without constructing is also what makes 16,384 nodes quick, and each node still knows its line.

Input that would exhaust the machine is refused early: nesting is bounded while composing (libyaml itself would overrun
the C stack), and aliases are bounded by the size of the document they would expand to.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from hived_config.errors import ConfigError, Mistake

PLAIN = "plain"
QUOTED = "quoted"

MAX_NESTING = 256
MAX_ALIASED_NODES = 1_000_000

_Parser: Any
try:
    from yaml.cyaml import CParser as _Parser

    _Loader: Any = _Parser
except ImportError:

    class _Loader(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer):  # type: ignore[no-redef]
        """The same interface in pure Python, for a PyYAML that was built without libyaml."""

        def __init__(self, text: str) -> None:
            yaml.reader.Reader.__init__(self, text)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)


class _Composer(_Loader):  # type: ignore[misc]
    """Composes nodes whose tag only says whether a scalar was plain; counts the nesting as it goes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def resolve(self, _kind: type, _value: object, implicit: Any) -> str:
        """Tag a node without an explicit tag: PLAIN for plain scalars and collections, else QUOTED."""
        return PLAIN if implicit is True or (implicit and implicit[0]) else QUOTED

    def descend_resolver(self, _parent: object, _index: object) -> None:
        """Called by the composer when it enters a node."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise yaml.YAMLError(f"nested deeper than {MAX_NESTING} levels")

    def ascend_resolver(self) -> None:
        """Called by the composer when it leaves a node."""
        self._depth -= 1


@contextmanager
def gc_paused() -> Iterator[None]:
    """Switch the cyclic garbage collector off: it would walk hundreds of thousands of live nodes again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_text(path: Path) -> str:
    """Read a file as UTF-8. Raises ConfigError when it is missing, unreadable, a directory or not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{error.object[error.start]:02x}, which is not UTF-8"
        raise ConfigError([Mistake(str(path), line, "", found, "UTF-8 text")]) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Mistake(str(path), 0, "", f"no readable file ({reason})", "a YAML file")]) from error


def compose(text: str, file: str, first_line: int = 0) -> yaml.Node:
    """Compose the one document in `text`; `first_line` lines of `file` stand before it.

    Raises ConfigError on a syntax error, no document, several documents, or aliases that expand without bound.
    """
    try:
        root = _Composer(text).get_single_node()
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError([_syntax_mistake(error, file, first_line)]) from error
    if root is None:
        raise ConfigError([Mistake(file, 0, "", "an empty document", "a scheduler configuration")])
    if "*" in text:
        _refuse_alias_bomb(root, file, first_line)
    return root


def _syntax_mistake(error: Exception, file: str, first_line: int) -> Mistake:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    line = first_line + mark.line + 1 if mark is not None else 0
    if getattr(error, "context", None) == "expected a single document in the stream":
        return Mistake(file, line, "", "a second document", "a single document")
    return Mistake(file, line, "", f"text that is not YAML ({' '.join(str(problem).split())})", "YAML")


def _refuse_alias_bomb(root: yaml.Node, file: str, first_line: int) -> None:
    """Raise ConfigError if an alias contains itself, or the expanded document is far larger than the written one."""
    sizes: dict[int, int] = {}

    def expanded_size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known is not None:
            if known == 0:
                raise ConfigError([_alias_mistake(node, file, first_line, "an alias that contains itself")])
            return known
        sizes[id(node)] = 0
        size = 1
        if isinstance(node, yaml.MappingNode):
            size += sum(expanded_size(key) + expanded_size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            size += sum(expanded_size(item) for item in node.value)
        sizes[id(node)] = size
        return size

    size = expanded_size(root)
    if size > len(sizes) + MAX_ALIASED_NODES:
        raise ConfigError([_alias_mistake(root, file, first_line, f"aliases that expand to {size} values")])


def _alias_mistake(node: yaml.Node, file: str, first_line: int, found: str) -> Mistake:
    expected = f"aliases that add at most {MAX_ALIASED_NODES} values"
    return Mistake(file, first_line + node.start_mark.line + 1, "", found, expected)
