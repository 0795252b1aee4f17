"""The state of another configuration of virtual clusters, with all that runs now in it.

Tried for small clusters only: all cells are laid out anew, and every group is told again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hived.cells.safety import spare_of
from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.life.groups import bind_info_of_slot
from hived.scenario import Scenario
from hived.scheduler import idle_state, new_state
from hived.values.errors import UserError
from hived.values.events import GroupReserved, LeavesLost, NodeHealthChanged, PodAllocated
from hived.values.specs import ClusterSpec, Rules, VirtualCellSpec, VirtualClusterSpec, WorkTimes
from hived_extender.insight.trials import Combine, ConfigurationChange, Resize
from hived_extender.machine.core import Placed, in_replay_order, reservations

MOST_LEAVES = 4096
"""Leaf cells of a cluster for which another configuration is tried."""


def check_size(state: State) -> None:
    """Raise UserError for a cluster that is too large."""
    leaves = len(state.arrays.node_leaf)
    if leaves > MOST_LEAVES:
        raise UserError(
            f"another configuration is tried for {MOST_LEAVES} leaf cells at most, here are {leaves}: `hived config "
            "plan` says what a new one would do"
        )


def state_after(state: State, changes: Sequence[ConfigurationChange]) -> State:
    """A state of the changed configuration, in which everything runs where it does now; told of it as a pushed
    configuration's would be.

    Raises UserError if the hardware cannot keep all promises, if a group would lose its guarantee, if the rules of
    decisions do not allow the change, or if the cluster is too large. Cost O(cells + pods); `state` is not changed.
    """
    check_size(state)
    spec = state.spec
    for one in changes:
        clusters = _combining(spec, one) if isinstance(one, Combine) else _resized(spec, one.resizes)
        spec = replace(spec, virtual_clusters=clusters)
    _check_promises(spec)
    names = state.topology.node_names
    placed = [
        Placed(pod, bind_info_of_slot(state, group, slot), group.times.get(pod.uid, WorkTimes()))
        for group in state.groups.values()
        for slot, pod in enumerate(group.holders)
        if pod is not None
    ]
    after = Scenario(new_state(spec))
    healthy = sorted(names[number] for number in np.flatnonzero(state.cells.node_bad == 0))
    after.tell(NodeHealthChanged(node, True) for node in healthy)
    after.tell(PodAllocated(request, info, times=times) for request, info, times in in_replay_order(placed))
    after.tell(_losses(state))
    after.tell(GroupReserved(one.pods, one.info) for _, one in sorted(reservations(state).items()))
    for name, group in state.groups.items():
        now = after.state.groups[name]
        if NO_CELL in now.physical or (group.virtual is not None) != (now.virtual is not None):
            raise UserError(f"{name} would lose its cells, or the guarantee of its virtual cluster")
    return after.state


def _check_promises(spec: ClusterSpec) -> None:
    """Raise UserError if not even good hardware could keep all promises."""
    healthy = idle_state(spec)
    chains = range(len(healthy.topology.chains))
    if any(healthy.cells.strained) or any(spare_of(healthy, chain).min() < 0 for chain in chains):
        raise UserError("there is not enough hardware for the promises to all virtual clusters")


def _losses(state: State) -> list[LeavesLost]:
    """The lost leaf cells of each node and type."""
    arrays, found = state.arrays, dict[tuple[str, str], list[int]]()
    for leaf in arrays.node_leaf[state.cells.lost[arrays.node_leaf] > 0].tolist():
        place = state.topology.node_names[arrays.node[leaf]], state.topology.cell_type(leaf)
        found.setdefault(place, []).append(int(arrays.device[leaf]))
    return [LeavesLost(*place, len(devices), tuple(devices)) for place, devices in found.items()]


def _combining(spec: ClusterSpec, change: Combine) -> Mapping[str, VirtualClusterSpec]:
    if spec.rules is Rules.HIVED:
        raise UserError("combine needs rules: 2")
    return {**spec.virtual_clusters, change.vc: replace(spec.virtual_clusters[change.vc], combines=True)}


def _resized(spec: ClusterSpec, resizes: Sequence[Resize]) -> Mapping[str, VirtualClusterSpec]:
    clusters = dict(spec.virtual_clusters)
    for one in resizes:
        vc = clusters[one.vc]
        path = _path(spec, vc, one)
        counts = {cell.cell_type: cell.cell_count for cell in vc.virtual_cells}
        count = counts.get(path, 0) + one.count
        if count < 0:
            raise UserError(
                f"virtual cluster {one.vc} has {counts.get(path, 0)} cells of {path}, {-one.count} cannot be taken"
            )
        counts[path] = count
        cells = tuple(VirtualCellSpec(name, number) for name, number in counts.items() if number)
        clusters[one.vc] = replace(vc, virtual_cells=cells)
    return clusters


def _path(spec: ClusterSpec, vc: VirtualClusterSpec, resize: Resize) -> str:
    """The cell type with its chain, as virtual clusters name it: their own, else another's, else the only one."""
    paths = [cell.cell_type for each in (vc, *spec.virtual_clusters.values()) for cell in each.virtual_cells]
    for path in paths:
        if resize.cell_type in (path, path.rsplit(".", 1)[-1]):
            return path
    found = list(dict.fromkeys(path for cell in spec.physical_cells for path in _paths(spec, cell.cell_type)))
    found = [path for path in found if resize.cell_type in (path, path.rsplit(".", 1)[-1])]
    if len(found) != 1:
        raise UserError(f"cell type {resize.cell_type} is in several chains; name one of {', '.join(found)}")
    return found[0]


def _paths(spec: ClusterSpec, top: str) -> list[str]:
    """All cell types below the top of a chain, with their chain."""
    found, name = [top], top
    while name in spec.cell_types:
        name = spec.cell_types[name].child_type
        found.append(f"{found[-1]}.{name}")
    return found


def type_names(spec: ClusterSpec) -> dict[str, None]:
    """All cell types that a virtual cluster can be promised, with their chain and without."""
    paths = [
        path for top in dict.fromkeys(cell.cell_type for cell in spec.physical_cells) for path in _paths(spec, top)
    ]
    return dict.fromkeys([*paths, *(path.rsplit(".", 1)[-1] for path in paths)])
