"""Numbers read off the core's state for `/metrics`."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL
from hived_extender.kube.metrics import Gauges
from hived_extender.service.devices.guarantees import shared_shortages


def gauges_of(pods: Mapping[str, int], state: State | None, lost_devices: Mapping[tuple[str, str], int]) -> Gauges:
    """All but what is counted group by group, of a replica that has a state or none. Cost O(cells), in numpy."""
    return Gauges(
        pods={**pods, "Preempting": 0},
        groups={},
        leaf_cells=count_leaf_cells(state) if state else {},
        short_leaf_cells=count_short_leaf_cells(state) if state else {},
        shared_short_cells=count_shared_short_cells(state) if state else {},
        lost_devices=lost_devices,
        bad_node_count=int(state.cells.node_bad.sum()) if state else 0,
        is_ready=False,
        is_healthy=False,
    )


def with_groups(gauges: Gauges, groups: Sequence[Group]) -> Gauges:
    """The same with the groups counted, and the waiting pods told from those that preempt."""
    waiting = gauges.pods["Waiting"]
    preempting = min(sum(len(group.preempting_pods) for group in groups), waiting)
    pods = {**gauges.pods, "Waiting": waiting - preempting, "Preempting": preempting}
    counts = Counter(group.state for group in groups)
    return replace(gauges, pods=pods, groups={state.value: counts[state] for state in GroupState})


def count_leaf_cells(state: State) -> dict[tuple[str, str], int]:
    """Leaf cells by virtual cluster and use ("used", "free"); opportunistic pods use nobody's in particular.

    Cost O(preassigned cells), in numpy.
    """
    topology = state.topology
    counts = {(vc, use): 0 for vc in topology.vc_names for use in ("used", "free")}
    for forest in topology.forests:
        if forest.vc == NO_CELL:
            continue
        vc = topology.vc_names[forest.vc]
        first = forest.bases[forest.top_level]
        used = int(state.cells.used[first : first + forest.tree_count].sum())
        total = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
        counts[vc, "used"] += used
        counts[vc, "free"] += total - used
    return counts


def count_short_leaf_cells(state: State) -> dict[str, int]:
    """By virtual cluster, the leaf cells of its guarantee that stand for bad ones: it cannot have them now.

    Cost O(virtual leaf cells), in numpy.
    """
    topology = state.topology
    counts = dict.fromkeys(topology.vc_names, 0)
    for forest in topology.forests:
        if forest.vc != NO_CELL:
            first = forest.bases[1]
            count = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
            counts[topology.vc_names[forest.vc]] += int(state.cells.bad[first : first + count].sum())
    return counts


def count_shared_short_cells(state: State) -> dict[tuple[str, str], int]:
    """By chain and cell type, the cells that VCs are promised together and that cannot be had.

    Cost O(chain levels x VCs).
    """
    return {
        (shared.chain, cell_type): count
        for shared in shared_shortages(state)
        for cell_type, count in shared.cells.items()
    }
