"""The text of a configuration, changed place by place: the rest stays as it is, character by character.

Inside an OpenPAI file the configuration is a literal block (`config: |`): its lines are in the file, indented. Places
are offsets in the configuration's own text, and are moved to the file's.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable

import msgspec
import yaml

from hived_config.document import compose
from hived_config.errors import ConfigError, Mistake
from hived_config.openpai import inner_scalar

_LINE = re.compile(r"\r\n|\n|\r")


class UneditableError(Exception):
    """Text whose form cannot be edited place by place; the message says which form was found."""


class Splice(msgspec.Struct, frozen=True):
    """Replace the text between two offsets, lines ending in `\\n`."""

    start: int
    end: int
    text: str


class EditedText:
    """A configuration at one moment of being edited; `apply` gives the next one.

    Attributes
    ----------
    whole : the text of the file
    text : the configuration's own text
    root : its document; marks are offsets in `text`
    around : the document around it, None for a plain file
    """

    def __init__(self, whole: str, file: str) -> None:
        """Raises ConfigError for text that is no document, or that is not written so that it can be edited."""
        self.whole = whole
        self.file = file
        self._newline = "\r\n" if "\r\n" in whole else "\n"
        outer = compose(whole, file)
        inner = inner_scalar(outer)
        self.around = outer if inner is not None else None
        self.first_line = 0
        if inner is None:
            self.text, self.root = whole, outer
            return
        if inner.style != "|":
            line = inner.start_mark.line + 1
            expected = "a literal block (config: |), in which lines can be edited"
            raise ConfigError([Mistake(file, line, "hivedscheduler.config", "text in another form", expected)])
        self.text = str(inner.value)
        self.first_line = inner.start_mark.line + 1
        self.root = compose(self.text, file, self.first_line)
        self._place_lines()

    def _place_lines(self) -> None:
        """Remember where lines of the configuration's own text begin, in it and in the file, and their indentation."""
        starts = [0, *(match.end() for match in _LINE.finditer(self.whole))]
        lines = self.text.split("\n")
        own = [0]
        for line in lines[:-1]:
            own.append(own[-1] + len(line) + 1)
        self._own_starts = own
        self._file_starts = [*starts, len(self.whole)][self.first_line :]
        first = next(i for i, line in enumerate(lines) if line.strip())
        here, stop = self._file_starts[first], self._file_starts[first + 1]
        self._indent = " " * (len(_LINE.sub("", self.whole[here:stop])) - len(lines[first]))

    def apply(self, splices: Iterable[Splice]) -> "EditedText":
        """The text with these places replaced, which do not overlap. Raises UneditableError if that breaks it."""
        ordered = sorted(splices, key=lambda splice: (splice.start, splice.end))
        moved = ordered if self.around is None else [self._in_file(splice) for splice in ordered]
        try:
            edited = EditedText(_replace(self.whole, moved, self._newline), self.file)
        except ConfigError as error:
            is_anchor = "alias" in error.message
            found = "an anchor that is used elsewhere" if is_anchor else "a layout that the edit would break"
            raise UneditableError(found) from error
        if _lines(edited.text) != _lines(_replace(self.text, ordered, "\n")):
            raise UneditableError("unusual line breaks or indentation")
        return edited

    def _in_file(self, splice: Splice) -> Splice:
        """The splice at its place in the file, its new lines indented as the configuration is there."""
        start, starts_line = self._offset(splice.start)
        end, ends_line = self._offset(splice.end)
        lines = splice.text.split("\n")
        if starts_line:
            lines[0] = self._indented(lines[0])
        lines[1:] = [self._indented(line) for line in lines[1:]]
        if not lines[-1] and not ends_line and (starts_line or len(lines) > 1):
            lines[-1] = self._indent
        if lines[-1] and ends_line:
            end += len(self._indent)
        return Splice(start, end, "\n".join(lines))

    def _indented(self, line: str) -> str:
        return self._indent + line if line else line

    def _offset(self, own: int) -> tuple[int, bool]:
        """(offset in the file, whether it begins a line) of an offset in the configuration's own text."""
        line = bisect_right(self._own_starts, own) - 1
        column = own - self._own_starts[line]
        offset = self._file_starts[line]
        return (offset + len(self._indent) + column, False) if column else (offset, True)

    def line(self, node: yaml.Node) -> int:
        """The line of a node in the file, counted from 1."""
        return self.first_line + int(node.start_mark.line) + 1


def _lines(text: str) -> list[str]:
    """The lines of a text without the empty ones at its end, which a literal block may not have."""
    return _LINE.split(text.rstrip("\r\n"))


def _replace(text: str, splices: list[Splice], newline: str) -> str:
    parts, done = [], 0
    for splice in splices:
        parts += [text[done : splice.start], splice.text.replace("\n", newline)]
        done = splice.end
    return "".join([*parts, text[done:]])
