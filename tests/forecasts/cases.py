"""Forecasts of waiting jobs, made with the history known by then, and what came of them.

A simulated cluster is shown as a service would show it: snapshots of jobs that run and wait, at moments of virtual
time. The runs are traces of Philly where the shared folder has them, and random jobs.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from typing import NamedTuple

from hived.cells.state import GroupState
from hived.scenario import Asked
from hived.values.specs import ClusterSpec, Rules
from hived_config.access import AccessRules
from hived_extender.insight.forecast import ages, play
from hived_extender.insight.forward import Scene, scene_of
from hived_extender.insight.past import Past, Raw
from hived_extender.insight.snapshot import RunningFacts, Snapshot, WaitingEntry, jobs_of
from hived_extender.machine.offers import Asking
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Loop, Manner, Series
from hived_simulator.tasks import NEVER, Phase, Task, pod_of, pod_spec, tasks_of
from hived_simulator.traces.jobs import Job, Pods
from tests.quality import large
from tests.quality.large import GPUS, NODES, PROMISES, as_racks, large_cluster, node_quotas

GRACE_S = 30.0
OVERESTIMATES = (1.0, 1.0, 1.2, 1.5, 2.0, 4.0)
"""Declared limits are so many times as long as the jobs: people are careful, and some jobs run into their limit."""


class SimulatedService:
    """A run of the simulator, where jobs that have no room are passed, as kube-scheduler passes them.

    limited : the share of jobs that declare how long they run at the most
    """

    def __init__(self, spec: ClusterSpec, jobs: Sequence[Job], limited: float) -> None:
        """The tenant of a job is its virtual cluster."""
        self.tasks = [task for number, job in enumerate(jobs) for task in tasks_of(job, number, job.tenant)]
        self.task_of = {task.group: task for task in self.tasks}
        self._cluster = HivedCluster(spec)
        self._loop = Loop(self._cluster, self.tasks, (), Manner(GRACE_S, has_backfill=True), 0.0)
        self._loop.series = Series(0.0)  # nobody reads it
        self._limits = {task.group: _limit(task, limited) for task in self.tasks}
        self._coming = sorted(range(len(self.tasks)), key=lambda number: self.tasks[number].submitted_s, reverse=True)
        self._open: dict[int, Task] = {}
        self._starts: dict[str, list[float]] = {}
        self._lost: list[tuple[int, str]] = []
        self._ran: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Has everything happened?"""
        return self._loop.is_over

    def play_until(self, at_s: float) -> None:
        """Let everything happen before a moment."""
        while not self._loop.is_over and self._loop.agenda.next_s < at_s:
            self._loop.step()

    def snapshot(self, at_s: float) -> Snapshot:
        """The jobs now; nobody changes the state before the next step."""
        while self._coming and self.tasks[self._coming[-1]].submitted_s < at_s:
            number = self._coming.pop()
            self._open[number] = self.tasks[number]
        self._note_starts()
        over = [number for number, task in self._open.items() if task.phase in (Phase.ENDED, Phase.REFUSED)]
        for number in over:
            del self._open[number]
        waiting, running = [], {}
        for _, task in sorted(self._open.items(), key=lambda item: item[1].rank):
            if task.phase is Phase.RUNNING:
                running[task.group] = self._facts(task, at_s)
            elif task.phase in (Phase.WAITING, Phase.RESERVING):
                waiting.append(self._entry(task))
                if task.group in self._ran:
                    self._lose(task)
        self._ran = set(running)
        state = self._cluster.state
        jobs = jobs_of(state, running)
        return Snapshot(state, (0, 0), at_s, tuple(waiting), running, {}, {}, AccessRules(), {}, jobs, self._lost)

    def start_after(self, group: str, at_s: float) -> float | None:
        """When a job next started after a moment; None if it never did. An evicted job starts again."""
        self._note_starts()
        return next((started_s for started_s in self._starts.get(group, ()) if started_s >= at_s), None)

    def is_passed(self, group: str, at_s: float, started_s: float) -> bool:
        """Did a job that did not wait at a moment start between then and the start of a job that did?

        Guaranteed jobs are passed in their virtual cluster.
        """
        own = self.task_of[group]
        return any(
            (task.submitted_s >= at_s or starts[0] < at_s) and any(at_s <= each <= started_s for each in starts)
            for task, starts in ((self.task_of[name], starts) for name, starts in self._starts.items() if starts)
            if task is not own and (task.vc == own.vc or own.is_opportunistic)
        )

    def _note_starts(self) -> None:
        for task in self._open.values():
            known = self._starts.setdefault(task.group, [])
            if task.started_s != NEVER and (not known or known[-1] != task.started_s):
                if task.group in self._ran:
                    self._lose(task)
                known.append(task.started_s)

    def _lose(self, task: Task) -> None:
        """A task was preempted, which ran at the last look."""
        self._lost.append((len(self._lost) + 1, task.group))

    def _entry(self, task: Task) -> WaitingEntry:
        request = pod_of(task, pod_spec(task, task.priority, is_lazy=False), 0)
        return WaitingEntry(
            task.group, "simulated", task.vc, task.priority, (request.name,), (Asking(Asked(request)),),
            created_s=task.submitted_s, limit_s=self._limits[task.group],
        )  # fmt: skip

    def _facts(self, task: Task, at_s: float) -> RunningFacts:
        limit_s, group = self._limits[task.group], self._cluster.state.groups[task.group]
        return RunningFacts(
            job=task.group,
            namespace="simulated",
            started_s=task.started_s,
            ends_s=None if limit_s is None else task.started_s + limit_s,
            grace_s=GRACE_S,
            is_leaving=group.state is GroupState.BEING_PREEMPTED,
            gone_s=at_s + GRACE_S,
        )


