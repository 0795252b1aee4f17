"""Groups from the bind info of their pods: restarts and reconfigurations (rules 11)."""

from random import Random

import pytest

from hived.cells.state import GroupState, State
from hived.cells.topology import NO_CELL
from hived.life.status import affinity_group, snapshot
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Applied, Bind
from hived.values.events import Phase, PodAllocated
from hived.values.specs import BindInfo, ClusterSpec, PodPlacement, PodRequest
from tests.core.builders import (
    bind_info,
    cell_at,
    delete,
    healthy_state,
    leaf,
    placement,
    pod,
    quota,
    rack_cluster,
    random_cluster,
    request,
    run,
    set_nodes,
    virtual_addresses,
)

WHOLE = placement("n0", 0, 1)


def restore(state: State, wanted: PodRequest, *placements: PodPlacement) -> Applied:
    applied = handle(state, PodAllocated(wanted, bind_info(placements)))
    check_invariants(state)
    assert isinstance(applied, Applied)
    return applied


# --- restart -------------------------------------------------------------------------------------------------------


def restarted_run(seed: int, nodes_first: bool) -> tuple[State, State]:
    """A cluster with some bound pods, and the same one after a restart that replays them in any order."""
    source, spec = Random(seed), random_cluster(seed)
    state = healthy_state(spec)
    bound = [bind for number in range(15) if (bind := try_to_run(state, source, number)) is not None]
    source.shuffle(bound)
    restarted = healthy_state(spec) if nodes_first else new_state(spec)
    for wanted, info in bound:
        handle(restarted, PodAllocated(wanted, info))
        check_invariants(restarted)
    set_nodes(restarted, *restarted.topology.node_names, is_healthy=True)
    check_invariants(restarted)
    return state, restarted


def test_after_a_restart_every_group_has_its_cells_and_its_place_in_the_vc_again() -> None:
    for seed in range(30):
        before, after = (snapshot(state)[2] for state in restarted_run(seed, nodes_first=True))
        assert {name: essence(group) for name, group in before.items()} == {
            name: essence(group) for name, group in after.items()
        }


def test_after_a_restart_that_hears_of_pods_before_nodes_every_group_has_its_cells_again() -> None:
    """While all nodes are bad, doomed cells may be in the way of a group's place in its VC, but never of its cells."""
    for seed in range(30):
        before, after = (snapshot(state)[2] for state in restarted_run(seed, nodes_first=False))
        kept = ("vc", "physical", "allocated")
        assert {name: [group[key] for key in kept] for name, group in before.items()} == {
            name: [group[key] for key in kept] for name, group in after.items()
        }


def try_to_run(state: State, source: Random, number: int) -> tuple[PodRequest, BindInfo] | None:
    vc, priority = source.choice(sorted(state.spec.virtual_clusters)), source.choice([-1, 0, 0, 1])
    wanted = pod(f"p{number}", vc=vc, priority=priority, members=((source.choice([1, 2]), source.choice([1, 2])),))
    decision = request(state, wanted)
    if not isinstance(decision, Bind):
        return None
    handle(state, PodAllocated(wanted, decision.bind_info))
    return wanted, decision.bind_info


def essence(group: dict[str, object]) -> dict[str, object]:
    """A group without the names of its virtual cells, which are chosen anew."""
    virtual = group["virtual"]
    assert isinstance(virtual, dict)
    return {**group, "virtual": sorted(len(leaves) for leaves in virtual.values())}


def test_a_second_pod_of_a_restored_group_takes_its_slot() -> None:
    state = healthy_state(rack_cluster())
    info = bind_info((WHOLE, placement("n1", 0, 1)))
    handle(state, PodAllocated(pod("p0", "g", members=((2, 2),)), info))
    second = BindInfo("n1", (0, 1), "RACK", info.members)
    assert handle(state, PodAllocated(pod("p1", "g", members=((2, 2),)), second)) == Applied()
    assert state.groups["g"].slots_of == {"p0": [0], "p1": [1]}


def test_the_first_free_virtual_cell_of_the_recorded_level_is_chosen() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1, "RACK.NODE": 1})))
    restore(state, pod("g"), placement("n2", 0, 1, cell_type="NODE"))
    restore(state, pod("h"), placement("n0", 0, 1, cell_type="RACK"))
    assert virtual_addresses(state, "g") == ["A/1/0", "A/1/1"]
    assert virtual_addresses(state, "h") == ["A/0/0/0", "A/0/0/1"]


