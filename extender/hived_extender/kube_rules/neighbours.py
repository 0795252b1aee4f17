"""Why nodes cannot take a pod beside the pods that run: the rules of `nodes`, and host ports, free resources, topology
spread, affinity and anti-affinity. The order and the texts are kube-scheduler's own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from hived_extender.kube_rules.demands import NamespaceLabels, RuledPod, SpreadConstraint
from hived_extender.kube_rules.nodes import NO_MATCH, RuledNode, fits_empty, shortages
from hived_extender.kube_rules.residents import Residents
from hived_extender.kube_rules.selectors import matches

NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
NO_SPREAD = "node(s) didn't match pod topology spread constraints"
NO_SPREAD_LABEL = f"{NO_SPREAD} (missing required label)"
NO_AFFINITY = "node(s) didn't match pod affinity rules"
NO_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
NO_ANTI_AFFINITY_OF_OTHERS = "node(s) didn't satisfy existing pods anti-affinity rules"

Nodes = Mapping[str, RuledNode]
Pair = tuple[str, str]
"""A label of nodes, key and value: a domain."""


class Refusal(NamedTuple):
    """Why a node cannot take a pod. One that `is_final` stands even if pods leave the node."""

    reasons: tuple[str, ...]
    is_final: bool


def refusals(
    pod: RuledPod, nodes: Nodes, residents: Residents, namespace_labels: NamespaceLabels
) -> dict[str, Refusal]:
    """The nodes that cannot take the pod now, and why. `nodes` are all nodes that there are.

    Cost O(nodes), and O(pods) for a pod with affinity or spread constraints, or where others have anti-affinity.
    """
    domains = _Domains.of(pod, nodes, residents, namespace_labels)
    found = {name: _refusal(pod, node, residents, domains) for name, node in nodes.items()}
    return {name: refusal for name, refusal in found.items() if refusal is not None}


def takers(
    pod: RuledPod, names: Iterable[str], nodes: Nodes, residents: Residents, namespace_labels: NamespaceLabels
) -> dict[str, Refusal | None]:
    """The same for some of the nodes, with None where the pod can come. A node that is not there is left out."""
    domains = _Domains.of(pod, nodes, residents, namespace_labels)
    return {name: _refusal(pod, nodes[name], residents, domains) for name in names if name in nodes}


def _refusal(pod: RuledPod, node: RuledNode, residents: Residents, domains: "_Domains") -> Refusal | None:
    demands = pod.demands
    closed = node.gate.refusal(demands.tolerations) or ("" if node.matches(demands) else NO_MATCH)
    if closed:
        return Refusal((closed,), is_final=True)
    if demands.ports and _has_port_conflict(pod, node.name, residents):
        return Refusal((NO_PORTS,), is_final=False)
    short = tuple(shortages(demands, node.allocatable, residents.used(node.name)))
    if short:
        return Refusal(short, is_final=not fits_empty(demands, node.allocatable))
    return domains.refusal(node)


def _has_port_conflict(pod: RuledPod, node: str, residents: Residents) -> bool:
    used = [port for other in residents.on(node).values() for port in other.pod.demands.ports]
    return any(port.conflicts(other) for port in pod.demands.ports for other in used)


class _Skew(msgspec.Struct, frozen=True):
    """How many pods that a constraint counts are in each value of its label, among nodes that count; `own` is 1 if the
    pod itself is counted.
    """

    constraint: SpreadConstraint
    counts: Mapping[str, int]
    own: int

    def allows(self, value: str) -> bool:
        """Whether the pod may go to a node with this value."""
        has_enough = len(self.counts) >= self.constraint.min_domains
        least = min(self.counts.values(), default=0) if has_enough else 0
        return self.counts.get(value, 0) + self.own - least <= self.constraint.max_skew


class _Domains(msgspec.Struct, frozen=True):
    """Running pods as seen by a new one: the number in each domain that its affinity counts, and the domains closed by
    its own and others' anti-affinity.
    """

    pod: RuledPod
    near: Mapping[Pair, int]
    is_first: bool
    apart: frozenset[Pair]
    apart_by_others: frozenset[Pair]
    skews: tuple[_Skew, ...]

    @classmethod
    def of(cls, pod: RuledPod, nodes: Nodes, residents: Residents, namespace_labels: NamespaceLabels) -> "_Domains":
        demands = pod.demands
        near = Counter(_near(pod, nodes, residents, namespace_labels))
        means_itself = all(pod.is_meant(term, namespace_labels) for term in demands.affinity)
        apart = frozenset(
            pair
            for term in demands.anti_affinity
            for other in residents.meant(term, namespace_labels, in_doubt=True)
            for pair in _pair(nodes, other.node, term.topology_key)
        )
        apart_by_others = frozenset(
            pair
            for other in residents.repelling.values()
            for term in other.pod.demands.anti_affinity
            if pod.is_meant(term, namespace_labels, in_doubt=True)
            for pair in _pair(nodes, other.node, term.topology_key)
        )
        skews = tuple(_skew(pod, each, nodes, residents) for each in demands.spread)
        return cls(pod, near, not near and means_itself, apart, apart_by_others, skews)

    def refusal(self, node: RuledNode) -> Refusal | None:
        """Why the pod cannot come to this node."""
        for skew in self.skews:
            value = node.labels.get(skew.constraint.topology_key)
            if value is None:
                return Refusal((NO_SPREAD_LABEL,), is_final=True)
            if not skew.allows(value):
                return Refusal((NO_SPREAD,), is_final=False)
        if not self._is_near(node):
            return Refusal((NO_AFFINITY,), is_final=True)
        if self.apart and not self.apart.isdisjoint(node.labels.items()):
            return Refusal((NO_ANTI_AFFINITY,), is_final=False)
        if self.apart_by_others and not self.apart_by_others.isdisjoint(node.labels.items()):
            return Refusal((NO_ANTI_AFFINITY_OF_OTHERS,), is_final=False)
        return None

    def _is_near(self, node: RuledNode) -> bool:
        """A pod that its own affinity means may come first, to a node that has all the labels."""
        keys = [term.topology_key for term in self.pod.demands.affinity]
        if not all(key in node.labels for key in keys):
            return False
        return self.is_first or all(self.near.get((key, node.labels[key]), 0) for key in keys)


def _near(pod: RuledPod, nodes: Nodes, residents: Residents, namespace_labels: NamespaceLabels) -> Iterator[Pair]:
    """The domains of each pod that all terms of the pod's affinity mean."""
    terms = pod.demands.affinity
    for other in residents.meant(terms[0], namespace_labels) if terms else ():
        if all(other.pod.is_meant(term, namespace_labels) for term in terms):
            for term in terms:
                yield from _pair(nodes, other.node, term.topology_key)


def _skew(pod: RuledPod, constraint: SpreadConstraint, nodes: Nodes, residents: Residents) -> _Skew:
    demands, key = pod.demands, constraint.topology_key
    keys = [each.topology_key for each in demands.spread]
    counting = {
        name: node.labels[key]
        for name, node in nodes.items()
        if all(each in node.labels for each in keys)
        and not (constraint.honors_affinity and not node.matches(demands))
        and not (constraint.honors_taints and node.gate.taint_refusal(demands.tolerations))
    }
    counts = dict.fromkeys(counting.values(), 0)
    if constraint.selector:  # an empty one counts nobody, as in Kubernetes
        for other in residents.matching(pod.namespace, constraint.selector).values():
            if not other.is_leaving and other.node in counting:
                counts[counting[other.node]] += 1
    own = constraint.selector is not None and matches(constraint.selector, pod.labels)
    return _Skew(constraint, counts, int(own))


def _pair(nodes: Nodes, node: str, key: str) -> Iterator[Pair]:
    """The domain that a node is in by a label, if it has it."""
    known = nodes.get(node)
    if known is not None and key in known.labels:
        yield key, known.labels[key]
