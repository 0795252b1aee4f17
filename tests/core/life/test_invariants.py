"""Every rule is checked: break it, and the message says so (rule 4.6)."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from hived.cells.free_lists import take_free_cell
from hived.cells.state import CellState, Group, GroupState, State
from hived.cells.topology import NO_CELL
from hived.life.allocation import allocate_leaf
from hived.life.invariants import broken_rule
from hived.life.victims import victims_of
from hived.scheduler import check_invariants, handle
from hived.values.errors import InvariantError
from hived.values.events import Phase, PodProgressed
from hived.values.specs import Rules, WorkTimes
from tests.core.builders import (
    busy_state,
    cell_at,
    healthy_state,
    leaf,
    lose,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
)
from tests.core.callable_kernels import callable_kernel

take_free_cell = callable_kernel(take_free_cell)
allocate_leaf = callable_kernel(allocate_leaf)


def lively_state() -> State:
    """One group of each kind, and a free rack.

    `gang` uses one node of A's rack, `held` C's node, `lent` is opportunistic, and `urgent` preempts `weak` in B.
    """
    vcs = quota("A", {"RACK": 1}), quota("B", {"RACK.NODE": 1}), quota("C", {"RACK.NODE": 1})
    state = healthy_state(rack_cluster(*vcs, racks=4))
    run(state, pod("gang"))
    run(state, pod("held", vc="C", priority=3, members=((2, 1),)))
    run(state, pod("weak", vc="B", priority=1))
    run(state, pod("lent", priority=-1))
    request(state, pod("urgent", vc="B", priority=5), Phase.PREEMPTING)
    return state


def doomed_state() -> State:
    """Two of four nodes are bad; one of A's three is doomed, B has one cell."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 3}), quota("B", {"RACK.NODE": 1})))
    set_nodes(state, "n0", "n2", is_healthy=False)
    return state


def promised_too_much() -> State:
    """A is promised three racks of two."""
    return healthy_state(rack_cluster(quota("A", {"RACK": 3})))


