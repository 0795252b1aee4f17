"""Files of traces: opened whatever packs them, read within bounds, decoded without failing.

A source looks at the first 64 KiB before a format is chosen, and then gives the whole text, once. gzip, bzip2 and xz
are known by their first bytes, not by the file's name. Bytes that are no UTF-8 become the replacement character.
"""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from hived.errors import UserError

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
