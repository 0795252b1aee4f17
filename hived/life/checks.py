"""Checks a request before a search: its cells exist (rule 5.7), and it agrees with its group (rules 2.8, 15.4)."""

import numpy as np

from hived.cells.state import Group, State
from hived.cells.topology import NO_CELL, IntArray
from hived.cells.views import views_to_try
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodRequest, PodSpec, Rules, count_leaves

_OF_ONE_POD = ("members", "ignoreK8sSuggestedNodes", "withinCell", "elastic")


def check_agreement(pod: PodRequest, group: Group) -> None:
    """Raise UserError unless a pod's spec is that of the group it names."""
    if pod.spec is group.spec or pod.spec == group.spec:
        return
    known = _fields(group.spec)
    for name, mine in _fields(pod.spec).items():
        if mine != known[name]:
            raise UserError(
                f"[{pod.label}]: Pod does not match its affinity group {group.name}: "
                f"{name} is {mine}, group has {known[name]}"
            )


def differing_field(one: PodSpec, other: PodSpec) -> str | None:
    """The first field by which a pod cannot hold cells that the other got (rule 15.4).

    Fields about placement are past, and the order of leaving may differ between pods.
    """
    mine, theirs = _fields(one), _fields(other)
    return next((name for name in mine if name not in _OF_ONE_POD and mine[name] != theirs[name]), None)


def _fields(spec: PodSpec) -> dict[str, str]:
    how = "required" if spec.within_is_required else "preferred"
    return {
        "virtualCluster": spec.virtual_cluster,
        "priority": str(spec.priority),
        "members": ",".join(f"{m.pod_count}x{m.leaf_cell_count}" for m in spec.group.members),
        "pinnedCellId": spec.pinned_cell_id,
        "leafCellType": spec.leaf_cell_type,
        "lazyPreemptionEnable": _text(spec.lazy_preemption),
        "ignoreK8sSuggestedNodes": _text(spec.ignore_suggested_nodes),
        "withinCell": f"{how} {spec.within_cell}" if spec.within_cell or not spec.within_is_required else "",
        "elastic": _text(spec.elastic),
    }


def _text(flag: bool) -> str:
    return "true" if flag else "false"


def check_request(state: State, pod: PodRequest) -> None:
    """Raise UserError for an unknown VC, pinned cell or leaf cell type, in the reference's order and words.

    Except under `rules: hived`, the message about a leaf cell type lists the ones that the pod could have.
    """
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
    elif spec.leaf_cell_type:
        _check_leaf_type(state, pod, vc)
    if spec.within_cell:
        _check_level(state, pod)


def check_own(state: State, pod: PodRequest, own: IntArray) -> None:
    """Raise UserError unless these are different virtual leaves of the pod's VC, one for each leaf of its group.

    Under `rules: hived` nothing is checked, since nothing looks at them (rule 18.11).
    """
    if state.spec.rules is Rules.HIVED:
        return
    arrays, spec = state.arrays, pod.spec
    wanted = count_leaves(spec.group.members)
    where = f"[{pod.label}]: own cells of VC {spec.virtual_cluster}:"
    if spec.priority < MIN_GUARANTEED_PRIORITY:
        raise UserError(f"{where} an opportunistic group has none; ask without them")
    if own.dtype != np.int32 or own.shape != (wanted,):
        raise UserError(f"{where} {own.size} are given, expected int32 ids of {wanted} leaf cells in slot order")
    if not ((own >= 0) & (own < len(arrays.level))).all():
        raise UserError(f"{where} ids are from {own.min()} to {own.max()}, expected 0 to {len(arrays.level) - 1}")
    vc = state.topology.vc_index.get(spec.virtual_cluster, NO_CELL)
    if vc == NO_CELL or not ((arrays.level[own] == 1) & (arrays.vc[own] == vc)).all():
        raise UserError(f"{where} some are no virtual leaf cells of it; name those that its own schedule has chosen")
    if len(np.unique(own)) < len(own):
        raise UserError(f"{where} a leaf cell is named twice")


def _check_leaf_type(state: State, pod: PodRequest, vc: int) -> None:
    topology, spec = state.topology, pod.spec
    is_guaranteed = spec.priority >= MIN_GUARANTEED_PRIORITY

    def can_have(leaf_type: str) -> bool:
        chains = topology.leaf_type_chains.get(leaf_type, ())
        return any(not is_guaranteed or (vc, chain) in topology.vc_views for chain in chains)

    if can_have(spec.leaf_cell_type):
        return
    lacking = f"VC {spec.virtual_cluster}" if spec.leaf_cell_type in topology.leaf_type_chains else "the whole cluster"
    message = f"[{pod.label}]: Pod requesting leaf cell type {spec.leaf_cell_type} which {lacking} does not have"
    if state.spec.rules is not Rules.HIVED:
        owner = f"virtual cluster {spec.virtual_cluster}" if is_guaranteed else "the cluster"
        types = ", ".join(filter(can_have, topology.leaf_type_chains))
        message += (
            f"; set it to a type that {owner} has: {types}" if types else f"; {owner} has no cells besides pinned ones"
        )
    raise UserError(message)


def _check_level(state: State, pod: PodRequest) -> None:
    """Raise UserError if no chain that would be tried has the cell type of `within_cell` (rule 13.1)."""
    topology, arrays = state.topology, state.arrays
    views = [view for views in views_to_try(state, pod.spec) for view in views]
    cells = arrays.view_cell[arrays.view_start[views]].tolist()
    known = list(dict.fromkeys(name for cell in cells for name in topology.chain_of(cell).types))
    if views and pod.spec.within_cell not in known:
        raise UserError(
            f"[{pod.label}]: withinCell is {pod.spec.within_cell}, which is no type of the cells that the pod can use: "
            f"{', '.join(known)}"
        )
