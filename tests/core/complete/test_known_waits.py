"""A request that found no place is answered from memory until something changes (rule 19.9)."""

from random import Random

import numpy as np
import pytest

from hived.cells.state import State
from hived.complete.known_waits import forget_waits
from hived.scheduler import handle
from hived.values.decisions import Bind, Decision, Wait
from hived.values.events import Offer, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import PodRequest
from tests.core.builders import (
    better_state,
    fingerprint,
    node_mask,
    plan_together,
    pod,
    quota,
    rack_cluster,
    request,
    set_nodes,
)


def four_nodes() -> State:
    """Two racks of two nodes of four GPUs under better rules; A is promised the racks."""
    return better_state(rack_cluster(quota("A", {"RACK": 2}), gpus=4))


def wide(name: str) -> PodRequest:
    """A gang that needs four whole nodes."""
    return pod(name, members=((4, 4),))


def test_equal_requests_are_searched_for_once() -> None:
    state = four_nodes()
    set_nodes(state, "n0", is_healthy=False)
    first = request(state, wide("one"))
    assert isinstance(first, Wait)
    assert len(state.known_waits) == 1
    assert request(state, wide("two")) == first
    assert len(state.known_waits) == 1
    request(state, pod("other", members=((2, 3), (2, 4))))
    assert len(state.known_waits) == 2


def test_what_changes_the_state_forgets() -> None:
    state = four_nodes()
    set_nodes(state, "n0", is_healthy=False)
    request(state, wide("one"))
    set_nodes(state, "n0", is_healthy=True)
    assert not state.known_waits


def test_what_is_only_supposed_is_neither_remembered_nor_forgets() -> None:
    state = four_nodes()
    set_nodes(state, "n0", is_healthy=False)
    request(state, wide("one"))
    known = dict(state.known_waits)
    found = plan_together(state, [pod("user", members=((1, 4),)), wide("two"), pod("other", members=((2, 3), (2, 4)))])
    assert list(map(type, found)) == [Bind, Wait, Wait]
    assert state.known_waits == known


def test_a_plan_of_groups_that_all_wait_is_remembered() -> None:
    state = four_nodes()
    set_nodes(state, "n0", is_healthy=False)
    first, second = plan_together(state, [wide("one"), wide("two")])
    assert first == second == request(state, wide("three"))
    assert len(state.known_waits) == 1


def test_offers_that_differ_from_pod_to_pod_are_not_remembered() -> None:
    state = four_nodes()
    nodes = np.ones((4, 4), np.bool_)
    nodes[1:, 0] = False
    nodes[2:, 1] = False
    nodes[3:, 2:] = False
    decision = handle(state, ScheduleRequested(wide("one"), offer=Offer(nodes, np.zeros((4, 4), np.bool_))))
    assert isinstance(decision, Wait)
    assert not state.known_waits


def ask(state: State, source: Random, name: str) -> tuple[PodRequest, Decision]:
    """A random gang, for all nodes, for some, or with an offer."""
    members = tuple(sorted({source.randint(1, 4): source.randint(1, 3) for _ in range(source.randint(1, 3))}.items()))
    priority = source.choice((-1, 0, 0, 5))
    wanted = pod(name, members=tuple((count, size) for size, count in members), priority=priority)
    names = source.sample(state.topology.node_names, source.randint(2, 4))
    if source.random() < 0.5:
        return wanted, handle(state, ScheduleRequested(wanted, Phase.FILTERING, node_mask(state, names)))
    slots = sum(count for _, count in members)
    mask = node_mask(state, names)
    offer = Offer(np.broadcast_to(mask, (slots, 4)), np.broadcast_to(~mask & False, (slots, 4)))
    return wanted, handle(state, ScheduleRequested(wanted, offer=offer))


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(6))
def test_memory_changes_no_decision(seed: int) -> None:
    """Random events with and without memory, each request made twice: equal decisions, and equal states in the end."""
    remembering, forgetting = four_nodes(), four_nodes()
    source, placed, remembered = Random(seed), list[PodRequest](), 0
    for number in range(60):
        for attempt in range(2):
            name, again = f"g{number}-{attempt}", source.getstate()
            forget_waits(forgetting)
            wanted, decision = ask(remembering, source, name)
            source.setstate(again)
            assert ask(forgetting, source, name) == (wanted, decision)
            if attempt == 0:
                remembered += bool(remembering.known_waits)
                source.setstate(again)
        if isinstance(decision, Bind) and source.random() < 0.7:
            for state in (remembering, forgetting):
                handle(state, PodAllocated(wanted, decision.bind_info, decision.lazily_preempted))
            placed.append(wanted)
        elif placed and source.random() < 0.3:
            gone = placed.pop(source.randrange(len(placed)))
            for state in (remembering, forgetting):
                handle(state, PodDeleted(gone))
    assert fingerprint(remembering) == fingerprint(forgetting)
    assert remembered
