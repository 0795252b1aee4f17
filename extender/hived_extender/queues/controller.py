"""The shell of the queues: follows jobs, has turns taken, resumes and suspends jobs, publishes what became of them.

One thread takes the turns. Watches hand facts over and wake it; calls on jobs are made on other threads and come back
as facts. Every replica follows jobs; only the one that leads takes turns.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from hived.values.errors import InvariantError, UserError
from hived.values.specs import ClusterSpec
from hived_config.rules import Queueing
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.job import Job, JobName, JobRef, JobState
from hived_extender.jobs.kinds import gangs, gates, table
from hived_extender.jobs.kinds import gangs as gang_kind
from hived_extender.jobs.kinds.kind import Verb, Write
from hived_extender.jobs.kinds.marks import is_marked_held
from hived_extender.jobs.needs import Need, need_of
from hived_extender.jobs.quotas.backing import leaf_warnings
from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import Backoff, wall_s
from hived_extender.kube.events import WARNING, EventRecorder, PodRef
from hived_extender.kube.metrics import Metrics, QueueGauges
from hived_extender.kube.watch import Object, OptionalKinds
from hived_extender.machine.claims import Lent
from hived_extender.machine.pods import PodName
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import Claimed, Hold, JobsMade, QuotasFollowed
from hived_extender.machine.writes.writer import COMPONENT
from hived_extender.queues.announcing import JobEvents
from hived_extender.queues.own_schedule import Learned
from hived_extender.queues.publishing import KINDS as OBJECT_KINDS
from hived_extender.queues.publishing import Publisher
from hived_extender.queues.queued_jobs import Action, Change, JobRecord, QueuedJobs
from hived_extender.queues.table import Kept, Life, read_kept, written
from hived_extender.queues.turns import Shared, Turns
from hived_extender.queues.units import OtherUse
from hived_extender.queues.watched import (
    CLASSES,
    OTHER_NAMESPACE,
    TREES,
    QueueItem,
    QueueObjects,
    Seen,
    WatchedClasses,
    WatchedGangs,
    WatchedJobs,
    WatchedTree,
)

log = logging.getLogger(__name__)

THREADS = 8


class JobCaller:
    """Suspends and resumes job objects on a few threads.

    `answer` is called with each action and its error, "" if there is none, on any thread.
    `pods_of` gives the pods of a job of a kind whose pods have gates.
    """

    def __init__(
        self, kube: KubeClient, prover: Prover, pods_of: Callable[[Action], list[PodName]],
        answer: Callable[[Action, str], None],
    ) -> None:  # fmt: skip
        self._kube, self._prover = kube, prover
        self._pods_of = pods_of
        self._answer = answer
        self._pool = ThreadPoolExecutor(THREADS, "jobs")

    def call(self, action: Action, may_write: Callable[[], bool]) -> None:
        """Have an action carried out; it is answered once."""
        self._pool.submit(self._carry_out, action, may_write)

    def close(self) -> None:
        """Wait for the calls under way; others are not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _carry_out(self, action: Action, may_write: Callable[[], bool]) -> None:
        error = ""
        try:
            for write in self._writes(action):
                if not may_write():
                    raise UserError("this replica does not lead any more", 503)
                self._write(write)
        except (KubeError, UserError) as refusal:
            error = str(refusal)
            log.warning("a job is not written", extra={"fields": {"job": str(action.job), "reason": error}})
        except Exception as bug:
            error = f"{type(bug).__name__}: {bug}"
            log.exception("a job cannot be written")
        self._answer(action, error)

    def _writes(self, action: Action) -> list[Write]:
        """All calls of an action, in their order."""
        job = action.job
        annotations = written(action.kept, job.uid, self._prover)
        if job.kind == gangs.KIND:
            return self._gang_writes(action, annotations)
        kind = table.find_kind(job.api_version, job.kind)
        has_gates = kind is not None and kind.has_gates
        pods = self._pods_of(action) if has_gates else []
        match action.change:
            case Change.RESUME:
                lifted = [gates.remove_gate(pod.namespace, pod.name, pod.uid) for pod in pods]
                return [*table.resume(job, annotations), *lifted]
            case Change.SUSPEND:
                removed = [gates.delete_pod(pod.namespace, pod.name, pod.uid) for pod in pods]
                return [*table.suspend(job, annotations), *removed]
            case Change.NOTE:
                return list(table.annotate(job, annotations))

    def _gang_writes(self, action: Action, annotations: dict[str, str]) -> list[Write]:
        """The same for a gang of plain pods: its state is on each pod, and goes with it."""
        pods = [(pod.namespace, pod.name, pod.uid) for pod in self._pods_of(action)]
        match action.change:
            case Change.RESUME:
                return [gangs.remove_gate(*pod, action.job, annotations) for pod in pods]
            case Change.SUSPEND:
                return [gates.delete_pod(*pod) for pod in pods]
            case Change.NOTE:
                return [gangs.annotate(*pod, annotations) for pod in pods]

    def _write(self, write: Write) -> None:
        try:
            match write.verb:
                case Verb.PATCH:
                    self._kube.patch(write.path, write.body)
                case Verb.PATCH_LISTS:
                    self._kube.patch_lists(write.path, write.body)
                case Verb.CREATE:
                    self._kube.create(write.path, write.body)
                case Verb.DELETE:
                    self._kube.delete(write.path, uid=write.uid)
        except KubeError as error:
            is_done = write.verb is Verb.CREATE and error.reason == "AlreadyExists"
            if not is_done and not (write.may_be_missing and error.is_not_found):
                raise


