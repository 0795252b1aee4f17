"""Pod annotations <-> `PodRequest` and `BindInfo` (rules 2.2, 2.10).

Annotations are written by users, by the reference and by us, so anything may stand in them. Text is decoded as JSON
first, which is what we write and costs microseconds; whatever is not plain JSON of the right types is read as YAML
(`annotation_yaml`). Whatever the text, the outcome is a value or a `UserError`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from hived.errors import UserError
from hived.specs import (
    MAX_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    BindInfo,
    GroupSpec,
    MemberSpec,
    PodPlacement,
    PodRequest,
    PodSpec,
)
from hived_extender.pods.annotation_yaml import OLD_SPELLINGS, PLAIN, check_size, convert, most_nodes, read_yaml

PREFIX = "hivedscheduler.microsoft.com/"
SCHEDULING_SPEC = PREFIX + "pod-scheduling-spec"
LEAF_CELL_ISOLATION = PREFIX + "pod-leaf-cell-isolation"
BIND_INFO = PREFIX + "pod-bind-info"
OLD_LEAF_CELL_ISOLATION = PREFIX + "pod-gpu-isolation"

MAX_COUNT = 2**31 - 1
"""Counts are 32-bit in the annotations; sums of them saturate here (rule 2.6)."""

GROUP_CACHE_SIZE = 1024

SPEC_LIMIT = 32 * 1024
"""Characters of a scheduling spec: members of several hundred sizes."""

QUICK_NODES = 200
"""Of YAML; a pod asks for its cells in ten to thirty."""

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=MAX_COUNT)]


class _Member(msgspec.Struct, rename="camel"):
    pod_number: _Int32 = 0
    leaf_cell_number: _Int32 = 0


class _Group(msgspec.Struct, rename="camel"):
    name: str = ""
    members: list[_Member] = []


class _WithinCell(msgspec.Struct):
    required: str = ""
    preferred: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    virtual_cluster: str = ""
    priority: _Int32 = 0
    pinned_cell_id: str = ""
    leaf_cell_type: str = ""
    leaf_cell_number: _Int32 = 0
    gang_release_enable: bool = False
    lazy_preemption_enable: bool = False
    ignore_k8s_suggested_nodes: bool | None = msgspec.field(name="ignoreK8sSuggestedNodes", default=None)
    affinity_group: _Group | None = None
    within_cell: str | _WithinCell = ""
    elastic: bool = False


class _Placement(msgspec.Struct, rename="camel"):
    physical_node: str = ""
    physical_leaf_cell_indices: list[_Int32] = []
    preassigned_cell_types: list[str] = []


class _MemberPlacements(msgspec.Struct, rename="camel"):
    pod_placements: list[_Placement] = []


class _BindInfo(msgspec.Struct, rename="camel"):
    node: str = ""
    leaf_cell_isolation: list[_Int32] = []
    cell_chain: str = ""
    affinity_group_bind_info: msgspec.Raw = msgspec.Raw(b"[]")


_spec_decoder = msgspec.json.Decoder(_Spec)
_bind_info_decoder = msgspec.json.Decoder(_BindInfo)
_group_decoder = msgspec.json.Decoder(list[_MemberPlacements])
_encoder = msgspec.json.Encoder()


def pod_request(
    uid: str, name: str, namespace: str, annotations: Mapping[str, str], *, ignores_by_default: bool = False
) -> PodRequest:
    """Read what a pod asks for from its scheduling-spec annotation.

    Only a pod that says so may run where kube-scheduler would not put it; with `ignores_by_default`, as the reference
    has it, every pod that does not say the contrary.

    A pod without `affinityGroup` becomes the only member of a group named `namespace/name`. Members of one size are
    merged, saturating at `MAX_COUNT`.

    Raises UserError with the reference's texts, in the reference's order (rule 2.3), and merges members (rule 2.6).
    """
    spec = read_spec(annotations.get(SCHEDULING_SPEC, ""), ignores_by_default=ignores_by_default)
    return request_of(uid, name, namespace, spec)


def request_of(uid: str, name: str, namespace: str, spec: PodSpec) -> PodRequest:
    """What a pod asks for whose annotation says `spec`; its own name is its group's where that names none."""
    if not spec.group.name:
        spec = replace(spec, group=replace(spec.group, name=f"{namespace}/{name}"))
    return PodRequest(uid=uid, name=name, namespace=namespace, spec=spec)


