"""Long answers: in pieces, by tags not sent twice, and compressed on request.

The event loop makes the pieces (`shim.py`) and serves filter calls between two of them. So a piece is small, and
no answer is in memory as a whole. A thread that made them would compete with the loop for the interpreter's lock.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator

from hived_extender.http.answers import Answer, Question

PIECE = 16 * 1024
"""Bytes that end a piece, before they are compressed: half a millisecond of work at most, with the last part."""

PARTS = 16
"""Parts that end a piece too: a group has little text for its work."""

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


def tagged(question: Question, parts: list[bytes]) -> Answer:
    """An answer with a tag of its text: two callers see the same text only if they may see the same jobs."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        digest.update(part)
    version = digest.hexdigest()
    return unchanged(question, version) or dump(question, version, parts)


def item_list(items: Iterable[bytes], more: bytes = b"") -> list[bytes]:
    """`{"items":[...]}`, with `more` behind the list: further keys, each after a comma."""
    return [b'{"items":[', *separated(items), b"]", more, b"}"] if more else [b'{"items":[', *separated(items), b"]}"]


def separated(items: Iterable[bytes]) -> Iterator[bytes]:
    """Items of a list, with commas between them."""
    for number, item in enumerate(items):
        yield b"," + item if number else item


def stream(question: Question, parts: Iterable[bytes], content_type: str) -> Answer:
    """The same for an answer that is never asked for again, in another format than JSON."""
    pieces, vary = _pieces(parts), ("Vary", "Accept-Encoding")
    if question.takes_gzip:
        return Answer(_compressed(pieces), content_type=content_type, headers=(vary, ("Content-Encoding", "gzip")))
    return Answer(pieces, content_type=content_type, headers=(vary,))


def _headers(version: str) -> tuple[tuple[str, str], ...]:
    """The version is the same in either encoding, so the tag is a weak one."""
    return ("ETag", f'W/"{version}"'), ("Vary", "Accept-Encoding")


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Parts together; an empty one ends a piece, as others have to be served."""
    begun: list[bytes] = []
    size = 0
    for part in parts:
        begun.append(part)
        size += len(part)
        if not part or size >= PIECE or len(begun) >= PARTS:
            yield b"".join(begun)
            begun, size = [], 0
    if begun:
        yield b"".join(begun)


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=GZIP_WINDOW)
    for piece in pieces:
        yield compressor.compress(piece)  # often nothing yet; others are served all the same
    yield compressor.flush()
