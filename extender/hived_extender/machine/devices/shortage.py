"""Lost leaf cells of a node: a pure function of the configuration and the facts of the node.

For each resource, devices are missing that neither allocatable nor, without it, ResourceSlices offer. A node that
reports neither counts as configured, unless another node of the leaf cell type reports: then it has none. Devices of
claims, and those requested by pods without cells, are lost too. Known indices are certainly lost; other devices are
counted. Leaf cell types of one resource share the count in proportion to their remaining devices; the rest goes to the
larger remainder, then by name.
`Losses` keeps the losses of all nodes under one configuration up to date and tells them to its core.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil

import msgspec

from hived.cells.topology import Topology
from hived.values.specs import ClusterSpec
from hived_config.rules import Foreign, PodRules
from hived_config.words import counted
from hived_extender.api.cells import DeviceUser, LostDevices
from hived_extender.machine.core import Core
from hived_extender.machine.devices.table import (
    NOTHING,
    Allocated,
    ClaimUse,
    Kinds,
    Layout,
    LeafKind,
    NodeDevices,
    Published,
    Selector,
)

Holds = Callable[[str], bool]
"""Does the pod with this uid hold cells?"""


class Used(msgspec.Struct, frozen=True):
    """Devices used by others: `by` names pods, or a claim without pods. `pods` have (uid, namespace, name)."""

    by: str
    count: int
    pods: tuple[tuple[str, str, str], ...] = ()
    is_claim: bool = False


class Loss(msgspec.Struct, frozen=True):
    """The lost leaf cells of one type on a node, with the cause.

    Attributes
    ----------
    leaf_count : configured leaf cells
    lost_count : lost leaf cells, at most `leaf_count`
    known : device indices that are certainly among them
    offered, configured : devices of `resource` on the whole node
    missing : devices of this type that the node does not offer or calls unhealthy
    used : devices of this type that others use
    """

    node: str
    leaf_type: str
    resource: str
    leaf_count: int
    lost_count: int
    known: tuple[int, ...]
    offered: int
    configured: int
    missing: int
    used: tuple[Used, ...]


class _Share(msgspec.Struct):
    """The losses of one leaf cell type; `room` is how many devices there are."""

    kind: LeafKind
    leaf_count: int
    room: int
    indices: Collection[int]
    known: set[int] = msgspec.field(default_factory=set)
    counted: int = 0
    missing: int = 0
    used: list[Used] = msgspec.field(default_factory=list)

    @property
    def left(self) -> int:
        return max(0, self.room - len(self.known) - self.counted)


def reports(kind: LeafKind, facts: NodeDevices, classes: Mapping[str, Selector]) -> bool:
    """True if the node reports its number of devices of this kind."""
    listed = facts.allocatable is not None and kind.resource in facts.allocatable
    return listed or _published(kind.device_class, facts, classes) is not None


def losses_of(
    layout: Layout,
    node: str,
    facts: NodeDevices,
    classes: Mapping[str, Selector],
    is_reported: Callable[[str], bool],
    holds: Holds,
) -> list[Loss]:
    """The losses of one node, by leaf cell type; empty if nothing is lost.

    `is_reported` is true of a leaf cell type whose devices any configured node reports. Cost O(pods and devices of the
    node).
    """
    kinds = layout.kinds_of(node)
    if _is_whole(kinds, facts, holds):
        return []
    has_indices = bool(facts.slices or facts.claims)
    shares = [
        _Share(kind, count, count * kind.per_leaf, layout.indices(node, kind.leaf_type) if has_indices else ())
        for kind, count in kinds
    ]
    offers = {}
    for resource in dict.fromkeys(share.kind.resource for share in shares):
        own = [share for share in shares if share.kind.resource == resource]
        offers[resource] = _subtract_missing(own, facts, classes, is_reported)
        if own[0].kind.foreign is not Foreign.IGNORE:
            _subtract_requested(own, resource, facts, holds)
    _subtract_claimed([share for share in shares if share.kind.foreign is not Foreign.IGNORE], facts, holds)
    return [_loss(node, share, offers[share.kind.resource]) for share in shares if share.left < share.room]


def _is_whole(kinds: Kinds, facts: NodeDevices, holds: Holds) -> bool:
    """True if plainly nothing is lost: the node offers all that is configured, to pods with cells. Most nodes do."""
    if facts.slices or facts.claims or len(kinds) > 1 or facts.allocatable is None:
        return False
    offers = all(facts.allocatable.get(kind.resource, 0) >= count * kind.per_leaf for kind, count in kinds)
    return offers and all(map(holds, facts.pods))


def _loss(node: str, share: _Share, offer: tuple[int, int]) -> Loss:
    lost = min(share.leaf_count, ceil((len(share.known) + share.counted) / share.kind.per_leaf))
    known = tuple(sorted(share.known)) if share.kind.per_leaf == 1 else ()
    return Loss(
        node,
        share.kind.leaf_type,
        share.kind.resource,
        share.leaf_count,
        lost,
        known[: share.leaf_count],
        *offer,
        share.missing,
        tuple(share.used),
    )


def _subtract_missing(
    shares: Sequence[_Share],
    facts: NodeDevices,
    classes: Mapping[str, Selector],
    is_reported: Callable[[str], bool],
) -> tuple[int, int]:
    """Subtract the devices of a resource that the node does not offer; returns the offered and configured counts."""
    configured = sum(share.room for share in shares)
    unhealthy, healthy = 0, list[int]()
    for device_class in dict.fromkeys(share.kind.device_class for share in shares):
        devices = _published(device_class, facts, classes)
        if devices is not None:
            own = [share for share in shares if share.kind.device_class == device_class]
            unhealthy += sum(_subtract_unhealthy(own, device.index) for device in devices if not device.is_healthy)
            healthy.append(sum(device.is_healthy for device in devices))
    listed = (facts.allocatable or {}).get(shares[0].kind.resource)
    if listed:
        offered = listed
    elif healthy:
        offered = sum(healthy)
    elif listed == 0 or (facts.allocatable is not None and any(is_reported(each.kind.leaf_type) for each in shares)):
        offered = 0
    else:
        offered = configured
    for share, count in _divide(configured - offered - unhealthy, shares):
        share.counted += count
        share.missing += count
    return min(offered, configured), configured


def _subtract_unhealthy(shares: Sequence[_Share], index: int) -> int:
    """Subtract a device that its driver calls unhealthy; returns the number lost."""
    if any(index in share.known for share in shares):
        return 0
    for share in shares:
        if share.left and share.kind.per_leaf == 1 and index in share.indices:
            share.known.add(index)
            share.missing += 1
            return 1
    for share, _ in _divide(1, shares):
        share.counted += 1
        share.missing += 1
        return 1
    return 0


def _subtract_requested(shares: Sequence[_Share], resource: str, facts: NodeDevices, holds: Holds) -> None:
    """Subtract devices requested by pods without cells, until none are left."""
    for pod in sorted(facts.pods.values(), key=lambda each: (each.namespace, each.name, each.uid)):
        if not any(share.left for share in shares):
            return
        count = pod.requests.get(resource, 0)
        if count and not holds(pod.uid):
            for share, part in _divide(count, shares):
                share.counted += part
                share.used.append(Used(pod.key, part, ((pod.uid, pod.namespace, pod.name),)))


def _subtract_claimed(shares: Sequence[_Share], facts: NodeDevices, holds: Holds) -> None:
    """Subtract devices of claims without pods that have cells; a device of several claims counts once."""
    seen: set[tuple[str, str, str]] = set()
    for _, claim in sorted(facts.claims.items()):
        if any(holds(uid) for uid, _ in claim.pods):
            continue
        for device in claim.devices:
            place = (device.driver, device.pool, device.name)
            own = [share for share in shares if share.kind.device_class == device.device_class]
            if own and place not in seen:
                seen.add(place)
                _occupy(own, claim, _index_of(device, facts))


def _occupy(shares: Sequence[_Share], claim: ClaimUse, index: int) -> None:
    if any(index in share.known for share in shares):
        return
    for share in shares:
        if share.left and share.kind.per_leaf == 1 and index in share.indices:
            share.known.add(index)
            _note(share, claim)
            return
    for share, part in _divide(1, shares):
        share.counted += part
        _note(share, claim)


def _note(share: _Share, claim: ClaimUse) -> None:
    pods = tuple((uid, claim.namespace, name) for uid, name in claim.pods)
    by = ", ".join(f"{claim.namespace}/{name}" for _, name in claim.pods) or f"claim {claim.namespace}/{claim.name}"
    if share.used and share.used[-1].is_claim and share.used[-1].by == by:
        share.used[-1] = Used(by, share.used[-1].count + 1, pods, is_claim=True)
    else:
        share.used.append(Used(by, 1, pods, is_claim=True))


def _divide(count: int, shares: Sequence[_Share]) -> list[tuple[_Share, int]]:
    """Divide `count` devices among types as the module says; types that get none are left out."""
    total = sum(share.left for share in shares)
    count = max(0, min(count, total))
    parts = {id(share): count * share.left // total for share in shares if share.left}
    rest = count - sum(parts.values())
    by_remainder = sorted(shares, key=lambda share: (-(count * share.left % max(total, 1)), share.kind.leaf_type))
    for share in by_remainder[:rest]:
        parts[id(share)] += 1
    return [(share, part) for share in shares if (part := parts.get(id(share), 0))]


def _published(device_class: str, facts: NodeDevices, classes: Mapping[str, Selector]) -> list[Published] | None:
    """The devices of a class in the ResourceSlices of a node; None if there are none, or not all slices yet."""
    selector = classes.get(device_class)
    if selector is None or not selector.driver:
        return None
    own = [each for each in facts.slices.values() if each.driver == selector.driver]
    found: list[Published] = []
    for pool in sorted({each.pool for each in own}):
        newest = max(each.generation for each in own if each.pool == pool)
        current = [each for each in own if each.pool == pool and each.generation == newest]
        if len(current) < current[0].slice_count:
            return None
        found += [device for each in current for device in each.devices if selector.kind in ("", device.kind)]
    return sorted(found, key=lambda device: (device.index, device.name)) or None


def _index_of(device: Allocated, facts: NodeDevices) -> int:
    """The node's number for a device, -1 if unknown."""
    for each in facts.slices.values():
        if (each.driver, each.pool) == (device.driver, device.pool):
            for published in each.devices:
                if published.name == device.name and published.index >= 0:
                    return published.index
    return device.index


