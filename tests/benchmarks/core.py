"""The core at one size: a cluster from start to full and back to empty, and large gangs while nodes are refused.

    start -> half full -> (probes) -> every GPU used -> replay -> every VC full, by preemption -> everything deleted

Until every GPU is used, guaranteed jobs take nine tenths of each VC and opportunistic ones the rest. Then guaranteed
jobs claim the last tenth, for which the opportunistic ones must leave.
"""

import gc
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from time import perf_counter_ns

import numpy as np
import yaml

from hived.cells.copying import copy_state
from hived.cells.state import State
from hived.cells.topology import BoolArray
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.events import NodeHealthChanged, Offer, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import (
    OPPORTUNISTIC_PRIORITY,
    BindInfo,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PodRequest,
    PodSpec,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from hived.why.explaining import explain_wait
from hived.why.relaxing import Emptied
from hived_extender.http.server import settle_process, tune_process
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.bind_info import bind_annotations
from tests.benchmarks.load import (
    GANGS,
    GPUS_PER_NODE,
    HIGH_PRIORITY,
    KINDS,
    LOW_PRIORITY,
    NODES_PER_RACK,
    SMALLEST,
    VC_NAMES,
    Job,
    JobKind,
    JobSource,
    cluster_spec,
    fitting_kinds,
    spec_document,
)
from tests.benchmarks.process import resident_mb
from tests.benchmarks.table import Figures, summarise

GUARANTEED_PART = 0.9
"""Of each VC, until every GPU is used; the rest is lent to opportunistic jobs."""

PROBES = {"1x1": 300, "1x8": 300, "8x8": 40, "32x8": 20, "128x8": 10}
NODE_PROBES = 300
WAIT_PROBES = 300
REPEATS, COPIES = 60, 30
BAD_PART, OFFERED_PART = 0.01, 0.5
ASKED = tuple(kind for kind in KINDS if kind.label in ("1x1", "1x8", "128x8"))
"""Of explanations."""

REFUSED_REPEATS = 12
MOST_RACKS = 64
"""Racks of which the VCs of racks have parts: gangs are as large from so many on."""

Samples = defaultdict[str, list[int]]
"""Nanoseconds by the key of a row."""


class Driver:
    """A state, what runs on it, and how long everything took.

    `samples` grows with every call; `placed` holds each bound pod with its bind info, which is what a restart needs.
    """

    def __init__(self, state: State, clock: Callable[[], int]) -> None:
        """`clock` gives nanoseconds."""
        self.state = state
        self.samples: Samples = defaultdict(list)
        self.placed: dict[str, tuple[PodRequest, BindInfo]] = {}
        self.gpus_by_vc: Counter[str] = Counter()  # guaranteed ones
        self.gpus_used = 0
        self._clock = clock
        self._job_of: dict[str, Job] = {}

    def place(self, job: Job, moment: str, *, may_preempt: bool = True) -> bool:
        """Schedule every pod of a job, or none; opportunistic pods in the way are preempted if that is allowed.

        `moment` is the first part of the samples' keys. False if the job must wait or would preempt guaranteed pods.
        """
        first = job.pods[0]
        started = self._clock()
        decision = handle(self.state, ScheduleRequested(first))
        if isinstance(decision, Bind):
            handle(self.state, PodAllocated(first, decision.bind_info, decision.lazily_preempted))
            kind = f"first of {job.kind.label}" if job.kind.pod_count > 1 else job.kind.label
            self._note(first, decision.bind_info, moment, kind, self._clock() - started)
        elif isinstance(decision, Preempt):
            spent = self._clock() - started
            if not may_preempt or any(self._job_of[uid].is_guaranteed for uid in _victims(decision)):
                return False
            decision = self._preempt(job, decision, spent, moment)
        else:
            self.samples[f"{moment}/wait"].append(self._clock() - started)
            return False
        self._keep(job, first, decision.bind_info)
        for pod in job.pods[1:]:
            self._place_later(job, pod, moment)
        return True

    def ask(self, job: Job, key: str) -> Decision:
        """Only ask where the first pod of a job could run."""
        started = self._clock()
        decision = handle(self.state, ScheduleRequested(job.pods[0]))
        self.samples[key].append(self._clock() - started)
        return decision

    def delete(self, pods: Iterable[PodRequest], moment: str) -> None:
        """Delete bound pods one by one; the last of a group, which frees its cells, is noted apart."""
        for pod in pods:
            started = self._clock()
            handle(self.state, PodDeleted(pod))
            spent = self._clock() - started
            self.samples[f"{moment}/delete"].append(spent)
            job = self._job_of.pop(pod.uid)
            if job.kind.pod_count > 1 and pod.spec.group.name not in self.state.groups:
                self.samples[f"{moment}/delete last of {job.kind.label}"].append(spent)
            del self.placed[pod.uid]
            self.gpus_used -= job.kind.gpus_per_pod
            if job.is_guaranteed:
                self.gpus_by_vc[job.vc] -= job.kind.gpus_per_pod

    def set_health(self, node: str, is_healthy: bool, key: str) -> None:
        """A node turns bad or healthy."""
        started = self._clock()
        handle(self.state, NodeHealthChanged(node, is_healthy))
        self.samples[key].append(self._clock() - started)

    def _preempt(self, job: Job, found: Preempt, spent: int, moment: str) -> Bind:
        """The whole way as kube-scheduler goes it: filter (done), preempt, victims deleted, filter again, bind."""
        first = job.pods[0]
        started = self._clock()
        decision = handle(self.state, ScheduleRequested(first, Phase.PREEMPTING))
        spent += self._clock() - started
        if not isinstance(decision, Preempt) or decision != found:
            raise RuntimeError(f"filter found {found}, preempt {decision}")
        self.delete([self.placed[uid][0] for uid in _victims(found)], f"{moment}/victims")
        started = self._clock()
        decision = handle(self.state, ScheduleRequested(first))
        if not isinstance(decision, Bind):
            raise RuntimeError(f"all victims of {first.name} are gone, but it got {decision}")
        handle(self.state, PodAllocated(first, decision.bind_info, decision.lazily_preempted))
        spent += self._clock() - started
        kind = f"first of {job.kind.label}" if job.kind.pod_count > 1 else "pod"
        self.samples[f"{moment}/preempting {kind}"].append(spent)
        return decision

    def _place_later(self, job: Job, pod: PodRequest, moment: str) -> None:
        started = self._clock()
        decision = handle(self.state, ScheduleRequested(pod))
        if not isinstance(decision, Bind):
            raise RuntimeError(f"{pod.name}, of a group that has its cells, got {decision}")
        handle(self.state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))
        spent = self._clock() - started
        self._note(pod, decision.bind_info, moment, f"later of {job.kind.label}", spent)
        self._keep(job, pod, decision.bind_info)

    def _note(self, pod: PodRequest, bind_info: BindInfo, moment: str, kind: str, spent: int) -> None:
        """A pod that took the core so long: that, and all of it with its annotations."""
        asked = spec_document(pod)
        reading = self._read(pod, json.dumps(asked), f"{moment}/read JSON")
        self._read(pod, yaml.dump(asked, Dumper=yaml.CSafeDumper, sort_keys=False), f"{moment}/read YAML")
        started = self._clock()
        bind_annotations(bind_info)
        self.samples[f"{moment}/any, annotated"].append(reading + spent + self._clock() - started)
        for name in ("any", kind):
            self.samples[f"{moment}/{name}"].append(spent)

    def _read(self, pod: PodRequest, text: str, key: str) -> int:
        annotations = {SCHEDULING_SPEC: text}
        started = self._clock()
        read = pod_request(pod.uid, pod.name, pod.namespace, annotations, ignores_by_default=True)
        spent = self._clock() - started
        if read != pod:
            raise RuntimeError(f"{pod} was read as {read}")
        self.samples[key].append(spent)
        return spent

    def _keep(self, job: Job, pod: PodRequest, bind_info: BindInfo) -> None:
        self._job_of[pod.uid] = job
        self.placed[pod.uid] = (pod, bind_info)
        self.gpus_used += job.kind.gpus_per_pod
        if job.is_guaranteed:
            self.gpus_by_vc[job.vc] += job.kind.gpus_per_pod


