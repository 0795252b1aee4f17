"""The keys of pod annotations, their texts as JSON or YAML, and the scheduling spec <-> `PodRequest` (rule 2.2).

Users, the reference and hived write annotations, so they may hold any text. Text is decoded as JSON first, which we
write ourselves and which costs microseconds. Other text is read as YAML by libyaml, with scalars as written and bounds
on size, depth and aliases. Any text gives a value, or a `UserError` in the reference's words.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import yaml

from hived.values.errors import UserError
from hived.values.specs import (
    MAX_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    GroupSpec,
    MemberSpec,
    PodRequest,
    PodSpec,
)
from hived_config.document import PLAIN, Composer, TooManyNodesError
from hived_config.reader import NULLS

PREFIX = "hivedscheduler.microsoft.com/"
SCHEDULING_SPEC = PREFIX + "pod-scheduling-spec"
LEAF_CELL_ISOLATION = PREFIX + "pod-leaf-cell-isolation"
BIND_INFO = PREFIX + "pod-bind-info"
OLD_LEAF_CELL_ISOLATION = PREFIX + "pod-gpu-isolation"

MAX_COUNT = 2**31 - 1
"""Counts are 32-bit in the annotations; sums of them saturate here (rule 2.6)."""

SPEC_LIMIT = 32 * 1024
"""Characters of a scheduling spec: members of several hundred sizes."""

KEPT_SPECS = 1024
KEPT_SIZE = 1024
"""Specs that were read lately, and their longest text: 2 MB of texts at most."""

QUICK_NODES = 200
"""Of YAML; a pod asks for its cells in ten to thirty."""

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=MAX_COUNT)]


class _Member(msgspec.Struct, rename="camel"):
    pod_number: Int32 = 0
    leaf_cell_number: Int32 = 0


class _Group(msgspec.Struct, rename="camel"):
    name: str = ""
    members: list[_Member] = []


class _WithinCell(msgspec.Struct):
    required: str = ""
    preferred: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    virtual_cluster: str = ""
    priority: Int32 = 0
    pinned_cell_id: str = ""
    leaf_cell_type: str = ""
    leaf_cell_number: Int32 = 0
    gang_release_enable: bool = False
    lazy_preemption_enable: bool = False
    ignore_k8s_suggested_nodes: bool | None = msgspec.field(name="ignoreK8sSuggestedNodes", default=None)
    affinity_group: _Group | None = None
    within_cell: str | _WithinCell = ""
    elastic: bool = False


_spec_decoder = msgspec.json.Decoder(_Spec)


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
    """The request of a pod with `spec` as its annotation; its own name is its group's where that names none."""
    if not spec.group.name:
        spec = spec.of_group(f"{namespace}/{name}")
    return PodRequest(uid=uid, name=name, namespace=namespace, spec=spec)


def read_spec(text: str, *, ignores_by_default: bool = False) -> PodSpec:
    """The content of a scheduling-spec annotation; see `pod_request`. The group has no name where it is the pod alone.

    Pods of one gang, and single pods that ask for the same, have one text and share one value. Cost: .2 us for a short
    text that was read lately, microseconds for JSON, 3 us a node of YAML. Raises UserError.
    """
    if not text:
        raise _spec_error("Annotation does not exist or is empty")
    if len(text) <= KEPT_SIZE:
        return _kept_spec(text, ignores_by_default)
    check_size(text, SPEC_LIMIT)
    return _checked(_decode_spec(text), ignores_by_default)


@lru_cache(maxsize=KEPT_SPECS)
def _kept_spec(text: str, ignores_by_default: bool) -> PodSpec:
    return _checked(_decode_spec(text), ignores_by_default)


def read_json_spec(text: str) -> PodSpec | None:
    """The same of a text that is JSON, in microseconds; None for any other. Raises UserError as `read_spec`."""
    if len(text) > SPEC_LIMIT:
        return None
    return _kept_json_spec(text) if len(text) <= KEPT_SIZE else _checked_json_spec(text)


def _checked_json_spec(text: str) -> PodSpec | None:
    spec = _json_spec(text)
    return None if spec is None else _checked(spec, ignores_by_default=False)


_kept_json_spec = lru_cache(maxsize=KEPT_SPECS)(_checked_json_spec)


