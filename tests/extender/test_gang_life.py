"""The life of a gang, as kube-scheduler and its pods' authors see it."""

import time
from typing import Any
from unittest.mock import Mock, patch

import pytest

from hived.errors import UserError
from hived_extender import service, waiting
from hived_extender.annotations import SCHEDULING_SPEC
from hived_extender.dialects import podgroup
from hived_extender.dialects.description import GangKey, ObjectRef
from hived_extender.kube import KubeError
from hived_extender.ledger import Ledger
from tests.extender.gang_world import GangWorld, koordinator
from tests.extender.world import preempt_args, spec_text, wait_until


def test_a_gang_starts_when_its_last_pod_is_there() -> None:
    world = GangWorld()
    for name in ("w-0", "w-1"):
        world.pod(name, 2, koordinator("train", 3))
    assert world.ask("w-0") == "rejected by podgroup ns/train: 2 of 3 pods created (missing w-2)"
    assert world.ask("w-1") == "rejected by podgroup ns/train: 2 of 3 pods created (missing w-2)"
    assert world.groups() == {}
    world.pod("w-2", 2, koordinator("train", 3))
    assert world.ask("w-2") in {"n0", "n1", "n2", "n3"}
    assert set(world.groups()) == {"ns/w-0", "ns/w-1", "ns/w-2"}
    assert len(world.settle()) == 3


def told(world: GangWorld, name: str) -> str:
    """What the condition of a pod says."""
    conditions = world.kube.pods[name]["status"].get("conditions") or [{"message": ""}]
    return str(conditions[0]["message"])


def test_pods_that_were_asked_about_before_hear_who_has_come_since() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 2, koordinator("train", 3))
        world.ask(f"w-{number}")
    wait_until(lambda: "2 of 3 pods created (missing w-2)" in told(world, "w-0"))
    assert told(world, "w-0") == told(world, "w-1")


def test_a_pod_that_nobody_asks_about_any_more_hears_that_its_gang_is_complete() -> None:
    world = GangWorld()
    world.pod("ps", 0, koordinator("train", 4))
    world.ask("ps")
    for number in range(3):
        world.pod(f"w-{number}", 4, koordinator("train", 4))
    wait_until(lambda: "1 of 4 pods created" in told(world, "ps"))
    world.ask("w-0")
    wait_until(lambda: "(4 pods start together): insufficient capacity" in told(world, "ps"))
    assert "created" not in told(world, "ps")


def test_a_gang_without_room_holds_nothing() -> None:
    world = GangWorld()
    for number in range(3):
        world.pod(f"w-{number}", 4, koordinator("train", 3))
    assert world.settle() == {}
    assert "podgroup/ns/train (3 pods start together)" in world.ask("w-0")
    assert world.groups() == {}


def test_beyond_the_minimum_pods_start_one_by_one() -> None:
    world = GangWorld()
    for number in range(4):
        world.pod(f"w-{number}", 4, koordinator("train", 2, total_number=4))
    assert sorted(world.settle()) == ["w-0", "w-1"]
    assert "insufficient" in world.ask("w-2")
    world.drop("w-0")
    assert sorted(world.settle()) == ["w-1", "w-2"]


def test_a_pod_without_devices_belongs_to_the_gang() -> None:
    world = GangWorld()
    world.pod("ps", 0, koordinator("train", 3))
    world.pod("w-0", 4, koordinator("train", 3))
    assert "2 of 3 pods created" in world.ask("ps")
    world.pod("w-1", 4, koordinator("train", 3))
    assert sorted(world.settle()) == ["ps", "w-0", "w-1"]
    assert set(world.groups()) == {"ns/w-0", "ns/w-1"}


def test_a_restart_finds_the_same() -> None:
    world = GangWorld()
    for number in range(3):
        world.pod(f"w-{number}", 2, koordinator("train", 3))
    for number in range(3):
        world.ask(f"w-{number}")  # the last has its node, the others have not heard of theirs
    assert len(world.placed()) == 1
    before = {name: group["physicalPlacement"] for name, group in world.groups().items()}
    again = world.restarted()
    assert {name: group["physicalPlacement"] for name, group in again.groups().items()} == before
    assert len(again.settle(1)) == 3


# Replaced members: who counts


def run_all(world: GangWorld) -> None:
    """Whatever has a node begins to run."""
    for name in world.placed():
        world.become(name, "Running")


