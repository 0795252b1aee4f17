"""Where a new group could go: which chains to try, then placement in the VC and mapping (SEMANTICS 4.3-4.5)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hived.decisions import Wait
from hived.errors import UserError
from hived.groups import virtual_placement
from hived.journal import mark, undo_changes
from hived.mapping import map_leaves
from hived.placement import BAD_NODE, NO_CAPACITY, PLACED, place_group
from hived.preemption import lazy_groups_below, preempt_lazily_for
from hived.specs import MIN_GUARANTEED_PRIORITY, PodRequest, PodSpec
from hived.state import State
from hived.topology import IntArray

_MOST = 2**31 - 1  # counts saturate here; no cluster has as many leaves (FORMAT C5)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Cells for every pod of a group, one per leaf in canonical order; `virtual` is None if opportunistic."""

    physical: IntArray
    virtual: IntArray | None
    lazily_preempted: tuple[str, ...] = ()


def search(state: State, pod: PodRequest, suggested: npt.NDArray[np.bool_] | None) -> Placement | Wait:
    """Find cells for a new group; runs while the journal records, the caller undoes what it keeps no use for.

    Raises UserError for a request that this cluster can never meet (SEMANTICS 4.3).
    """
    check_request(state, pod)
    spec = pod.spec
    # a copy, because a read-only or strided mask would make numba compile the kernels once more
    mask = np.ones(0, np.bool_) if suggested is None else np.array(suggested, np.bool_)
    ignore = spec.ignore_suggested_nodes or bool(mask.all())
    reason = ""
    for views in _views_to_try(state, spec):
        last = ""
        for view in views:
            found = _search_view(state, pod, view, mask, ignore)
            if isinstance(found, Placement):
                return found
            last = found.reason
        reason = last or reason
    return Wait(reason)


def check_request(state: State, pod: PodRequest) -> None:
    """Raise UserError for an unknown VC, pinned cell or leaf cell type, in the reference's order and words."""
    topology, spec = state.topology, pod.spec
    vc = topology.vc_index.get(spec.virtual_cluster)
    where = f"[{pod.label}]: "
    is_guaranteed = spec.priority >= MIN_GUARANTEED_PRIORITY
    if vc is None:
        raise UserError(f"{where}VC {spec.virtual_cluster} does not exists!")
    if spec.pinned_cell_id:
        if (vc, spec.pinned_cell_id) not in topology.pinned_roots:
            raise UserError(f"{where}VC {spec.virtual_cluster} does not have pinned cell {spec.pinned_cell_id}")
        if not is_guaranteed:
            raise UserError(f"{where}opportunistic pod not supported to use pinned cell {spec.pinned_cell_id}")
        return
    if not spec.leaf_cell_type:
        return
    wanted = f"{where}Pod requesting leaf cell type {spec.leaf_cell_type} which "
    if spec.leaf_cell_type not in topology.leaf_type_chains:
        raise UserError(f"{wanted}the whole cluster does not have")
    chains = topology.leaf_type_chains[spec.leaf_cell_type]
    if is_guaranteed and not any((vc, chain) in topology.vc_views for chain in chains):
        raise UserError(f"{wanted}VC {spec.virtual_cluster} does not have")


def _views_to_try(state: State, spec: PodSpec) -> Iterator[list[int]]:
    """For each leaf cell type in turn, the views of its chains (SEMANTICS 4.4, FORMAT 4.1, 4.2)."""
    topology = state.topology
    vc = topology.vc_index[spec.virtual_cluster]
    if spec.pinned_cell_id:
        yield [topology.pinned_views[vc, spec.pinned_cell_id]]
        return
    types = [spec.leaf_cell_type] if spec.leaf_cell_type else list(topology.leaf_type_chains)
    for leaf_type in types:
        chains = topology.leaf_type_chains[leaf_type]
        if spec.priority < MIN_GUARANTEED_PRIORITY:
            yield list(chains)
        else:
            yield [topology.vc_views[vc, chain] for chain in chains if (vc, chain) in topology.vc_views]


def _search_view(
    state: State, pod: PodRequest, view: int, suggested: npt.NDArray[np.bool_], ignore: bool
) -> Placement | Wait:
    spec, arrays, cells = pod.spec, state.arrays, state.cells
    sizes = np.array([min(m.leaf_cell_count, _MOST) for m in spec.group.members], np.int32)
    counts = np.array([min(m.pod_count, _MOST) for m in spec.group.members], np.int64)
    wanted = sum(m.leaf_cell_count * m.pod_count for m in spec.group.members)
    leaves = np.empty(min(wanted, state.topology.view_leaf_counts[view]), np.int32)
    outcome, blocker = place_group(arrays, cells, view, spec.priority, sizes, counts, suggested, ignore, leaves)
    is_guaranteed = spec.priority >= MIN_GUARANTEED_PRIORITY
    where = f"VC {spec.virtual_cluster}" if is_guaranteed else "physical cluster"
    if outcome == NO_CAPACITY:
        return Wait(f"insufficient capacity when scheduling in {where}")
    if outcome != PLACED:
        kind = "bad" if outcome == BAD_NODE else "non-suggested"
        node = state.topology.address(int(blocker))
        return Wait(f"have to use at least one {kind} node {node} when scheduling in {where}")
    if not is_guaranteed:
        return Placement(leaves, None)
    return _map(state, pod, leaves, suggested, ignore)


def _map(
    state: State, pod: PodRequest, virtual: IntArray, suggested: npt.NDArray[np.bool_], ignore: bool
) -> Placement | Wait:
    """Put physical cells behind a placement in the VC, lazily preempting what may be (SEMANTICS 4c)."""
    before = mark(state)
    lazy = lazy_groups_below(state, virtual)
    state.last_plan = None
    if lazy:
        behind = state.cells.bound[state.arrays.root[virtual]]
        # kept for the event that carries the decision out, which must spare the same cells (FORMAT 5h)
        state.last_plan = (pod.spec.group.name, behind, virtual)
        preempt_lazily_for(state, lazy, behind, virtual, pod.spec.group.name)
    physical = np.empty(len(virtual), np.int32)
    if map_leaves(state.arrays, state.cells, virtual, suggested, ignore, physical):
        return Placement(physical, virtual, tuple(group.name for group in lazy))
    undo_changes(state, before)
    kind = "bad" if pod.spec.ignore_suggested_nodes else "bad or non-suggested"
    return Wait(
        f"Mapping the virtual placement would need to use at least one {kind} node"
        f" (virtual placement : {virtual_placement_text(state, virtual)})"
    )


def virtual_placement_text(state: State, virtual: IntArray) -> str:
    """`groups.virtual_placement` as compact JSON."""
    return json.dumps(virtual_placement(state, virtual), separators=(",", ":"), ensure_ascii=False)
