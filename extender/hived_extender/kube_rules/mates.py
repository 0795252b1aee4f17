"""Rules between the pods of one gang on their nodes, as rules of the core (`hived.values.events`).

kube-scheduler's offer for each pod was made before any mate had a node, so it knows nothing of these. The rules are
never laxer than Kubernetes, and stricter in two cases: a pod that a mate's spread constraint counts is held to it too.
And pods all come together if some need to be near others.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from hived.values.errors import UserError
from hived.values.events import Limit, Spread, Together
from hived_extender.kube_rules.demands import (
    ANY_IP,
    Demands,
    HostPort,
    NamespaceLabels,
    PodTerm,
    RuledPod,
    SpreadConstraint,
)
from hived_extender.kube_rules.nodes import Mask, NodeRules
from hived_extender.kube_rules.residents import Residents

Rule = Limit | Spread | Together
Slots = npt.NDArray[np.bool_]
Weights = npt.NDArray[np.int64]

MOST_RULES = 64
"""Different rules between the pods of one gang: a search costs time for each of them, with each pod."""

MOST_TERMS = 256
"""Different terms of the pods of one gang, and pairs of pods and terms that exclude each other."""

_MOST_COMPARED = 1024
"""Pods of which every pair is looked at."""

_NOBODY = Residents()


class Surroundings(msgspec.Struct, frozen=True):
    """The cluster around the pods of a gang.

    leaf_counts : int32, shape (node_count,); how many leaf cells each configured node has

    devices : resources that leaf cells stand for, which the core counts itself

    emptied : bool, shape (node_count,); nodes that the gang may only use once pods leave them. The requests of pods
        there do not count against the gang: kube-scheduler looks again when they are gone
    """

    nodes: NodeRules
    leaf_counts: npt.NDArray[np.int32]
    residents: Residents = _NOBODY
    devices: Collection[str] = ()
    emptied: Mask | None = None
    namespace_labels: NamespaceLabels = msgspec.field(default_factory=dict)


def mate_rules(pods: Sequence[RuledPod], leaf_counts: Sequence[int], surroundings: Surroundings) -> tuple[Rule, ...]:
    """The rules between pods of one gang, in slot order; `leaf_counts` is how many leaf cells each one takes.

    Empty for a single pod, which the offer describes in full. Raises UserError for more than MOST_RULES rules or
    MOST_TERMS terms. Cost O(slots) for a gang without rules whose pods cannot share a node, else O(slots x distinct
    terms + nodes).
    """
    smallest = sorted(leaf_counts)[:2]
    if len(pods) < 2:
        return ()
    may_share = sum(smallest) <= surroundings.leaf_counts.max(initial=0)
    templates = list({id(pod.demands): pod.demands for pod in pods}.values())
    _check_count(_count_terms(templates), MOST_TERMS)
    rules: list[Rule] = []
    if any(each.has_neighbour_rules for each in templates):
        rules += _apart(pods, surroundings, may_share)
        rules += _near(pods, surroundings)
        rules += _spread(pods, surroundings)
    if may_share:
        rules += _ports(pods, surroundings)
        rules += _shares(pods, np.asarray(leaf_counts, np.int64), templates, surroundings)
    found = tuple(_without_repeats(rules))
    _check_count(len(found), MOST_RULES)
    return found


def _count_terms(templates: Iterable[Demands]) -> int:
    """The number of different terms of pods about others."""
    said: set[object] = set()
    for each in templates:
        said.update(each.anti_affinity, each.spread, each.ports, [each.affinity] if each.affinity else ())
    return len(said)


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise UserError(
            f"the pods of its gang have {count} different rules about each other, at most {most} are possible: let "
            "them share labels, and affinity, spread or host ports that name these, or make the gang smaller"
        )


# ---- anti-affinity


def _apart(pods: Sequence[RuledPod], around: Surroundings, may_share: bool) -> Iterator[Limit]:
    terms = dict.fromkeys(term for pod in pods for term in pod.demands.anti_affinity)
    found: dict[str, list[Weights]] = {}
    for term in terms:
        if not may_share and _are_single_nodes(around.nodes.domains(term.topology_key)):
            continue
        having = _slots(term in pod.demands.anti_affinity for pod in pods)
        meant = _slots(pod.is_meant(term, around.namespace_labels) for pod in pods)
        own = found.setdefault(term.topology_key, [])
        for weight in _conflicts(having, meant):
            own.append(weight)
            _check_count(len(own), MOST_TERMS)
    for key, weights in found.items():
        for weight in _merged(weights):
            yield _limit(around.nodes.domains(key), weight)


def _merged(weights: list[Weights]) -> list[Weights]:
    """One weight if all pods that have any exclude each other, as jobs do that want a domain for themselves."""
    if len(weights) < 2:
        return weights
    all_weights = np.array(weights)
    slots = np.flatnonzero(all_weights.any(axis=0))
    if len(slots) > _MOST_COMPARED:
        return weights
    excludes = np.eye(len(slots), dtype=np.bool_)
    for weight in all_weights[:, slots]:
        excludes[np.ix_(weight == weight.max(), weight > 0)] = True
    if not (excludes | excludes.T).all():
        return weights
    return [np.asarray(all_weights.any(axis=0), np.int64)]


def _conflicts(having: Slots, meant: Slots) -> Iterator[Weights]:
    """Weights, with their highest as the room, under which a pod of `having` and another of `meant` exclude each other
    and no other two do.
    """
    both, only_having, only_meant = having & meant, having & ~meant, meant & ~having
    if both.sum() > 1 and not (only_having.any() or only_meant.any()):
        yield both.astype(np.int64)
    for others in (only_having, only_meant):
        if both.any() and others.any():
            yield _against(both, others)
    few, many = sorted((only_having, only_meant), key=lambda slots: int(slots.sum()))
    if many.any():
        for slot in np.flatnonzero(few):
            yield _against(np.arange(len(few)) == slot, many)


def _against(each: Slots, others: Slots) -> Weights:
    """Each of the first excludes all of both kinds, `others` bear each other."""
    return others + each * int(others.sum())


def _limit(domain: npt.NDArray[np.int32], weight: Weights) -> Limit:
    """A limit with the highest weight as the room of each domain; nodes outside of all domains are free to all."""
    count = int(domain.max(initial=-1)) + 1
    room = np.full(count, weight.max(), np.int64)
    if (domain >= 0).all():
        return Limit(domain, weight, room)
    return Limit(np.where(domain < 0, count, domain).astype(np.int32), weight, np.append(room, weight.sum()))


def _are_single_nodes(domain: npt.NDArray[np.int32]) -> bool:
    count = int(domain.max(initial=-1)) + 1
    return count == int((domain >= 0).sum())


# ---- affinity


def _near(pods: Sequence[RuledPod], around: Surroundings) -> Iterator[Together]:
    """Nothing where pods that run already are meant: kube-scheduler's offer has their domains then."""
    for terms in dict.fromkeys(pod.demands.affinity for pod in pods if pod.demands.affinity):
        running = around.residents.meant(terms[0], around.namespace_labels)
        if any(_is_meant_by_all(each.pod, terms, around) for each in running):
            continue
        having = _slots(pod.demands.affinity == terms for pod in pods)
        meant = _slots(_is_meant_by_all(pod, terms, around) for pod in pods)
        slots = having | meant
        if meant.any() and slots.sum() > 1:
            for key in dict.fromkeys(term.topology_key for term in terms):
                yield Together(around.nodes.domains(key), slots)


