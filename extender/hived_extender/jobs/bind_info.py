"""The annotations that binding writes: bind info (rule 2.10), the request of a pod of a dialect, and the proof of both.

Bind info is the place of a pod and of its group. All pods of a group carry the same text for the group, which is
decoded and encoded once. Text is read as in `annotations`.

A pod that did not ask in HiveD's own words gets two more annotations, so that a restart finds the same state.
`pod-scheduling-spec` has its request as it was understood: a group of its own. `pod-gang` names the pods that were
decided together with it and have no confirmed binding yet: should the scheduler die now, the next one keeps their
places, and no gang is left started in part. A pod with `pod-gang` has not written its own `pod-scheduling-spec`.

Users who may create pods may write any annotation. So annotations of a bound pod count only with a keyed digest over
its uid, its node and all that hived wrote. Only the replicas have the key. Without a key every pod is believed, as in
HiveD.
"""

import hmac
import re
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import BindInfo, Placements, PodPlacement, PodRequest, PodSpec
from hived_extender.jobs.annotations import (
    BIND_INFO,
    LARGE,
    LEAF_CELL_ISOLATION,
    OLD_LEAF_CELL_ISOLATION,
    PREFIX,
    SCHEDULING_SPEC,
    Int32,
    convert,
    has_old_spelling,
    read_yaml,
    spec_fields,
)

GROUP_CACHE_SIZE = 1024
SHARED_TUPLES = 1024

T = TypeVar("T", int, str)


class _Placement(msgspec.Struct, rename="camel"):
    physical_node: str = ""
    physical_leaf_cell_indices: list[Int32] = []
    preassigned_cell_types: list[str] = []


class _MemberPlacements(msgspec.Struct, rename="camel"):
    pod_placements: list[_Placement] = []


class _BindInfo(msgspec.Struct, rename="camel"):
    node: str = ""
    leaf_cell_isolation: list[Int32] = []
    cell_chain: str = ""
    affinity_group_bind_info: msgspec.Raw = msgspec.Raw(b"[]")


_bind_info_decoder = msgspec.json.Decoder(_BindInfo)
_encoder = msgspec.json.Encoder()
_group_decoder = msgspec.json.Decoder(list[_MemberPlacements])


def bind_info(annotations: Mapping[str, str], label: str = "") -> BindInfo:
    """Read where a bound pod runs from its annotations.

    The group part is the same text on every pod of a group, so it is decoded once and the `members` object is shared.
    `label` is the pod's name for messages (`PodRequest.label`). Device indices are taken from the isolation annotation
    when the bind info lacks them.

    Raises UserError "Invalid pod bind info: ..." if it is missing, unreadable, empty or uneven. Whether it agrees with
    the pod's spec is for the core to judge. Source: rules 2.10, 2.11.
    """
    prefix = f"[{label}]: " if label else ""
    try:
        return _bind_info(annotations)
    except UserError as error:
        raise UserError(f"{prefix}Invalid pod bind info: {error.message}") from None


def bind_annotations(info: BindInfo) -> dict[str, str]:
    """The two annotations that binding writes (rule 2.10); the bind info is JSON text, which is also YAML.

    The group part is serialised once per `members` object. Cost: O(size of the answer) copying after the first pod.
    """
    wire = _BindInfo(
        info.node, list(info.leaf_cell_indices), info.cell_chain, _encode_members(_ByIdentity(info.members))
    )
    return {LEAF_CELL_ISOLATION: isolation_text(info), BIND_INFO: _encoder.encode(wire).decode()}


def isolation_text(info: BindInfo) -> str:
    """The device indices as the isolation annotation has them."""
    return ",".join(map(str, info.leaf_cell_indices))


def _bind_info(annotations: Mapping[str, str]) -> BindInfo:
    text = annotations.get(BIND_INFO, "")
    if not text:
        raise UserError(f"Pod does not contain or contains empty annotation: {BIND_INFO}")
    wire, members = _decode_bind_info(text)
    indices = tuple(wire.leaf_cell_isolation) or _isolation(annotations)
    if not wire.node:
        raise UserError("node is empty")
    if not indices:
        raise UserError("leafCellIsolation is empty")
    return BindInfo(sys.intern(wire.node), _shared(indices), sys.intern(wire.cell_chain), members)


def _decode_bind_info(text: str) -> tuple[_BindInfo, Placements]:
    written = _decode_written(text)
    if written is not None:
        return written
    if not has_old_spelling(text):
        try:
            wire = _bind_info_decoder.decode(text)
            return wire, _kept_members(bytes(wire.affinity_group_bind_info))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # as for the spec
    with suppress(UserError):
        if parts := _parted(text):
            return convert(parts[0], read_yaml(parts[0]), _BindInfo), _decode_yaml_group(parts[1])
    tree = read_yaml(text)
    group = tree.pop(_GROUP_KEY, []) if isinstance(tree, dict) else []
    return convert(text, tree, _BindInfo), _kept_members(_encoder.encode(group))


