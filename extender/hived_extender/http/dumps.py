"""Long answers: in pieces, not again to whoever has them already, and compressed for whoever asks for that.

A piece is handed from the thread that makes it to the event loop, which competes with filter calls; so pieces are
large, and no answer is in memory as a whole. zlib lets go of the interpreter's lock while it compresses.
"""

import zlib
from collections.abc import Iterable, Iterator

from hived_extender.http.answers import Answer, Question

PIECE = 256 * 1024
"""Bytes, before they are compressed."""

GZIP_LEVEL = 1
"""The fastest: cells look alike, so that any level leaves little of their text."""

GZIP_WINDOW = 31
"""zlib's largest, in the format of gzip."""


def unchanged(question: Question, version: str) -> Answer | None:
    """The answer to a caller who has this version; None to all others."""
    known = {each.strip().removeprefix("W/") for each in question.if_none_match.split(",")}
    return Answer(b"", 304, headers=_headers(version)) if known & {f'"{version}"', "*"} else None


def dump(question: Question, version: str, parts: Iterable[bytes]) -> Answer:
    """All parts as one answer."""
    pieces, headers = _pieces(parts), _headers(version)
    if question.takes_gzip:
        return Answer(_compressed(pieces), headers=(*headers, ("Content-Encoding", "gzip")))
    return Answer(pieces, headers=headers)


def _headers(version: str) -> tuple[tuple[str, str], ...]:
    """The version is the same in either encoding, so the tag is a weak one."""
    return ("ETag", f'W/"{version}"'), ("Vary", "Accept-Encoding")


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    begun, size = [], 0
    for part in parts:
        begun.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(begun)
            begun, size = [], 0
    if begun:
        yield b"".join(begun)


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW)
    for piece in pieces:
        if packed := compressor.compress(piece):
            yield packed
    yield compressor.flush()
