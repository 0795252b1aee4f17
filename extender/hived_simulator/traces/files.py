"""Files of traces: opened whatever packs them, read within bounds, as rows of a table or as JSON objects.

A source looks at the first 64 KiB before a format is chosen, and then gives the whole text, once. gzip, bzip2 and xz
are known by their first bytes, not by the file's name. Bytes that are no UTF-8 become the replacement character.
JSON is one list, an object with a list in it, several such documents, or a line for each.
"""

import bz2
import csv
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec

from hived.values.errors import UserError
from hived_simulator.traces.draft import Draft, shown
from hived_simulator.traces.fields import Unusable

HEAD_BYTES = 64 * 1024
MAX_BYTES = 8 * 1024**3
"""Unpacked bytes of a file that is read line by line."""
MAX_WHOLE_BYTES = 1024**3
"""Unpacked bytes of a file that has to be in memory as a whole, as JSON has."""
MAX_LINE_CHARS = 16 * 1024**2

_PACKED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
_UNREADABLE = (
    (b"PK\x03\x04", "a zip archive", "unpack it, and read the file in it"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it with zstd -d"),
    (b"PAR1", "a Parquet file", "export it as CSV"),
    (b"version https://git-lfs", "a pointer of Git LFS", "fetch the file itself with git lfs pull"),
)
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)


class _Bounded(io.RawIOBase):
    """The bytes of a stream after some that were read before. Raises UserError beyond `limit` bytes."""

    def __init__(self, name: str, head: bytes, rest: IO[bytes], limit: int) -> None:
        self._name, self._head, self._rest, self._limit = name, head, rest, limit
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # of what `io` has
        size = len(buffer)
        if self._head:
            chunk, self._head = self._head[:size], self._head[size:]
        else:
            chunk = _read(self._name, self._rest, size)
        self._count += len(chunk)
        if self._count > self._limit:
            raise UserError(f"{self._name}: has more than {self._limit >> 20} MiB unpacked; read a part of it")
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _read(name: str, stream: IO[bytes], size: int) -> bytes:
    """At most `size` bytes. Raises UserError if the stream is broken."""
    try:
        return stream.read(size)
    except _BROKEN as error:
        found = getattr(error, "strerror", None) or str(error) or "ends too early"
        raise UserError(f"{name}: cannot be read: {found}; is it complete?") from None


class Source:
    """One file, or standard input, of which `head` is known and the rest not yet read.

    name : for messages
    path : None for standard input
    head : its first characters; the last line may be cut
    """

    def __init__(self, path: str | Path) -> None:
        """Open it. Raises UserError if it cannot be read, or is of no kind that can be."""
        is_standard_input = str(path) == "-"
        self.path = None if is_standard_input else Path(path)
        self.name = "standard input" if is_standard_input else str(path)
        stream: IO[bytes]
        try:
            stream = sys.stdin.buffer if self.path is None else self.path.open("rb")
        except OSError as error:
            raise UserError(f"{self.name}: {error.strerror}; give the file of a trace") from None
        start = _fill(self.name, stream)
        for magic, unpack in _PACKED:
            if start.startswith(magic):
                packed = io.BufferedReader(_Bounded(self.name, start, stream, MAX_BYTES))
                stream = cast(IO[bytes], unpack(packed))
                start = _fill(self.name, stream)
                break
        self._check(start)
        self._start, self._stream = start, stream
        self._encoding = "utf-16" if start.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
        self.head = start.decode(self._encoding, errors="replace")

    def _check(self, start: bytes) -> None:
        for magic, what, remedy in _UNREADABLE:
            if start.startswith(magic):
                raise UserError(f"{self.name}: is {what}; {remedy}")
        if start[257:262] == b"ustar":
            raise UserError(f"{self.name}: is a tar archive; unpack it, and read the file in it")
        if not start.strip():
            raise UserError(f"{self.name}: is empty; give the file of a trace")

    def lines(self) -> Iterator[str]:
        """All lines, decoded, with their ends; may be asked for once. Raises UserError at a line without an end."""
        raw = _Bounded(self.name, self._start, self._stream, MAX_BYTES)
        text = io.TextIOWrapper(io.BufferedReader(raw, HEAD_BYTES), self._encoding, "replace", newline="")
        number = 0
        while line := text.readline(MAX_LINE_CHARS):
            number += 1
            if len(line) == MAX_LINE_CHARS:
                raise UserError(f"{self.name}:{number}: a line has over {MAX_LINE_CHARS >> 20} MiB; is this a trace?")
            yield line

    def whole(self) -> bytes:
        """All of it as UTF-8 without a byte order mark; may be asked for once."""
        data = io.BufferedReader(_Bounded(self.name, self._start, self._stream, MAX_WHOLE_BYTES)).read()
        return data.decode(self._encoding, errors="replace").encode()

    def close(self) -> None:
        """Nothing of it is needed any more."""
        if self.path is not None:
            self._stream.close()


