"""The valid contents of a bind info, and the cells that it names (rules 2.10, 2.11, 11.3)."""

import random

import pytest

from hived.cells.state import State, empty_state
from hived.cells.topology import NO_CELL
from hived.life.bind_info import (
    _find_in_one_chain,
    _find_one_by_one,
    canonical_order,
    check_bind_info,
    find_leaves,
    planned_roots,
)
from hived.scheduler import handle
from hived.values.decisions import Bind
from hived.values.errors import UserError
from hived.values.events import PodAllocated
from hived.values.specs import BindInfo, CellTypeSpec, ClusterSpec, PhysicalCellSpec, PodPlacement
from tests.core.builders import (
    cell_at,
    healthy_state,
    held_nodes,
    placement,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
)

GANG = ((1, 1), (2, 2))
SOUND = ((placement("n0", 0),), (placement("n1", 0, 1), placement("n2", 0, 1)))


def info(*members: tuple[PodPlacement, ...], node: str = "n0", devices: tuple[int, ...] = (0,)) -> BindInfo:
    return BindInfo(node, devices, "RACK", members)


UNSOUND = {
    "no members": info(),
    "an empty member": info(SOUND[0], (*SOUND[1],), ()),
    "a member of uneven pods": info(SOUND[0], (placement("n1", 0, 1), placement("n2", 0))),
    "a placement without leaves": info(SOUND[0], SOUND[1], (placement("n3"),)),
    "a size listed twice": info(SOUND[0], SOUND[1], (placement("n3", 0, 1),)),
    "a pod too few": info(SOUND[0], (placement("n1", 0, 1),)),
    "a pod too many": info((*SOUND[0], placement("n3", 0)), SOUND[1]),
    "a size too few": info(SOUND[0]),
    "a pod elsewhere": info(*SOUND, node="n3"),
    "a pod on other leaves": info(*SOUND, devices=(1,)),
    "a pod on no leaves": info(*SOUND, devices=()),
    "a pod in the place of another size": info(*SOUND, node="n1"),
}


@pytest.mark.parametrize("mistake", UNSOUND)
def test_a_bind_info_is_refused_that_has(mistake: str) -> None:
    with pytest.raises(UserError, match=r"^\[p\(ns/p\)\]: Invalid pod bind info:"):
        check_bind_info(pod("p", members=GANG), UNSOUND[mistake])


@pytest.mark.parametrize("members", [SOUND, SOUND[::-1]])
def test_a_sound_bind_info_is_accepted_in_any_order_of_members(members: tuple[tuple[PodPlacement, ...], ...]) -> None:
    check_bind_info(pod("p", members=GANG), info(*members))


def test_the_message_compares_the_sizes() -> None:
    with pytest.raises(UserError, match=r"it places 1x1,1x2, the affinity group has 1x1,2x2$"):
        check_bind_info(pod("p", members=GANG), UNSOUND["a pod too few"])


def test_members_are_brought_into_ascending_order_and_leaves_keep_theirs() -> None:
    source = random.Random(2)
    for _ in range(50):
        sizes = source.sample(range(1, 6), source.randint(1, 4))
        members = tuple(
            tuple(placement(f"{size}-{i}", *range(size)) for i in range(source.randint(1, 3))) for size in sizes
        )
        sorted_info, order = canonical_order(info(*members))
        assert sorted_info.members == tuple(sorted(members, key=lambda member: len(member[0].leaf_cell_indices)))
        listed = [(p.node, device) for m in members for p in m for device in p.leaf_cell_indices]
        by_size = [(p.node, device) for m in sorted_info.members for p in m for device in p.leaf_cell_indices]
        assert [by_size[place] for place in order.tolist()] == listed