def _victims(decision: Preempt) -> list[str]:
    return [uid for uids in decision.victims_by_node.values() for uid in uids]


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
        in_yaml, in_json = (summarise(self.figures.samples[f"load/read {form}"])["p50"] for form in ("YAML", "JSON"))
        self.figures.values["load/YAML times JSON"] = in_yaml / in_json
        return self.figures

    def start(self) -> ClusterSpec:
        """From nothing to a cluster whose nodes are all healthy."""
        self._progress("start")
        started = self._clock()
        spec = cluster_spec(self.node_count, self.rules)
        state = new_state(spec)
        add_all_nodes(state)
        self.figures.values["start/total"] = (self._clock() - started) / 1e9
        self.driver = Driver(state, self._clock)
        self.quota = vc_quota(state)
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
        self.figures.add(Explanations(self.driver.state, self.source, self.seed, self._clock).run())

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


class Explanations:
    """Explanations of waits in a cluster whose VCs are full, and copies of its state, which is afterwards as it was.

    An explanation comes after the refusal that it explains, whose time is not in it. Each job asks anew: of earlier
    questions only the cluster without anybody is kept, which the first one builds.
    """

    def __init__(self, state: State, source: JobSource, seed: int, clock: Callable[[], int]) -> None:
        self.figures = Figures()
        self._state, self._source, self._clock = state, source, clock
        self._random, self._emptied = random.Random(seed), Emptied()

    def run(self) -> Figures:
        """Raises RuntimeError if a job does not wait."""
        nodes = self._state.topology.node_names
        self._ask(ASKED[0], "explain/first", None, 1)
        (first,) = self.figures.samples.pop("explain/first")
        self.figures.values["explain/first"] = first / 1e6
        offered = np.zeros(len(nodes), np.bool_)
        offered[self._random.sample(range(len(nodes)), int(OFFERED_PART * len(nodes)))] = True
        bad = self._random.sample(nodes, int(BAD_PART * len(nodes)))
        for kind in ASKED:
            self._ask(kind, f"explain/{kind.label}", None, REPEATS)
            self._ask(kind, f"explain/{kind.label}, offered", offered, REPEATS)
        self._set_health(bad, is_healthy=False)
        for kind in ASKED:
            self._ask(kind, f"explain/{kind.label}, offered, bad", offered, REPEATS)
        self._set_health(bad, is_healthy=True)
        self._copy()
        return self.figures

    def _ask(self, kind: JobKind, key: str, offered: BoolArray | None, count: int) -> None:
        """Jobs of one kind, of one VC after the other; `offered` nodes, the same for each pod."""
        samples = self.figures.samples.setdefault(key, [])
        for number in range(count):
            vc = self._state.topology.vc_names[number % len(self._state.topology.vc_names)]
            pod = self._source.make(kind, vc, LOW_PRIORITY).pods[0]
            offer = None if offered is None else _offer(offered, kind.pod_count)
            if not isinstance(handle(self._state, ScheduleRequested(pod, offer=offer)), Wait):
                raise RuntimeError(f"VC {vc} is full, but {kind.label} did not have to wait")
            started = self._clock()
            explain_wait(self._state, pod, offer, self._emptied)
            samples.append(self._clock() - started)

    def _set_health(self, nodes: list[str], *, is_healthy: bool) -> None:
        for node in nodes:
            handle(self._state, NodeHealthChanged(node, is_healthy))

    def _copy(self) -> None:
        """Copies in new memory, and in that of the copy before."""
        room = copy_state(self._state)
        for key, earlier in (("copy/new", None), ("copy/again", room)):
            samples = self.figures.samples.setdefault(key, [])
            for _ in range(COPIES):
                started = self._clock()
                copy_state(self._state, earlier)
                samples.append(self._clock() - started)


