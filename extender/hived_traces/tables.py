"""Tables: text with a line of column names and fields between separators, read row by row."""

import csv
from collections.abc import Iterator, Sequence
from itertools import chain

from hived.errors import UserError
from hived_traces.draft import Draft, shown
from hived_traces.sources import Source

MAX_FIELD = 128 * 1024
SEPARATOR_LINE = "sep="

Fields = list[str]


def first_line(head: str) -> str:
    """The first line of a text; not a line `sep=,` that a spreadsheet has written before it."""
    line, _, rest = head.partition("\n")
    return first_line(rest) if line.startswith(SEPARATOR_LINE) and rest else line.rstrip("\r")


def columns_of(head: str, delimiter: str = ",") -> list[str]:
    """The column names in the first line of a text, in lower case."""
    return [name.strip().strip('"').lower() for name in first_line(head).split(delimiter)]


def has_columns(head: str, names: Sequence[str], delimiter: str = ",") -> bool:
    """Does the first line of a text name all of these columns?"""
    return set(names) <= set(columns_of(head, delimiter))


class Table:
    """The rows of a source, of which `columns` has the position of each column, by its name in lower case.

    Raises UserError if a column of `required` is missing or is there twice.
    """

    def __init__(
        self, source: Source, draft: Draft, required: Sequence[str], delimiter: str = ",", names: Sequence[str] = ()
    ) -> None:
        """`names` are the columns of a file without a line of names."""
        self._source, self._draft = source, draft
        csv.field_size_limit(MAX_FIELD)
        lines = _lines(source)
        if delimiter == ",":
            self._reader = csv.reader(lines)
        else:
            self._reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        found = list(names) if names else [name.strip().lower() for name in self._next() or []]
        self.width = len(found)
        self.columns = {name: position for position, name in enumerate(found)}
        missing = [name for name in required if name not in self.columns]
        if missing:
            raise UserError(
                f"{source.name}:1: column {missing[0]} is missing; expected the columns {', '.join(required)}"
            )
        twice = [name for name in required if found.count(name) > 1]
        if twice:
            raise UserError(f"{source.name}:1: column {twice[0]} is there twice; remove or rename one of them")

    def tenant_column(self, usual: str) -> str:
        """The column that names the tenant: the user's choice, or the usual one. Raises UserError if it is missing."""
        wanted = self._draft.options.tenant_column.lower()
        if wanted and wanted not in self.columns:
            raise UserError(
                f"{self._source.name}:1: column {shown(wanted)} is missing, which was to name the tenants; "
                f"there are {', '.join(name for name in self.columns if name)[:500]}"
            )
        return wanted or usual

    def rows(self, *names: str) -> Iterator[Fields]:
        """The fields of these columns of each row, without spaces around them; "" for a column that is not there.

        Empty lines are passed over. Rows that end too early are counted as left out by reading them: their fields
        are "".
        """
        # A table may have a column without a name: the numbers of rows, as pandas writes them.
        positions = [self.columns.get(name, self.width) if name else self.width for name in names]
        draft, reader, width = self._draft, self._reader, self.width + 1
        while (row := self._next()) is not None:
            if not row:
                continue
            if reader.line_num > draft.line + 1 and draft.line:
                draft.remark("rows that go over several lines; is a quote open?")
            draft.line = reader.line_num
            if len(row) < width:
                row += [""] * (width - len(row))
            else:
                row[self.width] = ""
            yield [row[position].strip() for position in positions]

    def _next(self) -> Fields | None:
        try:
            return next(self._reader, None)
        except csv.Error as error:
            line = self._reader.line_num
            raise UserError(f"{self._source.name}:{line}: {error}; is a quote open, or is it no text?") from None


def _lines(source: Source) -> Iterator[str]:
    """The lines of a source; without the line `sep=,` of a spreadsheet."""
    lines = source.lines()
    first = next(lines, "")
    return lines if first.startswith(SEPARATOR_LINE) else chain((first,), lines)
