"""Proof that hived bound a pod: a keyed digest beside the annotations that binding writes.

Users who may create pods may write any annotation. So the annotations of a bound pod count only with the digest, over
the pod's uid, its node and all that hived wrote there. The key is shared by the replicas and by nobody else.

Without a key everybody is believed, as HiveD does.
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, PREFIX, SCHEDULING_SPEC
from hived_extender.jobs.bind_info import POD_GANG

PROOF = PREFIX + "pod-bind-proof"
SIGNED = (SCHEDULING_SPEC, LEAF_CELL_ISOLATION, BIND_INFO, POD_GANG)
"""The annotations that the digest covers."""

LEAST_KEY = 16
"""Bytes."""

MAKE_KEY = "head -c 32 /dev/urandom | base64"

_PROOF_LIMIT = 1024
"""Characters."""


class Proof(msgspec.Struct, omit_defaults=True, frozen=True):
    """That hived bound a pod. `is_bare`: it is in a group that has its written name, without the namespace, as an
    earlier version bound it; `digest` is "" where no proof was needed. `quota` are its labels for quotas as they were
    when it got its cells, None where no quota counted.
    """

    digest: str = ""
    is_bare: bool = msgspec.field(name="bareGroup", default=False)
    quota: Mapping[str, str] | None = None


_decoder = msgspec.json.Decoder(Proof)
_encoder = msgspec.json.Encoder()


class Prover:
    """Signs with the first of `keys` and takes the proof of any of them; without keys, it takes every pod's word.

    Pods that were created before `trusts_before`, a time as Kubernetes writes it, are believed too: an earlier version
    or HiveD has bound them, or the keys were lost. Thread-safe.
    """

    def __init__(self, keys: Sequence[bytes] = (), *, trusts_before: str = "") -> None:
        self._keys = tuple(keys)
        self._trusts_before = trusts_before

    @property
    def has_key(self) -> bool:
        """False if everybody is believed."""
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
        """Did hived write this text onto the object? Without a key everybody is believed."""
        given = seal if seal.isascii() else ""
        return not self._keys or any(hmac.compare_digest(_sealed(key, uid, text), given) for key in self._keys)


def _written(annotations: Mapping[str, str]) -> Proof:
    """The proof in a pod's annotations, which nobody has checked yet. Earlier versions wrote none."""
    try:
        return _decoder.decode(annotations.get(PROOF, "")[:_PROOF_LIMIT])
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
