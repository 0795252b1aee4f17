"""Read-only views of a state in the reference's JSON shapes (EXTENDER paths `/v1/inspect`, FORMAT 2).

Empty fields are left out, lists of cells are in index order. Nothing here changes the state.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hived.errors import UserError
from hived.groups import virtual_placement
from hived.state import CellState, Group, State
from hived.topology import NO_CELL

Json = dict[str, Any]
STATE_NAMES = {
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


def cluster_status(state: State) -> Json:
    """Physical cluster and virtual clusters together."""
    return {"physicalCluster": physical_cluster(state), "virtualClusters": virtual_clusters(state)}


def physical_cluster(state: State) -> list[Json]:
    """Every physical cell, as trees. Cost O(cells)."""
    return list(iter_physical_cluster(state))


def iter_physical_cluster(state: State) -> Iterator[Json]:
    """One top cell with all below it at a time, so that a server can pause between them."""
    for number in range(len(state.topology.chains)):
        forest = state.topology.forests[number]
        for cell in range(forest.first_root, forest.first_root + forest.tree_count):
            yield _tree(state, cell)


def virtual_clusters(state: State) -> dict[str, list[Json]]:
    """VC name -> its cells."""
    return {name: virtual_cluster(state, name) for name in state.topology.vc_names}


def virtual_cluster(state: State, vc: str) -> list[Json]:
    """The cells of one VC and the leaves lent to its opportunistic pods. UserError if it is unknown."""
    return list(iter_virtual_cluster(state, vc))


def iter_virtual_cluster(state: State, vc: str) -> Iterator[Json]:
    """One preassigned cell at a time, then one lent leaf at a time."""
    number = state.topology.vc_index.get(vc)
    if number is None:
        raise UserError(f"VC {vc} not found")
    for root in state.topology.preassigned[number]:
        yield _tree(state, root)
    for leaf in (state.cells.lent_to == number).nonzero()[0].tolist():
        if state.cells.lent_to[leaf] != number:
            continue  # given back since the walk began
        yield {
            "cellType": state.topology.cell_type(leaf),
            "cellAddress": state.topology.address(leaf) + "-opp",
            "cellState": "Used",
            "cellHealthiness": HEALTH_NAMES[state.cells.lent_bad[leaf]],
            "cellPriority": -1,
            "physicalCell": _tree(state, leaf),
        }


def _fields(state: State, cell: int) -> Json:
    """One cell without its children and without the cell it is bound to."""
    topology, cells, arrays = state.topology, state.cells, state.arrays
    chain, level = topology.chain_of(cell), int(arrays.level[cell])
    fields: Json = {"cellType": chain.types[level - 1]}
    if arrays.parent[cell] == NO_CELL:
        fields["leafCellType"] = chain.types[0]
    if level == chain.node_level:
        fields["isNodeLevel"] = True
    fields |= {
        "cellAddress": topology.address(cell),
        "cellState": STATE_NAMES[CellState(cells.state[cell])],
        "cellHealthiness": HEALTH_NAMES[cells.bad[cell]],
        "cellPriority": int(cells.priority[cell]),
    }
    if cell < topology.physical_count and cells.shown_vc[cell] != NO_CELL:
        fields["vc"] = state.vc_names[cells.shown_vc[cell]]
    return fields


def _tree(state: State, cell: int) -> Json:
    """One cell with its children and the cell it is bound to."""
    fields = _fields(state, cell)
    children = [_tree(state, child) for child in state.topology.children(cell)]
    if children:
        fields["cellChildren"] = children
    bound = int(state.cells.bound[cell])
    if bound != NO_CELL:
        fields["virtualCell" if cell < state.topology.physical_count else "physicalCell"] = _fields(state, bound)
    return fields


def snapshot(state: State) -> tuple[Json, Json, Json]:
    """The maps p, v and g of FORMAT 2: all cells and groups that differ from their defaults. Cost O(cells)."""
    topology, cells, arrays = state.topology, state.cells, state.arrays
    physical: Json = {}
    virtual: Json = {}
    shown = state.cells.shown_vc
    busy = (cells.state != 0) | (cells.bad != 0) | (cells.priority != -2) | (cells.bound != NO_CELL)
    busy[: topology.physical_count] |= shown != NO_CELL
    for cell in busy.nonzero()[0].tolist():
        bound = int(cells.bound[cell])
        other = topology.address(bound) if bound != NO_CELL else ""
        entry = [STATE_NAMES[CellState(cells.state[cell])], HEALTH_NAMES[cells.bad[cell]], int(cells.priority[cell])]
        if cell < topology.physical_count:
            vc = int(shown[cell])
            physical[topology.address(cell)] = [*entry, state.vc_names[vc] if vc != NO_CELL else "", other]
        else:
            virtual[f"{topology.vc_names[arrays.vc[cell]]}|{topology.address(cell)}"] = [*entry, other]
    for leaf in (cells.lent_to != NO_CELL).nonzero()[0].tolist():
        address = topology.address(leaf)
        key = f"{state.vc_names[cells.lent_to[leaf]]}|{address}-opp"
        virtual[key] = ["Used", HEALTH_NAMES[cells.lent_bad[leaf]], -1, address]
    return physical, virtual, {name: _group_entry(state, group) for name, group in state.groups.items()}


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
    }
