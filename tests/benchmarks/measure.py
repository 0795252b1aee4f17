"""Everything that is measured at one size, in the order in which it happens to one cluster.

    start -> half full -> (probes) -> every GPU used -> replay -> every VC full, by preemption -> everything deleted

Until every GPU is used, guaranteed jobs take nine tenths of each VC and opportunistic ones the rest. Then guaranteed
jobs claim the last tenth, for which the opportunistic ones must leave.
"""

import gc
import random
from collections.abc import Callable
from time import perf_counter_ns

from hived.cells.state import State
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Wait
from hived.values.events import NodeHealthChanged, PodAllocated
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec, Rules
from hived_extender.http.server import settle_process, tune_process
from tests.benchmarks.clusters import GPUS_PER_NODE, VC_NAMES, cluster_spec
from tests.benchmarks.driver import Driver
from tests.benchmarks.explanations import Explanations
from tests.benchmarks.figures import Figures, summarise
from tests.benchmarks.process import resident_mb
from tests.benchmarks.workload import (
    GANGS,
    HIGH_PRIORITY,
    KINDS,
    LOW_PRIORITY,
    SMALLEST,
    JobKind,
    JobSource,
    fitting_kinds,
)

GUARANTEED_PART = 0.9
"""Of each VC, until every GPU is used; the rest is lent to opportunistic jobs."""

PROBES = {"1x1": 300, "1x8": 300, "8x8": 40, "32x8": 20, "128x8": 10}
NODE_PROBES = 300
WAIT_PROBES = 300