def test_a_virtual_cell_that_is_doomed_to_other_hardware_is_passed_over() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    set_nodes(state, "n0", is_healthy=False)
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "0/n0")
    assert restore(state, pod("g"), placement("n3", 0, 1)) == Applied()
    assert virtual_addresses(state, "g") == ["A/1/0", "A/1/1"]


def test_leaves_below_a_bound_cell_share_its_virtual_cell() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2})))
    restore(state, pod("g"), placement("n2", 0, 1, cell_type="RACK"))
    restore(state, pod("h"), placement("n3", 0, 1, cell_type="RACK"))
    assert virtual_addresses(state, "h") == ["A/0/1/2", "A/0/1/3"]


def test_a_group_of_a_pinned_cell_returns_to_it() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1}, ("pin",)), pins={"n1": "pin"}))
    restore(state, pod("g", pinned_cell_id="pin"), placement("n1", 0, 1))
    assert virtual_addresses(state, "g") == ["A/1/0", "A/1/1"]


def test_an_opportunistic_group_has_no_virtual_cells() -> None:
    state = healthy_state(rack_cluster())
    restore(state, pod("g", priority=-1), PodPlacement("n0", (0, 1), ("", "")))
    assert virtual_addresses(state, "g") is None
    assert affinity_group(state, "g")["status"]["physicalPlacement"] == {"n0": [0, 1]}


def test_a_group_on_bad_hardware_is_restored_in_its_vc() -> None:
    """Pods before nodes: every node is bad, and preassigned cells are doomed to others."""
    state = new_state(rack_cluster(quota("A", {"RACK.NODE": 2})))
    restore(state, pod("g"), placement("n3", 0, 1))
    assert virtual_addresses(state, "g") is not None
    assert state.groups["g"].lazy_preemptor is None


# --- what is gone --------------------------------------------------------------------------------------------------


def test_a_leaf_that_is_not_configured_any_more_is_left_out() -> None:
    state = healthy_state(rack_cluster())
    restore(state, pod("g", members=((2, 2),)), WHOLE, placement("gone", 0, 1))
    assert state.groups["g"].physical.tolist()[2:] == [NO_CELL, NO_CELL]
    assert state.groups["g"].virtual is not None


def test_a_leaf_that_another_group_uses_is_left_out() -> None:
    state = healthy_state(rack_cluster())
    restore(state, pod("g", members=((1, 1),)), placement("n0", 0))
    restore(state, pod("h"), WHOLE)
    assert state.groups["h"].physical.tolist() == [NO_CELL, leaf(state, "n0", 1)]


def test_a_group_of_which_nothing_is_left_runs_on() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("g")
    restore(state, wanted, placement("gone", 0, 1))
    assert affinity_group(state, "g")["status"]["allocatedPods"] == ["g"]
    delete(state, wanted)
    check_invariants(state)
    assert not state.groups


# --- a place in the VC that is lost --------------------------------------------------------------------------------


def assert_lazily_preempted_by_itself(state: State, applied: Applied, group: str) -> None:
    """It runs on at opportunistic priority on all its leaves."""
    assert applied.lazily_preempted == (group,)
    assert state.groups[group].lazy_preemptor == group
    assert state.groups[group].virtual is None
    assert set(state.cells.priority[state.groups[group].physical].tolist()) == {-1}
    assert state.groups[group].state is GroupState.ALLOCATED


def reconfigured(*vcs: str) -> ClusterSpec:
    """A has two nodes; other VCs none."""
    return rack_cluster(quota("A", {"RACK.NODE": 2}), *(quota(vc, {}) for vc in vcs))


LOST = {
    "its VC is gone": (reconfigured(), pod("g", vc="X"), WHOLE),
    "its VC has no cells any more": (reconfigured("B"), pod("g", vc="B"), WHOLE),
    "its type is gone": (reconfigured(), pod("g"), placement("n0", 0, 1, cell_type="POOL")),
    "its VC has no cell of its type any more": (reconfigured(), pod("g"), placement("n0", 0, 1, cell_type="RACK")),
    "its pinned cell is gone": (reconfigured(), pod("g", pinned_cell_id="pin"), WHOLE),
    "its pinned cell is elsewhere": (
        rack_cluster(quota("A", {}, ("pin",)), pins={"n1": "pin"}),
        pod("g", pinned_cell_id="pin"),
        WHOLE,
    ),
    "its cells are pinned now": (
        rack_cluster(quota("A", {"RACK.NODE": 1}, ("pin",)), pins={"n0": "pin"}),
        pod("g"),
        WHOLE,
    ),
    "its cells are another VC's pinned ones now": (
        rack_cluster(quota("A", {"RACK.NODE": 1}), quota("B", {}, ("pin",)), pins={"n0": "pin"}),
        pod("g"),
        WHOLE,
    ),
}


