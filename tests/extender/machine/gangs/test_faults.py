"""Gangs in unusual company: several preemptors, changed pods, other namespaces, a silent kube-scheduler (rule 26.2)."""

import time
from typing import Any
from unittest.mock import Mock, patch

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.kinds import coscheduling
from hived_extender.jobs.kinds.description import GangKey, ObjectRef
from hived_extender.kube.client import KubeError
from hived_extender.machine import acceptance
from hived_extender.machine.acceptance import START_S
from hived_extender.machine.gangs import table as gang_table
from hived_extender.machine.pods import PodState
from tests.extender.machine.machine_table import Table
from tests.extender.machine.small_cluster import NODES, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


def test_a_gang_that_is_complete_from_the_first_and_has_no_room_hears_of_its_waiting_time() -> None:
    cluster = SmallGangCluster()
    for number in range(3):
        cluster.pod(f"w-{number}", 4, koordinator("train", 3, waiting_time="20ms"))
    cluster.ask("w-0")
    cluster.until(lambda: ("w-0", "GangTimedOut") in cluster.kube.events)
    assert "has waited for 0.02 s" in cluster.kube.messages[-1]
    cluster.service.close()


def test_the_waiting_time_of_a_gang_begins_anew_after_it_has_started() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        cluster.pod(f"w-{number}", 2, koordinator("train", 2, waiting_time="1h"))
        cluster.ask(f"w-{number}")
        assert (("gang's time", GangKey("ns", "train")) in cluster.service.machine._outbox.timers) is (number == 0)
    cluster.service.close()


def test_a_pod_that_kube_scheduler_has_asked_about_is_not_bound_behind_its_back() -> None:
    cluster = SmallGangCluster()
    with patch.object(acceptance, "FORGOTTEN_S", 0.1), patch.object(acceptance, "UNASKED_S", (0.02,)):
        for name in ("w-0", "w-1"):
            cluster.filter(cluster.pod(name, 4, koordinator("train", 2)))
    assert cluster.filter(cluster.kube.pods["w-0"])["NodeNames"]
    cluster.pass_time(0.3)
    assert cluster.kube.bind_calls == []
    cluster.service.close()


def test_a_pod_whose_binding_failed_keeps_its_place_and_is_asked_about_again() -> None:
    cluster = SmallGangCluster()
    for name in ("w-0", "w-1"):
        pod = cluster.pod(name, 4, koordinator("train", 2))
        node = cluster.filter(pod).get("NodeNames")
    cluster.filter(cluster.kube.pods["w-0"])
    cluster.kube.patches.clear()
    cluster.kube.refusals = [KubeError(500, "InternalError", "etcd is away")]
    with pytest.raises(UserError):
        cluster.bind(pod, node[0])
    cluster.until(lambda: cluster.kube.patches)
    assert cluster.filter(pod)["NodeNames"] == node
    cluster.service.close()


def test_a_gang_that_several_preempt_leaves_as_a_whole_below_its_minimum() -> None:
    cluster = SmallGangCluster()
    for number in range(4):
        cluster.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(cluster.settle()) == 4
    for number in range(2):
        cluster.pod(f"high-{number}", 4, priorityClassName="high", priority=1000)
        cluster.ask(f"high-{number}")
    cluster.until(lambda: len(cluster.kube.leaving) == 4)
    assert {name for _, name in cluster.kube.leaving} == {"low-0", "low-1", "low-2", "low-3"}


def test_pods_that_are_being_deleted_do_not_keep_up_the_minimum_for_others() -> None:
    cluster = SmallGangCluster()
    for number in range(4):
        cluster.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(cluster.settle()) == 4
    cluster.kube.pods["low-0"]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    cluster.kube.touch(cluster.kube.pods["low-0"])
    cluster.see(cluster.kube.pods["low-0"])
    for number in range(2):
        cluster.pod(f"high-{number}", 4, koordinator("high", 2), priorityClassName="high", priority=1000)
    cluster.ask("high-0")
    cluster.ask("high-1")
    cluster.until(lambda: {"low-1", "low-2", "low-3"} <= {name for _, name in cluster.kube.leaving})


def test_nobody_else_leaves_where_a_pod_that_is_being_deleted_makes_room() -> None:
    cluster = SmallGangCluster()
    for number in range(4):
        cluster.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(cluster.settle()) == 4
    cluster.kube.pods["low-0"]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    cluster.kube.touch(cluster.kube.pods["low-0"])
    cluster.see(cluster.kube.pods["low-0"])
    cluster.pod("high", 4, priorityClassName="high", priority=1000)
    cluster.ask("high")
    cluster.by_hand.settle()
    assert {name for _, name in cluster.kube.leaving} == {"low-0"}
    assert cluster.groups()["ns/high"]["state"] == "Preempting"
    cluster.drop("low-0")
    assert cluster.ask("high")


