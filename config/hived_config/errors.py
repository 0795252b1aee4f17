"""Mistakes in a configuration file, and the one exception that carries all of them.

A reader of a 16,384-node file wants to mend everything in one go, so nothing in this package stops at the first
mistake: each is a value with its place, and `ConfigError` is raised once, at the end.
"""

from collections.abc import Sequence

import msgspec

from hived.errors import UserError


class Mistake(msgspec.Struct, frozen=True):
    """One thing wrong in one file.

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
    """A configuration that cannot be used; `mistakes` lists everything wrong with it, in file order."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))
