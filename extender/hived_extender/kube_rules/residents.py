"""The pods that have a node, the usage of nodes, and why a node cannot take a pod beside them.

Beside the rules of `nodes`, host ports, free resources, topology spread, affinity and anti-affinity count. The order
and the texts are kube-scheduler's own.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from hived_config.selectors import Selector, matches
from hived_extender.kube_rules.demands import NamespaceLabels, PodTerm, RuledPod, SpreadConstraint
from hived_extender.kube_rules.nodes import NO_MATCH, RuledNode, fits_empty, shortages
from hived_extender.kube_rules.selectors import PODS

_KEPT_QUESTIONS = 64

_MOST_OF_NODE = 2**62
"""Of a resource: more counts as this much, which fits into 64 bits."""


class Resident(msgspec.Struct, frozen=True):
    """A pod and its node; one that `is_leaving` still uses the node, but does not count for topology spread.

    One that `has_cells`, or is lent, may be made to leave for others. `standing` says who may displace one without.
    """

    node: str
    pod: RuledPod
    is_leaving: bool = False
    has_cells: bool = True
    standing: "Standing | None" = None

    @property
    def is_lent(self) -> bool:
        """Has it no cells, and leaves for any owner of some?"""
        return self.standing is not None and self.standing.is_lent


class Standing(msgspec.Struct, frozen=True):
    """A pod as kube-scheduler's preemption sees it: its Kubernetes priority, and how long it has to leave.

    A static pod is never displaced: its kubelet runs it in any case. A lent one leaves for any owner of cells, whatever
    its Kubernetes priority.
    """

    name: str
    priority: int = 0
    grace_s: float = 0.0
    is_static: bool = False
    is_lent: bool = False


class _Usage:
    """The amount of each resource that pods request of each node, in `selectors.units`.

    Authors of pods make up names of resources. So memory grows with the requests of pods, not with names times nodes.
    Only the resources asked about last have an array, with an amount for each node.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._rows = {name: row for row, name in enumerate(names)}
        self._of: dict[str, dict[str, int]] = {}  # by resource and node; nothing is 0
        self._kept: OrderedDict[str, npt.NDArray[np.int64]] = OrderedDict()

    def order(self, names: Sequence[str]) -> None:
        """Arrays are in the order of other nodes from now on."""
        self._rows = {name: row for row, name in enumerate(names)}
        self._kept.clear()

    def add(self, node: str, requests: Iterable[tuple[str, int]], sign: int) -> None:
        """A pod has come to a node, or, with -1, is gone. Cost O(its resources)."""
        row = self._rows.get(node)
        for resource, count in requests:
            used = self._of.setdefault(resource, {})
            amount = used.get(node, 0) + sign * count
            if amount:
                used[node] = amount
            else:
                used.pop(node, None)
            if not used:
                del self._of[resource]
            kept = self._kept.get(resource)
            if kept is not None and row is not None:
                kept[row] = min(amount, _MOST_OF_NODE)

    def on(self, node: str) -> Mapping[str, int]:
        """The amounts that pods request of a node, by resource. Cost O(resources that any pod requests)."""
        return {resource: used[node] for resource, used in self._of.items() if node in used}

    def array(self, resource: str, node_count: int) -> npt.NDArray[np.int64]:
        """int64, shape (node_count,): the amounts requested of the first configured nodes. Not to be changed.

        Cost O(nodes of which it is requested), and an array, at first; then O(1).
        """
        kept = self._kept.get(resource)
        if kept is None or len(kept) < node_count:
            kept = self._kept[resource] = np.zeros(max(len(self._rows), node_count), np.int64)
            for node, amount in self._of.get(resource, {}).items():
                row = self._rows.get(node)
                if row is not None:
                    kept[row] = min(amount, _MOST_OF_NODE)
            if len(self._kept) > _KEPT_QUESTIONS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(resource)
        return kept[:node_count]