Place = tuple[str, str]
"""(node, leaf cell type)."""


class Losses:
    """`current` has each loss, by node and leaf cell type; `layout` has all leaf cells."""

    def __init__(self, topology: Topology, cluster: ClusterSpec, rules: PodRules) -> None:
        self.current: dict[Place, Loss] = {}
        self.layout = Layout(topology, cluster, rules)
        self._by_node: dict[str, list[Loss]] = {}
        self._reporting: dict[str, set[str]] = {kind.leaf_type: set() for kind in self.layout.kinds}

    def settle(
        self,
        core: Core,
        nodes: Mapping[str, NodeDevices],
        classes: Mapping[str, Selector],
        changed: Iterable[str],
        holds: Holds,
    ) -> list[Loss]:
        """Compute the losses of changed nodes and tell the core; returns the changed losses.

        Restored leaf cells are told first. Cost O(devices and pods of these nodes); O(nodes) when the first node of a
        type begins to report its devices, or the last one ceases to.
        """
        before: dict[str, list[Loss]] = {}
        for node in sorted(self._affected(nodes, classes, changed)):
            found = losses_of(self.layout, node, nodes.get(node, NOTHING), classes, self._is_reported, holds)
            known = self._by_node.get(node, [])
            if found != known:
                before[node] = known
                self._by_node[node] = found
                if not found:
                    del self._by_node[node]
        return self._tell(core, before)

    def retell(self, core: Core, node: str) -> None:
        """Have the core choose the lost leaf cells of a node again, after its pods came or went."""
        for loss in self._by_node.get(node, ()):
            core.set_lost(node, loss.leaf_type, loss.lost_count, loss.known)

    def _is_reported(self, leaf_type: str) -> bool:
        return bool(self._reporting[leaf_type])

    def _affected(
        self, nodes: Mapping[str, NodeDevices], classes: Mapping[str, Selector], changed: Iterable[str]
    ) -> set[str]:
        """The configured nodes that changed, or that depend on a changed node."""
        affected = set()
        for node in changed:
            facts = nodes.get(node, NOTHING)
            for kind, _ in self.layout.kinds_of(node):
                affected.add(node)
                reporting = self._reporting[kind.leaf_type]
                was_reported = bool(reporting)
                (reporting.add if reports(kind, facts, classes) else reporting.discard)(node)
                if was_reported != bool(reporting):
                    affected.update(name for name in self.layout.nodes_of(kind.leaf_type) if name in nodes)
        return affected

    def _tell(self, core: Core, before: Mapping[str, list[Loss]]) -> list[Loss]:
        told: list[tuple[int, str, str, int, tuple[int, ...]]] = []
        others = []
        for node, known in before.items():
            old = {loss.leaf_type: loss for loss in known}
            new = {loss.leaf_type: loss for loss in self._by_node.get(node, ())}
            for leaf_type in sorted(old.keys() | new.keys()):
                was, now = old.get(leaf_type), new.get(leaf_type)
                if now is None:
                    del self.current[node, leaf_type]
                elif now != was:
                    self.current[node, leaf_type] = now
                    others.append(now)
                lost_before, known_before = (was.lost_count, was.known) if was is not None else (0, ())
                lost, known_now = (now.lost_count, now.known) if now is not None else (0, ())
                if (lost, known_now) != (lost_before, known_before):
                    told.append((lost - lost_before, node, leaf_type, lost, known_now))
        for _, node, leaf_type, lost, known_now in sorted(told, key=lambda each: (each[0] > 0, each[1:3])):
            core.set_lost(node, leaf_type, lost, known_now)
        return others


