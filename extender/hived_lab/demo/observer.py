"""Looking at the cluster from outside, and comparing a look with an expectation.

A look is a `Moment`: pods from the API server, cells and groups from the service. The observer remembers what happened
to each pod from look to look, which no single look can tell: that a pod is gone because it was evicted, when it
started, and that it is still the one it was.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from hived.values.errors import UserError
from hived_config.words import counted
from hived_extender.api.cells import AffinityGroup, Cell
from hived_extender.api.inspection import Inspector
from hived_extender.jobs.annotations import BIND_INFO, SCHEDULING_SPEC, read_spec
from hived_extender.jobs.wire import Pod, PodStatus
from hived_extender.kube.client import PODS, KubeClient
from hived_extender.machine.gangs.gang import qualified
from hived_extender.machine.notices import CONDITION_TYPE
from hived_jobs.records import read_record
from hived_jobs.submission import JOB
from hived_lab.demo.experiment import JobState, Step


class ShownPod(Pod):
    """A pod as the API server has it."""

    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def waiting_reason(self) -> str:
        """The reason why a pod could not be placed: the service's, before it has one kube-scheduler's."""
        told = (self.condition(kind) for kind in (CONDITION_TYPE, "PodScheduled"))
        return next((one.message for one in told if one is not None and one.status == "False" and one.message), "")


def group_of(name: str, namespace: str, annotations: Mapping[str, str]) -> str:
    """The service's name for the group of a pod."""
    written = read_spec(annotations[SCHEDULING_SPEC]).group.name if SCHEDULING_SPEC in annotations else ""
    if not written:
        return f"{namespace}/{name}"
    return written if BIND_INFO in annotations else qualified(namespace, written)  # HiveD has bound it


WAITING, STARTING, RUNNING, DONE, EVICTED, DELETED = "waiting", "starting", "running", "done", "evicted", "deleted"
VERBS = {
    RUNNING: ("runs", "run"),
    WAITING: ("waits", "wait"),
    DONE: ("is done", "are done"),
    EVICTED: ("is evicted", "are evicted"),
    DELETED: ("is deleted", "are deleted"),
}
"""The words for a state of one pod, or of a job as a whole, and of several pods."""
_PHASES = {"Pending": STARTING, "Running": RUNNING, "Succeeded": DONE, "Failed": DONE}


@dataclass(slots=True)
class PodHistory:
    """One pod of a job and its history.

    `reason` is the scheduler's while it waits, since `reason_since_s` on the observer's clock.
    """

    job: str
    name: str
    uid: str
    group: str
    state: str = WAITING
    node: str = ""
    reason: str = ""
    reason_since_s: float = 0.0
    started_at: datetime | None = None
    eviction_count: int = 0
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Moment:
    """One look: when, in seconds since the observer began, the cells, and the groups by name."""

    at_s: float
    cells: tuple[Cell, ...]
    groups: dict[str, AffinityGroup]

    @property
    def nodes(self) -> list[Cell]:
        """Every node's cell, in the order of the configuration."""
        return [node for top in self.cells for node in top.nodes()]


