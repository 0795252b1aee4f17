"""Annotations that binding adds to a pod that did not ask in HiveD's own words, so that a restart finds the same state.

`pod-scheduling-spec` has its request as it was understood: a group of its own. `pod-gang` names the pods that were
decided together with it and have no confirmed binding yet: should the scheduler die now, the next one keeps their
places, and no gang is left started in part. A pod with the latter is known not to have written the former itself.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping

import msgspec

from hived.values.errors import UserError
from hived.values.specs import BindInfo, PodPlacement, PodRequest, PodSpec
from hived_extender.pods.annotations import PREFIX, SCHEDULING_SPEC, spec_fields
from hived_extender.pods.bind_info import bind_annotations

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


_encoder = msgspec.json.Encoder()
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