def should_resume(job: Job, state: Kept) -> bool:
    """True if a job that waits is resumed where queues are off: not if its author or `hived hold` suspended it."""
    was_suspended = state.since_s > 0 and not state.is_let_go
    return not state.is_aside and (was_suspended or is_marked_held(job.annotations))


class Resuming:
    """Resumes jobs that hived holds, where queues are off.

    A call that was refused is made again, later each time. Not thread-safe.
    """

    def __init__(self, prover: Prover) -> None:
        self._prover = prover
        self._refused: dict[str, Backoff] = {}  # by key

    def due(self, jobs: Iterable[Seen], now: float, limit: int) -> list[Action]:
        """The calls that are due, at most so many. Cost O(jobs)."""
        found: list[Action] = []
        for seen in jobs:
            job = seen.job
            refused = self._refused.get(job.ref.key)
            if job.state is not JobState.HELD or (refused is not None and refused.at_s > now):
                continue
            state = read_kept(job.annotations, job.ref.uid, self._prover)
            if should_resume(job, state):
                found.append(Action(job.ref, Change.RESUME, state.followed_by(is_let_go=True, since_s=now)))
                if len(found) == limit:
                    break
        return found

    def answered(self, action: Action, error: str, now: float) -> None:
        """A call was carried out, or refused."""
        backoff = self._refused.pop(action.job.key, None) or Backoff()
        if error:
            backoff.failed(now)
            self._refused[action.job.key] = backoff


class QueueCount(msgspec.Struct):
    """One queue. `oldest_s` is since when its oldest job waits, in seconds since 1970; None if none does.

    `used` is by resource, of the jobs with cells; these are `running`, and some of them `borrowed`.
    """

    vc: str
    waiting: int = 0
    running: int = 0
    borrowed: int = 0
    oldest_s: float | None = None
    used: dict[str, float] = msgspec.field(default_factory=dict)


def count(queues: QueuedJobs) -> dict[str, QueueCount]:
    """All queues that have jobs, by full name. Cost O(jobs)."""
    found: dict[str, QueueCount] = {}
    for entry in queues.entries.values():
        unit = entry.asks
        if unit is None:
            continue
        one = found.get(unit.queue)
        if one is None:
            one = found[unit.queue] = QueueCount(unit.vc)
        if entry.life is Life.WAITING:
            one.waiting += 1
            since_s = waits_since(entry)
            one.oldest_s = since_s if one.oldest_s is None else min(one.oldest_s, since_s)
        elif entry.life.has_cells:
            one.running += 1
            one.borrowed += entry.kept.is_borrowed and queues.due(entry.key) is None
            for name, amount in unit.request.items():
                one.used[name] = one.used.get(name, 0.0) + amount
    return found


def count_others(found: Mapping[str, QueueCount], others: Iterable[OtherUse]) -> None:
    """Add the use of quotas by pods of no queue."""
    for other in others:
        if (one := found.get(other.queue)) is not None:
            one.running += other.jobs
            for name, amount in other.request.items():
                one.used[name] = one.used.get(name, 0.0) + amount


def gauges(queues: QueuedJobs, now: float) -> QueueGauges:
    """The same as Prometheus reads it: a job that has borrowed its cells is not among those that run."""
    found = count(queues)
    jobs: dict[tuple[str, str], int] = {}
    for name, one in sorted(found.items()):
        jobs[name, "waiting"] = one.waiting
        jobs[name, "running"] = one.running - one.borrowed
        jobs[name, "borrowed"] = one.borrowed
    waits = {(name,): max(0.0, now - (now if one.oldest_s is None else one.oldest_s)) for name, one in found.items()}
    return QueueGauges(jobs, waits, {(name,): share for name, share in queues.shares().items()})


