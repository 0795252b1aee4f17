"""Objects say what is so, though only jobs and queues that have changed are looked at."""

from random import Random

import pytest

from hived_extender.queues.publishing import QUEUES, UNITS, _unit_record
from hived_extender.queues.records import QUEUE_NAMESPACE, QueueRecord, UnitRecord, queue_name, unit_key, unit_name
from tests.extender.queues.by_hand import QueuesByHand


def wanted(hand: QueuesByHand) -> tuple[dict[str, UnitRecord | None], QueueRecord]:
    """What the objects of all jobs and of the queue are to say."""
    found = hand.turns._publisher._wanted
    units = {}
    for key, entry in hand.turns.queues.entries.items():
        record = found.get((UNITS, unit_key(entry.job.ref)))
        assert isinstance(record, UnitRecord)
        units[key] = record
    queue = found[QUEUES, (QUEUE_NAMESPACE, queue_name("a"))]
    assert isinstance(queue, QueueRecord)
    return units, queue


@pytest.mark.parametrize("seed", range(6))
def test_they_are_as_if_all_were_looked_at(seed: int) -> None:
    random, hand = Random(seed), QueuesByHand()
    for number in range(40):
        dice = random.randrange(6)
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
        hand.look()
        hand.turns.record()
        units, queue = wanted(hand)
        entries = hand.turns.queues.entries
        assert units == {key: _unit_record(entry) for key, entry in entries.items()}
        order = [entries[key] for key in hand.turns.queues.order("a")]
        assert [name for _, name, _ in queue.items] == [unit_name(entry.job.ref) for entry in order]


def test_a_queue_whose_last_job_that_waited_is_deleted_has_none() -> None:
    hand = QueuesByHand()
    hand.run("first")
    hand.create("second", 2)
    hand.look()
    hand.turns.record()
    assert len(wanted(hand)[1].items) == 1
    for name in ("first", "second"):
        hand.delete(name)
    hand.delete_pods("first")
    hand.look()
    hand.turns.record()
    assert wanted(hand)[1].items == []


def test_a_look_without_news_looks_at_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = QueuesByHand()
    for number in range(5):
        hand.create(f"j{number}")
    hand.look()
    hand.turns.record()
    hand.look()
    hand.turns.record()
    asked: list[object] = []
    monkeypatch.setattr(hand.turns._publisher, "want", asked.append)
    hand.look()
    hand.turns.record()
    assert asked == []
