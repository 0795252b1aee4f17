"""Reading the few objects that kubectl sends as Kubernetes protobuf whatever the server prefers.

`kubectl create namespace|configmap|priorityclass` and the evictions of `kubectl drain` do not fall back to JSON. Only
these kinds can be read; answers are always JSON, which those commands accept.

A body is the magic number, then an envelope `Unknown {typeMeta = 1 {apiVersion = 1, kind = 2}, raw = 2}`. Its `raw`
is the object. A field outside the tables below is refused, never dropped.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.statuses import ApiError, bad_request, unsupported_media_type

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
        raise unsupported_media_type(f"{kind!r} objects are read as JSON only, not as {MEDIA_TYPE}")
    return {**type_meta, **_message(kind, envelope.get("raw", b""))}


def _message(name: str, data: bytes) -> Body:
    found: Body = {}
    for number, wire_type, value in _fields(data):
        field = _MESSAGES[name].get(number)
        if field is None or (wire_type == _VARINT) != (field.kind in ("number", "flag")):
            raise unsupported_media_type(f"field {number} of {name} cannot be read from {MEDIA_TYPE}, send JSON")
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
