"""The shell of the queues: follows job objects, has turns taken, carries orders out, and publishes what became of jobs.

One thread has the queues and the book of jobs. Watches hand facts over and wake it; writes are made on other threads
and come back as facts. Every replica follows jobs; only the one that leads takes turns. A new term begins with empty
queues, to which all jobs are told with the state that is kept on them.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from hived.errors import InvariantError, UserError
from hived_config.queueing import Queueing
from hived_extender.job_kinds import kinds
from hived_extender.job_kinds.job import Job, JobName, JobRef
from hived_extender.job_kinds.needs import Need, need_of
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.optional_kinds import OptionalKinds
from hived_extender.pods.proofs import Prover
from hived_extender.pods.wire import Pod
from hived_extender.queues import kept
from hived_extender.queues.book import Action, Book, Entry, Step
from hived_extender.queues.calling import JobCaller
from hived_extender.queues.live_room import LiveRoom
from hived_extender.queues.policies import Policy, QueueRules, Rules, policy_named
from hived_extender.queues.publishing import KINDS as OBJECT_KINDS
from hived_extender.queues.publishing import Publisher
from hived_extender.queues.queues import Queues
from hived_extender.queues.recording import Records
from hived_extender.queues.surroundings import Surroundings
from hived_extender.queues.units import Evict, Start, Stop, Unit
from hived_extender.queues.watched import Seen, WatchedJobs
from hived_extender.service.pods import PodName
from hived_extender.service.service import Service
from hived_extender.service.stimuli import GroupsEvicted, HoldDropped, HoldsLookedAt, HoldState, Stimulus

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Between two looks at the cluster while jobs wait or run."""

LEAST_S = 0.02
"""Between any two turns: facts that come together are looked at together."""

CALLS = 64
"""Calls on job objects under way at once."""

WRITES = 50
"""Objects of queues that are written in one look."""