def started(policy: str, pods: int = 3) -> GangWorld:
    """A gang of which all pods are needed, and run."""
    world = GangWorld()
    for number in range(pods):
        world.pod(f"w-{number}", 2, koordinator("train", pods, match_policy=policy))
    assert len(world.settle()) == pods
    run_all(world)
    return world


def replace(world: GangWorld, name: str, policy: str, pods: int = 3) -> None:
    """The pod is gone, and its controller makes another of its name."""
    world.drop(name)
    pod = world.pod(name, 2, koordinator("train", pods, match_policy=policy), uid=f"uid-{name}-again")
    assert pod["metadata"]["uid"].endswith("again")


def test_once_satisfied_a_gang_takes_any_pod() -> None:
    world = started("once-satisfied")
    for name in ("w-0", "w-1"):
        world.drop(name)
    world.pod("w-0", 2, koordinator("train", 3, match_policy="once-satisfied"), uid="uid-again")
    assert sorted(world.settle()) == ["w-0", "w-2"]


def test_waiting_and_running_pods_count_together() -> None:
    world = started("waiting-and-running")
    replace(world, "w-0", "waiting-and-running")
    assert len(world.settle()) == 3
    world.drop("w-0")
    world.drop("w-1")
    world.pod("w-0", 2, koordinator("train", 3, match_policy="waiting-and-running"), uid="uid-third")
    assert world.settle() == {"w-2": world.placed()["w-2"]}
    assert world.ask("w-0") == "rejected by podgroup ns/train: 2 of 3 pods created (missing w-1)"


def test_running_pods_do_not_count_if_only_waiting_ones_do() -> None:
    world = started("only-waiting")
    replace(world, "w-0", "only-waiting")
    assert sorted(world.settle()) == ["w-1", "w-2"]
    reason = "pods that run do not count by match policy only-waiting"
    assert world.ask("w-0") == f"rejected by podgroup ns/train: 1 of 3 pods created ({reason})"


def test_pods_that_succeeded_count_where_the_policy_says_so() -> None:
    for policy, starts in (("waiting-and-running", False), ("waiting-running-succeed", True)):
        world = started(policy)
        world.become("w-1", "Succeeded")
        replace(world, "w-0", policy)
        world.settle()
        assert bool(world.kube.pods["w-0"]["spec"]["nodeName"]) is starts
        again = world.restarted()
        again.settle()
        assert bool(world.kube.pods["w-0"]["spec"]["nodeName"]) is starts


def test_a_pod_that_succeeded_counts_no_more_once_it_is_deleted() -> None:
    world = started("waiting-running-succeed")
    world.become("w-1", "Succeeded")
    world.drop("w-1")
    replace(world, "w-0", "waiting-running-succeed")
    assert sorted(world.settle()) == ["w-2"]


# Gangs that start together


def test_groups_of_gangs_start_together_or_not_at_all() -> None:
    both = '["ns/ps", "ns/worker"]'
    world = GangWorld()
    world.pod("ps-0", 2, koordinator("ps", 1, groups=both))
    world.pod("worker-0", 2, koordinator("worker", 2, groups=both))
    assert world.settle() == {}
    assert world.ask("ps-0") == "rejected by podgroup ns/worker: 1 of 2 pods created (missing worker-1)"
    world.pod("worker-1", 2, koordinator("worker", 2, groups=both))
    assert sorted(world.settle()) == ["ps-0", "worker-0", "worker-1"]


def test_a_gang_is_bound_to_another_also_if_only_that_says_so() -> None:
    world = GangWorld()
    world.pod("worker-0", 2, koordinator("worker", 1))
    world.pod("ps-0", 2, koordinator("ps", 2, groups='["ns/ps", "ns/worker"]'))
    assert world.ask("worker-0") == "rejected by podgroup ns/ps: 1 of 2 pods created (missing ps-1)"


def test_a_group_waits_for_gangs_that_nobody_has_created() -> None:
    world = GangWorld()
    world.pod("ps-0", 2, koordinator("ps", 1, groups='["ns/ps", "ns/worker"]'))
    expected = "rejected by podgroup ns/worker, which starts together with ns/ps: no pods created"
    assert world.ask("ps-0") == expected


# Mistakes