def read_spec(text: str, *, ignores_by_default: bool = False) -> PodSpec:
    """What a scheduling-spec annotation says; see `pod_request`. The group has no name where it is the pod alone.

    Cost: microseconds for JSON, some 5 us a node of YAML. Raises UserError.
    """
    if not text:
        raise _spec_error("Annotation does not exist or is empty")
    check_size(text, SPEC_LIMIT)
    return _checked(_decode_spec(text), ignores_by_default)


def read_json_spec(text: str) -> PodSpec | None:
    """The same of a text that is JSON, in microseconds; None for any other. Raises UserError as `read_spec`."""
    if len(text) > SPEC_LIMIT:
        return None
    spec = _json_spec(text)
    return None if spec is None else _checked(spec, ignores_by_default=False)


def is_quickly_read(text: str) -> bool:
    """Does reading a scheduling spec take less than a millisecond?"""
    return len(text) > SPEC_LIMIT or most_nodes(text) <= QUICK_NODES or _json_spec(text) is not None


def _checked(spec: "_Spec", ignores_by_default: bool) -> PodSpec:
    _check_spec(spec)
    if spec.affinity_group is not None:
        _check_group(spec.affinity_group, spec.leaf_cell_number)
    group = spec.affinity_group or _Group("", [_Member(1, spec.leaf_cell_number)])
    within_cell, within_is_required = _within(spec.within_cell)
    ignores = spec.ignore_k8s_suggested_nodes
    return PodSpec(
        virtual_cluster=spec.virtual_cluster,
        priority=spec.priority,
        leaf_cell_count=spec.leaf_cell_number,
        group=GroupSpec(group.name, _merge_members(group.members)),
        pinned_cell_id=spec.pinned_cell_id,
        leaf_cell_type=spec.leaf_cell_type,
        gang_release=spec.gang_release_enable,
        lazy_preemption=spec.lazy_preemption_enable,
        ignore_suggested_nodes=ignores_by_default if ignores is None else ignores,
        within_cell=within_cell,
        within_is_required=within_is_required,
        elastic=spec.elastic,
    )


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
    return {
        LEAF_CELL_ISOLATION: isolation_text(info),
        BIND_INFO: _encoder.encode(wire).decode(),
    }


def isolation_text(info: BindInfo) -> str:
    """The device indices as the isolation annotation has them."""
    return ",".join(map(str, info.leaf_cell_indices))


def _spec_error(text: str) -> UserError:
    return UserError(f"Pod annotation {SCHEDULING_SPEC}: {text}")


def _check_spec(spec: _Spec) -> None:
    if not spec.virtual_cluster:
        raise _spec_error("VirtualCluster is empty")
    if spec.priority < OPPORTUNISTIC_PRIORITY:
        raise _spec_error(f"Priority is less than {OPPORTUNISTIC_PRIORITY}")
    if spec.priority > MAX_GUARANTEED_PRIORITY:
        raise _spec_error(f"Priority is greater than {MAX_GUARANTEED_PRIORITY}")
    if spec.leaf_cell_number <= 0:
        raise _spec_error("LeafCellNumber is non-positive")


def _check_group(group: _Group, leaf_cell_count: int) -> None:
    if not group.name:
        raise _spec_error("AffinityGroup.Name is empty")
    for member in group.members:
        if member.pod_number <= 0:
            raise _spec_error("AffinityGroup.Members has non-positive PodNumber")
        if member.leaf_cell_number <= 0:
            raise _spec_error("AffinityGroup.Members has non-positive LeafCellNumber")
    if all(member.leaf_cell_number != leaf_cell_count for member in group.members):
        raise _spec_error("AffinityGroup.Members does not contains current Pod")


def _within(wish: str | _WithinCell) -> tuple[str, bool]:
    """The cell type, and whether it is required; preferring "" is to be as near together as can be."""
    if isinstance(wish, str):
        return wish, True
    if (wish.preferred is None) == (not wish.required):
        raise _spec_error("WithinCell has to be a cell type, {required: a cell type} or {preferred: a cell type}")
    return (wish.required, True) if wish.preferred is None else (wish.preferred, False)