def lossy_state() -> State:
    """A is promised all nodes, and n1 has lost a GPU."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    lose(state, "n1", 1)
    return state


Corrupt = Callable[[State], None]
RULES: dict[str, tuple[Callable[[], State], Corrupt, str]] = {}


def breaks(message: str, make: Callable[[], State] = lively_state) -> Callable[[Corrupt], Corrupt]:
    """The function breaks a rule of the state that `make` gives, and this is said."""

    def register(corrupt: Corrupt) -> Corrupt:
        RULES[corrupt.__name__] = make, corrupt, message
        return corrupt

    return register


def path(state: State, cell: int) -> list[int]:
    """The cell and its ancestors."""
    cells = []
    while cell != NO_CELL:
        cells.append(cell)
        cell = int(state.arrays.parent[cell])
    return cells


def free_node(state: State) -> int:
    """A free physical node; its whole rack is free."""
    return cell_at(state, "2/n4")


def free_leaf(state: State) -> int:
    return leaf(state, "n4", 0)


def unbound_virtual_leaf(state: State) -> int:
    arrays, cells = state.arrays, state.cells
    is_virtual_leaf = (arrays.level == 1) & (arrays.vc != NO_CELL) & (cells.bound == NO_CELL)
    return int(is_virtual_leaf.nonzero()[0][0])


def held(state: State) -> Group:
    return state.groups["held"]


def first_virtual(state: State, group: str) -> int:
    """The first virtual leaf of a group in a VC."""
    virtual = state.groups[group].virtual
    assert virtual is not None
    return int(virtual[0])


def tie(state: State, physical: int, virtual: int) -> None:
    state.cells.bound[physical], state.cells.bound[virtual] = virtual, physical


# --- single values -------------------------------------------------------------------------------------------------

UP = ("2/n4/0", "2/n4", "2")
Place = str | int | tuple[str, ...]
VALUES: list[tuple[Callable[[], State], str, Place, int, str]] = [
    (lively_state, "priority", "2", 9, "priority is not the maximum of its children's: 2$"),
    (lively_state, "used", "2", 1, "used count is not the sum of its children's: 2$"),
    (lively_state, "used", UP, 1, "used count of a leaf does not follow its priority: 2/n4/0$"),
    (lively_state, "opportunistic_used", "2", 1, "opportunistic count is not the sum of its children's: 2$"),
    (lively_state, "opportunistic_used", UP, 1, "opportunistic count of a leaf does not follow its priority: 2/n4/0$"),
    (lively_state, "elastic_lent", "2", 1, "elastic count is not the sum of its children's: 2$"),
    (lively_state, "elastic_lent", UP, 1, "elastic count of a leaf does not follow its use: 2/n4/0$"),
    (lively_state, "elastic", "2/n4/0", 1, "leaf cells are not elastic exactly if their group is: 2/n4/0$"),
    (lively_state, "lent_to", "2/n4/0", 0, "is lent without opportunistic use: 2/n4/0$"),
    (lively_state, "bad", "2/n4", 1, "is not bad exactly if a child is: 2, 2/n4$"),
    (lively_state, "node_bad", 4, 1, "is bad, but neither lost nor of a bad node, or the reverse: 2/n4/0, 2/n4/1$"),
    (lively_state, "free_position", "2", NO_CELL, "free lists and the places noted in cells disagree"),
    (lively_state, "split", "2", 1, "is in a free list but split: 2$"),
    (lively_state, "split", "2/n4", 1, "is not split exactly if it is neither free nor allocated as a whole: 2/n4$"),
    (lively_state, "left", 2, 99, r"left is 99 at chain RACK level 2, the free lists hold \d+$"),
    (lively_state, "claims", 3, 99, "claims is not the sum of vc_claims at chain RACK level 3$"),
    (promised_too_much, "strained", 0, 0, "VC safety: 1 cells too few for the VCs' claims at chain RACK level 3$"),
    (doomed_state, "bad_count", 2, 0, "bad lists are not the bad free cells: 1/n2$"),
    (doomed_state, "bad_position", "1/n2", 1, "bad lists and the places noted in cells disagree"),
    (doomed_state, "doomed_position", "0/n0", NO_CELL, "doomed lists and the places noted in cells disagree"),
    (doomed_state, "doomed_position", "0/n0", 1, "doomed lists and the places noted in cells disagree"),
    (doomed_state, "doomed_total", 2, 99, "doomed totals are not the sums of the VCs' counts"),
    (lossy_state, "lost", "A/0", 0, "does not show how many of its leaves are lost: A/0$"),
    (lossy_state, "lost_total", 0, 0, "lost totals are not the numbers of lost leaves of the chains"),
    (lively_state, "mark", 0, 1, "marks of a placement being made were left behind"),
    (lively_state, "planned", 0, 1, "marks of a placement being made were left behind"),
    (lively_state, "planned_below", 0, 1, "marks of a placement being made were left behind"),
    (lively_state, "planned_total", 0, 1, "marks of a placement being made were left behind"),
    (lively_state, "journal_control", 0, 1, "the journal still records"),
]
"""A state, an array, the address of a cell or an index, a value there that breaks a rule, and the message."""


@pytest.mark.parametrize(("make", "array", "place", "value", "message"), VALUES)
def test_a_value_that_breaks_a_rule_is_named_with_its_cell(
    make: Callable[[], State], array: str, place: Place, value: int, message: str
) -> None:
    state = make()
    check_invariants(state)
    addresses = (place,) if isinstance(place, str) else place
    at = place if isinstance(place, int) else [cell_at(state, each) for each in addresses]
    getattr(state.cells, array)[at] = value
    with pytest.raises(InvariantError, match=message):
        check_invariants(state)


# --- bindings ------------------------------------------------------------------------------------------------------


@breaks("binding is not mutual")
def one_sided_binding(state: State) -> None:
    state.cells.bound[free_leaf(state)] = unbound_virtual_leaf(state)


@breaks("is bound to a cell of its own kind: 2/n4/0, 2/n4/1$")
def binding_of_two_physical_cells(state: State) -> None:
    tie(state, leaf(state, "n4", 0), leaf(state, "n4", 1))


@breaks("is bound to a cell of another chain or level")
def binding_across_levels(state: State) -> None:
    tie(state, free_node(state), unbound_virtual_leaf(state))


@breaks("is bound but its parent is not bound to the parent")
def binding_of_a_leaf_alone(state: State) -> None:
    tie(state, free_leaf(state), unbound_virtual_leaf(state))


@breaks("does not show its health")
def health_of_a_bound_virtual_cell(state: State) -> None:
    state.cells.bad[first_virtual(state, "held")] = 1


@breaks("is unbound but not free and healthy")
def state_of_an_unbound_virtual_cell(state: State) -> None:
    state.cells.state[unbound_virtual_leaf(state)] = CellState.USED


# --- free lists and counts -----------------------------------------------------------------------------------------


@breaks("free lists and the places noted in cells disagree")
def order_of_a_free_list(state: State) -> None:
    """The free rack and the one beside it change places, but not the places noted in them."""
    base = int(state.arrays.level_base[state.arrays.top_level[0]])
    count = int(state.cells.free_count[state.arrays.top_level[0]])
    assert count > 1
    state.cells.free_list[base : base + count] = state.cells.free_list[base : base + count][::-1].copy()


@breaks("is in a free list but bound: 2$", lambda: healthy_state(rack_cluster(quota("A", {"RACK": 1}), racks=4)))
def binding_of_a_listed_cell(state: State) -> None:
    tie(state, cell_at(state, "2"), cell_at(state, "A/0"))


@breaks("is not covered once by free lists and allocated cells")
def end_of_a_free_list(state: State) -> None:
    level = int(state.arrays.top_level[0])
    state.cells.free_count[level] -= 1
    last = state.cells.free_list[state.arrays.level_base[level] + state.cells.free_count[level]]
    state.cells.free_position[last] = NO_CELL


@breaks("bad lists are not the bad free cells: 2/n4$")
def healthy_cell_in_a_bad_list(state: State) -> None:
    state.cells.bad_list[state.arrays.level_base[2]] = free_node(state)
    state.cells.bad_count[2] = 1


@breaks("VC B has 0 unbound cells at chain RACK level 2$")
def number_of_a_vcs_free_cells(state: State) -> None:
    state.cells.vc_claims[len(state.arrays.child_count) + 2] = 1


# --- leaves --------------------------------------------------------------------------------------------------------


@breaks("state does not follow its using group")
def group_of_a_used_leaf(state: State) -> None:
    state.cells.using[held(state).physical[0]] = NO_CELL


@breaks("state does not follow its reserving group")
def reservation_of_a_used_leaf(state: State) -> None:
    state.cells.reserving[held(state).physical[0]] = held(state).number


@breaks("is free in state or priority only: 2/n4/0$")
def state_of_a_free_leaf(state: State) -> None:
    state.cells.state[free_leaf(state)] = CellState.USED
    state.cells.using[free_leaf(state)] = held(state).number


@breaks("is guaranteed but unbound")
def binding_of_a_guaranteed_leaf(state: State) -> None:
    physical, virtual = held(state).physical[0], first_virtual(state, "held")
    state.cells.bound[[physical, virtual]] = NO_CELL
    state.cells.state[virtual] = CellState.FREE


@breaks("has another priority than its virtual cell")
def priority_of_a_virtual_leaf(state: State) -> None:
    state.cells.priority[path(state, first_virtual(state, "held"))] = 7


@breaks("is a virtual cell in use that is bound to nothing")
def use_of_an_unbound_virtual_leaf(state: State) -> None:
    above = path(state, unbound_virtual_leaf(state))
    state.cells.priority[above] = 9
    state.cells.used[above] += 1


@breaks("is healthy and not in guaranteed use but bound: ")
def binding_of_an_idle_leaf(state: State) -> None:
    """The other node of A's rack, tied to the other virtual node as its gang's is."""
    rack = int(state.arrays.root[first_virtual(state, "gang")])
    virtual = next(cell for cell in state.topology.children(rack) if state.cells.bound[cell] == NO_CELL)
    physical = next(
        cell for cell in state.topology.children(int(state.cells.bound[rack])) if state.cells.bound[cell] == NO_CELL
    )
    tie(state, physical, virtual)
    tie(state, state.topology.children(physical)[0], state.topology.children(virtual)[0])


# --- groups --------------------------------------------------------------------------------------------------------


@breaks("group held is not known by its number$")
def number_of_a_group(state: State) -> None:
    state.group_by_number[held(state).number] = state.groups["lent"]


@breaks("group held claims leaf cells that another place claims$")
def leaf_that_a_group_holds_twice(state: State) -> None:
    held(state).physical[1] = held(state).physical[0]


@breaks("group lent claims leaf cells that another place claims$")
def leaf_that_two_groups_hold(state: State) -> None:
    state.groups["lent"].physical[1] = held(state).physical[0]


@breaks("group urgent preempts for no pod$")
def pods_of_a_preemptor(state: State) -> None:
    state.groups["urgent"].preempting_pods.clear()


@breaks("group held holds cells for no pod$")
def pods_of_a_group(state: State) -> None:
    held(state).slots_of.clear()


@breaks("group held takes a free slot for a taken one$")
def first_free_slot_of_a_group(state: State) -> None:
    group = held(state)
    group.first_free = group.holders.index(None) + 1


@breaks("group urgent knows other victims than it has$")
def victims_of_a_preemptor(state: State) -> None:
    victims_of(state, state.groups["urgent"])
    state.victims[state.groups["urgent"].number].by_node.clear()


@breaks("group held seats a pod in another slot than it says$")
def seat_of_a_pod(state: State) -> None:
    held(state).holders.reverse()


@breaks("group weak is allocated but a preemptor has cells of it$")
def state_of_a_victim(state: State) -> None:
    state.groups["weak"].state = GroupState.ALLOCATED


@breaks("group lent uses leaf cells that are lent to another VC$")
def borrower_of_a_leaf(state: State) -> None:
    state.cells.lent_to[state.groups["lent"].physical] = 2


@breaks("the count of groups that may be lazily preempted is wrong$")
def number_of_lazy_groups(state: State) -> None:
    state.lazy_group_count += 1


@breaks("the count of elastic groups is wrong$")
def number_of_elastic_groups(state: State) -> None:
    state.elastic_group_count += 1


@breaks("group held holds leaf cells that are not bound to its virtual ones$")
def virtual_cells_of_a_group(state: State) -> None:
    virtual = held(state).virtual
    assert virtual is not None
    virtual[:] = virtual[::-1].copy()


@breaks("groups and group numbers disagree$")
def number_without_a_group(state: State) -> None:
    state.group_by_number[99] = held(state)


@breaks("leaf cells are used by a group that does not know them, or the reverse")
def user_of_a_leaf(state: State) -> None:
    state.cells.using[held(state).physical[0]] = state.groups["lent"].number


@breaks("leaf cells are reserved by a group that does not know them, or the reverse")
def reserver_of_a_leaf(state: State) -> None:
    state.cells.reserving[state.groups["urgent"].physical[0]] = held(state).number


# --- bad and doomed cells ------------------------------------------------------------------------------------------


@breaks("is bad and allocated, but its VC does not see it")
def bad_cell_that_nobody_sees(state: State) -> None:
    """A node in A's rack is bad, and only the rack shows it."""
    root = int(state.arrays.root[first_virtual(state, "gang")])
    rack = int(state.cells.bound[root])
    node = next(cell for cell in state.topology.children(rack) if state.cells.bound[cell] == NO_CELL)
    state.cells.bad[[root, rack, node, state.topology.children(node)[0]]] = 1


