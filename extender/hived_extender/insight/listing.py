"""Jobs and nodes of a snapshot, as lists for people; and jobs that were preempted lately.

The service says which pods had to leave. They are put together as jobs, with the time and the job that they left for,
so that their owners find out after the pods are gone. They are kept for a day, and in the file of the history where
there is one. A job that waits or runs again keeps the news for as long.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from hived.cells.state import CellState, Group, GroupState
from hived.cells.topology import NO_CELL, LongArray
from hived.scenario import nodes_of
from hived.values.specs import PodRequest
from hived_extender.api.waiting import BadNode, Certificate, Job, LeafCounts, NodeView, Preempted, When
from hived_extender.insight.snapshot import RunningFacts, Snapshot, WaitingEntry
from hived_extender.insight.store import Seconds, Store
from hived_extender.machine.certificates import asks_of, counted, preempted_sentence, rfc3339, running_sentence, today
from hived_extender.machine.counts import PodEnd
from hived_extender.machine.devices.keeper import SHORT

KEPT_S = 86_400.0
MOST = 500
"""Jobs that are kept, the latest ones."""

MOST_PODS = 256
"""Pods of a job that are kept by name."""

TOGETHER_S = 600.0
"""Pods of a job that leave within so many seconds leave together."""

_TABLE = "CREATE TABLE IF NOT EXISTS preempted (job TEXT PRIMARY KEY, at_s REAL NOT NULL, body BLOB NOT NULL)"
_PUT = "INSERT OR REPLACE INTO preempted (job, at_s, body) VALUES (?, ?, ?)"
_READ = "SELECT at_s, body FROM preempted ORDER BY at_s, job"
_DROP = "DELETE FROM preempted WHERE at_s < ?"
_MOST_BODY = 1 << 20

_Row = tuple[Seconds, Annotated[bytes, Meta(max_length=_MOST_BODY)]]


class PreemptedJob(msgspec.Struct, frozen=True):
    """A job of which all or some pods had to leave, from `at_s` on, for the job `by`; "" if unknown.

    Moments are in seconds since 1970. `leaves` and `pods` are those that have left.
    """

    job: str
    namespace: str
    user: str
    vc: str
    priority: int
    leaves: int
    pods: tuple[str, ...]
    at_s: Seconds
    by: str = ""
    by_namespace: str = ""


class PreemptedJobs:
    """The jobs that were preempted lately, by name. Thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self._store = store
        self._lock = threading.Lock()
        self._jobs: dict[str, PreemptedJob] | None = None  # by name, the latest one last
        self._learned = 0
        if store is not None:
            store.define(_TABLE)

    def learn(self, ends: Sequence[PodEnd]) -> None:
        """The pods that were preempted lately, of a service that leads; earlier ones may be among them."""
        with self._lock:
            jobs = self._known()
            changed: dict[str, None] = {}
            for one in ends:
                if one.number > self._learned and one.is_preempted:
                    self._learned = one.number
                    jobs[one.job] = _with(jobs.pop(one.job, None), one)
                    changed[one.job] = None
            if self._store is not None and changed:
                rows = [(jobs[job].job, jobs[job].at_s, msgspec.msgpack.encode(jobs[job])) for job in changed]
                self._store.write(_PUT, rows)
                self._store.write(_DROP, [(max(one.at_s for one in jobs.values()) - KEPT_S,)])
            while len(jobs) > MOST:
                del jobs[next(iter(jobs))]

    def latest(self, at_s: float) -> list[PreemptedJob]:
        """The jobs that were preempted within KEPT_S before `at_s`, the latest one first."""
        with self._lock:
            return [one for one in reversed(self._known().values()) if one.at_s >= at_s - KEPT_S]

    def forget(self) -> None:
        """Another replica leads, and writes the file: it is read anew when this one leads again."""
        with self._lock:
            self._jobs, self._learned = None, 0

    def _known(self) -> dict[str, PreemptedJob]:
        if self._jobs is None:
            rows = [] if self._store is None else self._store.read(_READ, _Row)
            self._jobs = {one.job: one for one in _read(body for _, body in rows[-MOST:])}
        return self._jobs


