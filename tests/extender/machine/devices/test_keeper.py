"""Devices that hived has not given away, as the service takes them in and tells of them."""

from typing import Any

import msgspec
import pytest

from hived_config.loader import load_text
from hived_extender.api.cells import DeviceUser, Shortage
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.wire import Node
from hived_extender.machine.devices.dra import ResourceClaim
from hived_extender.reconfiguration.change import Change
from tests.extender.machine.devices.floor import GPU, claim
from tests.extender.machine.small_cluster import CONFIG, SmallCluster, node, node_json, pod_json, spec_text, to_pod
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


def other(name: str, count: int, node: str = "n0", *, phase: str = "Running", version: int = 0, **spec: Any) -> Any:
    """A pod that hived has not placed, as the API server shows it."""
    value = pod_json(name, node=node, phase=phase)
    value["spec"] |= {"schedulerName": "default-scheduler", **spec}
    value["spec"]["containers"] = [{"name": "main", "resources": {"limits": {GPU: str(count)}}}]
    value["metadata"]["resourceVersion"] = str(version)
    return value


def offering(name: str, count: int) -> Node:
    value = node_json(name)
    value["status"]["allocatable"] = {"cpu": "8", GPU: str(count)}
    return msgspec.convert(value, Node)


def lost(small: SmallCluster) -> dict[str, int]:
    """By node, the leaf cells that the core knows to be lost."""
    topology, cells = small.state.topology, small.state.cells
    counts = cells.lost[topology.arrays.node_leaf.reshape(-1, 4)].sum(axis=1).tolist()
    return {name: count for name, count in zip(topology.node_names, counts, strict=True) if count}


def test_a_pod_that_hived_has_not_placed_takes_leaf_cells_out_of_use_until_it_ends() -> None:
    small = SmallCluster()
    small.service.pod_seen(to_pod(other("p", 2)))
    during = lost(small)
    small.service.pod_seen(to_pod(other("p", 2, phase="Failed")))
    assert (during, lost(small)) == ({"n0": 2}, {})


def test_a_pod_that_is_deleted_takes_nothing_any_more() -> None:
    small = SmallCluster()
    small.service.pod_seen(to_pod(other("p", 2)))
    small.service.pod_gone("uid-p")
    assert lost(small) == {}


def test_a_pod_that_is_missing_from_a_list_takes_nothing_any_more() -> None:
    small = SmallCluster()
    small.service.pod_seen(to_pod(other("p", 2)))
    small.service.sync_pods([])
    assert lost(small) == {}


def test_an_older_view_of_a_pod_changes_nothing() -> None:
    small = SmallCluster()
    small.service.pod_seen(to_pod(other("p", 2, phase="Running", version=7)))
    small.service.pod_seen(to_pod(other("p", 1, phase="Succeeded", version=6)))
    assert lost(small) == {"n0": 2}


def test_pods_of_ours_go_where_devices_are_left() -> None:
    small = SmallCluster()
    for name in ("n0", "n1", "n2"):
        small.service.pod_seen(to_pod(other(f"on-{name}", 1, name)))
    assert small.place("p", spec_text("b"))[1] == "n3"


def test_a_pod_of_ours_with_cells_does_not_count_again() -> None:
    small = SmallCluster()
    pod, node = small.place("p", spec_text(leaf_cells=2))
    pod["spec"]["containers"][0]["resources"]["limits"][GPU] = "2"
    small.see(pod)
    small.service.follow("another replica leads")
    small.lead()
    assert (node, lost(small)) == ("n0", {})


def test_pods_of_a_gang_do_not_count_beside_their_cells() -> None:
    small = SmallGangCluster()
    for name in ("w-0", "w-1"):
        small.pod(name, 2, koordinator("train", 2))
    assert len(small.settle()) == 2
    assert (lost(small), lost(small.restarted())) == ({}, {})


def test_a_pod_of_a_gang_that_comes_with_a_node_counts() -> None:
    small = SmallGangCluster()
    small.pod("w-0", 2, koordinator("train", 2), nodeName="n2")
    assert lost(small) == {"n2": 2}


def test_a_pod_of_ours_that_somebody_has_put_on_a_node_counts() -> None:
    small = SmallCluster()
    pod = other("p", 2, schedulerName="hived")
    small.service.pod_seen(to_pod(pod))
    assert lost(small) == {"n0": 2}


def test_a_pod_whose_cells_the_core_has_refused_counts() -> None:
    small = SmallCluster()
    small.place("first", spec_text(leaf_cells=4))
    pod = small.create("second", spec_text("b", leaf_cells=2), annotations={f"{PREFIX}pod-bind-info": "{}"})
    pod["spec"]["nodeName"] = "n1"
    pod["spec"]["containers"][0]["resources"]["limits"][GPU] = "2"
    small.see(pod)
    assert lost(small) == {"n1": 2}


