"""Needless preemptions and locality on 312 nodes, by proofs; and jobs that start later than in a private cluster."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

from hived.specs import Rules
from tests.quality.exact_measures import Figures
from tests.quality.exhaustive import Wanted
from tests.quality.filters import Hall, equal_one_is_clean, lowest_level
from tests.quality.jobs import MIXED_SIZES, SIZES, Job, random_jobs
from tests.quality.large import GPUS, PROMISES, as_racks, large_cluster, node_quotas, with_surplus
from tests.quality.loop import Change, Course, Loop, Options, rewound
from tests.quality.plain import OPPORTUNISTIC, Plain, is_safe
from tests.quality.play import Answer, Play
from tests.quality.trace_jobs import trace_workload

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
