"""From what nodes offer and pods use to the leaf cells that cannot be had."""

import itertools
import random
import time
from collections.abc import Callable

import pytest

from hived_extender.machine.devices.shortage import in_short
from hived_extender.machine.devices.table import Part, use_of
from tests.extender.machine.devices.floor import CLASS, GPU, Floor, gpus, pod

IS_NVIDIA = f"device.driver == '{CLASS}' && device.attributes['{CLASS}'].type == 'gpu'"


# ---- what nodes offer


def test_a_node_that_offers_its_devices_has_lost_none() -> None:
    floor = Floor()
    floor.node("n0", nvidia_com__gpu="4")
    assert floor.core.calls == []


@pytest.mark.parametrize(("offered", "lost"), [("3", 1), ("0", 4), ("9", 0)])
def test_devices_that_a_node_does_not_offer_are_lost(offered: str, lost: int) -> None:
    floor = Floor()
    floor.node("n0", nvidia_com__gpu=offered)
    assert floor.core.lost == ({("n0", "A"): (lost, ())} if lost else {})


def test_a_node_is_taken_at_its_configured_word_where_no_node_of_its_type_reports_devices() -> None:
    floor = Floor()
    floor.node("n0")
    floor.node("n1")
    assert floor.core.calls == []


def test_a_node_without_the_resource_has_no_devices_where_another_one_reports_them() -> None:
    floor = Floor()
    floor.node("n0")
    floor.node("n1", nvidia_com__gpu="4")
    assert floor.core.lost == {("n0", "A"): (4, ())}


def test_nodes_count_as_configured_again_when_the_last_one_ceases_to_report_devices() -> None:
    floor = Floor()
    floor.node("n0")
    floor.node("n1", nvidia_com__gpu="4")
    floor.node("n1")
    assert floor.core.lost == {}


def test_a_node_that_has_reported_no_resource_at_all_counts_as_configured() -> None:
    floor = Floor()
    floor.node("n1", nvidia_com__gpu="4")
    floor.table.put_node("n0", None)
    floor.settle()
    assert floor.core.lost == {}


def test_nodes_that_are_not_configured_do_not_matter() -> None:
    floor = Floor()
    floor.node("n0")
    floor.node("other", nvidia_com__gpu="4")
    floor.pod("p", "other", 2)
    assert floor.core.calls == []


def test_devices_come_back() -> None:
    floor = Floor()
    floor.node("n0", nvidia_com__gpu="3")
    floor.node("n0", nvidia_com__gpu="4")
    assert floor.core.calls == [("n0", 1), ("n0", 0)]


# ---- pods


def test_a_pod_that_holds_no_cells_occupies_as_many_leaf_cells_as_it_requests() -> None:
    floor = Floor()
    floor.pod("p", "n0", 2)
    assert floor.core.lost == {("n0", "A"): (2, ())}


def test_a_pod_that_holds_cells_occupies_nothing_beside_them() -> None:
    floor = Floor()
    floor.holders.add("p")
    floor.pod("p", "n0", 2)
    assert floor.core.calls == []


def test_a_pod_that_has_ended_occupies_nothing() -> None:
    floor = Floor()
    floor.pod("p", "n0", 2)
    floor.pod("p", "n0", 2, phase="Succeeded")
    assert floor.core.lost == {}


def test_missing_devices_and_devices_in_use_add_up_to_all_leaf_cells_at_most() -> None:
    floor = Floor()
    floor.node("n0", nvidia_com__gpu="3")
    floor.pod("p", "n0", 2)
    first = dict(floor.core.lost)
    floor.pod("q", "n0", 2)
    assert (first, floor.core.lost) == ({("n0", "A"): (3, ())}, {("n0", "A"): (4, ())})


def test_another_resource_does_not_matter() -> None:
    floor = Floor()
    floor.pod("p", "n0", 2, "amd.com/gpu")
    assert floor.core.calls == []


def test_use_that_is_to_be_ignored_is_not_counted() -> None:
    floor = Floor(f"foreignDevices: {{{GPU}: ignore}}")
    floor.node("n0", nvidia_com__gpu="3")
    floor.pod("p", "n0", 2)
    floor.claim("c", "n0", ["gpu-0"])
    assert floor.core.lost == {("n0", "A"): (1, ())}


