"""A reservation from the bind info of its pods: a preempting group outlives the state it was made in (rule 8.11).

It takes the same physical leaves again; which virtual cells stand behind them is chosen here. Groups that use the
leaves are its victims. Where that cannot be, or would take more than a search could have given it, it is refused and
nothing changes: unlike work that runs, pods that wait can be placed anew.
"""

from collections.abc import Sequence

import numpy as np

from hived.bind_info import canonical_order, check_sizes, find_leaves
from hived.checks import check_agreement, check_request
from hived.errors import UserError
from hived.groups import check_members
from hived.preemption import start_preemption
from hived.safety import is_damaged, spare_of
from hived.specs import MIN_GUARANTEED_PRIORITY, BindInfo, PodRequest, PodSpec
from hived.state import NO_GROUP, State
from hived.topology import NO_CELL, IntArray
from hived.virtual_leaves import choose_virtual


def restore_reservation(
    state: State, pods: Sequence[PodRequest], bind_info: BindInfo, *, may_be_free: bool = False
) -> None:
    """Create the preempting group that waits for the cells of `bind_info`, with these pods in this order (rule 8.11).

    Must run while the journal records; a UserError may come halfway, and the caller undoes. Cost O(leaves x height).
    """
    spec = _check_pods(state, pods)
    check_sizes(pods[0], bind_info)
    known, _ = canonical_order(bind_info)
    physical, levels = find_leaves(state, known)
    _check_leaves(state, spec, physical)
    _check_users(state, spec, physical, may_be_free)
    try:
        virtual = choose_virtual(state, spec, physical, levels)
    except UserError as error:
        raise _refused(spec, error.message) from None
    chain = int(state.arrays.chain_of_level[state.arrays.chain_level[physical[0]]])
    before = spare_of(state, chain)
    start_preemption(state, pods[0], physical, virtual)
    if is_damaged(before, spare_of(state, chain)):
        raise _refused(spec, f"other VCs are promised the cells that are left of chain {_name(state, chain)}")
    group = state.groups[spec.group.name]
    for pod in pods:
        check_agreement(pod, group)
        group.preempting_pods[pod.uid] = pod


def _check_pods(state: State, pods: Sequence[PodRequest]) -> PodSpec:
    """The spec of the first pod; UserError unless all are of one new group, and of one that preempts."""
    if not pods:
        raise UserError("no pod is named for which cells are to be reserved")
    spec = pods[0].spec
    for pod in pods:
        check_members(pod.spec)
        if pod.spec.group.name != spec.group.name:
            raise _refused(spec, f"{pod.label} is of affinity group {pod.spec.group.name}")
    if spec.group.name in state.groups:
        raise _refused(spec, "there is a group of that name already")
    check_request(state, pods[0])
    if spec.priority < MIN_GUARANTEED_PRIORITY:
        raise _refused(spec, "opportunistic pods wait for nobody to leave")
    return spec


def _refused(spec: PodSpec, reason: str) -> UserError:
    return UserError(f"affinity group {spec.group.name} cannot have its reservation again: {reason}")


def _name(state: State, chain: int) -> str:
    return state.topology.chains[chain].name


def _check_leaves(state: State, spec: PodSpec, physical: IntArray) -> None:
    """Raise UserError unless every leaf is there and healthy, and a search could choose them together."""
    arrays, topology = state.arrays, state.topology
    if NO_CELL in physical:
        raise _refused(spec, "a leaf cell of it is not configured any more, or named twice")
    bad = physical[state.cells.bad[physical] == 1]
    if len(bad):
        raise _refused(spec, f"leaf cell {topology.address(int(bad[0]))} is bad")
    chains = np.unique(arrays.chain_of_level[arrays.chain_level[physical]])
    chain = topology.chains[chains[0]]
    if len(chains) > 1:
        raise _refused(spec, f"its leaf cells are in chains {', '.join(_name(state, int(each)) for each in chains)}")
    if spec.leaf_cell_type not in {"", chain.types[0]}:
        raise _refused(spec, f"its leaf cells are of type {chain.types[0]}, not {spec.leaf_cell_type}")
    if spec.within_cell and spec.within_is_required:
        level, cells = chain.type_levels.get(spec.within_cell, 0), physical.copy()
        while (lower := arrays.level[cells] < level).any():
            cells[lower] = arrays.parent[cells[lower]]
        if level == 0 or len(np.unique(cells)) > 1:
            raise _refused(spec, f"its leaf cells are not below one {spec.within_cell}")


def _check_users(state: State, spec: PodSpec, physical: IntArray, may_be_free: bool) -> None:
    """Raise UserError unless somebody uses the leaves whom the group may preempt, and nobody reserves them.

    With `may_be_free` it is enough that nobody else uses them.
    """
    cells, address = state.cells, state.topology.address
    reserved = physical[cells.reserving[physical] != NO_GROUP]
    if len(reserved):
        other = state.group_by_number[int(cells.reserving[reserved[0]])].name
        raise _refused(spec, f"leaf cell {address(int(reserved[0]))} is reserved by affinity group {other}")
    used = physical[cells.using[physical] != NO_GROUP]
    if not len(used) and not may_be_free:
        raise _refused(spec, "nobody uses its cells, so there is nothing to wait for")
    stronger = used[cells.priority[used] >= spec.priority]
    if len(stronger):
        user = state.group_by_number[int(cells.using[stronger[0]])].name
        priority = int(cells.priority[stronger[0]])
        where = address(int(stronger[0]))
        raise _refused(spec, f"leaf cell {where} is used by affinity group {user} at priority {priority}")
