"""Opportunistic groups become guaranteed where they are (rule 18.12)."""

from dataclasses import replace
from itertools import permutations
from random import Random

import numpy as np
import pytest

from hived.cells.state import State
from hived.cells.topology import NO_CELL
from hived.life.groups import bind_info_of_slot, virtual_leaves
from hived.scheduler import check_invariants, handle
from hived.values.errors import UserError
from hived.values.events import GroupSplit, GroupsUpgraded, PodAllocated
from hived.values.specs import FREE_PRIORITY, PodRequest, Rules
from tests.core.builders import delete, fingerprint, healthy_state, pod, quota, rack_cluster, run, set_nodes


def cluster(a: dict[str, int] | None = None) -> State:
    """Two racks of two nodes of two GPUs; A and B have a rack's worth each."""
    spec = rack_cluster(quota("A", a or {"RACK.NODE": 2}), quota("B", {"RACK.NODE": 2}))
    return healthy_state(replace(spec, rules=Rules.BETTER))


def leaves_of(state: State, vc: str) -> list[int]:
    arrays = state.arrays
    return np.flatnonzero((arrays.level == 1) & (arrays.vc == state.topology.vc_index[vc])).tolist()


def guaranteed(request: PodRequest) -> PodRequest:
    return replace(request, spec=replace(request.spec, priority=0))


def upgrade(state: State, pods: list[PodRequest], own: list[int]) -> None:
    handle(state, GroupsUpgraded(tuple(map(guaranteed, pods)), np.array(own, np.int32)))
    check_invariants(state)


def lent(name: str, vc: str = "A", members: tuple[tuple[int, int], ...] = ((1, 2),)) -> PodRequest:
    return pod(name, vc=vc, priority=-1, members=members)


def test_a_borrower_keeps_its_leaves_and_has_its_place_in_its_vc() -> None:
    state = cluster()
    one = lent("one")
    run(state, one)
    physical = state.groups["one"].physical.tolist()
    own = leaves_of(state, "A")[2:]
    upgrade(state, [one], own)
    assert state.groups["one"].physical.tolist() == physical
    assert sorted(virtual_leaves(state, "one")) == own
    assert state.groups["one"].priority == 0


def test_nobody_takes_its_cells_afterwards() -> None:
    state = cluster()
    one = lent("one")
    run(state, one)
    upgrade(state, [one], leaves_of(state, "A")[:2])
    for number in range(2):
        run(state, pod(f"b{number}", vc="B", members=((1, 2),)))
    assert "one" in state.groups
    for name in ("one", "b0", "b1"):
        delete(state, next(holder for holder in state.groups[name].holders if holder is not None))
    check_invariants(state)
    assert not state.cells.used.any()


def test_hardware_of_another_vc_is_not_had() -> None:
    state = cluster()
    run(state, pod("b", vc="B", members=((1, 1),)))
    one, two = lent("one", members=((1, 1),)), lent("two", members=((3, 2),))
    run(state, two)
    run(state, one)
    before = fingerprint(state)
    with pytest.raises(UserError):
        upgrade(state, [one], leaves_of(state, "A")[:1])
    assert fingerprint(state) == before


def test_leaves_of_one_virtual_node_need_one_node() -> None:
    state = cluster()
    gang = lent("gang", members=((2, 1),))
    run(state, gang)
    nodes = set(state.arrays.node[state.groups["gang"].physical].tolist())
    own = leaves_of(state, "A")[:2] if len(nodes) == 2 else leaves_of(state, "A")[1:3]
    before = fingerprint(state)
    with pytest.raises(UserError, match="form"):
        upgrade(state, [gang], own)
    assert fingerprint(state) == before


def test_vc_safety_is_kept() -> None:
    """A is promised a whole rack, and each rack has a borrower of B: one of them may stay there."""
    spec = rack_cluster(quota("A", {"RACK": 1}), quota("B", {"RACK.NODE": 2}))
    state = healthy_state(replace(spec, rules=Rules.BETTER))
    borrowers = [lent(f"lent-{number}", "B") for number in range(4)]
    for one in borrowers:
        run(state, one)
    racks = [int(state.arrays.root[state.groups[one.uid].physical[0]]) for one in borrowers]
    own = leaves_of(state, "B")
    first, other = borrowers[0], borrowers[next(n for n, rack in enumerate(racks) if rack != racks[0])]
    upgrade(state, [first], own[:2])
    before = fingerprint(state)
    with pytest.raises(UserError):
        upgrade(state, [other], own[2:])
    assert fingerprint(state) == before
    same = next(one for n, one in enumerate(borrowers) if n and racks[n] == racks[0])
    upgrade(state, [same], own[2:])


