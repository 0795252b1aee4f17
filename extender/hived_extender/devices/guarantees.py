"""Guarantees that cannot be kept because devices cannot be had."""

from collections.abc import Iterable

import numpy as np

from hived.state import State
from hived.topology import NO_CELL
from hived_extender.devices.notes import first_of, in_short
from hived_extender.devices.shortage import Loss


def of_virtual_cluster(state: State, vc: str, losses: Iterable[Loss]) -> str:
    """How many leaf cells of its guarantee a virtual cluster lacks because of losses, and why; "" if none.

    Cost O(leaf cells of the VC), in numpy.
    """
    short = short_nodes(state, vc)
    if not short:
        return ""
    reasons = [f"on {loss.node}: {in_short(loss)}" for loss in losses if loss.node in short]
    count = sum(short.values())
    return f"VC {vc} is short of promised leaf cells, {count} in all: {first_of(reasons)}" if reasons else ""


def short_nodes(state: State, vc: str) -> dict[str, int]:
    """By node, how many leaf cells of a VC's guarantee stand for bad ones there."""
    topology, cells = state.topology, state.cells
    number = topology.vc_index.get(vc)
    found: dict[str, int] = {}
    for forest in topology.forests:
        if number is None or forest.vc != number:
            continue
        first = forest.bases[1]
        count = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
        bad = first + np.flatnonzero(cells.bad[first : first + count])
        bound = cells.bound[bad]
        nodes, counts = np.unique(topology.arrays.node[bound[bound != NO_CELL]], return_counts=True)
        for node, each in zip(nodes.tolist(), counts.tolist(), strict=True):
            name = topology.node_names[node]
            found[name] = found.get(name, 0) + each
    return found
