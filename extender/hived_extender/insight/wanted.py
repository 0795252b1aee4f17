"""The parts of a job as they are tried: what is asked for, and which nodes are offered to whom after a change.

Offers follow the rules of Kubernetes. Nodes that groups leave are offered to the pods that could take them by these
rules. Of nodes that heal, the taints of Kubernetes itself are taken to be gone.
"""

from collections.abc import Sequence
from dataclasses import replace as with_fields

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.cells.topology import BoolArray
from hived.values.events import Limit, Offer, Spread, Together
from hived.values.specs import MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, GroupSpec, MemberSpec, PodRequest
from hived_extender.insight.changes import Change, LeafType, OtherCluster, Pods, Priority
from hived_extender.insight.snapshot import Snapshot
from hived_extender.kube_rules.demands import Demands
from hived_extender.kube_rules.nodes import Gate, static_refusal

_OF_KUBERNETES = "node.kubernetes.io/"
"""Kubernetes itself taints nodes that are not ready or cordoned by such keys."""


class Wanted(msgspec.Struct, frozen=True):
    """One part of a job as it is asked for. `fit` and `demands` are as in `WaitingEntry`."""

    request: PodRequest
    offer: Offer | None
    fit: BoolArray
    demands: tuple[Demands, ...]


def offered(snapshot: Snapshot, wanted: Wanted, opened: set[int], healed: set[int]) -> Offer | None:
    """The offer with nodes that groups have left (`opened`) or that are healthy now, where a pod fits at all."""
    offer = wanted.offer
    if offer is None or not (opened or healed):
        return offer
    nodes = offer.nodes.copy()
    if opened:
        left = sorted(opened)
        nodes[:, left] |= np.broadcast_to(wanted.fit, nodes.shape)[:, left]
    for node in sorted(healed):
        nodes[:, node] |= _would_take(snapshot, wanted, node)
    return with_fields(offer, nodes=nodes, after=offer.after & ~nodes)


def _would_take(snapshot: Snapshot, wanted: Wanted, node: int) -> bool:
    """Could a node take the pods if it were healthy?"""
    name = snapshot.state.topology.node_names[node]
    ruled = snapshot.bad_nodes.get(name)
    if name not in snapshot.bad:  # it has lost devices
        return bool(wanted.fit[:, node].all())
    if ruled is None:  # it is not in Kubernetes, and nobody knows its labels
        return not any(one.node_selector or one.node_terms for one in wanted.demands)
    taints = tuple(one for one in ruled.gate.taints if not one.key.startswith(_OF_KUBERNETES))
    healthy = replace(ruled, gate=Gate(False, taints))
    return not any(static_refusal(demands, healthy) for demands in wanted.demands)


def changed(wanted: Wanted, change: Change) -> Wanted:
    """A part of a job that asks for something else."""
    spec, offer = wanted.request.spec, wanted.offer
    match change:
        case Priority(value):
            spec = with_fields(spec, priority=value)
            if value == OPPORTUNISTIC_PRIORITY:
                spec = with_fields(spec, pinned_cell_id="")
            return replace(wanted, request=with_fields(wanted.request, spec=spec), offer=_clearing(wanted, value))
        case Pods(members):
            return _with_pods(wanted, members)
        case LeafType(name):
            spec = with_fields(spec, leaf_cell_type=name, pinned_cell_id="")
        case OtherCluster(name):
            spec = with_fields(spec, virtual_cluster=name, pinned_cell_id="")
        case _:
            return wanted
    return replace(wanted, request=with_fields(wanted.request, spec=spec), offer=offer)


def _clearing(wanted: Wanted, priority: int) -> Offer | None:
    """The offer at another priority: only a job with a guarantee may have nodes cleared."""
    offer = wanted.offer
    if offer is None or (priority >= MIN_GUARANTEED_PRIORITY) == (
        wanted.request.spec.priority >= MIN_GUARANTEED_PRIORITY
    ):
        return offer
    if priority < MIN_GUARANTEED_PRIORITY:
        return with_fields(offer, after=np.zeros_like(offer.after))
    return with_fields(offer, after=np.broadcast_to(wanted.fit, offer.nodes.shape) & ~offer.nodes)


def _with_pods(wanted: Wanted, members: tuple[MemberSpec, ...]) -> Wanted:
    """The same for other pods, each with the offer of all pods so far."""
    spec = wanted.request.spec
    changed_spec = with_fields(
        spec, leaf_cell_count=members[0].leaf_cell_count, group=GroupSpec(spec.group.name, members)
    )
    offer, count = wanted.offer, slot_count(members)
    if offer is not None:
        shape = count, offer.nodes.shape[1]
        nodes = offer.nodes.all(axis=0)
        after = (offer.nodes | offer.after).all(axis=0) & ~nodes
        rules = tuple(_for_pods(rule, count) for rule in offer.rules)
        offer = Offer(np.broadcast_to(nodes, shape), np.broadcast_to(after, shape), rules)
    fit = _by_all(wanted.fit)
    return replace(wanted, request=with_fields(wanted.request, spec=changed_spec), offer=offer, fit=fit)


def _for_pods(rule: Limit | Spread | Together, count: int) -> Limit | Spread | Together:
    """A rule between pods for so many of them, each of which counts as much as any did."""
    match rule:
        case Limit():
            return with_fields(rule, weight=np.full(count, rule.weight.max(), np.int64))
        case Spread():
            return with_fields(rule, counts=np.full(count, bool(rule.counts.any()), np.bool_))
        case Together():
            return with_fields(rule, slots=np.full(count, bool(rule.slots.any()), np.bool_))


def slot_count(members: Sequence[MemberSpec]) -> int:
    """How many pods there are."""
    return sum(one.pod_count for one in members)


def rows_of(request: PodRequest, fit: BoolArray) -> BoolArray:
    """One row for each slot, or one for all."""
    return fit if len(fit) in (1, slot_count(request.spec.group.members)) else _by_all(fit)


def _by_all(fit: BoolArray) -> BoolArray:
    """One row: the nodes that could take each of the pods."""
    return np.logical_and.reduce(fit, axis=0, keepdims=True)
