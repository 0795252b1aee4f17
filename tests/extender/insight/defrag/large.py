"""Plans for large fragmented clusters, measured: `python -m tests.extender.insight.defrag.large --nodes 16384`.

The virtual cluster `a` has three quarters of the nodes, half as racks. It was full of gangs of 1 to 3 pods with 1 to 6
GPUs; then every eighth has left, and whole free nodes were taken by pods of 8 GPUs. Groups of `b` use some of the free
leaves opportunistically. Nineteen of twenty groups may be moved. So no whole node is free, but many leaves are.
"""

import argparse
import time
from random import Random

import msgspec

from hived.cells.state import State
from hived.life.groups import bind_info_of_slot
from hived.scheduler import handle, new_state
from hived.values.decisions import Bind
from hived.values.events import NodeHealthChanged, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import ClusterSpec, GroupSpec, MemberSpec, PodRequest, PodSpec, WorkTimes
from hived_extender.api.defrag import DefragPlan
from hived_extender.insight.defrag.collecting import Facts, inputs_of
from hived_extender.insight.defrag.planner import Task, plan
from hived_extender.insight.defrag.puzzle import read_wants
from hived_extender.machine.core import StateInputs
from tests.extender.insight.defrag.random_states import NOW, Fragmented, cluster_of, placed_in

NODES_PER_RACK = 16
WANTS = ("16xNODE", "64xNODE", "2xRACK")
SIZES, NODE = (1, 1, 2, 4, 6), 8
REFUSALS = 20
"""So many groups in turn without room: the virtual cluster is full."""


class _Filling:
    """Groups that come and go in one state."""

    def __init__(self, cluster: ClusterSpec, random: Random) -> None:
        self.state: State = new_state(cluster)
        self.random = random
        self.pods: dict[str, list[PodRequest]] = {}
        self.facts: dict[str, Facts] = {}
        for name in self.state.topology.node_names:
            handle(self.state, NodeHealthChanged(name, True))

    def come(self, vc: str, pod_count: int, size: int, priority: int = 0) -> bool:
        """A group comes; False if there is no room for it without anybody leaving."""
        name = f"g{len(self.facts):06d}"
        spec = PodSpec(
            virtual_cluster=vc,
            priority=priority,
            leaf_cell_count=size,
            group=GroupSpec(name, (MemberSpec(pod_count, size),)),
        )
        pods = [PodRequest(f"{name}-{i}", f"{name}-{i}", "ns", spec) for i in range(pod_count)]
        decision = handle(self.state, ScheduleRequested(pods[0]))
        if not isinstance(decision, Bind):
            return False
        times = WorkTimes(NOW - self.random.choice((600, 3600, 7200, 36000)), None)
        fact = Facts(may_move=self.random.random() < 0.95)
        for i, pod in enumerate(pods):
            info = decision.bind_info if i == 0 else bind_info_of_slot(self.state, self.state.groups[name], i)
            handle(self.state, PodAllocated(pod, info, times=times))
            self.facts[pod.uid] = fact
        self.pods[name] = pods
        return True

    def fill(self, vc: str, sizes: tuple[int, ...], most_pods: int) -> None:
        """Groups come until there is no room for `REFUSALS` in turn."""
        refused = 0
        while refused < REFUSALS:
            came = self.come(vc, self.random.randint(1, most_pods), self.random.choice(sizes))
            refused = 0 if came else refused + 1

    def go(self, share: float) -> None:
        """Groups go."""
        for name in self.random.sample(sorted(self.pods), int(share * len(self.pods))):
            for pod in self.pods.pop(name):
                handle(self.state, PodDeleted(pod))


def large_state(nodes: int, seed: int = 1) -> Fragmented:
    """See the module. `nodes` is a multiple of 64. Cost: about 1.5 groups for each node."""
    racks = nodes // NODES_PER_RACK
    cells = {"a": {"RACK": racks // 2, "RACK.NODE": nodes // 4}, "b": {"RACK.NODE": nodes // 4}}
    cluster = cluster_of(racks, NODES_PER_RACK, NODE // 2, cells)
    filling = _Filling(cluster, Random(seed))
    filling.fill("a", SIZES, 3)
    filling.go(1 / 8)
    filling.fill("a", (NODE,), 1)
    for _ in range(nodes // 16):
        filling.come("b", 1, filling.random.choice((1, 2)), priority=-1)
    state = filling.state
    held = StateInputs(frozenset(state.topology.node_names), placed_in(state))
    names = state.topology.node_names
    inputs = inputs_of(held, names, configuration="", at=NOW, facts=filling.facts)
    return Fragmented(cluster, inputs, state)


def measure(found: Fragmented, want: str) -> tuple[DefragPlan, float]:
    """The plan, and the seconds of CPU that it took."""
    task = Task(found.cluster, found.inputs, "a", read_wants((want,)))
    began = time.process_time()
    made = plan(task)
    return made, time.process_time() - began


def main() -> None:
    """Print a line of Markdown for each plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=16384)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--want", action="append", default=[])
    given = parser.parse_args()
    found = large_state(given.nodes, given.seed)
    print(f"{given.nodes} nodes, {len(found.inputs.groups)} groups, {len(msgspec.json.encode(found.inputs)):,} bytes")
    print("| wanted | room for | groups moved | GPU-hours | gap | CPU s |\n|---|---:|---:|---:|---|---:|")
    for want in given.want or WANTS:
        made, seconds = measure(found, want)
        met = f"{sum(one.is_met for one in made.wanted)} of {len(made.wanted)}"
        gap = "0" if made.is_optimal else f"{made.gap_wanted}, {made.gap_gpu_hours:.2f} h, {made.gap_groups}"
        print(
            f"| {want} | {met} | {made.moved_groups} | {made.lost_gpu_hours:.2f} | {gap} | {seconds:.1f} |"
            f" {made.outcome} {made.reason}",
            flush=True,
        )


if __name__ == "__main__":
    main()