@breaks("count of lost leaves is not the sum of its children's: 0/n1$", lossy_state)
def lost_leaves_of_a_node(state: State) -> None:
    rack, node = cell_at(state, "0"), cell_at(state, "0/n1")
    state.cells.lost[[rack, node]] = 2
    state.cells.lost[state.cells.bound[node]] = 2


@breaks("is doomed but healthy: 0/n0$", doomed_state)
def health_of_a_doomed_cell(state: State) -> None:
    """It and its rack are healthy, and its leaves are not shown any more."""
    doomed = doomed_cell(state)
    leaves = list(state.topology.children(doomed))
    hidden = [*leaves, *state.cells.bound[leaves]]
    state.cells.bad[[*hidden, doomed, state.cells.bound[doomed], state.arrays.parent[doomed]]] = 0
    state.cells.bound[hidden] = NO_CELL
    state.cells.node_bad[state.arrays.node[leaves]] = 0


def doomed_cell(state: State) -> int:
    return int((state.cells.doomed_position != NO_CELL).nonzero()[0][0])


@breaks("is doomed but not bound to a preassigned cell of its VC: 0/n0$", doomed_state)
def owner_of_a_doomed_cell(state: State) -> None:
    levels = len(state.arrays.child_count)
    state.cells.doomed_count[[2, levels + 2]] = 0, 1
    state.cells.doomed_list[state.arrays.root_base[levels + 2]] = doomed_cell(state)


