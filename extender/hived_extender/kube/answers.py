"""Answers of the API server: the objects in them, their versions, the events of a watch, or the error that they are.

An object that cannot be decoded is logged and left out: it must not hide the others.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec
import urllib3

from hived.values.errors import HivedError

log = logging.getLogger(__name__)

T = TypeVar("T")


class KubeError(HivedError):
    """The API server refused a call, or gave no answer at all (`status` 0).

    `reason` is the machine-readable one of Kubernetes ("NotFound", "Conflict", "Expired", ...).
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{message} ({status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_not_found(self) -> bool:
        """True if the object does not exist."""
        return self.status == 404

    @property
    def is_invalid(self) -> bool:
        """True if the object would not be valid; a real API server answers this to a changed uid."""
        return self.status == 422

    @property
    def is_conflict(self) -> bool:
        """True if the object exists already, has another uid or version, or is in the wrong state."""
        return self.status == 409

    @property
    def may_pass(self) -> bool:
        """True if the same call may succeed later: no answer, a fault of the server, too many calls, or no right yet.

        Rights and credentials are objects of their own, which may come or be renewed after the process has started.
        """
        return self.status in {0, 401, 403, 408, 429} or self.status >= 500


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    # `continue` is a keyword of Python.
    continue_: str = msgspec.field(name="continue", default="")


class _ListPage(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _VersionOnly(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_page_decoder = msgspec.json.Decoder(_ListPage)
_line_decoder = msgspec.json.Decoder(_WatchLine)
_version_decoder = msgspec.json.Decoder(_VersionOnly)
_status_decoder = msgspec.json.Decoder(_Status)


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """All objects of a resource, and the version from which a watch continues."""

    items: list[T]
    resource_version: str


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """`type` is ADDED, MODIFIED or DELETED with an object, or BOOKMARK with none."""

    type: str
    object: T | None
    resource_version: str


class Watch(Generic[T]):
    """A watch that is open: iterate once over its events, from one thread; `close` it from any."""

    def __init__(
        self,
        response: urllib3.BaseHTTPResponse,
        decoder: msgspec.json.Decoder[T],
        path: str,
        open_watches: "set[Watch[Any]]",
    ) -> None:
        self._response = response
        self._decoder = decoder
        self._path = path
        self._open_watches = open_watches
        open_watches.add(self)

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        try:
            for line in _lines(self._response):
                event = self._event(line)
                if event is not None:
                    yield event
        finally:
            self._open_watches.discard(self)
            self._response.close()

    def close(self) -> None:
        """Let the iteration end at once, with a KubeError or as if the server had ended it."""
        # A watch that ends by itself at this moment has no connection any more.
        with suppress(RuntimeError, ValueError, OSError):
            self._response.shutdown()

    def _event(self, line: bytes) -> WatchEvent[T] | None:
        envelope = decode(_line_decoder, line)
        if envelope.type == "ERROR":
            status = decode(_status_decoder, envelope.object)
            raise KubeError(status.code, status.reason, status.message)
        version = decode(_version_decoder, envelope.object).metadata.resourceVersion
        if envelope.type == "BOOKMARK":
            return WatchEvent("BOOKMARK", None, version)
        item = _item(self._decoder, envelope.object, self._path)
        return None if item is None else WatchEvent(envelope.type, item, version)


def body_of(response: urllib3.BaseHTTPResponse, call: str) -> bytes:
    """The rest of a response, whose connection can be used again then. Raises KubeError."""
    try:
        return bytes(response.data)
    except urllib3.exceptions.HTTPError as error:
        raise KubeError(0, "NoAnswer", f"{call}: {error}") from error
    finally:
        response.release_conn()


def no_answer(call: str, error: Exception) -> KubeError:
    """The error of a call without an answer; of a certificate that does not count it says what helps."""
    told = str(error)
    hint = "; is the CA of the kubeconfig (certificate-authority) that of this API server?"
    return KubeError(0, "NoAnswer", f"{call}: {told}{hint if 'certificate verify failed' in told else ''}")


def refusal(status: int, answer: bytes) -> KubeError:
    """The error in the body, a Kubernetes Status or whatever a proxy on the way wrote."""
    try:
        detail = msgspec.json.decode(answer, type=_Status)
    except (ValueError, RecursionError):
        detail = _Status(message=answer[:500].decode(errors="replace"))
    return KubeError(status, detail.reason, detail.message)


def decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """An answer as `decoder` reads it. Raises KubeError."""
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise KubeError(0, "BadAnswer", f"the API server's answer cannot be decoded: {error}") from error


def decode_page(decoder: msgspec.json.Decoder[T], data: bytes, path: str) -> tuple[Listing[T], str]:
    """A page of a list, and the token of the next page, "" at the end. Raises KubeError."""
    page = decode(_page_decoder, data)
    items = [item for raw in page.items or () if (item := _item(decoder, raw, path)) is not None]
    return Listing(items, page.metadata.resourceVersion), page.metadata.continue_


def _item(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw, path: str) -> T | None:
    try:
        return decoder.decode(raw)
    except (ValueError, RecursionError) as error:
        log.error("an object of %s is left out: %s: %.300r", path, error, bytes(raw))
        return None


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of a body that is still being sent, each as soon as it is complete."""
    rest = b""
    try:
        for chunk in response.stream(None, decode_content=True):
            *complete, rest = (rest + chunk).split(b"\n")
            yield from (line for line in complete if line)
    except urllib3.exceptions.HTTPError as error:
        raise KubeError(0, "NoAnswer", f"the watch broke: {error}") from error


_VERSION = re.compile(r"[0-9]+")


def is_older(version: str, known: str) -> bool:
    """Is the one resourceVersion from before the other? They are numbers that grow, of any length; other text, such as
    "", is of no age.
    """
    if not (_VERSION.fullmatch(version) and _VERSION.fullmatch(known)):
        return False
    digits, others = version.lstrip("0"), known.lstrip("0")
    return (len(digits), digits) < (len(others), others)


_prepared = WeakSet[type]()
"""The types that msgspec has looked at in this process."""


def prepare() -> None:
    """Have msgspec look at every struct type that is loaded, before threads are started. Tens of milliseconds, once.

    It looks at a type, and at the types in its fields, when it is first read. Two threads that do so at once, for types
    that have a field's type in common, can crash the process: the second one reads what the first has half written.
    Types that msgspec cannot read, as they are never in JSON, are passed over.
    """
    for kind in _loaded(msgspec.Struct):
        if kind in _prepared:
            continue
        with suppress(TypeError):
            msgspec.json.Decoder(kind)
        _prepared.add(kind)


def _loaded(base: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(base)
    for kind in subclasses:
        yield kind
        yield from _loaded(kind)