class RefusedNodes:
    """Large gangs while half of the nodes are refused, suggested or offered: they are placed, or wait.

    The VC `racks` has half of at most 64 racks, `few` an eighth, and `nodes` the rest of the cluster node by node. A
    gang of whole nodes wants a quarter of the nodes of `racks`, or all nodes of `few`. A gang of all sizes from 1 to 8
    GPUs wants three quarters of the GPUs that `racks` can have, or a little more than all.
    """

    def __init__(
        self, node_count: int, seed: int, progress: Callable[[str], None], clock: Callable[[], int] = perf_counter_ns,
        rules: Rules = Rules.HIVED,
    ) -> None:  # fmt: skip
        self.figures = Figures()
        self._progress, self._clock, self._rules = progress, clock, rules
        self._racks = min(MOST_RACKS, node_count // NODES_PER_RACK)
        self._state = new_state(_spec(node_count, self._racks, rules))
        add_all_nodes(self._state)
        self._random = random.Random(seed)
        self._offered = np.zeros(node_count, np.bool_)
        for rack in range(0, node_count, NODES_PER_RACK):
            self._offered[
                [rack + place for place in self._random.sample(range(NODES_PER_RACK), NODES_PER_RACK // 2)]
            ] = True
        self._made = 0

    def run(self) -> Figures:
        """Raises RuntimeError if a gang is placed that cannot be, or under better rules is not placed that can be."""
        self._progress("gangs while half of the nodes are refused")
        for _ in range(self._racks // 2):
            self._start(self._pod("racks", {self._random.choice((1, 2, 4, 8)): 1}))
        whole = {GPUS_PER_NODE: self._racks * 2}
        for way in ("suggested", "offered"):
            for vc, expected in (("nodes", Bind), ("racks", Bind), ("few", Wait)):
                self._measure(f"refused/{vc}, {way}", vc, whole, way, expected)
            room = self._racks // 2 * NODES_PER_RACK // 2 * GPUS_PER_NODE
            each = room // sum(range(1, GPUS_PER_NODE + 1))
            for name, count, outcome in (("fits", each * 3 // 4, Bind), ("waits", each + 2, Wait)):
                sizes = dict.fromkeys(range(1, GPUS_PER_NODE + 1), count)
                self._measure(f"refused/mixed {name}, {way}", "racks", sizes, way, outcome)
        self._measure("refused/few, again", "few", whole, "suggested", Wait, changes=False)
        return self.figures

    def _measure(
        self, key: str, vc: str, sizes: dict[int, int], way: str, expected: type, *, changes: bool = True
    ) -> None:  # fmt: skip
        """Ask for a gang again and again; with `changes` something changes in between, so that nothing is known."""
        samples = self.figures.samples.setdefault(key, [])
        for _ in range(REFUSED_REPEATS):
            if changes:
                node = self._state.topology.node_names[-1]
                handle(self._state, NodeHealthChanged(node, is_healthy=False))
                handle(self._state, NodeHealthChanged(node, is_healthy=True))
            pod = self._pod(vc, sizes)
            event = ScheduleRequested(pod, suggested=self._offered)
            if way == "offered":
                event = ScheduleRequested(pod, offer=_offer(self._offered, sum(sizes.values())))
            started = self._clock()
            decision = handle(self._state, event)
            samples.append(self._clock() - started)
            if not isinstance(decision, expected) and (expected is Wait or self._rules is Rules.BETTER):
                raise RuntimeError(f"{key}: expected {expected.__name__}, got {decision}")

    def _start(self, pod: PodRequest) -> None:
        decision = handle(self._state, ScheduleRequested(pod))
        if not isinstance(decision, Bind):
            raise RuntimeError(f"{pod.name} was to start, got {decision}")
        handle(self._state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))

    def _pod(self, vc: str, sizes: dict[int, int]) -> PodRequest:
        self._made += 1
        name = f"gang-{self._made}"
        group = GroupSpec(f"bench/{name}", tuple(MemberSpec(count, size) for size, count in sorted(sizes.items())))
        spec = PodSpec(vc, 0, group.members[0].leaf_cell_count, group, ignore_suggested_nodes=False)
        return PodRequest(name, name, "bench", spec)


def _spec(node_count: int, racks: int, rules: Rules) -> ClusterSpec:
    promised = {"racks": ("POOL.RACK", racks // 2), "few": ("POOL.RACK", racks // 8)}
    left = node_count - (racks // 2 + racks // 8) * NODES_PER_RACK
    vcs = {name: VirtualClusterSpec(name, (VirtualCellSpec(*cells),)) for name, cells in promised.items()}
    vcs["nodes"] = VirtualClusterSpec("nodes", (VirtualCellSpec("POOL.RACK.NODE", left),))
    return replace(cluster_spec(node_count, rules), virtual_clusters=vcs)


def _offer(offered: BoolArray, pods: int) -> Offer:
    """As the service makes it: one row of memory for all pods."""
    shape = (pods, len(offered))
    return Offer(np.broadcast_to(offered, shape), np.broadcast_to(np.zeros(len(offered), np.bool_), shape))