def test_a_leaf_cell_of_several_devices_is_lost_with_any_of_them() -> None:
    floor = Floor()
    floor.pod("p", "n3", 1, "d/gpu")
    first = dict(floor.core.lost)
    floor.pod("p", "n3", 3, "d/gpu")
    assert (first, floor.core.lost) == ({("n3", "D"): (1, ())}, {("n3", "D"): (2, ())})


@pytest.mark.parametrize(
    ("count", "lost"), [(1, {"B": 1}), (2, {"B": 1, "C": 1}), (3, {"B": 2, "C": 1}), (9, {"B": 2, "C": 2})]
)
def test_types_that_share_a_resource_of_a_node_share_what_is_lost(count: int, lost: dict[str, int]) -> None:
    floor = Floor()
    floor.pod("p", "n2", count, "b.c/gpu")
    assert {leaf_type: found[0] for (_, leaf_type), found in floor.core.lost.items()} == lost


def test_an_init_container_that_runs_on_counts_beside_the_others() -> None:
    init = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {GPU: "1"}}}
    main = {"name": "main", "resources": {"limits": {GPU: "2"}}}
    use = use_of(pod("p", "n0", [main], initContainers=[init]))
    assert use is not None
    assert use.requests == {GPU: 3}


# ---- dynamic resource allocation


def test_a_claim_occupies_the_very_devices_that_it_has() -> None:
    floor = Floor()
    floor.claim("c", "n0", ["gpu-1", "gpu-3"])
    assert floor.core.lost == {("n0", "A"): (2, (1, 3))}


def test_devices_without_a_number_are_counted() -> None:
    floor = Floor()
    floor.claim("c", "n0", ["left", "gpu-7"])
    assert floor.core.lost == {("n0", "A"): (2, ())}


def test_an_attribute_goes_before_the_name_of_a_device() -> None:
    floor = Floor()
    floor.claim("c", "n0", ["gpu-0"])
    floor.slice("n0", [{"name": "gpu-0", "attributes": {f"{CLASS}/index": {"int": 2}}}])
    assert floor.core.lost == {("n0", "A"): (1, (2,))}


def test_a_claim_of_a_pod_with_cells_occupies_nothing_beside_them() -> None:
    floor = Floor()
    floor.holders.add("p")
    floor.claim("c", "n0", ["gpu-0"], ["p"])
    assert floor.core.calls == []


def test_a_device_that_two_claims_have_counts_once() -> None:
    floor = Floor()
    floor.claim("c", "n0", ["left"])
    floor.claim("d", "n0", ["left"])
    assert floor.core.lost == {("n0", "A"): (1, ())}


def test_a_claim_that_is_given_back_occupies_nothing() -> None:
    floor = Floor()
    floor.claim("c", "n0", ["gpu-0"])
    floor.claim("c", "n0", [])
    assert floor.core.lost == {}


def test_a_claim_of_another_class_does_not_matter() -> None:
    floor = Floor()
    floor.claim("c", "n0", ["gpu-0"], asks_for="net.example")
    assert floor.core.calls == []


def test_a_claim_that_kubernetes_made_for_a_request_counts_with_the_request() -> None:
    floor = Floor()
    floor.pod("p", "n0", 1)
    floor.claim("c", "n0", ["gpu-0"], ["p"], annotations={"resource.kubernetes.io/extended-resource-claim": "true"})
    assert floor.core.lost == {("n0", "A"): (1, ())}


def test_devices_that_are_published_with_a_taint_are_lost_by_number() -> None:
    floor = Floor()
    floor.device_class(IS_NVIDIA)
    floor.slice("n0", gpus(0, 1, 2, 3, tainted=[2]))
    assert floor.core.lost == {("n0", "A"): (1, (2,))}


def test_a_tainted_device_and_the_one_that_is_not_offered_are_the_same() -> None:
    floor = Floor()
    floor.device_class(IS_NVIDIA)
    floor.slice("n0", gpus(0, 1, 2, 3, tainted=[2]))
    floor.node("n0", nvidia_com__gpu="3")
    assert floor.core.lost == {("n0", "A"): (1, (2,))}


