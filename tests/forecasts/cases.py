"""Forecasts of waiting jobs, made with the history known by then, and what came of them."""

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from hived.specs import ClusterSpec
from hived_extender.insight.forecast import ages, play
from hived_extender.insight.past import Past, Raw
from hived_extender.insight.scene import Scene, scene_of
from hived_simulator.traces.jobs import Job
from tests.forecasts.world import SimulatedService

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
