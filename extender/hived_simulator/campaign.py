"""All runs of a simulation, one after the other: each policy on the trace, then on every draw of durations.

The private clusters come first, because the others are compared with them. Files of a policy are written once its run
on the trace is over, the rest at the end. A campaign can be interrupted between any two events, and goes on from there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hived import __version__
from hived_simulator import checkpoints
from hived_simulator.clusters import SimulatedCluster
from hived_simulator.loop import Loop, Series
from hived_simulator.plan import FORMAT, Input, Kind, Options, Plan, Policy
from hived_simulator.results import (
    Against,
    Difference,
    Measured,
    Outcome,
    Summary,
    differences,
    excesses,
    outcomes,
    redrawn,
    summaries,
)
from hived_simulator.traces.jobs import Trace
from hived_simulator.writing import (
    as_json,
    differences_table,
    jobs_table,
    series_table,
    vcs_table,
    write,
)


class Progress(msgspec.Struct, frozen=True):
    """The progress of a campaign. `done` and `total` count tasks that need no cells any more, of all runs."""

    policy: str
    draw: int
    at_s: float
    done: int
    total: int


class Kept(msgspec.Struct):
    """The runs of a campaign so far; this is written to disk.

    number : of the present run, counted over all policies and draws
    loop : that of the present run; None before it starts
    totals, rows : of finished runs, by policy: all virtual clusters together for each draw; every one for the trace
    private : the outcomes in the private clusters on the present draw
    """

    number: int = 0
    loop: Loop | None = None
    totals: dict[str, list[Summary]] = msgspec.field(default_factory=dict)
    rows: dict[str, list[Summary]] = msgspec.field(default_factory=dict)
    private: list[Outcome] | None = None


class TraceRun(msgspec.Struct, frozen=True):
    """The trace of a simulation; `start` is in seconds since 1970, None if it tells no date."""

    file: Input
    name: str
    jobs: int
    start: float | None
    submitted_until_s: float
    notes: tuple[str, ...] = ()


class PolicyRun(Policy, frozen=True, kw_only=True):
    """A policy, the folder of its files, and its figures of all virtual clusters together."""

    folder: str
    total: Summary


class Report(msgspec.Struct, frozen=True):
    """`run.json`: the inputs of a simulation, and the totals."""

    format: str
    version: str
    configuration: Input
    trace: TraceRun
    options: Options
    tenants: dict[str, str]
    changes: list[dict[str, Any]]
    policies: tuple[PolicyRun, ...]
    differences: tuple[Difference, ...]


class Campaign:
    """All runs of a plan, whose results are written to one folder."""

    def __init__(self, plan: Plan, out: Path) -> None:
        """Go on from the checkpoint in the folder `out`, if there is one. UserError if that is of other inputs."""
        self.plan = plan
        self._out = out
        self._identity = plan.identity
        found = checkpoints.load(out, self._identity)
        self.is_resumed = found is not None
        self._kept: Kept = Kept() if found is None else found
        self._trace = plan.trace
        self._trace_of_draw = 0
        self._task_count = len(plan.tasks(plan.trace))

    @property
    def can_resume(self) -> bool:
        """Queues are not written to disk, so a simulation with them begins anew."""
        return not self.plan.has_queues

    @property
    def _run_count(self) -> int:
        return len(self.plan.policies) * (1 + self.plan.options.draws)

    def run(
        self, tell: Callable[[Progress], None], must_stop: Callable[[], bool], now_s: Callable[[], float], save_s: float
    ) -> bool:
        """Work until all is done, or until `must_stop`: then the checkpoint is written, and the answer is False.

        `now_s` is a clock; a checkpoint is written each `save_s` of its seconds, if it `can_resume`.
        """
        saved_s = now_s()
        for progress in self._steps():
            tell(progress)
            is_stopped = must_stop()
            if self.can_resume and (is_stopped or now_s() - saved_s >= save_s):
                checkpoints.save(self._out, self._identity, self._kept)
                saved_s = now_s()
            if is_stopped:
                return False
        self._finish()
        checkpoints.discard(self._out)
        return True

    def totals(self) -> dict[str, Summary]:
        """The figures of each policy's run on the trace, all virtual clusters together."""
        return {name: rows[0] for name, rows in self._kept.rows.items()}

    def _steps(self) -> Iterator[Progress]:
        kept = self._kept
        while kept.number < self._run_count:
            draw, place = divmod(kept.number, len(self.plan.policies))
            policy = self.plan.policies[place]
            if kept.loop is None:
                kept.loop = self._start(policy, draw)
            loop = kept.loop
            while not loop.is_over:
                loop.advance()
                done = self._task_count - loop.now.open_count
                before = kept.number * self._task_count
                total = self._run_count * self._task_count
                yield Progress(policy.name, draw, loop.now.at_s, before + done, total)
            loop.finish()
            self._end(policy, draw, loop)
            kept.number, kept.loop = kept.number + 1, None

    def _drawn(self, draw: int) -> Trace:
        if self._trace_of_draw != draw:
            self._trace = redrawn(self.plan.trace, self.plan.options.seed, draw) if draw else self.plan.trace
            self._trace_of_draw = draw
        return self._trace

    def _start(self, policy: Policy, draw: int) -> Loop:
        loop = self.plan.loop(policy, self._drawn(draw))
        if draw:
            loop.series = Series(0.0)  # not read
        return loop

    def _end(self, policy: Policy, draw: int, loop: Loop) -> None:
        kept = self._kept
        found = outcomes(loop.tasks, [loop.cluster.best_level(task) for task in loop.tasks])
        if policy.kind == Kind.PRIVATE:
            kept.private = found
        against = None
        if kept.private is not None and policy.kind != Kind.PRIVATE:
            against = Against(kept.private, list(excesses(found, kept.private)))
        rows = summaries(found, Measured(loop.promises, loop.usage, loop.measured_s), against)
        kept.totals.setdefault(policy.name, []).append(rows[0])
        if not draw:
            kept.rows[policy.name] = rows
            self._write_run(policy, found, against, loop.series, loop.cluster)

    def _write_run(
        self, policy: Policy, found: list[Outcome], against: Against | None, series: Series, cluster: SimulatedCluster
    ) -> None:
        folder = self._out / policy.name
        later = None if against is None else against.excesses
        write(folder / "jobs.csv", jobs_table(self.plan.trace, found, later, cluster))
        write(folder / "series.csv", series_table(series.rows))

    def _finish(self) -> None:
        plan, rows = self.plan, self._kept.rows
        found = differences(self._kept.totals)
        write(self._out / "vcs.csv", vcs_table(rows))
        write(self._out / "vcs.json", as_json(rows))
        write(self._out / "differences.csv", differences_table(found))
        if plan.options.draws:
            write(self._out / "draws.json", as_json({name: all_of[1:] for name, all_of in self._kept.totals.items()}))
        jobs, named = plan.trace.jobs, plan.trace
        trace = TraceRun(plan.trace_file, named.name, len(jobs), named.start, jobs[-1].submitted_s, named.notes)
        policies = tuple(
            PolicyRun(**msgspec.structs.asdict(policy), folder=policy.name, total=rows[policy.name][0])
            for policy in plan.policies
        )
        changes = [
            {"at_s": change.at_s, "text": change.text} | ({"configuration": file} if file else {})
            for change, file in zip(plan.changes, plan.change_files, strict=True)
        ]
        report = Report(
            FORMAT, __version__, plan.policies[0].configuration, trace, plan.options, plan.tenants, changes, policies,
            tuple(found),
        )  # fmt: skip
        write(self._out / "run.json", as_json(report))
