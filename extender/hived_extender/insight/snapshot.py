"""The service at one moment: a copy of the state, the jobs that wait and the ones that run, as others may look at them.

The lock is held for the copy, and then for a few pods at a time. So pods that come or go meanwhile may be in the lists
or not, while the state is that of one moment. The offers of a job are looked up once, with its first pod. An error here
is the caller's: the service goes on.
"""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import msgspec
from msgspec.structs import replace

from hived.cells.copying import copy_groups, copy_state
from hived.cells.state import Group, State
from hived.scenario import Asked
from hived.values.errors import InvariantError, UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodRequest, count_leaves
from hived_config.access import AccessRules
from hived_extender.api.waiting import PodView
from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds import kueue
from hived_extender.jobs.kinds.table import unit_of
from hived_extender.jobs.needs import QueuedRun
from hived_extender.jobs.progress import seconds_of
from hived_extender.kube_rules.nodes import RuledNode
from hived_extender.machine.certificates import rfc3339
from hived_extender.machine.cluster_cache import ClusterCache, ClusterNodes
from hived_extender.machine.core import Core
from hived_extender.machine.counts import PodEnd
from hived_extender.machine.explaining import ends_s_of, last_of, limit_s_of, troubles
from hived_extender.machine.gangs.plans import Round
from hived_extender.machine.gangs.rounds import Alone
from hived_extender.machine.machine import Machine
from hived_extender.machine.offers import Asking
from hived_extender.machine.plain_pods import PlainPod
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.machine.service import Service
from hived_extender.machine.stand_ins import held_job

AT_ONCE = 100
"""Looks under the lock, before others are served: at a pod, or at an offer for a slot of a job, see `NODES_OF_A_LOOK`.
Gangs without a plan cost 0.1 ms each.
"""

NODES_OF_A_LOOK = 1024
"""An offer of more nodes counts as more looks."""

HELD = "held by a scheduling gate"

NOT_TRIED = "kube-scheduler, which places it, has not looked for a node yet"

_UNKNOWN_S = float("inf")

Runs = Callable[[Collection[str]], Mapping[str, QueuedRun]]
"""The runs of those of these jobs that a queue has started, by name."""

LimitOf = Callable[[JobName], float | None]
"""How long a run of a job object lasts at the most, None if it declares nothing."""


class WaitingEntry(msgspec.Struct, frozen=True, eq=False):
    """A job that waits, or a pod that its `gang` has room for since others of it run.

    Its `parts` start together. A job that cannot be asked for has none, and `refusal` says why: a mistake, or its gang
    `is_incomplete`, or it `is_over_quota`.
    `reason` was told last;
    `rules` says which rules of Kubernetes refuse which nodes for good. `created_s` is the moment at which its first pod
    was created, in seconds since 1970; infinite if unknown. For `limit_s` it has its cells at the most, the time to
    leave included: None if one of its pods does not say. Its pods have `grace_s` for that.

    A job that does not `preempts` reclaims lent cells only. `owner` is the job object that all of its pods are of,
    and `wanted` the number of pods of its gang or group. `labels` are those of its first pod. Its first pod is of the
    object `whole`, of which it may be a part, and queues as the gang `unit`.
    """

    name: str
    namespace: str
    vc: str
    priority: int
    pods: tuple[str, ...]
    parts: tuple[Asking, ...] = ()
    user: str = ""
    created_s: float = _UNKNOWN_S
    refusal: str = ""
    is_incomplete: bool = False
    is_over_quota: bool = False
    reason: str = ""
    rules: str = ""
    limit_s: float | None = None
    grace_s: float = 0.0
    gang: str = ""
    preempts: bool = True
    owner: JobName | None = None
    wanted: int = 0
    labels: Mapping[str, str] = {}
    whole: JobName | None = None
    unit: JobName | None = None

    @property
    def requests(self) -> tuple[PodRequest, ...]:
        """Those of its parts."""
        return tuple(one.request for one in self.parts)

    @property
    def object(self) -> JobName | None:
        """The job object that it is of, or a part of; None for none."""
        return self.owner or self.whole


