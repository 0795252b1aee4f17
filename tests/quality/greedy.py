"""What a guarantee costs and buys: hived's queues against EASY backfill, `python -m tests.quality.greedy --load 0.7`.

The load is that of `queues_ends`. Each policy runs it as it is, and once more with a greedy neighbour: the largest
virtual cluster submits each of its jobs three times. Counted are jobs of the other virtual clusters that start later
than they do alone on their own cells, by more than a grace period. EASY knows no virtual clusters.
"""

import sys
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from hived_simulator.easy import EasyCluster, EasyLoop
from hived_simulator.loop import Loop
from hived_simulator.queued import Queueing
from hived_simulator.results import HOUR_S, SLIGHT_S
from hived_simulator.tasks import Task, tasks_of
from hived_simulator.traces.fields import parse_duration
from hived_simulator.traces.jobs import Job
from tests.driver import new_parser
from tests.quality.queues import LARGE
from tests.quality.queues_ends import cluster, jobs, play

GREEDY = "vc-0"
TIMES = 3


class Row(msgspec.Struct, frozen=True):
    """A policy: delays in minutes, work in GPU-hours; of the others with a greedy neighbour, and without."""

    policy: str
    delay_min: float
    large_p95_min: float
    lost_hours: float
    others: int
    others_later: int
    most_hours: float
    later_without: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; returns the exit code: is anybody later under hived?"""
    parser = new_parser("tests.quality.greedy", __doc__)
    parser.add_argument("--racks", action="store_true", help="promise racks where nodes suffice for them")
    parser.add_argument("--load", type=float, default=0.7, help="share of all GPUs [default: 0.7]")
    parser.add_argument("--jobs", type=int, default=2000, help="[default: 2000]")
    parser.add_argument("--seed", type=int, default=1, help="[default: 1]")
    parser.add_argument("--checkpoint", default="0s", metavar="TIME", help="between saves [default: none]")
    given = parser.parse_args(arguments)
    load = jobs(given.jobs, given.load, given.seed, parse_duration(given.checkpoint, "--checkpoint"))
    rows = [compare(name, load, on_racks=given.racks) for name in ("queue", "easy")]
    print("\n".join(msgspec.json.encode(row).decode() for row in rows))
    return int(rows[0].others_later > 0)


def compare(policy: str, load: Sequence[Job], *, on_racks: bool, grace_s: float = 30.0) -> Row:
    """A policy with the load, and with a greedy neighbour."""
    spec = cluster(on_racks=on_racks)

    def run(wanted: Sequence[Job], name: str) -> dict[str, Task]:
        tasks = [task for number, job in enumerate(wanted) for task in tasks_of(job, number, job.tenant)]
        loop: Loop = EasyLoop(EasyCluster(spec), tasks, (), Queueing(), grace_s, 1e9)
        if name != "easy":
            loop = play(spec, wanted, borrows=name == "queue", grace_s=grace_s)
        loop.run()
        return {wanted[task.place[0]].name: task for task in loop.tasks}

    alone, plain, greedy = run(load, "alone"), run(load, policy), run(with_greedy(load), policy)
    others = [job.name for job in load if job.tenant != GREEDY]
    late = [greedy[name].first_s - alone[name].first_s for name in others]
    without = [plain[name].first_s - alone[name].first_s for name in others]
    delays = [task.first_s - task.submitted_s for task in plain.values()]
    large = sorted(task.first_s - task.submitted_s for task in plain.values() if task.shape.leaf_count >= LARGE)
    return Row(
        policy=policy,
        delay_min=sum(delays) / len(delays) / 60,
        large_p95_min=large[int(len(large) * 0.95)] / 60 if large else 0.0,
        lost_hours=sum(task.lost_s * task.shape.leaf_count for task in plain.values()) / HOUR_S,
        others=len(others),
        others_later=sum(each > grace_s + SLIGHT_S for each in late),
        most_hours=max(late, default=0.0) / HOUR_S,
        later_without=sum(each > grace_s + SLIGHT_S for each in without),
    )


def with_greedy(load: Sequence[Job]) -> list[Job]:
    """The load, in which the greedy virtual cluster submits all of its jobs three times."""
    more = [
        replace(job, name=f"{job.name}-{number}") if number else job
        for job in load
        for number in range(TIMES if job.tenant == GREEDY else 1)
    ]
    return sorted(more, key=lambda job: (job.submitted_s, job.name))


if __name__ == "__main__":
    sys.exit(main())
