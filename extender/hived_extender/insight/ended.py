"""The ledger of jobs that have ended: how, when, where, what they used, and when they were preempted before.

Three sources are put together, by the name of the job: ends of pods, which the machine numbers; job objects that have
ended or are gone; and jobs that queues have suspended for others. A job has a row from when it gets cells, and one that
never got any from its end. So a job that ends while no process of hived watches is known to a later one: its pods
that are still there say how they ended, and else its state is Unknown (rule 35.6).

Looks take a snapshot that others have made, outside of the machine's lock. Rows are kept in the file of the history.
"""

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal, Protocol, TypeGuard

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from hived.cells.topology import Topology
from hived.values.specs import PodRequest
from hived_extender.api.names import GANG, index, is_full
from hived_extender.api.waiting import KEPT_S, Ended, EndState, Job, Preempted, Used
from hived_extender.insight.listing import JobParts, listed, of_all_pods, parts_in, wanted_cells, without_pods
from hived_extender.insight.snapshot import RunningFacts, Snapshot
from hived_extender.insight.store import Seconds, Store
from hived_extender.jobs.job import JobName, JobRef, JobState
from hived_extender.jobs.kinds import gangs
from hived_extender.jobs.needs import JobEnd, JobLoss, SeenJob
from hived_extender.jobs.outcomes import PREEMPTED, EvictionName
from hived_extender.machine.certificates import asks_of, ended_sentence, rfc3339, today
from hived_extender.machine.counts import PodEnd

log = logging.getLogger(__name__)

DAY_S = 86_400.0
MOST = 10_000
"""Jobs that are kept for KEPT_S, the latest ones; some 500 bytes each in the file."""

NEWS_S = DAY_S
"""For so long a job that waits or runs again has news of cells that it lost, and one that is gone stays in the list."""

MOST_OPEN = 50_000
MOST_PODS, MOST_NODES, MOST_EVICTIONS, MOST_LIVE = 64, 32, 8, 256
"""Names of pods and nodes, evictions, and pods with cells, that a row has at the most."""

TOGETHER_S = 600.0
"""Pods of a job that leave within so many seconds leave together."""

SEEN_S = 30.0
"""Between two notes in the file of when its open rows were last true."""

HOUR_S = 3600.0

_TABLE = "CREATE TABLE IF NOT EXISTS ended_jobs (number INTEGER PRIMARY KEY, body BLOB NOT NULL)"
_DROP_OLD = "DROP TABLE IF EXISTS preempted"
_PUT = "INSERT OR REPLACE INTO ended_jobs (number, body) VALUES (?, ?)"
_READ = "SELECT number, body FROM ended_jobs ORDER BY number"
_DROP = "DELETE FROM ended_jobs WHERE number = ?"
_MOST_BODY = 1 << 18
_SEEN = 0
"""The number of the row that says until when the others were true."""

_Stored = tuple[Annotated[int, Meta(ge=0)], Annotated[bytes, Meta(max_length=_MOST_BODY)]]

_How = Literal["completed", "deleted", "evicted", "preempted", "failed"]
_RANK: tuple[_How, ...] = ("completed", "deleted", "evicted", "preempted", "failed")
_STATES: Mapping[_How, EndState] = {
    "completed": "Completed",
    "deleted": "Deleted",
    "evicted": "Evicted",
    "preempted": "Preempted",
    "failed": "Failed",
}
_SAYS: Mapping[str, tuple[_How, ...]] = {"Completed": ("completed",), "Failed": ("failed", "preempted", "evicted")}
"""The ends of pods that say something of how their object ended."""

COMES_BACK: tuple[EndState, ...] = ("Preempted", "Evicted", "Unknown")
"""States of a job without an object that goes on if pods of its name come again."""


_POD = "Pod/"
"""Queues name a lone pod with its kind, and the pods that leave for it do not."""


class Eviction(msgspec.Struct):
    """See `api.waiting.Preempted`. One that `is_whole` is of all pods, as the queue of the job has suspended it."""

    at_s: Seconds
    by: str = ""
    namespace: str = ""
    priority: int | None = None
    why: EvictionName = ""
    is_whole: bool = False

    def told(self) -> Preempted:
        """As answers have it."""
        return Preempted(
            at=rfc3339(self.at_s), by=self.by, namespace=self.namespace, priority=self.priority, why=self.why
        )


class Live(msgspec.Struct, frozen=True):
    """A pod that has `leaves` leaf cells on a node since `started_s`, None if unknown."""

    pod: str
    node: str
    leaves: int
    started_s: float | None = None


