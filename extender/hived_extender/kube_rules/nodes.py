"""Rules about single nodes: why an empty node cannot take a pod, and which of all nodes can.

Cordon, taints, nodeSelector, node affinity and allocatable amounts count. The texts are kube-scheduler's own, as in its
event FailedScheduling. For all nodes at once, a column has the few values of all nodes as numbers: a test runs once for
each value instead of once for each node.

Each node has a row: the configured ones in their order, then others as they are seen. Rows of deleted nodes stay, and
count as absent.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from hived_config.selectors import Requirement, matches
from hived_extender.jobs.wire import Node
from hived_extender.kube_rules.demands import Demands, SpreadConstraint, Toleration
from hived_extender.kube_rules.selectors import MOST, PODS, NodeTerm, node_matches, units

UNSCHEDULABLE = "node(s) were unschedulable"
NO_MATCH = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS = "Too many pods"

KEPT_KINDS = 1024
"""Taints and allocatable amounts that are kept for nodes to share; a cluster has a few kinds of nodes."""

_KEEPING_AWAY = ("NoSchedule", "NoExecute")


class Taint(NamedTuple):
    """A taint of a node, which keeps pods without a toleration away."""

    key: str
    value: str
    effect: str

    def is_borne(self, tolerations: Sequence[Toleration]) -> bool:
        """Is one of the tolerations for this taint?"""
        return any(self._is_borne(each) for each in tolerations)

    def _is_borne(self, toleration: Toleration) -> bool:
        if toleration.effect not in ("", self.effect) or toleration.key not in ("", self.key):
            return False
        if toleration.operator in ("", "Equal"):
            return toleration.value == self.value
        return toleration.operator == "Exists"


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint for whose toleration a cordon counts for nothing."""


class Gate(NamedTuple):
    """The barriers of a node that would have room: taints other than PreferNoSchedule, and a cordon."""

    is_cordoned: bool
    taints: tuple[Taint, ...]

    def refusal(self, tolerations: Sequence[Toleration]) -> str:
        """Return why pods with these tolerations have to stay away, "" if they need not."""
        if self.is_cordoned and not CORDON.is_borne(tolerations):
            return UNSCHEDULABLE
        return self.taint_refusal(tolerations)

    def taint_refusal(self, tolerations: Sequence[Toleration]) -> str:
        """The same, whether or not the node is cordoned."""
        for taint in self.taints:
            if not taint.is_borne(tolerations):
                return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        return ""


class RuledNode(msgspec.Struct, frozen=True):
    """A node as the rules see it.

    `allocatable` is in `quantities.units`, ascending by name; None as long as no kubelet has reported it, and then
    nothing is held against the node.
    """

    name: str
    labels: Mapping[str, str]
    gate: Gate
    allocatable: tuple[tuple[str, int], ...] | None

    @classmethod
    def of(cls, node: Node) -> "RuledNode":
        """The rules' view of a node. Texts and amounts that many nodes share are kept once."""
        spec, status = node.spec, node.status
        taints = (spec.taints if spec is not None else None) or ()
        allocatable = status.allocatable if status is not None else None
        return cls(
            node.metadata.name,
            {intern(key): intern(value) for key, value in (node.metadata.labels or {}).items()},
            _gate(
                bool(spec is not None and spec.unschedulable),
                tuple(Taint(one.key, one.value or "", one.effect) for one in taints if one.effect in _KEEPING_AWAY),
            ),
            None if allocatable is None else _in_units(tuple(sorted(allocatable.items()))),
        )

    def matches(self, demands: Demands) -> bool:
        """Do nodeSelector and required node affinity allow this node?"""
        return matches(demands.node_selector, self.labels) and node_matches(demands.node_terms, self.name, self.labels)


@lru_cache(KEPT_KINDS)
def _gate(is_cordoned: bool, taints: tuple[Taint, ...]) -> Gate:
    return Gate(is_cordoned, taints)


@lru_cache(KEPT_KINDS)
def _in_units(quantities: tuple[tuple[str, str], ...]) -> tuple[tuple[str, int], ...]:
    """Quantities, ascending by name, in the units of `quantities.units`."""
    return tuple((name, units(name, quantity)) for name, quantity in quantities)