def test_gangs_that_are_gone_are_forgotten() -> None:
    cluster = SmallGangCluster()
    gangs = cluster.service.machine.cache.gangs
    for number in range(3):
        cluster.pod(f"w-{number}", 2, koordinator(f"train-{number}", 1, groups=f'["ns/train-{number}"]'))
        cluster.ask(f"w-{number}")
        cluster.drop(f"w-{number}")
        assert gangs.plan(GangKey("ns", f"train-{number}")).keys
    assert [gangs._gangs, gangs._by_name, gangs._plans, gangs._listed_by] == [{}, {}, {}, {}]


def test_a_pod_that_is_given_an_affinity_behind_its_gate_heeds_kube_scheduler() -> None:
    cluster = SmallGangCluster()
    pod = cluster.pod("w-0", 4, koordinator("train", 1), schedulingGates=[{"name": "later"}])
    del pod["spec"]["schedulingGates"]
    pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    cluster.kube.touch(pod)
    cluster.see(pod)
    assert cluster.filter(pod, ["n2"])["NodeNames"] == ["n2"]


def test_a_pod_that_is_given_our_own_annotation_leaves_its_gang() -> None:
    cluster = SmallGangCluster()
    pod = cluster.pod("w-0", 2, koordinator("train", 2))
    cluster.pod("w-1", 2, koordinator("train", 2))
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(leaf_cells=2)
    cluster.kube.touch(pod)
    cluster.see(pod)
    assert "1 of 2 pods created (missing w-0)" in cluster.ask("w-1")
    assert list(cluster.settle()) == ["w-0"]


