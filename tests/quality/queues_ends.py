"""What a job that is due keeps: `python -m tests.quality.queues_ends --racks --load 0.95`.

A load drawn by a seed has gangs of 16 to 128 GPUs and bursts; its jobs have 6 GPUs in the mean. It runs with queues
that lend and without, by `rules: 2`. Counted are jobs that start, start last, or end later than without lending by more
than a grace period, and evictions of jobs that were due. With `--checkpoint 30m` evicted jobs keep their work of whole
half hours. The same commit prints the same figures on any machine.
"""

import sys
from collections.abc import Sequence
from random import Random
from time import monotonic

import msgspec

from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, Rules, VirtualCellSpec, VirtualClusterSpec
from hived_extender.queues.units import Order, Start, Stop
from hived_simulator.queued import QueuedCluster, QueuedLoop, Queueing
from hived_simulator.results import HOUR_S, SLIGHT_S
from hived_simulator.tasks import NEVER, Task, tasks_of
from hived_simulator.traces.fields import parse_duration
from hived_simulator.traces.jobs import Job, Pods
from tests.driver import new_parser

RACKS, NODES, GPUS = 17, 8, 8
PROMISED = (24, 16, 16, 16, 8, 8, 8, 8, 8, 8, 4, 4, 4, 2, 2)
"""Nodes of each virtual cluster; together all of the cluster."""

SIZES = (
    (1, 1, 0.42),
    (1, 2, 0.14),
    (1, 4, 0.17),
    (1, 8, 0.15),
    (2, 8, 0.06),
    (4, 8, 0.04),
    (8, 8, 0.015),
    (16, 8, 0.005),
)
"""Pods, GPUs of each, and the share of jobs that ask for so many."""


class Ends(msgspec.Struct, frozen=True):
    """Figures of a run against the same load without lending; times in seconds, GPU-hours where it says hours."""

    jobs: int
    starts_later: int
    most_start_s: float
    last_starts_later: int
    ends_later: int
    most_end_s: float
    due_evicted: int
    upgraded: int
    evictions: int
    lost_hours: float
    useful_hours: float
    delay_s: float
    alone_delay_s: float
    turnaround_s: float
    alone_turnaround_s: float


def cluster(*, on_racks: bool) -> ClusterSpec:
    """136 nodes of 8 GPUs in racks of 8. Virtual clusters are promised nodes, or racks as far as these go."""
    promises = {}
    for number, nodes in enumerate(PROMISED):
        racks, rest = divmod(nodes, NODES) if on_racks else (0, nodes)
        cells = [VirtualCellSpec("RACK", racks)] if racks else []
        cells += [VirtualCellSpec("RACK.NODE", rest)] if rest else []
        promises[f"vc-{number}"] = VirtualClusterSpec(f"vc-{number}", tuple(cells))
    racks_of = [
        PhysicalCellSpec(
            "RACK", address=f"r{rack}", children=tuple(PhysicalCellSpec(address=f"n{rack}-{n}") for n in range(NODES))
        )
        for rack in range(RACKS)
    ]
    types = {"NODE": CellTypeSpec("NODE", "GPU", GPUS, is_node_level=True), "RACK": CellTypeSpec("RACK", "NODE", NODES)}
    return ClusterSpec(types, tuple(racks_of), promises, rules=Rules.BETTER)


def jobs(count: int, load: float, seed: int, checkpoint_s: float = 0.0) -> list[Job]:
    """A load: the GPU-seconds of a virtual cluster's jobs are in proportion to its nodes; some come in bursts."""
    random = Random(seed)
    drawn: list[tuple[int, Pods, float]] = []
    owed = [0.0] * len(PROMISED)
    for _ in range(count):
        pods, gpus, _share = random.choices(SIZES, [share for *_, share in SIZES])[0]
        duration_s = min(random.lognormvariate(8.2, 1.5), 5 * 86400.0) + 30.0
        able = [vc for vc, nodes in enumerate(PROMISED) if nodes * GPUS >= pods * gpus]
        vc = min(able, key=lambda each: (owed[each] + random.random() * 40 * HOUR_S) / PROMISED[each])
        owed[vc] += pods * gpus * duration_s
        drawn.append((vc, Pods(pods, gpus), round(duration_s)))
    horizon_s = sum(owed) / (RACKS * NODES * GPUS) / load
    moments, at_s = list[float](), 0.0
    while len(moments) < count:
        at_s += random.expovariate(1.0)
        moments += [at_s] * (1 if random.random() < 0.9 else random.randrange(2, 12))
    scale = horizon_s / moments[count - 1]
    made = [
        Job(f"j{number}", f"vc-{vc}", round(at_s * scale), float(duration_s), (pods,), checkpoint_s=checkpoint_s)
        for number, ((vc, pods, duration_s), at_s) in enumerate(zip(drawn, moments[:count], strict=True))
    ]
    return sorted(made, key=lambda job: (job.submitted_s, job.name))