class Decided(msgspec.Struct, frozen=True):
    """The pod that decides how a job ended. One that was created from `left_s` on may be in its place."""

    how: _How
    ended_s: float
    pod: str
    node: str
    exit_code: int | None
    reason: str
    left_s: float = math.inf

    @property
    def says_why(self) -> bool:
        """False if only the object of its job may say why it ended."""
        return self.exit_code is not None or bool(self.reason)


class Row(msgspec.Struct):
    """A job that has, or had, cells, or that ended without. Moments in seconds since 1970.

    Attributes
    ----------
    number : grows with each row
    owner, uid : its object, None if it has none or several; its uid, "" until it is seen
    state : "" until it has ended
    end : state, moment and reason of its object, which has ended while pods of it are still there; None else
    leaf_s : leaf cells times seconds, of pods that have ended
    ran_s, from_s, until_s : seconds in which pods ran before `from_s`; the time since then without a gap
    running_s, waiting_s : since when pods of it run, or wait, as they come and go; None while none does. A gap between
        two looks is none
    live : by uid, pods that have cells
    decided, failed : the pod that decides without an object; the one that failed last
    is_earlier : it was written by an earlier process, and has not been seen since
    made_from : the uid of its record, if `hived submit` has made its pods; it goes on after failures as well
    retries : how often it was started again after a failure
    tried, has_failed : the pods of its present attempt that have ended, and whether one of them has failed
    latest_s : the latest creation of a pod of it that has ended
    """

    number: int
    name: str
    namespace: str = ""
    user: str = ""
    vc: str = ""
    priority: int = 0
    queue: str = ""
    asks: str = ""
    api_version: str = ""
    aliases: list[str] = []
    owner: JobName | None = None
    uid: str = ""
    created_s: float | None = None
    started_s: float | None = None
    state: EndState | Literal[""] = ""
    ended_s: float = 0.0
    reason: str = ""
    gpus: int = 0
    leaf_s: float = 0.0
    ran_s: float = 0.0
    from_s: float | None = None
    until_s: float = 0.0
    running_s: float | None = None
    waiting_s: float | None = None
    nodes: list[str] = []
    more_nodes: bool = False
    pods: list[str] = []
    live: dict[str, Live] = {}
    evictions: list[Eviction] = []
    eviction_count: int = 0
    decided: Decided | None = None
    failed: Decided | None = None
    end: tuple[EndState, float, str] | None = None
    is_earlier: bool = False
    made_from: str = ""
    retries: int = 0
    tried: list[str] = []
    has_failed: bool = False
    latest_s: float = 0.0

    def ran(self, first_s: float, last_s: float, leaves: int) -> None:
        """A pod with leaf cells ran so long (rule 35.5)."""
        self.leaf_s += leaves * max(last_s - first_s, 0.0)
        self.started_s = first_s if self.started_s is None else min(self.started_s, first_s)
        if self.from_s is None or first_s > self.until_s:
            self.ran_s += 0.0 if self.from_s is None else self.until_s - self.from_s
            self.from_s, self.until_s = first_s, last_s
        else:
            self.from_s, self.until_s = min(self.from_s, first_s), max(self.until_s, last_s)

    @property
    def last_s(self) -> float:
        """The moment at which its last pod ended."""
        decided_s = 0.0 if self.decided is None else self.decided.ended_s
        return max(decided_s, 0.0 if self.from_s is None else self.until_s)

    def on(self, *nodes: str) -> None:
        """It ran on these nodes."""
        for node in nodes:
            if node and node not in self.nodes:
                if len(self.nodes) < MOST_NODES:
                    self.nodes.append(node)
                else:
                    self.more_nodes = True

    def lost(self, found: Eviction, since_s: float | None = None) -> None:
        """It lost cells; together with others of it that were there before `since_s` and left a moment ago.

        Where a queue has suspended the whole job, its pods may take as long as their grace to end. A job that it
        suspends again has had cells again.
        """
        if found.is_whole:
            self.running_s = None
        last = self.evictions[-1] if self.evictions else None
        is_leaving = last is not None and last.is_whole and since_s is not None
        is_together = last is not None and (is_leaving or abs(found.at_s - last.at_s) <= TOGETHER_S)
        is_again = last is not None and last.is_whole and found.is_whole
        if last is not None and is_together and not is_again and (since_s is None or not _is_after(since_s, last.at_s)):
            last.why, last.is_whole = last.why or found.why, last.is_whole or found.is_whole
            if found.by and not last.by:
                last.by, last.namespace, last.priority = found.by, found.namespace, found.priority
            if last.priority is None and found.by.removeprefix(_POD) == last.by.removeprefix(_POD):
                last.priority = found.priority
            return
        self.eviction_count += 1
        self.evictions = [*self.evictions, found][-MOST_EVICTIONS:]

    def decide(self, found: Decided, created_s: float | None) -> None:
        """A pod has ended: it decides if it says more than others of its run, or is of a later one (rule 35.4)."""
        if found.how == "failed" and (self.failed is None or _is_later(created_s, self.failed)):
            self.failed = found
        known = self.decided
        if known is None or _is_later(created_s, known) or _RANK.index(found.how) > _RANK.index(known.how):
            self.decided = found

    def attempt(self, pod: str, how: _How) -> None:
        """A pod ended that a record makes anew: one of its name that had ended was of an earlier attempt.

        Creations have whole seconds, so moments do not tell attempts apart.
        """
        if pod in self.tried:
            self.retries += self.has_failed
            self.tried, self.has_failed, self.decided, self.failed = [], False, None, None
        if len(self.tried) < MOST_PODS:
            self.tried.append(pod)
        self.has_failed |= how == "failed"

    def close(self, state: EndState, at_s: float, reason: str = "") -> None:
        """It has ended: pods that nobody saw end ran until then."""
        for pod in self.live.values():
            if pod.started_s is not None:
                self.ran(pod.started_s, max(at_s, pod.started_s), pod.leaves)
        self.live, self.end, self.running_s, self.waiting_s = {}, None, None, None
        self.state, self.ended_s, self.reason, self.is_earlier = state, at_s, reason, False

    def open_again(self) -> None:
        """It goes on, as pods of it have come again."""
        self.state, self.ended_s = "", 0.0
        self.decided = self.decided if self.made_from else None

    def job(self, now_s: float) -> Job:
        """As answers have it."""
        decided = self.failed if self.state == "Failed" and self.failed is not None else self.decided
        if decided is not None and self.state in _SAYS and decided.how not in _SAYS[self.state]:
            decided = None
        exit_code = None if decided is None else decided.exit_code
        if exit_code is None and self.state == "Completed" and self.owner is not None and _needs_success(self.owner):
            exit_code = 0  # its last pod went before its status was seen
        gap_s = 0.0 if self.from_s is None else self.until_s - self.from_s
        ended = Ended(
            at=rfc3339(self.ended_s),
            created=rfc3339(self.created_s),
            started=rfc3339(self.started_s),
            exit_code=exit_code,
            reason=self.reason if decided is None or not decided.says_why else decided.reason,
            pod=decided.pod if decided is not None else "",
            node=decided.node if decided is not None else "",
            ran_s=round(self.ran_s + gap_s, 3),
            gpus=self.gpus,
            gpu_hours=round(self.leaf_s / HOUR_S, 3),
            evictions=[one.told() for one in self.evictions],
            eviction_count=self.eviction_count,
            more_nodes=self.more_nodes,
            is_bare=self.owner is None and not self.made_from and self.name in self.pods,
            attempts=self.retries + 1 if self.retries else 0,
        )
        lost = [one for one in self.evictions if one.why in PREEMPTED and one.at_s >= now_s - NEWS_S]
        preempted = lost[-1].told() if lost else None
        return Job(
            name=self.name,
            state=self.state or "Unknown",
            namespace=self.namespace,
            user=self.user,
            vc=self.vc,
            priority=self.priority if self.vc else None,
            asks=self.asks,
            pods=list(self.pods),
            nodes=list(self.nodes),
            since=ended.at,
            sentence=ended_sentence(self.state, ended, today(now_s), self.namespace),
            preempted=preempted,
            queue=self.queue,
            api_version=self.api_version,
            aliases=list(self.aliases),
            ended=ended,
        )


