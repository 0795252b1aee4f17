"""EASY backfill over the whole cluster, against a plain version of it."""

from collections.abc import Sequence
from math import inf
from random import Random

import pytest

from hived_simulator.easy import EasyCluster, EasyLoop
from hived_simulator.queued import Queueing
from hived_simulator.tasks import Phase, Task
from hived_simulator.traces.jobs import Job
from tests.simulator.builders import NODE, cluster_of, job, tasks

SPEC = cluster_of(2, a={NODE: 2}, b={NODE: 2})
"""Four nodes of four GPUs."""


def play(jobs: Sequence[Job], limit_factor: float = 1.0) -> list[Task]:
    loop = EasyLoop(EasyCluster(SPEC), tasks(jobs), (), Queueing(limit_factor=limit_factor), 0.0, 600.0)
    loop.run()
    return list(loop.tasks)


def starts(*jobs: Job, limit_factor: float = 1.0) -> list[float]:
    return [task.first_s for task in play(jobs, limit_factor)]


def test_a_job_takes_more_than_its_virtual_cluster_is_promised() -> None:
    assert starts(job("wide", "a", 0, 10, (4, 4))) == [0]


def test_a_short_job_goes_past_one_that_waits_and_a_long_one_does_not() -> None:
    first = job("runs", "a", 0, 900, (3, 4))
    assert starts(first, job("head", "b", 1, 10, (4, 4)), job("short", "a", 2, 200, (1, 4))) == [0, 900, 2]
    assert starts(first, job("head", "b", 1, 10, (4, 4)), job("long", "a", 2, 3000, (1, 4))) == [0, 900, 910]


def test_a_long_job_goes_past_where_it_leaves_the_first_one_room() -> None:
    first = job("runs", "a", 0, 300, (3, 4))
    assert starts(first, job("head", "b", 1, 10, (3, 4)), job("long", "a", 2, 3000, (1, 4))) == [0, 300, 2]


def test_without_limits_nobody_delays_the_first_one() -> None:
    jobs = job("runs", "a", 0, 300, (3, 4)), job("head", "b", 1, 10, (4, 4)), job("short", "a", 2, 200, (1, 4))
    assert starts(*jobs, limit_factor=0.0) == [0, 300, 310]


def test_a_gang_is_on_as_few_nodes_as_it_can_be() -> None:
    small, gang = play([job("small", "a", 0, 10, (1, 1)), job("gang", "b", 0, 10, (3, 1))])
    assert (small.level, gang.level) == (gang.level, small.level)


def test_a_job_that_is_larger_than_the_cluster_is_refused() -> None:
    assert play([job("wide", "a", 0, 10, (5, 4))])[0].phase is Phase.REFUSED


class Plain:
    """One moment after the other; every job is asked each time, and every end is tried as the shadow time."""

    def __init__(self, jobs: Sequence[Task], limits: dict[str, float]) -> None:
        self.waiting = sorted(jobs, key=lambda task: task.rank)
        self.limits = limits
        self.free = [4] * 4
        self.running: dict[str, tuple[Task, float, list[tuple[int, int]]]] = {}
        self.starts: dict[str, float] = {}

    def place(self, task: Task, free: list[int]) -> list[tuple[int, int]] | None:
        """Each pod on the fullest node that has room, largest pods first."""
        left, found = list(free), []
        for count, size in reversed(task.shape.pods):
            for _ in range(count):
                able = [node for node in range(len(left)) if left[node] >= size]
                if not able:
                    return None
                node = min(able, key=lambda each: (left[each], each))
                left[node] -= size
                found.append((node, size))
        return found

    def run(self) -> dict[str, float]:
        now = 0.0
        while self.waiting or self.running:
            for name, (task, began, places) in list(self.running.items()):
                if began + task.duration_s <= now:
                    del self.running[name]
                    for node, size in places:
                        self.free[node] += size
            self.turn(now)
            ends = [began + task.duration_s for task, began, _ in self.running.values()]
            comes = [task.submitted_s for task in self.waiting if task.submitted_s > now]
            now = min([*ends, *comes], default=now)
        return self.starts

    def turn(self, now: float) -> None:
        there = [task for task in self.waiting if task.submitted_s <= now]
        while there and (places := self.place(there[0], self.free)) is not None:
            self.start(there.pop(0), now, places)
        if not there:
            return
        first, shadow, then = there[0], inf, list(self.free)
        held = [
            (max(since + self.limits[one], now), task.place, where)
            for one, (task, since, where) in self.running.items()
        ]
        for end, _, places in sorted(held, key=lambda each: each[:2]):
            if self.place(first, then) is not None and end > shadow:
                break
            for node, size in places:
                then[node] += size
            shadow = end
        for task in there[1:]:
            places = self.place(task, self.free)
            if places is None:
                continue
            beside = list(then)
            if not now + self.limits[task.group] <= shadow < inf:
                for node, size in places:
                    beside[node] -= size
                if self.place(first, beside) is None:
                    continue
            then = beside
            self.start(task, now, places)

    def start(self, task: Task, now: float, places: list[tuple[int, int]]) -> None:
        self.waiting.remove(task)
        self.running[task.group] = (task, now, places)
        self.starts[task.group] = now
        for node, size in places:
            self.free[node] -= size


@pytest.mark.sample(4)
@pytest.mark.parametrize("factor", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(8))
def test_random_loads_start_as_in_the_plain_version(seed: int, factor: float) -> None:
    random = Random(seed)
    sizes = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (3, 4), (4, 4), (3, 3)]
    jobs = [
        job(f"{number}", random.choice("ab"), random.randrange(2000), random.choice((60, 300, 900, 4000)),
            random.choice(sizes))
        for number in range(80)
    ]  # fmt: skip
    found = play(sorted(jobs, key=lambda each: each.submitted_s), factor)
    limits = Queueing(limit_factor=factor)
    declared = {task.group: inf if (limit := limits.limit_s(task)) is None else limit for task in found}
    wanted = Plain(found, declared).run()
    assert {task.group: task.first_s for task in found} == wanted