def test_pods_of_one_gang_have_to_agree() -> None:
    world = GangWorld()
    world.pod("w-0", 2, koordinator("train", 2))
    world.pod("w-1", 2, koordinator("train", 3))
    text = "the pods of podgroup ns/train disagree: the minimum is 2 by w-0 and 3 by w-1; make them equal"
    assert (world.ask("w-0"), world.ask("w-1")) == (text, text)
    world.drop("w-1")
    world.pod("w-2", 2, koordinator("train", 2), priorityClassName="high", priority=1000)
    text = "the pods of podgroup ns/train disagree: the priority of w-0 is 0, of w-2 100"
    assert world.ask("w-0").startswith(text)
    assert world.placed() == {}


def test_a_gang_is_of_one_namespace() -> None:
    world = GangWorld()
    world.pod("w-0", 2, koordinator("train", 2))
    world.pod("w-1", 2, koordinator("train", 2), namespace="other")
    assert "1 pods in namespace other name a podgroup train too: a gang is of one namespace" in world.ask("w-0")


def test_a_device_that_no_cell_means_is_told() -> None:
    world = GangWorld()
    limits = {"limits": {"amd.com/gpu": "1"}}
    world.pod("p", 0, containers=[{"name": "main", "resources": limits}])
    assert world.ask("p").startswith("asks for amd.com/gpu, which no leaf cell type means: set skuTypes")


def test_a_refused_member_is_named() -> None:
    world = GangWorld()
    world.pod("w-0", 2, koordinator("train", 2))
    world.pod("w-1", 2, {**koordinator("train", 2), "hivedscheduler.microsoft.com/virtual-cluster": "nowhere"})
    assert "nowhere" in world.ask("w-1")
    expected = "rejected by podgroup ns/train: 2 of 2 pods created (w-1 refused (see the events there))"
    assert world.ask("w-0") == expected


def test_a_pod_behind_a_gate_is_waited_for() -> None:
    world = GangWorld()
    world.pod("w-0", 2, koordinator("train", 2))
    pod = world.pod("w-1", 2, koordinator("train", 2), schedulingGates=[{"name": "later"}])
    assert "w-1 held by a scheduling gate" in world.ask("w-0")
    del pod["spec"]["schedulingGates"]
    world.kube.touch(pod)
    world.see(pod)
    assert len(world.settle()) == 2


# Others


def test_a_gang_that_falls_below_its_minimum_leaves_as_a_whole() -> None:
    world = GangWorld()
    world.pod("ps", 0, koordinator("low", 5))
    for number in range(4):
        world.pod(f"low-{number}", 4, koordinator("low", 5), priorityClassName="low", priority=-10)
    assert len(world.settle()) == 5
    world.pod("high", 4, priorityClassName="high", priority=1000)
    world.settle(1)
    wait_until(lambda: len(world.kube.leaving) == 5)
    assert sorted(name for _, name in world.kube.leaving) == ["low-0", "low-1", "low-2", "low-3", "ps"]


def test_a_gang_that_keeps_its_minimum_loses_no_more_than_it_has_to() -> None:
    world = GangWorld()
    for number in range(4):
        world.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(world.settle()) == 4
    world.pod("high", 4, priorityClassName="high", priority=1000)
    world.settle(1)
    wait_until(lambda: world.kube.leaving)
    time.sleep(0.1)
    assert len(world.kube.leaving) == 1


def test_pods_beyond_the_minimum_are_the_first_to_go() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 4, koordinator("train", 1))
    assert len(world.settle()) == 2
    world.pod("high", 4, priorityClassName="high", priority=1000)
    world.settle(1)
    wait_until(lambda: world.kube.leaving)
    assert world.kube.leaving == [("evicted", "w-1")]


def test_what_is_reserved_for_a_gang_is_given_back_when_a_pod_of_it_goes() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 4)
    assert len(world.settle()) == 2
    for number in range(2):
        world.pod(f"high-{number}", 4, koordinator("high", 2), priorityClassName="high", priority=1000)
    world.settle(1)
    assert world.groups()["podgroup/ns/high"]["state"] == "Preempting"
    world.drop("high-1")
    assert "podgroup/ns/high" not in world.groups()


def test_what_is_reserved_for_a_pod_by_itself_is_given_back_when_it_needs_others() -> None:
    world = GangWorld()
    world.pod("low", 4)
    high = koordinator("high", 2, total_number=3)
    for number in range(2):
        world.pod(f"high-{number}", 2, high, priorityClassName="high", priority=1000)
    assert len(world.settle()) == 3
    world.pod("high-2", 4, high, priorityClassName="high", priority=1000)
    world.settle(1)
    assert world.groups()["ns/high-2"]["state"] == "Preempting"
    world.drop("high-0")
    world.drop("high-1")
    assert "ns/high-2" not in world.groups()