class Residents:
    """Pods by uid, and their requests of each node. Not thread-safe. A change costs O(resources of the pod)."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        """`names` are the configured nodes; arrays are in their order."""
        self.names = tuple(names)
        self._pods: dict[str, Resident] = {}
        self._on: dict[str, dict[str, Resident]] = {}
        self._in: dict[str, dict[str, Resident]] = {}
        self.repelling: dict[str, Resident] = {}
        """The pods with required anti-affinity by uid; not to be changed."""
        self.repelling_terms: Counter[PodTerm] = Counter()
        """The number of their terms equal to each; not to be changed."""
        self.leaving: dict[str, Resident] = {}
        """The pods that are on their way out, by uid; not to be changed."""
        self.lent: dict[str, Resident] = {}
        """The pods without cells that leave for owners of some, by uid; not to be changed."""
        # asked[namespace, selector] == the pods of that namespace that meet it, kept for the latest questions
        self._asked: OrderedDict[tuple[str, Selector], dict[str, Resident]] = OrderedDict()
        self._used = _Usage(names)
        self._lasting = _Usage(names)  # the same of pods without cells
        self.lasting_changes = 0
        """The number of times that a pod without cells came or went."""
        self.changes = 0
        """The number of times that any pod came, went or changed."""
        self.lent_left = 0
        """The number of times that a lent pod went or changed."""
        self.is_supposing = False

    def order(self, names: Sequence[str]) -> None:
        """Other nodes are configured. Cost O(nodes), whatever the number of pods."""
        self.names = tuple(names)
        self._used.order(names)
        self._lasting.order(names)

    def put(
        self,
        uid: str,
        node: str,
        pod: RuledPod,
        *,
        is_leaving: bool = False,
        has_cells: bool = True,
        standing: Standing | None = None,
    ) -> None:
        """A pod has this node, and is like this now."""
        self.remove(uid)
        self._put(uid, Resident(node, pod, is_leaving, has_cells, standing))

    def _put(self, uid: str, resident: Resident) -> None:
        self.changes += 1
        self._pods[uid] = resident
        node, pod = resident.node, resident.pod
        self._on.setdefault(node, {})[uid] = resident
        self._in.setdefault(pod.namespace, {})[uid] = resident
        if pod.demands.anti_affinity:
            self.repelling[uid] = resident
            self.repelling_terms.update(pod.demands.anti_affinity)
        if resident.is_leaving:
            self.leaving[uid] = resident
        if resident.is_lent:
            self.lent[uid] = resident
        for (namespace, selector), found in self._asked.items():
            if namespace == pod.namespace and matches(selector, pod.labels):
                found[uid] = resident
        self._use(resident, 1)

    def remove(self, uid: str) -> Resident | None:
        """A pod is over, or has no node after all; returns its entry."""
        resident = self._pods.pop(uid, None)
        if resident is None:
            return None
        self.changes += 1
        if self.repelling.pop(uid, None) is not None:
            self._count_off(resident.pod.demands.anti_affinity)
        self.leaving.pop(uid, None)
        self.lent.pop(uid, None)
        for found in self._asked.values():
            found.pop(uid, None)
        for index, key in ((self._on, resident.node), (self._in, resident.pod.namespace)):
            del index[key][uid]
            if not index[key]:
                del index[key]
        self._use(resident, -1)
        self.lent_left += resident.is_lent
        return resident

    def _count_off(self, terms: Iterable[PodTerm]) -> None:
        for term in terms:
            self.repelling_terms[term] -= 1
            if not self.repelling_terms[term]:
                del self.repelling_terms[term]

    @contextmanager
    def supposing(self, gone: Collection[str], come: Mapping[str, tuple[str, RuledPod]]) -> Iterator[None]:
        """For as long as this lasts, some pods have left, and others have come to nodes, by uid.

        Cost O(resources of these pods), and as much again at the end.
        """
        counts = self.changes, self.lasting_changes, self.is_supposing
        self.is_supposing = True
        left = {uid: found for uid in gone if (found := self.remove(uid)) is not None}
        added = [uid for uid in come if uid not in self._pods and uid not in left]
        try:
            for uid in added:
                self.put(uid, *come[uid])
            yield
        finally:
            for uid in added:
                self.remove(uid)
            for uid, resident in left.items():
                self._put(uid, resident)
            self.changes, self.lasting_changes, self.is_supposing = counts

    def yield_place(self, uid: str) -> None:
        """A pod without cells is on its way out for others: its usage does not last."""
        resident = self._pods.get(uid)
        if resident is not None and not resident.has_cells:
            self.remove(uid)
            self._put(uid, msgspec.structs.replace(resident, has_cells=True))

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: str) -> Resident | None:
        """The pod as last put, None if it has no node."""
        return self._pods.get(uid)

    def uids(self) -> tuple[str, ...]:
        """All pods."""
        return tuple(self._pods)

    def on(self, node: str) -> Mapping[str, Resident]:
        """The pods of a node by uid."""
        return self._on.get(node, {})

    def matching(self, namespace: str, selector: Selector) -> Mapping[str, Resident]:
        """The pods of a namespace that meet a selector, by uid. Cost O(pods of the namespace) at first, then O(1)."""
        found = self._asked.get((namespace, selector))
        if found is None:
            pods = self._in.get(namespace, {})
            found = {uid: each for uid, each in pods.items() if matches(selector, each.pod.labels)}
            self._asked[namespace, selector] = found
            if len(self._asked) > _KEPT_QUESTIONS:
                self._asked.popitem(last=False)
        return found

    def meant(self, term: PodTerm, namespace_labels: NamespaceLabels, *, in_doubt: bool = False) -> Iterator[Resident]:
        """The pods that a term of affinity means. `in_doubt` is the answer where a namespace's labels are not known."""
        for namespace in list(self._in):
            if term.selector is not None and term.means_namespace(namespace, namespace_labels, in_doubt=in_doubt):
                yield from self.matching(namespace, term.selector).values()

    def uids_meant(self, term: PodTerm, namespace_labels: NamespaceLabels) -> Iterator[str]:
        """The uids of the pods that a term of anti-affinity means, or may mean."""
        for namespace in list(self._in):
            if term.selector is not None and term.means_namespace(namespace, namespace_labels, in_doubt=True):
                yield from self.matching(namespace, term.selector)

    def used(self, node: str) -> Mapping[str, int]:
        """The amount of each resource that the pods of a node request, and their number (`pods`)."""
        return self._used.on(node)

    def requested(self, resource: str, node_count: int) -> npt.NDArray[np.int64]:
        """int64, shape (node_count,): the amount of a resource that the pods of each configured node request."""
        return self._used.array(resource, node_count).copy()

    def lasting(self, resource: str, node_count: int) -> npt.NDArray[np.int64]:
        """The same of pods without cells, which are never displaced. Not to be changed."""
        return self._lasting.array(resource, node_count)

    def _use(self, resident: Resident, sign: int) -> None:
        requests = ((PODS, 1), *resident.pod.demands.requests)
        self._used.add(resident.node, requests, sign)
        if not resident.has_cells:
            self._lasting.add(resident.node, requests, sign)
            self.lasting_changes += 1


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
    """The reason why a node cannot take a pod. One that `is_final` stands even if pods leave the node."""

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
    """The counted pods of a constraint by value of its label, among nodes that count; `own` is 1 if the pod counts."""

    constraint: SpreadConstraint
    counts: Mapping[str, int]
    own: int

    def allows(self, value: str) -> bool:
        """May the pod go to a node with this value?"""
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
        """Return why the pod cannot come to this node."""
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
    if constraint.selector:  # an empty one counts no pod, as in Kubernetes
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