def _with(known: PreemptedJob | None, one: PodEnd) -> PreemptedJob:
    """A job with a pod that had to leave; not with those that left long before."""
    if known is None or one.ended_s - known.at_s > TOGETHER_S:
        return PreemptedJob(
            one.job, one.namespace, one.user, one.vc, one.priority, one.leaves, (one.pod,), one.ended_s, one.by,
            one.by_namespace,
        )  # fmt: skip
    if one.pod in known.pods:
        return known
    pods = (*known.pods, one.pod)[:MOST_PODS]
    return replace(known, leaves=known.leaves + one.leaves, pods=pods)


def _read(bodies: Iterable[bytes]) -> Iterable[PreemptedJob]:
    """Rows that another program wrote, and that are no rows of ours, are skipped."""
    for body in bodies:
        try:
            yield msgspec.msgpack.decode(body, type=PreemptedJob)
        except msgspec.DecodeError:
            continue


JobState = Literal["Waiting", "Preempting", "Starting", "Running", "Leaving", "Preempted"]


class ListedJob(msgspec.Struct, frozen=True):
    """A job with the namespace that decides who may see it, and the groups by which the core knows it."""

    job: Job
    namespace: str
    groups: tuple[str, ...] = ()


def waiting_job(snapshot: Snapshot, entry: WaitingEntry, found: Certificate, when: When | None = None) -> ListedJob:
    """A job that waits, for the cause of its certificate."""
    groups = tuple(request.spec.group.name for request in entry.requests)
    state = snapshot.state
    reserved = [state.groups[name] for name in groups if name in state.groups]
    is_preempting = any(group.state is GroupState.PREEMPTING for group in reserved)
    job = Job(
        name=entry.name,
        state="Preempting" if is_preempting else "Waiting",
        namespace=entry.namespace,
        user=entry.user,
        vc=entry.vc,
        priority=entry.priority,
        asks=found.asks,
        pods=list(entry.pods),
        nodes=_nodes(snapshot, reserved),
        since="" if entry.created_s == float("inf") else rfc3339(entry.created_s),
        cause=found.cause,
        sentence=found.sentence,
        when=when,
    )
    return ListedJob(job, entry.namespace, groups)


def running_jobs(snapshot: Snapshot) -> list[ListedJob]:
    """The jobs that have cells, by name; the groups of one gang are one job. Cost O(groups + pods)."""
    by_job: dict[str, list[str]] = {}
    waiting = {entry.name for entry in snapshot.waiting}
    for group in sorted(snapshot.running):
        facts = snapshot.running[group]
        if group in snapshot.state.groups and (facts.pods or facts.job not in waiting):
            by_job.setdefault(facts.job, []).append(group)
    return [_running(snapshot, job, groups) for job, groups in sorted(by_job.items())]


def with_preempted(jobs: Sequence[ListedJob], preempted: Sequence[PreemptedJob], at_s: float) -> list[ListedJob]:
    """The jobs with the news that they were preempted, and after them the preempted ones that are gone."""
    left = {one.job: one for one in preempted}
    found = []
    for one in jobs:
        news = left.pop(one.job.name, None)
        job = one.job if news is None else replace(one.job, preempted=_told(news))
        found.append(ListedJob(job, one.namespace, one.groups))
    return [*found, *(_gone(gone, at_s) for gone in left.values())]


def _gone(one: PreemptedJob, at_s: float) -> ListedJob:
    told = _told(one)
    job = Job(
        name=one.job,
        state="Preempted",
        namespace=one.namespace,
        user=one.user,
        vc=one.vc,
        priority=one.priority,
        asks=counted(one.leaves, "leaf cell"),
        pods=list(one.pods),
        since=told.at,
        sentence=preempted_sentence(told, today(at_s), one.namespace),
        preempted=told,
    )
    return ListedJob(job, one.namespace)