def is_quickly_read(text: str) -> bool:
    """Does reading a scheduling spec take less than a millisecond?"""
    return len(text) > SPEC_LIMIT or most_nodes(text) <= QUICK_NODES or _json_spec(text) is not None


def _checked(spec: "_Spec", ignores_by_default: bool) -> PodSpec:
    _check_spec(spec)
    if spec.affinity_group is not None:
        _check_group(spec.affinity_group, spec.leaf_cell_number)
        group = GroupSpec(spec.affinity_group.name, _merge_members(spec.affinity_group.members))
    else:
        group = GroupSpec("", (MemberSpec(1, spec.leaf_cell_number),))
    within_cell, within_is_required = _within(spec.within_cell) if spec.within_cell else ("", True)
    ignores = spec.ignore_k8s_suggested_nodes
    return PodSpec(
        virtual_cluster=spec.virtual_cluster,
        priority=spec.priority,
        leaf_cell_count=spec.leaf_cell_number,
        group=group,
        pinned_cell_id=spec.pinned_cell_id,
        leaf_cell_type=spec.leaf_cell_type,
        gang_release=spec.gang_release_enable,
        lazy_preemption=spec.lazy_preemption_enable,
        ignore_suggested_nodes=ignores_by_default if ignores is None else ignores,
        within_cell=within_cell,
        within_is_required=within_is_required,
        elastic=spec.elastic,
    )


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
    if len(members) == 1:
        return (MemberSpec(members[0].pod_number, members[0].leaf_cell_number),)
    pod_counts: dict[int, int] = {}
    for member in members:
        total = pod_counts.get(member.leaf_cell_number, 0) + member.pod_number
        pod_counts[member.leaf_cell_number] = min(total, MAX_COUNT)
    return tuple(MemberSpec(pod_counts[size], size) for size in sorted(pod_counts))


def _decode_spec(text: str) -> _Spec:
    return _json_spec(text) or convert(text, read_yaml(text), _Spec)


def _json_spec(text: str) -> _Spec | None:
    """None if the text is not JSON of the expected types: YAML decides then, and words the error."""
    if text.lstrip()[:1] == "{" and not has_old_spelling(text):
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            return _spec_decoder.decode(text)
    return None