def test_a_new_leader_knows_what_others_use() -> None:
    small = SmallCluster(is_leading=False)
    small.service.pod_seen(to_pod(other("p", 3)))
    small.lead()
    assert lost(small) == {"n0": 3}


def test_when_a_pod_of_ours_ends_its_devices_are_not_taken_for_free_if_others_use_as_many() -> None:
    small = SmallCluster()
    pods = [small.place(f"p{i}", spec_text(leaf_cells=1, group=f"g{i}"))[0] for i in range(4)]
    small.service.pod_seen(to_pod(other("p", 1)))  # one more than the node has
    small.delete(pods[3])
    group = small.groups()
    held = [device for status in group.values() for device in status["physicalPlacement"]["n0"]]
    topology, cells = small.state.topology, small.state.cells
    leaves = topology.arrays.node_leaf[:4]
    free = [int(topology.arrays.device[leaf]) for leaf in leaves if not cells.bad[leaf]]
    assert sorted(free) == sorted(held)


def test_missing_devices_of_a_node_are_lost_until_it_offers_them() -> None:
    small = SmallCluster()
    for name in ("n0", "n1", "n2", "n3"):
        small.service.node_seen(offering(name, 3 if name == "n1" else 4))
    during = lost(small)
    small.service.node_seen(offering("n1", 4))
    assert (during, lost(small)) == ({"n1": 1}, {})


def test_a_claim_counts_for_the_pod_that_has_no_cells() -> None:
    small = SmallCluster()
    small.service.device_seen(claim("c", "n2", ["gpu-1"], ["x"]))
    (told,) = small.service.lost_devices()
    assert (lost(small), told.known_devices, told.used_by) == (
        {"n2": 1},
        [1],
        [DeviceUser("ns/x", 1, True)],
    )


def test_claims_that_are_missing_from_a_list_count_no_more() -> None:
    small = SmallCluster()
    small.service.device_seen(claim("c", "n2", ["gpu-1"], ["x"]))
    small.service.devices_listed(ResourceClaim, [])
    assert lost(small) == {}


# ---- who is told


def test_the_pod_is_told_once() -> None:
    small = SmallCluster()
    for version in (1, 2):
        small.service.pod_seen(to_pod(other("p", 2, version=version)))
    small.service.pod_seen(to_pod(other("q", 1)))
    small.until(lambda: len(small.kube.events) >= 2)
    assert sorted(small.kube.events) == [("p", "ForeignDevices"), ("q", "ForeignDevices")]
    assert (
        f"uses 2 {GPU} of n0 that hived has not given it: 2 of the node's 4 GPUs cannot be had" in small.kube.messages
    )


def test_a_node_that_lacks_devices_is_told() -> None:
    small = SmallCluster()
    small.service.node_seen(offering("n1", 3))
    small.until(lambda: small.kube.events)
    assert small.kube.events == [("n1", "DevicesMissing")]
    assert small.kube.messages == [f"allocatable 3 of 4 {GPU}: 1 of 4 GPUs cannot be had"]


def test_a_virtual_cluster_that_lacks_its_guarantee_is_told_why() -> None:
    small = SmallCluster()
    for name in ("n0", "n1", "n2"):
        small.service.pod_seen(to_pod(other(f"on-{name}", 1, name)))
    small.place("p", spec_text("b"))
    answer = small.filter(small.create("q", spec_text("a")))["FailedNodes"]["hivedscheduler"]
    assert answer == (
        "needs 1 node of 4 GPUs; a has 2 of 2 on bad nodes: "
        "node n0 is short of devices: 1 used by ns/on-n0 (not placed by hived) (since 00:16) and "
        "node n2 is short of devices: 1 used by ns/on-n2 (not placed by hived) (since 00:16)"
    )


TWO_LEVELS = CONFIG.replace("RACK.NODE, cellNumber: 1", "RACK.NODE.PAIR, cellNumber: 4")
"""a is promised two nodes and b four pairs, which is all there is."""


ONE_GPU = "{cellType: RACK.NODE.PAIR.GPU, cellNumber: 1}"


def of_promises(text: str) -> SmallCluster:
    return SmallCluster(spec=load_text(text, "promises.yaml", environ={}).cluster)