def _told(one: PreemptedJob) -> Preempted:
    return Preempted(at=rfc3339(one.at_s), by=one.by, namespace=one.by_namespace)


def _running(snapshot: Snapshot, name: str, groups: Sequence[str]) -> ListedJob:
    facts = [snapshot.running[group] for group in groups]
    held = [snapshot.state.groups[group] for group in groups]
    requests = [pod for group in held for pod in group.holders if pod is not None]
    chain = _leaf_type(snapshot, held)
    starts = [one.started_s for one in facts if one.started_s is not None]
    job = Job(
        name=name,
        state=_state(facts),
        namespace=facts[0].namespace,
        user=next((one.user for one in facts if one.user), ""),
        vc=held[0].spec.virtual_cluster,
        priority=held[0].priority,
        asks=asks_of(_one_of_each_group(requests), chain) if requests else "",
        pods=[pod for one in facts for pod in one.pods],
        nodes=_nodes(snapshot, held),
        since=rfc3339(min(starts, default=None)),
    )
    bad = _bad_nodes(snapshot, held)
    lost = next((one.lost_guarantee for one in facts if one.lost_guarantee), "")
    job = replace(job, bad_nodes=bad, demoted=lost, sentence=running_sentence(bad, lost, today(snapshot.at)))
    return ListedJob(job, facts[0].namespace, tuple(groups))


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


def _leaf_type(snapshot: Snapshot, groups: Iterable[Group]) -> str:
    topology = snapshot.state.topology
    for group in groups:
        held = group.physical[group.physical != NO_CELL]
        if len(held):
            return topology.chain_of(int(held[0])).types[0]
    return ""


def _nodes(snapshot: Snapshot, groups: Iterable[Group]) -> list[str]:
    state = snapshot.state
    nodes = nodes_of(state, (group.name for group in groups))
    return [state.topology.node_names[node] for node in np.flatnonzero(nodes).tolist()]


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
    jobs = _jobs_by_node(snapshot)
    is_chosen = (cells.node_bad != 0) | counts[:, :, 2].any(axis=1)
    chosen = np.flatnonzero(is_chosen) if is_bad else range(shape[0])
    return [_node(snapshot, int(index), types, counts[index], jobs.get(int(index), {})) for index in chosen]


def _node(
    snapshot: Snapshot, index: int, types: Sequence[str], counts: LongArray, jobs: Mapping[str, None]
) -> NodeView:
    """`counts` are of the leaf cells of each type: all, free, lost."""
    name = snapshot.state.topology.node_names[index]
    is_bad = bool(snapshot.state.cells.node_bad[index])
    total, free, lost = counts.sum(axis=0).tolist()
    own = {each: LeafCounts(*of_type) for each, of_type in zip(types, counts.tolist(), strict=True) if of_type[0]}
    reason, since_s = snapshot.bad.get(name, ("", None)) if is_bad else ((SHORT, None) if lost else ("", None))
    return NodeView(
        node=name, is_bad=is_bad, reason=reason, since=rfc3339(since_s), cells=total, free=free, lost=lost,
        by_type=own if len(own) > 1 else {}, groups=list(jobs),
    )  # fmt: skip


def _jobs_by_node(snapshot: Snapshot) -> dict[int, dict[str, None]]:
    """The names of the jobs on each node, each once."""
    found: dict[int, dict[str, None]] = {}
    arrays = snapshot.state.topology.arrays
    for name in sorted(snapshot.running):
        group = snapshot.state.groups.get(name)
        if group is None:
            continue
        held = group.physical[group.physical != NO_CELL]
        for node in set(arrays.node[held].tolist()):
            found.setdefault(node, {})[snapshot.running[name].job] = None
    return found
