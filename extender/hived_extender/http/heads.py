"""The head of a request: its line and headers, as values."""

from urllib.parse import unquote

import httptools
import msgspec

Headers = list[tuple[bytes, bytes]]


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


def head_of(parser: httptools.HttpRequestParser, url: bytes, headers: Headers) -> Head:
    """The head that a parser has just read; names of `headers` are in small letters.

    Raises ValueError, or the parser's own error, for a target that no request to this server can have.
    """
    target = httptools.parse_url(url)
    if target.path is None:
        raise ValueError("a request without a path")
    path = target.path.decode("ascii")
    length: int | None = 0
    expects_continue = False
    for name, value in headers:
        if name == b"content-length" and length is not None:
            length = int(value)
        elif name == b"transfer-encoding":
            length = None
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue"
    version = parser.get_http_version()
    has_upgrade = parser.should_upgrade()
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
