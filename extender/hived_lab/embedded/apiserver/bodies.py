"""Bodies of requests and answers: refusals as Kubernetes `Status` objects, JSON with limits, Kubernetes protobuf.

Clients act on `code` and `reason` of a `Status`, people read `message`; the words are those of the real API server
where tools match them.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from hived.values.errors import UserError
from hived_extender.kube_rules.resource_rules import Fault

_REASONS = {
    400: "BadRequest", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 406: "NotAcceptable",
    409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
    500: "InternalError",
}  # fmt: skip


class ApiError(UserError):
    """A request that cannot be served; `status()` is the body of the answer and `code` its HTTP status.

    The reason is the usual one of the code unless another is given.
    """

    def __init__(self, code: int, message: str, details: Mapping[str, Any] | None = None, reason: str = "") -> None:
        super().__init__(message, code)
        self.reason = reason or _REASONS[code]
        self.details = details

    def status(self) -> dict[str, Any]:
        """Return the `Status` object, JSON-ready."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = dict(self.details)
        return status


def success(**details: str) -> dict[str, Any]:
    """Return the `Status` that answers a deletion, a binding or an eviction; empty details are left out."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    told = {key: text for key, text in details.items() if text}
    return {**status, "details": told} if told else status


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, message)


def forbidden(what: str, name: str, why: str) -> ApiError:
    """The request is understood, and refused on principle."""
    return ApiError(403, f'{what} "{name}" is forbidden: {why}', {"name": name, "kind": what})


def conflict(what: str, name: str, why: str) -> ApiError:
    """The object is not in the state that the request takes for granted."""
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return ApiError(409, message, {"name": name, "kind": what})


def invalid(kind: str, name: str, causes: Iterable[Fault], group: str = "") -> ApiError:
    """The object is well formed but breaks rules of its kind; every broken rule is listed."""
    causes = list(causes)
    told = dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes)
    listed = ", ".join(told)
    if len(told) > 1:
        listed = f"[{listed}]"
    details = {
        "name": name,
        **({"group": group} if group else {}),
        "kind": kind,
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes],
    }
    what = f"{kind}.{group}" if group else kind
    return ApiError(422, f'{what} "{name}" is invalid: {listed}', details)


Body = dict[str, Any]

MAX_DEPTH = 64

View = TypeVar("View", bound=msgspec.Struct)


def decode(text: bytes) -> Any:
    """Return the JSON value in `text`; ApiError (400) if it is not JSON or nests deeper than MAX_DEPTH."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if _is_deeper_than(value, MAX_DEPTH):
        raise bad_request(f"the body nests deeper than {MAX_DEPTH} levels")
    return value


def encode(value: Any) -> bytes:
    """Return `value` as JSON; ApiError (400) if it holds a number that JSON clients could not read back."""
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise bad_request(f"the object cannot be stored: {error}") from error


def view_of(body: Any, model: type[View]) -> View:
    """Return `body` as a `model`; ApiError (400) naming the first field of a wrong type."""
    try:
        return msgspec.convert(body, model)
    except msgspec.ValidationError as error:
        raise bad_request(f"the object cannot be read as {model.__name__}: {error}") from error