NAMED = 3
"""Nodes or users that a text names; the others are counted."""


def of_pod(loss: Loss, used: Used) -> str:
    """The text for the pod that uses devices without cells."""
    return (
        f"uses {used.count} {loss.resource} of {loss.node} that hived has not given it: "
        f"{loss.lost_count} of the node's {counted(loss.leaf_count, loss.leaf_type)} cannot be had"
    )


def of_node(loss: Loss) -> str:
    """The text for a node that lacks devices: its lost leaf cells."""
    return (
        f"allocatable {loss.offered} of {loss.configured} {loss.resource}: {loss.lost_count} of "
        f"{counted(loss.leaf_count, loss.leaf_type)} cannot be had"
    )


def in_short(loss: Loss) -> str:
    """The reason for a node's lost leaf cells."""
    parts = []
    if loss.missing:
        devices = "device" if loss.missing == 1 else f"{loss.missing} devices"
        parts.append(f"{devices} missing: allocatable {loss.offered} of {loss.configured} {loss.resource}")
    if loss.used:
        parts.append(f"{first_of([f'{used.count} used by {used.by}' for used in loss.used])} (not placed by hived)")
    return "; ".join(parts)


def reported(loss: Loss) -> LostDevices:
    """The loss as the HTTP API shows it."""
    users = [DeviceUser(used.by, used.count, used.is_claim) for used in loss.used]
    return LostDevices(
        loss.node,
        loss.leaf_type,
        loss.resource,
        loss.leaf_count,
        loss.lost_count,
        [*loss.known],
        loss.missing,
        users,
        in_short(loss),
    )


def first_of(texts: Sequence[str]) -> str:
    """The first few texts, joined."""
    rest = len(texts) - NAMED
    return ", ".join(texts[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