def test_leaves_are_found_by_node_and_device() -> None:
    """Every leaf of random clusters, shuffled into pods of two, some of them on two chains of one node."""
    source = random.Random(3)
    for seed in range(15):
        state = empty_state(random_cluster(seed))
        arrays, topology = state.arrays, state.topology
        leaves = arrays.node_leaf.tolist()
        source.shuffle(leaves)
        expected, members = [], []
        for leaf in leaves:
            chain = topology.chain_of(leaf)
            cell_type = source.choice([*chain.types, "NOTYPE", ""])
            known = PodPlacement(topology.node_names[arrays.node[leaf]], (int(arrays.device[leaf]),), (cell_type,))
            members.append(known)
            expected.append((leaf, chain.type_levels.get(cell_type, 0)))
        found, levels = find_leaves(state, info(tuple(members)))
        assert list(zip(found.tolist(), levels.tolist(), strict=True)) == expected


def test_a_group_with_a_node_for_each_pod_has_the_leaves_that_are_found_one_by_one() -> None:
    """Of random clusters: some devices are not configured or are named twice, some nodes are in two chains."""
    source, sizes = random.Random(4), set()
    for seed in range(15):
        topology = empty_state(random_cluster(seed)).topology
        devices = sorted(set(topology.arrays.device[topology.arrays.node_leaf].tolist()))
        types = ["NOTYPE", "", *(name for chain in topology.chains for name in chain.types)]
        for _ in range(50):
            names = source.sample(topology.node_names, source.randint(1, len(topology.node_names)))
            placements = []
            for name in names:
                indices = tuple(source.choices(devices, k=source.randint(1, 2)))
                placements.append(PodPlacement(name, indices, tuple(source.choices(types, k=len(indices)))))
            at_once = _find_in_one_chain(topology, info(tuple(placements)))
            if at_once is not None:
                sizes.add(len(names))
                one_by_one = _find_one_by_one(topology, info(tuple(placements)))
                assert [each.tolist() for each in at_once] == [each.tolist() for each in one_by_one]
    assert len(sizes) > 1


def found(*placements: PodPlacement) -> tuple[list[str | None], list[int]]:
    state = empty_state(rack_cluster())
    leaves, levels = find_leaves(state, info(placements))
    return [None if leaf == NO_CELL else state.topology.address(leaf) for leaf in leaves.tolist()], levels.tolist()


def test_a_leaf_of_a_node_that_is_gone_is_not_found() -> None:
    assert found(placement("gone", 0), placement("n1", 1)) == ([None, "0/n1/1"], [0, 2])


def test_a_device_that_is_gone_is_not_found() -> None:
    assert found(placement("n0", 5, 1)) == ([None, "0/n0/1"], [0, 2])


def test_a_device_of_an_index_beyond_32_bits_is_not_found() -> None:
    assert found(placement("n0", 2**40, 1)) == ([None, "0/n0/1"], [0, 2])


def test_a_leaf_that_is_named_twice_counts_once() -> None:
    assert found(placement("n0", 0, 0), placement("n0", 0, 1)) == (["0/n0/0", None, None, "0/n0/1"], [2, 0, 0, 2])


def test_preassigned_types_that_are_missing_have_no_level() -> None:
    assert found(PodPlacement("n0", (0, 1), ("RACK",))) == (["0/n0/0", "0/n0/1"], [3, 0])


def test_the_type_of_another_chain_has_no_level() -> None:
    assert found(placement("n0", 0, cell_type="POOL")) == (["0/n0/0"], [0])