def _is_meant_by_all(pod: RuledPod, terms: Sequence[PodTerm], around: Surroundings) -> bool:
    return all(pod.is_meant(term, around.namespace_labels) for term in terms)


# ---- topology spread


def _spread(pods: Sequence[RuledPod], around: Surroundings) -> Iterator[Spread]:
    """A constraint whose selector is missing or empty keeps no pods apart: Kubernetes counts no pod for it."""
    said = dict.fromkeys((pod.namespace, pod.demands, each) for pod in pods for each in pod.demands.spread)
    for namespace, demands, constraint in said:
        if not constraint.selector:
            continue
        counts = _slots(pod.is_counted(constraint, namespace) for pod in pods)
        holders = _slots(pod.demands == demands for pod in pods)
        if counts.sum() > 1 and (counts & holders).any():
            domain, count = around.nodes.spread_domains(demands, constraint)
            # A domain that no node is in keeps the least at 0, as Kubernetes has it when there are too few of them.
            present = np.zeros(count + (count < constraint.min_domains), np.int64)
            for name in _counted(around.residents, constraint, namespace):
                row = around.nodes.find(name)
                if row is not None and domain[row] >= 0:
                    present[domain[row]] += 1
            if len(present) > 1:
                yield Spread(domain[: around.nodes.node_count], counts, present, constraint.max_skew)


