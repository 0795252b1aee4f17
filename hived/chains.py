"""Which chains a pod may use, and does it ask for something that exists (rules 5.7, 5.8)?"""

from collections.abc import Iterator

from hived.errors import UserError
from hived.specs import MIN_GUARANTEED_PRIORITY, PodRequest, PodSpec
from hived.state import State
from hived.topology import Chain


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
    elif spec.leaf_cell_type:
        _check_leaf_type(state, pod, vc)
    if spec.within_cell:
        _check_level(state, pod)


def _check_leaf_type(state: State, pod: PodRequest, vc: int) -> None:
    topology, spec = state.topology, pod.spec
    where, is_guaranteed = f"[{pod.label}]: ", spec.priority >= MIN_GUARANTEED_PRIORITY
    wanted = f"{where}Pod requesting leaf cell type {spec.leaf_cell_type} which "
    if spec.leaf_cell_type not in topology.leaf_type_chains:
        raise UserError(f"{wanted}the whole cluster does not have")
    chains = topology.leaf_type_chains[spec.leaf_cell_type]
    if is_guaranteed and not any((vc, chain) in topology.vc_views for chain in chains):
        raise UserError(f"{wanted}VC {spec.virtual_cluster} does not have")


def _check_level(state: State, pod: PodRequest) -> None:
    """Raise UserError if no chain that would be tried has the cell type that the group is to be within one cell of."""
    topology, arrays = state.topology, state.arrays
    views = [view for views in views_to_try(state, pod.spec) for view in views]
    cells = arrays.view_cell[arrays.view_start[views]].tolist()
    known = list(dict.fromkeys(name for cell in cells for name in topology.chain_of(cell).types))
    if views and pod.spec.within_cell not in known:
        raise UserError(
            f"[{pod.label}]: withinCell is {pod.spec.within_cell}, which is no type of the cells that the pod can use: "
            f"{', '.join(known)}"
        )


def views_to_try(state: State, spec: PodSpec) -> Iterator[list[int]]:
    """For each leaf cell type in turn, the views of its chains (rules 5.8, 5.11)."""
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


def chain_of_view(state: State, view: int) -> Chain:
    """The chain that the cells of a view are in."""
    return state.topology.chain_of(first_cell(state, view))


def first_cell(state: State, view: int) -> int:
    """The first cell of a view, which tells its chain, its VC and whether it is that of a pinned cell."""
    return int(state.arrays.view_cell[state.arrays.view_start[view]])