def test_a_pod_that_was_refused_by_itself_reserves_with_its_gang_alone() -> None:
    world = GangWorld()
    high = koordinator("high", 2, total_number=3)
    for number, gpus in enumerate((4, 4, 2)):
        world.pod(f"high-{number}", gpus, high, priorityClassName="high", priority=1000)
    assert len(world.settle()) == 2
    world.drop("high-0")
    world.drop("high-1")
    for number in range(2):
        world.pod(f"low-{number}", 4)
        world.ask(f"low-{number}")
    world.pod("high-3", 2, high, priorityClassName="high", priority=1000)
    world.settle(1)
    assert {name for name, group in world.groups().items() if group["state"] == "Preempting"} == {"podgroup/ns/high"}


def test_a_gang_starts_when_its_victims_have_gone() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 4)
    world.settle()
    for number in range(2):
        world.pod(f"high-{number}", 4, koordinator("high", 2), priorityClassName="high", priority=1000)
    world.settle(1)
    world.drop("w-0")
    assert sorted(world.settle(1)) == ["w-1"]
    world.drop("w-1")
    assert sorted(world.settle()) == ["high-0", "high-1"]


def test_the_waiting_time_is_told_when_it_is_over() -> None:
    world = GangWorld()
    world.pod("w-0", 2, koordinator("train", 2, waiting_time="20ms"))
    world.ask("w-0")
    wait_until(lambda: ("w-0", "GangTimedOut") in world.kube.events)
    expected = "podgroup ns/train has waited for 0.02 s and could not start; it goes on waiting"
    assert expected in world.kube.messages
    world.service.close()


def test_what_was_asked_for_one_pod_is_forgotten_when_it_starts_with_others() -> None:
    world = GangWorld()
    for number in range(2):
        pod = world.pod(f"high-{number}", 2, koordinator("high", 2), priorityClassName="high", priority=1000)
        world.filter(pod)
    world.service.follow("another leads")
    for number in range(2):
        world.pod(f"w-{number}", 4)
    world.lead()
    for name in ("w-0", "w-1", "high-0", "high-1"):
        world.ask(name)
    assert set(world.groups()) == {"ns/w-0", "ns/w-1", "podgroup/ns/high"}


def test_a_gang_that_is_complete_from_the_first_and_has_no_room_hears_of_its_waiting_time() -> None:
    world = GangWorld()
    for number in range(3):
        world.pod(f"w-{number}", 4, koordinator("train", 3, waiting_time="20ms"))
    world.ask("w-0")
    wait_until(lambda: ("w-0", "GangTimedOut") in world.kube.events)
    assert "has waited for 0.02 s" in world.kube.messages[-1]
    world.service.close()


def test_the_waiting_time_of_a_gang_begins_anew_after_it_has_started() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 2, koordinator("train", 2, waiting_time="1h"))
        world.ask(f"w-{number}")
        assert (GangKey("ns", "train") in world.service._waiting.deadlines) is (number == 0)
    world.service.close()


def test_a_pod_that_kube_scheduler_has_asked_about_is_not_bound_behind_its_back() -> None:
    world = GangWorld()
    with patch.object(waiting, "UNASKED_S", 0.1):
        for name in ("w-0", "w-1"):
            world.filter(world.pod(name, 4, koordinator("train", 2)))
    assert world.filter(world.kube.pods["w-0"])["NodeNames"]
    time.sleep(0.3)
    assert world.kube.bind_calls == []
    world.service.close()


def test_a_pod_whose_binding_failed_is_bound_if_kube_scheduler_gives_up() -> None:
    world = GangWorld()
    for name in ("w-0", "w-1"):
        pod = world.pod(name, 4, koordinator("train", 2))
        node = world.filter(pod).get("NodeNames")
    world.kube.refusals = [KubeError(500, "InternalError", "etcd is away")]
    with patch.object(service, "UNASKED_S", 0.05), pytest.raises(UserError):
        world.bind(pod, node[0])
    wait_until(lambda: pod["spec"]["nodeName"])
    assert pod["spec"]["nodeName"] == node[0]
    world.service.close()