def test_promises_of_different_levels_that_cannot_all_be_kept_are_told() -> None:
    small = of_promises(TWO_LEVELS)
    small.service.pod_seen(to_pod(other("on-n0", 4, "n0")))
    assert small.service.shortages() == [
        Shortage(
            "RACK",
            ["a", "b"],
            {"PAIR": 2},
            "VCs a, b together are promised 2 PAIR more of RACK than can be had",
            ["on n0: 4 used by ns/on-n0 (not placed by hived)"],
        )
    ]
    read = small.service.metrics.registry.get_sample_value
    assert read("hived_short_leaf_cells", {"vc": "b"}) == 0
    assert read("hived_shared_short_cells", {"chain": "RACK", "cell_type": "PAIR"}) == 2
    for name in ("p", "q"):
        small.place(name, spec_text("a", leaf_cells=4))
    small.place("r", spec_text("b", leaf_cells=2))
    small.place("s", spec_text("b", leaf_cells=2))
    answer = small.filter(small.create("t", spec_text("b", leaf_cells=2)))["FailedNodes"]["hivedscheduler"]
    assert answer == (
        "needs 1 pod of 2 GPUs; b has 2 of 4 PAIR on bad nodes: "
        "node n0 is short of devices: 4 used by ns/on-n0 (not placed by hived) (since 00:16)"
    )
    assert small.service.shortages() == []


def test_a_pod_is_told_of_a_shortage_that_its_vc_shares() -> None:
    small = of_promises(TWO_LEVELS)
    small.service.pod_seen(to_pod(other("on-n0", 4, "n0")))
    answer = small.filter(small.create("p", spec_text("a", leaf_cells=4)), ["n0"])["FailedNodes"]["hivedscheduler"]
    told = "VCs a, b together are promised 2 PAIR more of RACK than can be had: on n0: 4 used by ns/on-n0"
    assert told in answer
    small.service.pod_gone("uid-on-n0")
    assert small.service.shortages() == []


def test_the_nodes_that_make_promises_short_are_named_and_no_others() -> None:
    small = of_promises(CONFIG.replace("RACK.NODE, cellNumber: 1", "RACK.NODE, cellNumber: 2"))
    small.place("p", spec_text("a", leaf_cells=2))
    small.service.pod_seen(to_pod(other("beside-p", 1, "n0")))
    assert small.service.shortages() == []
    small.service.node_seen(node("n3", False))
    (shared,) = small.service.shortages()
    assert (shared.short_cells, shared.reasons) == ({"NODE": 1}, ["on n3: not healthy"])


def test_who_is_promised_smaller_cells_only_is_not_named() -> None:
    small = of_promises(CONFIG.replace("  empty:\n    virtualCells: []", "  c:\n    virtualCells: [" + ONE_GPU + "]"))
    for name in ("n0", "n1"):
        small.service.pod_seen(to_pod(other(f"on-{name}", 1, name)))
    (shared,) = small.service.shortages()
    assert (shared.virtual_clusters, shared.short_cells) == (["a", "b"], {"NODE": 1})
    assert shared.reasons == [f"on {name}: 1 used by ns/on-{name} (not placed by hived)" for name in ("n0", "n1")]


def test_an_opportunistic_pod_is_not_told_of_guarantees() -> None:
    small = SmallCluster()
    for name in ("n0", "n1", "n2", "n3"):
        small.service.pod_seen(to_pod(other(f"on-{name}", 1, name)))
    answer = small.filter(small.create("q", spec_text("a", priority=-1)))["FailedNodes"]["hivedscheduler"]
    assert "promised" not in answer


def test_numbers_tell_of_lost_devices_and_of_guarantees_that_are_short() -> None:
    small = SmallCluster()
    for name in ("n0", "n1", "n2", "n3"):
        small.service.pod_seen(to_pod(other(f"on-{name}", 1, name)))
    read = small.service.metrics.registry.get_sample_value
    assert read("hived_lost_devices", {"resource": GPU, "reason": "pod"}) == 4
    assert read("hived_short_leaf_cells", {"vc": "a"}) == 2
    assert read("hived_short_leaf_cells", {"vc": "b"}) == 1


def test_a_pod_that_waits_is_tried_again_when_devices_come_back() -> None:
    small = SmallCluster()
    for name in ("n0", "n1", "n2", "n3"):
        small.service.pod_seen(to_pod(other(f"on-{name}", 1, name)))
    assert "FailedNodes" in small.filter(small.create("q", spec_text("a")))
    small.service.pod_gone("uid-on-n3")
    small.until(lambda: any(path.endswith("/q") for path, _ in small.kube.patches))


# ---- other configurations


@pytest.mark.parametrize(("more", "expected"), [(f"foreignDevices: {{{GPU}: ignore}}", {}), ("", {"n0": 2})])
def test_another_configuration_has_its_own_say(more: str, expected: dict[str, int]) -> None:
    old = load_text(CONFIG, "old.yaml", environ={})
    new = load_text(f"{CONFIG}{more}\n", "new.yaml", environ={})
    small = SmallCluster()
    small.service.pod_seen(to_pod(other("p", 2)))
    change = Change(old, new, None, 1)
    change.catch_up_with(small.service)
    change.switch(small.service, None)
    assert lost(small) == expected
    small.service.pod_seen(to_pod(other("p", 2, phase="Succeeded")))
    assert lost(small) == {}
