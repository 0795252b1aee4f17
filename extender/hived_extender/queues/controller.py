"""The queues as a part of the machine: jobs are taken in, turns are taken in pieces, calls on jobs are effects.

Watches hand jobs over as stimuli, and a turn begins soon after. Each piece of it takes a few milliseconds of the
machine's lock. Every replica follows jobs; only the one that leads takes turns.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, count_pods
from hived_config.rules import Queueing
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.job import Job, JobName, JobRef, JobState
from hived_extender.jobs.kinds import gangs, gates, marks, table
from hived_extender.jobs.kinds.kind import Write
from hived_extender.jobs.kinds.marks import is_marked_held
from hived_extender.jobs.needs import JobLoss, Need, SeenJob, has_our_pods, need_of, other_pods
from hived_extender.jobs.quotas.backing import leaf_warnings
from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.jobs.starts import NO_WORDS, StartWait, is_timed, wait_of, written_after
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import Backoff, wall_s
from hived_extender.kube.events import WARNING, EventRecorder, PodRef
from hived_extender.kube.metrics import Metrics, QueueGauges
from hived_extender.kube.watch import Object, OptionalKinds
from hived_extender.machine.claims import Lent
from hived_extender.machine.effects import CallJob, Errand
from hived_extender.machine.machine import TURN
from hived_extender.machine.pods import PodName
from hived_extender.machine.runner import Runner
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import (
    Claimed,
    ClaimsKept,
    Hold,
    JobChanged,
    JobHeld,
    JobMoved,
    JobsMade,
    ObjectsFound,
    QuotasFollowed,
    ReclaimAsked,
    TakeTurn,
    TurnAsked,
    Wrote,
)
from hived_extender.machine.writes.writer import COMPONENT
from hived_extender.queues.announcing import JobEvents, write_events
from hived_extender.queues.awaited import AwaitedJobs, ask
from hived_extender.queues.own_schedule import Learned
from hived_extender.queues.publishing import KINDS as OBJECT_KINDS
from hived_extender.queues.publishing import Publisher
from hived_extender.queues.queued_jobs import Action, Change, JobRecord, QueuedJobs
from hived_extender.queues.table import Kept, Life, Pace, read_kept, written
from hived_extender.queues.turns import Shared, Turns
from hived_extender.queues.units import OtherUse
from hived_extender.queues.watched import (
    CLASSES,
    OTHER_NAMESPACE,
    TREES,
    QueueObjects,
    WatchedClasses,
    WatchedGangs,
    WatchedJobs,
    WatchedTree,
)

log = logging.getLogger(__name__)


def calls_of(action: Action, pods: Sequence[PodName], prover: Prover) -> tuple[Write, ...]:
    """All calls of an action on a job, in their order. `pods` are those of a job of a kind whose pods have gates."""
    job = action.job
    words = NO_WORDS if action.is_release else {}
    annotations: dict[str, str | None] = {**written(action.kept, job.uid, prover), **words}
    names = [(pod.namespace, pod.name, pod.uid) for pod in pods]
    if job.kind == gangs.KIND:  # its state is on each pod, and goes with it
        match action.change:
            case Change.RESUME:
                return tuple(gangs.remove_gate(*pod, job, annotations) for pod in names)
            case Change.SUSPEND:
                return tuple(gates.delete_pod(*pod) for pod in names)
            case Change.NOTE:
                return tuple(gangs.annotate(*pod, annotations) for pod in names)
    match action.change:
        case Change.RESUME:
            return (*table.resume(job, annotations), *(gates.remove_gate(*pod) for pod in names))
        case Change.SUSPEND:
            return (*table.suspend(job, annotations), *(gates.delete_pod(*pod) for pod in names))
        case Change.NOTE:
            return tuple(table.annotate(job, annotations))


def should_resume(job: Job, state: Kept) -> bool:
    """True if a job that waits is resumed where queues are off: not if its author or `hived hold` suspended it."""
    was_suspended = state.since_s > 0 and not state.is_resumed
    return not state.is_on_hold and (was_suspended or is_marked_held(job.annotations))


class QueueCount(msgspec.Struct):
    """One queue. `oldest_s` is since when its oldest job waits, in seconds since 1970; None if none does.

    `used` is by resource, of the jobs with cells; these are `running`, and some of them `borrowed`. Those that wait
    will have so many `waiting_pods`; those of gangs are there, and are not counted.
    """

    vc: str
    waiting: int = 0
    running: int = 0
    borrowed: int = 0
    waiting_pods: int = 0
    oldest_s: float | None = None
    used: dict[str, float] = msgspec.field(default_factory=dict)


def count(queues: QueuedJobs) -> dict[str, QueueCount]:
    """All queues that have jobs, by full name. Needs no lock: jobs may change meanwhile. Cost O(jobs)."""
    found: dict[str, QueueCount] = {}
    for entry in list(queues.entries.values()):
        unit = entry.asks
        if unit is None:
            continue
        one = found.get(unit.queue)
        if one is None:
            one = found[unit.queue] = QueueCount(unit.vc)
        if entry.life is Life.WAITING:
            one.waiting += 1
            one.waiting_pods += 0 if entry.job.ref.kind == gangs.KIND else count_pods(unit.spec.group.members)
            since_s = waits_since(entry)
            one.oldest_s = since_s if one.oldest_s is None else min(one.oldest_s, since_s)
        elif entry.life.has_cells:
            one.running += 1
            one.borrowed += entry.kept.is_borrowed and queues.entitled_since(entry.key) is None
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


def gauges(found: Mapping[str, QueueCount], shares: Mapping[str, float], now: float) -> QueueGauges:
    """The same as Prometheus reads it: a job that has borrowed its cells is not among those that run."""
    jobs: dict[tuple[str, str], int] = {}
    for name, one in sorted(found.items()):
        jobs[name, "waiting"] = one.waiting
        jobs[name, "running"] = one.running - one.borrowed
        jobs[name, "borrowed"] = one.borrowed
    waits = {(name,): max(0.0, now - (now if one.oldest_s is None else one.oldest_s)) for name, one in found.items()}
    return QueueGauges(jobs, waits, {(name,): share for name, share in shares.items()})


def _count_refusal(refused: dict[JobName, Backoff], name: JobName, now: float, *, is_refused: bool) -> None:
    """Retry after a refusal, later each time."""
    backoff = refused.pop(name, None) or Backoff()
    if is_refused:
        backoff.failed(now)
        refused[name] = backoff


def waits_since(entry: JobRecord) -> float:
    """Since when a job waits: its creation, or its last suspension. It is the same after a restart."""
    return entry.kept.since_s or entry.job.created_s or entry.since_s


LOOK_S = 0.5
"""Between two turns without news."""

OTHERS_S = 0.1
"""After news of nodes and of pods of no queue."""

LISTING_S, LONGEST_LISTING_S = 0.1, 30.0
"""Between two looks whether all is listed, and until when that is waited for."""

LEAST_S = 0.02
"""Between any two turns: facts that come together are looked at together."""

PIECE = Pace(searches=4, questions=5)
"""A turn is done in pieces of about so much, since filter calls wait for each."""

PIECES, JOBS = 10, 10
"""Pieces of one turn before pods are looked at again; jobs that are taken in, or recorded, in one piece."""

STARTS = 100
"""Jobs whose authors say when they start that are looked at in one piece."""

CALLS = 8
"""Calls on job objects under way at once."""

WRITES = 50
"""Objects of queues that are written in one go."""

QUEUE_KIND = "scheduling.x-k8s.io/v1alpha1/Queue"
TREE_KIND = "scheduling.sigs.k8s.io/v1beta1/ElasticQuotaTree"

EVENTS = 20
"""About jobs that are written in one go."""


class QueueController:
    """The queues as a part of the machine: takes in jobs, takes turns, and has jobs suspended and resumed.

    `turns` are those of the present term, None while there are none: read them within `look`. While others of another
    configuration are `begun`, which takes a while with many jobs, they change no more.
    """

    def __init__(
        self, service: Service, kube: KubeClient, prover: Prover, metrics: Metrics, *, learned: Learned | None = None
    ) -> None:
        """`learned` says how long jobs run; it is asked with the machine's lock, and must not wait for another one."""
        self._service, self._machine, self._prover, self._kube = service, service.machine, prover, kube
        self._outbox = service.machine.join(self)
        self._is_stopping = threading.Event()
        self._turn: Iterator[float] | None = None
        self._turn_of: object = None
        self._has_news = False
        self._calls: dict[int, tuple[Turns | None, Action]] = {}  # under way; without turns where queues are off
        self._call_count = 0
        self._refused: dict[JobName, Backoff] = {}  # jobs that could not be resumed where queues are off
        self._resumes_for: object = None
        self._listing_until = 0.0
        self._reading, self._relists = self._machine.interpreter.reading, list[threading.Event]()
        self._left: dict[JobName, None] = {}  # jobs that are to be told to the turns
        self._earlier: tuple[Turns, ...] = ()
        self._errands: set[str] = set()  # under way
        self._waits: dict[JobName, StartWait | None] = {}  # of jobs whose authors say when they start
        self._notes: dict[int, JobName] = {}  # calls under way that only write such words
        self._unnoted: dict[JobName, Backoff] = {}  # jobs onto which they could not be written
        self._fitted: object = None
        self.turns: Turns | None = None
        self._begun: Turns | None = None
        self._begun_for: object = None
        self._outside: dict[str, Claimed] = {}
        self.jobs = WatchedJobs(
            self._read_need,
            self._job_changed,
            self._made_by,
            self._has_our_pods,
            self.queue_of,
            serves=self._serves,
            others=self._other_pods,
        )
        self._awaited = AwaitedJobs(self.jobs)
        self.gangs = WatchedGangs(self.jobs, time.monotonic)
        service.follow_pods(self.gangs)
        self.publisher = Publisher(kube, time.monotonic, lambda found: service.tell(ObjectsFound(found)))
        self._events, self._job_events = EventRecorder(kube, COMPONENT), JobEvents()
        self.classes = WatchedClasses(self._ask_turn)
        self._classes = OptionalKinds(kube, metrics, (CLASSES,), self.classes, "priority classes")
        self._shared = Shared(
            prover, self.publisher, lambda: self._outbox.now.wall, self._job_events, learned, self._outside,
            self.classes, metrics, PIECE,
        )  # fmt: skip
        self._followed = OptionalKinds(kube, metrics, table.KINDS, self.jobs, "jobs")
        self._objects = OptionalKinds(kube, metrics, OBJECT_KINDS, self.publisher, "queues")
        self.quotas = WatchedTree(self._ask_turn, self._tell_tree)
        self._trees = OptionalKinds(kube, metrics, (TREES,), self.quotas, "quotas")
        self._queue_objects = QueueObjects()
        metrics.observe_queues(self._gauges)

    @property
    def queueing(self) -> Queueing:
        """The rules of the configuration in force."""
        return self._machine.interpreter.rules.queueing

    @contextmanager
    def look(self) -> Iterator[Turns | None]:
        """Read the turns with the lock of the machine."""
        with self._service.runner.look():
            yield self.turns

    def losses(self) -> tuple[JobLoss, ...]:
        """See `JobEvents.losses`; takes the lock of the machine for a moment."""
        with self._service.runner.look():
            return self._job_events.losses

    def queue_of(self, job: JobRef) -> str:
        """The queue of a job, "" if it is in none. Takes no lock."""
        turns = self.turns
        entry = None if turns is None else turns.queues.entries.get(job.key)
        return "" if entry is None or entry.asks is None else entry.asks.queue

    @property
    def has_listed_jobs(self) -> bool:
        """True once all job objects are known."""
        return self._followed.wait_until_listed(0)

    def read_anew(self) -> None:
        """Have all jobs read anew: their needs may be other ones now. From any thread."""
        self._relists = self._followed.relist()
        self.gangs.read_anew()

    def change(self, change: JobHeld | JobMoved) -> None:
        """Change the order of a queue. Raises UserError (503) while others of another configuration begin."""
        self._service.runner.handle(change)

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until it is so; asked with the lock. False if that takes longer."""
        return self._service.runner.wait_for(is_so, timeout_s)

    # Running

    def start(self) -> None:
        """Begin to follow jobs and, while this replica leads, to take turns."""
        if self.queueing.is_enabled:
            self._service.tell(QuotasFollowed(None, is_known=False))
        for each in (self._trees, self._classes, self._followed, self._objects):
            each.start()
        self._ask_turn()

    def stop(self) -> None:
        """Take no further turn."""
        self._is_stopping.set()
        for each in (self._trees, self._classes, self._followed, self._objects):
            each.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the watches to end after `stop`."""
        for each in (self._trees, self._classes, self._followed, self._objects):
            each.join(timeout_s)

    # Told by the watches, on their threads

    def _job_changed(self, name: JobName) -> None:
        self._service.tell(JobChanged(name))

    def _has_our_pods(self, job: Job) -> bool:
        return has_our_pods(job, self._machine.interpreter)

    def _other_pods(self, job: Job) -> int:
        return other_pods(job, self._machine.interpreter)

    def _serves(self, scheduler: str) -> bool:
        return self._machine.interpreter.serves(scheduler)

    def _made_by(self, job: JobName, maker: JobName | None) -> None:
        self._service.tell(JobsMade({job: maker}))

    def _ask_turn(self) -> None:
        self._service.tell(TurnAsked())

    def _read_need(self, job: Job) -> Need | None:
        return need_of(job, self._machine.interpreter)

    # A part of the machine

    @property
    def has_turn(self) -> bool:
        """See `machine.Queueing`."""
        return self._turn is not None

    def handlers(self) -> dict[type[Any], Callable[[Any], Any]]:
        """See `machine.Queueing`."""
        return {
            JobChanged: self._take_in,
            ObjectsFound: self._take_objects,
            TurnAsked: lambda _: self._soon(),
            TakeTurn: lambda _: self._go_on(),
            JobHeld: self._hold,
            JobMoved: self._move,
            ReclaimAsked: self._reclaim,
            ClaimsKept: self._keep_claims,
        }

    def follow_up(self) -> None:
        """See `machine.Queueing`."""
        changed, turns = self._machine.cache.jobs.take_changed(), self._present
        has_pods = turns is not None and turns.pods_changed(changed)
        if has_pods or self.gangs.has_changed:
            self._soon()
        elif turns is not None and turns.has_other_version:
            self._soon(OTHERS_S)

    def wrote(self, wrote: Wrote) -> None:
        """See `machine.Queueing`."""
        if isinstance(wrote.effect, Errand):
            self._errands.discard(wrote.effect.name)
            if wrote.effect.name == "objects":
                self.publisher.wrote(wrote.found or ())
                self._write_objects()
            elif wrote.effect.name == "awaited":
                self._awaited.take_answers(wrote.found or {}, self._outbox.now.wall)
                self._soon()
            self._write_events()
            return
        self._soon()
        assert isinstance(wrote.effect, CallJob), "there is no other one"
        if (name := self._notes.pop(wrote.effect.number, None)) is not None:
            _count_refusal(self._unnoted, name, self._outbox.now.wall, is_refused=wrote.error is not None)
            return
        turns, action = self._calls.pop(wrote.effect.number)
        error = "" if wrote.error is None else str(wrote.error)
        if turns is None:
            self._resumed(action, error)
        elif turns is self._present:
            turns.wrote(action, error)
            self._call_jobs(turns)
        else:  # of turns that are no more
            self._left[action.job.job_name] = None

    def begin_turn(self) -> None:
        """See `machine.Queueing`."""
        if self._turn is None and not self._is_stopping.is_set():
            self._turn, self._turn_of, self._has_news = self._take_turn(), self._term, False

    def begin_anew(self) -> None:
        """See `machine.Queueing`."""
        self._turn = self._begun_for = None

    def _soon(self, wait_s: float = LEAST_S) -> None:
        """Take a turn soon; after the one that has begun."""
        if self._turn is not None:
            self._has_news = self._has_news or wait_s == LEAST_S
        elif self._outbox.timers.due_of((TURN, "")) > self._outbox.now.at + wait_s:
            self._outbox.wake_in((TURN, ""), wait_s)

    def _take_in(self, fact: JobChanged) -> None:
        self._left[fact.name] = None
        self._find(fact.name)
        self._soon()

    def _find(self, name: JobName) -> SeenJob | None:
        """A job as it was seen last, with what its author says of its start: its news may not have been handled yet."""
        seen = self.jobs.find(name)
        if seen is None or seen.job.state.is_over or not is_timed(seen.job.annotations):
            self._waits.pop(name, None)
            self._unnoted.pop(name, None)
            return seen
        self._waits[name] = wait = wait_of(seen.job, self._outbox.now.wall, self._awaited)
        return msgspec.structs.replace(seen, wait=wait)

    def _look_at_starts(self) -> Iterator[float]:
        """Have jobs looked at that may start by now, or for another reason may not (rule 24.15). Cost O(such jobs).

        Yields 0 after each piece.
        """
        never: dict[JobName, bool] = {}
        now = self._outbox.now.wall
        for at, name in enumerate(list(self._waits), 1):
            if at % STARTS == 0:
                yield 0.0
            seen = self.jobs.find(name)
            if seen is None or name not in self._waits:
                continue
            wait, refused = wait_of(seen.job, now, self._awaited, never), self._unnoted.get(name)
            left = () if wait is None else wait.left
            if wait != self._waits[name]:
                self._waits[name], self._left[name] = wait, None
            self._awaited.want(seen.job, left)
            if (refused is None or refused.at_s <= now) and (wait is None or not wait.is_never):
                self._note(seen.job, written_after(left))
        if "awaited" not in self._errands and (questions := self._awaited.take_questions(now)):
            self._send("awaited", lambda _: ask(self._kube, questions))

    def _note(self, job: Job, after: str | None) -> None:
        """Write onto a job for which others it still waits, unless it says so; None removes that.

        What is left is refused if the job has changed since it was seen: it may have been released. Not while such a
        call on it is under way: the next look has it done.
        """
        name, said, is_left = job.ref.job_name, {marks.AFTER: after}, after is not None
        if name in self._notes.values() or job.annotations.get(marks.AFTER) == after:
            return
        if job.ref.kind == gangs.KIND:
            calls = tuple(
                gangs.annotate(job.ref.namespace, one.name, one.uid, said, one.seen.version if is_left else "")
                for one in self._machine.cache.jobs.pods_of(name)
            )
        else:
            calls = table.annotate(job.ref, said, job.version if is_left else "")
        self._call_count += 1
        self._notes[self._call_count] = name
        self._outbox.send(CallJob(self._call_count, job.ref, calls))

    def not_yet(self) -> list[SeenJob]:
        """The jobs that their authors do not let start yet, with the reasons."""
        with self._service.runner.look():
            found = [(self.jobs.find(name), wait) for name, wait in self._waits.items() if wait is not None]
        return [
            msgspec.structs.replace(seen, wait=wait)
            for seen, wait in found
            if seen is not None and seen.job.state is JobState.HELD
        ]

    @property
    def _term(self) -> object:
        """The term, state and rules that turns are for; None without queues."""
        core, queueing = self._machine.cache.core, self.queueing
        if core is None or not queueing.is_enabled:
            return None
        return self._machine.term, core.number, id(core.state), queueing, self.quotas.tree

    @property
    def _present(self) -> Turns | None:
        """The turns of the present term, though not all jobs may have been told to them."""
        turns = self._begun or self.turns
        return turns if turns is not None and self._begun_for == self._term else None

    def _changeable(self) -> Turns:
        if self.turns is None or self.turns is not self._present:
            raise UserError("queues are about to begin, or another replica leads: try again in a moment", 503)
        self._soon()
        return self.turns

    # Turns

    def _go_on(self) -> None:
        """The next piece of the turn; from its beginning if the term is another one by now."""
        if self._turn is None or self._is_stopping.is_set():
            self._turn = None
            return
        if self._turn_of != self._term:
            self._turn, self._turn_of = self._take_turn(), self._term
        try:
            wait_s = next(self._turn)
        except UserError as error:
            log.info("the service does not take part", extra={"fields": {"cause": error.message}})
            wait_s = LOOK_S
        self._write_events()
        if wait_s:
            self._turn = None
            self._outbox.wake_in((TURN, ""), min(wait_s, LEAST_S) if self._has_news else wait_s)

    def _take_turn(self) -> Iterator[float]:
        """Take facts in, decide, and have jobs called and recorded. Yields 0 after each piece, at the end the seconds
        until the next turn.
        """
        if (reading := self._machine.interpreter.reading) != self._reading:
            self._reading = reading
            self.read_anew()
        if self.gangs.is_due:
            self._send("gangs", lambda _: self.gangs.look())
        if self._turn_of is None:
            yield from self._do_without()
            return
        if not self._has_listed():
            yield LISTING_S
            return
        yield from self._look_at_starts()
        self._begin_term()
        turns = self._present
        assert turns is not None, "they have begun"
        if self.classes.take_changed():
            self._left |= dict.fromkeys(self.jobs.everything())
        yield from self._tell_left(turns)
        self._tell_quotas()
        turns.follow_pods()
        if self.publisher.has_words or turns.is_new:
            self.publisher.has_words = turns.is_new = False
            for item, problem in self._queue_objects.read(self.publisher.queue_items()):
                reason = "IgnoredQueue" if problem == OTHER_NAMESPACE else "InvalidQueue"
                self._send(f"queue {item.uid}", partial(self._tell, item, problem, reason, QUEUE_KIND))
            turns.told_objects(self._queue_objects)
        for _ in range(PIECES):
            turns.take_turn()
            self._call_jobs(turns)
            yield 0.0
            if not turns.queues.is_cut:
                break
        while turns.record(JOBS):
            yield 0.0
        self.publisher.sweep(self._begun_for, lambda: turns.known.with_objects(turns.queues.queues()))
        self._write_objects()
        yield LEAST_S if turns.queues.is_cut else LOOK_S

    def _has_listed(self) -> bool:
        """Are the tree and all jobs known, as the configuration in force has them read? Asked before turns begin.

        A silent API server delays them by no more than `LONGEST_LISTING_S`.
        """
        if self._present is not None:
            return True
        now = self._outbox.now.at
        until = self._listing_until = self._listing_until or now + LONGEST_LISTING_S
        is_listed = self.turns is not None or all(
            each.wait_until_listed(0) for each in (self._trees, self._classes, self._followed)
        )
        is_listed = is_listed and self.gangs.are_read and all(done.is_set() for done in self._relists)
        if not is_listed and now < until:
            return False
        if not is_listed:
            log.warning("queues begin although not all jobs and quotas could be listed")
        self._listing_until = 0.0
        return True

    def _begin_term(self) -> None:
        """Make the turns of the present term, if there are none."""
        if self._present is not None:
            return
        core = self._machine.cache.core
        assert core is not None, "this replica leads"
        earlier = (self._begun, *(self._earlier or (self.turns,)))  # latest first; some may not have been told all jobs
        self._earlier = tuple(each for each in earlier if each is not None)
        self._begun = Turns(self._machine, core, self.queueing, self.quotas.tree, self._shared)
        self._begun_for, self._resumes_for = self._term, None
        self._left = dict.fromkeys(self.jobs.everything())

    def _tell_left(self, turns: Turns) -> Iterator[float]:
        """Tell turns of jobs: of all, where they have just begun, which may hold cells for some already."""
        is_first = self._begun is not None
        while self._left:
            for name in list(islice(self._left, JOBS)):
                del self._left[name]
                turns.job_seen(name, self._find(name), is_first=is_first, earlier=self._earlier)
            if self._left:
                yield 0.0
        if not is_first:
            return
        self.turns, self._begun = turns, None
        for earlier in self._earlier:  # of the same service perhaps, which holds cells for jobs that are gone meanwhile
            earlier.leave_off(turns)
        self._earlier = ()
        self._fit(self.quotas.tree, turns.cluster)
        log.info("queues begin", extra={"fields": {"jobs": len(turns.queues.entries)}})

    def _send(self, name: str, run: Callable[[Callable[[], bool]], Any]) -> None:
        """Have something done off the lock; not while the last one of the name is under way."""
        if name not in self._errands:
            self._errands.add(name)
            self._outbox.send(Errand(name, run))

    def _write_objects(self) -> None:
        if "objects" not in self._errands and (due := self.publisher.take_due(WRITES)):
            self._send("objects", partial(self.publisher.carry_out, due))

    def _write_events(self) -> None:
        if "events" not in self._errands and self._job_events.has_due:
            self._send("events", partial(write_events, self._events, self._job_events.take(EVENTS, self._named_pods)))

    def _take_objects(self, told: ObjectsFound) -> None:
        self.publisher.take_in(told.found)
        if self.publisher.has_words:
            self._soon()

    def _named_pods(self, gang: JobRef) -> list[PodName]:
        return [record.named for record in self._machine.cache.jobs.pods_of(gang.job_name)]

    def _call_jobs(self, turns: Turns) -> None:
        """Have the next calls made."""
        for action in turns.take_actions(CALLS - len(self._calls)):
            if error := self._call(action, turns):
                turns.wrote(action, error)

    def _call(self, action: Action, turns: Turns | None) -> str:
        """Have an action carried out; an error if it cannot be, which is a mistake of ours."""
        try:
            calls = calls_of(action, self._pods_of(action), self._prover)
        except Exception as bug:
            log.exception("a job cannot be written")
            return f"{type(bug).__name__}: {bug}"
        self._call_count += 1
        self._calls[self._call_count] = turns, action
        self._outbox.send(CallJob(self._call_count, action.job, calls))
        return ""

    def _pods_of(self, action: Action) -> list[PodName]:
        """The pods of a job of a kind whose pods have gates; of one that is suspended those that have to go."""
        job, is_gang = action.job, action.job.kind == gangs.KIND
        kind = table.find_kind(job.api_version, job.kind)
        if not is_gang and (kind is None or not kind.has_gates):
            return []
        pods = self._machine.cache.jobs.pods_of(job.job_name)
        if action.change is not Change.SUSPEND:
            return [record.named for record in pods]
        if is_gang:
            self.gangs.suspended(job.job_name)
        may_go = not is_gang or action.kept.is_borrowed  # pods of a gang are not made anew
        started = (one for one in pods if gates.GATE not in one.seen.gates)
        return [one.named for one in started if may_go or one.seen.owner is not None]

    # Without queues

    def _do_without(self) -> Iterator[float]:
        """Drop what is held; where queues are off, resume jobs that hived holds."""
        core, is_off = self._machine.cache.core, not self.queueing.is_enabled
        for each in dict.fromkeys((self.turns, self._begun, *self._earlier)):
            if each is not None:
                self.publisher.forget_all()
                if core is not None:
                    each.leave_off()
        self.turns = self._begun = self._begun_for = None
        self._earlier = ()
        if is_off or self._trees.wait_until_listed(0):
            self._tell_quotas()
        if core is None or not is_off:
            self._resumes_for = None
            self._left.clear()  # whoever leads looks at all
            yield LOOK_S
            return
        if self._resumes_for != self._machine.term:
            if not self._has_listed():
                yield LISTING_S
                return
            self._resumes_for = self._machine.term
            self._left = dict.fromkeys(self.jobs.everything())
        yield from self._look_at_starts()
        self.publisher.sweep(self._machine.term, lambda: None)
        self._write_objects()
        now = self._outbox.now.wall
        self._left |= {name: None for name, refused in self._refused.items() if refused.at_s <= now}
        while self._left and len(self._calls) < CALLS:
            for name in list(islice(self._left, CALLS - len(self._calls))):
                del self._left[name]
                self._resume(name, now)
            yield 0.0
        yield LOOK_S

    def _resume(self, name: JobName, now: float) -> None:
        """Resume a job if hived holds it; one that was refused later each time."""
        seen, refused = self._find(name), self._refused.get(name)
        if seen is None or seen.job.state is not JobState.HELD:
            self._refused.pop(name, None)
            return
        if refused is not None and refused.at_s > now:
            return
        is_called = any(action.job.job_name == name for _, action in self._calls.values())
        state = read_kept(seen.job.annotations, seen.job.ref.uid, self._prover)
        if should_resume(seen.job, state) and not is_called and seen.wait is None:
            self._call(Action(seen.job.ref, Change.RESUME, state.followed_by(is_resumed=True, since_s=now)), None)

    def _resumed(self, action: Action, error: str) -> None:
        _count_refusal(self._refused, action.job.job_name, self._outbox.now.wall, is_refused=bool(error))

    # For others

    def _hold(self, change: JobHeld) -> None:
        turns = self._changeable()
        if change.key in turns.queues.entries:
            turns.queues.hold(change.key, is_held=change.is_held, is_now=change.is_now)
            self._call_jobs(turns)

    def _move(self, change: JobMoved) -> None:
        turns = self._changeable()
        if change.key in turns.queues.entries:
            turns.queues.move(change.key, change.to)
            self._call_jobs(turns)

    def _reclaim(self, asked: ReclaimAsked) -> None:
        """Suspend borrowers; a job that has ended meanwhile, or has left, is left alone."""
        turns = self._changeable()
        self._outside[asked.hold.key] = Claimed(asked.hold, asked.jobs)
        for job in asked.jobs:
            turns.reclaim_for(job.key, asked.hold.key)

    def _keep_claims(self, kept: ClaimsKept) -> None:
        gone = [key for key in self._outside if key not in kept.keys]
        for key in gone:
            del self._outside[key]
        if gone and self._present is not None:
            self._present.queues.room_made()
            self._soon()

    def _tell_quotas(self) -> None:
        """Have all that gets cells count against the tree. A leader's turns have begun, and hold cells for jobs."""
        self._machine.ask(QuotasFollowed(self.quotas.tree if self.queueing.is_enabled else None))

    def _fit(self, tree: QuotaTree | None, cluster: ClusterSpec) -> None:
        """See how a tree fits the cells of the virtual clusters, once for each tree and configuration."""
        if self._fitted == (tree, cluster):
            return
        self._fitted = tree, cluster
        resources = self._machine.interpreter.rules.resources_in(cluster)
        warnings, item = [] if tree is None else leaf_warnings(tree, cluster, resources), self.quotas.item
        if warnings and item is not None:
            log.warning("the ElasticQuotaTree does not fit the cells", extra={"fields": {"warnings": warnings[:50]}})
            self._send("tree", lambda _: self._tell_tree(item, "\n".join(warnings), "QuotaShape"))

    def _tell_tree(self, item: Object, problem: str, reason: str) -> None:
        self._tell(_Tree(item), problem, reason, TREE_KIND)

    def _tell(
        self, about: PodRef, problem: str, reason: str, kind: str, may_write: Callable[[], bool] | None = None
    ) -> None:
        if may_write is not None and not may_write():
            return
        try:
            self._events.record(about, WARNING, reason, problem, about=kind)
        except KubeError as error:
            log.warning("event not written", extra={"fields": {"reason": str(error)}})

    def waiting_pods(self) -> Counter[str]:
        """The pods that jobs which wait in queues will have, by virtual cluster. Cost O(jobs), without a lock."""
        turns, found = self.turns, Counter[str]()
        for one in () if turns is None else count(turns.queues).values():
            found[one.vc] += one.waiting_pods
        return found

    def _gauges(self) -> QueueGauges:
        turns = self.turns
        if turns is None:
            return QueueGauges()
        found = count(turns.queues)
        with self.look():
            shares = turns.queues.shares(found)
        return gauges(found, shares, wall_s())


class _Tree:
    """A quota tree as events name it."""

    def __init__(self, item: Object) -> None:
        metadata = item["metadata"]
        self.uid: str = metadata.get("uid", "")
        self.namespace: str = metadata.get("namespace", "default")
        self.name: str = metadata["name"]


class QueueLender:
    """Suspends borrowers for guaranteed work of no queue, such as Kueue's: a `machine.claims.Lender`."""

    def __init__(self, controller: QueueController, runner: Runner) -> None:
        self._controller, self._runner = controller, runner

    def lent(self) -> Lent:
        """See `Lender`."""
        with self._controller.look() as turns:
            return Lent() if turns is None else turns.lent()

    def reclaim(self, hold: Hold, jobs: Sequence[JobRef]) -> None:
        """See `Lender`."""
        self._runner.handle(ReclaimAsked(hold, tuple(jobs)))

    def forget_others(self, keys: Collection[str]) -> None:
        """See `Lender`."""
        self._runner.handle(ClaimsKept(frozenset(keys)))