def static_refusal(demands: Demands, node: RuledNode) -> str:
    """Return why the node can never take such a pod, even if it were empty; "" if it can."""
    refusal = node.gate.refusal(demands.tolerations)
    if refusal:
        return refusal
    if not node.matches(demands):
        return NO_MATCH
    return next(shortages(demands, node.allocatable, {}), "")


def shortages(
    demands: Demands, allocatable: Sequence[tuple[str, int]] | None, used: Mapping[str, int]
) -> Iterator[str]:
    """All resources of which a node that pods use so much of has too little, as kube-scheduler calls that."""
    if allocatable is None:
        return
    free = {name: count - used.get(name, 0) for name, count in allocatable}
    if free.get(PODS, 0) < 1:
        yield TOO_MANY_PODS
    for name, count in demands.requests:
        if count > free.get(name, 0):
            yield f"Insufficient {name}"


def fits_empty(demands: Demands, allocatable: Sequence[tuple[str, int]] | None) -> bool:
    """Has an empty node enough of everything?"""
    return not any(shortages(demands, allocatable, {}))


def amount_of(resource: str, allocatable: Sequence[tuple[str, int]] | None) -> int:
    """The amount of a resource that a node has; MOST while it is not known."""
    if allocatable is None:
        return MOST
    return dict(allocatable).get(resource, 0)


V = TypeVar("V", bound=Hashable)

ABSENT = 0
"""The number that stands for "there is no such node"; no test holds for it."""

_KEPT_TESTS = 256


class Column(Generic[V]):
    """One value for each row. Values are numbered from 1 in the order in which they were first seen, and stay."""

    def __init__(self) -> None:
        # number[row] is that of the row's value, ABSENT if it has none.
        self._number = np.zeros(0, np.int32)
        self.values: list[V] = []
        self._numbers: dict[V, int] = {}
        self._verdicts: OrderedDict[Hashable, npt.NDArray[np.bool_]] = OrderedDict()

    def put(self, row: int, value: V) -> None:
        """The row has this value now."""
        number = self._numbers.get(value)
        if number is None:
            self.values.append(value)
            number = self._numbers[value] = len(self.values)
        self._grow(row)
        self._number[row] = number

    def clear(self, row: int) -> None:
        """The row has no value any more."""
        self._grow(row)
        self._number[row] = ABSENT

    def number_of(self, value: V) -> int:
        """The number of a value, ABSENT if no row ever had it."""
        return self._numbers.get(value, ABSENT)

    def numbers(self, row_count: int) -> npt.NDArray[np.int32]:
        """Of the first rows, the number of each one's value. Not to be changed."""
        if row_count:
            self._grow(row_count - 1)
        return self._number[:row_count]

    def where(self, row_count: int, key: Hashable, test: Callable[[V], bool]) -> npt.NDArray[np.bool_]:
        """Of the first rows, for which the test holds. `key` stands for the test: its results are remembered.

        Cost O(rows) of a look-up in an array, and one test for each value that is new since.
        """
        verdicts = self._verdicts.get(key)
        known = 1 if verdicts is None else len(verdicts)
        if verdicts is None or known <= len(self.values):
            new = [test(value) for value in self.values[known - 1 :]]
            told = np.zeros(1, np.bool_) if verdicts is None else verdicts
            verdicts = np.append(told, np.array(new, np.bool_))
            self._verdicts[key] = verdicts
            if len(self._verdicts) > _KEPT_TESTS:
                self._verdicts.popitem(last=False)
        return verdicts[self.numbers(row_count)]

    def _grow(self, row: int) -> None:
        if row >= len(self._number):
            more = np.zeros(max(64, row + 1, 2 * len(self._number)), np.int32)
            more[: len(self._number)] = self._number
            self._number = more


Mask = npt.NDArray[np.bool_]
Allocatable = tuple[tuple[str, int], ...] | None

NOT_THERE = "node(s) were not found"

_KEPT_MASKS = 256

_KEPT_LABELS = 256


