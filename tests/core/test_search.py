"""Which chains are tried, and the words for why nothing was found (rules 5.7 to 5.11)."""

from dataclasses import replace

import pytest

from hived.values.decisions import Bind, Decision, Wait
from hived.values.errors import UserError
from hived.values.events import Phase
from hived.values.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, Rules, VirtualClusterSpec
from tests.core.builders import (
    fingerprint,
    healthy_state,
    pod,
    quota,
    rack_cluster,
    reason,
    request,
    run,
    set_nodes,
)


def several_chains(*vcs: VirtualClusterSpec) -> ClusterSpec:
    """One node of each chain: A and Z of GPUs, M of CPUs."""
    leaf_types = {"A": "GPU", "M": "CPU", "Z": "GPU"}
    return ClusterSpec(
        {name: CellTypeSpec(name, leaf, 2, is_node_level=True) for name, leaf in leaf_types.items()},
        tuple(PhysicalCellSpec(name, address=name.lower()) for name in leaf_types),
        {vc.name: vc for vc in vcs},
    )


def bound_node(decision: Decision) -> str:
    assert isinstance(decision, Bind), decision
    return decision.bind_info.node


# --- requests that can never be met --------------------------------------------------------------------------------

IMPOSSIBLE = {
    "an unknown VC": (pod("p", vc="X"), "VC X does not exists!"),
    "a pinned cell of another VC": (pod("p", vc="B", pinned_cell_id="pin"), "VC B does not have pinned cell pin"),
    "an unknown pinned cell": (pod("p", pinned_cell_id="no"), "VC A does not have pinned cell no"),
    "an opportunistic pod in a pinned cell": (
        pod("p", priority=-1, pinned_cell_id="pin"),
        "opportunistic pod not supported to use pinned cell pin",
    ),
    "an unknown leaf cell type": (
        pod("p", leaf_cell_type="TPU"),
        "Pod requesting leaf cell type TPU which the whole cluster does not have",
    ),
    "a leaf cell type that the VC lacks": (
        pod("p", vc="C", leaf_cell_type="GPU"),
        "Pod requesting leaf cell type GPU which VC C does not have",
    ),
    "an unknown VC and an unknown pinned cell": (pod("p", vc="X", pinned_cell_id="no"), "VC X does not exists!"),
}


@pytest.mark.parametrize("mistake", IMPOSSIBLE)
@pytest.mark.parametrize("phase", Phase)
def test_a_request_is_refused_for(mistake: str, phase: Phase) -> None:
    state = healthy_state(
        rack_cluster(
            quota("A", {"RACK.NODE": 1}, ("pin",)), quota("B", {"RACK": 1}), quota("C", {}), pins={"n0": "pin"}
        )
    )
    wanted, message = IMPOSSIBLE[mistake]
    before = fingerprint(state)
    with pytest.raises(UserError) as refused:
        request(state, wanted, phase)
    assert refused.value.message == f"[p(ns/p)]: {message}"
    assert refused.value.code == 400
    assert fingerprint(state) == before


@pytest.mark.parametrize(
    ("vc", "priority", "leaf_type", "told"),
    [
        ("A", 0, "TPU", "the whole cluster does not have; set it to a type that virtual cluster A has: GPU"),
        ("C", 0, "GPU", "VC C does not have; virtual cluster C has no cells besides pinned ones"),
        ("C", -1, "TPU", "the whole cluster does not have; set it to a type that the cluster has: GPU"),
    ],
)
def test_a_leaf_cell_type_that_is_not_to_be_had_is_told_with_those_that_are(
    vc: str, priority: int, leaf_type: str, told: str
) -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 1}), quota("C", {}))
    state = healthy_state(replace(spec, rules=Rules.BETTER))
    with pytest.raises(UserError) as refused:
        request(state, pod("p", vc=vc, priority=priority, leaf_cell_type=leaf_type))
    assert refused.value.message.endswith(f" leaf cell type {leaf_type} which {told}")


def test_the_leaf_cell_type_of_a_pod_in_a_pinned_cell_is_not_looked_at() -> None:
    state = healthy_state(rack_cluster(quota("A", {}, ("pin",)), pins={"n1": "pin"}))
    assert bound_node(request(state, pod("p", pinned_cell_id="pin", leaf_cell_type="TPU"))) == "n1"


def test_an_opportunistic_pod_may_use_a_leaf_cell_type_that_its_vc_lacks() -> None:
    state = healthy_state(rack_cluster(quota("A", {})))
    assert isinstance(request(state, pod("p", priority=-1, leaf_cell_type="GPU")), Bind)


# --- which chains, in which order ----------------------------------------------------------------------------------


def test_leaf_cell_types_are_tried_in_ascending_order() -> None:
    state = healthy_state(several_chains(quota("V", {"Z": 1, "M": 1, "A": 1})))
    assert bound_node(request(state, pod("p", vc="V"))) == "m"


def test_chains_of_one_type_are_tried_in_ascending_order() -> None:
    state = healthy_state(several_chains(quota("V", {"Z": 1, "M": 1, "A": 1})))
    assert bound_node(request(state, pod("p", vc="V", leaf_cell_type="GPU"))) == "a"


def test_a_guaranteed_pod_is_placed_only_where_its_vc_has_cells() -> None:
    state = healthy_state(several_chains(quota("V", {"Z": 1})))
    assert bound_node(request(state, pod("p", vc="V"))) == "z"


def test_an_opportunistic_pod_is_placed_anywhere() -> None:
    state = healthy_state(several_chains(quota("V", {"Z": 1})))
    assert bound_node(request(state, pod("p", vc="V", priority=-1))) == "m"


