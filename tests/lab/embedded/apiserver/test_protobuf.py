"""Kubernetes protobuf, written here field by field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived_lab.embedded.apiserver.bodies import ApiError, decode_protobuf


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


def entry(key: str, value: str | bytes) -> bytes:
    return field(1, key) + field(2, value)


OBJECTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "ConfigMap": (
        field(1, field(1, "one") + field(3, "") + field(8, b"") + field(11, entry("a", "b")))
        + field(2, entry("k", "v"))
        + field(2, entry("l", ""))
        + field(3, entry("bin", b"\x00\xff"))
        + field(4, 1),
        {
            "metadata": {"name": "one", "creationTimestamp": None, "labels": {"a": "b"}},
            "data": {"k": "v", "l": ""},
            "binaryData": {"bin": "AP8="},
            "immutable": True,
        },
    ),
    "PriorityClass": (
        field(1, field(1, "low")) + field(2, -10) + field(3, 0) + field(4, "") + field(5, "Never"),
        {"metadata": {"name": "low"}, "value": -10, "globalDefault": False, "preemptionPolicy": "Never"},
    ),
    "Namespace": (
        field(1, field(1, "ns")) + field(2, field(1, "kubernetes")) + field(3, field(1, "Active")),
        {"metadata": {"name": "ns"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    ),
    "Eviction": (
        field(1, field(1, "p")) + field(2, field(1, 5) + field(2, field(1, "uid")) + field(5, "All")),
        {
            "metadata": {"name": "p"},
            "deleteOptions": {"gracePeriodSeconds": 5, "preconditions": {"uid": "uid"}, "dryRun": ["All"]},
        },
    ),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_is_read(kind: str) -> None:
    raw, expected = OBJECTS[kind]
    assert decode_protobuf(envelope("v1", kind, raw)) == {"apiVersion": "v1", "kind": kind, **expected}


def test_a_time_is_read() -> None:
    raw = field(1, field(8, field(1, 1_700_000_000)))
    metadata = decode_protobuf(envelope("v1", "ConfigMap", raw))["metadata"]
    assert metadata == {"creationTimestamp": "2023-11-14T22:13:20Z"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"{}", 400),
        (b"k8s\x00\xff", 400),
        (b"k8s\x00" + field(1, "x")[:-1], 400),
        (envelope("v1", "ConfigMap", field(1, b"\xff")), 400),
        (envelope("v1", "ConfigMap", field(1, field(1, b"\xff\xfe"))), 400),
        (envelope("v1", "ConfigMap", field(1, field(8, field(1, 1 << 62)))), 400),
        (envelope("v1", "Pod", b""), 415),
        (envelope("v1", "ConfigMap", field(9, "new in some later version")), 415),
        (envelope("v1", "ConfigMap", field(4, "not a flag")), 415),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes, code: int) -> None:
    with pytest.raises(ApiError) as refusal:
        decode_protobuf(body)
    assert refusal.value.code == code


@given(body=st.binary(max_size=60), kind=st.sampled_from([*OBJECTS, "DeleteOptions"]))
def test_any_bytes_are_read_or_refused(body: bytes, kind: str) -> None:
    codes: set[int] = set()
    for attempt in (b"k8s\x00" + body, envelope("v1", kind, body)):
        try:
            decode_protobuf(attempt)
        except ApiError as refusal:
            codes.add(refusal.code)
    assert codes <= {400, 415}
