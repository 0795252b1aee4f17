"""The same experiments as a table of 100 columns, a row for each expectation as soon as it is decided."""

import textwrap
from collections.abc import Callable, Sequence

import click

from hived_lab.demo.experiment import Loaded
from hived_lab.demo.observer import Moment, Observer
from hived_lab.demo.report import Check, Report, Result, verdict_of

GAP = "  "
WIDTHS = (18, 33, 39, 4)


class TableReport(Report):
    """Example, expected, seen, ok; everything else that a `Report` tells is left out."""

    def __init__(self, echo: Callable[[str], object]) -> None:
        super().__init__(echo)
        self._name = ""

    def legend(self) -> None:
        """The headers."""
        self._row("EXAMPLE", "EXPECTED", "SEEN", "OK", bold=True)

    def begin(self, loaded: Loaded, number: int, count: int) -> None:
        """Name an experiment in its first row."""
        self._name = loaded.name

    def act(self, word: str, text: str) -> None:
        """Not told."""

    def expect(self, expect: str, because: str = "") -> None:
        """Told with its verdict."""

    def moment(self, moment: Moment, observer: Observer) -> None:
        """Not told."""

    def verdict(self, check: Check) -> None:
        """A row."""
        seen = "; ".join(check.found) if check.found else check.seen
        self._row(self._name, check.expect, seen, "FAIL" if check.found else "ok", fg="red" if check.found else "green")
        self._name = ""

    def error(self, text: str) -> None:
        """A row for what kept an experiment from going on."""
        self._row(self._name, "every step can be done", text, "FAIL", fg="red")
        self._name = ""

    def summary(self, results: Sequence[Result], seconds: float) -> None:
        """How many passed."""
        self._echo("\n" + verdict_of(results, seconds, "examples"))

    def _row(self, name: str, expect: str, seen: str, word: str, fg: str | None = None, bold: bool = False) -> None:
        wrapped = [textwrap.wrap(text, width) for text, width in zip((name, expect, seen, word), WIDTHS, strict=True)]
        for line in range(max(map(len, wrapped))):
            *cells, last = [cell[line] if line < len(cell) else "" for cell in wrapped]
            padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=False)]
            text = GAP.join([*padded, click.style(last, fg=fg)] if last else padded).rstrip()
            self._echo(click.style(text, bold=True) if bold else text)
