"""Measures on 312 nodes: needless preemptions and locality by proofs, starts later than in a private cluster.

Two weeks of Philly, or another trace, show fragmentation inside VCs and saturation too. The published trace of Philly
is read from the shared folder. Quotas are in proportion to the GPU-hours of each VC's jobs. Nobody backfills, and
durations stay as they are.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import sqrt
from random import Random
from statistics import mean, stdev
from typing import NamedTuple

from hived.values.specs import ClusterSpec, Rules
from tests.quality.exhaustive import Wanted
from tests.quality.filters import Hall, equal_one_is_clean, lowest_level
from tests.quality.large import (
    GPUS,
    MIXED_SIZES,
    NODES,
    PROMISES,
    SIZES,
    Job,
    as_racks,
    large_cluster,
    node_quotas,
    philly_jobs,
    quotas_by_work,
    random_jobs,
    that_fit,
    trace_workload,
    with_surplus,
)
from tests.quality.loop import Change, Course, Loop, Options, rewound
from tests.quality.plain import OPPORTUNISTIC, Facts, Plain, is_safe
from tests.quality.play import Answer, Play
from tests.quality.small import Figures

HOUR = 3600.0
CROWD = 5000  # jobs of a trace of which every preemption and every gang is judged
DEFAULT, TOPOLOGY, SPARING, WITHIN, MIXED = WAYS = ("", "topology", "sparing", "within ROW", "mixed sizes")
"""How VCs have their groups placed, by keys of the file; or where their gangs ask to be."""


def crowd(rules: Rules, cells: str, way: str, load: float, share: float, count: int) -> Figures:
    """Random jobs at a load, a share of them opportunistic: what is evicted without need, and how near gangs are.

    way : one of WAYS

    any, equal : as for small clusters, as far as proofs go (lower bounds)
    gangs, near : groups of several pods, and those below a cell of the lowest level that was proved to be possible;
    `lent_` for opportunistic ones
    """
    promises = PROMISES[cells]
    quotas = {vc: nodes * GPUS for vc, nodes in node_quotas(promises).items()}
    return _judged(rules, promises, way, random_jobs(quotas, load, share, count, seed=1))


def trace_crowd(rules: Rules, cells: str, way: str, load: float, share: float, path: str) -> Figures:
    """The same of the first CROWD jobs of a trace, of which a share by chance is opportunistic; cells are N or R."""
    workload = trace_workload(path, load)
    promises = as_racks(workload.nodes) if cells == "R" else {vc: {"node": n} for vc, n in workload.nodes.items()}
    random = Random(f"opportunistic {share}")
    jobs = [replace(job, priority=OPPORTUNISTIC) if random.random() < share else job for job in workload.jobs[:CROWD]]
    return _judged(rules, promises, way, jobs)


def _judged(rules: Rules, promises: dict[str, dict[str, int]], way: str, jobs: list[Job]) -> Figures:
    play = Play(large_cluster(promises, rules, way == TOPOLOGY, way == SPARING))
    watch = _Watch(Hall(play.facts.plain))
    loop = Loop(play, Options(within="ROW" if way == WITHIN else ""), watch.see)
    courses = loop.run(jobs)
    watch.found["lost"] = round(sum(course.lost for course in courses.values()) / HOUR)
    return dict(watch.found)


class _Watch:
    def __init__(self, hall: Hall) -> None:
        self.hall = hall
        self.found: Counter[str] = Counter()

    def see(self, loop: Loop, wanted: Wanted, answer: Answer) -> None:
        """Judge an answer, on the facts before it."""
        running, found = answer.running, self.found
        if running is None:
            return
        plain = loop.play.facts.plain
        level = max(plain.common_level(leaf for pod in running.pods for leaf in pod), self.hall.node_level)
        is_lent = wanted.priority == OPPORTUNISTIC
        if not is_lent:
            found["leaves_started"] += running.leaf_count
        if answer.victims:
            found["preemptions"] += 1
            found["groups_evicted"] += len(answer.victims)
            found["leaves_evicted"] += sum(victim.leaf_count for victim in answer.victims)
            with rewound(loop.play.facts, answer) as before:
                if lowest_level(self.hall, before, wanted, self.hall.top_level + 2) is not None:
                    found["any"] += 1
                    found["leaves_any"] += sum(victim.leaf_count for victim in answer.victims)
                found["equal"] += equal_one_is_clean(before, running, wanted.within)
        if len(wanted.sizes) > 1:
            kind = "lent_" if is_lent else ""
            found[f"{kind}gangs"] += 1
            is_near = level == self.hall.node_level
            if not is_near:
                with rewound(loop.play.facts, answer) as before:
                    is_near = lowest_level(self.hall, before, wanted, level) is None
            found[f"{kind}near"] += is_near


def guarantee(rules: Rules, cells: str, way: str, share: float, bad: bool, count: int, seed: int) -> Figures:
    """Random jobs at a guaranteed load of .9, beside opportunistic ones: starts later than of the VC's jobs alone.

    The private cluster is the same one without jobs of others. With `bad`, nodes fail that are below no preassigned
    cell in use, as long as healthy cells are left for all promises; cells of nobody are kept for that. In the private
    cluster none fails.
    """
    promises = with_surplus(PROMISES[cells]) if bad else PROMISES[cells]
    quotas = {vc: nodes * GPUS for vc, nodes in node_quotas(promises).items()}
    jobs = random_jobs(quotas, 0.9 / (1 - share), share, count, seed, MIXED_SIZES if way == MIXED else SIZES)
    spec = large_cluster(promises, rules, way == TOPOLOGY, way == SPARING)
    plain = Plain(spec)
    changes = _failures(jobs[-1].submitted, seed) if bad else ()
    shared = Loop(Play(spec, plain)).run(jobs, changes)
    private: dict[str, Course] = {}
    for vc in promises:
        own = [job for job in jobs if job.vc == vc and job.priority > OPPORTUNISTIC]
        private |= Loop(Play(spec, plain)).run(own)
    return compare(shared, private)


def compare(shared: dict[str, Course], private: dict[str, Course]) -> Figures:
    """Jobs that start or end later than in the private cluster; seconds. Never started counts as a year."""
    later, ends, never = [], 0, 365 * 24 * HOUR
    for name, own in private.items():
        other = shared[name]
        assert own.started is not None, f"{name} never starts in its private cluster"
        late = (never if other.started is None else other.started) - own.started
        if late > 1e-6:
            later.append(late)
        ends += (other.ended or never) > (own.ended or never) + 1e-6
    total = sum(later)
    return {
        "jobs": len(private), "later": len(later), "later_sum_s": round(total, 3),
        "later_max_s": round(max(later, default=0.0), 3), "later_ends": ends,
    }  # fmt: skip


def _failures(until: float, seed: int) -> tuple[Change, ...]:
    """A node fails every 20 minutes where that hurts nobody, and heals after three hours."""
    random = Random(f"failures {seed}")
    failed: dict[int, str] = {}

    def fail(number: int) -> Callable[[Loop], None]:
        def act(loop: Loop) -> None:
            facts = loop.play.facts
            plain, owner = facts.plain, facts.owners()
            owner |= {cell: "" for cell in plain.node_cells if plain.node[cell] in facts.bad and cell not in owner}
            free = [cell for cell in plain.node_cells if not _is_below(plain, owner, cell)]
            if not free:
                return
            cell = random.choice(free)
            if is_safe(facts, owner | {cell: ""}):
                failed[number] = plain.node[cell]
                loop.play.set_node(plain.node[cell], is_healthy=False)

        return act

    def heal(number: int) -> Callable[[Loop], None]:
        def act(loop: Loop) -> None:
            if number in failed:
                loop.play.set_node(failed.pop(number), is_healthy=True)

        return act

    times = [number * 1200.0 for number in range(1, int(until // 1200) + 1)]
    return (
        *((time, fail(number)) for number, time in enumerate(times)),
        *((time + 3 * HOUR, heal(number)) for number, time in enumerate(times)),
    )


def _is_below(plain: Plain, owner: dict[int, str], cell: int) -> bool:
    while cell >= 0:
        if cell in owner:
            return True
        cell = plain.parent[cell]
    return False


DAYS = 1.5  # into which the arrivals of two weeks are pressed
Promises = dict[str, dict[str, int]]


def philly(rules: Rules, cells: str, topology: bool, over_quota: bool, checkpoint_s: float, days: float) -> Figures:
    """Two weeks of Philly with their arrivals pressed into `days`; see `_measured`."""
    return _measured(rules, cells, topology, over_quota, checkpoint_s, Source(days)) | {"load": round(load_of(days), 2)}


def trace(
    rules: Rules, cells: str, topology: bool, over_quota: bool, checkpoint_s: float, load: float, path: str
) -> Figures:
    """The trace in a file, with its arrivals moved so that they are this load; see `_measured`."""
    return _measured(rules, cells, topology, over_quota, checkpoint_s, Source(load, path)) | {"load": load}


class Source(NamedTuple):
    """Philly pressed into a number of days; with a path the trace there at a load."""

    days_or_load: float
    path: str = ""


def _measured(
    rules: Rules, cells: str, topology: bool, over_quota: bool, checkpoint_s: float, source: Source
) -> Figures:
    """One run against the private clusters: delays in minutes, work lost in GPU-hours, and fragmentation.

    delay : from submission to the end, without the job's own duration; `start` ones until the first start
    """
    jobs, promises = _load(cells, source)
    spec = large_cluster(promises, rules, topology)
    plain = Plain(spec)
    fragments = Fragments(plain)
    watch = fragments.see if cells == "N" and not over_quota and not topology else None
    loop = Loop(Play(spec, plain), Options(over_quota, checkpoint_s), watch)
    shared = loop.run(jobs)
    private = _private(rules, cells, topology, source)
    figures = compare(shared, private) | _delays(shared)
    figures |= {f"private_{name}": value for name, value in _delays(private).items()}
    figures["evicted"] = loop.evicted
    figures["lost"] = round(sum(course.lost for course in shared.values()) / HOUR, 1)
    if watch:
        figures |= fragments.figures(shared)
    return figures


def private_delays(rules: Rules, sigma: float, draws: int) -> Figures:
    """Delays in the private clusters of Philly over draws of other durations, see `drawn_delays`."""
    jobs, promises = _load("N", Source(DAYS))
    return drawn_delays(jobs, large_cluster(promises, rules), sigma, draws)


def drawn_delays(jobs: list[Job], spec: ClusterSpec, sigma: float, draws: int) -> Figures:
    """Mean delays in minutes in private clusters, over draws of other durations, and the standard error of their mean.

    Few queues decide a mean delay, so one run says little of the rules. Durations are multiplied by log-normal factors
    of this sigma; draws are the same for all rules.
    """
    plain, means = Plain(spec), list[float]()
    for draw in range(draws):
        random = Random(f"durations {draw}")
        drawn = [replace(job, duration=max(1.0, job.duration * random.lognormvariate(0, sigma))) for job in jobs]
        means.append(_delays(_run_alone(spec, plain, drawn))["start_mean"])
    error = stdev(means) / sqrt(draws)
    return {
        "draws": draws, "mean": round(mean(means), 1), "error": round(error, 1), "least": min(means), "most": max(means)
    }  # fmt: skip


@cache
def load_of(days: float) -> float:
    """GPU-hours that arrive, as a share of those that the cluster has meanwhile."""
    return sum(job.leaf_count * job.duration for job in philly_jobs(days)) / (NODES * GPUS * days * 24 * HOUR)


@cache
def _private(rules: Rules, cells: str, topology: bool, source: Source) -> dict[str, Course]:
    jobs, promises = _load(cells, source)
    spec = large_cluster(promises, rules, topology)
    return _run_alone(spec, Plain(spec), jobs)


def _run_alone(spec: ClusterSpec, plain: Plain, jobs: list[Job]) -> dict[str, Course]:
    """The jobs of each VC by themselves."""
    courses: dict[str, Course] = {}
    for vc in spec.virtual_clusters:
        courses |= Loop(Play(spec, plain)).run([job for job in jobs if job.vc == vc])
    return courses


def _load(cells: str, source: Source) -> tuple[list[Job], Promises]:
    if source.path:
        jobs, nodes, _ = trace_workload(source.path, source.days_or_load)
    else:
        jobs = philly_jobs(source.days_or_load)
        nodes = quotas_by_work(jobs, NODES)
    promises = as_racks(nodes) if cells == "R" else {vc: {"node": count} for vc, count in nodes.items()}
    return that_fit(jobs, nodes), promises


def _delays(courses: dict[str, Course]) -> Figures:
    ends = sorted((c.ended or 0.0) - c.job.submitted - c.job.duration for c in courses.values())
    starts = sorted((c.started or 0.0) - c.job.submitted for c in courses.values())
    return {
        "start_mean": round(sum(starts) / len(starts) / 60, 1),
        "delay_mean": round(sum(ends) / len(ends) / 60, 1),
        "delay_p50": round(ends[len(ends) // 2] / 60, 1),
        "delay_p95": round(ends[len(ends) * 95 // 100] / 60, 1),
        "delay_max": round(ends[-1] / 60, 1),
    }


@dataclass
class Fragments:
    """Heads of queues that wait although their VC has enough leaves, where cells are nodes.

    since : job -> when it was first refused; helped : can moving one group of the VC start it?
    """

    plain: Plain
    since: dict[str, float] = field(default_factory=dict)
    helped: dict[str, bool] = field(default_factory=dict)

    def see(self, loop: Loop, wanted: Wanted, answer: Answer) -> None:
        """Note a refused head. The loop asks only about heads for which the VC has leaves enough."""
        if answer.kind == "wait" and wanted.name not in self.since:
            self.since[wanted.name] = loop.now
            self.helped[wanted.name] = self._can_move_one(loop.play.facts, wanted)

    def figures(self, courses: dict[str, Course]) -> Figures:
        """GPU-hours that heads waited in all, and of these fragmented ones."""
        waited, last = 0.0, dict[str, float]()
        heads = 0
        for course in courses.values():
            job = course.job
            assert course.guaranteed_at is not None
            head_since = max(job.submitted, last.get(job.vc, 0.0))
            heads += course.guaranteed_at > head_since
            waited += (course.guaranteed_at - head_since) * job.leaf_count
            last[job.vc] = course.guaranteed_at
        fragmented = {name: (courses[name].guaranteed_at or 0.0) - since for name, since in self.since.items()}
        return {
            "heads": heads,
            "heads_hours": round(waited / HOUR),
            "fragmented": len(fragmented),
            "fragmented_hours": round(sum(s * courses[name].job.leaf_count for name, s in fragmented.items()) / HOUR),
            "one_move_helps": sum(self.helped.values()),
        }

    def _can_move_one(self, facts: Facts, wanted: Wanted) -> bool:
        """Could the head start if one group of the VC had other cells? Pods go where they fit most tightly."""
        groups = [g for g in facts.groups.values() if g.vc == wanted.vc and g.priority > OPPORTUNISTIC]
        free = [GPUS] * sum(self.plain.promises[wanted.vc].values())
        numbers: dict[int, int] = {}
        for group in groups:
            for pod in group.pods:
                number = numbers.setdefault(self.plain.node_cell(pod[0]), len(numbers))
                free[number] -= len(pod)
        for group in groups:
            left = list(free)
            for pod in group.pods:
                left[numbers[self.plain.node_cell(pod[0])]] += len(pod)
            if _pack(left, wanted.sizes) and _pack(left, tuple(map(len, group.pods))):
                return True
        return False


def _pack(free: list[int], sizes: tuple[int, ...]) -> bool:
    """Put pods where they fit most tightly, largest first; takes their leaves away. Do all have a place?"""
    for size in sorted(sizes, reverse=True):
        fitting = [(room, i) for i, room in enumerate(free) if room >= size]
        if not fitting:
            return False
        free[min(fitting)[1]] -= size
    return True