def _goes_on(row: Row | None, made_from: str) -> TypeGuard[Row]:
    """Does a job that has ended go on, as pods of it have come again, which were made from this record (rule 35.2)?"""
    if row is None:
        return False
    return (row.state in COMES_BACK and not row.uid) or _is_of(row, made_from)


def _is_of(row: Row, made_from: str) -> bool:
    return bool(made_from) and made_from == row.made_from


def _is_later(created_s: float | None, known: Decided) -> bool:
    """Was a pod created after another one ended? Only one that was told to leave may have a successor at once."""
    return created_s is not None and created_s >= known.left_s


def _is_after(created_s: float, at_s: float) -> bool:
    """Was a pod created once others were told to leave? Creations have whole seconds."""
    return created_s >= math.floor(at_s)


class EndedObjects(Protocol):
    """Job objects and queues, as far as the ledger needs them."""

    def object_of(self, name: JobName) -> SeenJob | None:
        """A job object; None if there is none."""

    def ends(self) -> Sequence[JobEnd]:
        """The latest job objects that have ended, or were deleted before, oldest first."""

    def losses(self) -> Sequence[JobLoss]:
        """The latest jobs that queues have suspended for others, oldest first."""

    def queue_of(self, job: JobRef) -> str:
        """The queue of a job, "" if it is in none."""

    @property
    def are_listed(self) -> bool:
        """True once all job objects are known."""