def without_nulls(value: Any) -> Any:
    """Return a copy of `value` without null members: to Kubernetes null and absent are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _is_deeper_than(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth == 0 or any(_is_deeper_than(member, depth - 1) for member in value.values())
    if isinstance(value, list):
        return depth == 0 or any(_is_deeper_than(item, depth - 1) for item in value)
    return False


MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Field:
    """`kind` is text, number, flag, bytes, time, a message of `_MESSAGES`, map-of-text or map-of-bytes."""

    name: str
    kind: str
    is_list: bool


def _numbered(fields: str) -> dict[int, _Field]:
    """Fields by number, from 1: "name", "name:kind", "name*" for a list, "-" for a number that is not used."""
    found = {}
    for number, text in enumerate(fields.split(), 1):
        name, _, kind = text.removesuffix("*").partition(":")
        found[number] = _Field(name, kind or "text", text.endswith("*"))
    return {number: field for number, field in found.items() if field.name != "-"}


_MESSAGES = {
    "Unknown": _numbered("typeMeta:TypeMeta raw:raw contentEncoding contentType"),
    "TypeMeta": _numbered("apiVersion kind"),
    "ObjectMeta": _numbered(
        "name generateName namespace selfLink uid resourceVersion generation:number creationTimestamp:time "
        "deletionTimestamp:time deletionGracePeriodSeconds:number labels:map-of-text annotations:map-of-text "
        "ownerReferences:OwnerReference* finalizers*"
    ),
    "OwnerReference": _numbered("kind - name uid apiVersion controller:flag blockOwnerDeletion:flag"),
    "Namespace": _numbered("metadata:ObjectMeta spec:NamespaceSpec status:NamespaceStatus"),
    "NamespaceSpec": _numbered("finalizers*"),
    "NamespaceStatus": _numbered("phase"),
    "ConfigMap": _numbered("metadata:ObjectMeta data:map-of-text binaryData:map-of-bytes immutable:flag"),
    "PriorityClass": _numbered("metadata:ObjectMeta value:number globalDefault:flag description preemptionPolicy"),
    "Eviction": _numbered("metadata:ObjectMeta deleteOptions:DeleteOptions"),
    "DeleteOptions": _numbered(
        "gracePeriodSeconds:number preconditions:Preconditions orphanDependents:flag propagationPolicy dryRun*"
    ),
    "Preconditions": _numbered("uid resourceVersion"),
}
_TOP_LEVEL = ("Namespace", "ConfigMap", "PriorityClass", "Eviction", "DeleteOptions")


def decode_protobuf(body: bytes) -> Body:
    """Return the object in `body`, JSON-ready; ApiError: 400 if it is damaged, 415 if its kind is not read."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body does not begin as Kubernetes protobuf does")
    envelope = _message("Unknown", body[len(_MAGIC) :])
    type_meta = envelope.get("typeMeta", {})
    kind = type_meta.get("kind", "")
    if kind not in _TOP_LEVEL:
        raise ApiError(415, f"{kind!r} objects are read as JSON only, not as {MEDIA_TYPE}")
    return {**type_meta, **_message(kind, envelope.get("raw", b""))}


def _message(name: str, data: bytes) -> Body:
    found: Body = {}
    for number, wire_type, value in _fields(data):
        field = _MESSAGES[name].get(number)
        if field is None or (wire_type == _VARINT) != (field.kind in ("number", "flag")):
            raise ApiError(415, f"field {number} of {name} cannot be read from {MEDIA_TYPE}, send JSON")
        if field.kind.startswith("map-of-"):
            key, entry = _map_entry(value, field.kind.removeprefix("map-of-"))
            found.setdefault(field.name, {})[key] = entry
        elif field.is_list:
            found.setdefault(field.name, []).append(_value(field.kind, value))
        elif value != b"" or field.kind != "text":
            # Go writes empty text where JSON would have no field at all.
            found[field.name] = _value(field.kind, value)
    return found


def _value(kind: str, value: Any) -> Any:
    match kind:
        case "number" | "raw":
            return value
        case "flag":
            return bool(value)
        case "bytes":
            return base64.b64encode(value).decode()
        case "time":
            return _time(value)
        case "text":
            try:
                return value.decode()
            except UnicodeDecodeError as error:
                raise bad_request(f"a text is not UTF-8: {error}") from error
    return _message(kind, value)


def _map_entry(data: bytes, kind: str) -> tuple[str, Any]:
    parts = {number: value for number, wire_type, value in _fields(data) if wire_type == _BYTES}
    return _value("text", parts.get(1, b"")), _value(kind, parts.get(2, b""))


def _time(data: bytes) -> str | None:
    seconds = next((value for number, wire_type, value in _fields(data) if (number, wire_type) == (1, _VARINT)), 0)
    if seconds <= 0:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError) as error:
        raise bad_request(f"{seconds} is not a time") from error


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield (field number, wire type, value); a value is a signed integer or bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, place = _varint(data, place)
            yield number, wire_type, value - (1 << 64) if value >> 63 else value
            continue
        if wire_type == _BYTES:
            size, place = _varint(data, place)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise _damaged()
        if place + size > len(data):
            raise _damaged()
        yield number, wire_type, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if place >= len(data):
            raise _damaged()
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), place
    raise _damaged()


def _damaged() -> ApiError:
    return bad_request("the protobuf body is damaged")