def test_devices_that_are_not_published_any_more_are_lost() -> None:
    floor = Floor()
    floor.device_class(IS_NVIDIA)
    floor.slice("n0", gpus(0, 1, 3))
    assert floor.core.lost == {("n0", "A"): (1, ())}


def test_a_pool_of_which_slices_are_outstanding_says_nothing() -> None:
    floor = Floor()
    floor.device_class(IS_NVIDIA)
    floor.slice("n0", gpus(0, 1), of=2)
    early = list(floor.core.calls)
    floor.slice("n0", gpus(2, 3), of=2, part=1)
    assert (early, floor.core.calls) == ([], [])


def test_slices_of_an_older_generation_are_obsolete() -> None:
    floor = Floor()
    floor.device_class(IS_NVIDIA)
    floor.slice("n0", gpus(0, 1, 2, 3), generation=2)
    floor.slice("n0", gpus(0, 1, tainted=[0, 1]), generation=1, part=1)
    assert floor.core.calls == []


def test_devices_of_another_kind_are_not_those_of_the_class() -> None:
    floor = Floor()
    floor.device_class(IS_NVIDIA)
    mig = {"name": "gpu-0-mig-1", "attributes": {"type": {"string": "mig"}}, "taints": [{"effect": "NoExecute"}]}
    floor.slice("n0", [*gpus(0, 1, 2, 3), mig])
    assert floor.core.calls == []


def test_a_class_that_is_not_understood_makes_nothing_missing() -> None:
    floor = Floor()
    floor.device_class("device.capacity['memory'].isGreaterThan(quantity('40Gi'))")
    floor.slice("n0", gpus(0))
    assert floor.core.calls == []


# ---- as a whole


def test_the_reasons_are_told() -> None:
    floor = Floor()
    floor.node("n0", nvidia_com__gpu="3")
    floor.pod("p", "n0", 2)
    (loss,) = floor.losses.current.values()
    assert in_short(loss) == "device missing: allocatable 3 of 4 nvidia.com/gpu; 2 used by ns/p (not placed by hived)"


def test_leaf_cells_that_are_to_be_had_again_are_told_first() -> None:
    floor = Floor()
    floor.pod("p", "n1", 2)
    floor.core.calls.clear()
    floor.table.put_node("n0", {GPU: 1})
    floor.table.drop(Part.PODS, "p")
    floor.table.put_node("n1", {GPU: 4})
    floor.settle()
    assert floor.core.calls == [("n1", 0), ("n0", 3)]


def test_the_losses_are_the_same_in_whichever_order_facts_come() -> None:
    def facts(floor: Floor) -> list[Callable[[], None]]:
        return [
            lambda: floor.node("n0", nvidia_com__gpu="3"),
            lambda: floor.node("n1"),
            lambda: floor.node("n2", b_c__gpu="3"),
            lambda: floor.pod("p", "n0", 1),
            lambda: floor.pod("q", "n2", 1, "b.c/gpu"),
            lambda: floor.claim("c", "n0", ["gpu-1"]),
            lambda: floor.device_class(IS_NVIDIA),
            lambda: floor.slice("n0", gpus(0, 1, 2, 3, tainted=[3])),
        ]

    found = []
    for seed in range(20):
        floor = Floor()
        order = facts(floor)
        random.Random(seed).shuffle(order)
        for fact in itertools.chain(order, order[:3]):  # some twice
            fact()
        found.append((floor.core.lost, floor.losses.current))
    assert all(each == found[0] for each in found)
    assert found[0][0] == {("n0", "A"): (3, (1, 3)), ("n1", "A"): (4, ()), ("n2", "B"): (1, ()), ("n2", "C"): (1, ())}


def test_pods_that_come_when_nothing_is_left_cost_little() -> None:
    floor = Floor()
    floor.node("n0", nvidia_com__gpu="4")
    began = time.thread_time()
    for number in range(1500):
        floor.pod(f"p{number}", "n0", 4)
    assert time.thread_time() - began < 2.0
    assert floor.core.lost == {("n0", "A"): (4, ())}