class RunningFacts(msgspec.Struct, frozen=True):
    """Facts of a group that has cells, beside those that the state has.

    `job` is the name of its job as `hived why` takes it; without `pods` the cells are held for some of it to come.
    `started_s` is when its first pod started, and `ends_s` when the group ends at the latest by its own declaration
    and, of a job in no queue, that of its job object: seconds since 1970, None if unknown. `job_ends_s` is the same by
    the object of a job in a queue, where its pods say nothing: forecasts do not count on it, as they do not know the
    jobs that wait in queues. It `may_move` if all of its owners
    allow that, or its virtual cluster does. Its pods have `grace_s` to leave; a group that `is_leaving` is gone at
    `leaves_s` at the latest. If others take its cells now, it is gone at `gone_s` at the latest, retries of refused
    evictions included; infinite if unknown.
    `lost_guarantee` says since when a guaranteed group is opportunistic, "" if it is not. `owner` and `wanted` are as
    in `WaitingEntry`. `members` are its `pods` as lists show them. `made_from` is as in `PodRecord`. A job on
    borrowed cells has the priority `lent_at` in its queue.
    """

    job: str
    namespace: str
    user: str = ""
    pods: tuple[str, ...] = ()
    started_s: float | None = None
    ends_s: float | None = None
    may_move: bool = False
    grace_s: float = 30.0
    is_leaving: bool = False
    leaves_s: float | None = None
    gone_s: float = math.inf
    lost_guarantee: str = ""
    job_ends_s: float | None = None
    owner: JobName | None = None
    wanted: int = 0
    members: tuple[PodView, ...] = ()
    labels: Mapping[str, str] = {}
    whole: JobName | None = None
    made_from: str = ""
    lent_at: int | None = None

    @property
    def declared_end_s(self) -> float | None:
        """Its latest end as its pods or its job object declare it."""
        return self.job_ends_s if self.ends_s is None else self.ends_s


class ClearedPod(msgspec.Struct, frozen=True):
    """A pod of a `job` that takes no cells, with its virtual cluster; kube-scheduler chooses its node.

    `created_s`, `owner` and `unit` are as in `WaitingEntry`; `reason` is why it waits, as kube-scheduler said.
    """

    view: PodView
    job: str
    namespace: str
    vc: str
    priority: int
    created_s: float = _UNKNOWN_S
    owner: JobName | None = None
    user: str = ""
    labels: Mapping[str, str] = {}
    whole: JobName | None = None
    reason: str = ""
    unit: JobName | None = None

    @property
    def pods(self) -> tuple[str]:
        """Itself, as other parts of jobs have their pods."""
        return (self.view.name,)

    @property
    def is_running(self) -> bool:
        """Has it a node?"""
        return bool(self.view.node)


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """A copy of the state, with the jobs that wait and run.

    `version` is another one for each change of the state; `at` is in seconds since 1970. `waiting` is in the order in
    which jobs are served: by priority, then by age. `running` is by group. `bad` has, for each configured node that
    cannot be used, why, and since when if that is known, and `bad_nodes` has it as the rules of Kubernetes see it.
    `access` decides which namespaces may use which virtual clusters, by `labels` of namespaces
    where it needs them. `jobs` has the groups with cells by the name of their job. `lost` has the groups of which
    pods were preempted lately, in the order of their numbers, and `ends` the pods that had cells and are gone lately in
    terms of this replica; `gone` has those of other terms, and those without cells, too.
    `resources` has the device resource of each leaf cell type that stands for devices. `cleared` are pods that take no
    cells.

    Whoever asks the core about `state` holds `lock`: its answers are tried there and taken back.
    """

    state: State
    version: tuple[int, int]
    at: float
    waiting: tuple[WaitingEntry, ...]
    running: Mapping[str, RunningFacts]
    bad: Mapping[str, tuple[str, float | None]]
    bad_nodes: Mapping[str, RuledNode]
    access: AccessRules
    labels: Mapping[str, Mapping[str, str]]
    jobs: Mapping[str, Sequence[str]]
    lost: Sequence[tuple[int, str]] = ()
    ends: Sequence[PodEnd] = ()
    resources: Mapping[str, str] = {}
    cleared: Sequence[ClearedPod] = ()
    gone: Sequence[PodEnd] = ()
    lock: threading.RLock = msgspec.field(default_factory=threading.RLock)

    def find(self, name: str) -> WaitingEntry | None:
        """The waiting job of this name, or that has a pod or a group of it; None if there is none."""
        for entry in self.waiting:
            if name == entry.name or name in entry.pods or any(name == one.spec.group.name for one in entry.requests):
                return entry
        return None

    def holds_cells_of(self, entry: WaitingEntry) -> bool:
        """Are cells held for the pods that a waiting job asks for?"""
        held = [name for name in self.jobs.get(entry.name, ()) if held_job(name) is not None]
        asked = sum(count_leaves(each.spec.group.members) for each in entry.requests)
        return 0 < asked <= sum(len(self.state.groups[name].physical) for name in held)


