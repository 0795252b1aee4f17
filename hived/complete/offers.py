"""Checks a placement against Kubernetes' offer for each pod of a group, and the rules between its pods.

`Limit` and `Together` depend only on the final nodes of all pods. `Spread` is checked at every step; with one such rule
the best order puts each pod into its emptiest domain first. It ends well exactly if the domains differ by little enough
at the end.
"""

import numpy as np
import numpy.typing as npt

from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, IntArray
from hived.values.errors import UserError
from hived.values.events import Limit, Offer, Spread, Together
from hived.values.specs import GroupSpec, MemberSpec, count_pods

Rule = Limit | Spread | Together
AnyArray = npt.NDArray[np.generic]


def check_offer(offer: Offer, group: GroupSpec, node_count: int) -> None:
    """Raise UserError unless every array of an offer has the shape and the kind of values that its rule wants."""
    slots = count_pods(group.members)
    for name, mask in (("nodes", offer.nodes), ("after", offer.after)):
        _expect(mask, f"offer.{name}", "b", (slots, node_count))
    for number, rule in enumerate(offer.rules):
        where = f"offer.rules[{number}]"
        _expect(rule.domain, f"{where}.domain", "i", (node_count,))
        if isinstance(rule, Together):
            _expect(rule.slots, f"{where}.slots", "b", (slots,))
            continue
        if isinstance(rule, Limit):
            _expect(rule.weight, f"{where}.weight", "i", (slots,))
            _expect(rule.room, f"{where}.room", "i", rule.room.shape[:1])
            if slots and rule.weight.min() < 0:
                raise UserError(f"{where}.weight has {rule.weight.min()}, below 0")
        else:
            _expect(rule.counts, f"{where}.counts", "b", (slots,))
            _expect(rule.present, f"{where}.present", "i", rule.present.shape[:1])
            if rule.max_skew < 1:
                raise UserError(f"{where}.max_skew is {rule.max_skew}, below 1")
        domains = len(rule.room if isinstance(rule, Limit) else rule.present)
        if node_count and rule.domain.max() >= domains:
            raise UserError(f"{where}.domain names domain {rule.domain.max()} of {domains}")


def _expect(array: AnyArray, where: str, kind: str, shape: tuple[int, ...]) -> None:
    if array.dtype.kind != kind or array.shape != shape:
        kinds = {"b": "bool", "i": "signed integers"}
        raise UserError(f"{where} has shape {array.shape} of {array.dtype}, expected {kinds[kind]} of shape {shape}")


def slot_nodes(state: State, members: tuple[MemberSpec, ...], physical: IntArray) -> IntArray:
    """The node of each slot of a placement, NO_CELL where its first leaf is not configured any more."""
    starts: list[int] = []
    leaf = 0
    for member in members:
        end = leaf + member.pod_count * member.leaf_cell_count
        starts += range(leaf, end, member.leaf_cell_count)
        leaf = end
    first = physical[starts]
    return np.where(first == NO_CELL, np.int32(NO_CELL), state.arrays.node[first])


def allows(state: State, members: tuple[MemberSpec, ...], physical: IntArray, offer: Offer) -> bool:
    """True if the pods of a new group may be on these cells.

    A node in `after` counts if a group uses a cell of the placement there, and so has to leave. Cost O(leaves), and
    O(pods^2) at worst for several rules of the kind `Spread`.
    """
    if len(offer.nodes) == 1 and not offer.rules and offer.nodes[0, state.arrays.node[physical[0]]]:
        return True
    nodes = slot_nodes(state, members, physical)
    slots = np.arange(len(nodes))
    is_refused = ~offer.nodes[slots, nodes]
    if is_refused.any():
        left = np.zeros(offer.nodes.shape[1], np.bool_)
        left[state.arrays.node[physical[state.cells.using[physical] != NO_GROUP]]] = True
        if (is_refused & ~(offer.after[slots, nodes] & left[nodes])).any():
            return False
    return keeps_rules(offer.rules, nodes)


def may_keep(state: State, members: tuple[MemberSpec, ...], physical: IntArray, offer: Offer) -> bool:
    """True if a group may go on waiting for cells that it reserves. Their users are leaving, so `after` is enough."""
    nodes = slot_nodes(state, members, physical)
    slots = np.flatnonzero(nodes != NO_CELL)
    nodes = nodes[slots]
    return bool((offer.nodes[slots, nodes] | offer.after[slots, nodes]).all())


def are_offered(state: State, members: tuple[MemberSpec, ...], physical: IntArray, offer: Offer) -> bool:
    """True if all nodes of a group's cells are offered as they are."""
    nodes = slot_nodes(state, members, physical)
    slots = np.flatnonzero(nodes != NO_CELL)
    return bool(offer.nodes[slots, nodes[slots]].all())


def keeps_rules(rules: tuple[Rule, ...], nodes: IntArray) -> bool:
    """True if pods can come to these nodes, one per slot, in some order that keeps every rule."""
    spreads = [rule for rule in rules if isinstance(rule, Spread) and rule.counts.any()]
    return all(_holds(rule, nodes) for rule in rules) and (len(spreads) < 2 or _has_order(spreads, nodes))


def _holds(rule: Rule, nodes: IntArray) -> bool:
    """True if a rule holds at the end; for `Spread`, which checks each step, if it could by itself."""
    if isinstance(rule, Limit):
        slots = np.flatnonzero(rule.weight)
    else:
        slots = np.flatnonzero(rule.slots if isinstance(rule, Together) else rule.counts)
    if len(slots) == 0:
        return True
    domains = rule.domain[nodes[slots]]
    if (domains < 0).any():
        return False
    if isinstance(rule, Together):
        return bool((domains == domains[0]).all())
    if isinstance(rule, Limit):
        used = np.zeros(len(rule.room), np.int64)
        np.add.at(used, domains, rule.weight[slots])
        return not ((used > rule.room) & (used > 0)).any()
    present = rule.present + np.bincount(domains, minlength=len(rule.present))
    return bool(present[domains].max() - present.min() <= rule.max_skew)


def _has_order(spreads: list[Spread], nodes: IntArray) -> bool:
    """Look for an order that keeps several `Spread` rules, the pod with the emptiest domains first.

    Complete for one rule, and for domains that lie within each other as nodes do in zones as a rule; no proof beyond.
    Cost O(pods x kinds of pods) in sweeps of arrays.
    """
    pods: dict[tuple[int, ...], int] = {}  # domain of a pod by each rule, -1 where it does not count -> pods
    for slot, node in enumerate(nodes.tolist()):
        kind = tuple(int(rule.domain[node]) if rule.counts[slot] else -1 for rule in spreads)
        pods[kind] = pods.get(kind, 0) + 1
    domains, left = np.array(list(pods)).T, np.array(list(pods.values()))
    present = [rule.present.astype(np.int64) for rule in spreads]
    skews = [min(rule.max_skew, len(nodes) + int(counts.max())) for rule, counts in zip(spreads, present, strict=True)]
    while left.any():
        above = np.array(
            [
                np.where(own < 0, 0, counts[own] + 1 - counts.min() - skew)
                for own, counts, skew in zip(domains, present, skews, strict=True)
            ]
        )
        can = (left > 0) & (above <= 0).all(axis=0)
        if not can.any():
            return False
        best = int(np.where(can, above.sum(axis=0), 1).argmin())
        left[best] -= 1
        for own, counts in zip(domains, present, strict=True):
            if own[best] >= 0:
                counts[own[best]] += 1
    return True
