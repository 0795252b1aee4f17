"""The requests of the pods that are on nodes."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from hived_extender.kube_rules.demands import Demands, RuledPod
from hived_extender.kube_rules.residents import Residents
from hived_extender.kube_rules.selectors import MOST

NAMES = [f"n{number}" for number in range(10_000)]


def pod(**requests: int) -> RuledPod:
    return RuledPod("team", {}, Demands(requests=tuple(sorted(requests.items()))))


@pytest.fixture
def residents() -> Residents:
    return Residents(NAMES)


def test_a_question_about_a_resource_follows_the_pods(residents: Residents) -> None:
    residents.put("a", "n1", pod(cpu=3))
    residents.put("b", "n1", pod(cpu=4), has_cells=False)
    for _ in range(2):  # found out, then remembered
        assert residents.requested("cpu", 3).tolist() == [0, 7, 0]
        assert residents.lasting("cpu", 3).tolist() == [0, 4, 0]
    residents.put("c", "n2", pod(cpu=5), has_cells=False)
    residents.remove("b")
    assert residents.requested("cpu", 3).tolist() == [0, 3, 5]
    assert residents.lasting("cpu", 3).tolist() == [0, 0, 5]
    assert residents.used("n2") == {"cpu": 5, "pods": 1}


def test_resources_that_nobody_asks_about_take_no_memory_for_each_node(residents: Residents) -> None:
    made_up = pod(**{f"made.up/{number}": 1 for number in range(1000)})
    tracemalloc.start()
    residents.put("a", NAMES[-1], made_up, has_cells=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_question_looks_only_at_nodes_of_which_the_resource_is_requested(residents: Residents) -> None:
    for name in NAMES:
        residents.put(name, name, pod(cpu=1))
    residents.put("a", "n7", pod(**{"made.up/0": 2}))
    looked_up: list[str] = []

    class Rows(dict[str, int]):
        def get(self, key: str, default: Any = None) -> Any:
            looked_up.append(key)
            return super().get(key, default)

    residents._used._rows = Rows(residents._used._rows)
    assert residents.requested("made.up/0", len(NAMES)).nonzero()[0].tolist() == [7]
    assert not residents.requested("made.up/1", len(NAMES)).any()
    assert looked_up == ["n7"]


def test_more_resources_than_are_kept_are_counted_right(residents: Residents) -> None:
    residents.put("a", "n1", pod(**{f"r/{number}": number for number in range(1, 200)}))
    for _ in range(2):
        for number in range(1, 200):
            assert residents.requested(f"r/{number}", 2).tolist() == [0, number]
    residents.put("a", "n0", pod(**{"r/1": 5}))
    assert residents.requested("r/1", 2).tolist() == [5, 0]
    assert residents.requested("r/199", 2).tolist() == [0, 0]


def test_nodes_that_are_not_there_leave_nothing_behind(residents: Residents) -> None:
    for number in range(1000):
        residents.put("a", f"gone-{number}", pod(cpu=1))
    residents.remove("a")
    assert residents.used("gone-7") == {}
    assert not residents._used._of


def test_more_than_fits_into_64_bits_counts_as_very_much(residents: Residents) -> None:
    everything = pod(memory=2**62)
    for number in range(4):
        residents.put(f"u{number}", "n0", everything)
    assert residents.requested("memory", 2).tolist() == [2**62, 0]
    residents.put("u4", "n0", pod(memory=MOST))
    assert residents.requested("memory", 2).tolist() == [2**62, 0]
    for number in range(4):
        residents.remove(f"u{number}")
    assert np.array_equal(residents.requested("memory", 2), [MOST, 0])


def test_arrays_follow_the_nodes_that_are_configured_now(residents: Residents) -> None:
    residents.put("a", "n1", pod(cpu=3), has_cells=False)
    residents.put("b", "elsewhere", pod(cpu=4))
    assert residents.requested("cpu", 3).tolist() == [0, 3, 0]
    residents.order(["elsewhere", "n1"])
    assert [residents.requested("cpu", 2).tolist(), residents.lasting("cpu", 2).tolist()] == [[4, 3], [0, 3]]