def waits_since(entry: JobRecord) -> float:
    """Since when a job waits: its creation, or its last suspension. It is the same after a restart."""
    return entry.kept.since_s or entry.job.created_s or entry.since_s


LOOK_S = 0.5
"""Between two looks at the cluster while there are jobs, or this replica does not lead."""

LISTING_S, LONGEST_LISTING_S = 0.1, 30.0
"""Between two looks whether all is listed, and until when that is waited for."""

LEAST_S = 0.02
"""Between any two turns: facts that come together are looked at together."""

CALLS = 64
"""Calls on job objects under way at once."""

WRITES, WRITE_S = 50, 0.1
"""Objects of queues that are written in one go, and seconds between two."""

EVENTS = 20
"""About jobs that are written in one go."""


class QueueController:
    """Follows jobs and takes turns, from `start` to `stop`. `look` may be called by tests in place of the thread.

    `turns` are those of the present term, None while there are none. `lock` is held while they change, then notified.
    `outside` are the claims of guaranteed work of no queue that others leave for, by key; under the lock, too.
    """

    def __init__(
        self,
        service: Service,
        kube: KubeClient,
        prover: Prover,
        metrics: Metrics,
        *,
        learned: Learned | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = wall_s,
    ) -> None:
        """`learned` says how long jobs run; it is asked on any thread, with `lock` held."""
        self._service, self._now, self._clock = service, now, clock
        self._wake, self._is_stopping = threading.Event(), threading.Event()
        self._answers: deque[tuple[Action, str]] = deque()
        self._under_way, self._listing_until, self._warnings = 0, 0.0, list[str]()
        self._term: object = None
        self._fitted: object = None
        self.turns: Turns | None = None
        self.outside: dict[str, Claimed] = {}
        self.lock = threading.Condition(threading.Lock())
        self.jobs = WatchedJobs(self._read_need, self._wake.set, self._made_by)
        self.gangs = WatchedGangs(self.jobs, self._wake.set, clock)
        service.follow_pods(self.gangs)
        self.publisher = Publisher(kube, clock)
        self._events = EventRecorder(kube, COMPONENT)
        self._job_events = JobEvents(self._events, partial(_pods_in, service))
        self.classes = WatchedClasses(self._wake.set)
        self._classes = OptionalKinds(kube, metrics, (CLASSES,), self.classes, "priority classes")
        self._shared = Shared(prover, self.publisher, now, self._job_events, learned, self.outside, self.classes)
        self._followed = OptionalKinds(kube, metrics, table.KINDS, self.jobs, "jobs")
        self._objects = OptionalKinds(kube, metrics, OBJECT_KINDS, self.publisher, "queues")
        self.quotas = WatchedTree(self._wake.set, self._tell_tree)
        self._trees = OptionalKinds(kube, metrics, (TREES,), self.quotas, "quotas")
        self._resuming = Resuming(prover)
        self._queue_objects = QueueObjects()
        self._mistakes: deque[tuple[QueueItem, str]] = deque()
        self._caller = JobCaller(kube, prover, self._pods_of, self._answered)
        metrics.observe_queues(self._gauges)
        self._thread = threading.Thread(target=self._run, name="queues", daemon=True)
        self._writer = threading.Thread(target=self._publish, name="objects of queues", daemon=True)

    @property
    def queueing(self) -> Queueing:
        """The rules of the configuration in force."""
        return self._service.machine.interpreter.rules.queueing

    def wake(self) -> None:
        """Have a look soon."""
        self._wake.set()

    # Running

    def start(self) -> None:
        """Begin to follow jobs and, while this replica leads, to take turns."""
        if self.queueing.is_enabled:
            self._service.tell(QuotasFollowed(None, is_known=False))
        for each in (self._trees, self._classes, self._followed, self._objects):
            each.start()
        self._thread.start()
        self._writer.start()

    def stop(self) -> None:
        """Take no further turn, and wait for the calls under way."""
        self._is_stopping.set()
        self._wake.set()
        for each in (self._trees, self._classes, self._followed, self._objects):
            each.stop()
        for thread in (self._thread, self._writer):
            if thread.ident is not None:
                thread.join()
        self._caller.close()

    def join(self, timeout_s: float) -> None:
        """Wait for the watches to end after `stop`."""
        for each in (self._trees, self._classes, self._followed, self._objects):
            each.join(timeout_s)

    def look(self) -> float:
        """Take facts in and take a turn. Returns after how many seconds to look again without news."""
        self.gangs.look()
        if not self._service.is_ready or not self.queueing.is_enabled:
            self._end_term()
            self._let_all_go()
            if not self.queueing.is_enabled or self._are_quotas_listed():
                self._tell_quotas()
            return LOOK_S
        if not self._has_listed():
            return LISTING_S
        with self.lock:
            turns = self._turns()
            if turns is None:
                return LOOK_S
            self._tell_quotas()
            if self.classes.take_changed():
                self.jobs.tell_again()
            for name, seen in self.jobs.take_news().items():
                turns.job_seen(name, seen)
            while self._answers:
                action, error = self._answers.popleft()
                self._under_way -= 1
                turns.wrote(action, error)
            turns.follow_pods()
            self._mistakes.extend(self._queue_objects.read(self.publisher.queue_items()))
            turns.told_objects(self._queue_objects)
            turns.take_turn()
            for action in turns.take_actions(CALLS - self._under_way):
                self._under_way += 1
                self._caller.call(action, self._may_write)
            turns.record()
            self.publisher.sweep(self._term, lambda: turns.known.with_objects(turns.queues.queues()))
            self.lock.notify_all()
        return 0.0 if turns.queues.is_cut else LOOK_S

    def _publish(self) -> None:
        """Write objects of queues, at the pace of the API server, which holds up no turn."""
        while not self._is_stopping.wait(WRITE_S):
            self.publisher.write(WRITES, self._may_write)
            self._job_events.write(EVENTS, self._may_write)
            self._tell_warnings()
            while self._mistakes and self._may_write():
                item, problem = self._mistakes.popleft()
                reason = "IgnoredQueue" if problem == OTHER_NAMESPACE else "InvalidQueue"
                self._tell(item, problem, reason, "scheduling.x-k8s.io/v1alpha1/Queue")

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            wait_s = LOOK_S
            try:
                wait_s = self.look()
            except Exception as error:
                if isinstance(error, InvariantError) and self._service.fault:
                    return  # the service has stopped, and has said so
                log.critical("a turn of the queues has failed, and is tried again", exc_info=True)
                self._term = None  # what was half done is read anew
            self._wake.wait(wait_s)
            self._wake.clear()
            self._is_stopping.wait(LEAST_S)

    # Terms

    def _has_listed(self) -> bool:
        """Are the tree and all jobs known? A silent API server delays turns by no more than `LONGEST_LISTING_S`."""
        if self.turns is not None:
            return True
        until = self._listing_until = self._listing_until or self._clock() + LONGEST_LISTING_S
        is_listed = all(each.wait_until_listed(0) for each in (self._trees, self._classes, self._followed))
        if not is_listed and self._clock() < until:
            return False
        if not is_listed:
            log.warning("queues begin although not all jobs and quotas could be listed")
        self._listing_until = 0.0
        return True

    def _turns(self) -> Turns | None:
        """The turns of the present term, which begins perhaps; None without a core."""
        machine, queueing = self._service.machine, self.queueing
        core = machine.cache.core
        if core is None:
            return None
        tree = self.quotas.tree
        term = (machine.term, core.number, id(core.state), queueing, tree)
        if self._term != term or self.turns is None:
            self._term, before = term, self.turns
            self.turns = Turns(self._service, core, queueing, tree, self._shared)
            for name, seen in self.jobs.everything().items():
                self.turns.job_seen(name, seen, is_first=True, earlier=before)
            if before is not None:  # of the same service perhaps, which holds cells for jobs that are gone meanwhile
                before.leave_off(self.turns)
            self._fit(tree, core.state.spec)
            log.info("queues begin", extra={"fields": {"jobs": len(self.turns.queues.entries)}})
        return self.turns

    def _are_quotas_listed(self) -> bool:
        return bool(self._trees.wait_until_listed(0))

    def _tell_quotas(self) -> None:
        """Have all that gets cells count against the tree. A leader's turns have begun, and hold cells for jobs."""
        self._service.tell(QuotasFollowed(self.quotas.tree if self.queueing.is_enabled else None))

    def _end_term(self) -> None:
        if self.turns is not None:
            with self.lock:
                if self._service.is_ready:
                    self.turns.leave_off()
                self._term = self.turns = None
                self.lock.notify_all()
            self.publisher.forget_all()

    def _let_all_go(self) -> None:
        """Resumes what hived holds, where queues are off."""
        now = self._now()
        while self._answers:
            self._resuming.answered(*self._answers.popleft(), now)
            self._under_way -= 1
        if self._under_way or not self._service.is_ready:
            return
        self.publisher.sweep(self._service.machine.term, lambda: None)
        for action in self._resuming.due(self.jobs.everything().values(), now, CALLS):
            self._under_way += 1
            self._caller.call(action, self._may_write)

    # For others

    def _read_need(self, job: Job) -> Need | None:
        return need_of(job, self._service.machine.interpreter)

    def _made_by(self, job: JobName, maker: JobName | None) -> None:
        self._service.tell(JobsMade({job: maker}))

    def _fit(self, tree: QuotaTree | None, cluster: ClusterSpec) -> None:
        """See how a tree fits the cells of the virtual clusters, once for each tree and configuration."""
        if self._fitted == (tree, cluster):
            return
        self._fitted = tree, cluster
        resources = self._service.machine.interpreter.rules.resources_in(cluster)
        self._warnings = [] if tree is None else leaf_warnings(tree, cluster, resources)

    def _tell_warnings(self) -> None:
        """Say in the log and at the object how a tree does not fit; outside of the lock, as it calls the API server."""
        warnings, item = self._warnings, self.quotas.item
        if not warnings or item is None or not self._may_write():
            return
        self._warnings = []
        log.warning("the ElasticQuotaTree does not fit the cells", extra={"fields": {"warnings": warnings[:50]}})
        self._tell_tree(item, "\n".join(warnings), "QuotaShape")

    def _tell_tree(self, item: Object, problem: str, reason: str) -> None:
        self._tell(_Tree(item), problem, reason, "scheduling.sigs.k8s.io/v1beta1/ElasticQuotaTree")

    def _tell(self, about: PodRef, problem: str, reason: str, kind: str) -> None:
        try:
            self._events.record(about, WARNING, reason, problem, about=kind)
        except KubeError as error:
            log.warning("event not written", extra={"fields": {"reason": str(error)}})

    def _gauges(self) -> QueueGauges:
        with self.lock:
            turns = self.turns
            return QueueGauges() if turns is None else gauges(turns.queues, self._now())

    def _answered(self, action: Action, error: str) -> None:
        self._answers.append((action, error))
        self._wake.set()

    def _may_write(self) -> bool:
        return self._service.runner.holds() and not self._service.fault

    def _pods_of(self, action: Action) -> list[PodName]:
        """The pods of a job of a kind whose pods have gates; of one that is suspended those that have to go."""
        name, is_gang = action.job.job_name, action.job.kind == gang_kind.KIND
        with self._service.runner.look() as machine:
            pods = machine.cache.jobs.pods_of(name)
        if action.change is not Change.SUSPEND:
            return [record.named for record in pods]
        if is_gang:
            self.gangs.suspended(name)
        may_go = not is_gang or action.kept.is_borrowed  # pods of a gang are not made anew
        started = (one for one in pods if gates.GATE not in one.seen.gates)
        return [one.named for one in started if may_go or one.seen.owner is not None]


