"""The promise to a gang that has to be below one cell, on random clusters, judged without the oracle.

Sound: it is below one cell of that type. Complete: where the ordinary search finds room on the nodes of such a cell, it
finds room too. So the ordinary search, with the nodes of one cell after the other suggested, is the judge.
"""

from dataclasses import replace
from random import Random

import numpy as np

from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.scheduler import handle
from hived.values.decisions import Bind, Decision, Preempt
from hived.values.errors import UserError
from hived.values.events import Phase, ScheduleRequested
from hived.values.specs import BindInfo, PodRequest
from tests.core.builders import busy_state, pod, random_cluster


def leaves_of(state: State, info: BindInfo) -> list[int]:
    """The leaf cells that a bind info names."""
    arrays, found = state.arrays, []
    for placement in (placement for member in info.members for placement in member):
        node = state.topology.node_index[placement.node]
        for leaf in arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]].tolist():
            is_of_chain = state.topology.chain_of(leaf).name == info.cell_chain
            if is_of_chain and int(arrays.device[leaf]) in placement.leaf_cell_indices:
                found.append(leaf)
    return found


def above(state: State, leaf: int, cell_type: str) -> int:
    """The cell of a type that a leaf is below, NO_CELL if there is none."""
    while leaf != NO_CELL and state.topology.cell_type(leaf) != cell_type:
        leaf = int(state.arrays.parent[leaf])
    return leaf


def cells_below(state: State, decision: Decision, cell_type: str) -> set[int]:
    """The cells of a type that a decision to bind uses; none for another decision."""
    leaves = leaves_of(state, decision.bind_info) if isinstance(decision, Bind) else []
    return {above(state, leaf, cell_type) for leaf in leaves}


def ask(state: State, wanted: PodRequest, nodes: set[int] | None = None) -> Decision:
    mask = None if nodes is None else np.isin(np.arange(len(state.topology.node_names)), list(nodes))
    return handle(state, ScheduleRequested(wanted, Phase.FILTERING, mask))


def nodes_of(state: State, cell: int) -> set[int]:
    first, arrays = int(state.arrays.first_leaf[cell]), state.arrays
    return set(arrays.node[first : first + int(arrays.leaf_count[arrays.chain_level[cell]])].tolist())


def types_from_nodes_up(state: State) -> dict[str, list[int]]:
    """The cells of each type at or above node level."""
    found: dict[str, list[int]] = {}
    for cell in range(state.topology.physical_count):
        if state.arrays.level[cell] >= state.topology.chain_of(cell).node_level:
            found.setdefault(state.topology.cell_type(cell), []).append(cell)
    return found


def gangs(state: State, source: Random) -> list[PodRequest]:
    return [
        pod(
            f"q{number}",
            vc=source.choice(state.topology.vc_names),
            priority=source.choice([-1, 0, 0, 5]),
            members=((source.choice([1, 2, 2, 3, 4]), source.choice([1, 1, 2, 4])),),
        )
        for number in range(6)
    ]


def test_below_one_cell_is_where_it_is_and_where_there_is_room_it_is_found() -> None:
    bound = waiting = 0
    for seed in range(60):
        source = Random(seed)
        state = busy_state(random_cluster(seed), source, pods=source.choice([3, 12, 30]))
        for gang in gangs(state, source):
            for cell_type, cells in types_from_nodes_up(state).items():
                try:
                    decision = ask(state, replace(gang, spec=replace(gang.spec, within_cell=cell_type)))
                except UserError:  # the VC cannot use the chains of that type
                    continue
                used = cells_below(state, decision, cell_type)
                if isinstance(decision, Bind):
                    bound += 1
                    assert len(used) == 1
                    assert NO_CELL not in used
                    continue
                if isinstance(decision, Preempt):
                    continue  # of several that could leave, it is a matter of order who does
                waiting += 1
                heeding = replace(gang, spec=replace(gang.spec, ignore_suggested_nodes=False))
                for cell in cells:
                    judged = ask(state, heeding, nodes_of(state, cell))
                    assert cells_below(state, judged, cell_type) != {cell}, (seed, gang, cell_type, decision)
    assert min(bound, waiting) > 100