@dataclass(slots=True)
class Observer:
    """Looks at one cluster; `pods` holds the history of every submitted pod, in order.

    `recorded` has the letters of jobs with a record, by namespace and name; pods that a controller makes for them are
    followed too. `phases` has the phases of these jobs. `podgroups` has the paths of PodGroups by name, and
    `podgroup_phases` their phases.
    """

    kube: KubeClient
    inspector: Inspector
    pods: list[PodHistory] = field(default_factory=list)
    recorded: dict[tuple[str, str], str] = field(default_factory=dict)
    phases: dict[str, str] = field(default_factory=dict)
    podgroups: dict[str, str] = field(default_factory=dict)
    podgroup_phases: dict[str, str] = field(default_factory=dict)
    _zero: float = field(default_factory=time.monotonic)
    _last: Moment | None = None

    def follow(self, pod: PodHistory) -> None:
        """Take a submitted pod into the books; one of the same name before it is history."""
        self.pods.append(pod)

    def job_pods(self, job: str) -> list[PodHistory]:
        """The pods of a job as last created."""
        latest = {pod.name: pod for pod in self.pods if pod.job == job}
        return list(latest.values())

    def forget(self, pods: Iterable[PodHistory]) -> None:
        """These pods are being deleted by their owner: that they vanish will be no eviction."""
        for pod in pods:
            if pod.state not in (DONE, EVICTED):
                pod.state = DELETED

    def look(self) -> Moment:
        """Look now.

        While the service is away (it is being started again) the cells and groups of the last look stand.
        """
        seen = {pod.metadata.uid: pod for pod in self.kube.list_objects(PODS, ShownPod).items}
        at_s = time.monotonic() - self._zero
        self._look_at_jobs(seen)
        for pod in self.pods:
            _update(pod, seen.get(pod.uid), at_s)
        try:
            cells = tuple(self.inspector.physical_cluster())
            groups = {group.name: group for group in self.inspector.groups()}
        except UserError:
            if self._last is None:
                raise
            cells, groups = self._last.cells, self._last.groups
        self._last = Moment(at_s, cells, groups)
        return self._last

    def _look_at_jobs(self, seen: Mapping[str, ShownPod]) -> None:
        """Follow pods that a controller made, and see where its jobs stand."""
        known = {pod.uid for pod in self.pods}
        for uid, pod in seen.items():
            metadata = pod.metadata
            job = self.recorded.get((metadata.namespace, (metadata.labels or {}).get(JOB, "")))
            if job is not None and uid not in known and not metadata.deletion_timestamp:
                group = group_of(metadata.name, metadata.namespace, pod.annotations)
                self.follow(PodHistory(job, metadata.name, uid, group, namespace=metadata.namespace))
        for (namespace, name), job in self.recorded.items():
            self.phases[job] = read_record(self.kube, namespace, name).state.phase.value
        for name, path in self.podgroups.items():
            self.podgroup_phases[name] = (self.kube.get(path).get("status") or {}).get("phase", "")


def _update(pod: PodHistory, seen: ShownPod | None, at_s: float) -> None:
    """Bring a pod's history up to date."""
    if pod.state in (DONE, EVICTED, DELETED):
        return
    if seen is None or seen.metadata.deletion_timestamp:
        pod.state = EVICTED
        pod.eviction_count += 1
        return
    if pod.reason != seen.waiting_reason:
        pod.reason, pod.reason_since_s = seen.waiting_reason, at_s
    pod.node = seen.node
    pod.started_at = datetime.fromisoformat(seen.status.started) if seen.status.started else None
    pod.state = _PHASES.get(seen.status.phase or "", STARTING) if pod.node else WAITING


TOGETHER_S = 2
"""Start times that differ by no more than this count as one moment; the API server tells them in whole seconds."""


def failures(step: Step, observer: Observer, moment: Moment) -> list[str]:
    """The differences from the expectation of a step, a line for each."""
    found = [text for job, state in step.jobs.items() for text in _job_failures(job, state, observer, moment)]
    if step.bad_nodes is not None:
        bad = sorted(node.name for node in moment.nodes if node.is_bad)
        if bad != sorted(step.bad_nodes):
            found.append(f"bad nodes are {', '.join(bad) or 'none'}, expected {', '.join(step.bad_nodes) or 'none'}")
    for name, phase in step.podgroups.items():
        if (seen_phase := observer.podgroup_phases.get(name)) != phase:
            found.append(f"PodGroup {name} is {seen_phase or 'without a phase'}, expected {phase}")
    return found


def seen(step: Step, observer: Observer) -> str:
    """Return the present state of the jobs of a step: `A: 2 run, 1 waits (insufficient capacity ...)`."""
    told = []
    for job, expected in step.jobs.items():
        pods = observer.job_pods(job)
        states = Counter(pod.state for pod in pods)
        parts = [f"{states[state]} {VERBS[state][states[state] > 1]}" for state in VERBS if states[state]]
        reasons = dict.fromkeys(pod.reason for pod in pods if pod.state == WAITING)
        told.append(f"{job}: {', '.join(parts) or 'no pods'}{''.join(f' ({one})' for one in reasons if one)}")
        if expected.phase is not None:
            told[-1] += f", job {observer.phases.get(job)}"
    told += [f"PodGroup {name}: {observer.podgroup_phases.get(name)}" for name in step.podgroups]
    if step.bad_nodes is not None:
        told.append(f"bad nodes: {', '.join(sorted(step.bad_nodes)) or 'none'}")
    return "; ".join(told)