def _merge_members(members: list[_Member]) -> tuple[MemberSpec, ...]:
    pod_counts: dict[int, int] = {}
    for member in members:
        total = pod_counts.get(member.leaf_cell_number, 0) + member.pod_number
        pod_counts[member.leaf_cell_number] = min(total, MAX_COUNT)
    return tuple(MemberSpec(pod_counts[size], size) for size in sorted(pod_counts))


def _has_old_spelling(text: str) -> bool:
    return any(old in text for old in OLD_SPELLINGS)


def _decode_spec(text: str) -> _Spec:
    return _json_spec(text) or convert(text, read_yaml(text), _Spec)


def _json_spec(text: str) -> _Spec | None:
    """None if the text is not JSON of the expected types: YAML decides then, and words the error."""
    if not _has_old_spelling(text):
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            return _spec_decoder.decode(text)
    return None


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
    return BindInfo(wire.node, indices, wire.cell_chain, members)


def _decode_bind_info(text: str) -> tuple[_BindInfo, tuple[tuple[PodPlacement, ...], ...]]:
    if not _has_old_spelling(text):
        try:
            wire = _bind_info_decoder.decode(text)
            return wire, _decode_members(bytes(wire.affinity_group_bind_info))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            pass  # as for the spec
    with suppress(UserError):
        if parts := _parted(text):
            return convert(parts[0], read_yaml(parts[0]), _BindInfo), _decode_yaml_group(parts[1])
    tree = read_yaml(text)
    group = tree.pop(_GROUP_KEY, []) if isinstance(tree, dict) else []
    return convert(text, tree, _BindInfo), _decode_members(_encoder.encode(group))


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
def _decode_yaml_group(block: str) -> tuple[tuple[PodPlacement, ...], ...]:
    """Raises UserError also for what makes sense only together with the rest."""
    if not _PLAIN_LINES.fullmatch(block):
        raise UserError("not plain")
    tree = read_yaml(block, PLAIN)
    return _decode_members(_encoder.encode(tree[_GROUP_KEY] if isinstance(tree, dict) else tree))


def _isolation(annotations: Mapping[str, str]) -> tuple[int, ...]:
    text = annotations.get(LEAF_CELL_ISOLATION) or annotations.get(OLD_LEAF_CELL_ISOLATION) or ""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UserError(f"{LEAF_CELL_ISOLATION} is not a list of device indices: {text[:100]!r}") from None


@lru_cache(maxsize=GROUP_CACHE_SIZE)
def _decode_members(text: bytes) -> tuple[tuple[PodPlacement, ...], ...]:
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
        PodPlacement(p.physical_node, tuple(p.physical_leaf_cell_indices), tuple(p.preassigned_cell_types))
        for p in member.pod_placements
    )


class _ByIdentity:
    """Cache key for a `members` object: equal only to itself, alive as long as the cache entry."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[tuple[PodPlacement, ...], ...]) -> None:
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


def spec_fields(spec: PodSpec) -> dict[str, Any]:
    """A pod's spec as its annotation would spell it, with the group and all defaults written out.

    What the reference does not have is there only if it is asked for.
    """
    beyond: dict[str, Any] = {}
    if spec.within_cell or not spec.within_is_required:
        beyond["withinCell"] = {"required" if spec.within_is_required else "preferred": spec.within_cell}
    if spec.beside:
        beyond["beside"] = spec.beside
    if spec.elastic:
        beyond["elastic"] = True
    return beyond | {
        "virtualCluster": spec.virtual_cluster,
        "priority": spec.priority,
        "pinnedCellId": spec.pinned_cell_id,
        "leafCellType": spec.leaf_cell_type,
        "leafCellNumber": spec.leaf_cell_count,
        "gangReleaseEnable": spec.gang_release,
        "lazyPreemptionEnable": spec.lazy_preemption,
        "ignoreK8sSuggestedNodes": spec.ignore_suggested_nodes,
        "affinityGroup": {
            "name": spec.group.name,
            "members": [
                {"podNumber": member.pod_count, "leafCellNumber": member.leaf_cell_count}
                for member in spec.group.members
            ],
        },
    }
