"""Why a node can never take a pod, however empty it is: cordon, taints, nodeSelector and affinity, allocatable.

The texts are kube-scheduler's own, as in its event FailedScheduling.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import NamedTuple

import msgspec

from hived_extender.kube_rules.demands import Demands, Toleration
from hived_extender.kube_rules.quantities import MOST, PODS, units
from hived_extender.kube_rules.selectors import matches, node_matches
from hived_extender.pods.wire import Node

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
        """Whether one of the tolerations is for this taint."""
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
        """Why pods with these tolerations have to stay away, "" if they need not."""
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
    def read(cls, node: Node) -> "RuledNode":
        """The node as the rules see it. Texts and amounts that many nodes have in common are kept once."""
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
        """Whether nodeSelector and required node affinity allow this node."""
        return matches(demands.node_selector, self.labels) and node_matches(demands.node_terms, self.name, self.labels)


@lru_cache(KEPT_KINDS)
def _gate(is_cordoned: bool, taints: tuple[Taint, ...]) -> Gate:
    return Gate(is_cordoned, taints)


@lru_cache(KEPT_KINDS)
def _in_units(quantities: tuple[tuple[str, str], ...]) -> tuple[tuple[str, int], ...]:
    """Quantities, ascending by name, in the units of `quantities.units`."""
    return tuple((name, units(name, quantity)) for name, quantity in quantities)


def static_refusal(demands: Demands, node: RuledNode) -> str:
    """Why the node can never take such a pod, even if it were empty; "" if it can."""
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
    """Whether a node that no pod runs on has enough of everything."""
    return not any(shortages(demands, allocatable, {}))


def amount_of(resource: str, allocatable: Sequence[tuple[str, int]] | None) -> int:
    """How much a node has of a resource; MOST as long as that is not known."""
    if allocatable is None:
        return MOST
    return dict(allocatable).get(resource, 0)
