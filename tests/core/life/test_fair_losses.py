"""Losses of borrowers, weighed between their virtual clusters."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from hived.cells.state import State
from hived.life.losses import loss_of, weighed_losses
from hived.scheduler import handle
from hived.values.decisions import Bind, Preempt
from hived.values.events import Phase, PodAllocated, PodDeleted, PodProgressed, ScheduleRequested
from hived.values.specs import WorkTimes
from tests.core.builders import better_state, delete, pod, quota, rack_cluster, request, run, victim_uids

NOW_S = 10_000.0


def lend(
    state: State, name: str, vc: str, started_s: float, saved_s: float | None = None, leaves: int = 2,
    namespace: str = "default",
) -> None:  # fmt: skip
    """A group runs on lent cells."""
    one = replace(pod(name, vc=vc, priority=-1, members=((1, leaves),)), namespace=namespace)
    found = request(state, one)
    assert isinstance(found, Bind)
    handle(state, PodAllocated(one, found.bind_info, (), WorkTimes(started_s, saved_s)))


def owned_by(*borrowers: str, nodes: int = 8) -> State:
    """All nodes of two GPUs are owned by VC o."""
    vcs = quota("o", {"RACK.NODE": nodes}), *(quota(name, {}) for name in borrowers)
    return better_state(rack_cluster(*vcs, racks=nodes // 2))


def take(state: State, count: int) -> Counter[str]:
    """The owner takes nodes back, one after the other; returns how often each VC and namespace was hit."""
    hit: Counter[str] = Counter()
    for number in range(count):
        own = pod(f"own-{number}", vc="o")
        for uid in victim_uids(handle(state, ScheduleRequested(own, Phase.PREEMPTING, now_s=NOW_S))):
            victim = state.groups[uid].holders[0]
            assert victim is not None
            hit.update((victim.spec.virtual_cluster, victim.namespace))
            delete(state, victim)
        run(state, own)
    return hit


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("saved_s", [NOW_S - 1, NOW_S - 600])
def test_who_reports_checkpoints_is_not_hit_more_often(saved_s: float, seed: int) -> None:
    source, state = Random(seed), owned_by("a", "b")
    starts = [source.uniform(5000, 5500) for _ in range(8)]
    for number, started_s in enumerate(starts):
        lend(state, f"g{number}", "ab"[number % 2], started_s, saved_s if number % 2 == 0 else None)
    assert take(state, 4) == {"a": 2, "b": 2, "default": 4}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("saved_s", [NOW_S - 1, NOW_S - 600])
def test_a_namespace_that_reports_checkpoints_is_not_hit_more_often(saved_s: float, seed: int) -> None:
    source, state = Random(seed), owned_by("a")
    starts = [source.uniform(5000, 5500) for _ in range(8)]
    for number, started_s in enumerate(starts):
        is_first = number % 2 == 0
        namespace = "xy"[number % 2]
        lend(state, f"{namespace}{number}", "a", started_s, saved_s if is_first else None, namespace=namespace)
    assert take(state, 4) == {"a": 4, "x": 2, "y": 2}


def test_more_namespaces_of_a_virtual_cluster_bring_it_no_more_weight() -> None:
    state = owned_by("a", "b")
    for number in range(4):
        lend(state, f"a{number}", "a", 5000, namespace=f"a{number}")
        lend(state, f"b{number}", "b", 5000, 9000, namespace="b")
    groups = list(state.groups.values())
    found = weighed_losses(state, groups, np.zeros(8, np.int64), int(NOW_S * 1000))
    assert set(found.tolist()) == {2 * 5_000_000}


def test_a_report_chooses_among_the_own_groups() -> None:
    state = owned_by("a", "b")
    for number in range(4):
        lend(state, f"a{number}", "a", 5000 - number)
        lend(state, f"b{number}", "b", 4000)
    handle(state, PodProgressed(pod("a3", vc="a", priority=-1), WorkTimes(4997, 9999)))
    decision = handle(state, ScheduleRequested(pod("own", vc="o"), now_s=NOW_S))
    assert isinstance(decision, Preempt)
    assert list(decision.victims_by_node.values()) == [("a3",)]


def test_the_least_loss_decides_within_one_virtual_cluster_and_where_nobody_saves() -> None:
    state = owned_by("a", "b")
    lend(state, "a0", "a", 100, 9000)
    lend(state, "a1", "a", 5000)
    lend(state, "a2", "a", 5000)
    groups = list(state.groups.values())
    losses = np.array([loss_of(group, 10_000_000) for group in groups], np.int64)
    assert weighed_losses(state, groups, losses, 10_000_000) is losses
    handle(state, PodDeleted(pod("a0", vc="a", priority=-1)))
    lend(state, "b0", "b", 5000)
    groups = list(state.groups.values())
    assert weighed_losses(state, groups, losses, 10_000_000) is losses


@pytest.mark.parametrize("seed", range(20))
def test_the_work_of_all_groups_of_a_virtual_cluster_stays_the_same(seed: int) -> None:
    source, state = Random(seed), owned_by("a", "b", nodes=12)
    for number in range(9):
        started_s = float(source.randint(1, 9000))
        saved_s = source.choice([None, float(source.randint(1, 10_000))])
        lend(state, f"g{number}", "ab"[number % 2], started_s, saved_s, source.choice([1, 2]))
    groups, leaves = list(state.groups.values()), Counter[int]()
    if not any(group.since_ms > group.started_ms for group in groups):
        return
    for group in groups:
        leaves[group.vc] += len(group.physical)
    found = weighed_losses(state, groups, np.zeros(9, np.int64), 10_000_000)
    for vc, count in leaves.items():
        own = [place for place, group in enumerate(groups) if group.vc == vc]
        work = sum(len(groups[place].physical) * (10_000_000 - groups[place].started_ms) for place in own)
        assert int(found[own].sum()) == pytest.approx(work * max(leaves.values()) / count, abs=len(own))
        by_loss = sorted(own, key=lambda place: -groups[place].since_ms)
        per_leaf = [found[place] / len(groups[place].physical) for place in by_loss]
        assert all(one <= other + 1 for one, other in pairwise(per_leaf))