class Measurement:
    """One cluster on its way from start to full and back to empty."""

    def __init__(
        self, node_count: int, seed: int, progress: Callable[[str], None], clock: Callable[[], int] = perf_counter_ns,
        rules: Rules = Rules.HIVED,
    ) -> None:  # fmt: skip
        self.rules = rules
        self.node_count, self.seed = node_count, seed
        self.figures = Figures()
        self.source = JobSource(seed)
        self.random = random.Random(seed)
        self._progress = progress
        self._clock = clock

    def run(self) -> Figures:
        """Raises RuntimeError or InvariantError if the core does not do what the load relies on."""
        tune_process()
        spec = self.start()
        settle_process()
        self.figures.values["memory/ready"] = resident_mb()
        gpu_count = self.node_count * GPUS_PER_NODE
        self.fill(gpu_count // 2)
        self.probe_gangs("half")
        self.probe_nodes("half")
        self.fill(gpu_count)
        self.check_used(gpu_count)
        self.figures.values["load/pods"] = len(self.driver.placed)
        gc.collect()
        self.figures.values["memory/full"] = resident_mb()
        self.probe_nodes("full")
        self.replay(spec)
        self.claim_everything()
        self.probe_waiting()
        self.explain_waiting()
        self.preempt_guaranteed()
        self.delete_everything()
        self.figures.samples |= self.driver.samples
        yaml, json = (summarise(self.figures.samples[f"load/read {form}"])["p50"] for form in ("YAML", "JSON"))
        self.figures.values["load/YAML times JSON"] = yaml / json
        return self.figures

    def start(self) -> ClusterSpec:
        """From nothing to a cluster whose nodes are all healthy."""
        self._progress("start")
        started = self._clock()
        spec = cluster_spec(self.node_count, self.rules)
        built = self._clock()
        state = new_state(spec)
        made = self._clock()
        add_all_nodes(state)
        ready = self._clock()
        self.driver = Driver(state, self._clock)
        self.quota = vc_quota(state)
        moments = (started, built, made, ready)
        for i, name in enumerate(("spec", "state", "nodes")):
            self.figures.values[f"start/{name}"] = (moments[i + 1] - moments[i]) / 1e9
        self.figures.values["start/total"] = (ready - started) / 1e9
        return spec

    def fill(self, gpu_target: int) -> None:
        """Place jobs until so many GPUs are used; guaranteed and opportunistic ones grow at the same pace."""
        self._progress(f"load up to {gpu_target} GPUs")
        limits = {vc: int(self.quota[vc] * GUARANTEED_PART) for vc in VC_NAMES}
        lent = self.node_count * GPUS_PER_NODE - sum(limits.values())
        while self.driver.gpus_used < gpu_target:
            rooms = {vc: limits[vc] - self.driver.gpus_by_vc[vc] for vc in VC_NAMES}
            rooms[""] = lent - (self.driver.gpus_used - self.driver.gpus_by_vc.total())
            vc = self.random.choices(list(rooms), list(rooms.values()))[0]
            room = min(rooms[vc], gpu_target - self.driver.gpus_used) if not vc else rooms[vc]
            if vc:
                self.place_what_fits(self.source.pick_kind(room), vc, self.source.pick_priority(), "load")
            else:
                vc = self.random.choice(VC_NAMES)
                self.place_what_fits(self.source.pick_kind(room), vc, OPPORTUNISTIC_PRIORITY, "load")

    def place_what_fits(self, kind: JobKind, vc: str, priority: int, moment: str) -> None:
        """Place a job of this kind, or else of the largest smaller kind that fits; a single GPU always must."""
        for candidate in reversed(fitting_kinds(kind.gpu_count)):
            if self.driver.place(self.source.make(candidate, vc, priority), moment):
                return
        raise RuntimeError(f"VC {vc} has room at priority {priority}, but a 1-GPU pod does not fit")

    def probe_gangs(self, moment: str) -> None:
        """Jobs of chosen kinds that come and go again, one at a time."""
        self._progress(f"probes, {moment}")
        for kind in KINDS:
            for _ in range(PROBES.get(kind.label, 0)):
                vcs = [vc for vc in VC_NAMES if self.quota[vc] - self.driver.gpus_by_vc[vc] >= kind.gpu_count]
                if not vcs:
                    break
                job = self.source.make(kind, self.random.choice(vcs), self.source.pick_priority())
                if self.driver.place(job, moment, may_preempt=False):
                    self.driver.delete(job.pods, moment)

    def probe_nodes(self, moment: str) -> None:
        """Nodes that fail and come back, one at a time."""
        names = self.driver.state.topology.node_names
        for _ in range(NODE_PROBES):
            node = self.random.choice(names)
            self.driver.set_health(node, False, f"{moment}/node down")
            self.driver.set_health(node, True, f"{moment}/node up")

    def replay(self, spec: ClusterSpec) -> None:
        """Every bound pod into a fresh state, in random order, as after a restart."""
        self._progress(f"replay of {len(self.driver.placed)} pods")
        pods = list(self.driver.placed.values())
        self.random.shuffle(pods)
        state = new_state(spec)
        add_all_nodes(state)
        gc.collect()
        started = self._clock()
        for pod, bind_info in pods:
            handle(state, PodAllocated(pod, bind_info))
        self.figures.values["replay/total"] = (self._clock() - started) / 1e9
        if state.groups.keys() != self.driver.state.groups.keys() or used_leaves(state) != self.driver.gpus_used:
            raise RuntimeError("replay gave other groups, or other GPUs in use, than there were before")
        check_invariants(state)

    def claim_everything(self) -> None:
        """Guaranteed jobs take what is left of every VC; opportunistic ones have to leave."""
        self._progress("preemption of opportunistic pods")
        while True:
            rooms = {vc: self.quota[vc] - self.driver.gpus_by_vc[vc] for vc in VC_NAMES}
            if not any(rooms.values()):
                break
            vc = self.random.choices(VC_NAMES, [rooms[name] for name in VC_NAMES])[0]
            self.place_what_fits(self.source.pick_kind(rooms[vc]), vc, self.source.pick_priority(), "claim")
        self.check_used(self.node_count * GPUS_PER_NODE)
        self.check_vcs_full()

    def probe_waiting(self) -> None:
        """Pods of full VCs that can preempt nobody."""
        self._progress("pods that wait")
        for kind in (SMALLEST, *GANGS):
            for _ in range(WAIT_PROBES):
                job = self.source.make(kind, self.random.choice(VC_NAMES), LOW_PRIORITY)
                if not isinstance(self.driver.ask(job, f"full/wait {kind.label}"), Wait):
                    raise RuntimeError(f"VC {job.vc} is full, but {kind.label} did not have to wait")

    def explain_waiting(self) -> None:
        """Why pods of full VCs wait, and copies of the state for questions beside it."""
        self._progress("explanations and copies")
        found = Explanations(self.driver.state, self.source, self.seed, self._clock).run()
        self.figures.samples |= found.samples
        self.figures.values |= found.values

    def preempt_guaranteed(self) -> None:
        """Pods of high priority in full VCs: who would have to leave?"""
        for kind in (SMALLEST, *GANGS):
            for vc in VC_NAMES:
                for _ in range(PROBES[kind.label] // len(VC_NAMES) + 1):
                    self.driver.ask(self.source.make(kind, vc, HIGH_PRIORITY + 1), f"full/victims for {kind.label}")

    def delete_everything(self) -> None:
        """All pods leave in random order; the cluster must be as empty as it was at the start."""
        self._progress(f"deletion of {len(self.driver.placed)} pods")
        pods = [pod for pod, _ in self.driver.placed.values()]
        self.random.shuffle(pods)
        self.driver.delete(pods, "full")
        self.check_used(0)

    def check_used(self, gpu_count: int) -> None:
        """Is exactly this many GPUs in use, by the core's own count, and is its state sound?"""
        used = used_leaves(self.driver.state)
        if used != gpu_count or self.driver.gpus_used != gpu_count:
            raise RuntimeError(f"{gpu_count} GPUs should be in use, the core counts {used}")
        check_invariants(self.driver.state)

    def check_vcs_full(self) -> None:
        """Is every leaf of every VC in use?"""
        arrays, cells = self.driver.state.arrays, self.driver.state.cells
        for vc, roots in self.driver.state.topology.preassigned.items():
            leaves = arrays.leaf_count[arrays.chain_level[list(roots)]]
            if (cells.used[list(roots)] != leaves).any():
                raise RuntimeError(f"VC {VC_NAMES[vc]} is not full")


def add_all_nodes(state: State) -> None:
    """Every node turns healthy, ascending by name."""
    for node in state.topology.node_names:
        handle(state, NodeHealthChanged(node, is_healthy=True))


def used_leaves(state: State) -> int:
    """Physical leaves in use, in all chains."""
    roots = [root for forest in state.topology.forests if forest.vc < 0 for root in
             range(forest.first_root, forest.first_root + forest.tree_count)]  # fmt: skip
    return int(state.cells.used[roots].sum())


def vc_quota(state: State) -> dict[str, int]:
    """GPUs that each VC is promised."""
    arrays = state.arrays
    return {
        name: int(arrays.leaf_count[arrays.chain_level[list(state.topology.preassigned[i])]].sum())
        for i, name in enumerate(state.topology.vc_names)
    }
