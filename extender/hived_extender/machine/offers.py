"""The nodes that Kubernetes offers to waiting pods, as the core's masks.

When kube-scheduler asks about a pod, it names the nodes left by its filters: final, for that moment. Full nodes are
missing although a preemption may empty them, and changed nodes may be offered next time. For both cases the node rules
say which nodes can never fit, whichever pods change. Not thread-safe: the service calls it under its lock.
"""

import dataclasses
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from hived.cells.topology import BoolArray, Topology
from hived.scenario import Asked
from hived.values.events import Offer
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, PodRequest, PodSpec, count_pods, sizes_of
from hived_config.words import counted
from hived_extender.jobs.node_names import Mask
from hived_extender.kube_rules.demands import Demands, NamespaceLabels, RuledPod
from hived_extender.kube_rules.mates import Surroundings, mate_rules
from hived_extender.kube_rules.nodes import NOT_THERE, NodeRules, RuledNode
from hived_extender.kube_rules.residents import Residents, takers
from hived_extender.kube_rules.selectors import CPU, PODS
from hived_extender.machine.certificates import NO_NODE
from hived_extender.machine.pods import KubeOffer, Offered, PodRecord
from hived_extender.machine.shares import Shares

NAMED_RULES = 4
"""Rules that a message names, each with one of its nodes."""

EXPLAINED_NODES = 64
"""Refused nodes of which the rule is looked up for a message."""


MOST_KEPT = 256
"""Kinds of pods of which answers are kept."""


class _Latest(msgspec.Struct, frozen=True):
    """The last offer to pods with equal demands, with that pod's namespace and labels."""

    offered: Offered
    namespace: str
    labels: Mapping[str, str]


class Asking(msgspec.Struct, frozen=True, eq=False):
    """One request of a job that waits, and what Kubernetes says of its pods.

    `fit` has the nodes that could take each pod once others leave: bool, shape (slots, nodes), or one row for all
    slots. `ruled` are the pods of the slots, as far as they are known, or one for all. `rules` names the Kubernetes
    rules that refuse nodes for good, "" if unknown.
    """

    asked: Asked
    fit: BoolArray = np.ones((1, 1), np.bool_)
    ruled: tuple[RuledPod, ...] = ()
    rules: str = ""

    @property
    def demands(self) -> tuple[Demands, ...]:
        """The demands of its pods, each once."""
        return tuple(dict.fromkeys(one.demands for one in self.ruled))

    @property
    def request(self) -> PodRequest:
        """The pod that is asked about."""
        return self.asked.pod

    @property
    def offer(self) -> Offer | None:
        """The nodes offered to it; None for any."""
        return self.asked.offer

    def once_left(self, left: BoolArray) -> Offer | None:
        """The offer once others have left these nodes; bool, shape (nodes,)."""
        offer = self.offer
        if offer is None:
            return None
        nodes = offer.nodes | (self.fit & left)
        return dataclasses.replace(offer, nodes=nodes, after=offer.after & ~nodes)