class CountedLoop(QueuedLoop):
    """Counts evictions of jobs that were due."""

    due_evicted = upgraded = 0

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, Stop):
            entitled_s = self._queues.entitled_since(order.key)
            self.due_evicted += order.winner != order.key and entitled_s is not None
        elif not isinstance(order, Start):
            self.upgraded += 1
        super()._carry_out(order)


def play(spec: ClusterSpec, load: Sequence[Job], *, borrows: bool, grace_s: float) -> CountedLoop:
    """The whole run."""
    tasks = [task for number, job in enumerate(load) for task in tasks_of(job, number, job.tenant)]
    loop = CountedLoop(QueuedCluster(spec), tasks, (), Queueing(borrows=borrows), grace_s, 1e9)
    loop.run()
    return loop


def compare(spec: ClusterSpec, load: Sequence[Job], grace_s: float) -> Ends:
    """Run a load with lending and without."""
    alone, lending = (play(spec, load, borrows=borrows, grace_s=grace_s) for borrows in (False, True))
    pairs = list(zip(lending.tasks, alone.tasks, strict=True))
    slack_s = grace_s + SLIGHT_S
    starts = [one.first_s - other.first_s for one, other in pairs if other.first_s != NEVER]
    last = [one.started_s - other.started_s for one, other in pairs if other.first_s != NEVER]
    ends = [one.ended_s - other.ended_s for one, other in pairs if other.ended_s != NEVER]
    return Ends(
        jobs=len(pairs),
        starts_later=sum(late_s > slack_s for late_s in starts),
        most_start_s=max(starts),
        last_starts_later=sum(late_s > slack_s for late_s in last),
        ends_later=sum(late_s > slack_s for late_s in ends),
        most_end_s=max(ends),
        due_evicted=lending.due_evicted,
        upgraded=lending.upgraded,
        evictions=sum(one.eviction_count for one in lending.tasks),
        lost_hours=sum(one.lost_s * one.shape.leaf_count for one in lending.tasks) / HOUR_S,
        useful_hours=sum(one.duration_s * one.shape.leaf_count for one in lending.tasks) / HOUR_S,
        delay_s=_mean(lending.tasks),
        alone_delay_s=_mean(alone.tasks),
        turnaround_s=sum(task.ended_s - task.submitted_s for task in lending.tasks) / len(pairs),
        alone_turnaround_s=sum(task.ended_s - task.submitted_s for task in alone.tasks) / len(pairs),
    )


def _mean(tasks: Sequence[Task]) -> float:
    return sum(task.first_s - task.submitted_s for task in tasks) / len(tasks)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; returns the exit code."""
    parser = new_parser("tests.quality.queues_ends", __doc__)
    parser.add_argument("--racks", action="store_true", help="promise racks where nodes suffice for them")
    parser.add_argument("--load", type=float, default=0.95, help="share of all GPUs [default: 0.95]")
    parser.add_argument("--jobs", type=int, default=3000, help="[default: 3000]")
    parser.add_argument("--seed", type=int, default=1, help="[default: 1]")
    parser.add_argument("--checkpoint", default="0s", metavar="TIME", help="between saves [default: none]")
    parser.add_argument("--grace", default="30s", metavar="TIME", help="[default: 30s]")
    given = parser.parse_args(arguments)
    checkpoint_s, grace_s = (parse_duration(text, "the options") for text in (given.checkpoint, given.grace))
    began = monotonic()
    found = compare(cluster(on_racks=given.racks), jobs(given.jobs, given.load, given.seed, checkpoint_s), grace_s)
    print(f"{monotonic() - began:.0f} s", file=sys.stderr)
    print(msgspec.json.format(msgspec.json.encode(found)).decode())
    return int(bool(found.due_evicted or found.starts_later))


if __name__ == "__main__":
    sys.exit(main())
