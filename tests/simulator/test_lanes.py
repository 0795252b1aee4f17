"""Waiting tasks are found without looking at all of them again and again."""

from typing import Any

import pytest

from hived_simulator.lanes import Heap
from hived_simulator.loop import Loop, Manner
from hived_simulator.quotas import QuotaCluster
from tests.simulator.builders import NODE, cluster_of, job, tasks


def looks(nodes: int, priority: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the head of a queue is looked at when a job on all nodes ends for which one of each shape waits."""
    jobs = [job("first", "a", 0, 100, (nodes, 4), priority=priority)]
    jobs += [job(str(pods), "a", 1, 10, (pods, 4), priority=priority) for pods in range(1, nodes)]
    cluster = QuotaCluster(cluster_of(nodes // 2, a={NODE: nodes}), False)
    loop = Loop(cluster, tasks(jobs), (), Manner(has_backfill=True), 0.0)
    while loop.now.at_s < 1:
        loop.step()
    seen, first = [0], Heap.first

    def counted(heap: Heap, known: Any) -> object:
        seen[0] += 1
        return first(heap, known)

    with monkeypatch.context() as patch:
        patch.setattr(Heap, "first", counted)
        loop.step()
    assert loop.now.at_s == 100
    return seen[0]


@pytest.mark.parametrize("priority", [0, -1])
def test_many_shapes_cost_as_many_looks(priority: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (looks(nodes, priority, monkeypatch) for nodes in (12, 48))
    assert 0 < many <= 5 * few