class EndedJobs:
    """The ledger. Thread-safe. A look asks others, which take the machine's lock for a moment, with its own lock held.

    So nothing that holds the machine's lock may ask the ledger.
    """

    def __init__(self, store: Store | None = None) -> None:
        """Without a store everything is forgotten at the end of the process."""
        self._store = store
        self._lock = threading.Lock()
        self._rows: dict[int, Row] | None = None  # by number; None until the file is read
        self._open: dict[str, Row] = {}  # by name
        self._last: dict[str, Row] = {}  # the latest row of each name that has ended
        self._named: Mapping[str, Row] | None = None
        self._number = 0
        self._learned = self._objects_learned = self._losses_learned = 0
        self._known_until_s = 0.0
        self._looked: tuple[int, int] = (-1, -1)
        self._shapes: dict[str, tuple[int, int]] = {}
        self._held: dict[str, list[tuple[float | None, int]]] = {}  # by name: starts and leaf cells of what runs
        self._seen_s = 0.0
        self._changed: dict[int, None] = {}
        self._dropped: list[int] = []
        self.objects: EndedObjects | None = None
        if store is not None:
            store.define(_TABLE, _DROP_OLD)

    # Looks

    def look(self, snapshot: Snapshot, parts: Sequence[JobParts] | None = None) -> None:
        """Learn from a snapshot of a service that leads: later than the last one, else nothing is new in it.

        Cost O(groups + ends since the last look), and that of writing the rows that have changed.
        """
        with self._lock:
            if snapshot.version < self._looked:
                return
            self._known()
            self._looked = snapshot.version
            living = {job.name: job for job in (parts_in(snapshot) if parts is None else parts)}
            self._learn_losses()
            spans = self._learn_pods(snapshot)
            self._held = {}
            self._learn_objects()
            for job in living.values():
                self._note_living(snapshot, job, spans.pop(job.name, []))
            for name, ran in spans.items():
                if (row := self._open.get(name)) is not None:
                    row.gpus = max(row.gpus, _most_at_once(ran))
            for row in list(self._open.values()):
                if row.name not in living:
                    self._note_since(row, (), ())
                    self._end(row, snapshot.at)
            self._bound(snapshot.at)
            self._write(snapshot.at)

    def unended(self) -> list[PodEnd]:
        """The pods that had cells when the file was written last: for `Tallies.await_ends`, before any watch begins."""
        with self._lock:
            return [
                PodEnd(
                    0,
                    one.pod,
                    row.name,
                    row.namespace,
                    "",
                    row.vc,
                    row.priority,
                    one.leaves,
                    one.started_s,
                    0.0,
                    user=row.user,
                    owner=row.owner,
                    uid=uid,
                    node=one.node,
                    made_from=row.made_from,
                )
                for row in self._known().values()
                for uid, one in row.live.items()
            ]

    def forget(self) -> None:
        """Another replica leads, and may write the file: it is read anew when this one leads again."""
        with self._lock:
            if self._store is not None and self._rows is not None:
                self._rows, self._named = None, None
            self._looked = (-1, -1)

    # Answers

    def jobs(self, now_s: float, since_s: float = 0.0) -> list[Job]:
        """The jobs that ended since a moment, the latest first. Cost O(jobs)."""
        with self._lock:
            rows = [row for row in self._known().values() if row.state and row.ended_s >= since_s]
            rows.sort(key=lambda row: (-row.ended_s, -row.number))
            return [row.job(now_s) for row in rows]

    def find(self, name: str, now_s: float) -> Job | None:
        """The latest job that ended of this name, or with a pod or part of it; None if there is none."""
        with self._lock:
            self._known()
            if self._named is None:
                latest = sorted(self._last.values(), key=lambda row: -row.ended_s)
                self._named = index([(row, (*row.pods, *row.aliases)) for row in latest])
            row = self._named.get(name)
            return None if row is None else row.job(now_s)

    def news(self, now_s: float) -> dict[str, Preempted]:
        """The latest preemption or eviction of each job that lost cells within NEWS_S, by name."""
        with self._lock:
            self._known()
            found: dict[str, Preempted] = {}
            for row in (*self._last.values(), *self._open.values()):
                for one in row.evictions:
                    if one.at_s >= now_s - NEWS_S and (row.state in ("", *COMES_BACK)):
                        found[row.name] = one.told()
            return found

    def since(self) -> dict[tuple[str, str], str]:
        """Since when jobs are in a state, Running or Waiting, by name and state: those that have, or had, cells."""
        with self._lock:
            self._known()
            moments = [
                ((row.name, state), at_s)
                for row in self._open.values()
                for state, at_s in (("Running", row.running_s), ("Waiting", row.waiting_s))
            ]
            return {key: rfc3339(at_s) for key, at_s in moments if at_s is not None}

    def used(self, now_s: float) -> dict[str, Used]:
        """The use of each job that has, or had, cells and has not ended, by name."""
        with self._lock:
            self._known()
            found = {}
            for row in self._open.values():
                held = self._held.get(row.name, ())
                leaf_s = row.leaf_s + sum(leaves * max(now_s - first, 0.0) for first, leaves in held if first)
                gpus = sum(leaves for _, leaves in held)
                found[row.name] = Used(gpus=gpus, gpu_hours=round(leaf_s / HOUR_S, 3), queue=row.queue)
            return found

    def preempted(self, now_s: float) -> list[Job]:
        """The jobs that ended as Preempted within NEWS_S, the latest first."""
        return [job for job in self.jobs(now_s, now_s - NEWS_S) if job.state == "Preempted"]

    # Learning

    def _learn_pods(self, snapshot: Snapshot) -> dict[str, list[tuple[float, float, int]]]:
        """Take in the ends of pods; returns when each ran, with its leaf cells, by job."""
        new = [one for one in snapshot.gone if one.number > self._learned]
        if new and self._learned and new[0].number > self._learned + 1:
            missed = new[0].number - self._learned - 1
            log.warning("ends of pods were missed: too many at once", extra={"fields": {"pods": missed}})
        spans: dict[str, list[tuple[float, float, int]]] = {}
        for one in sorted(new, key=lambda each: each.ended_s):
            if one.was_led or one.ended_s > self._known_until_s:
                self._pod_ended(one, _units(snapshot.state.topology, one.node), spans)
        self._learned = max((one.number for one in new), default=self._learned)
        return spans

    def _pod_ended(self, one: PodEnd, units: tuple[str, int], spans: dict[str, list[tuple[float, float, int]]]) -> None:
        row = self._row_of(_name_of(one), partial(_begun, end=one, units=units), one.created_s, one.made_from)
        row.live.pop(one.uid, None)
        row.user = row.user or one.user
        if one.pod not in row.pods and len(row.pods) < MOST_PODS:
            row.pods.append(one.pod)
        if one.created_s is not None:
            row.created_s = one.created_s if row.created_s is None else min(row.created_s, one.created_s)
        row.on(one.node)
        if one.started_s is not None:
            row.ran(one.started_s, one.ended_s, one.leaves)
            spans.setdefault(row.name, []).append((one.started_s, one.ended_s, one.leaves))
        if one.why and one.leaves:
            eviction = Eviction(one.left_s, one.by, one.by_namespace, one.by_priority, one.why)
            row.lost(eviction, one.created_s)
        outcome = one.outcome
        reason = outcome.reason or ("" if one.why in ("", *PREEMPTED) else one.why)
        row.latest_s = max(row.latest_s, one.created_s or 0.0)
        how, exit_code = _how(one, row), outcome.exit_code
        decided = Decided(how, one.ended_s, one.pod, one.node, exit_code, reason, one.left_s)
        if row.made_from:
            row.attempt(one.pod, decided.how)
        row.decide(decided, one.created_s)
        self._note(row)

    def _learn_objects(self) -> None:
        """Job objects that have ended, or were deleted; those without a row never ran."""
        for one in self.objects.ends() if self.objects is not None else ():
            if one.number <= self._objects_learned:
                continue
            self._objects_learned = one.number
            name = str(one.seen.job.ref)
            is_known = name in self._open or one.seen.is_ours or one.seen.names_us
            if one.seen.job.ref.kind == gangs.KIND or not is_known:
                continue
            row = self._row_of(name, partial(_begun_by, seen=one.seen))
            self._know_object(row, one.seen)
            row.queue = row.queue or one.queue
            row.end = _end_of(one.seen, one.at_s)

    def _learn_losses(self) -> None:
        """Jobs that queues have suspended for others."""
        for one in self.objects.losses() if self.objects is not None else ():
            if one.number <= self._losses_learned:
                continue
            self._losses_learned = one.number
            if one.job.kind == gangs.KIND:
                continue  # its pods say it: hived ends them itself
            row = self._row_of(str(one.job), partial(_begun_before, loss=one), one.at_s)
            row.lost(Eviction(one.at_s, one.by, one.namespace, one.priority, one.why, is_whole=True))
            self._note(row)

    def _note_living(self, snapshot: Snapshot, job: JobParts, spans: list[tuple[float, float, int]]) -> None:
        """A job that waits or runs: one with cells has a row."""
        row, last = self._open.get(job.name), self._last.get(job.name)
        owner = job.owners[0] if len(job.owners) == 1 else None
        seen = self._object_of(job.name, owner)
        if row is not None and row.end is not None and seen is not None and seen.job.ref.uid != row.uid:
            self._close(row, *row.end)  # this is another job of its name
            row = None
        facts = [(name, snapshot.running[name]) for name in job.groups if snapshot.running[name].pods]
        made_from = facts[0][1].made_from if facts else ""
        if row is None and _goes_on(last, made_from):
            self._open_again(last)
            row = last
        held = [(one.started_s, snapshot.at, len(snapshot.state.groups[name].physical)) for name, one in facts]
        self._held[job.name] = [
            (one.started_s, sum(pod is not None for pod in snapshot.state.groups[name].holders)) for name, one in facts
        ]
        shape = len(facts), sum(len(one.pods) for _, one in facts)
        if row is not None and row.is_earlier:
            row.is_earlier, self._shapes[job.name] = False, (-1, -1)
        if row is not None:
            known = [(first, last_s, leaves) for first, last_s, leaves in held if first is not None]
            row.gpus = max(row.gpus, sum(leaves for _, _, leaves in held), _most_at_once([*spans, *known]))
        starts = [one.started_s for _, one in facts if one.started_s is not None]
        waits = [entry.created_s for entry in job.waiting if math.isfinite(entry.created_s)]
        if row is not None:
            if owner is None and not row.live and not _is_of(row, made_from):
                row.running_s = None  # its pods have ended, and others of its name run by now
            self._note_since(row, starts, waits)
        is_dated = row is not None and row.started_s is None and bool(starts)
        if not facts or (row is not None and self._shapes.get(job.name) == shape and not is_dated):
            return
        if row is None:
            row = self._row_of(job.name, lambda number: Row(number, job.name))
            row.gpus = max(sum(leaves for _, _, leaves in held), _most_at_once(spans))
        self._shapes[job.name] = shape
        with_cells = JobParts(job.name, job.owners, job.parts, [], job.groups, job.cleared)
        found = listed(snapshot, with_cells, seen=seen).job
        row.owner, row.namespace, row.vc, row.made_from = owner, found.namespace, found.vc, made_from
        row.priority, row.user = found.priority or 0, found.user or row.user
        row.asks = _asks(snapshot, job, found, seen) or row.asks
        row.aliases = list(found.aliases[:MOST_PODS])
        row.pods = list(dict.fromkeys((*row.pods, *found.pods)))[:MOST_PODS]
        row.on(*found.nodes)
        if seen is not None and owner is not None:
            self._know_object(row, seen)
        elif seen is not None and self.objects is not None:
            row.queue = self.objects.queue_of(seen.job.ref)
        if starts:
            row.started_s = min([*starts, *([] if row.started_s is None else [row.started_s])])
        row.live = dict(_live(snapshot, facts))
        self._note_since(row, starts, waits)
        self._note(row)

    def _note_since(self, row: Row, starts: Sequence[float], waits: Sequence[float]) -> None:
        """Pods of a job run that started then, and wait that were created then: since when does it?"""
        found = _since(row.running_s, starts), _since(row.waiting_s, waits)
        if found != (row.running_s, row.waiting_s):
            row.running_s, row.waiting_s = found
            self._note(row)

    def _object_of(self, name: str, owner: JobName | None) -> SeenJob | None:
        """The object of a job; a gang in a queue has none, and is read as if it had."""
        if self.objects is None:
            return None
        kind, _, where = name.partition("/")
        if owner is None and is_full(name) and kind in (gangs.KIND, GANG[:-1]):
            namespace, _, short = where.partition("/")
            owner = JobName("", gangs.KIND, namespace, short)
        return None if owner is None else self.objects.object_of(owner)

    def _know_object(self, row: Row, seen: SeenJob) -> None:
        ref = seen.job.ref
        row.owner, row.uid, row.api_version, row.created_s = ref.job_name, ref.uid, ref.api_version, seen.job.created_s
        if seen.need is not None:  # one that borrows runs at another priority
            row.vc, row.priority = seen.need.spec.virtual_cluster, seen.need.spec.priority
        if self.objects is not None:
            row.queue = self.objects.queue_of(ref) or row.queue

    # Ends

    def _end(self, row: Row, now_s: float) -> None:
        """Has a job ended that has no pods any more (rules 35.1, 35.2)?"""
        if row.end is not None:
            if row.live and self._shapes.pop(row.name, None) is not None:
                return  # its last ends come with the next look
            self._close(row, *row.end)
            return
        objects, seen = self.objects, self._object_of(row.name, row.owner)
        is_over = seen is not None and seen.job.state.is_over
        if seen is not None and row.uid in ("", seen.job.ref.uid) and (row.owner is not None or not is_over):
            if is_over:
                row.end = _end_of(seen, now_s)
                self._close(row, *row.end)
            else:
                row.is_earlier = False
            return
        if row.is_earlier and row.uid and objects is not None and not objects.are_listed:
            return
        if row.is_earlier and row.live:  # nobody saw its last pods end
            self._close(row, "Unknown", max(self._seen_s, row.until_s))
        elif row.live and self._shapes.pop(row.name, None) is not None:
            return  # its last ends come with the next look
        elif row.decided is None:
            self._close(row, "Unknown" if row.is_earlier else "Deleted", now_s)
        elif row.uid:  # its object is gone, and had not ended
            self._close(row, "Unknown" if row.is_earlier else "Deleted", row.last_s)
        else:
            self._close(row, _STATES[row.decided.how], row.last_s)

    def _close(self, row: Row, state: EndState, at_s: float, reason: str = "") -> None:
        row.close(state, at_s, reason)
        self._open.pop(row.name, None)
        self._shapes.pop(row.name, None)
        self._last.pop(row.name, None)
        self._last[row.name] = row
        self._named = None
        self._note(row)

    def _open_again(self, row: Row) -> None:
        row.open_again()
        self._last.pop(row.name, None)
        self._open[row.name] = row
        self._named = None
        self._note(row)

    def _row_of(
        self, name: str, begin: Callable[[int], Row], created_s: float | None = None, made_from: str = ""
    ) -> Row:
        """The row of a job: that of one that has ended, for a pod of it that was created before and ends later."""
        row, last = self._open.get(name), self._last.get(name)
        is_before = last is not None and created_s is not None and created_s < last.ended_s
        if row is None and last is not None and is_before and not _is_of(last, made_from):
            self._named = None
            return last
        if row is None and created_s is not None and _goes_on(last, made_from):
            self._open_again(last)  # it ran again, and has ended, since the last look
            return last
        if row is None:
            self._number += 1
            row = self._open[name] = self._known()[self._number] = begin(self._number)
            self._note(row)
        return row

    # The file

    def _note(self, row: Row) -> None:
        self._changed[row.number] = None

    def _known(self) -> dict[int, Row]:
        if self._rows is None:
            self._rows, self._open, self._last, self._named = {}, {}, {}, None
            stored = [] if self._store is None else self._store.read(_READ, _Stored)
            for row in _read(stored):
                if isinstance(row, float):
                    self._seen_s = row
                    continue
                self._rows[row.number] = row
                row.is_earlier = not row.state
                (self._last if row.state else self._open)[row.name] = row
            self._number = max((number for number, _ in stored), default=0)
            self._known_until_s = self._seen_s
        return self._rows

    def _bound(self, now_s: float) -> None:
        """Forget jobs that ended long ago, or the first ones of too many."""
        rows = self._known()
        ended = sorted((row for row in rows.values() if row.state), key=lambda row: (row.ended_s, row.number))
        over = max(len(ended) - MOST, 0)
        still = list(self._open.values())
        for row in [
            *ended[:over],
            *(row for row in ended[over:] if row.ended_s < now_s - KEPT_S),
            *still[: max(len(still) - MOST_OPEN, 0)],
        ]:
            del rows[row.number]
            self._named = None
            for names in (self._last, self._open):
                if names.get(row.name) is row:
                    del names[row.name]
            self._changed.pop(row.number, None)
            self._dropped.append(row.number)

    def _write(self, now_s: float) -> None:
        """Write what has changed; what cannot be written now is tried again with the next change."""
        if self._store is None:
            self._changed.clear()
            self._dropped.clear()
            return
        rows = self._known()
        bodies = [(number, msgspec.msgpack.encode(rows[number])) for number in self._changed]
        if bodies or now_s >= self._seen_s + SEEN_S:
            self._seen_s = now_s
            bodies.append((_SEEN, msgspec.msgpack.encode(now_s)))
            if self._store.write(_PUT, bodies):
                self._changed.clear()
        if self._dropped and self._store.write(_DROP, [(number,) for number in self._dropped]):
            self._dropped.clear()