def take(service: Service) -> Snapshot:
    """The service as it is now.

    Raises NotLeadingError, and InvariantError if the service has stopped. Cost: O(cells) under the lock at once, then
    O(pods + slots x nodes) in slices.
    """
    service.check_leads()
    groups = _groups(service)
    with open_machine(service) as machine:
        core = machine.verbs.core
        core.before_victims()
        state, version = copy_state(core.state, groups=groups), (core.number, core.version)
        access, bad = machine.interpreter.rules.access, bad_nodes_of(machine, state)
        resources, movable = machine.interpreter.resources, machine.interpreter.rules.moving.movable
        nodes = {name: node for name in bad if (node := machine.cache.nodes.ruled(name)) is not None}
        records, lost, ends = list(machine.cache.pods), machine.tallies.lost, machine.tallies.ends
        plain, makers = list(machine.cache.plain), dict(machine.cache.jobs.makers)
        demoted = {
            name: _demoted(core, name)
            for name, group in state.groups.items()
            if group.virtual is None and group.spec.priority >= MIN_GUARANTEED_PRIORITY
        }
    pods = _look_at(service, records)
    waiting = pods.waiting()
    labels = {
        namespace: dict(machine.interpreter.labels_of(namespace))
        for namespace in sorted({entry.namespace for entry in waiting})
        if access.needs_labels
    }
    found = {group: RunningFacts(*job) for group in state.groups if (job := held_job(group)) is not None}
    for name, its_pods in pods.running.items():
        group = state.groups.get(name)
        is_movable = group is not None and group.spec.virtual_cluster in movable
        found[name] = _facts(its_pods, demoted.get(name, ""), is_movable=is_movable)
    return Snapshot(
        state,
        version,
        service.runner.wall_s,
        waiting,
        found,
        bad,
        nodes,
        access,
        labels,
        jobs_of(state, found),
        [(one.number, one.group) for one in lost],
        [one for one in ends if one.leaves and one.was_led],
        resources,
        [*(_plain(pod, makers) for pod in plain), *pods.cleared],
        ends,
    )


def own_pods(snapshot: Snapshot) -> dict[JobName | None, dict[str, int]]:
    """The jobs with cells of each job object, with the numbers of their pods. Cost O(groups)."""
    found: dict[JobName | None, dict[str, int]] = {}
    for facts in snapshot.running.values():
        if (whole := facts.owner or facts.whole) is not None and facts.pods:
            own = found.setdefault(whole, {})
            own[facts.job] = own.get(facts.job, 0) + len(facts.pods)
    return found


def wholes_of(snapshot: Snapshot) -> Mapping[JobName, Collection[str]]:
    """The jobs with cells of each object that made all of their pods; empty for any other. Cost O(groups)."""
    found = defaultdict[JobName, dict[str, None]](dict)
    for facts in snapshot.running.values():
        if facts.owner is not None and facts.pods:
            found[facts.owner][facts.job] = None
    return found


def has_troubles(service: Service) -> bool:
    """Is any cell bad, or has any group lost its guarantee? Cost O(cells + groups), under the lock."""
    with open_machine(service) as machine:
        state = machine.verbs.core.state
        return bool(state.cells.bad.any()) or any(
            group.virtual is None and group.spec.priority >= MIN_GUARANTEED_PRIORITY for group in state.groups.values()
        )


def with_limits(snapshot: Snapshot, runs_of: Runs, limit_of: LimitOf) -> Snapshot:
    """The same with what queues know of groups, and the limits that job objects declare.

    Cost O(groups + jobs that wait).

    runs_of : of jobs in queues: their limits count where the pods declare none, see `job_ends_s`
    limit_of : of any other job object: the least of its limit and of its pods' counts
    """
    runs, running = runs_of({facts.job for facts in snapshot.running.values()}), dict[str, RunningFacts]()
    for name, facts in snapshot.running.items():
        whole, run, ends_s, job_ends_s = facts.owner or facts.whole, runs.get(facts.job), facts.ends_s, facts.job_ends_s
        if run is not None and run.limit_s is not None:
            if ends_s is None:
                began_s = run.since_s if facts.started_s is None else max(run.since_s, facts.started_s)
                job_ends_s = began_s + run.limit_s + facts.grace_s
        elif whole is not None and facts.started_s is not None and (declared_s := limit_of(whole)) is not None:
            declared_end_s = facts.started_s + declared_s + facts.grace_s
            ends_s = declared_end_s if ends_s is None else min(ends_s, declared_end_s)
        lent_at = None if run is None else run.lent_at
        running[name] = replace(facts, ends_s=ends_s, job_ends_s=job_ends_s, lent_at=lent_at)
    waiting = tuple(_with_limit(entry, limit_of) for entry in snapshot.waiting)
    return replace(snapshot, running=running, waiting=waiting)


