"""Read-only views of a state in the reference's JSON shapes (the paths `/v1/inspect`; rules 16.2, 16.3).

Empty fields are left out, lists of cells are in index order. Nothing here changes the state.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hived.cells.state import CellState, Group, State
from hived.cells.topology import NO_CELL, IntArray, Topology
from hived.life.groups import virtual_placement
from hived.values.errors import UserError
from hived.values.specs import WorkTimes

Json = dict[str, Any]
STATE_NAMES: dict[int, str] = {
    CellState.FREE: "Free",
    CellState.USED: "Used",
    CellState.RESERVING: "Reserving",
    CellState.RESERVED: "Reserved",
}
HEALTH_NAMES = ("Healthy", "Bad")
_NO_TIMES: Mapping[str, str] = {}


def affinity_groups(state: State, times: Mapping[str, str] = _NO_TIMES) -> Json:
    """All groups that hold or reserve cells, by name; `items` is None if there are none."""
    return {"items": [affinity_group(state, name, times) for name in sorted(state.groups)] or None}


def affinity_group(state: State, name: str, times: Mapping[str, str] = _NO_TIMES) -> Json:
    """One group; `times` gives the lazy preemption times that the core does not know. UserError if it is unknown."""
    group = state.groups.get(name)
    if group is None:
        raise UserError(f"Affinity group {name} does not exist since it is not allocated or preempting")
    status: Json = {
        "vc": group.spec.virtual_cluster,
        "priority": group.priority,
        "state": group.state.value,
        "physicalPlacement": physical_placement(state, group),
    }
    if group.virtual is not None:
        placed = group.virtual[group.virtual != NO_CELL]
        status["virtualPlacement"] = virtual_placement(state, placed)
    status["allocatedPods"] = sorted(pod.uid for pod in group.holders if pod is not None)
    status["preemptingPods"] = sorted(group.preempting_pods)
    if group.lazy_preemptor is not None:
        status["lazyPreemptionStatus"] = {"preemptor": group.lazy_preemptor, "preemptionTime": times.get(name, "")}
    return {
        "metadata": {"name": name},
        "status": {key: value for key, value in status.items() if value not in ([], {})},
    }


def physical_placement(state: State, group: Group) -> dict[str, list[int]]:
    """Node name -> device indices of a group, in group order; leaves that are not configured any more are left out."""
    arrays, names = state.arrays, state.topology.node_names
    held = group.physical[group.physical != NO_CELL]
    placement: dict[str, list[int]] = {}
    for node, device in zip(arrays.node[held].tolist(), arrays.device[held].tolist(), strict=True):
        placement.setdefault(names[node], []).append(device)
    return placement


@dataclass(frozen=True, slots=True)
class CellStatus:
    """The visible facts of all cells at one moment; readers do not block changes of the state.

    Arrays are copies from `state.Cells`.
    """

    topology: Topology
    vc_names: tuple[str, ...]
    state: IntArray
    bad: IntArray
    priority: IntArray
    bound: IntArray
    shown_vc: IntArray
    lent_to: IntArray
    lent_bad: IntArray


def copy_cells(state: State, room: CellStatus | None = None) -> CellStatus:
    """Copy the cells as they are now. Cost O(cells) as plain copies, of 9 MB for 16,384 nodes.

    An earlier copy without readers can be the `room`: memory that is used already is filled in a fraction of
    the time. Room for another topology is left alone.
    """
    names = [field.name for field in fields(CellStatus) if field.name not in {"topology", "vc_names"}]
    if room is None or room.topology is not state.topology:
        arrays = {name: getattr(state.cells, name).copy() for name in names}
    else:
        arrays = {name: getattr(room, name) for name in names}
        for name, array in arrays.items():
            np.copyto(array, getattr(state.cells, name))
    return CellStatus(state.topology, tuple(state.vc_names), **arrays)


def cluster_status(state: State) -> Json:
    """Physical cluster and virtual clusters together."""
    return {"physicalCluster": physical_cluster(state), "virtualClusters": virtual_clusters(state)}


def physical_cluster(state: State) -> list[Json]:
    """Every physical cell, as trees. Cost O(cells)."""
    return list(iter_physical_cluster(copy_cells(state)))


def iter_physical_cluster(cells: CellStatus) -> Iterator[Json]:
    """Yield one top cell with all below it at a time, so that a server can pause between them."""
    for number in range(len(cells.topology.chains)):
        forest = cells.topology.forests[number]
        for root in range(forest.first_root, forest.first_root + forest.tree_count):
            yield _tree(cells, root)


def virtual_clusters(state: State) -> dict[str, list[Json]]:
    """VC name -> its cells."""
    return {name: virtual_cluster(state, name) for name in state.topology.vc_names}


def virtual_cluster(state: State, vc: str) -> list[Json]:
    """The cells of one VC and the leaves lent to its opportunistic pods. UserError if it is unknown."""
    return list(iter_virtual_cluster(copy_cells(state), vc))


def iter_virtual_cluster(cells: CellStatus, vc: str) -> Iterator[Json]:
    """Yield one preassigned cell at a time, then one lent leaf at a time."""
    number = cells.topology.vc_index.get(vc)
    if number is None:
        raise UserError(f"VC {vc} not found")
    for root in cells.topology.preassigned[number]:
        yield _tree(cells, root)
    for leaf in np.flatnonzero(cells.lent_to == number).tolist():
        yield {
            "cellType": cells.topology.cell_type(leaf),
            "cellAddress": cells.topology.address(leaf) + "-opp",
            "cellState": "Used",
            "cellHealthiness": HEALTH_NAMES[cells.lent_bad[leaf]],
            "cellPriority": -1,
            "physicalCell": _tree(cells, leaf),
        }


def _tree(cells: CellStatus, root: int) -> Json:
    """One cell with everything below it, each with the cell it is bound to; made level by level."""
    arrays = cells.topology.arrays
    levels = [np.array([root])]
    while (count := int(arrays.child_count[arrays.chain_level[levels[-1][0]]])) > 0:
        first = int(arrays.first_child[levels[-1][0]])
        levels.append(np.arange(first, first + count * len(levels[-1])))
    below: list[Json] = []
    while levels:
        members = levels.pop()
        trees = _describe(cells, members)
        if below:
            count = len(below) // len(trees)
            for i, tree in enumerate(trees):
                tree["cellChildren"] = below[i * count : (i + 1) * count]
        bound = cells.bound[members]
        has_other = np.flatnonzero(bound != NO_CELL)
        key = "virtualCell" if root < cells.topology.physical_count else "physicalCell"
        for i, other in zip(has_other.tolist(), _describe(cells, bound[has_other]), strict=True):
            trees[i][key] = other
        below = trees
    return below[0]


def _describe(cells: CellStatus, members: IntArray) -> list[Json]:
    """Cells of one level, without their children and without the cells they are bound to."""
    if not len(members):
        return []
    topology, arrays = cells.topology, cells.topology.arrays
    chain, level = topology.chain_of(int(members[0])), int(arrays.level[members[0]])
    of_type: Json = {"cellType": chain.types[level - 1]}
    of_roots = of_type | {"leafCellType": chain.types[0]}
    of_node = {"isNodeLevel": True} if level == chain.node_level else {}
    is_physical = members[0] < topology.physical_count
    shown_vcs = cells.shown_vc[members].tolist() if is_physical else [NO_CELL] * len(members)
    described = []
    for cell, parent, state, bad, priority, shown_vc in zip(
        members.tolist(), arrays.parent[members].tolist(), cells.state[members].tolist(), cells.bad[members].tolist(),
        cells.priority[members].tolist(), shown_vcs, strict=True,
    ):  # fmt: skip
        one = {
            **(of_roots if parent == NO_CELL else of_type),
            **of_node,
            "cellAddress": topology.address(cell),
            "cellState": STATE_NAMES[state],
            "cellHealthiness": HEALTH_NAMES[bad],
            "cellPriority": priority,
        }
        if shown_vc != NO_CELL:
            one["vc"] = cells.vc_names[shown_vc]
        described.append(one)
    return described


def snapshot(state: State) -> tuple[Json, Json, Json]:
    """The maps p, v and g of rule 16.2: all cells and groups that differ from their defaults. Cost O(cells)."""
    topology, cells, arrays = state.topology, state.cells, state.arrays
    physical: Json = {}
    virtual: Json = {}
    shown = state.cells.shown_vc
    busy = (cells.state != 0) | (cells.bad != 0) | (cells.priority != -2) | (cells.bound != NO_CELL)
    busy[: topology.physical_count] |= shown != NO_CELL
    members = busy.nonzero()[0]
    cut = int(members.searchsorted(topology.physical_count))
    entries = _entries(state, members)
    for cell, vc, entry in zip(members[:cut].tolist(), shown[members[:cut]].tolist(), entries[:cut], strict=True):
        entry.insert(-1, state.vc_names[vc] if vc != NO_CELL else "")
        physical[topology.address(cell)] = entry
    for cell, vc, entry in zip(members[cut:].tolist(), arrays.vc[members[cut:]].tolist(), entries[cut:], strict=True):
        virtual[f"{topology.vc_names[vc]}|{topology.address(cell)}"] = entry
    for leaf in (cells.lent_to != NO_CELL).nonzero()[0].tolist():
        address = topology.address(leaf)
        key = f"{state.vc_names[cells.lent_to[leaf]]}|{address}-opp"
        virtual[key] = ["Used", HEALTH_NAMES[cells.lent_bad[leaf]], -1, address]
    return physical, virtual, {name: _group_entry(state, group) for name, group in state.groups.items()}


def _entries(state: State, members: IntArray) -> list[list[Any]]:
    """The state, health, priority and bound cell's address of some cells."""
    address, columns = state.topology.address, state.cells
    return [
        [STATE_NAMES[used], HEALTH_NAMES[bad], priority, address(bound) if bound != NO_CELL else ""]
        for used, bad, priority, bound in zip(
            columns.state[members].tolist(), columns.bad[members].tolist(), columns.priority[members].tolist(),
            columns.bound[members].tolist(), strict=True,
        )
    ]  # fmt: skip


def _group_entry(state: State, group: Group) -> Json:
    placed = group.virtual[group.virtual != NO_CELL] if group.virtual is not None else group.physical[:0]
    return {
        "vc": group.spec.virtual_cluster,
        "priority": group.priority,
        "state": group.state.value,
        "physical": {node: sorted(indices) for node, indices in physical_placement(state, group).items()},
        "virtual": {root: sorted(leaves) for root, leaves in virtual_placement(state, placed).items()},
        "allocated": sorted(pod.uid for pod in group.holders if pod is not None),
        "preempting": sorted(group.preempting_pods),
        "lazyPreemptor": group.lazy_preemptor or "",
    } | ({"times": {uid: _times(times) for uid, times in sorted(group.times.items())}} if group.times else {})


def _times(times: WorkTimes) -> list[float | None]:
    return [times.started_s, times.saved_s]
