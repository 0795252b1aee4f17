"""Virtual cells that a request names: the cells that its VC's own schedule gives the group (rule 18.11).

They are chosen elsewhere, in a state with only the VC's own jobs in a private cluster. If they are free here, the group
gets exactly these, so that both states agree about the VC's cells.
"""

from dataclasses import replace

import numpy as np

from hived.better_rules.better_placement import map_chosen
from hived.cells.journal import mark, undo_changes
from hived.cells.state import State
from hived.cells.topology import NO_CELL, IntArray
from hived.cells.views import views_to_try
from hived.hived_rules.packing import Request
from hived.hived_rules.placement import Placement
from hived.life.victims import has_victims
from hived.values.specs import FREE_PRIORITY


def fit_own(state: State, request: Request) -> Placement | None:
    """Find hardware behind the cells that a request names; None, with nothing changed, if they cannot be used.

    A sparing VC does not use them if others would have to leave (rule 18.4). Cost O(leaves x height), and the mapping.
    """
    spec, own = request.pod.spec, request.own
    if own is None or spec.beside or not _are_usable(state, request, own):
        return None
    level = 0
    if spec.within_cell and spec.within_is_required:
        level = state.topology.chain_of(int(own[0])).type_levels.get(spec.within_cell, 0)
        if not level:
            return None
    before = mark(state)
    found = map_chosen(state, request, own, level)
    if found is None:
        return None
    is_sparing = state.spec.virtual_clusters[spec.virtual_cluster].spares
    evicts = bool(found.lazily_preempted) or has_victims(state, found.physical)
    if (is_sparing and evicts) or not _can_run(state, request, found.physical):
        undo_changes(state, before)
        return None
    return replace(found, keeps_virtual=True)


def _can_run(state: State, request: Request, physical: IntArray) -> bool:
    """True if the hardware is healthy and suggested, as that of cells bound before may not be."""
    nodes = state.arrays.node[physical]
    is_suggested = request.ignore or bool(request.suggested[nodes].all())
    return is_suggested and not state.cells.bad[physical].any()


def _are_usable(state: State, request: Request, own: IntArray) -> bool:
    """True if the cells are free, in a view that the group may use, with the cells of each pod below one node."""
    arrays, cells = state.arrays, state.cells
    if (cells.priority[own] != FREE_PRIORITY).any() or not _are_in_view(state, request, own):
        return False
    nodes, highest = own, int(arrays.node_level[arrays.chain_of_level[arrays.chain_level[own[0]]]])
    while (is_below := (arrays.level[nodes] < highest) & (arrays.parent[nodes] != NO_CELL)).any():
        nodes = np.where(is_below, arrays.parent[nodes], nodes)
    start = 0
    for size, count in zip(request.sizes.tolist(), request.counts.tolist(), strict=True):
        pods = nodes[start : start + size * count].reshape(count, size)
        if (pods != pods[:, :1]).any():
            return False
        start += size * count
    return True


def _are_in_view(state: State, request: Request, own: IntArray) -> bool:
    """True if all are in one chain that the group may use, in its pinned cell if it has one, else in none."""
    arrays, topology, spec = state.arrays, state.topology, request.pod.spec
    chains = arrays.chain_of_level[arrays.chain_level[own]]
    roots = arrays.root[own]
    vc = topology.vc_index[spec.virtual_cluster]
    if spec.pinned_cell_id:
        return bool((roots == topology.pinned_roots[vc, spec.pinned_cell_id]).all())
    view = topology.vc_views.get((vc, int(chains[0])))
    is_one = bool((chains == chains[0]).all() and (arrays.pinned[roots] == 0).all())
    return is_one and any(view in views for views in views_to_try(state, spec))
