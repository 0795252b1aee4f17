"""The pods of a gang that start together, where its minimum is less than its pods (rules 26.4, 26.11)."""

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest

from hived_extender.jobs.asks import Ask
from hived_extender.jobs.kinds.description import Description, GangKey
from hived_extender.machine.gangs.plans import MOST_TRIES, Choices, Need
from hived_extender.machine.pods import PodRecord, Seen, Translation
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

KEY = GangKey("ns", "g")


def pods(*sizes: int, tasks: Sequence[str] = ()) -> tuple[PodRecord, ...]:
    """Waiting pods p0, p1 and so on, the oldest first."""
    return tuple(
        PodRecord(
            f"u{number}",
            f"p{number}",
            "ns",
            seen=Seen(created=f"2026-01-01T00:00:{number:02d}Z"),
            translation=Translation(
                0, Description("test", gang=KEY, task=tasks[number] if tasks else None), Ask("a", 0, size)
            ),
        )
        for number, size in enumerate(sizes)
    )


def leaves(members: Sequence[PodRecord]) -> int:
    return sum(record.ask.leaf_cell_count for record in members if record.ask is not None)


def best(choices: Choices, free: int, unlikely: Sequence[str] = ()) -> list[str]:
    """The names of those that start where so many GPUs are free on one node."""
    found = choices.best(lambda members: leaves(members) <= free, lambda record: record.name in unlikely)
    return [record.name for record in found]


@pytest.mark.parametrize(
    ("sizes", "minimum", "free", "expected"),
    [
        ((2, 1, 1), 2, 2, ["p1", "p2"]),
        ((2, 1, 1), 2, 3, ["p0", "p1"]),  # of two sets of two the one of older pods
        ((2, 1, 1), 2, 4, ["p0", "p1"]),  # all fit: the oldest start together, the other follows
        ((3, 1, 1, 1), 2, 4, ["p1", "p2", "p3"]),  # three, not two
        ((3, 1, 1, 1), 2, 5, ["p0", "p1", "p2"]),
        ((4, 1, 2, 1), 2, 3, ["p1", "p2"]),
        ((2, 1, 1), 2, 1, ["p1", "p2"]),  # nothing fits: the smallest wait
        ((1, 1, 1), 2, 2, ["p0", "p1"]),
        ((0, 2, 1), 2, 1, ["p0", "p2"]),  # a pod without devices counts
        ((0, 0, 2), 2, 1, ["p0", "p1"]),
    ],
)
def test_the_largest_set_that_fits_starts(sizes: tuple[int, ...], minimum: int, free: int, expected: list[str]) -> None:
    assert best(Choices(pods(*sizes), (Need(KEY, minimum),)), free) == expected


def test_every_task_has_its_own_minimum() -> None:
    ready = pods(1, 2, 2, 1, tasks=("ps", "worker", "worker", "worker"))
    needs = (Need(KEY, 1, "ps", of_task=True), Need(KEY, 2, "worker", of_task=True), Need(KEY, 3))
    assert best(Choices(ready, needs), 4) == ["p0", "p1", "p3"]
    assert best(Choices(ready, needs), 3) == ["p0", "p1", "p3"]  # waits for these


def test_a_pod_for_which_there_is_no_node_is_passed_over() -> None:
    choices = Choices(pods(1, 1, 1), (Need(KEY, 2),))
    assert best(choices, 8, unlikely=["p0"]) == ["p1", "p2"]
    assert best(choices, 8, unlikely=["p0", "p1"]) == ["p0", "p1"]  # it takes one of them: they are tried


def brute(choices: Choices, free: int) -> list[str]:
    """The same by trying every set."""
    ready = choices.ready
    if leaves(ready) <= free:
        return [record.name for record in choices.least(ready)]
    for count in range(len(ready), 0, -1):
        for found in itertools.combinations(ready, count):
            if leaves(found) <= free and choices.are_enough(found):
                return [record.name for record in found]
    return [record.name for record in choices.smallest()]