class QueueDesk:
    """See the module; from `start` to `stop`. `look` may be called by tests in place of the thread."""

    def __init__(
        self,
        service: Service,
        kube: KubeClient,
        prover: Prover,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._service, self._kube, self._prover = service, kube, prover
        self._clock, self._now = clock, now
        self._wake = threading.Event()
        self._is_stopping = threading.Event()
        self._answers: deque[tuple[Action, str]] = deque()
        self.lock = threading.Lock()  # for the queues and the book, between turns
        self.jobs = WatchedJobs(self._read_need, self._wake.set)
        self.publisher = Publisher(kube, clock)
        self._followed = OptionalKinds(kube, metrics, kinds.KINDS, self.jobs, "jobs")
        self._objects = OptionalKinds(kube, metrics, OBJECT_KINDS, self.publisher, "queues")
        self._caller = JobCaller(kube, prover, self._pods_of, self._answered)
        self._thread = threading.Thread(target=self._run, name="queues", daemon=True)
        self._term: object = None
        self._rules: Queueing = Queueing()
        self._under_way = 0
        self._refs: dict[str, tuple[JobRef, Sequence[tuple[Pod, int]]]] = {}
        self._names: dict[JobName, str] = {}
        self.queues: Queues | None = None
        self.book: Book | None = None
        self._records: Records | None = None
        self._surroundings: Surroundings | None = None
        self._wake_s: float | None = None

    # Running

    @property
    def is_enabled(self) -> bool:
        """Do jobs wait in queues, by the configuration in force?"""
        return self._queueing.is_enabled

    def start(self) -> None:
        """Begin to follow jobs and, while this replica leads, to take turns."""
        self._followed.start()
        self._objects.start()
        self._thread.start()

    def stop(self) -> None:
        """Take no further turn, and wait for the calls under way."""
        self._is_stopping.set()
        self._wake.set()
        self._followed.stop()
        self._objects.stop()
        if self._thread.ident is not None:
            self._thread.join()
        self._caller.close()

    def join(self, timeout_s: float) -> None:
        """Wait for the watches to end after `stop`."""
        self._followed.join(timeout_s)
        self._objects.join(timeout_s)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            wait_s: float | None = LOOK_S
            try:
                wait_s = self.look()
            except InvariantError:
                if self._service.fault:
                    return  # the service has stopped, and has said so
                log.critical("a turn of the queues has failed, and is tried again", exc_info=True)
            except Exception:
                log.critical("a turn of the queues has failed, and is tried again", exc_info=True)
                self._term = None  # what was half done is read anew
            self._wake.wait(wait_s)
            self._wake.clear()
            self._is_stopping.wait(LEAST_S)

    def look(self) -> float | None:
        """Take facts in and, if there is reason to, a turn. Returns after how many seconds to look again."""
        if not self._service.is_ready or not self._queueing.is_enabled:
            self._end_term()
            return LOOK_S
        with self.lock:
            self._begin_term()
            self._take_news()
            self._take_answers()
            self._follow_pods()
            self._take_turn()
            self._call()
            self._record()
        self.publisher.write(WRITES, self._may_write)
        return LOOK_S if self.book is not None and self.book.entries else None

    # Terms

    @property
    def _queueing(self) -> Queueing:
        return self._service.machine.interpreter.rules.queueing

    def _begin_term(self) -> None:
        machine = self._service.machine
        term = (machine.term, machine.cache.core.number if machine.cache.core is not None else 0)
        if self._term == term and self._rules == self._queueing:
            return
        self._term, self._rules = term, self._queueing
        core = machine.cache.core
        if core is None:
            return
        self.queues = Queues(core.state.spec)
        self.queues.told_rules(rules_of(self._rules))
        self.book = Book(self.queues)
        self._records = Records(self.publisher)
        self._surroundings = Surroundings(self.queues)
        self._refs.clear()
        self._names.clear()
        for name, seen in self.jobs.everything().items():
            self._job_seen(name, seen)
        log.info("queues begin", extra={"fields": {"jobs": len(self._refs)}})

    def _end_term(self) -> None:
        if self._term is not None:
            with self.lock:
                self._term, self.queues, self.book = None, None, None
                self._refs.clear()
                self._names.clear()
            self.publisher.forget_all()

    # Facts

    def _read_need(self, job: Job) -> Need | None:
        return need_of(job, self._service.machine.interpreter)

    def _take_news(self) -> None:
        for name, seen in self.jobs.take_news().items():
            self._job_seen(name, seen)

    def _job_seen(self, name: JobName, seen: Seen | None) -> None:
        assert self.book is not None
        now, key = self._now(), self._names.get(name)
        if key is not None and (seen is None or seen.job.ref.key != key):
            self._job_gone(name, key, now)
        if seen is None or (seen.need is None and not seen.problem):
            return
        job = seen.job
        self._names[name] = job.ref.key
        unit = None
        if seen.need is not None:
            self._refs[job.ref.key] = job.ref, seen.need.pods
            unit = _unit_of(job, seen.need)
        state = kept.read(job.annotations, job.ref.uid, self._prover)
        self.book.job_seen(job, unit, state, now, seen.problem, has_cells=self._has_cells(name))
        if job.state.is_over:
            self._put(HoldDropped(job.ref.key))

    def _job_gone(self, name: JobName, key: str, now: float) -> None:
        assert self.book is not None
        self._names.pop(name, None)
        if key in self._refs:
            self.book.job_gone(self._refs.pop(key)[0], now)
            self._put(HoldDropped(key))

    def _has_cells(self, name: JobName) -> bool:
        with self._service.runner.look() as machine:
            return any(record.state.is_placed for record in machine.cache.jobs.pods_of(name))

    def _take_answers(self) -> None:
        assert self.book is not None
        while self._answers:
            action, error = self._answers.popleft()
            self._under_way -= 1
            self.book.wrote(action, error, self._now())

    def _answered(self, action: Action, error: str) -> None:
        self._answers.append((action, error))
        self._wake.set()

    def _follow_pods(self) -> None:
        """How far the pods of jobs with cells have come, and what goes on beside the queues."""
        assert self.book is not None and self.queues is not None and self._surroundings is not None
        states: Mapping[str, HoldState] = self._service.runner.handle(HoldsLookedAt())
        for key in self.book.progressed(states, self._now()):
            self.book.call_back(key, "", self._now())
            self._put(HoldDropped(key))
        with self._service.runner.look() as machine:
            core = machine.cache.core
            queued = {
                record.request.spec.group.name
                for name in self._names
                for record in machine.cache.jobs.pods_of(name)
                if record.request is not None
            }
            found = None if core is None else self._surroundings.look(core, queued)
        if found is not None:
            self._surroundings.tell(found)

    # Turns

    def _take_turn(self) -> None:
        assert self.book is not None and self.queues is not None
        now = self._now()
        room = LiveRoom(self._service.runner, self._refs)
        for order in self.queues.turn(now, room):
            match order:
                case Start(key=key, is_borrowed=is_borrowed):
                    self.book.let_go(key, now, is_borrowed=is_borrowed, due_s=self.queues.due(key))
                case Stop(key=key, winner=winner):
                    self.book.call_back(key, winner, now)
                case Evict(groups=groups, winner=winner):
                    self._put(GroupsEvicted(groups, winner))
        self._wake_s = self.queues.wake_s()

    def _call(self) -> None:
        assert self.book is not None
        for action in self.book.take_actions(self._now(), CALLS - self._under_way):
            self._under_way += 1
            self._caller.call(action, self._may_write)

    def _record(self) -> None:
        assert self.book is not None and self.queues is not None and self._records is not None
        self._records.update(self.book, self.queues)

    def _may_write(self) -> bool:
        return self._service.runner.holds() and not self._service.fault

    def _pods_of(self, action: Action) -> list[PodName]:
        """The pods of a job of a kind whose pods have gates."""
        with self._service.runner.look() as machine:
            return [record.named for record in machine.cache.jobs.pods_of(action.job.job_name)]

    def _put(self, stimulus: Stimulus) -> None:
        try:
            self._service.runner.handle(stimulus)
        except UserError as error:
            log.info("the service does not take part", extra={"fields": {"cause": error.message}})


def rules_of(queueing: Queueing) -> Rules:
    """The rules of all queues, by the configuration, where virtual clusters are the queues."""
    policy = policy_named(queueing.policy.value)
    queues = {
        vc: QueueRules(
            policy=policy,
            weight=own.weight,
            borrows=own.borrows,
            most_running=own.most_running,
            most_waiting=own.most_waiting,
        )
        for vc, own in queueing.virtual_clusters.items()
    }
    return Rules(QueueRules(policy=policy, borrows=False), queues, queueing.half_life_s)


def _unit_of(job: Job, need: Need) -> Unit:
    return Unit(
        job.ref.key,
        need.spec.virtual_cluster,
        need.spec,
        job.created_s,
        need.user,
        need.request,
        need.is_preemptible,
        need.limit_s,
    )


__all__ = ["Entry", "Policy", "QueueDesk", "Step", "rules_of"]
