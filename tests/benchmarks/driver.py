"""Feeds jobs to the core as the service does, with a stopwatch around each decision."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from hived.cells.state import State
from hived.scheduler import handle
from hived.values.decisions import Bind, Decision, Preempt
from hived.values.events import NodeHealthChanged, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import BindInfo, PodRequest
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.bind_info import bind_annotations
from tests.benchmarks.annotations import spec_json, spec_yaml
from tests.benchmarks.workload import Job

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
        reading = self._read(pod, spec_json(pod), f"{moment}/read JSON")
        self._read(pod, spec_yaml(pod), f"{moment}/read YAML")
        started = self._clock()
        bind_annotations(bind_info)
        whole = reading + spent + self._clock() - started
        for name in ("any", kind):
            self.samples[f"{moment}/{name}"].append(spent)
            self.samples[f"{moment}/{name}, annotated"].append(whole)

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