def test_it_is_the_one_that_trying_every_set_finds() -> None:
    chance = random.Random(3)
    for _ in range(1500):
        sizes = [chance.choice((1, 2, 4)) for _ in range(chance.randint(2, 7))]
        needs: tuple[Need, ...] = (Need(KEY, chance.randint(1, len(sizes))),)
        tasks = [chance.choice("ab") for _ in sizes]
        if chance.random() < 0.4:
            needs = (*needs, Need(KEY, chance.randint(1, tasks.count("a") or 1), "a", of_task=True))
        choices, free = Choices(pods(*sizes, tasks=tasks), needs), chance.randint(1, 12)
        if not choices.are_enough(choices.ready):
            continue
        assert best(choices, free) == brute(choices, free), (sizes, tasks, needs, free)


def test_a_gang_of_many_kinds_costs_no_more_than_a_bounded_number_of_tries() -> None:
    choices = Choices(pods(*range(1, 60)), (Need(KEY, 5),))
    tries = 0

    def fits(members: list[PodRecord]) -> bool:
        nonlocal tries
        tries += 1
        return leaves(members) <= 100

    found = choices.best(fits, lambda _record: False)
    assert tries <= MOST_TRIES
    assert len(found) == 13  # 1 + 2 + ... + 13 = 91


def gang(cluster: SmallGangCluster, *sizes: int, minimum: int = 2, name: str = "w", **more: Any) -> list[str]:
    """Create the pods of one gang, whose total is its size."""
    names = [f"{name}-{number}" for number in range(len(sizes))]
    for each, size in zip(names, sizes, strict=True):
        cluster.pod(each, size, koordinator(name, minimum, total_number=len(sizes)), **more)
    return names


def ask_all(cluster: SmallGangCluster, names: Sequence[str], times: int = 2) -> dict[str, str]:
    """Have kube-scheduler ask about each that has no place, in order, a few times."""
    for _ in range(times):
        for name in names:
            cluster.ask(name)
    return {name: node for name, node in cluster.decided().items() if name in names}


def test_the_two_that_fit_start_and_the_third_waits_for_its_own_reason() -> None:
    cluster = SmallGangCluster()
    cluster.pod("other-0", 4)
    cluster.pod("other-1", 2)
    assert set(ask_all(cluster, ["other-0", "other-1"])) == {"other-0", "other-1"}
    names = gang(cluster, 4, 1, 1)
    assert set(ask_all(cluster, names)) == {"w-1", "w-2"}
    assert "starts with" not in cluster.ask("w-0")
    for name in ("other-0", "other-1"):
        cluster.delete(cluster.kube.pods[name])
    assert set(ask_all(cluster, ["w-0"])) == {"w-0"}  # it joins when there is room


def test_a_pod_larger_than_any_node_keeps_nobody_from_starting() -> None:
    cluster = SmallGangCluster()
    names = gang(cluster, 8, 1, 1)
    assert set(ask_all(cluster, names)) == {"w-1", "w-2"}


def test_a_pod_that_no_node_suits_keeps_nobody_from_starting() -> None:
    cluster = SmallGangCluster()
    notes = koordinator("w", 2, total_number=3)
    cluster.pod("w-0", 1, notes, nodeSelector={"disk": "none"})
    cluster.pod("w-1", 1, notes)
    cluster.pod("w-2", 1, notes)
    assert set(ask_all(cluster, ["w-1", "w-2"])) == {"w-1", "w-2"}


def test_fewer_than_the_minimum_start_none() -> None:
    cluster = SmallGangCluster()
    cluster.pod("other-0", 4)
    cluster.pod("other-1", 3)
    cluster.ask("other-0")
    cluster.ask("other-1")
    names = gang(cluster, 2, 1, 1)
    assert ask_all(cluster, names) == {}
    cluster.delete(cluster.kube.pods["other-1"])
    assert len(ask_all(cluster, names)) == 3
