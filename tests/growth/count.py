"""Counts the work of single operations: `python -m tests.growth.count pods:1024 pods:4096`, prints JSON.

Each size takes a process of its own, with kernels as plain Python (NUMBA_DISABLE_JIT=1); all are forked from one that
has imported everything. The cluster is the benchmark's, and so that sizes can be compared, it is in the same situation
at each: beta and gamma are full, alpha has half of its pools full and the rest empty. Views are in order unless an
operation is about their not being so. Of operations that are done more than once, the most that one took is kept.
"""

import argparse
import gc
import json
import multiprocessing
from dataclasses import asdict, replace

import numpy as np
import numpy.typing as npt

from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.events import LeavesLost, NodeHealthChanged, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import OPPORTUNISTIC_PRIORITY, BindInfo, PodRequest
from tests.benchmarks.core import Driver, add_all_nodes, vc_quota
from tests.benchmarks.load import (
    GPUS_PER_NODE,
    HIGH_PRIORITY,
    LOW_PRIORITY,
    NODES_PER_POOL,
    JobKind,
    JobSource,
    cluster_spec,
    promised_cells,
)
from tests.growth.service import ServiceCount
from tests.growth.work import Meter

GANG, SMALL_GANG, NODE, GPU = JobKind(128, 8, 0), JobKind(8, 8, 0), JobKind(1, 8, 0), JobKind(1, 1, 0)
VC = "alpha"
"""Where operations happen; its share of the cluster is the same at 1,024 and 4,096 nodes."""
PRIORITY = LOW_PRIORITY + 1
"""Of the load; pods of a lower one, and of this one, can preempt nobody."""


