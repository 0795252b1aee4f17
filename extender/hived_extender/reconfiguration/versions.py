"""The configurations that were in force, as a ConfigMap keeps them.

`data` has the text for people, under one key; kubectl may edit it. `binaryData` has the last versions, the one in force
among them, compressed together: they are much alike. The newest version alone says which text is in force. So a
configuration comes into force by one write of the object, all or nothing.
"""

import base64
import hashlib
import lzma
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.api.certificates import Certificate
from hived_extender.api.configuration import ConfigVersion, VersionEntry

TEXT_KEY = "hivedscheduler.yaml"
VERSIONS_KEY = "versions.xz"
KEPT = 20
"""Versions; fewer where they do not fit into the object."""

SIZE_LIMIT = 1_000_000
"""Bytes of text and versions; Kubernetes refuses objects of more than 1 MiB."""

PREFIX = "hivedscheduler.microsoft.com/config-"
CLUSTER_ID = PREFIX + "cluster-id"
REFUSED = PREFIX + "refused"
REFUSED_TEXT = PREFIX + "refused-sha256"
REFUSED_WHEN = PREFIX + "refused-when"
ALLOW_DOWNGRADE = PREFIX + "allow-downgrade"
ALLOW_UNCERTIFIED = PREFIX + "allow-uncertified"
"""Annotations. The last two are for those who edit the text: it may lock out running guaranteed work, or come without a
certificate that is demanded, once.
"""

ALLOWANCES = (ALLOW_DOWNGRADE, ALLOW_UNCERTIFIED)
VERSION_LIMIT = 2**53
UNPACKED_LIMIT = 64 * 1024 * 1024
"""Bytes of all versions."""


class Version(msgspec.Struct, frozen=True):
    """A configuration that is or was in force: its text, author, time (RFC 3339, UTC), message and certificate."""

    version: Annotated[int, msgspec.Meta(ge=1, le=VERSION_LIMIT)]
    when: str
    who: str
    why: str
    text: str
    certificate: Certificate | None = None

    def entry(self) -> VersionEntry:
        """The version without its text, as the HTTP API lists it."""
        return VersionEntry(
            version=self.version,
            when=self.when,
            who=self.who,
            why=self.why,
            sha256=digest(self.text),
            certificate=self.certificate,
        )

    def shown(self) -> ConfigVersion:
        """The version with its text, as the HTTP API shows it."""
        return ConfigVersion(**msgspec.structs.asdict(self.entry()), text=self.text)


class Refusal(msgspec.Struct, frozen=True):
    """The reason why an edited text is not in force; `sha256` is `Stored.sha256`."""

    reason: str
    when: str
    sha256: str


class Stored(msgspec.Struct, frozen=True):
    """The content of a ConfigMap. `versions` is oldest first and empty before the first start; `text` is for people to
    read.
    """

    text: str
    versions: tuple[Version, ...] = ()
    cluster_id: str = ""
    refused: Refusal | None = None
    may_downgrade: bool = False
    may_lack_certificate: bool = False

    @property
    def newest(self) -> Version | None:
        """The version in force."""
        return self.versions[-1] if self.versions else None

    @property
    def sha256(self) -> str:
        """Of the wish: the text, and what it may do or lack."""
        marks = ((ALLOW_DOWNGRADE, self.may_downgrade), (ALLOW_UNCERTIFIED, self.may_lack_certificate))
        return digest("\0".join([self.text, *(mark for mark, is_set in marks if is_set)]))