def test_a_pod_leaves_its_gang_when_kube_scheduler_knows_first_of_our_own_annotation() -> None:
    cluster = SmallGangCluster()
    first, other = (cluster.pod(name, 2, koordinator("train", 1)) for name in ("w-0", "w-1"))
    node = cluster.filter(first)["NodeNames"][0]
    other["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(leaf_cells=2, group="pair", pods=2)
    cluster.filter(other)
    cluster.bind(first, node)
    record = cluster.service.machine.cache.pods.get("uid-w-1")
    assert record is not None
    assert (record.gang, record.place.node != "") == (None, True)
    assert cluster.placed() == {"w-0": node}


def test_mates_that_are_taken_back_with_an_older_pod_have_the_whole_time_when_they_start_again() -> None:
    table = Table()
    for name in ("r", "p", "q"):
        table.gang(name, minimum=3, gpus=2, match_policy="waiting-and-running")
    table.do("filter p; filter q; filter r; gone p; gone q")
    for name in ("s", "u"):
        table.gang(name, minimum=3, gpus=2, match_policy="waiting-and-running")
    table.do("filter s; wait 25")
    record = table.machine.cache.pods.get("uid-r")
    assert record is not None
    table.filter("r", *(name for name in NODES if name != record.place.node))
    table.wait(10)
    assert [one.state for one in table.machine.cache.pods] == [PodState.BINDING] * 3
    table.wait(START_S)
    assert [one.state for one in table.machine.cache.pods] == [PodState.WAITING] * 3


def test_which_nodes_were_offered_is_remembered_until_a_pod_is_bound() -> None:
    cluster = SmallGangCluster()
    pods = [cluster.pod(f"w-{number}", 4, koordinator("train", 2), nodeSelector={"disk": "ssd"}) for number in range(2)]
    records = [cluster.service.machine.cache.pods.get(pod["metadata"]["uid"]) for pod in pods]
    cluster.filter(pods[0], ["n1", "n2"])
    assert [record is not None and record.offer.latest is not None for record in records] == [True, False]
    cluster.filter(pods[1], ["n1", "n2"])
    assert [record is not None and record.offer.latest is not None for record in records] == [True, True]
    for pod in pods:
        cluster.bind(pod, cluster.decided()[pod["metadata"]["name"]])
        cluster.see(pod)
    assert [record is not None and record.offer.latest is not None for record in records] == [False, False]


def test_names_that_kubernetes_made_up_are_not_counted_on() -> None:
    cluster = SmallGangCluster()
    cluster.pod("train-x7k24", 2, koordinator("train", 3))
    assert cluster.ask("train-x7k24") == "rejected by podgroup/ns/train: 1 of 3 pods created"
    cluster.pod("job-9", 2, koordinator("job", 3))
    assert cluster.ask("job-9") == "rejected by podgroup/ns/job: 1 of 3 pods created"


def test_a_gang_that_lacks_millions_of_pods_is_told_at_once() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", 2, koordinator("train", 2**31 - 1))
    began = time.thread_time()
    assert "missing w-1, w-2, w-3, w-4, w-5, w-6, w-7, w-8 and 2147483638 more" in cluster.ask("w-0")
    assert time.thread_time() - began < 1


def test_gangs_of_two_namespaces_start_together_if_both_say_so() -> None:
    groups = '["ns/train", "other/server"]'
    cluster = SmallGangCluster()
    cluster.pod("server", 0, koordinator("server", 1, groups=groups), namespace="other")
    cluster.pod("w-0", 4, koordinator("train", 1))
    expected = "rejected by podgroup/ns/train of another namespace: none of its pods has other/server among its groups"
    assert cluster.ask("server") == expected
    assert "w-0" in cluster.settle()
    cluster.pod("w-1", 4, koordinator("train", 1, groups=groups))
    assert sorted(cluster.settle()) == ["server", "w-0", "w-1"]


def test_a_gang_that_names_itself_among_those_of_another_namespace_takes_nobody_along() -> None:
    low = {"priorityClassName": "low", "priority": -10}
    cluster = SmallGangCluster()
    cluster.pod("w-0", 4, koordinator("train", 1), **low)
    cluster.settle()
    cluster.pod("x", 4, koordinator("x", 1, groups='["ns/train", "other/x"]'), namespace="other", **low)
    gangs = cluster.service.machine.cache.gangs
    leaving = gangs.leaving_with([record for record in cluster.service.machine.cache.pods if record.name == "x"])
    assert [record.name for record in leaving] == ["x"]


def test_gangs_of_a_group_are_of_one_priority() -> None:
    groups = '["ns/train", "other/server"]'
    cluster = SmallGangCluster()
    cluster.pod("s", 4, koordinator("server", 1, groups=groups), namespace="other")
    cluster.pod("w", 4, koordinator("train", 1, groups=groups))
    assert "the virtual cluster of w is a, of s b" in cluster.ask("w")


def test_a_pod_without_devices_may_leave_its_gang_and_come_back() -> None:
    cluster = SmallGangCluster()
    notes = koordinator("train", 1)
    pod = cluster.pod("ps", 0, notes)
    for annotations in ({}, notes):
        pod["metadata"]["annotations"] = dict(annotations)
        cluster.kube.touch(pod)
        cluster.see(pod)
        assert bool(cluster.service.machine.cache.gangs.get(GangKey("ns", "train"))) is bool(annotations)
    assert cluster.ask("ps") == "n0"


def test_pods_that_are_over_say_what_their_object_says_also_if_that_is_known_later() -> None:
    found: dict[ObjectRef, dict[str, Any]] = {}
    objects = Mock(get=lambda kind, namespace, name: found.get(ObjectRef(kind, namespace, name)))
    cluster = SmallGangCluster(objects=objects)
    cluster.pod("w-0", 2, labels={coscheduling.LABEL: "train"}, nodeName="n0")
    cluster.become("w-0", "Succeeded")
    gangs, key, ref = (
        cluster.service.machine.cache.gangs,
        GangKey("ns", "train"),
        coscheduling.PODGROUPS.ref("ns", "train"),
    )
    found[ref] = {"metadata": {"name": "train", "namespace": "ns"}, "spec": {"minMember": 2}}
    cluster.service.object_seen(ref)
    gang = gangs.get(key)
    assert gang is not None
    assert gang.terms().minimum == 2
    cluster.drop("w-0")
    assert gangs.get(key) is None
    assert not cluster.service.machine.cache._members._naming


def test_pods_that_come_do_not_have_their_gang_planned_because_another_gang_preempts() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w", 4)
    cluster.settle()
    for number in range(2):
        cluster.pod(f"high-{number}", 4, koordinator("high", 2), priorityClassName="high", priority=1000)
    cluster.ask("high-0")
    assert cluster.groups()["podgroup/ns/high"]["state"] == "Preempting"
    cluster.service.close()  # nobody tries pods behind our back
    with patch.object(gang_table, "make_plan", wraps=gang_table.make_plan) as planned:
        cluster.pod("p-0", 4, koordinator("train", 3))
    assert planned.call_count == 0