def test_a_question_about_victims_is_no_sign_that_kube_scheduler_has_a_node() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    world.service.preempt_victims(preempt_args(pods[0]))
    assert "kube-scheduler has found no node yet for w-0" in world.ask("w-1")


def test_a_gang_that_several_preempt_leaves_as_a_whole_below_its_minimum() -> None:
    world = GangWorld()
    for number in range(4):
        world.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(world.settle()) == 4
    for number in range(2):
        world.pod(f"high-{number}", 4, priorityClassName="high", priority=1000)
        world.ask(f"high-{number}")
    wait_until(lambda: len(world.kube.leaving) == 4)
    assert {name for _, name in world.kube.leaving} == {"low-0", "low-1", "low-2", "low-3"}


def test_pods_that_are_being_deleted_do_not_keep_up_the_minimum_for_others() -> None:
    world = GangWorld()
    for number in range(4):
        world.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(world.settle()) == 4
    world.kube.pods["low-0"]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    world.kube.touch(world.kube.pods["low-0"])
    world.see(world.kube.pods["low-0"])
    world.pod("high", 4, priorityClassName="high", priority=1000)
    world.ask("high")
    wait_until(lambda: {"low-1", "low-2", "low-3"} <= {name for _, name in world.kube.leaving})
    assert world.groups()["ns/high"]["state"] == "Preempting"


def test_gangs_that_are_gone_are_forgotten() -> None:
    world = GangWorld()
    gangs = world.service._facts.gangs
    for number in range(3):
        world.pod(f"w-{number}", 2, koordinator(f"train-{number}", 1, groups=f'["ns/train-{number}"]'))
        world.ask(f"w-{number}")
        world.drop(f"w-{number}")
        assert gangs.plan(GangKey("ns", f"train-{number}")).keys
    assert [gangs._gangs, gangs._by_name, gangs._plans, gangs._listed_by] == [{}, {}, {}, {}]


def test_a_pod_that_is_given_an_affinity_behind_its_gate_heeds_kube_scheduler() -> None:
    world = GangWorld()
    pod = world.pod("w-0", 4, koordinator("train", 1), schedulingGates=[{"name": "later"}])
    del pod["spec"]["schedulingGates"]
    pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    world.kube.touch(pod)
    world.see(pod)
    assert world.filter(pod, ["n2"])["NodeNames"] == ["n2"]


def test_a_pod_that_is_given_our_own_annotation_leaves_its_gang() -> None:
    world = GangWorld()
    pod = world.pod("w-0", 2, koordinator("train", 2))
    world.pod("w-1", 2, koordinator("train", 2))
    pod["metadata"]["annotations"][SCHEDULING_SPEC] = spec_text(leaf_cells=2)
    world.kube.touch(pod)
    world.see(pod)
    assert "1 of 2 pods created (missing w-0)" in world.ask("w-1")
    assert list(world.settle()) == ["w-0"]


def test_which_nodes_were_offered_is_remembered_for_waiting_pods_only() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", 4, koordinator("train", 2), nodeSelector={"disk": "ssd"}) for number in range(2)]
    records = [world.service._pods.get(pod["metadata"]["uid"]) for pod in pods]
    world.filter(pods[0], ["n1", "n2"])
    assert [record is not None and record.offered is not None for record in records] == [True, False]
    world.filter(pods[1], ["n1", "n2"])
    assert [record is not None and record.offered is not None for record in records] == [False, False]


def test_names_that_kubernetes_made_up_are_not_counted_on() -> None:
    world = GangWorld()
    world.pod("train-x7k24", 2, koordinator("train", 3))
    assert world.ask("train-x7k24") == "rejected by podgroup ns/train: 1 of 3 pods created"
    world.pod("job-9", 2, koordinator("job", 3))
    assert world.ask("job-9") == "rejected by podgroup ns/job: 1 of 3 pods created"


def test_a_gang_that_lacks_millions_of_pods_is_told_at_once() -> None:
    world = GangWorld()
    world.pod("w-0", 2, koordinator("train", 2**31 - 1))
    began = time.monotonic()
    assert "missing w-1, w-2, w-3, w-4, w-5, w-6, w-7, w-8 and 2147483638 more" in world.ask("w-0")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("name", ["ns/w-1", "podgroup/ns/train"])
