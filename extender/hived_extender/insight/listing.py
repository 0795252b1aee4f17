"""Jobs and nodes of a snapshot, as lists for people. Jobs that have ended are those of `ended`."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.cells.state import CellState, Group, GroupState
from hived.cells.topology import NO_CELL, LongArray, Topology
from hived.scenario import Asked, Scenario, nodes_of, pods_of
from hived.scheduler import Fact
from hived.values.decisions import Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import NodeHealthChanged, PodDeleted
from hived.values.specs import PodRequest, count_pods
from hived_extender.api.names import GANG, is_full
from hived_extender.api.waiting import (
    FOR_JOBS,
    MASKED,
    BadNode,
    CauseName,
    Certificate,
    Elsewhere,
    Job,
    JobState,
    LeafCounts,
    NodeView,
    PodCounts,
    PodView,
    Preempted,
    Used,
    When,
)
from hived_extender.insight.snapshot import ClearedPod, RunningFacts, Snapshot, WaitingEntry
from hived_extender.jobs.job import Job as JobObject
from hived_extender.jobs.job import JobName, PodTally, typed
from hived_extender.jobs.job import JobState as Phase
from hived_extender.jobs.kinds.marks import KUEUE_QUEUE, is_marked_held, user_said
from hived_extender.jobs.needs import SeenJob
from hived_extender.machine.certificates import asks_of, node_leaves_of, rfc3339, running_sentence, today
from hived_extender.machine.counts import MS_PER_HOUR
from hived_extender.machine.devices.keeper import SHORT
from hived_extender.queues.reasons import start_of

NO_CELLS = "no cells"

SUSPENDED = "it is suspended, and in no queue: hived release {name} starts it"

HELD_TOO = "it is suspended, by its owner or by hived hold: hived release {name} ends that; {wait}"
"""Of a job that its author does not let start yet either."""

OF_KUEUE = "it is suspended, and in a queue of Kueue, which resumes it"

NO_PODS = "its controller has made no pods of it yet"

FAILED_PODS = "its pods have failed: its controller makes new ones, later after each failure"

NOT_PLACED = "its pods ask for no cells of hived, which does not place them"

OF_KUBE_SCHEDULER = "kube-scheduler places it, without hived"

OF_ANOTHER = "its pods are of scheduler {name}, and hived does not place them"

_IS_SUSPENDED = When(kind="unknown", because="it is suspended")

_PODLESS: Mapping[Phase, tuple[JobState, CauseName | Literal[""], When | None]] = {
    Phase.HELD: ("Held", "held", _IS_SUSPENDED),
    Phase.LEAVING: ("Leaving", "", None),
    Phase.RESUMED: ("Waiting", "incomplete", When(kind="unknown", because="it has no pods yet")),
}
"""A job without pods, by the state of its object."""


class JobParts(msgspec.Struct):
    """A job in a snapshot: what of it waits, the groups that have cells, and pods without cells.

    `parts` are the names of what starts together: itself, its gangs, its affinity groups, or its pods. `owners` are the
    job objects of its pods: one, unless they are plain pods, or a gang that several objects share.
    """

    name: str
    owners: tuple[JobName, ...]
    parts: dict[str, None] = {}
    waiting: list[WaitingEntry] = []
    groups: list[str] = []
    cleared: list[ClearedPod] = []


class ListedJob(msgspec.Struct, frozen=True):
    """The row of a job, and what is known of its parts.

    `waiting` are those that wait, in the order in which they are served, and `certificate` says why the first one does.
    `groups` are the names by which the core knows the job, `parts` all names of its parts; `cleared` its pods without
    cells, and `labels` those of its object and of a pod: None if unknown.
    """

    job: Job
    groups: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    waiting: tuple[WaitingEntry, ...] = ()
    certificate: Certificate | None = None
    cleared: tuple[ClearedPod, ...] = ()
    labels: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """Its full name."""
        return self.job.name

    @property
    def queues_as(self) -> dict[str, None]:
        """The names as which queues may have it: its own, and the gangs of its waiting pods that have our gate."""
        parts: list[WaitingEntry | ClearedPod] = [*self.waiting, *self.cleared]
        units = [str(one.unit) for one in parts if one.unit is not None]
        return dict.fromkeys((self.name, *units))

    def entry_of(self, name: str) -> WaitingEntry | None:
        """The part that waits and has this name, or a pod of it; of the job itself the first one. None if that runs."""
        for entry in self.waiting:
            if name in (entry.name, *entry.pods) or any(name == one.spec.group.name for one in entry.requests):
                return entry
        runs = name in self.job.pods or name in self.groups
        return self.waiting[0] if self.waiting and not runs else None

    def mates_of(self, entry: WaitingEntry, name: str) -> tuple[WaitingEntry, ...]:
        """The other parts that wait, which start apart from this one; none if the name is that of the part alone."""
        is_part = name != self.name and name in (
            entry.name,
            *entry.pods,
            *(one.spec.group.name for one in entry.requests),
        )
        return () if is_part else tuple(one for one in self.waiting if one is not entry)


def parts_in(snapshot: Snapshot) -> list[JobParts]:
    """All jobs: those of which something waits, in the order in which they are served, then others by name.

    A job object is one job, with all of its gangs and pods (rule 24.14). A gang that is all there is of an object that
    hived does not follow keeps its own name. Cost O(groups + pods).
    """
    waiting = [(entry.gang or entry.name, entry) for entry in snapshot.waiting]
    running = [(snapshot.running[name].job, name) for name in sorted(snapshot.running) if name in snapshot.state.groups]
    owners: dict[str, dict[JobName | None, None]] = {}
    wholes: dict[JobName, dict[str, None]] = {}
    told: list[tuple[str, WaitingEntry | RunningFacts | ClearedPod]] = [
        *waiting,
        *((name, snapshot.running[group]) for name, group in running if snapshot.running[group].pods),
        *((one.job, one) for one in snapshot.cleared),
    ]
    for part, one in told:
        owners.setdefault(part, {})[one.owner] = None
        if one.whole is not None:
            wholes.setdefault(one.whole, {})[part] = None
    whole_of = {part: (whole, len(parts) > 1) for whole, parts in wholes.items() for part in parts}
    found: dict[str, JobParts] = {}

    def job_of(part: str) -> JobParts:
        known = dict(owners.get(part, {}))
        whole, is_one_of_several = whole_of.get(part, (None, False))
        if whole is not None and [*known] == [None]:
            known = {whole: None}
        is_object = len(known) == 1 and (is_one_of_several or owners.get(part) == known)
        first = next(iter(known), None)
        name = part if not is_object or first is None else str(first)
        job = found.setdefault(name, JobParts(name, tuple(one for one in known if one is not None)))
        job.parts[part] = None
        return job

    for name, entry in waiting:
        job_of(name).waiting.append(entry)
    first = len(found)
    for name, group in running:
        if snapshot.running[group].pods or not job_of(name).waiting:
            job_of(name).groups.append(group)
    for pod in snapshot.cleared:
        job_of(pod.job).cleared.append(pod)
    jobs = list(found.values())
    return [*jobs[:first], *sorted(jobs[first:], key=lambda job: job.name)]


def listed(
    snapshot: Snapshot,
    parts: JobParts,
    found: Certificate | None = None,
    when: When | None = None,
    seen: SeenJob | None = None,
) -> ListedJob:
    """The row of a job; `found` says why the first part of it waits, and `seen` is its object."""
    state = snapshot.state
    facts, held = [snapshot.running[name] for name in parts.groups], [state.groups[name] for name in parts.groups]
    known: list[WaitingEntry | RunningFacts | ClearedPod] = [*parts.waiting, *facts, *parts.cleared]
    pods = [pod for one in known for pod in one.pods]
    made_by = "" if seen is None or seen.job.made_by is None else str(seen.job.made_by)
    own = *parts.parts, *map(str, parts.owners)
    names = *own, *([made_by] if made_by else [])
    shown = {parts.name, *pods}
    aliases = [name for name in dict.fromkeys(names) if name not in shown]
    asked = tuple(request.spec.group.name for entry in parts.waiting for request in entry.requests)
    reserved = [state.groups[name] for name in asked if name in state.groups]
    counts = _counts(parts, facts, seen)
    job = Job(
        name=parts.name,
        state="Running",
        namespace=known[0].namespace,
        user=next((one.user for one in known if one.user), "") or _user(seen),
        pods=pods,
        nodes=_nodes(snapshot, [*reserved, *held], parts.cleared),
        bad_nodes=_bad_nodes(snapshot, held),
        demoted=_demoted(facts),
        api_version="" if seen is None else seen.job.ref.api_version,
        aliases=aliases,
        is_elastic=counts.wanted > 1 and parts.name not in parts.parts and shown.issuperset(own),
        made_by=made_by,
        counts=counts,
    )
    if parts.waiting and found is not None:
        is_preempting = any(group.state is GroupState.PREEMPTING for group in reserved)
        job = _waits(replace(job, state="Preempting" if is_preempting else "Waiting"), parts.waiting, found, when)
    elif held:
        job = _runs(job, snapshot, facts, held, wanted_cells(job, parts, seen))
    else:
        job = _without_cells(job, parts.cleared)
        if seen is not None and seen.job.state is Phase.HELD:  # DLRover keeps the master of one that is suspended
            job = replace(job, state="Held", cause="held", sentence=_podless_sentence(seen.job), when=_IS_SUSPENDED)
    return ListedJob(
        job, (*parts.groups, *asked), names, tuple(parts.waiting), found, tuple(parts.cleared), _labels(known, seen)
    )


def _demoted(facts: Sequence[RunningFacts]) -> str:
    """Since when a job has no guarantee: `since version 7`, `in 2 of 14 pods since version 7`; "" if all have one."""
    lost = [one for one in facts if one.lost_guarantee]
    if not lost:
        return ""
    count, total = (sum(len(one.pods) for one in some) for some in (lost, facts))
    return (f"in {count} of {total} pods " if count < total else "") + lost[0].lost_guarantee


def _user(seen: SeenJob | None) -> str:
    """The user that a job object names."""
    return "" if seen is None else user_said(seen.job.labels, seen.job.annotations)


def _labels(known: Sequence[WaitingEntry | RunningFacts | ClearedPod], seen: SeenJob | None) -> Mapping[str, str]:
    """The labels of a job: those of its object and of its pods, the first one's as it is."""
    return {**known[0].labels, **({} if seen is None else seen.job.all_labels)}