def _needs_success(owner: JobName) -> bool:
    """Is a job of this kind complete only once its pods have succeeded?"""
    return (owner.group, owner.kind) == ("batch", "Job")


def _since(known_s: float | None, moments: Sequence[float]) -> float | None:
    """The first of these moments and the one that is known; None if there are none any more."""
    return min([*moments, *([] if known_s is None else [known_s])]) if moments else None


def _name_of(one: PodEnd) -> str:
    return one.job if one.owner is None else str(one.owner)


def _how(one: PodEnd, row: Row) -> _How:
    """Return how a pod ended (rule 35.4).

    The pods of a job that a queue suspends are deleted by its controller. Where pods have come since others were
    preempted, the job went on.
    """
    last = row.evictions[-1] if row.evictions else None
    is_suspended = last is not None and last.why in PREEMPTED and one.created_s is not None
    is_left = last is not None and last.at_s <= one.ended_s + TOGETHER_S and not _is_after(row.latest_s, last.at_s)
    if one.why in PREEMPTED or (one.is_deleted and is_suspended and is_left):
        return "preempted"
    if one.why and not one.outcome.has_succeeded:
        return "evicted"
    if one.is_deleted:
        return "deleted"
    return "failed" if one.outcome.has_failed else "completed"


def _end_of(seen: SeenJob, now_s: float) -> tuple[EndState, float, str]:
    """State, moment and reason of a job object that has ended, or is gone."""
    job = seen.job
    at_s = now_s if job.end_s is None else job.end_s
    if job.state is JobState.SUCCEEDED:
        return "Completed", at_s, ""
    return ("Failed", at_s, job.end_reason) if job.state is JobState.FAILED else ("Deleted", now_s, "")


