"""The losses of all nodes under one configuration, kept up to date and told to the core that goes by it."""

from collections.abc import Iterable, Mapping

from hived.cells.topology import Topology
from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.service.core import Core
from hived_extender.service.devices.layout import Layout
from hived_extender.service.devices.shortage import Holds, Loss, losses_of, reports
from hived_extender.service.devices.table import NOTHING, NodeDevices, Selector

Place = tuple[str, str]
"""(node, leaf cell type)."""


class Losses:
    """`current` has a loss for each node and leaf cell type that has lost any; `layout` has all leaf cells."""

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
        """Look at the nodes of which facts have changed, and tell the core; returns the losses that are other ones.

        Leaf cells that are to be had again are told first. Cost O(devices and pods of these nodes); O(nodes) when the
        first node of a type begins to report its devices, or the last one ceases to.
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
        """Pods of ours on a node have come or gone: have the core choose anew which of its leaf cells are lost."""
        for loss in self._by_node.get(node, ()):
            core.set_lost(node, loss.leaf_type, loss.lost_count, loss.known)

    def _is_reported(self, leaf_type: str) -> bool:
        return bool(self._reporting[leaf_type])

    def _affected(
        self, nodes: Mapping[str, NodeDevices], classes: Mapping[str, Selector], changed: Iterable[str]
    ) -> set[str]:
        """The configured nodes among those that changed, and those to which a change of others matters."""
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