def _with_limit(entry: WaitingEntry, limit_of: LimitOf) -> WaitingEntry:
    declared_s = None if entry.object is None else limit_of(entry.object)
    if declared_s is None:
        return entry
    least_s = min(math.inf if entry.limit_s is None else entry.limit_s, declared_s + entry.grace_s)
    return replace(entry, limit_s=least_s)


def _groups(service: Service) -> dict[str, Group]:
    """Copies of the groups as they were a moment ago, so that only those that change meanwhile are copied at once."""
    with open_machine(service) as machine:
        names = list(machine.verbs.core.state.groups)
    found: dict[str, Group] = {}
    for first in range(0, len(names), AT_ONCE):
        time.sleep(0)  # let another waiter have the lock first
        with open_machine(service) as machine:
            state = machine.verbs.core.state
            found |= copy_groups(state, names[first : first + AT_ONCE])
    return found


def jobs_of(state: State, running: Mapping[str, RunningFacts]) -> dict[str, list[str]]:
    """The groups with cells by the name of their job; a group of which nothing else is known is its own job."""
    found: dict[str, list[str]] = {}
    for name in state.groups:
        facts = running.get(name)
        found.setdefault(facts.job if facts is not None else name, []).append(name)
    return found


class _Job(msgspec.Struct):
    """A waiting job whose pods are found one by one."""

    entry_of_first: WaitingEntry
    pods: list[str]
    created_s: float
    limits: list[float | None]
    owners: dict[JobName | None, None]

    def entry(self, *, is_apart: bool) -> WaitingEntry:
        """`is_apart`: it has the name of its first pod, as others of the job run, whose name is the job's."""
        first, limit_s = self.entry_of_first, last_of(self.limits)
        return replace(
            first, name=self.pods[0] if is_apart else first.name, pods=tuple(self.pods), created_s=self.created_s,
            limit_s=limit_s, owner=_only(self.owners),
        )  # fmt: skip


class _RunningPod(msgspec.Struct, frozen=True):
    record: PodRecord
    labels: Mapping[str, str]
    gone_s: float
    grace_s: float