def _waits(job: Job, waiting: Sequence[WaitingEntry], found: Certificate, when: When | None) -> Job:
    """The row of a job of which something waits."""
    return replace(
        job,
        vc=waiting[0].vc,
        priority=waiting[0].priority if waiting[0].vc else None,
        asks=found.asks,
        since=_moment(min(entry.created_s for entry in waiting)),
        cause=found.cause,
        sentence=found.sentence,
        when=when,
    )


def _runs(job: Job, snapshot: Snapshot, facts: Sequence[RunningFacts], held: Sequence[Group], wanted: int) -> Job:
    """The row of a job that has its cells, of whose pods so many are `wanted` that ask for some."""
    requests = _one_of_each_group([pod for group in held for pod in group.holders if pod is not None])
    requests = of_all_pods(requests, wanted) if job.is_elastic else requests
    leaf_type = _leaf_type(snapshot, held)
    node_leaves = node_leaves_of(snapshot.state.topology, leaf_type)
    starts = [one.started_s for one in facts if one.started_s is not None]
    lent_at = next((one.lent_at for one in facts if one.lent_at is not None), None)
    return replace(
        job,
        state=_state(facts),
        vc=held[0].spec.virtual_cluster,
        priority=held[0].priority if lent_at is None else lent_at,
        is_borrowed=lent_at is not None,
        since=rfc3339(min(starts, default=None)),
        asks=asks_of(requests, leaf_type, node_leaves, is_gang=not job.is_elastic) if requests else "",
        sentence=running_sentence(job.bad_nodes, job.demoted, today(snapshot.at)),
    )


