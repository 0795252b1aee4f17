"""Whatever comes between two pieces of a turn: no job waits for ever, and no cells are held for nothing."""

from random import Random

import pytest
from msgspec.structs import replace

from hived_config.rules import Queueing
from hived_extender.jobs.job import JobState
from hived_extender.queues import controller
from hived_extender.queues.controller import should_resume
from tests.extender.queues.controller_by_hand import ControllerByHand

ON, OFF = Queueing(is_enabled=True), Queueing(is_enabled=False)
NODES = 2


def do_something(hand: ControllerByHand, random: Random, number: int) -> None:
    """Something happens, most often a few pieces."""
    dice = random.randrange(20)
    if dice < 4:
        hand.create(f"j{number}", random.choice((1, 1, 2)), random.choice((0, 0, 1)))
    elif dice == 4 and hand.jobs:
        hand.delete(random.choice(list(hand.jobs)))
    elif dice == 5:
        hand.configure(Queueing(is_enabled=True, half_life_s=1000.0 + number))
    elif dice == 6 and random.random() < 0.3:
        hand.configure(OFF)
    elif dice == 7 and random.random() < 0.5:
        hand.lead_again(lambda: [hand.step() for _ in range(random.randrange(3))] and None)
    elif dice == 8 and hand.jobs:
        name = random.choice(list(hand.jobs))
        hand.set(name, replace(hand.jobs[name], state=JobState.SUCCEEDED))
    elif dice < 11:
        hand.carry_out([name for name in hand.jobs if random.random() < 0.3])
    else:
        for _ in range(random.randrange(1, 6)):
            hand.step()


@pytest.mark.parametrize("seed", [*range(16), 22, 24, 144, 192, 329, 449, 746, 1404])
def test_nothing_is_lost_between_two_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "JOBS", 2)
    random, hand = Random(seed), ControllerByHand(monkeypatch)
    for number in range(random.randrange(20, 120)):
        do_something(hand, random, number)
    is_on = random.random() < 0.7
    hand.configure(ON if is_on else OFF)
    hand.run(400)
    assert hand.cluster.service.fault == ""
    waiting, running = hand.are(JobState.HELD), hand.are(JobState.RESUMED)
    assert hand.held() == (sorted(running) if is_on else [])
    assert not any(hand.kept(name).is_suspended for name in waiting), "no owner has suspended one"
    if is_on:
        sizes = {name: hand.needs[name].spec.group.members[0].pod_count for name in hand.jobs}
        free = NODES - sum(sizes[name] for name in running)
        assert not free or not waiting or any(sizes[name] > free for name in waiting), "idle cells"
    else:
        assert not any(should_resume(hand.jobs[name], hand.kept(name)) for name in waiting)
    core = hand.cluster.service.machine.cache.core
    assert core is not None
    assert len(core._followers) == is_on


def test_jobs_are_resumed_whenever_queues_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = ControllerByHand(monkeypatch)
    for name in "xyz":
        hand.create(name)
    for is_on, waiting in ((True, ["z"]), (False, []), (True, ["z"]), (False, [])):
        hand.configure(ON if is_on else OFF)
        hand.run(100)
        assert hand.are(JobState.HELD) == waiting


def test_a_job_that_is_deleted_while_queues_begin_again_and_again_keeps_no_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "JOBS", 1)
    before = ControllerByHand(monkeypatch)
    before.create("x")
    before.run(20)
    hand = ControllerByHand(monkeypatch)  # another process
    for name in ("x", "a", "b", "c", "d", "e"):
        hand.create(name)
    hand.set("x", before.jobs["x"])
    while not hand.held():
        hand.run(1)
    assert hand.held() == ["x"]
    hand.delete("x")
    for number in range(3):
        hand.configure(Queueing(is_enabled=True, half_life_s=1000.0 + number))
        hand.run(2)
    hand.run(200)
    assert hand.held() == sorted(hand.are(JobState.RESUMED)) == ["a", "b"]


def test_a_job_that_could_not_be_resumed_without_queues_and_is_gone_is_tried_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hand = ControllerByHand(monkeypatch)
    hand.configure(OFF)
    hand.create("x")
    for _ in range(8):
        hand.step()
        hand.carry_out(refused=["x"])
    assert list(hand.queues._refused) == [hand.jobs["x"].ref.job_name]
    hand.delete("x")
    hand.run(200)
    assert hand.queues._refused == {}
