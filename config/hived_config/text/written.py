"""Where the items of a YAML collection stand in the text, and the splices that add and remove one.

Block style and flow style are kept as they are found, and so are comments: one at the end of an item's lines goes with
the item. So do lines of comments directly above it, unless it is the first.
"""

import json
import re

import msgspec
import yaml

from hived_config.reader import NULLS
from hived_config.text.splices import Splice, UneditableError

Span = tuple[int, int]

_PLAIN = re.compile(r"\w[\w./-]*")
_GAP = re.compile(r"(?:\s|(?<!\S)#[^\r\n]*)*")
_ALIAS = re.compile(r"\*[^\s,\[\]{}]+")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_REST_OF_LINE = re.compile(r"[ \t]*(?:(?<!\S)#[^\r\n]*)?(?=\r|\n|$)")


def scalar(text: str, quotes: bool) -> str:
    """Text as a YAML scalar: plain where that is safe, unless quotes are wanted."""
    is_plain = _PLAIN.fullmatch(text) and text not in NULLS and not quotes
    return text if is_plain else json.dumps(text, ensure_ascii=False)


class Written(msgspec.Struct, frozen=True):
    """A text, and the offsets of nodes in it."""

    text: str

    # ---- where things stand

    def skip(self, offset: int) -> int:
        """The first offset from here on that is neither blank nor in a comment."""
        match = _GAP.match(self.text, offset)
        return match.end() if match else offset

    def line_start(self, offset: int) -> int:
        """Where the line of an offset begins."""
        return max(self.text.rfind("\n", 0, offset), self.text.rfind("\r", 0, offset)) + 1

    def column(self, offset: int) -> int:
        """How far an offset is from the beginning of its line."""
        return offset - self.line_start(offset)

    def rest_of_line(self, offset: int) -> int | None:
        """The end of the line, if nothing but a comment follows the offset; else None."""
        match = _REST_OF_LINE.match(self.text, offset)
        return match.end() if match else None

    def is_alone(self, offset: int) -> bool:
        """Whether nothing but blanks stands before the offset on its line."""
        return not self.text[self.line_start(offset) : offset].strip()

    def colon(self, key: yaml.Node) -> int:
        """Just behind the colon of a key."""
        offset = int(key.end_mark.index)
        while self.text[offset : offset + 1] in (" ", "\t"):
            offset += 1
        if self.text[offset : offset + 1] != ":":
            raise UneditableError("a key without its colon behind it")
        return offset + 1

    def end(self, node: yaml.Node, begin: int) -> int:
        """Where the text of a node ends that begins at `begin`, or behind a colon there; of an alias, its name."""
        if is_alias(node, begin):
            offset = self.skip(begin)
            match = _ALIAS.match(self.text, self.skip(offset + 1) if self.text[offset] == ":" else offset)
            if match is None:
                raise UneditableError("an alias in an unusual place")
            return match.end()
        if isinstance(node, yaml.ScalarNode):
            start, end = int(node.start_mark.index), int(node.end_mark.index)
            return start + len(self.text[start:end].rstrip()) if node.style in ("|", ">") else end
        if is_flow(node):
            return int(node.end_mark.index)
        return self.spans(node)[-1][1]

    def spans(self, node: yaml.Node) -> list[Span]:
        """Where the items of a collection stand: from the dash or the key to the end of the value."""
        if isinstance(node, yaml.MappingNode):
            return [(int(key.start_mark.index), self.end(value, int(key.end_mark.index))) for key, value in node.value]
        spans: list[Span] = []
        offset = int(node.start_mark.index)
        properties = _PROPERTIES.match(self.text, offset)
        offset = properties.end() if properties else offset
        for item in node.value:
            if is_flow(node):
                begin = self.skip(offset + 1 if not spans or self.text[offset] == "," else offset)
                end = self.end(item, begin)
                spans.append((begin, end))
                offset = self.skip(end)
            else:
                dash = self.skip(offset)
                if self.text[dash] != "-":
                    raise UneditableError("an item without its dash in front of it")
                offset = self.end(item, dash + 1)
                spans.append((dash, offset))
        return spans

    # ---- adding

    def add(self, node: yaml.Node, lines: list[str], flow: str, is_apart: bool = False) -> list[Splice]:
        """Add an item to a collection that is not empty: `lines` in block style, `flow` on one line.

        `is_apart` puts an empty line before it.
        """
        spans = self.spans(node)
        start, end = spans[-1]
        rest = self.rest_of_line(end)
        if not is_flow(node):
            if rest is None:
                raise UneditableError("something else behind an item")
            indent = self.text[self.line_start(start) : start]
            return [Splice(rest, rest, "\n" * is_apart + "".join(f"\n{blank(indent)}{line}" for line in lines))]
        comma = self.skip(end)
        if self.text[comma] == ",":
            end, separator = comma + 1, ""
            rest = self.rest_of_line(end)
        else:
            separator = ","
        if self.is_alone(start) and rest is not None:
            indent = self.text[self.line_start(start) : start]
            return [Splice(end, end, separator), Splice(rest, rest, f"\n{indent}{flow}")]
        return [Splice(end, end, f"{separator} {flow}")]

    def fill(self, key: yaml.Node, value: yaml.Node, lines: list[str], flow: str, is_block: bool) -> list[Splice]:
        """Put a first item into the empty collection, or the nothing, under a key.

        `lines` are indented from the column of the key; `is_block` tells whether the key is in block style.
        """
        colon = self.colon(key)
        start, end = int(value.start_mark.index), int(value.end_mark.index)
        written = self.text[start:end]
        if start < colon or written[:1] in ("&", "!"):
            raise UneditableError("an empty collection with an anchor or a tag")
        rest = self.rest_of_line(end)
        is_bare = rest is not None and "#" not in written and self.is_alone(int(key.start_mark.index))
        if is_block and rest is not None and is_bare:
            indent = " " * self.column(int(key.start_mark.index))
            start = colon + len(self.text[colon:start].rstrip()) if written else start
            return [Splice(start, end, ""), Splice(rest, rest, "".join(f"\n{indent}{line}" for line in lines))]
        if isinstance(value, yaml.ScalarNode):
            return [Splice(start, end, f"{'' if self.text[start - 1].isspace() else ' '}{flow}")]
        return [Splice(end - 1, end - 1, flow[1:-1])]

    # ---- removing

    def remove(self, key: yaml.Node, node: yaml.Node, index: int) -> list[Splice]:
        """Remove an item of the collection under a key; an empty collection is written `[]` or `{}`."""
        spans = self.spans(node)
        start, end = spans[index]
        if is_flow(node):
            return self._remove_flow(node, spans, index)
        cut = self._lines(start, end)
        if index:
            cut = Splice(self._comments_above(cut.start, self.column(start)), cut.end, "")
        if len(spans) > 1:
            return [cut]
        if self.text[int(node.start_mark.index)] in "&!":
            raise UneditableError("the last item below an anchor or a tag")
        colon = self.colon(key)
        return [Splice(colon, colon, " {}" if isinstance(node, yaml.MappingNode) else " []"), cut]

    def _remove_flow(self, node: yaml.Node, spans: list[Span], index: int) -> list[Splice]:
        start, end = spans[index]
        close = int(node.end_mark.index) - 1
        opening = max(self.text.rfind("[", 0, start), self.text.rfind("{", 0, start)) + 1
        if len(spans) == 1 and not (self.text[opening:start] + self.text[end:close]).strip(" \t\r\n,"):
            return [Splice(opening, close, "")]
        comma = self.skip(end)
        if self.text[comma] == ",":
            end = comma + 1
            if self.is_alone(start) and self.rest_of_line(end) is not None:
                return [self._lines(start, end)]
            while self.text[end : end + 1] == " ":
                end += 1
            return [Splice(start, end, "")]
        before = []
        if index:
            behind = self.skip(spans[index - 1][1])
            before = [Splice(behind, behind + 1, "")]
        if self.is_alone(start) and self.rest_of_line(end) is not None:
            return [*before, self._lines(start, end)]
        least = before[0].end if before else 0
        while start > least and self.text[start - 1] == " ":
            start -= 1
        return [*before, Splice(start, end, "")]

    def _lines(self, start: int, end: int) -> Splice:
        """Remove whole lines."""
        rest = self.rest_of_line(end)
        if rest is None or not self.is_alone(start):
            raise UneditableError("something else on the lines of an item")
        if self.text.startswith("\r\n", rest):
            rest += 2
        elif rest < len(self.text):
            rest += 1
        return Splice(self.line_start(start), rest, "")

    def _comments_above(self, offset: int, column: int) -> int:
        """Where the lines of comments directly above a line, of equal indentation, begin."""
        while offset:
            above = self.line_start(offset - 2 if self.text[offset - 2 : offset] == "\r\n" else offset - 1)
            line = self.text[above:offset]
            if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) != column:
                break
            offset = above
        return offset


def is_alias(node: yaml.Node, begin: int) -> bool:
    """Whether a node that is used at `begin` or later is written before that, and only named there."""
    return bool(node.start_mark.index < begin)


def is_flow(node: yaml.Node) -> bool:
    """Whether a collection is written in brackets or braces."""
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def blank(indent: str) -> str:
    """As much room as another line's indentation and dash take."""
    return " " * len(indent)
