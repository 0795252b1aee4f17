"""Private clusters: each virtual cluster alone on hardware that is exactly its cells, under the same rules.

The hardware is divided once, as an owner who shares nothing would do it: larger cells first, of one level in the order
of the file, each in the first place that is left. So the cells of one virtual cluster lie side by side.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hived.cells.layout import build_topology
from hived.cells.topology import NO_CELL, Topology
from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, PhysicalCellSpec, VirtualClusterSpec
from hived_simulator.clusters import Answer, Configured, Displaced, Room, Waits
from hived_simulator.hardware import BoolArray, leaves_below, whole_cells
from hived_simulator.hived_cluster import HivedCluster, Owned
from hived_simulator.tasks import Cause, Task

OTHERS = "~others"
"""The virtual cluster of all hardware that the owner of an estate lacks."""


class Estate(NamedTuple):
    """The private cluster of one virtual cluster. `cells` are those of the whole cluster that it owns."""

    spec: ClusterSpec
    owned: Owned
    cells: Sequence[int]


def estates(spec: ClusterSpec, topology: Topology) -> dict[str, Estate]:
    """The private cluster of every virtual cluster: top cells without which it could do are left out.

    Hardware of others in the same top cells is pinned to a virtual cluster OTHERS and not there. So it is never chosen,
    and it makes no cell of the owner bad. UserError if the hardware does not suffice.
    """
    found = {}
    for name, cells in divide(topology).items():
        own_pins = {
            topology.pinned_cells[pinned_id]: pinned_id
            for vc, pinned_id in topology.pinned_roots
            if topology.vc_names[vc] == name
        }
        writer = _Writer(topology, set(cells), own_pins)
        tops = sorted({_top(topology, cell) for cell in cells})
        physical = tuple(writer.written(top) for top in tops)
        virtual = {name: spec.virtual_clusters[name]}
        if writer.others:
            virtual[OTHERS] = VirtualClusterSpec(OTHERS, pinned_cell_ids=tuple(writer.others))
        estate = replace(spec, physical_cells=physical, virtual_clusters=virtual)
        found[name] = Estate(estate, _owned(topology, cells), cells)
    return found


def unowned(topology: Topology, divided: Iterable[Estate]) -> BoolArray:
    """The leaf cells that no virtual cluster owns, of shape (cells,). Cost O(cells)."""
    found = np.zeros(len(topology.arrays.node), np.bool_)
    found[topology.arrays.node_leaf] = True
    for estate in divided:
        for cell in estate.cells:
            found[leaves_below(topology, cell)] = False
    return found


def _top(topology: Topology, cell: int) -> int:
    while (above := int(topology.arrays.parent[cell])) != NO_CELL:
        cell = above
    return cell


class _Writer:
    """Writes physical cells with all that a configuration leaves to be inferred, so that they mean the same elsewhere.

    `others` has the pinned cells of what is not owned, as large as they can be.
    """

    def __init__(self, topology: Topology, owned: set[int], own_pins: Mapping[int, str]) -> None:
        self._topology = topology
        self._owned = owned
        self._own_pins = own_pins
        self._above = {each for cell in owned for each in _path(topology, cell)}
        self.others: list[str] = []

    def written(self, cell: int, is_decided: bool = False) -> PhysicalCellSpec:
        """A cell with all below it. `is_decided`: who owns it is known from a cell above."""
        topology = self._topology
        above = int(topology.arrays.parent[cell])
        address = topology.address(cell)
        part = address if above == NO_CELL else address[len(topology.address(above)) + 1 :]
        pin = self._own_pins.get(cell, "")
        if not is_decided and cell not in self._above:
            pin = f"{OTHERS}-{len(self.others)}"
            self.others.append(pin)
        is_decided = is_decided or cell in self._owned or cell not in self._above
        below = tuple(self.written(child, is_decided) for child in topology.children(cell))
        return PhysicalCellSpec(topology.cell_type(cell), part, pin, below)


def _path(topology: Topology, cell: int) -> Iterator[int]:
    while cell != NO_CELL:
        yield cell
        cell = int(topology.arrays.parent[cell])


def _owned(topology: Topology, cells: Sequence[int]) -> Owned:
    arrays, own = topology.arrays, set[int]()
    for cell in cells:
        own.update(range(*leaves_below(topology, cell).indices(len(arrays.node))))
    nodes = sorted({int(arrays.node[leaf]) for leaf in own})
    lacking: dict[tuple[str, str], tuple[int, ...]] = {}
    for node in nodes:
        for leaf in topology.leaves_of(node).tolist():
            if leaf not in own:
                place = topology.node_names[node], topology.cell_type(leaf)
                lacking[place] = (*lacking.get(place, ()), int(arrays.device[leaf]))
    return Owned(frozenset(topology.node_names[node] for node in nodes), lacking, len(own))


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
        """A virtual cluster owns this cell from now on."""
        self._taken.add(cell)
        while cell != NO_CELL and cell not in self._broken:
            self._broken.add(cell)
            cell = int(self._arrays.parent[cell])

    def first_free(self, chain_level: int) -> int | None:
        """The first whole cell of a level. A cell that was passed once never becomes whole again."""
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


class PrivateClusters(Configured):
    """All private clusters side by side, as one scheduler."""

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
        for cluster in self._clusters.values():
            cluster.tell_time(now_s)

    def room(self, vc: str) -> int:
        found = self._clusters.get(vc)
        return 0 if found is None else found.room(vc)

    def pool(self, vc: str) -> str:
        """Each virtual cluster has its own pool: no cells are lent."""
        return vc

    def promised(self, vc: str) -> int:
        found = self._clusters.get(vc)
        return 0 if found is None else found.promised(vc)

    def can_ever_run(self, task: Task) -> Waits | None:
        if task.vc not in self._spec.virtual_clusters:
            return Waits(Cause.REFUSED, f"VC {task.vc} does not exist")
        return self._clusters[task.vc].can_ever_run(task)

    def lacks_room(self, task: Task, priority: int) -> Cause | None:
        return self._clusters[task.vc].lacks_room(task, priority)

    def ask(self, task: Task, priority: int) -> Answer:
        return self._clusters[task.vc].ask(task, priority)

    def release(self, task: Task) -> tuple[str, ...]:
        return self._clusters[task.vc].release(task)

    def set_health(self, node: str, is_healthy: bool) -> None:
        """The owners of the node, or of parts of it, lose them."""
        (self._bad_nodes.discard if is_healthy else self._bad_nodes.add)(node)
        for cluster in self._clusters.values():
            cluster.set_health(node, is_healthy)

    def groups_on(self, nodes: Sequence[str]) -> list[str]:
        return [name for cluster in self._clusters.values() for name in cluster.groups_on(nodes)]

    def reconfigure(self, spec: ClusterSpec) -> Displaced:
        """The hardware is divided anew, and work leaves machines that its owner loses."""
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
        return Displaced(*(tuple(name for names in each for name in names) for each in zip(*displaced, strict=True)))

    def measure(self) -> Room:
        """Of all hardware of the configuration, as under every policy. What is promised to no virtual
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
        """In the cluster of its owner."""
        found = self._clusters.get(task.vc)
        return 0 if found is None else found.best_level(task)