def spec_fields(spec: PodSpec) -> dict[str, Any]:
    """A pod's spec as its annotation would spell it, with the group and all defaults written out.

    A field that the reference does not have is there only if it is asked for.
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


# ---- YAML


Value: TypeAlias = "bool | int | str | list[Value] | dict[str, Value] | None"

YAML_DEPTH_LIMIT = 32
STRUCTURE = (",", ":", "[", "{", "*", "-", "?", "\n", "\r", "\x85", "\u2028", "\u2029")
"""Characters that a node of YAML begins or ends with, one at least; all of its line breaks are among them."""

STEP = 32
"""Nodes that are read before other threads get a turn."""

TURN_S = 1e-4
"""Of that turn. Zero would be none: this thread would have the interpreter again before another wakes."""

OLD_SPELLINGS = {
    "gpuType": "leafCellType",
    "gpuNumber": "leafCellNumber",
    "gpuIsolation": "leafCellIsolation",
    "physicalGpuIndices": "physicalLeafCellIndices",
}
_INTEGERS = frozenset({"priority", "leafCellNumber", "podNumber", "leafCellIsolation", "physicalLeafCellIndices"})
_FLAGS = {**dict.fromkeys(("y", "yes", "true", "on"), True), **dict.fromkeys(("n", "no", "false", "off"), False)}
_FLAG_KEYS = frozenset({"gangReleaseEnable", "lazyPreemptionEnable", "ignoreK8sSuggestedNodes", "elastic"})


class Limits(msgspec.Struct, frozen=True):
    """Characters and nodes, aliases counted each time; an honest annotation has a few dozen."""

    size: int
    nodes: int


USUAL = Limits(32 * 1024, 5_000)
LARGE = Limits(256 * 1024, 100_000)
"""For the places of a gang of thousands of pods, one plain word or number on each line, as HiveD writes them."""

_T = TypeVar("_T")


def _yaml_error(text: str, problem: object) -> UserError:
    shown = text[:200].encode("utf-8", "backslashreplace").decode()
    return UserError(f'Failed to unmarshal YAML "{shown}" to Object: {problem}')


def has_old_spelling(text: str) -> bool:
    """Is a key spelt as before HiveD knew of anything but GPUs? Then JSON is read as YAML, which knows both."""
    if "gpu" in text or "Gpu" in text:
        for old in OLD_SPELLINGS:  # a generator takes five times as long, and names of nodes often have gpu in them
            if old in text:
                return True
    return False


def check_size(text: str, limit: int) -> None:
    """Raise UserError if a text has more characters."""
    if len(text) > limit:
        raise _yaml_error(text, f"{len(text)} characters, at most {limit} are read")


def most_nodes(text: str) -> int:
    """A bound on the nodes of a YAML text, aliases left aside. Cost: a dozen scans of the text."""
    return 2 + 2 * sum(map(text.count, STRUCTURE))


def read_yaml(text: str, limits: Limits = USUAL) -> Value:
    """The document as plain values: known numbers and truth values converted, all other scalars as written.

    A null document is an empty mapping, and null entries of a mapping count as absent. Raises UserError. Other threads
    get a turn every 0.2 ms. Cost: some 3 us a node.
    """
    check_size(text, limits.size)
    try:
        text.encode()
        composer = _Composer(text)
        composer.most_nodes = limits.nodes
        root = composer.get_single_node()
        value = None if root is None else _Values(limits.nodes).read(root, "", 0)
    except (yaml.YAMLError, UnicodeError, TooManyNodesError) as error:
        raise _yaml_error(text, error) from None
    return {} if value is None else value


def convert(text: str, tree: Value, into: type[_T]) -> _T:
    """A tree that was read from `text`, as a struct. Raises UserError where types differ."""
    try:
        return msgspec.convert(tree, into)
    except msgspec.ValidationError as error:
        raise _yaml_error(text, error) from None


class _Composer(Composer):
    """Gives other threads a turn."""

    most_levels = YAML_DEPTH_LIMIT

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:
        super().descend_resolver(parent, index)
        if not self.count % STEP:
            time.sleep(TURN_S)


class _Values:
    """Values of nodes, those behind aliases counted each time, so that reading ends."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def read(self, node: yaml.Node, key: str, depth: int) -> Value:
        """The value of a node that stands below a key."""
        if isinstance(node, yaml.ScalarNode):
            self._enter(node, depth)
            return _meaning(node.value, key) if node.tag == PLAIN else str(node.value)
        if isinstance(node, yaml.SequenceNode):
            self._enter(node, depth)
            return [self.read(item, key, depth + 1) for item in node.value]
        fields = {name: self.read(value, name, depth + 1) for name, value in self._fields(node, depth).items()}
        return {name: value for name, value in fields.items() if value is not None}

    def _fields(self, node: yaml.Node, depth: int) -> dict[str, yaml.Node]:
        """The values of a mapping by key: of a key given twice the last one, and merged ones where it has none."""
        self._enter(node, depth)
        own: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError("a mapping key is not a scalar")
            if key.value != "<<" or key.tag != PLAIN:
                name = str(key.value)
                own[OLD_SPELLINGS.get(name, name)] = value
                continue
            for source in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                if not isinstance(source, yaml.MappingNode):
                    raise yaml.YAMLError("a merge key needs mappings")
                merged.update(self._fields(source, depth + 1))
        return merged | own

    def _enter(self, node: yaml.Node, depth: int) -> None:
        self._count += 1
        if self._count > self._most:
            raise TooManyNodesError(self._most, node)
        if depth > YAML_DEPTH_LIMIT:
            raise yaml.YAMLError(f"nested deeper than {YAML_DEPTH_LIMIT}")


def _meaning(text: str, key: str) -> Value:
    """The value of an unquoted scalar that stands below a key: known numbers and truth values converted."""
    if text in NULLS:
        return None
    if key in _INTEGERS:
        return _number(text)
    return _FLAGS.get(text.lower(), text) if key in _FLAG_KEYS else text


def _number(text: str) -> int | str:
    """A YAML 1.1 integer; anything else stays text, for the type check to refuse."""
    digits = text.replace("_", "")
    try:
        if digits.lstrip("+-").startswith("0") and digits.lstrip("+-").isdigit():
            return int(digits, 8)
        return int(digits, 0)
    except ValueError:
        return text