def _pods_in(service: Service, gang: JobRef) -> list[PodName]:
    with service.runner.look() as machine:
        return [record.named for record in machine.cache.jobs.pods_of(gang.job_name)]


class _Tree:
    """A quota tree as events name it."""

    def __init__(self, item: Object) -> None:
        metadata = item["metadata"]
        self.uid: str = metadata.get("uid", "")
        self.namespace: str = metadata.get("namespace", "default")
        self.name: str = metadata["name"]


class QueueLender:
    """Suspends borrowers for guaranteed work of no queue, such as Kueue's: a `machine.claims.Lender`.

    Every method takes the controller's lock for a walk over the jobs that run.
    """

    def __init__(self, controller: QueueController) -> None:
        self._controller = controller

    def lent(self) -> Lent:
        """See `Lender`."""
        with self._controller.lock:
            turns = self._controller.turns
            return Lent() if turns is None else turns.lent()

    def call_back(self, hold: Hold, jobs: Sequence[JobRef]) -> None:
        """See `Lender`. A job that has ended meanwhile, or has left, is left alone."""
        with self._controller.lock:
            turns = self._controller.turns
            if turns is not None:
                self._controller.outside[hold.key] = Claimed(hold, tuple(jobs))
                for job in jobs:
                    turns.reclaim_for(job.key, hold.key)
        self._controller.wake()

    def forget_others(self, keys: Collection[str]) -> None:
        """See `Lender`."""
        outside = self._controller.outside
        if all(key in keys for key in outside):
            return
        with self._controller.lock:
            for key in [key for key in outside if key not in keys]:
                del outside[key]
            if self._controller.turns is not None:
                self._controller.turns.queues.room_made()
        self._controller.wake()