def _job_failures(job: str, expected: JobState, observer: Observer, moment: Moment) -> Iterator[str]:
    pods = observer.job_pods(job)
    yield from _count_failures(job, expected, pods)
    yield from _place_failures(job, expected, pods)
    yield from _group_failures(job, expected, _groups(pods, moment))
    if expected.reason is not None:
        for pod in pods:
            if pod.state == WAITING and expected.reason not in pod.reason:
                yield f"{pod.name} is told {pod.reason!r}, expected {expected.reason!r} in it"
    if expected.together:
        starts = [pod.started_at for pod in pods if pod.started_at is not None]
        if len(starts) < len(pods) or (max(starts) - min(starts)).total_seconds() > TOGETHER_S:
            yield f"the pods of {job} did not start together"
    if expected.untouched:
        touched = [pod.name for pod in observer.pods if pod.job == job and pod.eviction_count]
        if touched:
            yield f"{', '.join(touched)} was evicted"
    count = sum(pod.job == job for pod in observer.pods)
    if expected.created is not None and count != expected.created:
        yield f"{job} has had {counted(count, 'pod')}, expected {expected.created}"
    if expected.phase is not None and observer.phases.get(job) != expected.phase:
        yield f"{job} is {observer.phases.get(job, 'no job of a controller')}, expected {expected.phase}"


def _count_failures(job: str, expected: JobState, pods: list[PodHistory]) -> Iterator[str]:
    counts = {RUNNING: expected.running, WAITING: expected.waiting, DONE: expected.done, EVICTED: expected.evicted}
    for state, count in counts.items():
        found = sum(pod.state == state for pod in pods)
        if count is not None and found != count:
            yield f"{found} of {job} {state}, expected {count}"


def _place_failures(job: str, expected: JobState, pods: list[PodHistory]) -> Iterator[str]:
    nodes = sorted({pod.node for pod in pods if pod.state in (STARTING, RUNNING)})
    if expected.nodes is not None and not set(nodes) <= set(expected.nodes):
        yield f"{job} is on {', '.join(nodes)}, expected {', '.join(expected.nodes)}"
    if expected.node_count is not None and len(nodes) != expected.node_count:
        yield f"{job} is on {counted(len(nodes), 'node')} ({', '.join(nodes)}), expected {expected.node_count}"


def _group_failures(job: str, expected: JobState, groups: list[AffinityGroup]) -> Iterator[str]:
    if expected.cells is not None:
        placements = (group.status.physical_placement for group in groups)
        found = sum(len(devices) for placement in placements for devices in placement.values())
        if found != expected.cells:
            yield f"{job} holds {counted(found, 'cell')}, expected {expected.cells}"
    guaranteed = {bool(group.status.virtual_placement) for group in groups}
    if expected.guaranteed is not None and guaranteed != {expected.guaranteed}:
        word = {True: "guaranteed", False: "opportunistic"}
        found_words = " and ".join(sorted(word[one] for one in guaranteed)) or "not known to the service"
        yield f"{job} is {found_words}, expected {word[expected.guaranteed]}"
    lazily = {group.status.lazy_preemption_status is not None for group in groups}
    if expected.lazily_preempted is not None and lazily != {expected.lazily_preempted}:
        yield f"{job} is {'' if True in lazily else 'not '}lazily preempted, expected otherwise"


def _groups(pods: list[PodHistory], moment: Moment) -> list[AffinityGroup]:
    """The groups of these pods that the service knows."""
    names = dict.fromkeys(pod.group for pod in pods)
    return [moment.groups[name] for name in names if name in moment.groups]
