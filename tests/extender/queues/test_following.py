"""Queues know pods and work of no queue as if they looked at all of them, though they hear of changes alone."""

from random import Random

import pytest

from hived.cells.state import GroupState
from hived.values.specs import MIN_GUARANTEED_PRIORITY
from hived_extender.machine.recording.operations import STAND_IN
from hived_extender.queues.live_room import groups_within
from tests.extender.queues.by_hand import GPUS, QueuesByHand

NO_JOB = "none"
"""The controller of pods of no queue."""


def work_of_no_queue(hand: QueuesByHand) -> dict[str, bytes]:
    """The virtual leaves of all guaranteed groups that belong to no job of a queue."""
    pods = hand.cluster.service.machine.cache.jobs
    refs = [seen.job.ref for seen in hand.jobs.values()]
    queued = {
        each for ref in refs for each in groups_within(pods.pods_of(ref), hand.turns.queues.leaf_count_of(ref.key))
    }
    return {
        name: group.virtual.tobytes()
        for name, group in hand.cluster.state.groups.items()
        if group.state is GroupState.ALLOCATED and group.virtual is not None
        if group.spec.priority >= MIN_GUARANTEED_PRIORITY and name not in queued and not name.startswith(STAND_IN)
    }


@pytest.mark.parametrize("seed", range(12))
def test_changes_are_enough(seed: int) -> None:
    random, hand, others, compared = Random(seed), QueuesByHand(), ["other"], 0
    hand.cluster.come("other", NO_JOB, GPUS)
    hand.cluster.ask("other")
    for number in range(40):
        dice = random.randrange(7)
        if dice < 2 or not hand.jobs:
            hand.create(f"j{number}", random.choice((1, 2)), random.choice((0, 1)))
        elif dice == 2:
            name = random.choice(list(hand.jobs))
            hand.delete(name)
            hand.delete_pods(name)
        elif dice == 3 and (running := hand.let_go()):
            hand.end(name := random.choice(running))
            hand.delete_pods(name)
        elif dice == 4 and (ready := [name for name in hand.let_go() if name not in hand.pods]):
            hand.make_pods(name := random.choice(ready))
            hand.place_pods(name)
        elif dice == 5:
            others.append(f"other-{number}")
            hand.cluster.come(others[-1], random.choice((NO_JOB, *hand.jobs)), GPUS)
            hand.cluster.ask(others[-1])
        elif others:
            hand.cluster.drop(others.pop(random.randrange(len(others))))
        hand.look()
        hand.look()
        known = hand.turns._surroundings._groups.keys() | hand.turns._surroundings._refused.keys()
        assert known == work_of_no_queue(hand).keys()
        compared += len(known)
        states = hand.cluster.service.machine.holds.states()
        for key, entry in hand.turns.queues.entries.items():
            if entry.life.has_cells and entry.progress is not None:
                assert entry.progress == states[key]
    assert compared
