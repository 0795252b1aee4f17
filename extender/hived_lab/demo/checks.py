"""Does a moment meet an expectation? Every check answers with what it found instead, or with nothing."""

from collections import Counter
from collections.abc import Iterator

from hived_extender.api.cells import AffinityGroup
from hived_lab.demo.experiment import JobState, Step
from hived_lab.demo.observer import DONE, EVICTED, RUNNING, STARTING, VERBS, WAITING, Moment, Observer, PodHistory

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
    """How the jobs that a step speaks of are now: `A: 2 run, 1 waits (insufficient capacity ...)`."""
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
        yield f"{job} has had {count} pods, expected {expected.created}"
    if expected.phase is not None and observer.phases.get(job) != expected.phase:
        yield f"{job} is {observer.phases.get(job, 'no job that somebody looks after')}, expected {expected.phase}"


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
        yield f"{job} is on {len(nodes)} nodes ({', '.join(nodes)}), expected {expected.node_count}"


def _group_failures(job: str, expected: JobState, groups: list[AffinityGroup]) -> Iterator[str]:
    if expected.cells is not None:
        placements = (group.status.physical_placement for group in groups)
        found = sum(len(devices) for placement in placements for devices in placement.values())
        if found != expected.cells:
            yield f"{job} holds {found} cells, expected {expected.cells}"
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