def _counted(residents: Residents, constraint: SpreadConstraint, namespace: str) -> Iterator[str]:
    """The node of each pod that runs and counts."""
    for each in residents.matching(namespace, constraint.selector or ()).values():
        if not each.is_leaving:
            yield each.node


# ---- resources that a node has once


def _ports(pods: Sequence[RuledPod], around: Surroundings) -> Iterator[Limit]:
    wanted = dict.fromkeys(port for pod in pods for port in pod.demands.ports)
    numbers = dict.fromkeys((port.protocol, port.port) for port in wanted)
    for protocol, number in numbers:
        ips = [port.ip for port in wanted if (port.protocol, port.port) == (protocol, number)]
        for ip in [each for each in ips if each != ANY_IP] or [ANY_IP]:
            one = HostPort(protocol, number, ip)
            slots = _slots(any(port.conflicts(one) for port in pod.demands.ports) for pod in pods)
            if slots.sum() > 1:
                yield _limit(around.nodes.each_node, slots.astype(np.int64))


def _shares(
    pods: Sequence[RuledPod], leaf_counts: Weights, templates: Sequence[Demands], around: Surroundings
) -> Iterator[Limit]:
    """Limits on resources besides devices, where pods with enough leaf cells on a node could ask for more than there
    is. Pods may make up names of resources, and no array is made for one that no node has.
    """
    together = _most_together(leaf_counts, around.leaf_counts)
    amounts: dict[str, dict[int, int]] = {}
    for each in templates:
        for name, count in each.requests:
            amounts.setdefault(name, {})[id(each)] = count
    for name, of_template in amounts.items():
        if name in around.devices or around.nodes.most_allocatable(name) < min(of_template.values()):
            continue
        weight = np.array([of_template.get(id(pod.demands), 0) for pod in pods], np.int64)
        room = _room(name, around)
        most = np.append(0, np.cumsum(np.sort(weight)[::-1]))[together]
        if ((most > room) & (together > 1) & (room >= weight[weight > 0].min())).any():
            yield Limit(around.nodes.each_node, weight, room)


def _most_together(leaf_counts: Weights, node_leaf_counts: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """The number of the smallest pods for which each node has leaf cells."""
    return np.searchsorted(np.cumsum(np.sort(leaf_counts)), node_leaf_counts, side="right")


def _room(resource: str, around: Surroundings) -> Weights:
    """The amount of a resource that each node has left."""
    used = around.residents.requested(resource, around.nodes.node_count)
    if around.emptied is not None:
        used[around.emptied] = 0
    room: Weights = np.maximum(around.nodes.allocatable(resource) - used, 0)
    return room


# ---- all of them


def _slots(truths: Iterable[bool]) -> Slots:
    return np.fromiter(truths, np.bool_)


def _without_repeats(rules: Iterable[Rule]) -> Iterator[Rule]:
    """The rules without repeats of an earlier one. Cost O(rules x (nodes + slots))."""
    kept: set[tuple[object, ...]] = set()
    for rule in rules:
        fields = (getattr(rule, each) for each in rule.__slots__)
        said = (type(rule), *(each.tobytes() if isinstance(each, np.ndarray) else each for each in fields))
        if said not in kept:
            kept.add(said)
            yield rule
