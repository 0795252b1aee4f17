"""A gang starts as a whole or not at all, however slow kube-scheduler is and whoever takes the room in between."""

from collections.abc import Callable, Mapping

import pytest

from tests.extender.machine.small_cluster import NODES
from tests.extender.machine.small_gangs import koordinator
from tests.property.choices import Choices, Seeded
from tests.property.examples import examples
from tests.property.timed_scheduler import CPUS, TimedScheduler


def scheduler(seed: int = 0, *, slowest_s: float = 0.05) -> TimedScheduler:
    """On four nodes of four CPUs and four GPUs."""
    return TimedScheduler(Choices(Seeded(seed)), slowest_s=slowest_s)


def fill(run: TimedScheduler, *nodes: str) -> list[str]:
    """Strangers have all CPUs of these nodes."""
    return [run.stranger(node, CPUS) for node in nodes]


def none_in_part(run: TimedScheduler, gangs: Mapping[str, int]) -> bool:
    """No gang has some of its pods bound, and others not."""
    return all(len(run.bound(name)) in (0, count) for name, count in gangs.items())


def live(
    run: TimedScheduler,
    choices: Choices,
    strangers: list[str],
    is_sound: Callable[[], bool],
    *,
    more_come: bool = False,
) -> None:
    """Strangers leave, and may come, while something has to hold; in the end all have left."""
    for _ in range(12):
        run.run(choices.integer(0, 900) / 100)
        if strangers and choices.chance(40):
            run.leave(strangers.pop(choices.integer(0, len(strangers) - 1)))
        if more_come and run.free(node := choices.pick(NODES)) > 0 and choices.chance(50):
            strangers.append(run.stranger(node, choices.integer(1, run.free(node))))
        assert is_sound(), "\n".join(run.log)
    for stranger in strangers:
        run.leave(stranger)
    run.run(400)


def test_a_pod_whose_held_binding_was_refused_is_not_counted_as_accepted() -> None:
    run = scheduler()
    full, *_ = fill(run, "n1", "n2", "n3")
    run.stranger("n0", 1)
    run.gang("d", 4, [1, 1, 1, 4])
    run.run(4.5)  # three of four were accepted, and held back for too long
    fill_up = run.stranger("n0", run.free("n0")) if run.free("n0") > 0 else ""
    run.leave(full)
    run.run(120)
    assert run.bound("d") == [], "\n".join(run.log)
    run.leave(fill_up)
    run.run(120)
    assert len(run.bound("d")) == 4, "\n".join(run.log)


def test_of_two_gangs_with_room_for_one_one_starts_soon() -> None:
    for seed in range(examples(10)):
        run = scheduler(seed)
        fill(run, "n1", "n2", "n3")
        run.gang("a", 4, [1] * 4)
        run.gang("b", 4, [1] * 4)
        run.run(20)
        assert sorted(len(run.bound(gang)) for gang in "ab") == [0, 4], "\n".join(run.log)


def test_gangs_that_take_turns_all_run_in_the_end() -> None:
    run = scheduler()
    fill(run, "n2", "n3")
    names = "abcdef"
    for name in names:
        run.gang(name, 4, [1] * 4)
    for _ in names:
        run.run(60)
        for name in names:
            for pod in run.bound(name):
                run.leave(pod)
    left = {name for pod in run.cluster.kube.pods if (name := pod.rsplit("-", 1)[0]) in names}
    assert not left, "\n".join(run.log)


@pytest.mark.sample(10)
@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("slowest_s", [0.01, 0.5, 1.2])
@pytest.mark.parametrize("seed", range(examples(24)))
def test_no_gang_runs_in_part_whatever_the_timing(gpus: int, slowest_s: float, seed: int) -> None:
    run = scheduler(seed, slowest_s=slowest_s)
    choices = Choices(Seeded(seed + 1000))
    most = 2 if gpus else 3  # the virtual cluster has two nodes
    gangs = {name: choices.integer(2, 4) for name in "abc"[: choices.integer(1, most)]}
    strangers = [run.stranger(node, choices.integer(1, CPUS)) for node in NODES if choices.chance(70)]
    for name, count in gangs.items():
        run.gang(name, count, [1 if gpus or len(gangs) > 2 else choices.integer(1, 2) for _ in range(count)], gpus)
    live(run, choices, strangers, lambda: none_in_part(run, gangs), more_come=True)
    total = {name: len(run.bound(name)) for name in gangs}
    assert total == gangs, "\n".join(run.log)


@pytest.mark.parametrize("slowest_s", [0.01, 0.5])
@pytest.mark.parametrize("seed", range(examples(16)))
def test_of_a_gang_of_several_sizes_no_fewer_than_its_minimum_run(slowest_s: float, seed: int) -> None:
    run = scheduler(seed, slowest_s=slowest_s)
    choices = Choices(Seeded(seed + 2000))
    minimum, sizes = choices.integer(2, 3), [choices.integer(0, 4) for _ in range(4)]
    strangers = [run.stranger(node, choices.integer(1, CPUS)) for node in NODES if choices.chance(50)]
    for index, gpus in enumerate(sizes):
        run.create(f"a-{index}", choices.integer(1, 2), gpus, koordinator("a", minimum, total_number=4))
    live(run, choices, strangers, lambda: len(run.bound("a")) == 0 or len(run.bound("a")) >= minimum)
    assert len(run.bound("a")) >= minimum, "\n".join(run.log)


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize("seed", range(examples(12)))
def test_no_gang_that_is_not_strict_runs_in_part_either(gpus: int, seed: int) -> None:
    run = scheduler(seed, slowest_s=0.5)
    choices = Choices(Seeded(seed + 3000))
    gangs = {name: choices.integer(2, 4) for name in "ab"}
    strangers = [run.stranger(node, choices.integer(1, CPUS)) for node in NODES if choices.chance(70)]
    for name, count in gangs.items():
        run.gang(name, count, [1] * count, gpus, mode="NonStrict", waiting_time="60s")
    live(run, choices, strangers, lambda: none_in_part(run, gangs))
    assert {name: len(run.bound(name)) for name in gangs} == gangs, "\n".join(run.log)