def test_a_gang_whose_names_others_have_taken_is_told_and_holds_nothing(name: str) -> None:
    world = GangWorld()
    stranger = world.pod("stranger", 2, {SCHEDULING_SPEC: spec_text("a", 2, group=name, pods=2)}, namespace="other")
    assert world.ask("stranger")
    for number in range(2):
        world.pod(f"w-{number}", 2, koordinator("train", 2))
    placed = world.settle()
    assert sorted(placed) == ["stranger"]
    assert world.ask("w-0").startswith(f"podgroup ns/train cannot start: other pods are in an affinity group {name};")
    assert sorted(world.groups()) == [name]
    world.delete(stranger)
    assert sorted(world.settle()) == ["w-0", "w-1"]


def test_gangs_of_two_namespaces_start_together_if_both_say_so() -> None:
    groups = '["ns/train", "other/server"]'
    world = GangWorld()
    world.pod("server", 0, koordinator("server", 1, groups=groups), namespace="other")
    world.pod("w-0", 4, koordinator("train", 1))
    expected = "rejected by podgroup ns/train of another namespace: none of its pods has other/server among its groups"
    assert world.ask("server") == expected
    assert "w-0" in world.settle()
    world.pod("w-1", 4, koordinator("train", 1, groups=groups))
    assert sorted(world.settle()) == ["server", "w-0", "w-1"]


def test_a_gang_that_names_itself_among_those_of_another_namespace_takes_nobody_along() -> None:
    low = {"priorityClassName": "low", "priority": -10}
    world = GangWorld()
    world.pod("w-0", 4, koordinator("train", 1), **low)
    world.settle()
    world.pod("x", 4, koordinator("x", 1, groups='["ns/train", "other/x"]'), namespace="other", **low)
    gangs = world.service._facts.gangs
    leaving = gangs.leaving_with([record for record in world.service._pods if record.name == "x"])
    assert [record.name for record in leaving] == ["x"]


def test_gangs_of_a_group_are_of_one_priority() -> None:
    groups = '["ns/train", "other/server"]'
    world = GangWorld()
    world.pod("s", 4, koordinator("server", 1, groups=groups), namespace="other")
    world.pod("w", 4, koordinator("train", 1, groups=groups))
    assert "the virtual cluster of w is a, of s b" in world.ask("w")


def test_a_gang_that_had_room_when_it_was_tried_and_has_none_now_waits() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", 4, koordinator("train", 2)) for number in range(2)]
    ledger = world.service._facts.ledger
    assert ledger is not None
    world.filter(pods[0])
    round_ = world.service._facts.gangs.plan(GangKey("ns", "train")).round
    assert round_ is not None
    found = ledger.try_waiting(round_.parts[0].request)
    world.pod("other", 4)
    world.ask("other")
    with patch.object(Ledger, "try_waiting", return_value=found):
        assert world.ask("w-1") == "there is room now, the pod will be tried again"
    assert world.service.fault == ""
    assert "insufficient capacity" in world.ask("w-0")
    assert list(world.groups()) == ["ns/other"]


def test_a_pod_without_devices_may_leave_its_gang_and_come_back() -> None:
    world = GangWorld()
    notes = koordinator("train", 1)
    pod = world.pod("ps", 0, notes)
    for annotations in ({}, notes):
        pod["metadata"]["annotations"] = dict(annotations)
        world.kube.touch(pod)
        world.see(pod)
        assert bool(world.service._facts.gangs.get(GangKey("ns", "train"))) is bool(annotations)
    assert world.ask("ps") == "n0"


def test_pods_that_are_over_say_what_their_object_says_also_if_that_is_known_later() -> None:
    found: dict[ObjectRef, dict[str, Any]] = {}
    objects = Mock(get=lambda kind, namespace, name: found.get(ObjectRef(kind, namespace, name)))
    world = GangWorld(objects=objects)
    world.pod("w-0", 2, labels={podgroup.LABEL: "train"}, nodeName="n0")
    world.become("w-0", "Succeeded")
    gangs, key, ref = world.service._facts.gangs, GangKey("ns", "train"), podgroup.KIND.ref("ns", "train")
    found[ref] = {"metadata": {"name": "train", "namespace": "ns"}, "spec": {"minMember": 2}}
    world.service.object_seen(ref)
    gang = gangs.get(key)
    assert gang is not None
    assert gang.terms().minimum == 2
    world.drop("w-0")
    assert gangs.get(key) is None
    assert not world.service._facts._naming