# --- what is only for the moment -----------------------------------------------------------------------------------


def working_state() -> State:
    """One group that has started, under the rules that look at lost work."""
    state = healthy_state(replace(rack_cluster(), rules=Rules.BETTER))
    run(state, pod("gang"))
    handle(state, PodProgressed(pod("gang"), WorkTimes(5)))
    return state


@breaks("knows times of a pod that it does not seat", working_state)
def times_of_a_stranger(state: State) -> None:
    state.groups["gang"].times["stranger"] = WorkTimes(6)


@breaks("does not count its work from when its pods say", working_state)
def time_of_a_group(state: State) -> None:
    state.groups["gang"].since_ms += 1


@breaks("counts other work than its group's", working_state)
def work_of_a_leaf(state: State) -> None:
    assert state.work is not None
    state.work.leaf_count[0] = 1 - state.work.leaf_count[0]


@breaks("counts no work, but its group has some", working_state)
def work_of_all_leaves(state: State) -> None:
    state.work = None


@breaks("a view lost or doubled a cell")
def view(state: State) -> None:
    state.cells.view_order[0] = state.cells.view_order[1]


@pytest.mark.parametrize("what", RULES)
def test_a_rule_that_is_broken_is_named_with_the_cell_or_group(what: str) -> None:
    make, corrupt, message = RULES[what]
    state = make()
    check_invariants(state)
    corrupt(state)
    with pytest.raises(InvariantError, match=message):
        check_invariants(state)


def test_a_strained_chain_may_lack_cells_for_its_vcs() -> None:
    """Leftovers of a replay after a reconfiguration (rule 4.4)."""
    state = promised_too_much()
    state.cells.strained[0] = 1
    assert broken_rule(state) is None


def test_states_in_the_middle_of_their_life_break_no_rule() -> None:
    source = Random(9)
    for seed in range(30):
        assert broken_rule(busy_state(random_cluster(seed), source)) is None


def test_taking_a_cell_twice_is_refused() -> None:
    state = healthy_state(rack_cluster())
    take_free_cell(state.arrays, state.cells, 0)
    with pytest.raises(InvariantError, match="was taken from the free lists"):
        take_free_cell(state.arrays, state.cells, 0)


def test_a_cell_bound_elsewhere_is_not_allocated() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("g"))
    virtual = int(state.cells.bound[state.groups["g"].physical[0]])
    with pytest.raises(InvariantError, match="through a virtual cell that is bound elsewhere"):
        allocate_leaf(state.arrays, state.cells, leaf(state, "n3", 0), virtual, 0, 0)
