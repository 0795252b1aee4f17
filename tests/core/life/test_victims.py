"""Victims of a preempting group: asked for by each of its pods, while pods of the victims come and go."""

from hived.cells.state import State
from hived.life.victims import find_victims, victims_of
from hived.scenario import Asked, Scenario
from hived.scheduler import check_invariants
from hived.values.decisions import Bind, Preempt
from hived.values.events import Phase
from hived.values.specs import PodRequest
from tests.core.builders import delete, healthy_state, pod, quota, rack_cluster, request, run

SEATED = 5


def victim(number: int) -> PodRequest:
    """A pod of the group in the way, which has every leaf of the cluster."""
    return pod(f"v{number}", "victims", priority=0, members=((8, 1),))


def preempting() -> tuple[State, list[PodRequest]]:
    """A gang of two pods that waits for half of the leaves of a group, of which five pods have come."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2})))
    for i in range(SEATED):
        run(state, victim(i))
    gang = [pod(f"p{i}", "gang", priority=5, members=((2, 2),)) for i in range(2)]
    request(state, gang[0], Phase.PREEMPTING)
    return state, gang


def victims_by_node(state: State, wanted: PodRequest) -> dict[str, tuple[str, ...]]:
    """The victims that a pod is answered with."""
    decision = request(state, wanted)
    assert isinstance(decision, Preempt)
    return dict(decision.victims_by_node)


def test_a_later_pod_of_a_gang_has_the_victims_of_the_first() -> None:
    state, gang = preempting()
    assert victims_by_node(state, gang[1]) == find_victims(state, state.groups["gang"].physical)


def test_a_node_that_no_victim_is_on_any_more_is_not_named() -> None:
    state, gang = preempting()
    node, uids = next(iter(victims_by_node(state, gang[0]).items()))
    delete(state, *(victim(int(uid[1:])) for uid in uids))
    assert node not in victims_by_node(state, gang[0])


def test_an_answer_stays_as_it_was_when_a_victim_leaves() -> None:
    state, gang = preempting()
    before = request(state, gang[1])
    assert isinstance(before, Preempt)
    known = dict(before.victims_by_node)
    delete(state, victim(0))
    assert dict(before.victims_by_node) == known


def test_a_pod_that_joins_a_group_that_is_preempted_is_a_victim() -> None:
    state, gang = preempting()
    before = victims_by_node(state, gang[0])
    run(state, victim(SEATED))
    uids = {uid for uids in victims_by_node(state, gang[0]).values() for uid in uids}
    assert uids - {uid for uids in before.values() for uid in uids} == {f"v{SEATED}"}


def test_a_pod_bound_twice_leaves_both_of_its_places() -> None:
    state, gang = preempting()
    run(state, victim(0))
    victims_by_node(state, gang[0])
    delete(state, victim(0))
    assert all("v0" not in uids for uids in victims_by_node(state, gang[0]).values())


def test_victims_are_right_after_each_has_left_in_turn() -> None:
    state, _ = preempting()
    group = state.groups["gang"]
    for i in range(SEATED):
        victims_of(state, group)
        delete(state, victim(i))
        check_invariants(state)
        assert victims_of(state, group) == find_victims(state, group.physical)


def test_a_plan_leaves_the_victims_as_they_were() -> None:
    state, gang = preempting()
    before = victims_by_node(state, gang[0])
    planned = Scenario(state).plan([[Asked(victim(SEATED)), Asked(gang[1])]])
    assert isinstance(planned[0], list)
    assert isinstance(planned[0][0], Bind)
    assert victims_by_node(state, gang[0]) == before