class NodeRules:
    """Nodes as last seen, and the answers that follow from them. Not thread-safe.

    A node that changes costs O(labels that pods have asked about; 256 are kept). A mask costs O(nodes) of array work
    after a change, and one test for each distinct value; it is kept until a node changes.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        """`names` are the configured nodes; masks and domains are in their order."""
        self.node_count = len(names)
        self._rows = {name: row for row, name in enumerate(names)}
        self._nodes: list[RuledNode | None] = [None] * len(names)
        self.present: dict[str, RuledNode] = {}
        """All nodes that are there, by name; not to be changed."""
        self._gates: Column[Gate] = Column()
        self._allocatable: Column[Allocatable] = Column()
        self._names: Column[str] = Column()
        self._labels: OrderedDict[str, Column[str | None]] = OrderedDict()
        self._masks: OrderedDict[Demands, Mask] = OrderedDict()
        self._domains: dict[str, npt.NDArray[np.int32]] = {}
        # the highest allocatable amount of each resource, empty if a node does not say; None after a change
        self._most: dict[str, int] | None = None
        self.each_node = np.arange(len(names), dtype=np.int32)
        """Domains of one node each."""

    @property
    def row_count(self) -> int:
        """Rows of all nodes that were ever seen, the configured ones first."""
        return len(self._nodes)

    # ---- nodes

    def put(self, node: Node | RuledNode) -> bool:
        """The node is like this now; returns whether anything changed that rules look at."""
        seen = node if isinstance(node, RuledNode) else RuledNode.of(node)
        row = self.row(seen.name)
        if self._nodes[row] == seen:
            return False
        self._nodes[row] = self.present[seen.name] = seen
        self._gates.put(row, seen.gate)
        self._allocatable.put(row, seen.allocatable)
        self._names.put(row, seen.name)
        for key, column in self._labels.items():
            column.put(row, seen.labels.get(key))
        self._forget_answers()
        return True

    def remove(self, name: str) -> None:
        """The node is gone."""
        row = self._rows.get(name)
        if row is None or self._nodes[row] is None:
            return
        self._nodes[row] = None
        self.present.pop(name, None)
        columns: list[Column[Any]] = [self._gates, self._allocatable, self._names, *self._labels.values()]
        for column in columns:
            column.clear(row)
        self._forget_answers()

    def row(self, name: str) -> int:
        """The row of a node, be it one that was not seen yet."""
        row = self._rows.setdefault(name, len(self._nodes))
        if row == len(self._nodes):
            self._nodes.append(None)
        return row

    def find(self, name: str) -> int | None:
        """The row of a node that was seen, or is configured."""
        return self._rows.get(name)

    def get(self, name: str) -> RuledNode | None:
        """The node as last seen, None if it is not there."""
        row = self._rows.get(name)
        return None if row is None else self._nodes[row]

    # ---- masks

    def mask(self, demands: Demands) -> Mask:
        """Shape (node_count,): the nodes that could take such a pod if they were empty. Not to be changed."""
        found = self._masks.get(demands)
        if found is None:
            count, borne, wanted = self.node_count, demands.tolerations, demands.requests
            found = self._gates.where(count, borne, lambda gate: not gate.refusal(borne))
            found &= self._matching(demands, count)
            found &= self._allocatable.where(count, wanted, lambda allocatable: fits_empty(demands, allocatable))
            self._masks[demands] = found
            found.flags.writeable = False
            if len(self._masks) > _KEPT_MASKS:
                self._masks.popitem(last=False)
        return found

    def refusal(self, demands: Demands, name: str) -> str:
        """Return why this node cannot take such a pod even if it were empty, "" if it can."""
        node = self.get(name)
        return NOT_THERE if node is None else static_refusal(demands, node)

    def _matching(self, demands: Demands, row_count: int) -> Mask:
        found = self._are_there(row_count)
        for requirement in demands.node_selector:
            if not found.any():
                break  # each label that is looked at costs a column
            found &= self._where(requirement, row_count)
        if demands.node_terms is not None:
            found &= self._in_any(demands.node_terms, row_count)
        return found

    def _in_any(self, terms: Iterable[NodeTerm], row_count: int) -> Mask:
        found = np.zeros(row_count, np.bool_)
        for term in terms:
            all_of_it = self._are_there(row_count)
            for requirement in term.labels:
                if not all_of_it.any():
                    break
                all_of_it &= self._where(requirement, row_count)
            for requirement in term.names:
                all_of_it &= self._names.where(row_count, requirement, requirement.holds)
            found |= all_of_it
        return found

    def _where(self, requirement: Requirement, row_count: int) -> Mask:
        return self._label(requirement.key).where(row_count, requirement, requirement.holds)

    def _are_there(self, row_count: int) -> Mask:
        there: Mask = self._gates.numbers(row_count) != ABSENT
        return there

    # ---- domains

    def domains(self, key: str) -> npt.NDArray[np.int32]:
        """int32, shape (node_count,): in which domain of a label each configured node is, -1 if it has no such label.

        Domains are numbered in the order in which nodes first have them. Not to be changed.
        """
        if key not in self._domains:
            self._domains[key] = numbered(self._values(key, self.node_count))
        return self._domains[key]

    def spread_domains(self, demands: Demands, constraint: SpreadConstraint) -> tuple[npt.NDArray[np.int32], int]:
        """(domain of each row, count of domains), for one spread constraint of a pod.

        -1 for nodes that do not count: they lack a label of one of the pod's constraints, or its policies leave them
        out. Shape (row_count,): nodes that are not configured count like others.
        """
        counts = np.ones(self.row_count, np.bool_)
        for each in demands.spread:
            counts &= self._values(each.topology_key, self.row_count) >= 0
        if constraint.honors_affinity:
            counts &= self._matching(demands, self.row_count)
        if constraint.honors_taints:
            said = demands.tolerations
            counts &= self._gates.where(self.row_count, ("taints", said), lambda gate: not gate.taint_refusal(said))
        domain = numbered(np.where(counts, self._values(constraint.topology_key, self.row_count), -1))
        return domain, int(domain.max(initial=-1)) + 1

    def allocatable(self, resource: str) -> npt.NDArray[np.int64]:
        """int64, shape (node_count,): how much of a resource each node has for pods; 0 if it is not there."""
        amounts = [0, *(amount_of(resource, each) for each in self._allocatable.values)]
        return np.array(amounts, np.int64)[self._allocatable.numbers(self.node_count)]

    def most_allocatable(self, resource: str) -> int:
        """The largest amount of a resource that a node has; MOST if a node reports none.

        Cost O(nodes) after a change, then O(1).
        """
        if self._most is None:
            there = {node.allocatable for node in self._nodes if node is not None}
            self._most = {} if None in there else _most_of_each(there)
        return self._most.get(resource, 0) if self._most else MOST

    def _values(self, key: str, row_count: int) -> npt.NDArray[np.int32]:
        """Of the first rows, a number for each one's value of a label, -1 if it has none."""
        column = self._label(key)
        number = column.numbers(row_count)
        has_none = column.number_of(None)
        return np.where((number == ABSENT) | (number == has_none), -1, number).astype(np.int32)

    def _label(self, key: str) -> Column[str | None]:
        """The column of a label, filled when it is asked about; the latest ones are kept."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = Column()
            for row, node in enumerate(self._nodes):
                if node is not None:
                    column.put(row, node.labels.get(key))
            if len(self._labels) > _KEPT_LABELS:
                self._labels.popitem(last=False)
        else:
            self._labels.move_to_end(key)
        return column

    def _forget_answers(self) -> None:
        self._masks.clear()
        self._domains.clear()
        self._most = None


def numbered(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Numbers from 0 for equal values, in the order in which they first occur; -1 stays -1."""
    domain = np.full(len(values), -1, np.int32)
    has_one = values >= 0
    distinct, first, inverse = np.unique(values[has_one], return_index=True, return_inverse=True)
    order = np.empty(len(distinct), np.int32)
    order[np.argsort(first)] = np.arange(len(distinct), dtype=np.int32)
    domain[has_one] = order[inverse]
    return domain


def _most_of_each(found: Iterable[Allocatable]) -> dict[str, int]:
    most: dict[str, int] = {}
    for allocatable in found:
        for resource, count in allocatable or ():
            most[resource] = max(count, most.get(resource, 0))
    return most