def _limit(task: Task, limited: float) -> float | None:
    source = Random(f"limit {task.group}")
    factor = source.choice(OVERESTIMATES)
    return task.duration_s * factor if source.random() < limited else None


PLAYS = 10
"""As many as for a list of all jobs; a single job gets more."""


class Case(NamedTuple):
    """A forecast in seconds from when it was made, and how long the job then waited.

    `is_passed`: it started later than said, and before it a job that did not wait yet when the forecast was made, which
    no declaration covers.
    """

    kind: str
    vc: str
    likely_s: float
    by_s: float
    actual_s: float
    is_passed: bool


class Figures(NamedTuple):
    """Of one run; shares are in percent of the estimated cases, errors in minutes."""

    jobs: int
    cases: int
    certain: int
    bounded: int
    estimated: int
    unknown: int
    likely_holds: float
    by_holds: float
    certain_broken: int
    bounded_broken: int
    bounded_passed: int
    bounded_holds: float
    median_wait: float
    median_error: float
    median_by: float


class Made(NamedTuple):
    """A forecast of a waiting job, made at a moment of the run; waits in seconds from then."""

    job: str
    vc: str
    at_s: float
    kind: str
    likely_s: float
    by_s: float
    raw: Raw


def run(
    spec: ClusterSpec, jobs: Sequence[Job], limited: float, every_s: float, tell: Callable[[float], None]
) -> list[Case]:
    """Play jobs to the end, with a look every so many seconds. A job gets a forecast when it is seen to wait, and again
    each time it has waited twice as long. `tell` is told the share of the jobs that have been submitted.
    """
    service = SimulatedService(spec, jobs, limited)
    made = forecasts(service, every_s, tell)
    return [case for one in made if (case := judged(one, service)) is not None]


def forecasts(service: SimulatedService, every_s: float, tell: Callable[[float], None]) -> list[Made]:
    """All forecasts of a run, each with the past known by then. Afterwards the run is over."""
    past, made = Past(), list[Made]()
    last_s = max(task.submitted_s for task in service.tasks)
    at_s = every_s
    while not service.is_over and at_s <= last_s:
        service.play_until(at_s)
        scene = scene_of(service.snapshot(at_s))
        past.look(scene)
        made += _forecasts(scene, past)
        tell(at_s / last_s)
        at_s += every_s
    while not service.is_over:
        service.play_until(at_s)
        service.snapshot(at_s)
        at_s += every_s
    return made


def _forecasts(scene: Scene, past: Past) -> list[Made]:
    wanted = [number for number, waiter in enumerate(scene.waiters) if past.wants_forecast(waiter.entry.name, scene.at)]
    if not wanted:
        return []
    found, made = play(scene, past.durations.at(ages(scene)), PLAYS, bounded=wanted), list[Made]()
    corrector = past.corrector(scene.at)
    for number in wanted:
        raw, waiter = found[number], scene.waiters[number]
        factors = corrector.of(waiter.entry.vc, waiter.is_opportunistic)
        likely_s, by_s = factors.corrected(raw.likely_s, raw.by_s)
        kind = _kind(raw)
        if kind in ("certain", "bounded"):
            by_s = raw.bound_s if raw.reserved_s is None else raw.reserved_s
        made.append(Made(waiter.entry.name, waiter.entry.vc, scene.at, kind, likely_s, by_s, raw))
        past.note(waiter, scene.at, raw)
    return made


def _kind(raw: Raw) -> str:
    if raw.is_now:
        return "now"
    if raw.reserved_s is not None:
        return "certain"
    if raw.bound_s < math.inf:
        return "bounded"
    return "estimated" if raw.by_s < math.inf else "unknown"


def judged(made: Made, service: SimulatedService) -> Case | None:
    """A forecast and what came of it; None for a job that never started."""
    started_s = service.start_after(made.job, made.at_s)
    if started_s is None:
        return None
    is_passed = started_s > made.at_s + made.by_s and service.is_passed(made.job, made.at_s, started_s)
    return Case(made.kind, made.vc, made.likely_s, made.by_s, started_s - made.at_s, is_passed)