class Count(Meter):
    """The core with one cluster, and what its operations took."""

    def __init__(self, node_count: int) -> None:
        super().__init__()
        self.node_count = node_count
        self.spec = cluster_spec(node_count)
        self.source = JobSource(seed=1)

    def start(self) -> None:
        """From the configuration to a cluster whose nodes are all healthy."""
        with self.counting("new state"):
            state = new_state(self.spec)
        with self.counting("all nodes healthy, one by one"):
            add_all_nodes(state)

    def pods(self) -> None:
        """Operations on single pods, gangs and nodes, in a cluster with room and in a full one."""
        state = new_state(self.spec)
        add_all_nodes(state)
        self.driver = Driver(state, lambda: 0)
        self.load()
        self.single_pods()
        self.gangs()
        self.nodes()
        self.suggested_nodes()
        self.single_pods()
        check_invariants(state)
        self.fill_up(VC)
        self.replay()
        self.waiting()
        self.preemption()
        check_invariants(state)

    # the load, uncounted

    def load(self) -> None:
        """Bring the cluster into the situation that operations start from."""
        half = promised_cells(self.node_count)[VC]["POOL"] // 2 * NODES_PER_POOL * GPUS_PER_NODE
        self.fill(VC, NODE, half // 2)
        self.fill(VC, GANG, half)
        self.fill(VC, SMALL_GANG, half)
        for vc in ("beta", "gamma"):
            self.fill_up(vc)

    def fill_up(self, vc: str) -> None:
        """Use every GPU of a VC, a quarter of it by pods that are groups of their own."""
        quota = vc_quota(self.driver.state)[vc]
        self.fill(vc, NODE, quota // 4)
        for kind in (GANG, SMALL_GANG, NODE, GPU):
            self.fill(vc, kind, quota)

    def fill(self, vc: str, kind: JobKind, target: int) -> None:
        """Place jobs of one kind until a VC uses so many GPUs, or no more of them fit."""
        while self.driver.gpus_by_vc[vc] + kind.gpu_count <= target:
            if not self.driver.place(self.source.make(kind, vc, PRIORITY), ""):
                break

    def pod(self, kind: JobKind, priority: int = PRIORITY) -> PodRequest:
        """The first pod of a new job."""
        return self.source.make(kind, VC, priority).pods[0]

    def put_in_order(self, priority: int = PRIORITY) -> None:
        """Have the views sorted by a pod that is not bound."""
        handle(self.driver.state, ScheduleRequested(self.pod(GPU, priority)))

    # operations

    def place(self, name: str, pod: PodRequest, suggested: npt.NDArray[np.bool_] | None = None) -> BindInfo:
        """Schedule and allocate a pod that can run at once."""
        state = self.driver.state
        with self.counting(name):
            decision = handle(state, ScheduleRequested(pod, suggested=suggested))
            if not isinstance(decision, Bind):
                raise RuntimeError(f"{name} got {decision}")
            handle(state, PodAllocated(pod, decision.bind_info))
        return decision.bind_info

    def delete(self, name: str, pod: PodRequest) -> None:
        """Delete a bound pod."""
        with self.counting(name):
            handle(self.driver.state, PodDeleted(pod))

    def single_pods(self) -> None:
        """Pods that come and go alone."""
        self.put_in_order()
        for gpus in (1, 2, 4, 8):
            pod = self.pod(JobKind(1, gpus, 0))
            self.place(f"{gpus}-GPU pod", pod)
            self.delete("deletion of a pod", pod)
        self.put_in_order(OPPORTUNISTIC_PRIORITY)
        pod = self.pod(GPU, OPPORTUNISTIC_PRIORITY)
        self.place("opportunistic pod", pod)
        self.delete("deletion of a pod", pod)
        pod, bind_info = next(iter(self.driver.placed.values()))
        self.delete("deletion of a pod", pod)
        placed = self.pod(GPU)
        self.place("pod after a full node was freed", placed)
        handle(self.driver.state, PodDeleted(placed))
        handle(self.driver.state, PodAllocated(pod, bind_info))

    def gangs(self) -> None:
        """Gangs of which two pods come, and go again."""
        for kind, label in ((SMALL_GANG, "8 x 8 GPUs"), (GANG, "128 x 8 GPUs")):
            self.put_in_order()
            first, later, *_ = self.source.make(kind, VC, PRIORITY).pods
            self.place(f"first pod of {label}", first)
            self.place(f"later pod of {label}", later)
            self.delete("deletion of a pod", first)
            self.delete(f"deletion of the last pod of {label}", later)
        self.place_and_forget("pod after a gang was deleted")
        self.near(self.pod(SMALL_GANG), "8 x 8 GPUs")
        pod = self.pod(GPU, OPPORTUNISTIC_PRIORITY)
        self.place("opportunistic pod after a gang was deleted", pod)
        handle(self.driver.state, PodDeleted(pod))

    def near(self, pod: PodRequest, label: str) -> None:
        """A gang below one rack, as near together as can be, and in the pool of another group."""
        neighbour = self.pod(NODE)
        self.place("8-GPU pod", neighbour)
        for name, wish in (
            ("required", {"within_cell": "RACK"}),
            ("preferred", {"within_cell": "NODE", "within_is_required": False}),
            ("beside another group", {"within_cell": "POOL", "beside": neighbour.spec.group.name}),
        ):
            near = replace(pod, spec=replace(pod.spec, **wish))
            self.place(f"{label} near together, {name}", near)
            handle(self.driver.state, PodDeleted(near))
        handle(self.driver.state, PodDeleted(neighbour))
        self.put_in_order()

    def nodes(self) -> None:
        """Nodes that fail and come back: an idle one, and one in use."""
        used = next(iter(self.driver.placed.values()))[1].node
        (leaf_type,) = self.driver.state.topology.leaf_type_chains
        self.put_in_order()
        pod = self.pod(GPU)
        idle = self.place("1-GPU pod", pod).node
        self.delete("deletion of a pod", pod)
        for node in (idle, used):
            for is_healthy in (False, True):
                with self.counting(f"node {'healthy' if is_healthy else 'bad'}"):
                    handle(self.driver.state, NodeHealthChanged(node, is_healthy))
                self.place_and_forget("pod after a node's health changed")
            for count in (2, 0):
                with self.counting(f"leaves {'lost' if count else 'healed'}"):
                    handle(self.driver.state, LeavesLost(node, leaf_type, count))
                self.place_and_forget("pod after a node's health changed")

    def suggested_nodes(self) -> None:
        """A pod that heeds suggested nodes, of which one is missing."""
        pod = self.pod(GPU)
        pod = replace(pod, spec=replace(pod.spec, ignore_suggested_nodes=False))
        mask = np.ones(self.node_count, np.bool_)
        mask[0] = False
        self.place("pod that heeds suggested nodes", pod, mask)
        handle(self.driver.state, PodDeleted(pod))
        self.place_and_forget("pod after one that heeds suggested nodes")

    def place_and_forget(self, name: str) -> None:
        """Count the placing of a 1-GPU pod; that of its deletion does not matter."""
        pod = self.pod(GPU)
        self.place(name, pod)
        handle(self.driver.state, PodDeleted(pod))

    def replay(self) -> None:
        """One of many bound pods, as they come after a restart."""
        pod, bind_info = next(iter(self.driver.placed.values()))
        handle(self.driver.state, PodDeleted(pod))
        with self.counting("replay of a bound pod"):
            handle(self.driver.state, PodAllocated(pod, bind_info))

    def waiting(self) -> None:
        """Pods that find their VC full and can preempt nobody."""
        for name, priority in (("of the lowest priority", LOW_PRIORITY), ("of a higher priority", PRIORITY)):
            self.put_in_order()
            pod = self.pod(GPU, priority)
            with self.counting(f"pod {name} that must wait"):
                decision = handle(self.driver.state, ScheduleRequested(pod))
            if not isinstance(decision, Wait):
                raise RuntimeError(f"pod {name} got {decision}")

        gang = self.pod(SMALL_GANG, LOW_PRIORITY)
        near = replace(gang, spec=replace(gang.spec, within_cell="RACK"))
        with self.counting("8 x 8 GPUs in one rack, which must wait"):
            decision = handle(self.driver.state, ScheduleRequested(near))
        if not isinstance(decision, Wait):
            raise RuntimeError(f"a gang got {decision}")

    def preemption(self) -> None:
        """A pod whose victims have to leave first."""
        state, pod = self.driver.state, self.pod(NODE, HIGH_PRIORITY)
        for phase in Phase:
            with self.counting(f"preemption, {phase.value}"):
                decision = handle(state, ScheduleRequested(pod, phase))
            if not isinstance(decision, Preempt):
                raise RuntimeError(f"{pod.name} got {decision}")
        victims = [uid for uids in decision.victims_by_node.values() for uid in uids]
        self.driver.delete([self.driver.placed[uid][0] for uid in victims], "")
        self.place("preemption, binding", pod)


def run(name: str) -> dict[str, dict[str, int]]:
    """The counts of a part at one size, by operation and meter."""
    part, _, nodes = name.partition(":")
    count = ServiceCount(int(nodes)) if part == "service" else Count(int(nodes))
    getattr(count, part)()
    return {operation: asdict(work) for operation, work in count.work.items()}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", help="start, pods or service, a colon and a multiple of 128 nodes")
    runs = parser.parse_args().runs
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        found = pool.map(run, runs, chunksize=1)
    print(json.dumps(dict(zip(runs, found, strict=True))))


if __name__ == "__main__":
    main()