def digest(text: str) -> str:
    """sha256 of a text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def decode(config_map: Mapping[str, Any]) -> Stored:
    """Read the object. Raises UserError if the object does not hold a configuration."""
    text = (config_map.get("data") or {}).get(TEXT_KEY)
    packed = (config_map.get("binaryData") or {}).get(VERSIONS_KEY)
    versions = _unpack(packed) if packed else ()
    if not isinstance(text, str):
        if not versions:
            raise UserError(f"it has no key {TEXT_KEY}")
        text = ""
    marks = (config_map.get("metadata") or {}).get("annotations") or {}
    refused = None
    if marks.get(REFUSED):
        refused = Refusal(marks[REFUSED], marks.get(REFUSED_WHEN, ""), marks.get(REFUSED_TEXT, ""))
    return Stored(
        text, versions, marks.get(CLUSTER_ID, ""), refused, *(marks.get(each) == "true" for each in ALLOWANCES)
    )


def encode(config_map: Mapping[str, Any], stored: Stored) -> dict[str, Any]:
    """The object with this in it; its other content stays. Raises UserError if the text is too large for one."""
    size = len(stored.text.encode())
    packed = _pack_last(stored.versions[-KEPT:], SIZE_LIMIT - size)
    if packed is None:
        raise UserError(
            f"the configuration has {size} bytes, more than fits into a ConfigMap; leave children out that are "
            "generated anyway, or give the service a file (--config)"
        )
    result = dict(config_map)
    result["data"] = dict(config_map.get("data") or {}) | {TEXT_KEY: stored.text}
    result["binaryData"] = dict(config_map.get("binaryData") or {}) | {VERSIONS_KEY: packed}
    metadata = result["metadata"] = dict(config_map.get("metadata") or {})
    marks = metadata["annotations"] = dict(metadata.get("annotations") or {})
    for mark in (REFUSED, REFUSED_WHEN, REFUSED_TEXT, CLUSTER_ID, *ALLOWANCES):
        marks.pop(mark, None)
    for mark, is_set in zip(ALLOWANCES, (stored.may_downgrade, stored.may_lack_certificate), strict=True):
        if is_set:
            marks[mark] = "true"
    if stored.refused is not None:
        marks |= {
            REFUSED: stored.refused.reason,
            REFUSED_WHEN: stored.refused.when,
            REFUSED_TEXT: stored.refused.sha256,
        }
    if stored.cluster_id:
        marks[CLUSTER_ID] = stored.cluster_id
    return result


def with_version(
    stored: Stored, text: str, *, who: str, when: str, why: str, cluster_id: str = "",
    certificate: Certificate | None = None,
) -> Stored:  # fmt: skip
    """Another text in force; the next one needs its own permission to lock work out, or to lack a certificate."""
    number = stored.newest.version + 1 if stored.newest is not None else 1
    return replace(
        stored,
        text=text,
        versions=(*stored.versions, Version(number, when, who, why, text, certificate))[-KEPT:],
        refused=None,
        may_downgrade=False,
        may_lack_certificate=False,
        cluster_id=stored.cluster_id or cluster_id,
    )


def _pack_last(versions: Sequence[Version], limit: int) -> str | None:
    """As many of the last versions as fit; None if not even one does. Cost: six times that of packing them."""
    packed = _pack(versions)
    if len(packed) <= limit:
        return packed
    count = bisect_right(range(1, len(versions)), limit, key=lambda count: len(_pack(versions[-count:])))
    return _pack(versions[-count:]) if count else None


def _pack(versions: Sequence[Version]) -> str:
    return base64.b64encode(lzma.compress(msgspec.json.encode(versions), preset=3)).decode()


def _unpack(packed: str) -> tuple[Version, ...]:
    try:
        decoder = lzma.LZMADecompressor()
        data = decoder.decompress(base64.b64decode(packed, validate=True), UNPACKED_LIMIT)
        if not decoder.eof:
            raise UserError(f"its key {VERSIONS_KEY} is not whole")
        return msgspec.json.decode(data, type=tuple[Version, ...])
    except (ValueError, RecursionError, lzma.LZMAError, msgspec.MsgspecError) as error:
        raise UserError(
            f"its key {VERSIONS_KEY} cannot be read ({error}); remove that key, and the text is in force"
        ) from None


def waiver(source: str) -> str:
    """The way to do once without a demanded certificate, where the configuration is kept in `source`."""
    return f"annotate the {source} with {ALLOW_UNCERTIFIED}=true to do without once"