def _units(topology: Topology, node: str) -> tuple[str, int]:
    """The leaf cell type of a node, and how many it has; of an unknown one if all have the same, else "" and 0."""
    index = topology.node_index.get(node)
    if index is None:
        found = {(one.types[0], one.leaf_count(one.node_level)) for one in topology.chains}
        return next(iter(found)) if len(found) == 1 else ("", 0)
    chain = topology.chain_of(int(topology.leaves_of(index)[0]))
    return chain.types[0], chain.leaf_count(chain.node_level)


def _begun(number: int, end: PodEnd, units: tuple[str, int]) -> Row:
    asks = "" if end.request is None else asks_of([end.request], *units)
    return Row(
        number,
        _name_of(end),
        end.namespace,
        end.user,
        end.vc,
        end.priority,
        asks=asks,
        created_s=end.created_s,
        aliases=[end.job] if end.owner is not None and end.job not in (end.pod, str(end.owner)) else [],
        owner=end.owner,
        made_from=end.made_from,
    )


def _asks(snapshot: Snapshot, job: JobParts, found: Job, seen: SeenJob | None) -> str:
    """The size of a job that has cells, in the words for one that waits; of one whose pods start apart, all of them."""
    whole = listed(snapshot, job, seen=seen).job
    groups = [snapshot.state.groups[name] for name in job.groups if snapshot.running[name].pods]
    requests = [next((pod for pod in group.holders if pod is not None), None) for group in groups]
    known = [one for one in requests if one is not None]
    units = _units(snapshot.state.topology, found.nodes[0] if found.nodes else "")
    known = of_all_pods(known, wanted_cells(whole, job, seen)) if whole.is_elastic else known
    return asks_of(known, *units, is_gang=not whole.is_elastic) if known else found.asks