class _GroupText:
    """Cache key for the group part, which may be long and is the same on all pods of the group.

    Groups differ in their first leaf cells, so its beginning is enough for the hash.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _GroupText) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text[:_BEGINNING])


_BEGINNING = 128
_GROUP_MARK = ',"affinityGroupBindInfo":'


def _decode_written(text: str) -> tuple[_BindInfo, Placements] | None:
    """Bind info as hived writes it: without spaces, the group last; None for any other text, and for a wrong one.

    The text before the mark is an object when it is closed there. So the mark is a key of that object, not part of
    a text.
    """
    end = text.find(_GROUP_MARK)
    if end < 0 or text[-1] != "}" or has_old_spelling(own := text[:end]):
        return None
    try:
        wire = _bind_info_decoder.decode(own + "}")
        group = _decode_group(_GroupText(text[end + len(_GROUP_MARK) : -1]))
    except (UserError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return None if group is None else (wire, group)


@lru_cache(maxsize=GROUP_CACHE_SIZE)
def _decode_group(group: _GroupText) -> Placements | None:
    return None if has_old_spelling(group.text) else _decode_members(group.text.encode())


_GROUP_KEY = "affinityGroupBindInfo"
_GROUP_BLOCK = re.compile(rf"^{_GROUP_KEY}:\n(?:[ -].*(?:\n|\Z))+", re.MULTILINE)
_PLAIN_LINES = re.compile(r"(?: *(?:- )*(?:[A-Za-z0-9][\w./-]*:?(?: [A-Za-z0-9][\w./-]*)?|\"\")(?:\n|$))*")


def _parted(text: str) -> tuple[str, str] | None:
    """Bind info in YAML, as the reference writes it, less the group part, and that part; None if it is not that plain.

    A parser takes 5 ms for the group of 128 pods, and each of them carries it.
    """
    block = _GROUP_BLOCK.search(text)
    if block is None:
        return None
    rest = text[: block.start()] + text[block.end() :]
    return (rest, block[0]) if _GROUP_KEY not in rest and _PLAIN_LINES.fullmatch(rest) else None


@lru_cache(maxsize=GROUP_CACHE_SIZE)
def _decode_yaml_group(block: str) -> Placements:
    """Raises UserError also for fields that contradict each other."""
    if not _PLAIN_LINES.fullmatch(block):
        raise UserError("not plain")
    tree = read_yaml(block, LARGE)
    return _decode_members(_encoder.encode(tree[_GROUP_KEY] if isinstance(tree, dict) else tree))


def _isolation(annotations: Mapping[str, str]) -> tuple[int, ...]:
    text = annotations.get(LEAF_CELL_ISOLATION) or annotations.get(OLD_LEAF_CELL_ISOLATION) or ""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UserError(f"{LEAF_CELL_ISOLATION} is not a list of device indices: {text[:100]!r}") from None


@lru_cache(maxsize=GROUP_CACHE_SIZE)
def _kept_members(text: bytes) -> Placements:
    return _decode_members(text)


def _decode_members(text: bytes) -> Placements:
    """Decode, check and sort the group part; placements are shared by every pod that carries the same text."""
    try:
        members = _group_decoder.decode(text)
    except RecursionError:
        raise UserError("nested too deeply") from None
    except msgspec.ValidationError as error:
        raise UserError(f"affinityGroupBindInfo: {error}") from None
    if not members:
        raise UserError("no members")
    return tuple(sorted(map(_placements, members), key=lambda member: len(member[0].leaf_cell_indices)))


def _placements(member: _MemberPlacements) -> tuple[PodPlacement, ...]:
    if not member.pod_placements:
        raise UserError("member without pod placements")
    sizes = {len(placement.physical_leaf_cell_indices) for placement in member.pod_placements}
    if len(sizes) != 1 or 0 in sizes:
        raise UserError("pod placements of one member differ in size or are empty")
    if any(len(p.preassigned_cell_types) != len(p.physical_leaf_cell_indices) for p in member.pod_placements):
        raise UserError("preassignedCellTypes and physicalLeafCellIndices differ in length")
    return tuple(
        PodPlacement(
            sys.intern(p.physical_node),
            _shared(tuple(p.physical_leaf_cell_indices)),
            _shared(tuple(p.preassigned_cell_types)),
        )
        for p in member.pod_placements
    )


@lru_cache(maxsize=SHARED_TUPLES)
def _shared(values: tuple[T, ...]) -> tuple[T, ...]:
    """One tuple for equal ones: tens of thousands of pods have the same devices and cell types."""
    return values


class _ByIdentity:
    """Cache key for a `members` object: equal only to itself, alive as long as the cache entry."""

    __slots__ = ("members",)

    def __init__(self, members: Placements) -> None:
        self.members = members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.members is other.members

    def __hash__(self) -> int:
        return id(self.members)


@lru_cache(maxsize=GROUP_CACHE_SIZE)
def _encode_members(key: _ByIdentity) -> msgspec.Raw:
    wire = [
        _MemberPlacements(
            [_Placement(p.node, list(p.leaf_cell_indices), list(p.preassigned_cell_types)) for p in placements]
        )
        for placements in key.members
    ]
    return msgspec.Raw(_encoder.encode(wire))


POD_GANG = PREFIX + "pod-gang"

PLAIN_LIMIT = 4 * 1024
"""Characters of a list of peers; a longer one is compressed."""

PACKED_LIMIT = 128 * 1024
"""The same, when compressed; a pod's annotations must not have more than 256 Ki in all."""