def figures(jobs: int, cases: Sequence[Case]) -> Figures:
    """The figures of a run."""
    of = {kind: [one for one in cases if one.kind == kind] for kind in ("certain", "bounded", "estimated", "unknown")}
    estimated = of["estimated"]
    late = [one for one in of["bounded"] if one.actual_s > one.by_s]
    return Figures(
        jobs=jobs,
        cases=len(cases),
        certain=len(of["certain"]),
        bounded=len(of["bounded"]),
        estimated=len(estimated),
        unknown=len(of["unknown"]),
        likely_holds=_percent(sum(one.actual_s <= one.likely_s for one in estimated), len(estimated)),
        by_holds=_percent(sum(one.actual_s <= one.by_s for one in estimated), len(estimated)),
        certain_broken=sum(one.actual_s > one.by_s + 1 for one in of["certain"]),
        bounded_broken=sum(not one.is_passed for one in late),
        bounded_passed=sum(one.is_passed for one in late),
        bounded_holds=_percent(len(of["bounded"]) - len(late), len(of["bounded"])),
        median_wait=_minutes([one.actual_s for one in estimated]),
        median_error=_minutes([abs(one.actual_s - one.likely_s) for one in estimated]),
        median_by=_minutes([one.by_s for one in estimated]),
    )


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else math.nan


def _minutes(seconds: Sequence[float]) -> float:
    return round(median(seconds) / 60, 1) if seconds else math.nan


EVERY_S = 600.0
"""Between two looks at the jobs; a service looks every minute."""

FORTNIGHT = 14.0
SMALLER = 96
"""Nodes for two weeks of Philly with the arrivals as they were: a load of 0.24 to 0.89."""

PRESSED = 4.0
"""Days into which two weeks are pressed for a load near 1 of 312 nodes."""

OPPORTUNISTIC = 0.2


class Run(NamedTuple):
    """One row of the table.

    first, last : days of Philly, both included; `days` that its arrivals are pressed into; on `nodes` nodes
    cells : or N, R, P, what random jobs of a cluster of 312 nodes are promised, at a `load`
    limited : share of the jobs that declare how long they run at the most
    """

    name: str
    rules: Rules = Rules.BETTER
    first: str = ""
    last: str = ""
    days: float = FORTNIGHT
    nodes: int = SMALLER
    cells: str = ""
    load: float = 1.0
    count: int = 2500
    limited: float = 0.0

    @property
    def needs_philly(self) -> bool:
        """Does it read the trace of Philly?"""
        return not self.cells

    def play(self, tell: Callable[[float], None]) -> tuple[int, list[Case]]:
        """The number of its jobs, and its cases; see `cases.run`."""
        spec, jobs = _philly(self) if self.needs_philly else _random(self)
        return len(jobs), run(spec, jobs, self.limited, EVERY_S, tell)


RUNS = (
    Run("philly-september", first="2017-09-18", last="2017-10-01"),
    Run("philly-october", first="2017-10-16", last="2017-10-29"),
    Run("philly-november", first="2017-11-13", last="2017-11-26"),
    Run("philly-november-hived", Rules.HIVED, first="2017-11-13", last="2017-11-26"),
    Run("philly-december-limits", first="2017-12-04", last="2017-12-17", limited=0.5),
    Run("philly-pressed", first="2017-10-16", last="2017-10-29", days=PRESSED, nodes=NODES),
    Run("N", cells="N"),
    Run("R-limits", cells="R", limited=0.5),
    Run("P-all-limits", cells="P", limited=1.0),
)
QUICK = (Run("R-quick", cells="R", load=1.5, count=400, limited=0.5),)


def _philly(asked: Run) -> tuple[ClusterSpec, list[Job]]:
    jobs = large.philly_jobs(asked.days, asked.first, asked.last)
    quotas = large.quotas_by_work(jobs, asked.nodes)
    return large_cluster(as_racks(quotas), asked.rules), _jobs(large.that_fit(jobs, quotas))


def _random(asked: Run) -> tuple[ClusterSpec, list[Job]]:
    promises = PROMISES[asked.cells]
    quotas = {vc: nodes * GPUS for vc, nodes in node_quotas(promises).items()}
    jobs = large.random_jobs(quotas, asked.load, OPPORTUNISTIC, asked.count, seed=1)
    return large_cluster(promises, asked.rules), _jobs(jobs)


def _jobs(jobs: Sequence[large.Job]) -> list[Job]:
    return [
        Job(
            job.name, job.vc, job.submitted, job.duration,
            tuple(Pods(count, leaves) for leaves, count in sorted(Counter(job.sizes).items())), priority=job.priority,
        )
        for job in jobs
    ]  # fmt: skip