def test_the_next_chain_is_tried_when_one_has_no_room() -> None:
    state = healthy_state(several_chains(quota("V", {"Z": 1, "A": 1})))
    run(state, pod("first", vc="V"))
    assert bound_node(request(state, pod("p", vc="V"))) == "z"


def test_a_pinned_cell_is_not_part_of_the_vcs_other_cells() -> None:
    state = healthy_state(rack_cluster(quota("A", {}, ("pin",)), pins={"n1": "pin"}))
    assert request(state, pod("p")) == Wait("")


# --- reasons to wait -----------------------------------------------------------------------------------------------


def test_too_large_a_gang_waits_for_capacity_in_its_vc() -> None:
    state = healthy_state(rack_cluster())
    assert reason(request(state, pod("p", members=((3, 2),)))) == "insufficient capacity when scheduling in VC A"


def test_too_large_an_opportunistic_gang_waits_for_capacity_in_the_cluster() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("p", priority=-1, members=((5, 2),))
    assert reason(request(state, wanted)) == "insufficient capacity when scheduling in physical cluster"


def test_a_gang_that_needs_a_bad_node_waits_for_it() -> None:
    state = healthy_state(rack_cluster())
    set_nodes(state, "n1", is_healthy=False)
    wanted = pod("p", priority=-1, members=((4, 2),))
    assert (
        reason(request(state, wanted)) == "have to use at least one bad node 0/n1 when scheduling in physical cluster"
    )


def test_a_gang_that_needs_a_non_suggested_node_waits_for_it() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("p", priority=-1, members=((3, 2),), ignore_suggested_nodes=False)
    assert reason(request(state, wanted, Phase.FILTERING, "n0", "n3")) == (
        "have to use at least one non-suggested node 0/n1 when scheduling in physical cluster"
    )


def test_a_placement_that_cannot_be_mapped_is_shown() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("p", members=((1, 1), (1, 2)), ignore_suggested_nodes=False)
    assert reason(request(state, wanted, Phase.FILTERING, "n2")) == (
        "Mapping the virtual placement would need to use at least one bad or non-suggested node"
        ' (virtual placement : {"A/0":["A/0/0"],"A/1":["A/1/0","A/1/1"]})'
    )


def test_a_placement_that_only_a_bad_node_could_complete_is_shown_without_suggestions() -> None:
    """B's quota needs one of the two racks whole, and the other one has a bad node."""
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK": 1})))
    set_nodes(state, "n0", is_healthy=False)
    assert reason(request(state, pod("p", members=((2, 2),)))) == (
        "Mapping the virtual placement would need to use at least one bad node"
        ' (virtual placement : {"A/0":["A/0/0","A/0/1"],"A/1":["A/1/0","A/1/1"]})'
    )


def test_a_pod_that_heeds_suggestions_is_told_so_though_every_node_is_suggested() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK": 1})))
    set_nodes(state, "n0", is_healthy=False)
    wanted = pod("p", members=((2, 2),), ignore_suggested_nodes=False)
    for suggested in ((), state.topology.node_names):
        assert "at least one bad or non-suggested node" in reason(request(state, wanted, Phase.FILTERING, *suggested))


def test_without_a_type_the_last_reason_that_is_not_empty_is_given() -> None:
    """CPU has no chain of this VC, GPU's last chain is Z (rule 5.11)."""
    state = healthy_state(several_chains(quota("V", {"A": 1, "Z": 1})))
    set_nodes(state, "a", is_healthy=False)
    assert (
        reason(request(state, pod("p", vc="V", members=((2, 2),)))) == "insufficient capacity when scheduling in VC V"
    )


def test_a_type_without_chains_to_try_keeps_the_reason_of_the_one_before() -> None:
    """The VC has CPUs only, and GPUs are tried last."""
    state = healthy_state(several_chains(quota("V", {"M": 1})))
    assert (
        reason(request(state, pod("p", vc="V", members=((2, 2),)))) == "insufficient capacity when scheduling in VC V"
    )


def test_without_any_chain_to_try_there_is_no_reason() -> None:
    state = healthy_state(several_chains(quota("V", {})))
    assert reason(request(state, pod("p", vc="V"))) == ""


# --- sizes beyond all bounds (rule 2.6) -------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [-1, 0])
@pytest.mark.parametrize(
    "members",
    [((1, 2**31),), ((2**63, 1),), ((2**62, 1), (2**62, 2)), ((2**31 - 1, 2**31 - 1),), ((2**100, 2**100),)],
)
def test_sizes_beyond_all_bounds_wait_for_capacity(members: tuple[tuple[int, int], ...], priority: int) -> None:
    state = healthy_state(rack_cluster())
    assert reason(request(state, pod("p", priority=priority, members=members))).startswith("insufficient capacity")


# --- suggested nodes -----------------------------------------------------------------------------------------------


def test_a_suggested_node_is_preferred() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("p", priority=-1, ignore_suggested_nodes=False)
    assert bound_node(request(state, wanted, Phase.FILTERING, "n2")) == "n2"


def test_suggestions_are_ignored_by_default() -> None:
    state = healthy_state(rack_cluster())
    assert bound_node(request(state, pod("p", priority=-1), Phase.FILTERING, "n2")) == "n0"


def test_a_guaranteed_pod_is_mapped_onto_a_suggested_node() -> None:
    state = healthy_state(rack_cluster())
    wanted = pod("p", ignore_suggested_nodes=False)
    assert bound_node(request(state, wanted, Phase.FILTERING, "n2")) == "n2"