def _without_cells(job: Job, pods: Sequence[ClearedPod]) -> Job:
    """The row of a job none of whose pods has cells, or waits for some."""
    states = {one.view.state for one in pods}
    state = next((each for each in _LEAST_FIRST if each in states), "Leaving")
    waiting = [one for one in pods if one.view.state == "Waiting"]
    starts = [one.view.since for one in pods if one.view.since]
    return replace(
        job,
        state=state,
        vc=pods[0].vc,
        priority=pods[0].priority if pods[0].vc else None,
        asks=NO_CELLS,
        since=_moment(min(one.created_s for one in pods)) if waiting or not starts else min(starts),
        cause="kubernetes" if waiting else "",
        when=When(kind="unknown", because=OF_KUBE_SCHEDULER) if waiting else None,
        sentence=waiting[0].reason if waiting else "",
    )


_LEAST_FIRST: Sequence[Literal["Waiting", "Starting", "Running"]] = ("Waiting", "Starting", "Running")
"""States of pods, one of which is enough for its job to have it, the first one first."""


def _moment(at_s: float) -> str:
    """A moment that may not be known, and is infinite then."""
    return "" if at_s == math.inf else rfc3339(at_s)


def members_of(snapshot: Snapshot, listed: ListedJob) -> list[PodView]:
    """The pods of a job one by one, with their nodes: in the order of its `pods`."""
    running = [snapshot.running[name] for name in listed.groups if name in snapshot.running]
    views = {one.name: one for facts in running for one in facts.members}
    views |= {one.view.name: one.view for one in listed.cleared}
    return [views.get(name) or PodView(name=name, state="Waiting") for name in listed.job.pods]