UNPACKED_LIMIT = 2**20


class Promise(msgspec.Struct, frozen=True):
    """The place that was decided for a pod; `node` is "" for one without devices, which may run anywhere."""

    uid: str
    node: str = ""
    chain: str = ""
    cells: list[int] = []
    types: list[str] = []

    @property
    def bind_info(self) -> BindInfo:
        """The same as bind info; not for a pod without devices."""
        cells = tuple(self.cells)
        return BindInfo(self.node, cells, self.chain, ((PodPlacement(self.node, cells, tuple(self.types)),),))


class _Gang(msgspec.Struct, omit_defaults=True):
    """`packed` is `peers` as JSON, compressed, in base64."""

    name: str = ""
    peers: list[Promise] = []
    packed: str = ""


_decoder = msgspec.json.Decoder(_Gang)
_peers_decoder = msgspec.json.Decoder(list[Promise])


def promise(uid: str, info: BindInfo | None) -> Promise:
    """The place of a pod that has a group of its own, None for one without devices."""
    if info is None:
        return Promise(uid)
    (member,) = info.members
    (placement,) = member
    types = list(placement.preassigned_cell_types)
    return Promise(uid, info.node, info.cell_chain, list(info.leaf_cell_indices), types)


def gang_annotations(request: PodRequest | None, gang: str, peers: Iterable[Promise]) -> dict[str, str]:
    """The annotations beside bind info. A list of peers that is too long is left out (a gang of several thousands)."""
    peers = list(peers)
    written = _Gang(gang, peers)
    text = _encoder.encode(written).decode()
    if len(text) > PLAIN_LIMIT:
        packed = b64encode(zlib.compress(_encoder.encode(peers), level=1)).decode()
        text = _encoder.encode(_Gang(gang, packed=packed if len(packed) <= PACKED_LIMIT else "")).decode()
    spec = {} if request is None else {SCHEDULING_SPEC: _encoder.encode(spec_fields(request.spec)).decode()}
    return {**spec, POD_GANG: text}


def annotations_anew(request: PodRequest, info: BindInfo, gang: str | None, written: str) -> dict[str, str]:
    """The annotations that binding would have written onto a pod whose mates are all bound.

    `gang` is None for a pod that asks in our own words; it calls its group `written`, "" if it is a group of its own.
    """
    if gang is not None:
        return gang_annotations(request, gang, ()) | bind_annotations(info)
    spec = request.spec.of_group(written)
    return {SCHEDULING_SPEC: spec_text(spec)} | bind_annotations(info)


def spec_text(spec: PodSpec) -> str:
    """A spec as a pod's author would write it, in JSON; one of a group without a name is a group of its own."""
    fields = spec_fields(spec)
    if not spec.group.name:
        del fields["affinityGroup"]
    return _encoder.encode(fields).decode()


def peers_of(annotations: Mapping[str, str]) -> list[Promise]:
    """The pods that were decided together with a bound pod. Raises UserError if the annotation is not ours."""
    text = annotations.get(POD_GANG)
    if text is None:
        return []
    try:
        gang = _decoder.decode(text)
        return _unpacked(gang.packed) if gang.packed else gang.peers
    except (ValueError, RecursionError, zlib.error) as error:
        raise UserError(f"Pod annotation {POD_GANG}: {error}") from None


def _unpacked(packed: str) -> list[Promise]:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(b64decode(packed), UNPACKED_LIMIT)
    if unpacking.unconsumed_tail:
        raise ValueError(f"more than {UNPACKED_LIMIT} characters")
    return _peers_decoder.decode(text)


def asks_in_own_words(annotations: Mapping[str, str]) -> bool:
    """Has the pod's own author written the scheduling spec?"""
    return SCHEDULING_SPEC in annotations and POD_GANG not in annotations


