"""Private clusters: each virtual cluster alone on hardware that is exactly its cells, under the same rules.

The hardware is divided once, as an owner who shares nothing would do it: larger cells first, of one level in the order
of the file, each in the first place that is left. So the cells of one virtual cluster lie side by side.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hived.errors import UserError
from hived.layout import build_topology
from hived.specs import ClusterSpec, PhysicalCellSpec
from hived.topology import NO_CELL, Topology
from hived_simulator.clusters import Answer, Displaced, Room, Waits
from hived_simulator.hardware import level_name, nodes_below
from hived_simulator.hived_cluster import HivedCluster, Owned
from hived_simulator.tasks import Cause, Task


class Estate(NamedTuple):
    """The private cluster of one virtual cluster."""

    spec: ClusterSpec
    owned: Owned


def estates(spec: ClusterSpec, topology: Topology) -> dict[str, Estate]:
    """The private cluster of every virtual cluster: top cells without which it could do are left out.

    UserError if the hardware does not suffice.
    """
    found = {}
    for name, cells in divide(topology).items():
        tops = sorted({_top(topology, cell) for cell in cells})
        pinned = {
            cell: pinned_id
            for (vc, pinned_id) in topology.pinned_roots
            if topology.vc_names[vc] == name and (cell := topology.pinned_cells[pinned_id]) is not None
        }
        own = tuple(_written(topology, top, pinned) for top in tops)
        virtual = {name: spec.virtual_clusters[name]}
        found[name] = Estate(replace(spec, physical_cells=own, virtual_clusters=virtual), _owned(topology, cells))
    return found


def _top(topology: Topology, cell: int) -> int:
    while (above := int(topology.arrays.parent[cell])) != NO_CELL:
        cell = above
    return cell


def _written(topology: Topology, cell: int, pinned: dict[int, str]) -> PhysicalCellSpec:
    """A physical cell with all that the configuration leaves to be inferred, so that it means the same elsewhere."""
    above = int(topology.arrays.parent[cell])
    address = topology.address(cell)
    part = address if above == NO_CELL else address[len(topology.address(above)) + 1 :]
    below = tuple(_written(topology, child, pinned) for child in topology.children(cell))
    return PhysicalCellSpec(topology.cell_type(cell), part, pinned.get(cell, ""), below)


def _owned(topology: Topology, cells: Sequence[int]) -> Owned:
    arrays = topology.arrays
    devices: dict[int, set[int]] = {}
    for cell in cells:
        first, count = int(arrays.first_leaf[cell]), int(arrays.leaf_count[arrays.chain_level[cell]])
        own = slice(first, first + count)
        for node, device in zip(arrays.node[own].tolist(), arrays.device[own].tolist(), strict=True):
            devices.setdefault(node, set()).add(device)
    lacking = {}
    for node, kept in devices.items():
        leaves = arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]]
        others = tuple(device for device in arrays.device[leaves].tolist() if device not in kept)
        if others:
            lacking[topology.node_names[node]] = (topology.chain_of(int(leaves[0])).types[0], others)
    nodes = frozenset(topology.node_names[node] for node in devices)
    return Owned(nodes, lacking, sum(map(len, devices.values())))


def divide(topology: Topology) -> dict[str, list[int]]:
    """The physical cells that each virtual cluster would own. UserError if there are too few. Cost O(cells)."""
    arrays = topology.arrays
    owned: dict[str, list[int]] = {name: [] for name in topology.vc_names}
    pieces = Pieces(topology)
    for (vc, pinned_id), _ in sorted(topology.pinned_roots.items()):
        cell = topology.pinned_cells[pinned_id]
        owned[topology.vc_names[vc]].append(cell)
        pieces.take(cell)
    pinned = set(topology.pinned_roots.values())
    wanted = [
        (int(arrays.chain_of_level[arrays.chain_level[root]]), -int(arrays.level[root]), vc)
        for vc in range(len(topology.vc_names))
        for root in topology.preassigned[vc]
        if root not in pinned
    ]
    for chain, level, vc in sorted(wanted):
        found = pieces.first_free(int(arrays.level_offset[chain]) - level)
        if found is None:
            raise UserError(f"virtual cluster {topology.vc_names[vc]}: no hardware is left for its cells")
        owned[topology.vc_names[vc]].append(found)
        pieces.take(found)
    return owned


class Pieces:
    """Hardware that is being divided: what is taken as a whole, and what is not whole any more."""

    def __init__(self, topology: Topology) -> None:
        self._arrays = topology.arrays
        self._taken: set[int] = set()
        self._broken: set[int] = set()  # taken cells, and all above them
        self._next: dict[int, int] = {}

    def take(self, cell: int) -> None:
        """Somebody owns this cell from now on."""
        self._taken.add(cell)
        while cell != NO_CELL and cell not in self._broken:
            self._broken.add(cell)
            cell = int(self._arrays.parent[cell])

    def first_free(self, chain_level: int) -> int | None:
        """The first whole cell of a level. What has been passed once never becomes whole again."""
        base, size = int(self._arrays.level_base[chain_level]), int(self._arrays.level_size[chain_level])
        cell = self._next.get(chain_level, base)
        while cell < base + size and not self._is_whole(cell):
            cell += 1
        self._next[chain_level] = cell
        return cell if cell < base + size else None

    def _is_whole(self, cell: int) -> bool:
        if cell in self._broken:
            return False
        while cell != NO_CELL and cell not in self._taken:
            cell = int(self._arrays.parent[cell])
        return cell == NO_CELL


class PrivateClusters:
    """All private clusters side by side, as one scheduler. See the module."""

    def __init__(self, spec: ClusterSpec, is_lazy: bool = False) -> None:
        """Cost O(cells of the virtual clusters). UserError if the hardware cannot be divided."""
        self._spec = spec
        self._is_lazy = is_lazy
        self._bad_nodes: set[str] = set()
        self._topology = build_topology(spec)
        self._clusters = {
            name: HivedCluster(estate.spec, is_lazy, estate.owned)
            for name, estate in estates(spec, self._topology).items()
        }

    def __getstate__(self) -> dict[str, Any]:
        """All but the topology, which is built anew from the configuration."""
        return {name: value for name, value in vars(self).items() if name != "_topology"}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        vars(self).update(kept)
        self._topology = build_topology(self._spec)

    @property
    def spec(self) -> ClusterSpec:
        """See `Cluster`."""
        return self._spec

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
        found = self._clusters.get(task.vc)
        return Waits(Cause.REFUSED, f"VC {task.vc} does not exist") if found is None else found.can_ever_run(task)

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

    def nodes_of(self, cell: str) -> list[str]:
        """See `Cluster`."""
        return nodes_below(self._topology, cell)

    def reconfigure(self, spec: ClusterSpec) -> Displaced:
        """See `Cluster`: the hardware is divided anew, and work leaves machines that its owner loses."""
        self._spec, self._topology = spec, build_topology(spec)
        evicted: list[str] = []
        unreserved: list[str] = []
        for name, estate in estates(spec, self._topology).items():
            cluster = self._clusters.get(name)
            if cluster is None:
                cluster = self._clusters[name] = HivedCluster(estate.spec, self._is_lazy, estate.owned)
                for node in sorted(self._bad_nodes):
                    cluster.set_health(node, False)
            else:
                displaced = cluster.reconfigure(estate.spec, estate.owned)
                evicted += displaced.evicted
                unreserved += displaced.unreserved
        for name, cluster in self._clusters.items():
            if name not in spec.virtual_clusters:
                displaced = cluster.dissolve()
                evicted += displaced.evicted
                unreserved += displaced.unreserved
        return Displaced(tuple(evicted), tuple(unreserved))

    def measure(self) -> Room:
        """See `Cluster`."""
        rooms = [cluster.measure() for cluster in self._clusters.values()]
        free: Counter[str] = Counter()
        for room in rooms:
            free.update(room.free_cells)
        return Room(sum(room.leaf_count for room in rooms), sum(room.bad_count for room in rooms), dict(free))

    def best_level(self, task: Task) -> int:
        """See `Cluster`: in the cluster of its owner."""
        found = self._clusters.get(task.vc)
        return 0 if found is None else found.best_level(task)

    def level_name(self, level: int) -> str:
        """See `Cluster`."""
        return level_name(self._topology, level)
