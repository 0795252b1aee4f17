"""Preemption where the service itself makes the victims leave."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_extender.kube.client import KubeError
from hived_extender.service.preemptions import PreemptionPolicy
from tests.extender.service.world import (
    NODES,
    World,
    node,
    pod_json,
    preempt_args,
    spec_text,
    tainted,
    to_pod,
)

BY_SERVICE = PreemptionPolicy(by_service=True)


@pytest.fixture
def world() -> Iterator[World]:
    world = World(preemption=BY_SERVICE)
    yield world
    world.service.close()


def evicted(world: World) -> set[str]:
    return {name for _, name in world.kube.leaving}


def lend_everything(world: World) -> dict[str, Any]:
    """Opportunistic pods on all nodes; returns them by node."""
    return {where: pod for pod, where in (world.place(f"o{i}", spec_text(vc="b", priority=-1)) for i in range(4))}


def test_victims_on_all_nodes_of_a_gang_are_asked_at_once(world: World) -> None:
    lend_everything(world)
    gang = world.create("g-0", spec_text(group="g", pods=2))
    reserved = set(world.filter(gang)["FailedNodes"])
    world.until(lambda: len(world.kube.leaving) == 2)
    assert {world.kube.pods[name]["spec"]["nodeName"] for name in evicted(world)} == reserved


def test_asking_again_evicts_nobody_twice(world: World) -> None:
    lend_everything(world)
    for name in ("g-0", "g-1", "g-0"):
        pod = world.kube.pods.get(name) or world.create(name, spec_text(group="g", pods=2))
        world.filter(pod)
    world.until(lambda: len(world.kube.leaving) >= 2)
    world.pass_time(0.05)
    assert len(world.kube.leaving) == 2


def test_the_gang_runs_where_its_victims_were(world: World) -> None:
    lent = lend_everything(world)
    gang = [world.create(name, spec_text(group="g", pods=2)) for name in ("g-0", "g-1")]
    reserved = set(world.filter(gang[0])["FailedNodes"])
    for where in reserved:
        world.delete(lent[where])
    assert {world.filter(pod)["NodeNames"][0] for pod in gang} == reserved


def test_the_preempt_verb_has_nothing_to_say_while_victims_leave(world: World) -> None:
    lend_everything(world)
    pod = world.create("p")
    world.filter(pod)
    before = world.snapshot()
    assert world.service.preempt_victims(preempt_args(pod)).node_name_to_meta_victims == {}
    assert world.snapshot() == before


def test_a_pod_that_is_offered_no_node_preempts_where_no_rule_keeps_it_away(world: World) -> None:
    lent = lend_everything(world)
    world.service.node_seen(tainted("n0"))
    pod = world.create("p")
    world.filter(pod, [])
    world.until(lambda: world.kube.leaving)
    assert evicted(world) == {lent["n1"]["metadata"]["name"]}


def test_a_reservation_that_loses_its_node_begins_anew_elsewhere(world: World) -> None:
    lend_everything(world)
    pod = world.create("p")
    (lost,) = world.filter(pod)["FailedNodes"]
    world.service.node_seen(node(lost, is_ready=False))
    (found,) = world.filter(pod)["FailedNodes"]
    assert found != lost
    assert list(world.groups()["ns/p"]["physicalPlacement"]) == [found]


def test_a_reservation_that_loses_its_node_after_the_victims_left_is_not_bound_there(world: World) -> None:
    lent = lend_everything(world)
    pod = world.create("p")
    (lost,) = world.filter(pod)["FailedNodes"]
    world.delete(lent[lost])
    world.service.node_seen(node(lost, is_ready=False))
    answer = world.filter(pod, [name for name in NODES if name != lost])
    assert lost not in answer["FailedNodes"]
    assert lost not in world.groups()["ns/p"]["physicalPlacement"]


def test_a_preemptor_that_lost_its_node_is_not_left_waiting(world: World) -> None:
    lend_everything(world)
    pod = world.create("p", spec_text(ignoreK8sSuggestedNodes=True))
    (lost,) = world.filter(pod)["FailedNodes"]
    world.service.node_seen(node(lost, is_ready=False))
    world.until(lambda: lost not in world.groups()["ns/p"]["physicalPlacement"])
    assert world.groups()["ns/p"]["state"] == "Preempting"


def test_victims_are_spared_when_the_preemptor_is_gone_before_they_are_evicted(world: World) -> None:
    lend_everything(world)
    world.kube.refusals += [KubeError(429, "TooManyRequests", "disruption budget")]
    pod = world.create("p")
    world.filter(pod)
    world.until(lambda: not world.kube.refusals)
    world.delete(pod)
    world.pass_time(0.7)
    assert world.kube.leaving == []


def test_victims_are_spared_when_the_preemptor_is_being_deleted_and_something_holds_it_up(world: World) -> None:
    lend_everything(world)
    before = world.snapshot()[0]
    world.kube.refusals += [KubeError(429, "TooManyRequests", "disruption budget")]
    pod = world.create("p")
    world.filter(pod)
    world.until(lambda: not world.kube.refusals)
    # Pods of jobs have a finalizer, and keep it until somebody finds that they will not start any more.
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["batch.kubernetes.io/job-tracking"]}
    world.kube.touch(pod)
    world.see(pod)
    world.pass_time(0.7)
    assert world.kube.leaving == []
    assert world.snapshot()[0] == before


def test_a_lazily_preempted_group_can_be_a_victim(world: World) -> None:
    for name in ("low-0", "low-1"):
        world.place(name, spec_text(lazyPreemptionEnable=True))
    for name in ("high-0", "high-1"):
        world.place(name, spec_text(priority=5))
    lazy = [name for name, group in world.groups().items() if group.get("lazyPreemptionStatus")]
    assert set(lazy) == {"ns/low-0", "ns/low-1"}
    world.filter(world.create("p", spec_text(vc="b")))
    world.until(lambda: world.kube.leaving)
    assert evicted(world) < {"low-0", "low-1"}


def test_a_pod_that_joins_the_victims_later_is_asked_to_leave_too(world: World) -> None:
    gang = [world.create(name, spec_text(group="v", pods=2)) for name in ("v-0", "v-1")]
    (where,) = world.filter(gang[0])["NodeNames"]
    world.bind(gang[0], where)
    world.see(gang[0])
    (reserved,) = world.filter(world.create("p", spec_text(priority=5)))["FailedNodes"]
    (other,) = world.filter(gang[1])["NodeNames"]
    assert (where, where) == (reserved, where) != (other, other)
    world.bind(gang[1], other)
    world.see(gang[1])
    world.until(lambda: evicted(world) == {"v-0"})
    world.delete(gang[0])
    world.until(lambda: evicted(world) == {"v-0", "v-1"})
    assert world.groups()["ns/p"]["state"] == "Preempting"


def test_a_term_that_ends_spares_victims_not_evicted_yet(world: World) -> None:
    lend_everything(world)
    world.kube.refusals += [KubeError(429, "TooManyRequests", "disruption budget")]
    world.filter(world.create("p"))
    world.until(lambda: not world.kube.refusals)
    world.service.follow("another leads")
    world.pass_time(0.7)
    assert world.kube.leaving == []


def test_a_pod_whose_gate_is_taken_away_is_preempted_for(world: World) -> None:
    lend_everything(world)
    pod = pod_json("gated", spec_text())
    pod["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    world.kube.add(pod)
    world.service.pod_seen(to_pod(pod))
    world.pass_time(0.2)
    assert evicted(world) == set()
    del pod["spec"]["schedulingGates"]
    world.kube.touch(pod)
    world.service.pod_seen(to_pod(pod))
    world.until(lambda: evicted(world))
    assert len(evicted(world)) == 1


def test_a_pod_that_loses_its_node_when_it_has_been_woken_is_preempted_for_anew(world: World) -> None:
    lent = lend_everything(world)
    pod = world.create("p")
    (lost,) = world.filter(pod)["FailedNodes"]
    world.until(lambda: world.kube.leaving)
    world.delete(lent[lost])
    world.until(lambda: "/api/v1/namespaces/ns/pods/p" in [path for path, _ in world.kube.patches])
    # kube-scheduler finds no node for it from now on, and so never asks.
    world.service.node_seen(node(lost, is_ready=False))
    world.until(lambda: len(world.kube.leaving) == 2)
    assert lost not in world.groups()["ns/p"]["physicalPlacement"]


def test_a_pod_whose_place_is_taken_before_anybody_asks_about_it_is_preempted_for(world: World) -> None:
    world.create("p")
    world.pass_time(1)  # it was tried, and there was room
    lend_everything(world)  # by kube-scheduler, which finds no node for the pod then
    world.until(lambda: world.kube.leaving)
    assert world.groups()["ns/p"]["state"] == "Preempting"


def test_a_pod_is_woken_once_until_kube_scheduler_asks_about_it(world: World) -> None:
    lent = lend_everything(world)
    waiting = world.create("p", spec_text(vc="b", priority=-1))
    world.filter(waiting)

    def wakings() -> int:
        return sum(path.endswith("/pods/p") for path, _ in world.kube.patches)

    for where in ("n0", "n1"):
        world.delete(lent[where])
        world.until(wakings)
        world.pass_time(0.1)
    assert wakings() == 1


def test_a_pod_is_woken_for_a_node_that_is_well_again_although_it_was_not_offered(world: World) -> None:
    world.service.node_seen(node("n3", False))
    used = [world.place(name, spec_text("a", leaf_cells=4))[1] for name in ("p", "q")]
    refused = world.filter(world.create("r", spec_text("b", leaf_cells=4)), used)
    assert "pods would have to leave" in refused["FailedNodes"]["hivedscheduler"]
    world.service.node_seen(node("n3", True))
    world.until(lambda: [path for path, _ in world.kube.patches if path.endswith("/pods/r")])
    assert world.filter(world.kube.pods["r"], ["n3"])["NodeNames"] == ["n3"]
