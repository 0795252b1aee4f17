"""The contents of a ConfigMap: versions packed and read back, too large ones, unreadable ones."""

import base64
import lzma
import random
import string
from typing import Any

import pytest
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.api.certificates import Certificate, CertifiedTrace, CertifiedVc
from hived_extender.reconfiguration import versions
from hived_extender.reconfiguration.versions import (
    ALLOW_UNCERTIFIED,
    KEPT,
    TEXT_KEY,
    VERSIONS_KEY,
    Refusal,
    Stored,
    Version,
    decode,
    digest,
    encode,
    with_version,
)

EMPTY: dict[str, Any] = {"metadata": {"name": "c", "annotations": {"owner": "me"}}, "data": {"other": "x"}}


def grown(count: int, text: str = "text {}") -> Stored:
    stored = Stored("first")
    for number in range(count):
        stored = with_version(stored, text.format(number), who="ann", when=f"t{number}", why=f"because {number}")
    return stored


def packed(versions: bytes) -> dict[str, Any]:
    return {"binaryData": {VERSIONS_KEY: base64.b64encode(lzma.compress(versions)).decode()}}


def noise(size: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(string.printable, k=size))


def test_what_is_stored_is_read_back_and_the_rest_of_the_object_stays() -> None:
    stored = Stored("text", grown(3).versions, "pai", Refusal("no", "now", digest("text")))
    written = encode(EMPTY, stored)
    assert decode(written) == stored
    assert written["data"]["other"] == "x"
    assert written["metadata"]["annotations"]["owner"] == "me"
    assert "other" not in EMPTY["metadata"]["annotations"]


def test_a_new_version_takes_back_that_an_earlier_text_was_refused() -> None:
    refused = encode(EMPTY, Stored("bad", grown(1).versions, refused=Refusal("no", "now", digest("bad"))))
    stored = with_version(decode(refused), "good", who="", when="", why="")
    assert decode(encode(refused, stored)).refused is None
    assert stored.newest == Version(2, "", "", "", "good")


def test_the_first_cluster_id_stays() -> None:
    stored = with_version(Stored("a"), "b", who="", when="", why="", cluster_id="one")
    assert with_version(stored, "c", who="", when="", why="", cluster_id="two").cluster_id == "one"


def test_the_last_versions_are_kept_and_numbers_go_on() -> None:
    kept = decode(encode(EMPTY, grown(KEPT + 5))).versions
    assert [version.version for version in kept] == list(range(6, KEPT + 6))


def test_fewer_are_kept_where_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "SIZE_LIMIT", 50_000)
    stored = Stored("")
    for number in range(KEPT):
        stored = with_version(stored, noise(3_000, number), who="", when="", why="")
    written = encode(EMPTY, stored)
    kept = decode(written).versions
    assert 1 < len(kept) < KEPT
    assert kept == stored.versions[-len(kept) :]
    assert len(written["data"][TEXT_KEY]) + len(written["binaryData"][VERSIONS_KEY]) <= 50_000


def test_a_text_that_does_not_fit_is_refused_with_its_size() -> None:
    with pytest.raises(UserError, match=r"has 900000 bytes, more than fits into a ConfigMap"):
        encode(EMPTY, with_version(Stored(""), noise(900_000, 1), who="", when="", why=""))


def test_an_object_that_nobody_has_started_with_has_a_text_and_no_versions() -> None:
    assert decode({"data": {TEXT_KEY: "text"}}) == Stored("text")


@pytest.mark.parametrize(
    ("config_map", "message"),
    [
        ({}, "it has no key hivedscheduler.yaml"),
        ({"data": {TEXT_KEY: "a"}, "binaryData": {VERSIONS_KEY: "?"}}, "cannot be read"),
        ({"data": {TEXT_KEY: "a"}, "binaryData": {VERSIONS_KEY: base64.b64encode(b"junk").decode()}}, "cannot be read"),
        (
            {"data": {TEXT_KEY: "a"}, "binaryData": {VERSIONS_KEY: base64.b64encode(lzma.compress(b"{}")).decode()}},
            "cannot be read",
        ),
        (packed(b'[{"x":' + b"[" * 100_000), "cannot be read"),
        (packed(b'[{"version":0,"when":"","who":"","why":"","text":""}]'), "cannot be read .Expected `int` >= 1"),
        (packed(b'[{"version":1%s,"when":"","who":"","why":"","text":""}]' % (b"0" * 400)), "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said(config_map: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        decode(config_map)


def test_versions_that_would_fill_the_memory_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "UNPACKED_LIMIT", 70_000)
    with pytest.raises(UserError, match="is not whole"):
        decode(packed(bytes(70_001)))


def test_a_certificate_is_kept_with_its_version() -> None:
    made = Certificate(
        CertifiedTrace("t", "0" * 64, 1), "a", "b", "1", vcs=(CertifiedVc("a", 1, 0.0, 1.0),), vc_count=1
    )
    stored = with_version(Stored("a"), "b", who="", when="", why="", certificate=made)
    again = decode(encode(EMPTY, stored))
    assert again.newest is not None
    assert again.newest.certificate == again.newest.entry().certificate == again.newest.shown().certificate == made


def test_an_allowance_counts_for_one_version() -> None:
    marked = {**EMPTY, "metadata": {"annotations": {ALLOW_UNCERTIFIED: "true"}}, "data": {TEXT_KEY: "a"}}
    stored = decode(marked)
    assert stored.may_lack_certificate
    assert stored.sha256 != replace(stored, may_lack_certificate=False).sha256
    assert decode(encode(marked, stored)).may_lack_certificate
    after = encode(marked, with_version(stored, "b", who="", when="", why=""))
    assert ALLOW_UNCERTIFIED not in after["metadata"]["annotations"]
