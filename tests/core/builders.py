"""Small clusters, pods, and the few steps that nearly every test of the core takes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import numpy as np

from hived.cells.state import State
from hived.cells.topology import BoolArray
from hived.scenario import Asked, Scenario
from hived.scheduler import handle, new_state
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import LeavesLost, NodeHealthChanged, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import (
    BindInfo,
    CellTypeSpec,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PhysicalCellSpec,
    PodPlacement,
    PodRequest,
    PodSpec,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from tests.property.choices import Choices, Seeded
from tests.property.clusters import make_cluster, make_hardware


def quota(name: str, cells: Mapping[str, int], pins: tuple[str, ...] = ()) -> VirtualClusterSpec:
    """A VC that is promised `cells`: dotted cell type -> number."""
    return VirtualClusterSpec(name, tuple(VirtualCellSpec(path, count) for path, count in cells.items()), pins)


def tree_cluster(
    sizes: Mapping[str, int],
    *vcs: VirtualClusterSpec,
    tops: int = 1,
    pins: Mapping[str, str] | None = None,
    rules: Rules = Rules.HIVED,
) -> ClusterSpec:
    """Equal top cells; `sizes` is cell type -> number of children, from the top to just above the leaf cells, GPUs.

    Cells of type NODE are nodes n0, n1, ...; `pins` is node -> pinned cell id.
    """
    below = dict(zip(sizes, [*sizes, "GPU"][1:], strict=True))
    names = (f"n{number}" for number in count())

    def cell(cell_type: str, shown_type: str = "") -> PhysicalCellSpec:
        if cell_type == "NODE":
            name = next(names)
            return PhysicalCellSpec(shown_type, name, (pins or {}).get(name, ""))
        children = tuple(cell(below[cell_type]) for _ in range(sizes[cell_type]))
        return PhysicalCellSpec(shown_type, children=children)

    top = next(iter(sizes))
    types = {name: CellTypeSpec(name, below[name], sizes[name], name == "NODE") for name in sizes}
    return ClusterSpec(types, tuple(cell(top, top) for _ in range(tops)), {vc.name: vc for vc in vcs}, rules=rules)


def rack_cluster(
    *vcs: VirtualClusterSpec,
    racks: int = 2,
    nodes: int = 2,
    gpus: int = 2,
    pins: Mapping[str, str] | None = None,
    rules: Rules = Rules.HIVED,
) -> ClusterSpec:
    """Racks of nodes n0, n1, ... of GPUs. Without VCs, A and B share the nodes."""
    total = racks * nodes
    if not vcs:
        vcs = (quota("A", {"RACK.NODE": total // 2}), quota("B", {"RACK.NODE": total - total // 2}))
    return tree_cluster({"RACK": nodes, "NODE": gpus}, *vcs, tops=racks, pins=pins, rules=rules)


def healthy_state(spec: ClusterSpec) -> State:
    """A scheduler of which every node is healthy."""
    state = new_state(spec)
    set_nodes(state, *state.topology.node_names, is_healthy=True)
    return state


def better_state(spec: ClusterSpec) -> State:
    """The same under the better rules."""
    return healthy_state(replace(spec, rules=Rules.BETTER))


def set_nodes(state: State, *nodes: str, is_healthy: bool) -> None:
    for node in nodes:
        handle(state, NodeHealthChanged(node, is_healthy))


def lose(state: State, node: str, count: int, *known: int, leaf_type: str = "GPU") -> None:
    """So many leaf cells of a node are lost, those with `known` device indices among them."""
    handle(state, LeavesLost(node, leaf_type, count, known))


def lost_devices(state: State, node: str) -> list[int]:
    arrays, number = state.arrays, state.topology.node_index[node]
    leaves = arrays.node_leaf[arrays.node_leaf_start[number] : arrays.node_leaf_start[number + 1]]
    return arrays.device[leaves[state.cells.lost[leaves] == 1]].tolist()


def pod(
    uid: str,
    group: str = "",
    vc: str = "A",
    priority: int = 0,
    members: tuple[tuple[int, int], ...] = ((1, 2),),
    size: int = 0,
    **spec: Any,
) -> PodRequest:
    """A pod of a gang with (pods, leaf cells) `members`; of the first member's size unless told."""
    own = tuple(MemberSpec(count, leaves) for count, leaves in members)
    leaf_cell_count = size or own[0].leaf_cell_count
    return PodRequest(uid, uid, "ns", PodSpec(vc, priority, leaf_cell_count, GroupSpec(group or uid, own), **spec))


def pods_of_racks(*, packs: bool = False) -> State:
    """Ten pods of two racks of two nodes: n0 to n3 are in pod 0, n4 to n7 in pod 1, and so on; A may have them all."""
    vc = replace(quota("A", {"POD": 10}), packs_by_topology=packs)
    return healthy_state(tree_cluster({"POD": 2, "RACK": 2, "NODE": 2}, vc, tops=10))


def pairs(nodes: int = 2, *, combines: bool = True, rules: Rules = Rules.BETTER, **promises: dict[str, int]) -> State:
    """Nodes a, b, ... of two pairs of two GPUs each; A is promised all pairs unless told."""
    vcs = {name: quota(name, cells) for name, cells in (promises or {"A": {"NODE.PAIR": 2 * nodes}}).items()}
    spec = ClusterSpec(
        {"NODE": CellTypeSpec("NODE", "PAIR", 2, is_node_level=True), "PAIR": CellTypeSpec("PAIR", "GPU", 2)},
        tuple(PhysicalCellSpec("NODE", address="abcdef"[number]) for number in range(nodes)),
        {name: replace(vc, combines=combines) for name, vc in vcs.items()},
        rules=rules,
    )
    return healthy_state(spec)


