"""A simulated cluster as a service would show it: snapshots of jobs that run and wait, at moments of virtual time."""

from collections.abc import Sequence
from random import Random

from hived.specs import ClusterSpec
from hived.state import GroupState
from hived_config.access import AccessRules
from hived_extender.insight.snapshot import RunningFacts, Snapshot, WaitingEntry, jobs_of
from hived_simulator.hived_cluster import HivedCluster
from hived_simulator.loop import Loop, Manner, Series
from hived_simulator.tasks import NEVER, Phase, Task, pod_of, pod_spec, tasks_of
from hived_simulator.traces.jobs import Job

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
            task.group, "simulated", task.vc, task.priority, (request.name,), (request,), (None,), (), ((),),
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