@pytest.mark.parametrize("why", LOST)
def test_a_group_is_lazily_preempted_when(why: str) -> None:
    spec, wanted, where = LOST[why]
    state = healthy_state(spec)
    assert_lazily_preempted_by_itself(state, restore(state, wanted, where), "g")


def test_a_group_is_lazily_preempted_when_its_vc_has_no_free_cell() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 1})))
    restore(state, pod("first"), placement("n1", 0, 1))
    applied = restore(state, pod("g"), WHOLE)
    assert_lazily_preempted_by_itself(state, applied, "g")


def test_a_group_is_lazily_preempted_when_its_cells_would_break_vc_safety() -> None:
    """B is promised both racks now; one node of A in each would leave it one."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK": 1})))
    restore(state, pod("first"), placement("n0", 0, 1))
    applied = restore(state, pod("g"), placement("n2", 0, 1))
    assert_lazily_preempted_by_itself(state, applied, "g")


def test_a_level_that_lacks_cells_already_is_not_held_against_a_group() -> None:
    """A is promised a node too many: only the levels above and below the group's own are judged (rules 4.2, 11.9)."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 5})))
    restore(state, pod("g"), WHOLE)
    assert state.groups["g"].virtual is not None


def test_a_vc_that_is_not_configured_gets_one_number() -> None:
    state = healthy_state(rack_cluster())
    for node in ("n0", "n1"):
        restore(state, pod(node, vc="gone"), placement(node, 0, 1))
    assert state.vc_names == ["A", "B", "gone"]


def test_one_leaf_that_lost_its_place_takes_the_whole_group_along() -> None:
    state = healthy_state(reconfigured())
    places = (placement("n0", 0, 1), placement("n1", 0, 1, cell_type="RACK"))
    applied = restore(state, pod("g", members=((2, 2),)), *places)
    assert_lazily_preempted_by_itself(state, applied, "g")


@pytest.mark.parametrize("types", [("", ""), ("NODE", ""), ()])
def test_a_group_that_was_lazily_preempted_before_the_restart_stays_opportunistic(types: tuple[str, ...]) -> None:
    """A missing preassigned type says so; nobody preempts it now (rule 11.13)."""
    state = healthy_state(rack_cluster())
    assert restore(state, pod("g"), PodPlacement("n0", (0, 1), types)) == Applied()
    assert virtual_addresses(state, "g") is None
    assert state.groups["g"].lazy_preemptor is None


def test_groups_of_lower_priority_in_the_chosen_cell_are_lazily_preempted() -> None:
    """A has one rack: a stronger group on the other rack takes it over, the weaker one leaves the VC."""
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1})))
    restore(state, pod("weak", priority=0), placement("n0", 0, 1, cell_type="RACK"))
    applied = restore(state, pod("strong", priority=5), placement("n2", 0, 1, cell_type="RACK"))
    assert applied.lazily_preempted == ("weak",)
    assert state.groups["weak"].lazy_preemptor == "strong"
    assert virtual_addresses(state, "strong") == ["A/0/1/2", "A/0/1/3"]


def test_a_preemptor_of_its_cells_is_cancelled() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 4})))
    for i in range(4):
        run(state, pod(f"v{i}", priority=-1))
    urgent = pod("urgent", members=((4, 2),))
    request(state, urgent, Phase.PREEMPTING)
    delete(state, pod("v0"))
    applied = restore(state, pod("late", priority=-1), PodPlacement("n0", (0, 1), ("", "")))
    assert applied.cancelled == ("urgent",)


def test_a_doomed_cell_in_the_way_is_released() -> None:
    """At the start A's only cell is doomed to the first bad node; its pod runs on the last one."""
    state = new_state(rack_cluster(quota("A", {"RACK.NODE": 1})))
    doomed = int(state.cells.bound[cell_at(state, "A/0")])
    assert doomed != cell_at(state, "1/n3")
    restore(state, pod("g"), placement("n3", 0, 1))
    assert state.cells.bound[cell_at(state, "A/0")] == cell_at(state, "1/n3")
    assert state.cells.bound[doomed] == NO_CELL


def test_one_placement_listed_twice_seats_one_pod() -> None:
    """Two pods that were given the same cells: the second finds no free placement."""
    state = healthy_state(rack_cluster())
    restore(state, pod("p0", "g", members=((2, 2),)), WHOLE, WHOLE)
    assert state.groups["g"].physical.tolist()[2:] == [NO_CELL, NO_CELL]
    assert state.groups["g"].slots_of == {"p0": [0]}