def test_parts_of_a_job_are_upgraded_together() -> None:
    state = cluster()
    whole = lent("stand-in", members=((2, 1),))
    run(state, whole)
    parts = [lent(f"p{number}", members=((1, 1),)) for number in range(2)]
    handle(state, GroupSplit("stand-in", tuple(parts)))
    nodes = state.arrays.node[[int(state.groups[one.uid].physical[0]) for one in parts]]
    own = leaves_of(state, "A")[:2] if nodes[0] == nodes[1] else leaves_of(state, "A")[::2]
    upgrade(state, parts, own)
    assert sorted(leaf for one in parts for leaf in virtual_leaves(state, one.uid)) == own


def test_a_restart_makes_the_same_of_its_bind_info() -> None:
    state = cluster()
    one = lent("one", members=((2, 2),))
    run(state, one)
    upgrade(state, [one], leaves_of(state, "A"))
    again = cluster()
    handle(again, PodAllocated(guaranteed(one), bind_info_of_slot(state, state.groups["one"], 0)))
    check_invariants(again)
    assert again.groups["one"].physical.tolist() == state.groups["one"].physical.tolist()
    assert again.groups["one"].virtual is not None


@pytest.mark.parametrize("change", ["vc", "members", "pod", "opportunistic"])
def test_what_is_not_the_same_request_is_refused(change: str) -> None:
    state = cluster()
    one = lent("one")
    run(state, one)
    wanted = {
        "vc": pod("one", vc="B", members=((1, 2),)),
        "members": pod("one", members=((2, 1),)),
        "pod": replace(guaranteed(one), uid="another"),
        "opportunistic": one,
    }[change]
    before = fingerprint(state)
    with pytest.raises(UserError):
        handle(state, GroupsUpgraded((wanted,), np.array(leaves_of(state, "A")[:2], np.int32)))
    assert fingerprint(state) == before


def can_stand_behind(state: State, physical: tuple[int, ...], own: tuple[int, ...]) -> bool:
    """The definition, one leaf after the other: all cells above agree, and with what is bound."""
    arrays, bound = state.arrays, dict(enumerate(state.cells.bound.tolist()))
    for pair in zip(physical, own, strict=True):
        leaf, virtual = pair
        while virtual != NO_CELL:
            if bound[virtual] == NO_CELL and bound[leaf] == NO_CELL:
                bound[virtual], bound[leaf] = leaf, virtual
            elif bound[virtual] != leaf:
                return False
            leaf, virtual = int(arrays.parent[leaf]), int(arrays.parent[virtual])
    return True


def refusal(state: State, asked: PodRequest, own: list[int]) -> str | None:
    try:
        upgrade(state, [asked], own)
    except UserError as error:
        return error.message
    return None


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_states_agree_with_the_definition(seed: int) -> None:
    random = Random(seed)
    upgraded = refused = 0
    for _ in range(25):
        wanted = random.choice([{"RACK.NODE": 2}, {"RACK": 1}, {"RACK.NODE": 1}])
        state = cluster(wanted)
        if random.random() < 0.3:
            set_nodes(state, random.choice(state.topology.node_names), is_healthy=False)
        names = []
        for number in range(random.randrange(2, 6)):
            members = random.choice([((1, 1),), ((1, 2),), ((2, 1),), ((1, 1), (1, 2))])
            is_lent = random.random() < 0.6
            asked = pod(f"g{number}", vc=random.choice("AB"), priority=-1 if is_lent else 0, members=members)
            try:
                run(state, asked)
            except (UserError, AssertionError):
                continue
            if is_lent:
                names.append(asked)
            check_invariants(state)
        for asked in names:
            group = state.groups.get(asked.spec.group.name)
            if group is None or group.virtual is not None:
                continue
            free = [x for x in leaves_of(state, asked.spec.virtual_cluster) if state.cells.priority[x] == FREE_PRIORITY]
            if len(free) < len(group.physical):
                continue
            own = random.sample(free, len(group.physical))
            physical, before = tuple(group.physical.tolist()), fingerprint(state)
            possible = any(can_stand_behind(state, physical, order) for order in permutations(own))
            why = refusal(state, asked, own)
            if why is not None:
                refused += 1
                assert fingerprint(state) == before
                assert not possible or "another's" in why
                continue
            upgraded += 1
            assert possible
            assert group.physical.tolist() == list(physical)
            assert sorted(virtual_leaves(state, asked.spec.group.name)) == sorted(own)
    assert upgraded
    assert refused
