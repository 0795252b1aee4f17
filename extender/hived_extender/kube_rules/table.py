"""The rules about nodes for all nodes at once: which of them could take a pod, and in which domain of a label each is.

Each node has a row: the configured ones in their order, then others as they are seen. Rows of nodes that are gone
stay, and count as absent.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hived_extender.kube_rules.columns import ABSENT, Column
from hived_extender.kube_rules.demands import Demands, SpreadConstraint
from hived_extender.kube_rules.nodes import Gate, RuledNode, amount_of, fits_empty, static_refusal
from hived_extender.kube_rules.quantities import MOST
from hived_extender.kube_rules.selectors import NodeTerm, Requirement
from hived_extender.pods.wire import Node

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
        seen = node if isinstance(node, RuledNode) else RuledNode.read(node)
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
        """Why this node cannot take such a pod even if it were empty, "" if it can."""
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
        """How much of a resource the node has that has most of it; MOST if a node does not say.

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
