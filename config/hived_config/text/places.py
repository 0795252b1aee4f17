"""Edits places in the text of a configuration: replaces pieces, adds and removes items of collections.

All else stays, character by character. Block and flow style are kept as they are found, and so are comments. A comment
behind an item is removed with it, and so are lines of comments directly above, unless the item is the first one.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

import msgspec
import yaml

from hived_config.document import ConfigError, Mistake, compose
from hived_config.openpai import inner_scalar

Span = tuple[int, int]

_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*", re.ASCII)
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_GAP = re.compile(r"(?:\s|(?<!\S)#[^\n]*)*")
_ALIAS = re.compile(r"\*[^\s,\[\]{}]+")
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s|(?<!\S)#[^\n]*)+)*")
_REST_OF_LINE = re.compile(r"[ \t]*(?:(?<!\S)#[^\n]*)?(?=\n|\Z)")


class UneditableError(Exception):
    """Text whose form cannot be edited; the message names the form."""


class Splice(msgspec.Struct, frozen=True):
    """Replace the text between two offsets."""

    start: int
    end: int
    text: str


class FileText:
    """The text of a file with a configuration, which may stand in a literal block of an OpenPAI file.

    Attributes
    ----------
    whole : the text of the file
    text : the configuration's own text, lines ending in `\\n`
    root : its document; marks are offsets in `text`
    """

    def __init__(self, whole: str, file: str) -> None:
        """Raises ConfigError for text that is no document, or that stands in another form inside an OpenPAI file."""
        self.whole = whole
        self.file = file
        self._first_line, self._indent = 0, ""
        self.root = compose(whole, file)
        self.text = whole.replace("\r\n", "\n")
        inner = inner_scalar(self.root)
        if inner is not None:
            if inner.style != "|":
                expected = "a literal block (config: |), in which lines can be edited"
                line = inner.start_mark.line + 1
                raise ConfigError([Mistake(file, line, "hivedscheduler.config", "text in another form", expected)])
            self.text, self._first_line = str(inner.value), inner.start_mark.line + 1
            own = next(number for number, line in enumerate(_LINE.findall(self.text)) if line.strip())
            first = _LINE.findall(whole)[self._first_line + own]
            self._indent = " " * (len(first) - len(first.lstrip(" ")))
        if self.text != whole:
            self.root = compose(self.text, file, self._first_line)

    def line(self, node: yaml.Node) -> int:
        """The line of a node in the file, counted from 1."""
        return self._first_line + int(node.start_mark.line) + 1

    def edited(self, splices: Iterable[Splice]) -> "FileText":
        """The text with these places replaced, which do not overlap. Raises UneditableError if that breaks it."""
        own = _LINE.findall(self.text)
        if self.text.endswith("\n"):
            own.append("")
        starts = list(accumulate(map(len, own[:-1]), initial=0))
        lines = list(own)
        for splice in sorted(splices, key=lambda each: (each.start, each.end))[::-1]:
            first, last = bisect_right(starts, splice.start) - 1, bisect_right(starts, splice.end) - 1
            head, tail = lines[first][: splice.start - starts[first]], lines[last][splice.end - starts[last] :]
            lines[first : last + 1] = [head + splice.text + tail, *[""] * (last - first)]
        text = "".join(lines)
        try:
            found = FileText(self._around(own, lines), self.file)
        except ConfigError as error:
            is_anchor = "alias" in error.message
            kind = "an anchor that is used elsewhere" if is_anchor else "a layout that the edit would break"
            raise UneditableError(kind) from error
        if found.text.rstrip("\n") != text.rstrip("\n"):
            raise UneditableError("unusual line breaks or indentation")
        return found

    def _around(self, old: list[str], new: list[str]) -> str:
        """The file with other lines of the configuration; lines that stay are not touched."""
        newline = "\r\n" if "\r\n" in self.whole else "\n"
        lines = _LINE.findall(self.whole)
        for number, (was, now) in enumerate(zip(old, new, strict=True), self._first_line):
            if was != now:
                parts = [(self._indent if part.strip() else "") + part for part in _LINE.findall(now)]
                written = "".join(parts).replace("\n", newline)
                if was:
                    is_ended = not written or written.endswith("\n") or not lines[number].endswith("\n")
                    lines[number] = written if is_ended else written + newline
                else:  # behind the last line
                    lines.insert(number, written)
        return "".join(lines)


def scalar(text: str, quotes: bool = False) -> str:
    """Quote a text if YAML readers could take it for something else, or if quotes are wanted."""
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and not quotes
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def is_alias(node: yaml.Node, begin: int) -> bool:
    """True if a node used at `begin` or later is written before that, and only named there."""
    return bool(node.start_mark.index < begin)


def is_flow(node: yaml.Node) -> bool:
    """True if a collection is written in brackets or braces."""
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def replace_scalar(node: yaml.ScalarNode, value: str) -> Splice:
    """Write another value for a scalar, in quotes like its own if it has some."""
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    if node.style == "'":
        return Splice(start, end, "'" + value.replace("'", "''") + "'")
    return Splice(start, end, scalar(value, quotes=bool(node.style)))


# ---- adding


def add(text: str, node: yaml.Node, lines: list[str], flow: str, is_apart: bool = False) -> list[Splice]:
    """Add an item to a collection that is not empty: `lines` in block style, `flow` on one line.

    `is_apart` puts an empty line before it.
    """
    if not is_flow(node):
        end = _line_end(text, _content_end(text, int(node.end_mark.index)))
        indent = " " * column_at(text, block_start(text, node))
        return [Splice(end, end, "\n" * is_apart + "".join(f"\n{indent}{line}" for line in lines))]
    start, end = _flow_spans(text, node)[-1]
    comma = _skip(text, end)
    separator = "" if text[comma] == "," else ","
    end = end if separator else comma + 1
    rest = _rest_of_line(text, end)
    if _is_alone(text, start) and rest is not None:
        return [Splice(end, end, separator), Splice(rest, rest, f"\n{' ' * column_at(text, start)}{flow}")]
    return [Splice(end, end, f"{separator} {flow}")]


def fill(text: str, key: yaml.Node, value: yaml.Node, lines: list[str], flow: str, is_block: bool) -> list[Splice]:
    """Put a first item into the empty collection, or the nothing, under a key.

    `lines` are indented from the column of the key; `is_block` tells whether the key is in block style.
    """
    colon = _colon(text, key)
    start, end = int(value.start_mark.index), int(value.end_mark.index)
    written = text[start:end]
    if start < colon or written[:1] in ("&", "!"):
        raise UneditableError("an empty collection with an anchor or a tag")
    rest = _rest_of_line(text, end)
    is_bare = "#" not in written and _is_alone(text, int(key.start_mark.index))
    if is_block and is_bare and rest is not None:
        indent = " " * column_at(text, int(key.start_mark.index))
        start = colon + len(text[colon:start].rstrip()) if written else start
        return [Splice(start, end, ""), Splice(rest, rest, "".join(f"\n{indent}{line}" for line in lines))]
    if isinstance(value, yaml.ScalarNode):
        return [Splice(start, end, f"{'' if text[start - 1].isspace() else ' '}{flow}")]
    return [Splice(end - 1, end - 1, flow[1:-1])]


# ---- removing


def remove(text: str, key: yaml.Node, node: yaml.Node, index: int) -> list[Splice]:
    """Remove an item of the collection under a key; an empty collection is written `[]` or `{}`."""
    if is_flow(node):
        return _remove_flow(text, node, index)
    starts = _block_starts(text, node)
    stop = starts[index + 1] if index + 1 < len(starts) else int(node.end_mark.index)
    start, end = starts[index], _content_end(text, stop)
    if not _is_alone(text, start):
        raise UneditableError("something else on the lines of an item")
    column = column_at(text, start)
    start = line_start(text, start)
    while index and re.fullmatch(rf" {{{column}}}#.*\n", above := text[line_start(text, start - 1) : start]):
        start -= len(above)
    cut = Splice(start, min(_line_end(text, end) + 1, len(text)), "")
    if len(starts) > 1:
        return [cut]
    if text[int(node.start_mark.index)] in "&!":
        raise UneditableError("the last item below an anchor or a tag")
    colon = _colon(text, key)
    return [Splice(colon, colon, " {}" if isinstance(node, yaml.MappingNode) else " []"), cut]


def _remove_flow(text: str, node: yaml.Node, index: int) -> list[Splice]:
    spans = _flow_spans(text, node)
    start, end = spans[index]
    opening, close = _flow_start(text, node), int(node.end_mark.index) - 1
    if len(spans) == 1 and not (text[opening:start] + text[end:close]).strip(" \t\n,"):
        return [Splice(opening, close, "")]
    comma = _skip(text, end)
    before = []
    if text[comma] == ",":
        end = comma + 1
    elif index:
        behind = _skip(text, spans[index - 1][1])
        before = [Splice(behind, behind + 1, "")]
    rest = _rest_of_line(text, end)
    if _is_alone(text, start) and rest is not None:
        return [*before, Splice(line_start(text, start), min(rest + 1, len(text)), "")]
    if text[comma] == ",":
        end += len(text[end:]) - len(text[end:].lstrip(" "))
    else:
        least = before[0].end if before else 0
        start = max(least, start - len(text[:start]) + len(text[:start].rstrip(" ")))
    return [*before, Splice(start, end, "")]


# ---- where things stand


def _skip(text: str, offset: int) -> int:
    """The first offset from here on that is neither blank nor in a comment."""
    match = _GAP.match(text, offset)
    return match.end() if match else offset


def line_start(text: str, offset: int) -> int:
    """The offset of the beginning of a line."""
    return text.rfind("\n", 0, offset) + 1


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end


def column_at(text: str, offset: int) -> int:
    """The distance of an offset from the beginning of its line."""
    return offset - line_start(text, offset)


def _rest_of_line(text: str, offset: int) -> int | None:
    """The end of the line, if nothing but a comment follows the offset; else None."""
    match = _REST_OF_LINE.match(text, offset)
    return match.end() if match else None


def _is_alone(text: str, offset: int) -> bool:
    """True if nothing but blanks stands before the offset on its line."""
    return not text[line_start(text, offset) : offset].strip()


def _colon(text: str, key: yaml.Node) -> int:
    """Just behind the colon of a key."""
    offset = int(key.end_mark.index)
    while text[offset : offset + 1] in (" ", "\t"):
        offset += 1
    if text[offset : offset + 1] != ":":
        raise UneditableError("a key without its colon behind it")
    return offset + 1


def _content_end(text: str, offset: int) -> int:
    """The end of the last line before the offset that has more than a comment."""
    while True:
        start = line_start(text, offset)
        line = text[start:offset].strip()
        if (line and line[0] != "#") or not start:
            return start + len(text[start:offset].rstrip())
        offset = start - 1


def block_start(text: str, node: yaml.Node) -> int:
    """The first dash or key of a collection in block style."""
    if isinstance(node, yaml.MappingNode):
        return int(node.value[0][0].start_mark.index)
    return _behind_properties(text, node)


def _block_starts(text: str, node: yaml.Node) -> list[int]:
    """The dashes or keys of the items of a collection in block style."""
    if isinstance(node, yaml.MappingNode):
        return [int(key.start_mark.index) for key, _ in node.value]
    start, end = block_start(text, node), int(node.end_mark.index)
    dashes = re.compile(rf"^ {{{column_at(text, start)}}}(?=-(?:\s|\Z))", re.MULTILINE)
    starts = [start, *(match.end() for match in dashes.finditer(text, start, end))]
    if len(starts) != len(node.value):
        raise UneditableError("an item without its dash in front of it")
    return starts


def _flow_start(text: str, node: yaml.Node) -> int:
    """Just behind the opening bracket."""
    return _behind_properties(text, node) + 1


def _behind_properties(text: str, node: yaml.Node) -> int:
    match = _PROPERTIES.match(text, int(node.start_mark.index))
    return match.end() if match else int(node.start_mark.index)


def _flow_spans(text: str, node: yaml.Node) -> list[Span]:
    """The spans of the items of a collection in flow style, without commas."""
    spans: list[Span] = []
    offset = _flow_start(text, node)
    for item in node.value:
        key, value = item if isinstance(item, tuple) else (None, item)
        begin = _skip(text, offset)
        behind = begin if key is None else int(key.end_mark.index)
        end = max(behind, int(value.end_mark.index))
        if is_alias(value, behind):
            alias = _ALIAS.search(text, behind)
            if alias is None:
                raise UneditableError("an alias in an unusual place")
            end = alias.end()
        spans.append((begin, end))
        offset = _skip(text, end)
        offset += text[offset] == ","
    return spans
