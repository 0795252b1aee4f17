"""Private clusters: each virtual cluster alone on hardware that is exactly its cells, under the same rules.

The hardware is divided once, as an owner who shares nothing would do it: larger cells first, of one level in the order
of the file, each in the first place that is left. So the cells of one virtual cluster lie side by side.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np

from hived.layout import build_topology
from hived.specs import ClusterSpec
from hived_simulator.clusters import Answer, Displaced, Room, Waits
from hived_simulator.configured import Configured
from hived_simulator.estates import Estate, estates, unowned
from hived_simulator.hardware import whole_cells
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.tasks import Cause, Task


class PrivateClusters(Configured):
    """All private clusters side by side, as one scheduler. See the module."""

    def __init__(self, spec: ClusterSpec, is_lazy: bool = False) -> None:
        """Cost O(cells of the virtual clusters). UserError if the hardware cannot be divided."""
        super().__init__(spec)
        self._is_lazy = is_lazy
        self._bad_nodes: set[str] = set()
        self._clusters = {
            name: HivedCluster(estate.spec, is_lazy, estate.owned) for name, estate in self._divided().items()
        }

    def _divided(self) -> dict[str, Estate]:
        found = estates(self._spec, self._topology)
        self._is_unowned = unowned(self._topology, found.values())
        return found

    def tell_time(self, now_s: float) -> None:
        """See `Cluster`."""
        for cluster in self._clusters.values():
            cluster.tell_time(now_s)

    def room(self, vc: str) -> int:
        """See `Cluster`."""
        found = self._clusters.get(vc)
        return 0 if found is None else found.room(vc)

    def pool(self, vc: str) -> str:
        """See `Cluster`: nobody lends anything."""
        return vc

    def promised(self, vc: str) -> int:
        """See `Cluster`."""
        found = self._clusters.get(vc)
        return 0 if found is None else found.promised(vc)

    def can_ever_run(self, task: Task) -> Waits | None:
        """See `Cluster`."""
        if task.vc not in self._spec.virtual_clusters:
            return Waits(Cause.REFUSED, f"VC {task.vc} does not exist")
        return self._clusters[task.vc].can_ever_run(task)

    def lacks_room(self, task: Task, priority: int) -> Cause | None:
        """See `Cluster`."""
        return self._clusters[task.vc].lacks_room(task, priority)

    def ask(self, task: Task, priority: int) -> Answer:
        """See `Cluster`."""
        return self._clusters[task.vc].ask(task, priority)

    def release(self, task: Task) -> tuple[str, ...]:
        """See `Cluster`."""
        return self._clusters[task.vc].release(task)

    def set_health(self, node: str, is_healthy: bool) -> None:
        """See `Cluster`: whoever owns the node, or a part of it, has the loss."""
        (self._bad_nodes.discard if is_healthy else self._bad_nodes.add)(node)
        for cluster in self._clusters.values():
            cluster.set_health(node, is_healthy)

    def groups_on(self, nodes: Sequence[str]) -> list[str]:
        """See `Cluster`."""
        return [name for cluster in self._clusters.values() for name in cluster.groups_on(nodes)]

    def reconfigure(self, spec: ClusterSpec) -> Displaced:
        """See `Cluster`: the hardware is divided anew, and work leaves machines that its owner loses."""
        self._spec, self._topology = spec, build_topology(spec)
        displaced: list[Displaced] = []
        for name, estate in self._divided().items():
            cluster = self._clusters.get(name)
            if cluster is None:
                cluster = self._clusters[name] = HivedCluster(estate.spec, self._is_lazy, estate.owned)
                for node in sorted(self._bad_nodes):
                    cluster.set_health(node, False)
            else:
                displaced.append(cluster.reconfigure(estate.spec, estate.owned))
        gone = [cluster for name, cluster in self._clusters.items() if name not in spec.virtual_clusters]
        displaced += [cluster.dissolve() for cluster in gone]
        return Displaced(*(tuple(chain.from_iterable(each)) for each in zip(*displaced, strict=True)))

    def measure(self) -> Room:
        """See `Cluster`: of all hardware of the configuration, as under every policy. What is promised to no virtual
        cluster is idle.
        """
        rooms = [self._clusters[vc].measure() for vc in self._spec.virtual_clusters]
        arrays, numbers = self._topology.arrays, self._topology.node_index
        is_bad = np.isin(arrays.node, [numbers[node] for node in self._bad_nodes if node in numbers])
        is_idle = self._is_unowned & ~is_bad
        free = Counter(whole_cells(self._topology, is_idle))
        for room in rooms:
            free.update(room.free_cells)
        return Room(
            len(arrays.node_leaf),
            sum(room.bad_count for room in rooms) + int(np.count_nonzero(self._is_unowned & is_bad)),
            sum(room.idle_count for room in rooms) + int(np.count_nonzero(is_idle)),
            dict(free),
        )

    def best_level(self, task: Task) -> int:
        """See `Cluster`: in the cluster of its owner."""
        found = self._clusters.get(task.vc)
        return 0 if found is None else found.best_level(task)