def _counts(parts: JobParts, facts: Sequence[RunningFacts], seen: SeenJob | None) -> PodCounts:
    """A pod without cells counts as running once it has a node."""
    cleared = sum(one.is_running for one in parts.cleared)
    waiting = sum(len(entry.pods) for entry in parts.waiting) + len(parts.cleared) - cleared
    running = sum(len(one.pods) for one in facts) + cleared
    tally = PodTally() if seen is None else seen.job.tally
    gangs: list[WaitingEntry | RunningFacts] = [*parts.waiting, *facts]
    least = max((one.wanted for one in gangs), default=0)
    return PodCounts(
        wanted=max(tally.wanted or least, tally.done + running + waiting),
        running=running,
        waiting=waiting,
        done=tally.done,
        failed=tally.failed,
    )


def without_pods(seen: SeenJob, topology: Topology | None = None) -> ListedJob:
    """The row of a job object of which no pod is known now, and which no queue has; of `topology` it asks for nodes."""
    job, need = seen.job, seen.need
    (state, cause, when), sentence = _PODLESS[job.state], _podless_sentence(job)
    if (wait := seen.wait) is not None:
        state, cause = ("Refused", "never") if wait.is_never else ("Held", "held")
        is_held = not is_marked_held(job.annotations)
        sentence = (
            HELD_TOO.format(name=typed(job.ref.name, job.ref.namespace), wait=wait.sentence)
            if is_held
            else wait.sentence
        )
        when = When(kind="never") if wait.is_never else start_of(wait.begin_s)
    elif seen.problem:
        state, cause, sentence = "Refused", "invalid", seen.problem
        when = When(kind="unknown", because="hived cannot read it as it is")
    elif not seen.is_ours and not seen.has_cells and not seen.names_us and job.state is Phase.RESUMED:
        told = OF_ANOTHER.format(name=seen.scheduler) if seen.scheduler else NOT_PLACED
        state, cause, sentence, when = "Running", "", told, None
    row = Job(
        name=str(job.ref),
        state=state,
        asks="" if seen.is_ours or seen.has_cells else NO_CELLS,
        namespace=job.ref.namespace,
        user=user_said(job.labels, job.annotations),
        since=rfc3339(job.created_s if job.held_s is None or wait is not None else job.held_s),
        cause=cause,
        sentence=sentence,
        when=when,
        api_version=job.ref.api_version,
        aliases=[] if job.made_by is None else [str(job.made_by)],
        made_by="" if job.made_by is None else str(job.made_by),
        counts=PodCounts(wanted=job.tally.wanted, done=job.tally.done, failed=job.tally.failed),
    )
    if need is not None:
        leaf_type = need.spec.leaf_cell_type
        node_leaves = 0 if topology is None else node_leaves_of(topology, leaf_type)
        asks = asks_of([PodRequest("", "", "", need.spec)], leaf_type, node_leaves, is_gang=False)
        row = replace(row, vc=need.spec.virtual_cluster, priority=need.spec.priority, asks=asks)
    found = Certificate(sentence=sentence, cause=cause, vc=row.vc, asks=row.asks, reason=sentence) if cause else None
    if found is not None and cause == "never":
        found = replace(found, never=True, untried=FOR_JOBS)
    return ListedJob(row, parts=tuple(row.aliases), certificate=found, labels=job.all_labels)


