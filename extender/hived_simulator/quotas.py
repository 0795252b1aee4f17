"""Quotas: a virtual cluster is promised a number of leaf cells, anywhere; nodes are chosen one by one.

The baseline that tenants know from Kubernetes: a pod takes any node with enough free devices. Best fit takes the one
with the fewest free devices. Spread takes the one of which the smallest share is in use with the pod, as LeastAllocated
scores. A gang starts as a whole or not at all, its largest pods first. Opportunistic tasks take free devices outside
all quotas, and leave for guaranteed ones that find no nodes otherwise: on the chosen nodes, the youngest first.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hived.cells.layout import build_topology
from hived.cells.topology import LongArray, Topology
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.words import counted
from hived_simulator.clusters import Answer, Configured, Displaced, Leaving, Room, Started, Waits
from hived_simulator.hardware import best_level, common_level
from hived_simulator.tasks import Cause, Shape, Task

Seats = tuple[tuple[int, int, int], ...]
"""(kind of node, node, leaf cells) of each pod."""


class Nodes(NamedTuple):
    """The nodes that have leaf cells of one type; arrays of shape (node_count,), int64.

    free : leaf cells that are neither used nor reserved; below 0 while victims still use reserved ones
    lent : leaf cells of opportunistic tasks
    size : all leaf cells; 0 for a bad node, so that nothing fits there
    whole : all leaf cells, also of bad nodes
    first_leaf : the node's first physical leaf
    cell_type : the node's place among `cell_types`, the cell types of nodes
    """

    names: tuple[str, ...]
    numbers: dict[str, int]
    cell_types: tuple[str, ...]
    free: LongArray
    lent: LongArray
    size: LongArray
    whole: LongArray
    first_leaf: LongArray
    cell_type: LongArray


def nodes_by_type(topology: Topology) -> dict[str, Nodes]:
    """All nodes of a topology, idle and healthy, by leaf cell type. Cost O(leaf cells)."""
    found: dict[str, dict[str, list[int]]] = {}
    for node, name in enumerate(topology.node_names):
        for leaf in topology.leaves_of(node).tolist():
            found.setdefault(topology.chain_of(leaf).types[0], {}).setdefault(name, []).append(leaf)
    return {leaf_type: _nodes(topology, found[leaf_type]) for leaf_type in sorted(found)}


def _nodes(topology: Topology, leaves: Mapping[str, list[int]]) -> Nodes:
    names = tuple(leaves)
    size = np.array([len(own) for own in leaves.values()], np.int64)
    first = np.array([own[0] for own in leaves.values()], np.int64)
    chains = map(topology.chain_of, first.tolist())
    types = [chain.types[chain.node_level - 1] for chain in chains]
    cell_types = tuple(dict.fromkeys(types))
    return Nodes(
        names=names,
        numbers={name: number for number, name in enumerate(names)},
        cell_types=cell_types,
        free=size.copy(),
        lent=np.zeros_like(size),
        size=size.copy(),
        whole=size,
        first_leaf=first,
        cell_type=np.array([cell_types.index(name) for name in types], np.int64),
    )


def find_seats(shape: Shape, types: Mapping[str, Nodes], free: Mapping[str, LongArray], spreads: bool) -> Seats | None:
    """A node for each pod, of one leaf type, largest pods first; None if there is no room for all.

    free : leaf cells that may be taken on each node, by leaf type; not above 0 where none may
    spreads : each pod takes the node of which the smallest share is in use with it, not the fullest one that has room

    Of equal nodes the first one is taken. Cost O(n log n) for n nodes and pods, for each size of pods.
    """
    for kind, name in enumerate(types):
        if not shape.leaf_type or name == shape.leaf_type:
            seats = _seats_of_type(shape, kind, types[name], np.maximum(free[name], 0), spreads)
            if seats is not None:
                return seats
    return None


def _seats_of_type(shape: Shape, kind: int, nodes: Nodes, usable: LongArray, spreads: bool) -> Seats | None:
    seats: list[tuple[int, int, int]] = []
    for count, leaves in reversed(shape.pods):
        room = np.minimum(usable // leaves, count)
        if room.sum() < count:
            return None
        chosen = _spread(room, usable, nodes.whole, count, leaves) if spreads else _packed(room, usable, count)
        np.subtract.at(usable, chosen, leaves)
        seats += [(kind, node, leaves) for node in chosen.tolist()]
    return tuple(seats)


def _packed(room: LongArray, usable: LongArray, count: int) -> LongArray:
    """The node of each of `count` equal pods: once one has the fullest node, that is the fullest for the next one, too.

    `room` has the pods that fit on each node.
    """
    fits = np.flatnonzero(room)
    if count == 1:
        return fits[[usable[fits].argmin()]]
    order = fits[usable[fits].argsort(kind="stable")]
    return np.repeat(order, room[order])[:count]


def _spread(room: LongArray, usable: LongArray, whole: LongArray, count: int, leaves: int) -> LongArray:
    """The node of each of `count` equal pods: the share that is free with another pod only falls on each node.

    So the pods have the places with the largest such shares, taking each node's places in turn.
    """
    fits = np.flatnonzero(room)
    if count == 1:
        return fits[[((usable[fits] - leaves) / whole[fits]).argmax()]]
    places = np.repeat(fits, room[fits])
    before = np.repeat(room[fits].cumsum() - room[fits], room[fits])
    pods = np.arange(1, len(places) + 1) - before  # on the node, with this one
    share = (usable[places] - pods * leaves) / whole[places]
    return places[(-share).argsort(kind="stable")[:count]]


class Seated(NamedTuple):
    """A task that holds leaf cells."""

    task: Task
    priority: int
    seats: Seats


class QuotaCluster(Configured):
    """Nodes under quotas. `spreads`: the emptiest node is taken, not the fullest one."""

    def __init__(self, spec: ClusterSpec, spreads: bool) -> None:
        """Cost O(cells)."""
        super().__init__(spec)
        self._spreads = spreads
        self._bad_nodes: set[str] = set()
        self._seated: dict[str, Seated] = {}
        self._reserved: dict[str, Seated] = {}
        self._used: defaultdict[str, int] = defaultdict(int)
        self._room = 0
        self._possible: dict[tuple[str, bool, Shape], Waits | None] = {}
        self._read()

    def _read(self) -> None:
        self._types = nodes_by_type(self._topology)
        self._promised = self._topology.promised_leaves()
        self._leaf_count = sum(int(nodes.size.sum()) for nodes in self._types.values())
        self._possible.clear()

    def tell_time(self, now_s: float) -> None:
        """Quotas do not look at it."""

    def room(self, vc: str) -> int:
        return self._room

    def pool(self, vc: str) -> str:
        return ""

    def promised(self, vc: str) -> int:
        return self._promised.get(vc, 0)

    def can_ever_run(self, task: Task) -> Waits | None:
        """Cost: a look at an empty cluster for each kind of task."""
        key = (task.vc, task.is_opportunistic, task.shape)
        if key not in self._possible:
            self._possible[key] = self._impossible(task)
        return self._possible[key]

    def _impossible(self, task: Task) -> Waits | None:
        if task.vc not in self._promised:
            return Waits(Cause.REFUSED, f"VC {task.vc} does not exist")
        if not task.is_opportunistic and task.shape.leaf_count > self.promised(task.vc):
            return Waits(Cause.REFUSED, f"VC {task.vc} is promised {counted(self.promised(task.vc), 'leaf cell')}")
        if self._find(task.shape, {name: nodes.whole for name, nodes in self._types.items()}) is None:
            return Waits(Cause.REFUSED, "there are not enough nodes of that size")
        return None

    def lacks_room(self, task: Task, priority: int) -> Cause | None:
        if priority == OPPORTUNISTIC_PRIORITY:
            return None
        over = self._used[task.vc] + task.shape.leaf_count > self.promised(task.vc)
        return Cause.FULL if over else None

    def ask(self, task: Task, priority: int) -> Answer:
        """Cost: that of `find_seats`."""
        reserved = self._reserved.pop(task.group, None)
        if reserved is not None:
            self._count(reserved, -1)
        elif (cause := self.lacks_room(task, priority)) is not None:
            return Waits(cause)
        seats = reserved.seats if reserved is not None and self._is_free(reserved.seats) else None
        if seats is None:
            seats = self._find(task.shape, self._usable())
        if seats is not None:
            self._take(self._seated, Seated(task, priority, seats))
            return Started(self._level(seats))
        if priority == OPPORTUNISTIC_PRIORITY:
            return Waits(Cause.NO_ROOM)
        seats = self._find(task.shape, self._usable(takes_lent=True))
        if seats is None:
            used = sum(self._used.values())
            bad = self._leaf_count - sum(int(nodes.size.sum()) for nodes in self._types.values())
            return Waits(Cause.BAD if used + bad + task.shape.leaf_count > self._leaf_count else Cause.FRAGMENTED)
        victims = self._victims(seats)
        self._take(self._reserved, Seated(task, priority, seats))
        return Leaving(victims)

    def _usable(self, takes_lent: bool = False) -> dict[str, LongArray]:
        """Leaf cells that may be taken, by leaf type and node: free ones, those of opportunistic tasks if wanted."""
        return {
            name: np.where(nodes.size > 0, nodes.free + nodes.lent if takes_lent else nodes.free, 0)
            for name, nodes in self._types.items()
        }

    def _find(self, shape: Shape, free: Mapping[str, LongArray]) -> Seats | None:
        return find_seats(shape, self._types, free, self._spreads)

    def _victims(self, seats: Seats) -> tuple[str, ...]:
        """Opportunistic tasks that have to leave, the youngest of each node first, as many as it takes."""
        wanted: Counter[tuple[int, int]] = Counter()
        for kind, node, leaves in seats:
            wanted[kind, node] += leaves
        kinds = list(self._types.values())
        lacking = {key: count - int(kinds[key[0]].free[key[1]]) for key, count in wanted.items()}
        found: list[str] = []
        for name, seated in reversed(self._seated.items()):
            if seated.priority == OPPORTUNISTIC_PRIORITY and any(lacking.get(seat[:2], 0) > 0 for seat in seated.seats):
                found.append(name)
                for kind, node, leaves in seated.seats:
                    if (kind, node) in lacking:
                        lacking[kind, node] -= leaves
        return tuple(found)

    def _is_free(self, seats: Seats) -> bool:
        kinds = list(self._types.values())
        wanted: Counter[tuple[int, int]] = Counter()
        for kind, node, leaves in seats:
            wanted[kind, node] += leaves
        return all(
            kinds[kind].size[node] > 0 and kinds[kind].free[node] >= count for (kind, node), count in wanted.items()
        )

    def _take(self, table: dict[str, Seated], seated: Seated) -> None:
        table[seated.task.group] = seated
        self._count(seated, 1)

    def _count(self, seated: Seated, sign: int) -> None:
        kinds = list(self._types.values())
        is_lent = seated.priority == OPPORTUNISTIC_PRIORITY
        for kind, node, leaves in seated.seats:
            kinds[kind].free[node] -= sign * leaves
            if is_lent:
                kinds[kind].lent[node] += sign * leaves
        if not is_lent:
            self._used[seated.task.vc] += sign * seated.task.shape.leaf_count

    def release(self, task: Task) -> tuple[str, ...]:
        seated = self._seated.pop(task.group, None)
        if seated is None:
            seated = self._reserved.pop(task.group)
        self._count(seated, -1)
        self._room += 1
        return ()

    def set_health(self, node: str, is_healthy: bool) -> None:
        (self._bad_nodes.discard if is_healthy else self._bad_nodes.add)(node)
        self._room += 1
        for nodes in self._types.values():
            number = nodes.numbers.get(node)
            if number is not None:
                nodes.size[number] = nodes.whole[number] if is_healthy else 0

    def groups_on(self, nodes: Sequence[str]) -> list[str]:
        kinds = list(self._types.values())
        wanted = set(nodes)
        return [
            name
            for name, seated in self._seated.items()
            if any(kinds[kind].names[node] in wanted for kind, node, _ in seated.seats)
        ]

    def reconfigure(self, spec: ClusterSpec) -> Displaced:
        """Tasks stay on their nodes; tasks without a node have to leave."""
        before = list(self._types.items())
        self._spec, self._topology = spec, build_topology(spec)
        self._read()
        for nodes in self._types.values():
            for node in self._bad_nodes & nodes.numbers.keys():
                nodes.size[nodes.numbers[node]] = 0
        self._used.clear()
        self._room += 1
        evicted = []
        for table in (self._seated, self._reserved):
            for name, seated in list(table.items()):
                seats = self._moved(seated.seats, before)
                if len(seats) < len(seated.seats):
                    evicted.append(name)
                table[name] = seated._replace(seats=seats)
                self._count(table[name], 1)
        unreserved = [name for name in evicted if name in self._reserved]
        for name in unreserved:
            self._count(self._reserved.pop(name), -1)
        return Displaced(tuple(name for name in evicted if name in self._seated), tuple(unreserved))

    def _moved(self, seats: Seats, before: Sequence[tuple[str, Nodes]]) -> Seats:
        """Seats by the numbers of the present configuration, without seats on nodes that it lacks."""
        kinds = {name: number for number, name in enumerate(self._types)}
        moved = []
        for kind, node, leaves in seats:
            leaf_type, nodes = before[kind]
            number = self._types[leaf_type].numbers.get(nodes.names[node]) if leaf_type in kinds else None
            if number is not None:
                moved.append((kinds[leaf_type], number, leaves))
        return tuple(moved)

    def measure(self) -> Room:
        """Of cell types it knows nodes only, by the type that the configuration gives them."""
        free: Counter[str] = Counter()
        bad = idle = 0
        for nodes in self._types.values():
            bad += int((nodes.whole - nodes.size).sum())
            idle += int(np.maximum(nodes.free[nodes.size > 0], 0).sum())
            is_whole = (nodes.size > 0) & (nodes.free == nodes.size)
            counts = np.bincount(nodes.cell_type[is_whole], minlength=len(nodes.cell_types))
            free.update(dict(zip(nodes.cell_types, counts.tolist(), strict=True)))
        return Room(self._leaf_count, bad, idle, dict(free))

    def best_level(self, task: Task) -> int:
        """A node at least, as devices are not chosen."""
        chain = max(self._topology.chains, key=lambda each: each.top_level)
        return max(best_level(self._topology, task.shape.pods, task.shape.leaf_type), chain.node_level)

    def _level(self, seats: Seats) -> int:
        kinds = list(self._types.values())
        leaves = np.array([kinds[kind].first_leaf[node] for kind, node, _ in seats], np.int32)
        chain = self._topology.chain_of(int(leaves[0]))
        return max(common_level(self._topology, leaves), chain.node_level)