class _Pods(msgspec.Struct):
    """Pods that have been looked at: those that wait by job, those with cells by group, and those without either."""

    jobs: dict[str, _Job] = msgspec.field(default_factory=dict)
    running: dict[str, list[_RunningPod]] = msgspec.field(default_factory=dict)
    cleared: list[ClearedPod] = msgspec.field(default_factory=list)

    def note(self, record: PodRecord, machine: Machine, at_s: float) -> int:
        """Note a pod with its job. Returns the looks at offers that it took: none but for the first pod of a job."""
        cache, looks = machine.cache, 0
        if record.state in (PodState.WAITING, PodState.HELD):
            looks = self._note_waiting(record, machine)
        elif record.is_in_core and record.request is not None and record.place.info is not None:
            preemptions = machine.preemptions
            gone_s, grace_s = preemptions.gone_by(record, at_s), preemptions.grace_s(record)
            one = _RunningPod(record, cache.nodes.labels_of(record), gone_s, grace_s)
            self.running.setdefault(record.request.spec.group.name, []).append(one)
        if record.state.is_placed and not record.is_in_core:
            self.cleared.append(_cleared(record, cache.nodes, machine.starts.refusal_for_now(record)))
        return looks

    def _note_waiting(self, record: PodRecord, machine: Machine) -> int:
        cache, looks = machine.cache, 0
        found = _asked(record, cache)
        if found is None:
            return looks
        entry, asked = found
        if record.is_queued:
            entry = replace(entry, name=record.job, gang=entry.gang and record.job)
        job = self.jobs.get(entry.name)
        if job is None or (asked is not None and not job.entry_of_first.requests):
            said = machine.announcements.said(record.uid)
            entry = replace(entry, user=record.user, reason=said, rules=cache.offers.refusals(record))
            entry = replace(entry, grace_s=record.seen.grace_s)
            entry = replace(entry, labels=cache.nodes.labels_of(record), whole=record.whole, unit=record.unit)
            entry = replace(entry, preempts=not machine.preemptions.never_preempts(record), wanted=record.wanted)
            if asked is not None and (over := machine.kept.over_quota(machine.verbs.core, record, asked)):
                entry, asked = replace(entry, refusal=over.reason, is_over_quota=True), None
            parts = [] if asked is None else cache.requests(record, asked)
            nodes = len(machine.verbs.core.state.topology.node_names)
            looks = sum(len(slots) for _, slots in parts) * (1 + nodes // NODES_OF_A_LOOK)
            job = self.jobs.setdefault(entry.name, _Job(entry, [], _UNKNOWN_S, [], {}))
            asking = [(Asked(request, offer=cache.offers.of(request, slots)), slots) for request, slots in parts]
            found_parts = tuple(cache.offers.asking(*one) for one in asking)
            job.entry_of_first = replace(entry, parts=found_parts)  # the others of its pods wait for these
        job.pods.append(record.key)
        job.created_s = min(job.created_s, _created_s(record))
        job.limits.append(limit_s_of(record))
        job.owners[record.owner] = None
        return looks

    def waiting(self) -> tuple[WaitingEntry, ...]:
        """Return the jobs that wait, in the order in which they are served."""
        started = {pods[0].record.job for pods in self.running.values() if pods[0].record.is_queued}
        return tuple(sorted((job.entry(is_apart=name in started) for name, job in self.jobs.items()), key=_turn))


def _look_at(service: Service, records: Sequence[PodRecord]) -> _Pods:
    """Look at pods, `AT_ONCE` under one hold of the lock. One that has gone meanwhile is left out."""
    found = _Pods()
    left = iter(records)
    record = next(left, None)
    while record is not None:
        time.sleep(0)  # let another waiter have the lock first
        with open_machine(service) as machine:
            looks, at_s = 0, service.runner.wall_s
            while record is not None and looks < AT_ONCE:
                looks += 1
                if machine.cache.pods.get(record.uid) is record:
                    looks += found.note(record, machine, at_s)
                record = next(left, None)
    return found


def bad_nodes_of(machine: Machine, state: State) -> dict[str, tuple[str, float | None]]:
    """The configured nodes that cannot be used, or not wholly: why, and since when. Under the lock."""
    names = state.topology.node_names
    bad = [names[node] for node in state.cells.node_bad.nonzero()[0]]
    return {name: why for name, why in troubles(machine.cache, bad).items() if name in state.topology.node_index}


@contextmanager
def open_machine(service: Service) -> Iterator[Machine]:
    """Hold the lock to read. Raises InvariantError if the service has stopped."""
    with service.runner.look() as machine:
        if service.runner.fault:
            raise InvariantError(f"stopped after an internal error: {service.runner.fault}")
        yield machine


def _asked(record: PodRecord, cache: ClusterCache) -> tuple[WaitingEntry, Round | PodRequest | None] | None:
    """The job of a waiting pod, without what is known of it beside, and the question that would start it, if any.

    None if the pod has just been placed. Cost O(1), but for the first pod of a gang that has changed.
    """
    if not record.is_of_dialect:
        return _own(record, cache)
    vc, priority = record.claim
    name = record.key if record.gang is None else f"podgroup/{record.gang}"
    refused = WaitingEntry(name, record.namespace, vc, priority, (), gang="" if record.gang is None else name)
    if record.state is PodState.HELD:
        return replace(refused, refusal=_held(record), is_incomplete=True), None
    try:
        step = cache.rounds.step(record)
    except UserError as error:
        return replace(refused, refusal=error.message), None
    if isinstance(step, Round):
        return replace(refused, name=step.name), step if step.parts else None
    if not isinstance(step, Alone):
        return replace(refused, refusal=step.reason, is_incomplete=True), None
    return None if step.request is None else (replace(refused, name=record.key), step.request)


def _held(record: PodRecord) -> str:
    """The owner of the gate that keeps kube-scheduler from asking about a pod."""
    return kueue.NOT_ADMITTED if record.seen.is_held_by_kueue else HELD


def _own(record: PodRecord, cache: ClusterCache) -> tuple[WaitingEntry, PodRequest | None] | None:
    """The same of a pod that asks in our own words, whose group starts pod by pod."""
    request = record.request
    if request is None:
        if record.reading is None or record.reading.is_pending:
            return None
        try:
            request = cache.bound.own_request(record, record.reading)
        except UserError as error:
            vc, priority = record.claim
            return WaitingEntry(record.key, record.namespace, vc, priority, (), refusal=error.message), None
    spec = request.spec
    entry = WaitingEntry(spec.group.name, record.namespace, spec.virtual_cluster, spec.priority, ())
    if record.state is PodState.HELD:
        return replace(entry, refusal=_held(record), is_incomplete=True), None
    return entry, request


def _created_s(record: PodRecord) -> float:
    created_s = seconds_of(record.seen.created)
    return _UNKNOWN_S if created_s is None else created_s


def _turn(entry: WaitingEntry) -> tuple[int, float, str]:
    return -entry.priority, entry.created_s, entry.name


def _demoted(core: Core, name: str) -> str:
    """Since when a group has no guarantee any more: `since version 7`, or a moment."""
    version, at = core.lazy_versions.get(name, 0), core.lazy_times.get(name, "")
    if not (version or at):
        return "since a preemption" if core.lazy_preemptor(name) is not None else "since hived started, or before"
    return f"since version {version}" if version else f"since {at}"


def _view(record: PodRecord) -> PodView:
    """A pod that has its cells, or may have a node."""
    seen = record.seen
    return PodView(
        name=record.key,
        state="Leaving" if seen.is_leaving else "Running" if seen.is_running else "Starting",
        node=record.place.node,
        since=rfc3339(record.progress.times.started_s),
    )


def _cleared(record: PodRecord, nodes: ClusterNodes, refusal: str) -> ClearedPod:
    """A pod without cells; `refusal` is why its gang does not start although it could, "" if it does."""
    view = _view(record)
    return ClearedPod(
        replace(view, state="Waiting") if refusal else view,
        record.job,
        record.namespace,
        *record.claim,
        _created_s(record),
        record.owner,
        record.user,
        nodes.labels_of(record),
        record.whole,
        refusal,
    )


def _plain(pod: PlainPod, makers: Mapping[JobName, JobName]) -> ClearedPod:
    """A pod that kube-scheduler places without us."""
    seen, named = pod.seen, pod.named
    state: Literal["Waiting", "Starting", "Running", "Leaving"] = "Starting" if pod.node else "Waiting"
    state = "Leaving" if seen.is_leaving else "Running" if seen.is_running else state
    since = pod.started if pod.node else ""
    owner = None if pod.owner is None else unit_of(pod.owner, makers)
    view = PodView(name=named.key, state=state, node=pod.node, since=since)
    created_s = seconds_of(seen.created)
    reason = HELD if seen.gates and not pod.node else f"kube-scheduler has no node for it: {pod.reason}"
    return ClearedPod(
        view,
        named.key,
        named.namespace,
        "",
        seen.priority,
        _UNKNOWN_S if created_s is None else created_s,
        owner,
        pod.user,
        pod.labels,
        owner,
        reason if seen.gates or pod.reason else NOT_TRIED,
        pod.unit,
    )


def _only(owners: Mapping[JobName | None, None]) -> JobName | None:
    """The job object of pods that are all of one."""
    return next(iter(owners)) if len(owners) == 1 else None


def _facts(pods: Sequence[_RunningPod], lost_guarantee: str, *, is_movable: bool) -> RunningFacts:
    records = [one.record for one in pods]
    first = records[0]
    started = [one.progress.times.started_s for one in records if one.progress.times.started_s is not None]
    leaves = [seconds_of(one.seen.leaves_at) for one in records]
    return RunningFacts(
        job=first.job,
        namespace=first.namespace,
        user=next((one.user for one in records if one.user), ""),
        pods=tuple(one.key for one in records),
        started_s=min(started, default=None),
        ends_s=last_of([ends_s_of(one) for one in records]),
        may_move=is_movable or all(one.progress.may_move for one in records),
        grace_s=max(one.grace_s for one in pods),
        is_leaving=all(one.seen.is_leaving for one in records),
        leaves_s=last_of(leaves),
        gone_s=max(one.gone_s for one in pods),
        lost_guarantee=lost_guarantee,
        owner=_only({one.owner: None for one in records}),
        wanted=max(one.wanted for one in records),
        members=tuple(map(_view, records)),
        labels=pods[0].labels,
        whole=first.whole,
        made_from=first.made_from,
    )