def _podless_sentence(job: JobObject) -> str:
    """Return why a job object has no pods: "" while they leave."""
    if job.state is Phase.HELD:
        return (
            OF_KUEUE if job.labels.get(KUEUE_QUEUE) else SUSPENDED.format(name=typed(job.ref.name, job.ref.namespace))
        )
    if job.state is Phase.LEAVING:
        return ""
    return FAILED_PODS if job.tally.failed else NO_PODS


def with_held(jobs: Sequence[ListedJob], held: Sequence[ListedJob]) -> tuple[list[ListedJob], list[ListedJob]]:
    """The jobs that nothing of `held` is, and those `held`: one of which there are pods has them, once, in their row.

    They are held by their author's word, and not by a queue.
    """
    place_of = {name: place for place, one in enumerate(jobs) for name in one.queues_as}
    found: dict[int | str, ListedJob] = {}
    for one in held:
        place = place_of.get(one.name)
        if place is None:
            found[one.name] = one
        elif place not in found:
            row = jobs[place]
            told = held_as(row.job, one.job)
            parts = *row.parts, *row.queues_as
            found[place] = replace(row, job=told, parts=parts, waiting=(), certificate=one.certificate)
    return [one for place, one in enumerate(jobs) if place not in found], list(found.values())


def with_queued(listed: Sequence[ListedJob], shown: Sequence[Job], queued: Sequence[Job]) -> list[Job]:
    """The rows of `listed` jobs, as they are `shown`, with those of queues behind the ones that wait; each job once.

    Pods of a job that waits in a queue are there if they have our gate, or still leave: they are in its row then.
    """
    rows = list(zip(listed, shown, strict=True))
    place_of = {name: place for place, (one, job) in enumerate(rows) if job.name != MASKED for name in one.queues_as}
    found: dict[int | str, Job] = {}
    for one in queued:
        place = place_of.get(one.name)
        if place is None:
            found[one.name] = one
        elif place not in found:
            row = held_as(shown[place], one)
            is_object = is_full(row.name) and not row.name.startswith(GANG)
            names = [name for name in dict.fromkeys((row.name, *row.aliases)) if name not in (one.name, *row.pods)]
            found[place] = row if is_object else replace(row, name=one.name, aliases=names)
        else:  # another part of it, which has a place of its own
            found[place] = replace(found[place], aliases=[*found[place].aliases, one.name])
    left = [job for place, job in enumerate(shown) if place not in found]
    waiting = sum(one.state in ("Waiting", "Preempting") for one in left)
    return [*left[:waiting], *found.values(), *left[waiting:]]


def held_as(job: Job, told: Job) -> Job:
    """The row of a job's pods, with what is `told` of why it does not start."""
    return replace(
        job,
        state=told.state,
        user=job.user or told.user,
        vc=told.vc or job.vc,
        priority=told.priority if told.vc else job.priority,
        is_borrowed=told.is_borrowed,
        asks=told.asks or job.asks,
        since=told.since,
        cause=told.cause,
        sentence=told.sentence,
        when=told.when,
        preempted=told.preempted or job.preempted,
        queue=told.queue,
        place=told.place,
        aliases=list(dict.fromkeys([*job.aliases, *([told.name] if told.name != job.name else [])])),
    )