def _fill(name: str, stream: IO[bytes]) -> bytes:
    """The first bytes of a stream, all that fit into a head."""
    data = b""
    while len(data) < HEAD_BYTES and (chunk := _read(name, stream, HEAD_BYTES - len(data))):
        data += chunk
    return data


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
    """True if the first line of a text names all of these columns."""
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
    lines = source.lines()
    first = next(lines, "")
    return lines if first.startswith(SEPARATOR_LINE) else chain((first,), lines)


Value = TypeVar("Value")


def objects(source: Source, draft: Draft, keys: Iterable[str] = ()) -> Iterator[msgspec.Raw]:
    """The objects of all documents in a source; of an object with one of `keys`, those in the list below it.

    Counts objects in `draft.line`. Raises UserError if the text is no JSON.
    """
    draft.unit, draft.line = "entry", 0
    for document in _documents(source):
        for each in _within(document, tuple(keys), source.name):
            draft.line += 1
            yield each


def typed(rows: Iterable[msgspec.Raw], draft: Draft, kind: type[Value]) -> Iterator[Value]:
    """The objects as values of a type; others are counted as left out."""
    decoder = msgspec.json.Decoder(kind)
    for row in rows:
        try:
            value = decoder.decode(row)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            draft.leave_out(Unusable("not as the format has it", "entry", str(error)))
            continue
        yield value


def _documents(source: Source) -> Iterator[msgspec.Raw]:
    """One document that is the whole text, else one in each line."""
    data = source.whole()
    try:
        yield msgspec.json.decode(data, type=msgspec.Raw)
        return
    except (msgspec.MsgspecError, RecursionError) as error:
        problem = str(error)
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=msgspec.Raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            told = problem if number == 1 else str(error)
            raise UserError(
                f"{source.name}:{number}: expected JSON, one document or one in each line: {told}; found "
                f"{shown(line[:40].decode(errors='replace'))}"
            ) from None


def _within(document: msgspec.Raw, keys: tuple[str, ...], name: str) -> Iterable[msgspec.Raw]:
    start = bytes(document).lstrip()[:1]
    if start == b"[":
        return _list(document, name)
    if start != b"{":
        raise UserError(f"{name}: expected JSON objects, found {shown(bytes(document)[:40].decode(errors='replace'))}")
    found: Any = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    for key in keys:
        if key in found and bytes(found[key]).lstrip()[:1] == b"[":
            return _list(found[key], name)
    return [document]


def _list(document: msgspec.Raw, name: str) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(document, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"{name}: expected a list of JSON objects: {error}") from None


class Format(msgspec.Struct, frozen=True):
    """`name` is for commands, `title` for people.

    recognises : is a text that begins so a file of this format?
    read : adds the jobs of a source to a draft. Raises UserError if the file as a whole cannot be used
    """

    name: str
    title: str
    recognises: Callable[[str], bool]
    read: Callable[[Source, Draft], None]
