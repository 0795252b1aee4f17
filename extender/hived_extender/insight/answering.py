"""Answers about jobs and nodes, for many callers at once, outside of the lock and of the event loop.

An answer that many callers ask for at once is computed once, by one of them, and kept for a moment. Changes of the
user's own (`hived why JOB --if CHANGE`) are tried together on the state of a snapshot.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from hived.values.errors import HivedError, UserError
from hived.why.relaxing import Emptied
from hived_extender.api.names import index
from hived_extender.api.waiting import (
    RECLAIMING,
    CauseName,
    Certificate,
    FreeCells,
    IfResult,
    Job,
    NodeView,
    Preempted,
    When,
    Why,
)
from hived_extender.insight.ended import EndedJobs
from hived_extender.insight.forecast import Forecaster
from hived_extender.insight.free_cells import free_cells
from hived_extender.insight.judge import Judge
from hived_extender.insight.listing import (
    ListedJob,
    if_drained,
    listed,
    node_views,
    parts_in,
    with_ended,
    with_held,
    without_pods,
)
from hived_extender.insight.snapshot import (
    LimitOf,
    Snapshot,
    WaitingEntry,
    has_troubles,
    own_pods,
    take,
    wholes_of,
    with_limits,
)
from hived_extender.insight.trials import (
    ACCEPTED,
    Change,
    ConfigurationChange,
    Ends,
    Known,
    Move,
    OtherCluster,
    Outcomes,
    Pods,
    Priority,
    Trials,
    read_change,
    refusal,
    state_after,
    type_names,
    words,
)
from hived_extender.insight.unblocks import unblocks_of
from hived_extender.jobs.job import JobName
from hived_extender.jobs.needs import QueuedRun, SeenJob, limit_of
from hived_extender.machine.apart import ApartError
from hived_extender.machine.certificates import NOBODY_HELPS, running_sentence, today
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import NotLeadingError

MOST_CHANGES = 16
"""Changes that are tried together."""

_HAS_ROOM = frozenset({"order", *RECLAIMING})
"""Causes of a job that would start itself: others keep it from that, who have to start anew."""


def read_changes(
    snapshot: Snapshot, entry: WaitingEntry, changes: Sequence[str], is_shown: Callable[[str], bool] = lambda name: True
) -> tuple[Change, ...]:
    """The changes that these words mean; `is_shown` tells which jobs and groups the caller may name.

    Raises UserError for changes that cannot be tried, with the words that would do.
    """
    if not entry.requests:
        raise UserError(f"no change can be tried: {entry.refusal or 'nothing is known of its pods'}")
    if not 1 <= len(changes) <= MOST_CHANGES:
        raise UserError(f"{len(changes)} changes; name 1 to {MOST_CHANGES} of {', '.join(ACCEPTED)}")
    topology = snapshot.state.topology
    known = Known(
        holders={
            job: [name for name in groups if is_shown(name)] for job, groups in snapshot.jobs.items() if is_shown(job)
        },
        wholes={str(whole): [*parts] for whole, parts in wholes_of(snapshot).items() if is_shown(str(whole))},
        nodes=frozenset(topology.node_names),
        virtual_clusters=frozenset(topology.vc_names),
        leaf_types=frozenset(topology.leaf_type_chains),
        cell_types=type_names(snapshot.state.spec).keys(),
    )
    read = tuple(read_change(text, known) for text in changes)
    jobs = {entry.name, entry.gang, *own_pods(snapshot).get(entry.object, ())}
    own = {*jobs, *(group for job in jobs for group in snapshot.jobs.get(job, ()))}
    for text, one in zip(changes, read, strict=True):
        if isinstance(one, Ends | Move) and not own.isdisjoint(one.names):
            raise UserError(f"{text!r} names the job itself, whose own pods are not in its way; name another job")
    return read


def try_changes(
    snapshot: Snapshot, entry: WaitingEntry, changes: Sequence[Change], judge_of: Callable[[Snapshot], Judge],
    before: Sequence[WaitingEntry] = (), mates: Sequence[WaitingEntry] = (), known: Outcomes | None = None,
) -> IfResult:  # fmt: skip
    """Would the job start at once with all of these changes, and else why not? Takes `snapshot.lock`; nothing changes.

    Jobs `before` it have the cells that they get; `mates` and `known` are as in `Trials`. `judge_of` makes the judge of
    a snapshot in which the changes are made. Raises UserError for changes that cannot be tried together. Cost: a few
    searches, and O(cells + pods) if the configuration is to be changed.
    """
    with snapshot.lock:
        trials = Trials(snapshot, entry, before, mates, known)
        _check(trials, changes)
        configured = [one for one in changes if isinstance(one, ConfigurationChange)]
        if configured:
            trials = Trials(replace(snapshot, state=state_after(snapshot.state, configured)), entry, before, mates)
        others = [one for one in changes if not isinstance(one, ConfigurationChange)]
        found = trials.change(others)
        if found.starts:
            pods, asked, waiting = trials.counts(found)
            return IfResult(
                starts=True, nodes=list(found.nodes), victims=list(found.victims), pods=pods, asked=asked,
                waiting=waiting,
            )  # fmt: skip
        changed, then = trials.changed(others)
        certificate = judge_of(changed).certificate(then)
    if certificate.cause in _HAS_ROOM:
        certificate = Certificate(sentence=found.reason, cause="unknown", vc=entry.vc, reason=found.reason)
    return IfResult(starts=False, certificate=certificate)


def _check(trials: Trials, changes: Sequence[Change]) -> None:
    """Raise UserError for changes that contradict each other, or that the job may not have."""
    kinds: dict[type[Change], Change] = {}
    for one in changes:
        other = kinds.setdefault(type(one), one)
        if other is not one and isinstance(one, Priority | Pods | OtherCluster):
            raise UserError(f"{words(other)!r} and {words(one)!r} cannot both be; keep only one")
    if Pods in kinds and len(trials.wanted) > 1:
        raise UserError(
            f"{words(kinds[Pods])!r}: {trials.entry.name} has pods of {len(trials.wanted)} kinds, which are not tried "
            "with other numbers"
        )
    vc, priority = kinds.get(OtherCluster), kinds.get(Priority)
    why = refusal(
        trials.snapshot,
        trials.entry,
        vc.name if isinstance(vc, OtherCluster) else trials.entry.vc,
        priority.value if isinstance(priority, Priority) else trials.entry.priority,
    )
    if why and (vc or priority):
        raise UserError(why)


V = TypeVar("V")

MOST_KEPT = 1024

REST = 50.0
"""An answer is kept for so many times the CPU that it took: all that ask again and again have 2 % of a core."""

REST_IN_NEED = 5.0
"""The same for a caller who needs a newer one."""

OLDEST_S = 20.0
"""No answer is kept for longer, whatever it took."""

PART_IN_NEED = 0.1
"""Of the seconds for which it is kept at least, for the same caller."""


class _Kept(msgspec.Struct, Generic[V]):
    """An answer that is being computed, or was: when that ended, and the CPU seconds that it took."""

    future: Future[V]
    ended: float = 0.0
    spent: float = 0.0


class SharedAnswers(Generic[V]):
    """By question; thread-safe. Twenty pages that ask alike cost as one.

    An answer is given for `kept_s` seconds of `clock`, or for longer if it took long (`REST`). How long that is `cpu`
    says, of this thread: on a busy machine answers are no older. An error is given to all that wait for it, and not
    kept.
    """

    def __init__(
        self,
        kept_s: float,
        clock: Callable[[], float],
        most: int = MOST_KEPT,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._kept_s, self._clock, self._most, self._cpu = kept_s, clock, most, cpu
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, _Kept[V]] = OrderedDict()
        self._coming: dict[Hashable, _Kept[V]] = {}  # not begun yet

    def get(self, question: Hashable, compute: Callable[[], V], *, needs_newer: bool = False) -> V:
        """The answer to a question: `compute()`, unless it is known or being computed. Raises as `compute`.

        A caller who needs what is not in an older answer has it computed anew earlier than others.
        """
        with self._lock:
            kept = self._answers.get(question)
            is_ours = kept is None or not self._lasts(kept, needs_newer=needs_newer)
            if kept is None or is_ours:
                kept = _Kept(Future())
                self._keep(question, kept)
        if is_ours:
            self._compute(question, kept, compute)
        return kept.future.result()

    def get_new(self, question: Hashable, compute: Callable[[], V]) -> V:
        """An answer that is begun after this call. Raises as `compute`.

        It is begun as late as `get` would for a caller who needs a newer one, so a flood costs no more: until then all
        callers wait for the same one.
        """
        with self._lock:
            older, known = self._answers.get(question), self._coming.get(question)
            coming = self._coming.setdefault(question, _Kept(Future()))
        if known is None:
            if older is not None:
                wait([older.future])
                time.sleep(max(self._until(older, needs_newer=True) - self._clock(), 0.0))
            with self._lock:
                self._keep(question, self._coming.pop(question))
            self._compute(question, coming, compute)
        return coming.future.result()

    def _keep(self, question: Hashable, kept: _Kept[V]) -> None:
        self._answers[question] = kept
        self._answers.move_to_end(question)
        self._forget()

    def _lasts(self, kept: _Kept[V], *, needs_newer: bool = False) -> bool:
        return not kept.future.done() or self._clock() < self._until(kept, needs_newer=needs_newer)

    def _until(self, kept: _Kept[V], *, needs_newer: bool) -> float:
        part, rest = (PART_IN_NEED, REST_IN_NEED) if needs_newer else (1.0, REST)
        return kept.ended + max(part * self._kept_s, min(rest * kept.spent, OLDEST_S))

    def _compute(self, question: Hashable, kept: _Kept[V], compute: Callable[[], V]) -> None:
        began = self._cpu()
        try:
            answer = compute()
        except BaseException as error:
            with self._lock:
                if self._answers.get(question) is kept:
                    del self._answers[question]
            kept.future.set_exception(error)
            return
        kept.ended, kept.spent = self._clock(), self._cpu() - began
        kept.future.set_result(answer)

    def _forget(self) -> None:
        """Forget answers that have ended, and the oldest if there are too many.

        Answers under way stay, as callers wait for them. Cost O(answers).
        """
        done = [(question, kept) for question, kept in self._answers.items() if kept.future.done()]
        over = len(self._answers) - self._most
        for number, (question, kept) in enumerate(done):
            if number < over or not self._lasts(kept):
                del self._answers[question]


class Glances(Generic[V]):
    """Looks at an answer that may take long, and is made beside. Thread-safe."""

    def __init__(self, compute: Callable[[], V]) -> None:
        self._compute, self._lock = compute, threading.Lock()
        self._latest: V | None = None
        self._coming: Future[V] | None = None

    def get(self, within_s: float) -> V | None:
        """The answer if it can be had in so many seconds, else an earlier one; None before the first.

        It is made anyway. Raises as `compute`.
        """
        with self._lock:
            if self._coming is None or self._coming.done():
                self._coming = Future()
                threading.Thread(target=self._fill, args=(self._coming,), daemon=True).start()
            coming = self._coming
        with suppress(TimeoutError):
            self._latest = coming.result(within_s)
        return self._latest

    def _fill(self, coming: Future[V]) -> None:
        try:
            coming.set_result(self._compute())
        except BaseException as error:
            coming.set_exception(error)


FRESH_S = 2.0
"""The greatest age of an answer. Pages ask again every few seconds."""

FORECAST_EVERY_S = 10.0
"""Between two forecasts of all jobs."""

FORECAST_REST = 15.0
"""Times the time that a forecast took: longer if that is more, so that it takes a fifteenth of another core."""

BROKEN_OFF = "the forecast broke off, ask again"
"""The reason of an unknown start whose forecast was killed, as where memory ran out, or took too long."""

NOT_FOUND = 404

_UNTIMED: Mapping[CauseName, str] = {
    "bad": "it is not known when the nodes are healthy again",
    "kubernetes": "it is not known how long rules of Kubernetes stand in the way",
}
"""Causes that do not end by jobs that end: no history of durations could tell until when they last."""

Causes = tuple[CauseName, ...]
"""All causes of a job, the first one first."""


OF_KUBERNETES = "Kubernetes keeps it off its cells by rules that hived does not know"

log = logging.getLogger(__name__)


class View(msgspec.Struct, frozen=True, eq=False):
    """A snapshot, with the jobs in it and why they wait: waiting ones in the order in which they are served, then
    those with cells by name, then those that were preempted and are gone, the latest first. `judge` is asked by who
    holds `snapshot.lock`. `named` has each job by its name, and by those of its groups and pods; `namespaces` has the
    namespaces of these names. `news` has the latest preemption of each job, by its name.
    """

    snapshot: Snapshot
    judge: Judge
    jobs: tuple[ListedJob, ...]
    certificates: Mapping[str, Certificate]
    named: Mapping[str, ListedJob]
    namespaces: Mapping[str, str]
    news: Mapping[str, Preempted]

    def find(self, name: str) -> ListedJob:
        """The job of this name, or that has a pod or a group of it. Raises UserError (404)."""
        found = self.named.get(name)
        if found is None:
            raise UserError(unknown(name), NOT_FOUND)
        return found


def _limits_in(objects: "JobObjects") -> LimitOf:
    def limit(name: JobName) -> float | None:
        seen = objects.object_of(name)
        return None if seen is None else limit_of(seen.job)

    return limit


def unknown(name: str) -> str:
    """The message about a job that does not exist, or that the caller may not see."""
    return f"no job, pod or affinity group {name} waits, runs or has cells; pods are named NAMESPACE/NAME"


class JobObjects(Protocol):
    """Job objects as the watches report them, for what their pods do not say."""

    def runs(self, names: Collection[str]) -> Mapping[str, QueuedRun]:
        """See `snapshot.Runs`."""

    def object_of(self, name: JobName) -> SeenJob | None:
        """A job object; None if there is none."""

    def called(self, name: str) -> Sequence[SeenJob]:
        """Jobs of a full name or of `NAMESPACE/NAME`, with any pods, and those that made an object of it."""

    def outside(self) -> Sequence[SeenJob]:
        """Jobs of no queue that have pods of ours, or will have some, or whose pods name our scheduler."""


class Answering:
    """Answers questions about jobs for HTTP and pages. Thread-safe; equal questions at one time are answered once."""

    def __init__(
        self,
        service: Service,
        forecaster: Forecaster | None = None,
        ended: EndedJobs | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        fresh_s: float = FRESH_S,
        objects: JobObjects | None = None,
    ) -> None:
        """Without a forecaster starts of jobs are unknown; without `ended` those end with the process."""
        self._objects = objects
        self._service = service
        self._ended = ended or EndedJobs()
        self._forecaster = forecaster
        self._clock = clock
        self._foreseen: Mapping[str, tuple[Causes, When]] = {}
        self._next_forecast, self._is_forecasting = -math.inf, threading.Lock()
        self._views: SharedAnswers[View] = SharedAnswers(fresh_s, clock)
        self._whys: SharedAnswers[Why] = SharedAnswers(fresh_s, clock)
        self._judged: SharedAnswers[Certificate] = SharedAnswers(fresh_s, clock)
        self._ifs: SharedAnswers[IfResult] = SharedAnswers(fresh_s, clock)
        self._nodes: SharedAnswers[list[NodeView]] = SharedAnswers(fresh_s, clock)
        self._free: SharedAnswers[list[FreeCells]] = SharedAnswers(fresh_s, clock)
        self._outcomes: tuple[Snapshot | None, Outcomes] = None, {}
        self._turn = threading.Lock()  # one answer at a time is worked out: each takes turns with filter calls
        self._emptied, self._judging = Emptied(), threading.Lock()

    def view(self, *, is_new: bool = False) -> View:
        """The jobs as they are now, or were a moment ago unless it `is_new`. Raises NotLeadingError."""
        self._service.check_leads()
        return (self._views.get_new if is_new else self._views.get)("view", self._in_turn(self._look))

    def find(self, name: str) -> tuple[View, ListedJob]:
        """A job, and the view that it is in: a newer one if an older one does not have it, or has it as preempted.

        If one of its name has ended, that view is begun now: the job may have been made anew. Raises UserError (404).
        """
        view = self.view()
        found = view.named.get(name)
        if found is None or found.job.state == "Preempted":
            if found is None and self.ended_job(name) is None:
                view = self._views.get("view", self._in_turn(self._look), needs_newer=True)
            else:
                view = self.view(is_new=True)
            found = view.named.get(name)
        if found is None and self._objects is not None:
            called = [seen for seen in self._objects.called(name) if not seen.job.state.is_over]
            found = next((view.named[each] for seen in called if (each := str(seen.job.ref)) in view.named), None)
            others = [seen for seen in called if not seen.is_ours]
            found = without_pods(others[0], view.snapshot.state.topology) if found is None and others else found
        return view, view.find(name) if found is None else found

    def why(self, name: str) -> Why:
        """All that is known of a job, with what would help if it waits. Raises UserError (404)."""
        view, listed = self.find(name)
        entry = listed.entry_of(name)
        mates = () if entry is None else listed.mates_of(entry, name)
        question = view.snapshot.version, listed.name, None if entry is None else entry.name, len(mates)
        return self._whys.get(question, lambda: self._why(view, listed, entry, mates))

    def ended(self, since_s: float = 0.0) -> list[Job]:
        """The jobs that ended since a moment, in seconds since 1970, the latest first. Raises NotLeadingError."""
        return self._ended.jobs(self.view().snapshot.at, since_s)

    def ended_job(self, name: str) -> Job | None:
        """The latest job that ended of this name, None if none is known. Raises NotLeadingError."""
        return self._ended.find(name, self.view().snapshot.at)

    def judged(self, entry: WaitingEntry) -> Certificate:
        """Return why a job that has no pods would not get its cells now, with what would help.

        Raises NotLeadingError.
        """
        view = self.view()

        def judge() -> Certificate:
            with view.snapshot.lock:
                found = view.judge.certificate(entry)
            return _with_unblocks(view.snapshot, entry, found, known=self._outcomes_of(view))

        return self._judged.get((view.snapshot.version, entry.name, entry.priority), self._in_turn(judge))

    def try_changes(
        self, name: str, changes: Sequence[str], is_shown: Callable[[str], bool] = lambda namespace: True
    ) -> IfResult:
        """Tries these changes for a waiting job, which name jobs of namespaces that are shown alone.

        Raises UserError.
        """
        view, listed = self.find(name)
        entry = listed.entry_of(name)
        if entry is None:
            raise UserError(f"{listed.name} does not wait: it is {listed.job.state.lower()}")
        return self.try_on(view, entry, _read(view, entry, changes, is_shown), mates=listed.mates_of(entry, name))

    def read(
        self, entry: WaitingEntry, changes: Sequence[str], is_shown: Callable[[str], bool]
    ) -> tuple[View, tuple[Change, ...]]:
        """Changes for a job that has no pods, and the view in which they are to be tried. Raises UserError."""
        view = self.view()
        return view, _read(view, entry, changes, is_shown)

    def try_on(
        self,
        view: View,
        entry: WaitingEntry,
        read: Sequence[Change],
        before: Sequence[WaitingEntry] = (),
        mates: Sequence[WaitingEntry] = (),
    ) -> IfResult:
        """The same as `try_changes` for a job that has no pods, of changes of `read`. Raises UserError.

        Jobs `before` it have the cells that they get, at their priority; `mates` are as in `Trials`.
        """
        others = *((one.name, one.priority) for one in before), len(mates)
        question = view.snapshot.version, entry.name, *map(words, read), *others
        return self._ifs.get(
            question,
            self._in_turn(
                lambda: try_changes(view.snapshot, entry, read, self._judge, before, mates, self._outcomes_of(view))
            ),
        )

    def troubles(self) -> dict[str, str]:
        """Troubles with the cells of jobs that run, by name: bad nodes, a lost guarantee. None if none leads.

        No view is taken while nothing is wrong.
        """
        try:
            if not has_troubles(self._service):
                return {}
            view = self.view()
            told = today(view.snapshot.at)
            troubled = (one.job for one in view.jobs if one.job.bad_nodes or one.job.demoted)
            return {job.name: running_sentence(job.bad_nodes, job.demoted, told) for job in troubled}
        except NotLeadingError:
            return {}

    def nodes(self, *, is_bad: bool = False) -> tuple[View, list[NodeView]]:
        """All nodes, or those that cannot be used wholly, and the view that they are of."""
        view = self.view()
        return view, self._nodes.get(
            (view.snapshot.version, is_bad), self._in_turn(lambda: _nodes(view, is_bad=is_bad))
        )

    def drained(self, node: str) -> tuple[View, NodeView]:
        """A node, with what the jobs on it would do if it were drained now. Raises UserError (404) if there is none."""
        view, found = self.nodes()
        one = next((each for each in found if each.node == node), None)
        if one is None:
            raise UserError(f"there is no node {node!r}", NOT_FOUND)

        def drain() -> list[NodeView]:
            with view.snapshot.lock:
                return [replace(one, if_drained=if_drained(view.snapshot, node))]

        return view, self._nodes.get((view.snapshot.version, node), self._in_turn(drain))[0]

    def free_cells(self) -> list[FreeCells]:
        """The cells of each level that each virtual cluster could give at once."""
        view = self.view()
        return self._free.get(view.snapshot.version, self._in_turn(lambda: _free_cells(view)))

    def _outcomes_of(self, view: View) -> Outcomes:
        """The outcomes of changes that were tried on the same snapshot: what helps is the same in a trial of it."""
        snapshot, known = self._outcomes
        if snapshot is not view.snapshot:
            self._outcomes = _, known = view.snapshot, {}
        return known

    def _in_turn(self, compute: Callable[[], V]) -> Callable[[], V]:
        """The same, while no other answer is worked out. Forecasts are apart, and are not waited for here."""

        def computed() -> V:
            with self._turn:
                return compute()

        return computed

    def _look(self) -> View:
        objects = self._objects
        snapshot = take(self._service)
        snapshot = snapshot if objects is None else with_limits(snapshot, objects.runs, _limits_in(objects))
        judge = self._judge(snapshot)
        with snapshot.lock:
            certificates = {entry.name: judge.certificate(entry) for entry in snapshot.waiting}
        self._foresee(snapshot, certificates)
        self._ended.look(snapshot)
        news, gone = self._ended.news(snapshot.at), self._ended.preempted(snapshot.at)
        used = self._ended.used(snapshot.at)
        jobs = tuple(with_ended(self._jobs(snapshot, certificates), news, gone, self._ended.since(), used))
        named = index([(one, (*one.job.pods, *one.groups, *one.parts)) for one in jobs])
        namespaces = {name: one.job.namespace for name, one in named.items()}
        return View(snapshot, judge, jobs, certificates, named, namespaces, news)

    def _jobs(self, snapshot: Snapshot, certificates: Mapping[str, Certificate]) -> list[ListedJob]:
        """All jobs in their order; those without pods stand after those that wait."""
        waiting, others = list[ListedJob](), list[ListedJob]()
        for parts in parts_in(snapshot):
            seen = None if self._objects is None else next(map(self._objects.object_of, parts.owners), None)
            if parts.waiting:
                entry = parts.waiting[0]
                found = certificates[entry.name]
                when = _start(found, self._soon(snapshot, entry, found))
                waiting.append(listed(snapshot, parts, found, when, seen))
            else:
                others.append(listed(snapshot, parts, seen=seen))
        known = {one.name for one in (*waiting, *others)}
        outside = () if self._objects is None else self._objects.outside()
        held, podless = list[ListedJob](), list[ListedJob]()
        for seen in outside:
            if str(seen.job.ref) not in known:
                (podless if seen.wait is None else held).append(without_pods(seen, snapshot.state.topology))
        left, apart = with_held([*waiting, *others], held)
        first = sum(bool(one.waiting) for one in left)
        return [*left[:first], *podless, *apart, *left[first:]]

    def _why(
        self, view: View, listed: ListedJob, entry: WaitingEntry | None, mates: Sequence[WaitingEntry] = ()
    ) -> Why:
        if entry is None:
            when = None if listed.waiting else listed.job.when
            return Why(job=listed.job, certificate=None if listed.waiting else listed.certificate, when=when)
        with self._turn:
            found = _with_unblocks(view.snapshot, entry, view.certificates[entry.name], mates, self._outcomes_of(view))
        when = self._soon(view.snapshot, entry, found)
        if when is None and self._forecaster is not None:
            when = self._forecast_one(self._forecaster, view.snapshot, entry)
        return Why(job=listed.job, certificate=found, when=_start(found, when))

    @staticmethod
    def _forecast_one(forecaster: Forecaster, snapshot: Snapshot, entry: WaitingEntry) -> When:
        """Return when a job starts, unknown if the process that works it out was killed: the rest of the answer is
        there.

        Each forecast has a process of its own, so the next question begins a new one.
        """
        try:
            return forecaster.of(snapshot, entry)
        except ApartError as error:
            log.warning("no forecast", extra={"fields": {"job": entry.name, "error": str(error)}})
            return When(kind="unknown", because=BROKEN_OFF)

    def _soon(self, snapshot: Snapshot, entry: WaitingEntry, found: Certificate) -> When | None:
        """Return when a job starts: now, if its cells are held, else as `_known`."""
        return When(kind="now") if snapshot.holds_cells_of(entry) else self._known(entry.name, found)

    def _known(self, name: str, found: Certificate) -> When | None:
        """The latest forecast of a job, None if the job waits for other causes by now."""
        causes, when = self._foreseen.get(name, ((), None))
        return when if causes == _causes(found) else None

    def _foresee(self, snapshot: Snapshot, certificates: Mapping[str, Certificate]) -> None:
        """Have all starts forecast beside everything else: with a thousand jobs that takes seconds.

        Lists have the forecasts of a moment ago, but none that was made while a job waited for other causes.
        """
        if self._forecaster is None or not snapshot.waiting or self._clock() < self._next_forecast:
            return
        if self._is_forecasting.acquire(blocking=False):
            threading.Thread(
                target=self._forecast, args=(self._forecaster, snapshot, certificates), daemon=True
            ).start()

    def _forecast(self, forecaster: Forecaster, snapshot: Snapshot, certificates: Mapping[str, Certificate]) -> None:
        began = self._clock()
        try:
            self._foreseen = {
                name: (_causes(certificates[name]), when) for name, when in forecaster.all(snapshot).items()
            }
        except HivedError as error:
            log.warning("no forecasts", extra={"fields": {"error": str(error)}})
        except Exception:
            log.critical("forecasts have failed, and others are tried", exc_info=True)
        finally:
            now = self._clock()
            self._next_forecast = now + max(FORECAST_EVERY_S, FORECAST_REST * (now - began))
            self._is_forecasting.release()

    def _judge(self, snapshot: Snapshot) -> Judge:
        """The judge of a snapshot. All have one empty cluster, which is made anew for another configuration."""
        return Judge(snapshot, self._emptied, self._judging)


def _read(
    view: View, entry: WaitingEntry, changes: Sequence[str], is_shown: Callable[[str], bool]
) -> tuple[Change, ...]:
    return read_changes(view.snapshot, entry, changes, lambda known: is_shown(view.namespaces.get(known, "")))


def _with_unblocks(
    snapshot: Snapshot,
    entry: WaitingEntry,
    found: Certificate,
    mates: Sequence[WaitingEntry] = (),
    known: Outcomes | None = None,
) -> Certificate:
    """With what would help; nothing where only Kubernetes' rules are in the way once others have left, as the core does
    not know these.
    """
    if found.rules.startswith(NOBODY_HELPS):
        return replace(found, untried=OF_KUBERNETES)
    return replace(found, unblock=unblocks_of(snapshot, entry, mates, known))


def _causes(found: Certificate) -> Causes:
    return found.cause, *found.also


def _start(found: Certificate, when: When | None) -> When | None:
    """Return when a job starts: never, if its certificate says that nothing could let it. What that says already is no
    reason.
    """
    if found.never:
        return When(kind="never")
    if when is not None and when.kind == "unknown":
        own = "" if when.because == found.sentence else when.because
        return replace(when, because=_UNTIMED.get(found.cause, own))
    return when


def _nodes(view: View, *, is_bad: bool) -> list[NodeView]:
    with view.snapshot.lock:
        return node_views(view.snapshot, is_bad=is_bad)


def _free_cells(view: View) -> list[FreeCells]:
    with view.snapshot.lock:
        return free_cells(view.snapshot.state)