def with_ended(
    jobs: Sequence[ListedJob],
    news: Mapping[str, Preempted],
    gone: Sequence[Job],
    since: Mapping[tuple[str, str], str],
    used: Mapping[str, Used],
) -> list[ListedJob]:
    """The jobs with the news that they were preempted, and after them those that were and are `gone`.

    They are in their states `since` then, by name and state: the pod that started or waited first may be gone.
    By name, they have `used` cells.
    """
    found, there = [], set[str]()
    for one in jobs:
        names = [name for name in (one.name, *one.parts) if name in news]
        there.update((one.name, *one.parts))
        told = max((news[name] for name in names), key=lambda each: each.at, default=None)
        job = one.job if told is None else replace(one.job, preempted=told)
        if (one.name, job.state) in since:
            job = replace(job, since=since[one.name, job.state])
        if one.name in used:
            job = replace(job, used=used[one.name])
        found.append(one if job is one.job else replace(one, job=job))
    return [*found, *(ListedJob(job) for job in gone if job.name not in there)]


def _bad_nodes(snapshot: Snapshot, groups: Iterable[Group]) -> list[BadNode]:
    """The nodes of groups that cannot be used, and those with lost devices that the groups have."""
    state, topology = snapshot.state, snapshot.state.topology
    found: dict[int, BadNode] = {}
    for group in groups:
        held = group.physical[group.physical != NO_CELL]
        for node in np.unique(state.arrays.node[held[state.cells.bad[held] > 0]]).tolist():
            name = topology.node_names[node]
            reason, since_s = snapshot.bad.get(name, (SHORT, None))
            found[node] = BadNode(name, reason, rfc3339(since_s))
    return [found[node] for node in sorted(found)]


def _state(facts: Sequence[RunningFacts]) -> JobState:
    if all(one.is_leaving for one in facts):
        return "Leaving"
    return "Running" if any(one.started_s is not None for one in facts) else "Starting"


def _one_of_each_group(requests: Sequence[PodRequest]) -> list[PodRequest]:
    found: dict[str, PodRequest] = {}
    for request in requests:
        found.setdefault(request.spec.group.name, request)
    return list(found.values())


def of_all_pods(requests: list[PodRequest], wanted: int) -> list[PodRequest]:
    """The requests of all pods of a job whose pods start one by one, from those of some, if these are alike."""
    sizes = {(one.spec.leaf_cell_type, one.spec.group.members) for one in requests}
    is_alike = len(sizes) == 1 and count_pods(requests[0].spec.group.members) == 1
    return requests[:1] * max(wanted, len(requests)) if is_alike else requests


def wanted_cells(job: Job, parts: JobParts, seen: SeenJob | None) -> int:
    """How many pods of a job in all ask for cells: its head, master or launcher may ask for none."""
    return job.counts.wanted - max(len(parts.cleared), 0 if seen is None else seen.others)


def _leaf_type(snapshot: Snapshot, groups: Iterable[Group]) -> str:
    """The leaf cell type of all that groups have; "" if they have several, or none."""
    topology, types = snapshot.state.topology, dict[str, None]()
    for group in groups:
        held = group.physical[group.physical != NO_CELL]
        if len(held):
            types[topology.chain_of(int(held[0])).types[0]] = None
    return next(iter(types)) if len(types) == 1 else ""


def _nodes(snapshot: Snapshot, groups: Iterable[Group], cleared: Iterable[ClearedPod] = ()) -> list[str]:
    """The nodes of groups in the order of the configuration, then those of pods without cells alone."""
    state = snapshot.state
    nodes = nodes_of(state, (group.name for group in groups))
    found = [state.topology.node_names[node] for node in np.flatnonzero(nodes).tolist()]
    return list(dict.fromkeys([*found, *sorted({one.view.node for one in cleared if one.view.node})]))


class _OnNode(msgspec.Struct):
    """The jobs on a node, as lists have them, with their groups there; its pods; leaf cells times milliseconds that may
    be lost.
    """

    jobs: dict[str, list[str]] = {}
    pods: int = 0
    lost_ms: int = 0


