"""The head of a request: its line and headers, as values."""

from urllib.parse import unquote

import httptools
import msgspec

Headers = list[tuple[bytes, bytes]]

ONCE = frozenset((b"authorization", b"host"))
"""Headers that a request has once. With two of them, the gate and Flask might each believe another one."""


class HeadError(ValueError):
    """A head that no request to this server can have; the client is told why."""


class Head(msgspec.Struct):
    """A request without its body.

    Attributes
    ----------
    path : without escapes; `raw_path` is as it was sent
    length : bytes that the body announces, 0 without one; None where it comes in chunks
    has_upgrade : the client would rather speak another protocol; it is answered in this one
    """

    method: str
    path: str
    raw_path: bytes
    query: bytes
    headers: Headers
    length: int | None
    version: str = "1.1"
    is_keep_alive: bool = True
    expects_continue: bool = False
    has_upgrade: bool = False


class HeadParts:
    """The pieces of a request's head, as a parser finds them: `on_url` and `on_header` are its callbacks."""

    def __init__(self) -> None:
        self._url = b""
        self._headers: Headers = []
        self._is_whole = False

    def begin(self) -> None:
        """A request begins."""
        self._url, self._headers, self._is_whole = b"", [], False

    def on_url(self, url: bytes) -> None:
        """A piece of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of its headers; one that comes after the body is ignored, as it was not there when access was decided."""
        if not self._is_whole:
            self._headers.append((name.lower(), value))

    def end(self, parser: httptools.HttpRequestParser) -> Head:
        """All headers are there. Raises as `head_of`."""
        self._is_whole = True
        return head_of(parser, self._url, self._headers)


def head_of(parser: httptools.HttpRequestParser, url: bytes, headers: Headers) -> Head:
    """The head that a parser has just read; names of `headers` are in small letters.

    Raises ValueError, or the parser's own error, for a head that no request to this server can have.
    """
    target = httptools.parse_url(url)
    if target.path is None:
        raise HeadError("the request has no path")
    path = target.path.decode("ascii")
    length: int | None = 0
    expects_continue = False
    found: list[bytes] = []
    for name, value in headers:
        if name == b"content-length" and length is not None:
            length = int(value)
        elif name == b"transfer-encoding":
            length = None
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue"
        elif name in ONCE:
            if name in found:
                raise HeadError(f"the request has several {name.decode().title()} headers")
            found.append(name)
    version = parser.get_http_version()
    expects_continue = expects_continue and version != "1.0"  # such a client takes it for the answer
    has_upgrade = parser.should_upgrade()
    if has_upgrade and length != 0:  # the parser skips the body
        raise HeadError("the request has a body and an Upgrade header: send it without, as curl --http1.1 does")
    return Head(
        parser.get_method().decode("ascii"),
        unquote(path) if "%" in path else path,
        target.path,
        target.query or b"",
        headers,
        length,
        version,
        version != "1.0" and not has_upgrade and parser.should_keep_alive(),
        expects_continue,
        has_upgrade,
    )
