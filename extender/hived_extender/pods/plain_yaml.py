"""The meaning of scalars in annotations, and YAML as people write it there, read in a tenth of a parser's time.

Plain YAML has block mappings, lists, flow lists and mappings on one line, words, numbers, quoted text and comments, in
printable ASCII. `read_plain` reads it as `annotation_yaml` does, and gives up on all else: folded lines, escapes, tags,
anchors, document markers, tabs, a key twice. Its patterns never match one place in two ways, so cost is linear.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

Value: TypeAlias = "bool | int | str | list[Value] | dict[str, Value] | None"
_Content: TypeAlias = "dict[str, Value] | list[Value]"
_Block: TypeAlias = tuple[int, _Content, str]  # column, content, and for a list the key that it stands below
_Token: TypeAlias = tuple[str, str, str]  # one of `[]{},`, a key, a scalar; two of them are ""

SIZE_LIMIT = 2048
"""Characters: some hundred lines, read in 0.2 ms."""

LINE_LIMIT = 256
KEPT_LINES = 2048

DEPTH_LIMIT = 8
"""Of flows."""

OLD_SPELLINGS = {
    "gpuType": "leafCellType",
    "gpuNumber": "leafCellNumber",
    "gpuIsolation": "leafCellIsolation",
    "physicalGpuIndices": "physicalLeafCellIndices",
}
_INTEGERS = frozenset({"priority", "leafCellNumber", "podNumber", "leafCellIsolation", "physicalLeafCellIndices"})
_FLAGS = {**dict.fromkeys(("y", "yes", "true", "on"), True), **dict.fromkeys(("n", "no", "false", "off"), False)}
_FLAG_KEYS = frozenset({"gangReleaseEnable", "lazyPreemptionEnable", "ignoreK8sSuggestedNodes", "elastic"})
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})

_SCALAR = r"""(?>-?\w[\w./~@+-]*|"[ !#-\[\]-~]*"|'[ -&(-~]*')"""
_KEY = r"[A-Za-z]\w{0,63}"
_FLOW = r"""[\[{][\w ./~@+\-,:\[\]{}"']*[\]}]"""
_LINE = re.compile(
    rf"( *+)(?:(- )?({_KEY}):(?: ++({_SCALAR}|{_FLOW}))?|- ({_SCALAR}|{_FLOW}))? *+(?:(?<!\S)#[ -~]*+)?", re.ASCII
)
_FLOW_TOKEN = re.compile(rf"(?:([\[\]{{}},])|({_KEY}): |({_SCALAR})(?=[ ,\]}}])) *", re.ASCII)
_FLOW_TOKENS = re.compile(rf"(?:(?:[\[\]{{}},]|{_KEY}: |{_SCALAR}(?=[ ,\]}}])) *+)*", re.ASCII)
_NO_TOKEN = ("", "", "")
_SHORT = 16  # digits of a number that needs no second look


class _NotPlainError(Exception):
    """The text needs a parser."""


def meaning(text: str, key: str) -> Value:
    """The value of an unquoted scalar that stands below a key: known numbers and truth values converted."""
    if key in _INTEGERS:
        if len(text) < _SHORT and text.isdecimal() and text.isascii() and text[0] != "0":
            return int(text)
        return None if text in _NULLS else _number(text)
    if text in _NULLS:
        return None
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


class _Line(NamedTuple):
    """A line of a document.

    column, inner : of its first character, and of the key; they differ behind a dash
    value : None for null, and for a key without a value
    item : text of the value, "" if there is none; with "" as `key`, an item of a list, whose value the list's key tells
    """

    column: int
    inner: int
    key: str
    value: Value
    item: str


_BLANK = _Line(0, 0, "", None, "")


def read_plain(text: str) -> dict[str, Value] | None:
    """A document that is a mapping, null entries left out; None if it is not plain, or not YAML at all.

    Parts of it may be shared with later documents. Cost: .3 us a line that was read lately, 1.5 us another one.
    """
    if len(text) > SIZE_LIMIT:
        return None
    try:
        return _read_lines(list(map(_read_line, text.split("\n"))))
    except _NotPlainError:
        return None


def _read_lines(lines: list[_Line]) -> dict[str, Value]:
    root: dict[str, Value] = {}
    blocks: list[_Block] = []
    mapping, own_column, waiting, has_nulls = root, -1, "", False
    for line in lines:
        if line is _BLANK:
            continue
        column, inner, key, value, item = line
        if waiting or column != own_column or inner != column:
            if not blocks:
                blocks.append((column, root, ""))
            content, above = _go_to(blocks, column, waiting, is_list=inner != column)
            if waiting:
                has_nulls = has_nulls or mapping[waiting] is None
                waiting = ""
            if isinstance(content, dict):
                mapping = content
            elif not key:
                content.append(_value(item, above))
                mapping, own_column = root, -1  # the next line goes to a block of its own
                continue
            else:
                mapping = {}
                content.append(mapping)
                blocks.append((inner, mapping, ""))
            own_column = inner
        if key in mapping:
            raise _NotPlainError
        mapping[key] = value
        if value is None:
            waiting, has_nulls = ("", True) if item else (key, has_nulls)
    if not blocks:
        raise _NotPlainError
    if has_nulls or waiting:
        _drop_nulls(root)
    return root


def _go_to(blocks: list[_Block], column: int, waiting: str, *, is_list: bool) -> tuple[_Content, str]:
    """Make the block of a column the last one; returns its content, and for a list the key that it stands below.

    A new block is the value of the last mapping's key that waits for one. A list may stand in its mapping's column.
    """
    above, content, key = blocks[-1]
    if waiting and isinstance(content, dict) and (column > above or (is_list and column == above)):
        block: _Content = [] if is_list else {}
        content[waiting] = block
        blocks.append((column, block, waiting))
        return block, waiting
    while above > column or (above == column and not is_list and isinstance(content, list)):
        blocks.pop()
        if not blocks:
            raise _NotPlainError
        above, content, key = blocks[-1]
    if above != column or isinstance(content, list) is not is_list:
        raise _NotPlainError
    return content, key


@lru_cache(maxsize=KEPT_LINES)
def _read_line(text: str) -> _Line:
    """Pods of one cluster have most lines in common. Raises _NotPlainError."""
    if len(text) > LINE_LIMIT or (found := _LINE.fullmatch(text)) is None:
        raise _NotPlainError
    indent, dash, key, value, item = found.groups("")
    column = len(indent)
    if item:
        return _Line(column, column + 2, "", None, item)
    if not key:
        return _BLANK
    name = OLD_SPELLINGS.get(key, key)
    return _Line(column, column + len(dash), name, _value(value, name) if value else None, value)


def _value(text: str, key: str) -> Value:
    """A quoted text, an unquoted scalar, or a flow."""
    if text[0] in "\"'":
        return text[1:-1]
    if text[0] not in "[{":
        return meaning(text, key)
    if not _FLOW_TOKENS.fullmatch(text):
        raise _NotPlainError
    tokens = iter(_FLOW_TOKEN.findall(text))
    value = _flow(tokens, next(tokens), key, 0)
    if next(tokens, None) is not None:
        raise _NotPlainError
    _drop_nulls(value)
    return value


def _flow(tokens: Iterator[_Token], token: _Token, key: str, depth: int) -> Value:
    """The scalar, list or mapping that begins with a token."""
    mark, _, scalar = token
    if scalar:
        return scalar[1:-1] if scalar[0] in "\"'" else meaning(scalar, key)
    if depth > DEPTH_LIMIT:
        raise _NotPlainError
    if mark == "[":
        return _flow_list(tokens, key, depth)
    if mark == "{":
        return _flow_mapping(tokens, depth)
    raise _NotPlainError


def _flow_list(tokens: Iterator[_Token], key: str, depth: int) -> list[Value]:
    items: list[Value] = []
    token = next(tokens, _NO_TOKEN)
    while items or token[0] != "]":
        items.append(_flow(tokens, token, key, depth + 1))
        if not _goes_on(next(tokens, _NO_TOKEN), "]"):
            break
        token = next(tokens, _NO_TOKEN)
    return items


def _flow_mapping(tokens: Iterator[_Token], depth: int) -> dict[str, Value]:
    entries: dict[str, Value] = {}
    token = next(tokens, _NO_TOKEN)
    while entries or token[0] != "}":
        name = OLD_SPELLINGS.get(token[1], token[1])
        if not name or name in entries:
            raise _NotPlainError
        entries[name] = _flow(tokens, next(tokens, _NO_TOKEN), name, depth + 1)
        if not _goes_on(next(tokens, _NO_TOKEN), "}"):
            break
        token = next(tokens, _NO_TOKEN)
    return entries


def _goes_on(token: _Token, end: str) -> bool:
    """Is there a comma, and not the end of the flow?"""
    if token[0] not in {",", end}:
        raise _NotPlainError
    return token[0] == ","


def _drop_nulls(node: Value) -> None:
    """Null entries of mappings count as absent."""
    if isinstance(node, dict):
        for name in [name for name, value in node.items() if value is None]:
            del node[name]
        for value in node.values():
            _drop_nulls(value)
    elif isinstance(node, list):
        for value in node:
            _drop_nulls(value)
