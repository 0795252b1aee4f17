"""Random fragmented clusters, as inputs of a plan: groups came, and most of them have gone again."""

from random import Random

import msgspec

from hived.cells.state import State
from hived.life.groups import bind_info_of_slot
from hived.scheduler import handle, new_state
from hived.values.decisions import Bind
from hived.values.events import NodeHealthChanged, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import (
    NO_TIMES,
    BindInfo,
    CellTypeSpec,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PhysicalCellSpec,
    PodRequest,
    PodSpec,
    VirtualCellSpec,
    VirtualClusterSpec,
    WorkTimes,
)
from hived_extender.api.defrag import Inputs
from hived_extender.insight.defrag.collecting import Facts, inputs_of
from hived_extender.machine.core import Placed, StateInputs

NOW = 1_000_000.0


class Fragmented(msgspec.Struct, frozen=True):
    """A cluster with what runs in it, and a state that is so."""

    cluster: ClusterSpec
    inputs: Inputs
    state: State


def cluster_of(
    racks: int, nodes: int, pairs: int, cells: dict[str, dict[str, int]], combines: bool = False
) -> ClusterSpec:
    """Racks of nodes of pairs of GPUs; VC -> cell path -> number."""
    return ClusterSpec(
        cell_types={
            "PAIR": CellTypeSpec("PAIR", "GPU", 2),
            "NODE": CellTypeSpec("NODE", "PAIR", pairs, is_node_level=True),
            "RACK": CellTypeSpec("RACK", "NODE", nodes),
        },
        physical_cells=tuple(
            PhysicalCellSpec(
                "RACK", children=tuple(PhysicalCellSpec(address=f"n{rack * nodes + i}") for i in range(nodes))
            )
            for rack in range(racks)
        ),
        virtual_clusters={
            vc: VirtualClusterSpec(vc, tuple(VirtualCellSpec(path, count) for path, count in own.items()))
            for vc, own in cells.items()
        },
    )


def random_cluster(random: Random) -> ClusterSpec:
    racks, nodes, pairs = random.randint(2, 3), random.randint(2, 3), random.choice((1, 2))
    total = racks * nodes
    kind = random.choice("NNRP")
    if kind == "N":
        own = random.randint(2, total)
        return cluster_of(racks, nodes, pairs, {"a": {"RACK.NODE": own}, "b": {"RACK.NODE": total - own}})
    if kind == "R":
        cells = {"a": {"RACK": 1, "RACK.NODE": random.randint(1, nodes)}, "b": {"RACK": racks - 2}}
        return cluster_of(racks, nodes, pairs, cells)
    cells = {"a": {"RACK.NODE": 1, "RACK.NODE.PAIR": random.randint(1, pairs * 2)}, "b": {"RACK.NODE": 1}}
    return cluster_of(racks, nodes, pairs, cells)


def random_state(
    random: Random, cluster: ClusterSpec | None = None, groups: int = 0, guests: float = 0.25
) -> Fragmented:
    """Groups of one to three pods come, and every second one goes; most of the others may move."""
    cluster = cluster or random_cluster(random)
    state = new_state(cluster)
    names = state.topology.node_names
    bad = {name for name in names if random.random() < 0.05}
    for name in names:
        if name not in bad:
            handle(state, NodeHealthChanged(name, True))
    per_node = state.topology.chains[0].leaf_count(state.topology.chains[0].node_level)
    facts: dict[str, Facts] = {}
    requests: dict[str, list[PodRequest]] = {}
    for number in range(groups or random.randint(4, 4 * len(names))):
        request = _request(random, number, per_node, guests)
        decision = handle(state, ScheduleRequested(request))
        if not isinstance(decision, Bind):
            continue
        pods = [_pod(request, i) for i in range(request.spec.group.members[0].pod_count)]
        requests[request.spec.group.name] = pods
        fact = Facts(may_move=random.random() < 0.8)
        started = NOW - random.choice((0, 3600, 7200, 7200, 36000)) if random.random() < 0.8 else None
        saved = NOW - random.choice((600, 1800)) if random.random() < 0.3 else None
        for i, pod in enumerate(pods):
            facts[pod.uid] = fact
            info = decision.bind_info if i == 0 else bind_info_of_slot(state, state.groups[pod.spec.group.name], i)
            preempted = decision.lazily_preempted if i == 0 else ()
            handle(state, PodAllocated(pod, info, preempted, WorkTimes(started, saved)))
        if random.random() < 0.6:
            gone = random.choice(sorted(requests))
            for pod in requests.pop(gone):
                handle(state, PodDeleted(pod))
    held = StateInputs(frozenset(set(names) - bad), placed_in(state))
    return Fragmented(cluster, inputs_of(held, names, configuration="", at=NOW, facts=facts), state)


def placed_in(state: State) -> dict[str, Placed]:
    found: dict[str, Placed] = {}
    for group in state.groups.values():
        for slot, pod in enumerate(group.holders):
            if pod is not None:
                info: BindInfo = bind_info_of_slot(state, group, slot)
                found[pod.uid] = Placed(pod, info, group.times.get(pod.uid, NO_TIMES))
    return found


def _request(random: Random, number: int, per_node: int, guests: float) -> PodRequest:
    size = random.choice([1, 1, 2, per_node // 2 or 1, per_node])
    pods = random.choice((1, 1, 1, 2, 3))
    name = f"g{number:03d}"
    spec = PodSpec(
        virtual_cluster=random.choice(("a", "a", "a", "b")),
        priority=-1 if random.random() < guests else 0,
        leaf_cell_count=size,
        group=GroupSpec(name, (MemberSpec(pods, size),)),
    )
    return PodRequest(f"uid-{name}-0", f"{name}-0", "ns", spec)


def _pod(request: PodRequest, number: int) -> PodRequest:
    name = request.spec.group.name
    return PodRequest(f"uid-{name}-{number}", f"{name}-{number}", "ns", request.spec)