def node_mask(state: State, names: Sequence[str]) -> BoolArray:
    """Shape (node_count,): the nodes with these names."""
    return np.isin(state.topology.node_names, list(names))


def request(state: State, wanted: PodRequest, phase: Phase = Phase.FILTERING, *suggested: str) -> Decision:
    """Ask for a decision; `suggested` nodes, or all."""
    mask = node_mask(state, suggested) if suggested else None
    return handle(state, ScheduleRequested(wanted, phase, mask))


def plan_together(state: State, pods: Sequence[PodRequest]) -> list[Decision]:
    """The decisions on pods in turn, each in place for the next ones; nothing changes. Raises the first UserError."""
    decisions: list[Decision] = []
    for found in Scenario(state).plan([[Asked(one)] for one in pods]):
        if isinstance(found, UserError):
            raise found
        decisions += found
    return decisions


def reason(decision: Decision) -> str:
    """Why a pod waits, as it must."""
    assert isinstance(decision, Wait), decision
    return decision.reason


def victim_uids(decision: Decision) -> list[str]:
    """The pods that have to leave, as some must."""
    assert isinstance(decision, Preempt), decision
    return [uid for uids in decision.victims_by_node.values() for uid in uids]


def run(state: State, wanted: PodRequest, phase: Phase = Phase.FILTERING) -> Bind:
    """Ask for a decision that must be a Bind, and carry it out."""
    decision = request(state, wanted, phase)
    assert isinstance(decision, Bind), decision
    handle(state, PodAllocated(wanted, decision.bind_info, decision.lazily_preempted))
    return decision


def delete(state: State, *gone: PodRequest) -> None:
    for each in gone:
        handle(state, PodDeleted(each))


def placement(node: str, *devices: int, cell_type: str = "NODE") -> PodPlacement:
    return PodPlacement(node, devices, (cell_type,) * len(devices))


def bind_info(*members: tuple[PodPlacement, ...], chain: str = "RACK") -> BindInfo:
    """Bind info of the first pod of the first member."""
    first = members[0][0]
    return BindInfo(first.node, first.leaf_cell_indices, chain, members)


def leaf(state: State, node: str, device: int) -> int:
    """The physical leaf cell of a node with this device index."""
    arrays, number = state.arrays, state.topology.node_index[node]
    leaves = arrays.node_leaf[arrays.node_leaf_start[number] : arrays.node_leaf_start[number + 1]]
    return int(leaves[arrays.device[leaves] == device][0])


def cell_at(state: State, address: str) -> int:
    """The cell with this full address; virtual addresses start with the VC's name."""
    return next(i for i in range(len(state.arrays.parent)) if state.topology.address(i) == address)


def held_nodes(state: State, group: str) -> list[str]:
    """The node of each leaf cell of a group, in group order."""
    nodes = state.arrays.node[state.groups[group].physical]
    return [state.topology.node_names[node] for node in nodes.tolist()]


def virtual_addresses(state: State, group: str) -> list[str] | None:
    """Of the virtual leaf cells of a group, if it has any."""
    virtual = state.groups[group].virtual
    return None if virtual is None else [state.topology.address(cell) for cell in virtual.tolist()]


def describe_groups(state: State) -> dict[str, Any]:
    """Everything that a group holds, as values that can be compared."""
    return {
        group.name: (
            group.state,
            group.lazy_preemptor,
            group.physical.tolist(),
            None if group.virtual is None else group.virtual.tolist(),
            [holder and holder.uid for holder in group.holders],
            dict(group.slots_of),
            dict(group.preempting_pods),
            dict(group.times),
            group.since_ms,
        )
        for group in state.groups.values()
    }


def fingerprint(state: State) -> tuple[bytes, dict[str, Any]]:
    """The whole state as a value: memory byte for byte, times of leaves, and groups."""
    times = b"" if state.work is None else state.work.since_ms.tobytes() + state.work.leaf_count.tobytes()
    return state.cells.memory.tobytes() + times, describe_groups(state)


def small_journal(state: State, capacity: int) -> State:
    """The same scheduler with room for only this many writes in its journal."""
    state.cells = state.cells.with_arrays(
        journal_position=np.empty(capacity, np.int64), journal_value=np.empty(capacity, np.int32)
    )
    return state


def random_cluster(seed: int) -> ClusterSpec:
    """Chains of 2 to 6 levels, pins, and VCs that fit."""
    choices = Choices(Seeded(seed))
    return make_cluster(choices, make_hardware(choices))


def busy_state(spec: ClusterSpec, source: Random, pods: int = 12) -> State:
    """A scheduler in the middle of its life: some nodes bad, groups of every kind, some of them gone again."""
    state = new_state(spec)
    nodes = list(state.topology.node_names)
    set_nodes(state, *(node for node in nodes if source.random() < 0.85), is_healthy=True)
    for number in range(pods):
        wanted = pod(
            f"p{number}",
            vc=source.choice(sorted(spec.virtual_clusters)),
            priority=source.choice([-1, -1, 0, 1, 5]),
            members=((source.choice([1, 1, 2, 3]), source.choice([1, 1, 2, 4])),),
            lazy_preemption=source.random() < 0.4,
        )
        decision = request(state, wanted, source.choice(list(Phase)))
        if isinstance(decision, Bind):
            handle(state, PodAllocated(wanted, decision.bind_info, decision.lazily_preempted))
        if source.random() < 0.3:
            delete(state, pod(f"p{source.randint(0, number)}"))
        if source.random() < 0.2:
            set_nodes(state, source.choice(nodes), is_healthy=source.random() < 0.7)
    return state