def bound_state() -> State:
    """Two nodes of A are bound: A/0 and A/1."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2})))
    run(state, pod("g", members=((2, 2),)))
    return state


def roots(state: State, *placements: PodPlacement) -> list[tuple[str, str]]:
    physical, virtual = planned_roots(state, info(placements))
    return [
        (state.topology.address(cell), state.topology.address(root))
        for cell, root in zip(physical.tolist(), virtual.tolist(), strict=True)
    ]


def test_the_planned_cells_are_the_bound_preassigned_cells_above_each_leaf() -> None:
    state = bound_state()
    first = state.topology.address(int(state.cells.bound[cell_at(state, "A/0")]))
    node = first.rsplit("/", maxsplit=1)[-1]
    assert roots(state, placement(node, 0, 1)) == [(first, "A/0")] * 2


def test_an_unbound_preassigned_cell_is_not_planned() -> None:
    state = bound_state()
    free = next(n for n in state.topology.node_names if n not in held_nodes(state, "g"))
    assert roots(state, placement(free, 0, 1)) == []


def test_a_leaf_of_an_unknown_type_plans_nothing() -> None:
    state = bound_state()
    assert roots(state, placement(held_nodes(state, "g")[0], 0, 1, cell_type="NOTYPE")) == []


def test_a_leaf_named_twice_plans_nothing_the_second_time() -> None:
    """The second mention has no cell; climbing from it would never end."""
    state = bound_state()
    node = held_nodes(state, "g")[0]
    assert len(roots(state, placement(node, 0, 1, 0, 0))) == 2


def shared_node() -> State:
    """Node n is in two chains, CPU-NODE and GPU-NODE, which number their leaves alike."""
    types = (CellTypeSpec("CPU-NODE", "CPU", 3, is_node_level=True), CellTypeSpec("GPU-NODE", "GPU", 2, True))
    cells = (PhysicalCellSpec("CPU-NODE", "n"), PhysicalCellSpec("GPU-NODE", "n"))
    vc = quota("A", {"CPU-NODE": 1, "GPU-NODE": 1})
    return healthy_state(ClusterSpec({each.name: each for each in types}, cells, {"A": vc}))


def types_found(state: State, bind_info: BindInfo, leaf_type: str = "") -> list[str]:
    leaves, _ = find_leaves(state, bind_info, leaf_type)
    return ["" if leaf == NO_CELL else state.topology.cell_type(leaf) for leaf in leaves.tolist()]


@pytest.mark.parametrize("chain", ["CPU", "GPU"])
@pytest.mark.parametrize("pods", [1, 2])
def test_of_leaves_with_one_index_on_a_node_the_one_of_the_chain_is_found(chain: str, pods: int) -> None:
    node = f"{chain}-NODE"
    members = tuple(placement("n", device, cell_type=node) for device in range(pods))
    assert types_found(shared_node(), BindInfo("n", (0,), node, (members,))) == [chain] * pods


def test_where_the_chain_is_gone_it_is_one_of_the_leaf_type_or_else_of_the_preassigned_type() -> None:
    state = shared_node()
    unnamed = BindInfo("n", (1,), "GONE", ((placement("n", 1, cell_type="NOTYPE"),),))
    assert types_found(state, unnamed, "GPU") == ["GPU"]
    assert types_found(state, unnamed, "CPU") == ["CPU"]
    typed = BindInfo("n", (1,), "GONE", ((placement("n", 1, cell_type="GPU-NODE"),),))
    assert types_found(state, typed) == ["GPU"]


def test_a_leaf_of_one_chain_alone_is_found_whatever_chain_is_written() -> None:
    assert types_found(shared_node(), BindInfo("n", (2,), "GPU-NODE", ((placement("n", 2),),))) == ["CPU"]


def test_groups_in_both_chains_of_a_node_are_restored_where_they_were() -> None:
    state, pods = shared_node(), [pod(name, members=((1, 2),), leaf_cell_type=name) for name in ("CPU", "GPU")]
    bound = [request(state, each) for each in pods]
    for each, decision in zip(pods, bound, strict=True):
        assert isinstance(decision, Bind)
        handle(state, PodAllocated(each, decision.bind_info))
    again = shared_node()
    for each, decision in zip(reversed(pods), reversed(bound), strict=True):
        assert isinstance(decision, Bind)
        handle(again, PodAllocated(each, decision.bind_info))
    for name in ("CPU", "GPU"):
        assert again.groups[name].physical.tolist() == state.groups[name].physical.tolist()
        assert {again.topology.cell_type(leaf) for leaf in again.groups[name].physical.tolist()} == {name}