# ---- proofs


PROOF = PREFIX + "pod-bind-proof"
SIGNED = (SCHEDULING_SPEC, LEAF_CELL_ISOLATION, BIND_INFO, POD_GANG)
"""The annotations that the digest covers."""

LEAST_KEY = 16
"""Bytes."""

MAKE_KEY = "head -c 32 /dev/urandom | base64"

_PROOF_LIMIT = 1024
"""Characters."""


class Proof(msgspec.Struct, omit_defaults=True, frozen=True):
    """A proof that hived bound a pod. `is_bare`: it is in a group that has its written name, without the namespace, as
    an earlier version bound it; `digest` is "" where no proof was needed. `quota` are its labels for quotas as they
    were when it got its cells, None where no quota counted.
    """

    digest: str = ""
    is_bare: bool = msgspec.field(name="bareGroup", default=False)
    quota: Mapping[str, str] | None = None


_proof_decoder = msgspec.json.Decoder(Proof)


class Prover:
    """Signs with the first of `keys` and accepts a proof by any of them; without keys it accepts all (rule 22.7).

    Pods that were created before `trusts_before`, a time as Kubernetes writes it, are believed too: an earlier version
    or HiveD has bound them, or the keys were lost. Thread-safe.
    """

    def __init__(self, keys: Sequence[bytes] = (), *, trusts_before: str = "") -> None:
        self._keys = tuple(keys)
        self._trusts_before = trusts_before

    @property
    def has_key(self) -> bool:
        """False if all texts are believed."""
        return bool(self._keys)

    def sign(
        self, uid: str, node: str, annotations: Mapping[str, str], *, is_bare: bool = False,
        quota: Mapping[str, str] | None = None,
    ) -> dict[str, str]:  # fmt: skip
        """The annotation to be written beside `annotations`, of which it covers those in `SIGNED`; see `Proof`."""
        said = Proof("", is_bare, quota)
        digest = _digest(self._keys[0], uid, node, said, annotations) if self._keys else ""
        return {PROOF: _encoder.encode(replace(said, digest=digest)).decode()}

    def proof_of(self, uid: str, node: str, created: str, annotations: Mapping[str, str]) -> Proof | None:
        """The proof that hived bound a pod to a node, None if there is none."""
        proof = _written(annotations)
        if not self._keys:
            return proof
        given = proof.digest if proof.digest.isascii() else ""  # `compare_digest` takes no other text
        digests = (_digest(key, uid, node, proof, annotations) for key in self._keys)
        if given and any(hmac.compare_digest(digest, given) for digest in digests):
            return proof
        is_trusted = BIND_INFO in annotations and "" < created < self._trusts_before
        return Proof(is_bare=proof.is_bare) if is_trusted else None

    def seal(self, uid: str, text: str) -> str:
        """The digest that proves that hived wrote this text onto an object; "" without a key."""
        return _sealed(self._keys[0], uid, text) if self._keys else ""

    def is_sealed(self, uid: str, text: str, seal: str) -> bool:
        """Did hived write this text onto the object? Without a key every text is believed."""
        given = seal if seal.isascii() else ""
        return not self._keys or any(hmac.compare_digest(_sealed(key, uid, text), given) for key in self._keys)


def _written(annotations: Mapping[str, str]) -> Proof:
    """The unchecked proof in a pod's annotations. Earlier versions wrote none."""
    try:
        return _proof_decoder.decode(annotations.get(PROOF, "")[:_PROOF_LIMIT])
    except (ValueError, RecursionError):
        return Proof(is_bare=True)


def parse_keys(text: str, source: str) -> list[bytes]:
    """The keys of a text, each a line in base64, the one that signs first. Raises UserError."""
    try:
        keys = [b64decode(line, validate=True) for line in text.split()]
    except ValueError as error:
        raise UserError(f"{source}: {error}; expected a key in base64 on each line, such as {MAKE_KEY}") from None
    if not keys or min(map(len, keys)) < LEAST_KEY:
        raise UserError(f"{source}: expected keys of at least {LEAST_KEY} bytes, such as {MAKE_KEY}")
    return keys


def _digest(key: bytes, uid: str, node: str, said: Proof, annotations: Mapping[str, str]) -> str:
    texts = {name: annotations[name] for name in SIGNED if name in annotations}
    quota = [] if said.quota is None else [said.quota]
    message = _encoder.encode([uid, node, said.is_bare, texts, *quota])  # JSON, which has no second reading
    return b64encode(hmac.digest(key, message, "sha256")).decode()


def _sealed(key: bytes, uid: str, text: str) -> str:
    message = _encoder.encode(["sealed", uid, text])  # no digest of a binding covers a list of this length
    return b64encode(hmac.digest(key, message, "sha256")).decode()