class Offers:
    """Offers for the configured nodes of a topology; without one, for no nodes."""

    def __init__(
        self,
        topology: Topology | None,
        nodes: Iterable[RuledNode],
        residents: Residents,
        devices: Collection[str],
        before: "Offers | None" = None,
        namespace_labels: NamespaceLabels | None = None,
        spec: ClusterSpec | None = None,
    ) -> None:
        """`nodes` are all existing ones, `residents` the pods with a node, `devices` the resources behind leaf cells.

        `before` are the offers of another configuration, told of perhaps the same nodes. Cost O(nodes + leaf cells),
        for the same nodes O(leaf cells).
        """
        self._names = topology.node_names if topology is not None else ()
        self._index = {name: index for index, name in enumerate(self._names)}
        self._has_topology = topology is not None
        is_same = before is not None and before._has_topology and before._names == self._names
        self._rules: NodeRules = before._rules if before is not None and is_same else NodeRules(self._names)
        for node in () if is_same else nodes:
            self._rules.put(node)
        leaves = np.zeros(0, np.int32) if topology is None else np.diff(topology.arrays.node_leaf_start)
        self._leaf_count = int(leaves.sum())
        self._around = Surroundings(
            self._rules,
            leaves,
            residents,
            devices,
            namespace_labels={} if namespace_labels is None else namespace_labels,
        )
        self.shares = None if spec is None or topology is None else Shares(spec, topology, leaves, devices)
        """The shares of nodes that borrowers get."""
        self.keeps_shares = True
        self._count = 0
        self._changed: npt.NDArray[np.int64] = np.zeros(len(self._names), np.int64)  # `_count` at its last change
        if before is not None and is_same:
            self._count, self._changed = before._count, before._changed
        self._all = np.ones(len(self._names), np.bool_)
        self._none = np.zeros(len(self._names), np.bool_)
        self._everywhere: dict[int, Offer] = {}  # by the number of pods; each is a view of the two rows above
        self._told: dict[Demands, str] = {}
        self._emptied: dict[Demands, Mask] = {}
        self._enough: dict[Demands, Mask] = {}
        self._enough_at = 0  # `Residents.changes` when they were found out
        self._emptied_at = 0  # `Residents.lasting_changes` when they were found out
        self._latest: WeakKeyDictionary[Demands, _Latest] = WeakKeyDictionary()

    # Changes

    def put(self, node: RuledNode) -> bool:
        """Take in a node; returns whether anything changed that rules look at.

        Before the first term no question comes: a term begins with all nodes.
        """
        if not self._has_topology:
            return False
        is_changed = self._rules.put(node)
        if is_changed:
            self._forget_answers()
            self.changed(node.name)
        return is_changed

    def remove(self, name: str) -> None:
        """Remove a node."""
        self._rules.remove(name)
        self._forget_answers()

    def changed(self, node: str) -> None:
        """Note a changed node or a departed pod: pods may be offered it again."""
        index = self._index.get(node)
        if index is not None:
            self._count += 1
            self._changed[index] = self._count

    def take(self, record: PodRecord, mask: Mask | None) -> None:
        """Note the nodes that kube-scheduler offers to a pod; None for all."""
        offered = self.note(record, mask)
        is_probe = mask is not None and int(mask.sum()) <= 1  # all others may follow
        if record.ruled is not None and not is_probe:
            self._latest[record.ruled.demands] = _Latest(offered, record.ruled.namespace, record.ruled.labels)

    def note(self, record: PodRecord, mask: Mask | None) -> Offered:
        """As `take`, for this record alone."""
        mask = self._all if mask is None else mask
        offered, refused = Offered(mask, self._count), record.offer.refused
        if refused is not None and (refused.mask & mask).any():
            refused = Offered(refused.mask & ~mask, refused.moment)
        record.offer = KubeOffer(offered, refused, record.offer.is_doubted)
        return offered

    def refuse(self, record: PodRecord, node: str) -> None:
        """Note that kube-scheduler does not offer a node although no pod is in the way.

        That holds until the node changes. Until then nothing is preempted there for this pod: the cause is unknown.
        """
        refused = self._refused(record)
        refused = self._none.copy() if refused is None else refused.copy()
        refused[self._index[node]] = True
        record.offer = replace(record.offer, refused=Offered(refused, self._count))

    # Questions

    def includes(self, record: PodRecord, node: str) -> bool:
        """True if kube-scheduler offered the node when it last asked about the pod."""
        index = self._index.get(node)
        return index is not None and (latest := record.offer.latest) is not None and bool(latest.mask[index])

    def of(
        self,
        request: PodRequest,
        members: Sequence[PodRecord],
        *,
        exact: PodRecord | None = None,
        candidates: Mask | None = None,
        others_leave: bool = False,
    ) -> Offer | None:
        """The offer to a request with one slot for each of `members`, or whose first member speaks for all slots.

        kube-scheduler asks about the pod `exact` now. Other pods count with the last offer to equal pods, plus nodes
        changed since. None if the pods may use any node, or are more than the leaf cells. Cost O(slots x nodes), and
        O(slots + nodes) if pods are equal and were not asked about one by one.

        candidates : the nodes that kube-scheduler could clear by preempting; it has just found no other
        others_leave : also for opportunistic pods, which preempt nothing
        """
        spec = request.spec
        if self._is_too_large(spec) or (spec.ignore_suggested_nodes and not self._is_borrower(spec)):
            return None
        rows: dict[Hashable, tuple[Mask, Mask]] = {}
        kinds = [self._kind(record, exact) for record in members]
        for kind, record in zip(kinds, members, strict=True):
            if kind not in rows:
                mask = self._nodes(record, exact)
                if candidates is not None:
                    mask = mask & ~candidates
                clears = others_leave or spec.priority > OPPORTUNISTIC_PRIORITY
                rows[kind] = mask, self._clearable(record, candidates) > mask if clears else self._none
        found = [rows[kind] for kind in kinds]
        nodes, after = [mask for mask, _ in found], [mask for _, mask in found]
        sizes = sizes_of(spec.group.members)
        if self._is_borrower(spec):
            if spec.ignore_suggested_nodes:
                nodes = [self._all] * len(nodes)
            nodes = self._within_share(nodes, members, sizes)
            if spec.ignore_suggested_nodes and all(mask.all() for mask in nodes):
                return None
        if len(sizes) != len(members):
            count = len(sizes)
            nodes, after, members = nodes[:1] * count, after[:1] * count, [members[0]] * count
        pods = [record.ruled for record in members if record.ruled is not None]
        offer = Offer(_rows(nodes), _rows(after))
        if not len(pods) == len(sizes) > 1:
            return offer
        emptied = np.asarray(offer.after.any(axis=0) & ~offer.nodes.any(axis=0))
        return dataclasses.replace(offer, rules=mate_rules(pods, sizes, replace(self._around, emptied=emptied)))

    def once_left(self, request: PodRequest, members: Sequence[PodRecord], before: Offer, left: Mask) -> Offer:
        """The earlier offer `before`, while `Residents.supposing` has pods leave some nodes.

        left : bool, shape (nodes,); their nodes. All nodes are checked for a pod with rules about its neighbours.
        """
        rows: dict[Hashable, Mask] = {}
        found: list[Mask] = []
        sizes, residents = sizes_of(request.spec.group.members), self._around.residents
        for slot in range(len(sizes)):
            record = members[slot] if len(members) == len(sizes) else members[0]
            key = self._kind(record), before.nodes[slot].tobytes() if len(members) > 1 else b""
            if key not in rows:
                ruled, nodes = record.ruled, before.nodes[slot]
                again = left
                if ruled is not None and (ruled.demands.has_neighbour_rules or residents.repelling):
                    again = self._all
                rows[key] = (nodes & ~left) | self._room_now(record, again & self.could_clear(record, before, slot))
            found.append(rows[key])
        pods = [record.ruled for record in members if record.ruled is not None]
        offer = Offer(_rows(found), np.zeros((len(sizes), len(self._names)), np.bool_))
        if not len(pods) == len(sizes) > 1:
            return offer
        return dataclasses.replace(offer, rules=mate_rules(pods, sizes, self._around))

    def could_clear(self, record: PodRecord, offer: Offer, slot: int) -> Mask:
        """The nodes that no rule forbids the pod for good, whatever runs there now.

        For a pod with rules that only kube-scheduler knows, only nodes that it offers.
        """
        if record.ruled is None:
            return self._all
        if record.ruled.demands.beyond:
            return np.asarray((offer.nodes[slot] & self._offered_last(record)) | offer.after[slot])
        mask, refused = self._rules.mask(record.ruled.demands), self._refused(record)
        return mask if refused is None else self._none

    def _offered_last(self, record: PodRecord) -> Mask:
        """The nodes in the last offer to the pod; none before."""
        return self._none if record.offer.latest is None else record.offer.latest.mask

    def refusals_on(self, pod: RuledPod, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The reasons why Kubernetes' rules refuse the pod some nodes now; () for nodes that it may use."""
        around = self._around
        found = takers(pod, nodes, self._rules.present, around.residents, around.namespace_labels)
        return {name: () if refusal is None else refusal.reasons for name, refusal in found.items()}

    def refusal_in_turn(self, pods: Sequence[tuple[RuledPod, str]]) -> tuple[str, tuple[str, ...]] | None:
        """A node that would refuse its pod in any order, with reasons; None if all would be taken. Missing nodes
        refuse.
        """
        placed: dict[str, tuple[str, RuledPod]] = {}
        while pods:
            waiting: list[tuple[RuledPod, str]] = []
            first: tuple[str, tuple[str, ...]] | None = None
            for pod, node in pods:
                with self._around.residents.supposing((), placed):
                    refusal = self.refusals_on(pod, [node]).get(node, (NOT_THERE,))
                if refusal == ():
                    placed[f"#{len(placed)}"] = node, pod
                else:
                    first = first or (node, refusal)
                    waiting.append((pod, node))
            if len(waiting) == len(pods):
                return first
            pods = waiting
        return None

    def take_beside(self, records: Sequence[PodRecord], placed: Mapping[str, tuple[str, RuledPod]]) -> bool:
        """True if nodes would take all pods without cells, beside pods at their places (by uid).

        The largest choose first, each the node with the least CPU left, so it may miss another solution. Cost O(pods x
        nodes) of array work.
        """
        residents, come = self._around.residents, dict(placed)
        for record in sorted(records, key=_cpu, reverse=True):
            if record.ruled is None:
                continue
            with residents.supposing((), come):
                mask = self._nodes(record, None)
                left = self._rules.allocatable(CPU) - residents.requested(CPU, len(self._names))
            if not mask.any():
                return False
            fullest = int(np.where(mask, left, np.iinfo(np.int64).max).argmin())
            come[record.uid] = self._names[fullest], record.ruled
        return True

    @property
    def pods_moment(self) -> Hashable:
        """A value that changes whenever other pods have nodes."""
        return self._around.residents.changes

    @property
    def nodes(self) -> Mapping[str, RuledNode]:
        """All existing nodes, by name; not to be changed."""
        return self._rules.present

    @property
    def namespace_labels(self) -> NamespaceLabels:
        """The known labels of namespaces."""
        return self._around.namespace_labels

    @property
    def changes(self) -> int:
        """A number that changes with any node."""
        return self._count

    def excluding(self, pod: RuledPod) -> list[str]:
        """The uids of pods that required anti-affinity, its own or theirs, keeps apart from a pod."""
        residents, labels = self._around.residents, self._around.namespace_labels
        found = dict[str, None]()
        for term in pod.demands.anti_affinity:
            found.update(dict.fromkeys(residents.uids_meant(term, labels)))
        for uid, other in residents.repelling.items():
            if any(pod.is_meant(term, labels, in_doubt=True) for term in other.pod.demands.anti_affinity):
                found[uid] = None
        return list(found)

    def everywhere(self, request: PodRequest) -> Offer | None:
        """All nodes for each pod of a request; None as in `of`. Cost O(1)."""
        if request.spec.ignore_suggested_nodes or self._is_too_large(request.spec):
            return None
        slots = count_pods(request.spec.group.members)
        if slots not in self._everywhere:
            shape = slots, len(self._names)
            self._everywhere[slots] = Offer(np.broadcast_to(self._all, shape), np.broadcast_to(self._none, shape))
        return self._everywhere[slots]

    def could_take(self, members: Sequence[PodRecord]) -> Mask:
        """The nodes that could take each of these pods once others leave; bool, shape (members, nodes).

        For pods with rules that only kube-scheduler knows, only nodes that it offers. For a borrower, only nodes on
        which it asks for at most its cells' share.
        """
        rows: dict[Hashable, Mask] = {}
        keys = [(self._kind(one), self._borrowed(one)) for one in members]
        for one, key in zip(members, keys, strict=True):
            if key not in rows:
                mask = self._none if one.ruled and one.ruled.demands.beyond else self._fit(one)
                if key[1][0] and one.ruled is not None and self.shares is not None:
                    mask = mask & self.shares.allow(self._rules, one.ruled.demands, *key[1])
                rows[key] = mask
        return _rows([rows[key] for key in keys])

    def asking(self, asked: Asked, members: Sequence[PodRecord], rules: str = "") -> Asking:
        """A request of these pods as a part of a job that waits. Cost as of `could_take`."""
        ruled = tuple(one.ruled for one in members if one.ruled is not None)
        return Asking(asked, self.could_take(members), ruled, rules)

    def has_node(self, record: PodRecord) -> bool:
        """True if some node is not forbidden to the pod for good by node rules."""
        demands = record.ruled.demands if record.ruled is not None else None
        return demands is None or bool(self._rules.mask(demands).any())

    def moment(self, members: Iterable[PodRecord]) -> Hashable:
        """A value that changes whenever the offer to these pods may."""
        known = {record.ruled.demands: None for record in members if record.ruled is not None}
        latest = [self._latest[demands].offered.mask.tobytes() for demands in known if demands in self._latest]
        doubted = [record.offer.is_doubted for record in members]
        return id(self), self._count, tuple(doubted), hash(tuple(latest))

    def refusals(self, record: PodRecord) -> str:
        """A short list of rules that forbid the pod nodes for good; "" if none is known."""
        demands = record.ruled.demands if record.ruled is not None else None
        if over := self.over_share(record):
            return over
        if demands is None or (mask := self._rules.mask(demands)).all():
            return ""
        if demands not in self._told:
            if len(self._told) >= MOST_KEPT:
                self._told.clear()
            refused = np.flatnonzero(~mask).tolist()
            by_rule: dict[str, list[str]] = {}
            for index in islice(refused, EXPLAINED_NODES):
                name = self._names[index]
                by_rule.setdefault(self._rules.refusal(demands, name), []).append(name)
            told = [f"{rule}: {_listed(nodes)}" for rule, nodes in islice(by_rule.items(), NAMED_RULES)]
            said = f"{len(refused)} of {counted(len(self._names), 'node')} cannot take it ({'; '.join(told)})"
            unmet = () if mask.any() else self._unmet(demands)
            self._told[demands] = f"{NO_NODE}: {' and '.join(unmet)}" if unmet else said
        return self._told[demands]

    def _unmet(self, demands: Demands) -> list[str]:
        terms = demands.node_terms or ()
        wanted = (*demands.node_selector, *(terms[0].labels if len(terms) == 1 else ()))
        nodes = [node for name in self._names if (node := self._rules.get(name)) is not None]
        return [one.text for one in wanted if not any(one.holds(node.labels.get(one.key)) for node in nodes)]

    def _is_borrower(self, spec: PodSpec) -> bool:
        return self.keeps_shares and self.shares is not None and spec.priority <= OPPORTUNISTIC_PRIORITY

    def _within_share(self, nodes: Sequence[Mask], members: Sequence[PodRecord], sizes: Sequence[int]) -> list[Mask]:
        """The nodes of each pod on which it asks for at most its cells' share.

        The largest size counts if one pod speaks for all.
        """
        kept: dict[object, Mask] = {}
        found: list[Mask] = []
        for slot, (mask, record) in enumerate(zip(nodes, members, strict=True)):
            if record.ruled is None or self.shares is None:
                found.append(mask)
                continue
            cells = sizes[slot] if len(sizes) == len(members) else max(sizes)
            leaf_type = self._borrowed(record)[1]
            key = id(mask), record.ruled.demands, cells, leaf_type
            if key not in kept:
                kept[key] = mask & self.shares.allow(self._rules, record.ruled.demands, cells, leaf_type)
            found.append(kept[key])
        return found

    def over_share(self, record: PodRecord) -> str:
        """The reason why a borrowing pod asks for too much beside its cells; "" if some node has enough."""
        cells, leaf_type = self._borrowed(record)
        if not cells or record.ruled is None or self.shares is None:
            return ""
        demands = record.ruled.demands
        fit = self._rules.mask(demands)
        if not fit.any() or (fit & self.shares.allow(self._rules, demands, cells, leaf_type)).any():
            return ""
        node = int(np.flatnonzero(fit)[0])
        wanted, most = self.shares.excess(self._rules, demands, cells, leaf_type, node)
        return (
            f"it borrows {counted(cells, 'GPU')}, which come with at most {most} of {self._names[node]}, and asks for "
            f"{wanted}; ask for less, for more GPUs, or at a guaranteed priority"
        )

    def _borrowed(self, record: PodRecord) -> tuple[int, str]:
        """(leaf cells whose share limits the pod, their type or "" for any); 0 cells for a pod with its own."""
        _, priority = record.claim
        if self.keeps_shares and priority <= OPPORTUNISTIC_PRIORITY:
            if record.request is not None:
                return record.request.spec.leaf_cell_count, record.request.spec.leaf_cell_type
            if record.ask is not None:
                return record.ask.leaf_cell_count, record.ask.leaf_cell_type
        return 0, ""

    def _is_too_large(self, spec: PodSpec) -> bool:
        """True if the group, of any size in its spec, has more pods than the cluster could have."""
        return count_pods(spec.group.members) > self._leaf_count

    def _nodes(self, record: PodRecord, exact: PodRecord | None) -> Mask:
        if record.offer.latest is not None and record is exact:
            return record.offer.latest.mask
        offered, refused = self._offered(record), self._refused(record)
        if offered is None:
            return self._room_now(record, self._fit(record)) if refused is None else self._none
        changed = self._changed > offered.moment
        mask = offered.mask
        if changed.any():
            mask = mask | (changed & self._fit(record))
        mask = self._room_now(record, mask)
        return mask if refused is None else mask & ~refused

    def _offered(self, record: PodRecord) -> Offered | None:
        """The latest offer to the pod or an equal one; None without one."""
        offered, ruled = record.offer.latest, record.ruled
        if ruled is None or ruled.demands.beyond:
            return offered
        latest = self._latest.get(ruled.demands)
        is_later = latest is not None and (offered is None or latest.offered.moment > offered.moment)
        return latest.offered if latest is not None and is_later and self._are_alike(ruled, latest) else offered

    def _kind(self, record: PodRecord, exact: PodRecord | None = None) -> Hashable:
        """A key equal for pods that are offered the same nodes."""
        if record is exact or record.offer.refused is not None:
            return record.uid
        offered, ruled = self._offered(record), record.ruled
        key = None if offered is None else (id(offered.mask), offered.moment)
        return key if ruled is None else (ruled.demands, self._meant_by(ruled), key)

    def _are_alike(self, pod: RuledPod, other: "_Latest") -> bool:
        """True if two pods with equal demands get equal offers despite other labels or namespaces."""
        if pod.labels == other.labels and pod.namespace == other.namespace:
            return True
        return self._meant_by(pod) == self._meant_by(RuledPod(other.namespace, other.labels, pod.demands))

    def _meant_by(self, pod: RuledPod) -> Hashable:
        """The rule terms, own and others', that match a pod's labels and namespace.

        Cost O(1) without terms, else O(terms that differ).
        """
        demands, terms = pod.demands, self._around.residents.repelling_terms
        if not (terms or demands.has_neighbour_rules):
            return None
        labels = self._around.namespace_labels
        return (
            frozenset(term for term in terms if pod.is_meant(term, labels, in_doubt=True)),
            tuple(pod.is_meant(term, labels) for term in demands.affinity),
            tuple((pod.namespace, pod.is_counted(each, pod.namespace)) for each in demands.spread),
        )

    def _fit(self, record: PodRecord) -> Mask:
        """The nodes not forbidden for good, with room beside pods that are never evicted, less known refusals."""
        mask = self._all
        if record.ruled is not None:
            mask = self._rules.mask(record.ruled.demands)
            if self._around.residents.lasting_changes:
                mask = mask & self._large_enough(record.ruled.demands)
        refused = self._refused(record)
        return mask if refused is None else mask & ~refused

    def _room_now(self, record: PodRecord, mask: Mask) -> Mask:
        """The nodes of a mask that could take the pod beside all present pods.

        Cost O(nodes) of array work; one look at each node for a pod with host ports or rules about its neighbours, or
        that others keep away from theirs.
        """
        if record.ruled is None or not mask.any():
            return mask
        demands, residents = record.ruled.demands, self._around.residents
        mask = mask & self._enough_now(demands)
        if not (demands.ports or demands.has_neighbour_rules or residents.repelling):
            return mask
        return mask & self._took(record.ruled, mask)

    def _enough_now(self, demands: Demands) -> Mask:
        """The nodes with enough resources beside present pods (rule 12.11). Cost O(1) until a pod comes or goes."""
        residents, count = self._around.residents, len(self._names)
        if not residents.is_supposing:
            if self._enough_at != residents.changes or len(self._enough) >= MOST_KEPT:
                self._enough_at = residents.changes
                self._enough.clear()
            if (known := self._enough.get(demands)) is not None:
                return known
        mask = self._all.copy()
        for resource, wanted in ((PODS, 1), *demands.requests):
            mask &= self._rules.allocatable(resource) - residents.requested(resource, count) >= wanted
        if not residents.is_supposing:
            self._enough[demands] = mask
        return mask

    def _took(self, pod: RuledPod, mask: Mask) -> Mask:
        """The nodes of a mask that Kubernetes' rules allow a pod now."""
        names = [self._names[index] for index in np.flatnonzero(mask).tolist()]
        found = takers(pod, names, self._rules.present, self._around.residents, self._around.namespace_labels)
        taken = self._none.copy()
        taken[[self._index[name] for name, refusal in found.items() if refusal is None]] = True
        return taken

    def _clearable(self, record: PodRecord, candidates: Mask | None) -> Mask:
        """The nodes on which others may be preempted for a pod.

        Rules that only kube-scheduler knows, such as those of volumes, count by its own candidates.
        """
        if self._refused(record) is not None:
            return self._none
        if record.ruled is not None and record.ruled.demands.beyond:
            return self._none if candidates is None else candidates & self._fit(record)
        return self._fit(record)

    def _large_enough(self, demands: Demands) -> Mask:
        """The nodes with enough resources beside pods without cells. Cost O(1) until one comes or goes."""
        residents = self._around.residents
        if self._emptied_at != residents.lasting_changes or len(self._emptied) >= MOST_KEPT:
            self._emptied_at = residents.lasting_changes
            self._emptied.clear()
        if demands not in self._emptied:
            mask, count = self._all.copy(), len(self._names)
            for resource, wanted in ((PODS, 1), *demands.requests):
                mask &= self._rules.allocatable(resource) - residents.lasting(resource, count) >= wanted
            self._emptied[demands] = mask
        return self._emptied[demands]

    def _forget_answers(self) -> None:
        self._told.clear()
        self._emptied.clear()
        self._enough.clear()

    def _refused(self, record: PodRecord) -> Mask | None:
        """The unchanged nodes refused for an unknown reason."""
        refused = record.offer.refused
        if refused is None:
            return None
        mask: Mask = refused.mask & (self._changed <= refused.moment)
        if mask.any():
            return mask
        record.offer = replace(record.offer, refused=None)
        return None


def _rows(masks: Sequence[Mask]) -> Mask:
    """One row for each mask; without a copy if all are equal."""
    first = masks[0]
    if len(masks) == 1:
        return first[np.newaxis]
    if all(mask is first or np.array_equal(mask, first) for mask in {id(mask): mask for mask in masks}.values()):
        return np.broadcast_to(first, (len(masks), len(first)))
    return np.array(masks)


def _cpu(record: PodRecord) -> int:
    return dict(record.ruled.demands.requests).get(CPU, 0) if record.ruled is not None else 0


def _listed(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"