def node_views(snapshot: Snapshot, *, is_bad: bool = False) -> list[NodeView]:
    """All configured nodes, in their order; with `is_bad` only those that cannot be used, or not all of them.

    Cost O(leaf cells + groups), in numpy.
    """
    state = snapshot.state
    topology, arrays, cells = state.topology, state.topology.arrays, state.cells
    leaves = np.flatnonzero(arrays.level[: topology.physical_count] == 1)
    types = sorted({chain.types[0] for chain in topology.chains})
    of_chain = np.array([types.index(chain.types[0]) for chain in topology.chains], np.int64)
    place = arrays.node[leaves] * len(types) + of_chain[arrays.chain_of_level[arrays.chain_level[leaves]]]
    is_free = (cells.state[leaves] == CellState.FREE) & (cells.bad[leaves] == 0)
    masks = np.ones(len(leaves), np.bool_), is_free, cells.lost[leaves] != 0
    shape = len(topology.node_names), len(types)
    counts = np.stack([np.bincount(place[mask], minlength=shape[0] * shape[1]).reshape(shape) for mask in masks], -1)
    there = _by_node(snapshot)
    is_chosen = (cells.node_bad != 0) | counts[:, :, 2].any(axis=1)
    chosen = np.flatnonzero(is_chosen) if is_bad else range(shape[0])
    return [_node(snapshot, int(index), types, counts[index], there[int(index)]) for index in chosen]


def if_drained(snapshot: Snapshot, node: str) -> list[Elsewhere]:
    """Whether each job on a node would start elsewhere now, in the order of its `groups`; they start anew together.

    Cells alone count, and no rules of Kubernetes. Cost: a search for each group on the node, and that of a scenario.
    """
    state = snapshot.state
    there = _by_node(snapshot)[state.topology.node_index[node]].jobs.values()
    asked = [[Asked(pods_of(state, [name])[0]) for name in groups] for groups in there]
    gone: list[Fact] = [PodDeleted(pod) for pod in pods_of(state, chain.from_iterable(there))]
    found = Scenario(state, snapshot.at).plan(asked, [*gone, NodeHealthChanged(node, False)])
    return [_elsewhere(one) for one in found]


def _elsewhere(found: list[Decision] | UserError) -> Elsewhere:
    if isinstance(found, UserError) or any(isinstance(one, Wait) for one in found):
        return "waits"
    return "preempts" if any(isinstance(one, Preempt) for one in found) else "starts"


def _node(snapshot: Snapshot, index: int, types: Sequence[str], counts: LongArray, there: _OnNode) -> NodeView:
    """`counts` are of the leaf cells of each type: all, free, lost."""
    name = snapshot.state.topology.node_names[index]
    is_bad = bool(snapshot.state.cells.node_bad[index])
    total, free, lost = counts.sum(axis=0).tolist()
    own = {each: LeafCounts(*of_type) for each, of_type in zip(types, counts.tolist(), strict=True) if of_type[0]}
    reason, since_s = snapshot.bad.get(name, ("", None)) if is_bad else ((SHORT, None) if lost else ("", None))
    return NodeView(
        node=name, is_bad=is_bad, reason=reason, since=rfc3339(since_s), cells=total, free=free, lost=lost,
        by_type=own if len(own) > 1 else {}, groups=list(there.jobs), pods=there.pods,
        gpu_hours=there.lost_ms / MS_PER_HOUR,
    )  # fmt: skip


def _by_node(snapshot: Snapshot) -> dict[int, _OnNode]:
    """Cost O(groups + pods)."""
    found = defaultdict[int, _OnNode](_OnNode)
    job_of = {group: job.name for job in parts_in(snapshot) for group in job.groups}
    topology, now_ms = snapshot.state.topology, int(snapshot.at * 1000)
    for name in sorted(snapshot.running):
        group, facts = snapshot.state.groups.get(name), snapshot.running[name]
        if group is None:
            continue
        held = group.physical[group.physical != NO_CELL]
        for node in set(topology.arrays.node[held].tolist()):
            found[node].jobs.setdefault(job_of.get(name, facts.job), []).append(name)
            found[node].lost_ms += len(held) * (now_ms - group.since_ms) if 0 <= group.since_ms < now_ms else 0
        for pod in facts.members:
            if (number := topology.node_index.get(pod.node)) is not None:
                found[number].pods += 1
    return found
