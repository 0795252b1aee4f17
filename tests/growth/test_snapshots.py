"""The cost of a snapshot in looks at offers, each of which is O(slots x nodes): one for each part of a job."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hived_extender.insight import snapshot
from hived_extender.insight.snapshot import take
from hived_extender.machine.offers import Offers
from tests.extender.machine.small_cluster import SmallCluster, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

PODS = 8


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of slots of each offer that is looked up."""
    slots: list[int] = []
    real = Offers.of

    def of(self: Offers, request: Any, members: Any, **options: Any) -> Any:
        slots.append(len(members))
        return real(self, request, members, **options)

    monkeypatch.setattr(Offers, "of", of)
    return slots


def test_a_gang_is_looked_at_once_however_many_pods_it_has(asked: list[int]) -> None:
    small = SmallGangCluster()
    for gang in ("g", "h"):
        for index in range(PODS):
            small.pod(f"{gang}-{index}", gpus=1, annotations=koordinator(gang, PODS))
    asked.clear()
    waiting = take(small.service).waiting
    assert [len(entry.pods) for entry in waiting] == [PODS, PODS]
    assert asked == [PODS, PODS]


def test_a_group_in_our_own_words_is_looked_at_once(asked: list[int]) -> None:
    small = SmallCluster()
    for index in range(PODS):
        small.create(f"g-{index}", spec_text(leaf_cells=1, group="g", pods=PODS))
    asked.clear()
    (entry,) = take(small.service).waiting
    assert len(entry.pods) == PODS
    assert asked == [PODS]


def test_the_lock_is_held_for_a_part_of_the_offers_at_once(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCluster()
    for job in range(4):
        for index in range(PODS):
            small.create(f"{job}-{index}", spec_text(leaf_cells=1, group=f"g{job}", pods=PODS))
    monkeypatch.setattr(snapshot, "AT_ONCE", PODS)
    look, held = small.service.runner.look, list[int]()

    @contextmanager
    def counted() -> Iterator[Any]:
        asked.clear()
        with look() as machine:
            yield machine
        held.append(sum(asked))

    monkeypatch.setattr(small.service.runner, "look", counted)
    assert len(take(small.service).waiting) == 4
    assert sum(held) == 4 * PODS
    assert max(held) == PODS
