"""Questions about what would be leave the state as it is; facts of a copy are its own."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hived.cells.copying import copy_state
from hived.cells.state import State
from hived.scenario import Asked, Scenario, nodes_of, pods_of
from hived.scheduler import Fact, check_invariants, handle
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import LeavesLost, NodeHealthChanged, Phase, PodDeleted
from hived.values.specs import PodRequest, Rules
from tests.core.builders import (
    busy_state,
    delete,
    fingerprint,
    healthy_state,
    plan_together,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    small_journal,
)

ORDER = ("view_order", "view_place", "view_keys", "changed", "changed_count", "is_changed", "is_sorted", "mark")


def everything(state: State) -> tuple[object, ...]:
    """The whole state, with the order of its groups and views."""
    return (
        *fingerprint(state),
        list(state.groups),
        list(state.group_by_number),
        state.last_plan,
        *(getattr(state.cells, name).tobytes() for name in ORDER),
    )


def four_nodes() -> State:
    return healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK.NODE": 2})))


def kinds(decisions: list[Decision]) -> list[type[Decision]]:
    return list(map(type, decisions))


def test_each_pod_finds_what_those_before_it_leave() -> None:
    state = four_nodes()
    pods = [pod(f"p{number}") for number in range(3)]
    first, second, third = plan_together(state, pods)
    assert isinstance(first, Bind)
    assert isinstance(second, Bind)
    assert first.bind_info.node != second.bind_info.node
    assert isinstance(third, Wait)


def test_one_that_cannot_run_leaves_room_to_the_next() -> None:
    decisions = plan_together(four_nodes(), [pod("big", members=((3, 2),)), pod("small")])
    assert kinds(decisions) == [Wait, Bind]


def test_cells_that_have_victims_are_not_taken() -> None:
    state = four_nodes()
    run(state, pod("weak", members=((2, 2),)))
    strong = [pod(f"strong{number}", priority=1) for number in range(2)]
    assert kinds(plan_together(state, strong)) == [Preempt, Preempt]


def test_a_lazy_preemption_makes_room_for_the_pod_that_it_is_for_alone() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}), quota("B", {"RACK.NODE": 3})))
    run(state, pod("weak", lazy_preemption=True))
    first, second = plan_together(state, [pod("strong", priority=1), pod("other", priority=1)])
    assert isinstance(first, Bind)
    assert first.lazily_preempted == ("weak",)
    assert isinstance(second, Wait)
    assert state.groups["weak"].virtual is not None


def test_pods_of_one_gang_take_its_slots_one_after_the_other() -> None:
    state = four_nodes()
    members = ((2, 2),)
    run(state, pod("p0", "gang", members=members))
    (member,) = plan_together(state, [pod("p1", "gang", members=members)])
    assert isinstance(member, Bind)
    with pytest.raises(UserError, match="Requesting more pods than the configured number"):
        plan_together(state, [pod(f"p{number}", "gang", members=members) for number in (1, 2)])


def test_what_is_planned_can_then_be_done() -> None:
    state = four_nodes()
    run(state, pod("other", members=((1, 1),)))
    pods = [pod("one", members=((1, 1),)), pod("two", members=((1, 2),)), pod("three", vc="B", members=((2, 2),))]
    planned = plan_together(state, pods)
    assert planned == [run(state, one) for one in pods]


def test_a_preempting_group_may_be_asked_and_stays_as_it_is() -> None:
    state = four_nodes()
    weak, strong = pod("weak", members=((2, 2),)), pod("s0", "strong", priority=1, members=((2, 2),))
    run(state, weak)
    request(state, strong, Phase.PREEMPTING)
    other = pod("s1", "strong", priority=1, members=((2, 2),))
    for kind in (Preempt, Bind):
        before = everything(state)
        assert kinds(plan_together(state, [other])) == [kind]
        assert everything(state) == before
        delete(state, weak)


def test_a_preempting_group_that_would_be_cancelled_keeps_its_place_among_the_groups() -> None:
    state = four_nodes()
    weak = pod("weak", members=((2, 2),))
    run(state, weak)
    request(state, pod("s0", "strong", priority=1, members=((2, 2),)), Phase.PREEMPTING)
    run(state, pod("late", vc="B"))
    delete(state, weak)
    before = everything(state)
    plan_together(state, [pod("top", priority=5, members=((2, 2),))])
    assert everything(state) == before


@pytest.mark.parametrize("seed", range(8))
def test_nothing_at_all_changes(seed: int) -> None:
    source = Random(seed)
    spec = random_cluster(seed)
    state = busy_state(spec, source)
    request(state, pod("q", vc=min(spec.virtual_clusters)))
    pods = [
        pod(
            f"q{number}",
            vc=source.choice(sorted(spec.virtual_clusters)),
            priority=source.choice([-1, 0, 5]),
            members=((source.choice([1, 2]), source.choice([1, 2])),),
        )
        for number in range(6)
    ]
    before = everything(state)
    decisions = plan_together(small_journal(state, 8), pods)
    assert len(decisions) == 6
    assert everything(state) == before
    assert plan_together(state, pods) == decisions
    asks = [Asked(one) for one in pods]
    found = Scenario(state).plan([asks[:3], asks[3:]])
    assert everything(state) == before
    assert found[0] == decisions[:3]


def test_a_refused_pod_is_named_and_nothing_changes() -> None:
    state = four_nodes()
    request(state, pod("q"))
    before = everything(state)
    with pytest.raises(UserError, match=r"q1\(ns/q1\).*VC NOVC does not exists"):
        plan_together(state, [pod("q0"), pod("q1", vc="NOVC")])
    assert everything(state) == before


def test_a_bundle_that_cannot_run_as_a_whole_leaves_its_cells_to_the_next() -> None:
    bundles = [[pod("one"), pod("big", members=((2, 2),))], [pod("two"), pod("three")]]
    found = Scenario(four_nodes()).plan([[Asked(one) for one in bundle] for bundle in bundles])
    assert [kinds(one) for one in found if not isinstance(one, UserError)] == [[Bind, Wait], [Bind, Bind]]


def test_a_bundle_with_a_refused_pod_leaves_its_cells_to_the_next() -> None:
    refused, found = Scenario(four_nodes()).plan(
        [[Asked(pod("one")), Asked(pod("two", vc="NOVC"))], [Asked(pod("three", members=((2, 2),)))]]
    )
    assert isinstance(refused, UserError)
    assert not isinstance(found, UserError)
    assert kinds(found) == [Bind]


def test_each_pod_may_use_other_nodes() -> None:
    masks = [np.array([index == chosen for index in range(4)]) for chosen in (2, 0)]
    (found,) = Scenario(four_nodes()).plan(
        [[Asked(pod(f"p{chosen}", ignore_suggested_nodes=False), mask) for chosen, mask in enumerate(masks)]]
    )
    assert not isinstance(found, UserError)
    assert [one.bind_info.node for one in found if isinstance(one, Bind)] == ["n2", "n0"]


def random_facts(state: State, source: Random) -> list[Fact]:
    """Groups end, whole or not, nodes change, and leaves are lost or found."""
    pods = [pod for group in state.groups.values() for pod in (*group.holders, *group.preempting_pods.values()) if pod]
    facts: list[Fact] = [PodDeleted(each) for each in pods if source.random() < 0.3]
    for node in state.topology.node_names:
        if source.random() < 0.2:
            facts.append(NodeHealthChanged(node, source.random() < 0.7))
        if source.random() < 0.1:
            leaf_type = source.choice(list(state.topology.leaf_type_chains))
            facts.append(LeavesLost(node, leaf_type, source.choice([0, 1, 2])))
    source.shuffle(facts)
    return facts


@pytest.mark.sample(10)
@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("seed", range(20))
def test_facts_that_are_supposed_change_the_answers_and_nothing_else(seed: int, rules: Rules) -> None:
    source = Random(seed)
    state = busy_state(replace(random_cluster(seed), rules=rules), source)
    for round_ in range(3):
        facts = random_facts(state, source)
        asks = [
            Asked(pod(f"new{i}", priority=source.choice([-1, 0, 2]), members=((source.choice([1, 2]), 1),)))
            for i in range(3)
        ]
        asks = [replace(one, pod=in_some_vc(one.pod, state, source)) for one in asks]
        before, other = everything(state), copy_state(state)
        found = Scenario(state).plan([[one] for one in asks], facts=facts)
        assert everything(state) == before, round_
        check_invariants(state)
        for fact in facts:
            handle(other, fact)
        assert found == Scenario(other).plan([[one] for one in asks])


def in_some_vc(wanted: PodRequest, state: State, source: Random) -> PodRequest:
    return replace(wanted, spec=replace(wanted.spec, virtual_cluster=source.choice(state.topology.vc_names)))


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("seed", range(20))
def test_pods_that_evict_start_in_a_plan_as_they_would_after_their_victims_have_left(seed: int, rules: Rules) -> None:
    source = Random(seed)
    state = busy_state(replace(random_cluster(seed), rules=rules), source)
    wanted = in_some_vc(pod("new", priority=6, members=((source.choice([1, 2]), 1),)), state, source)
    before, other, evicted = everything(state), copy_state(state), list[str]()
    ((found,),) = Scenario(state).plan([[Asked(wanted)]], evicted=evicted)
    assert everything(state) == before
    check_invariants(state)
    decision = request(other, wanted, Phase.FILTERING)
    left = set(decision.lazily_preempted) if isinstance(decision, Bind) else set()
    if isinstance(decision, Preempt):
        decision = request(other, wanted, Phase.PREEMPTING)
        assert isinstance(decision, Preempt)
        uids = {uid for own in decision.victims_by_node.values() for uid in own}
        leaving = [one for one in other.groups.values() if uids & one.slots_of.keys()]
        left = {one.name for one in leaving} | set(decision.lazily_preempted)
        delete(other, *(one for group in leaving for one in group.holders if one is not None))
        decision = request(other, wanted, Phase.FILTERING)
    assert (found, set(evicted)) == (decision, left)


@pytest.mark.sample(10)
@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("seed", range(20))
def test_the_cells_after_facts_are_those_of_a_copy_that_is_told_them(seed: int, rules: Rules) -> None:
    source = Random(seed)
    state = busy_state(replace(random_cluster(seed), rules=rules), source)
    facts, asked = random_facts(state, source), Asked(in_some_vc(pod("new", priority=1), state, source))
    before, known, other = everything(state), state.last_bind, Scenario.copied(state)
    found = Scenario(state).cells(asked, facts)
    assert everything(state) == before
    assert state.last_bind is known
    other.tell(facts)
    decision = other.start(asked)
    assert (found is not None) == isinstance(decision, Bind)
    if found is not None:
        assert isinstance(decision, Bind)
        assert found.bind_info == decision.bind_info
        assert found.physical.tolist() == other.state.groups["new"].physical.tolist()
    assert everything(state) == before


def test_pods_that_leave_a_copy_are_still_in_the_state() -> None:
    state = four_nodes()
    for name in ("one", "two"):
        run(state, pod(name))
    other, before = Scenario.copied(state), everything(state)
    nodes = nodes_of(other.state, ["one", "none"])
    assert nodes.sum() == 1
    other.leave([*pods_of(other.state, ["one"]), pod("none")])
    assert list(other.state.groups) == ["two"]
    assert not nodes_of(other.state, ["one"]).any()
    assert everything(state) == before