def _begun_by(number: int, seen: SeenJob) -> Row:
    job = without_pods(replace(seen, job=replace(seen.job, state=JobState.HELD))).job
    return Row(number, job.name, job.namespace, job.user, job.vc, job.priority or 0, asks=job.asks)


def _begun_before(number: int, loss: JobLoss) -> Row:
    """A job that had cells and lost them, all since the last look."""
    return Row(number, str(loss.job), loss.job.namespace, owner=loss.job.job_name, api_version=loss.job.api_version)


def _live(snapshot: Snapshot, facts: Collection[tuple[str, RunningFacts]]) -> Iterator[tuple[str, Live]]:
    """The pods of some groups, by uid; MOST_LIVE of them."""
    count = 0
    for name, one in facts:
        group, started_s = snapshot.state.groups[name], one.started_s
        pods: dict[str, PodRequest] = {pod.uid: pod for pod in group.holders if pod is not None}
        for uid, pod in pods.items():
            if count < MOST_LIVE:
                yield uid, Live(f"{pod.namespace}/{pod.name}", "", pod.spec.leaf_cell_count, started_s)
            count += 1


def _most_at_once(spans: Iterable[tuple[float, float, int]]) -> int:
    """The most leaf cells that were in use at one time. Kubernetes has starts in whole seconds, rounded down."""
    changes: list[tuple[float, int]] = []
    most = now = 0
    for first, last, leaves in spans:
        most = max(most, leaves)
        changes += ((first + 1.0, leaves), (last, -leaves)) if first + 1.0 < last else ()
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _read(stored: Iterable[tuple[int, bytes]]) -> Iterator[Row | float]:
    """Rows that another program wrote, and that are no rows of ours, are skipped."""
    for number, body in stored:
        try:
            if number == _SEEN:
                yield msgspec.msgpack.decode(body, type=Seconds)
            elif (row := msgspec.msgpack.decode(body, type=Row)).number == number:
                yield row
        except msgspec.DecodeError:
            continue
