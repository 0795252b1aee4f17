"""The life of a gang, as kube-scheduler and its pods' authors see it."""

import pytest

from hived_extender.pods.annotations import SCHEDULING_SPEC
from hived_extender.service.notices import Pace
from tests.extender.service.gang_world import GangWorld, koordinator
from tests.extender.service.world import spec_text


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
    for name in ("w-0", "w-1"):
        world.until(lambda name=name: "2 of 3 pods created (missing w-2)" in told(world, name))


def test_a_pod_that_nobody_asks_about_any_more_hears_that_its_gang_is_complete() -> None:
    world = GangWorld()
    world.pod("ps", 0, koordinator("train", 4))
    world.ask("ps")
    for number in range(3):
        world.pod(f"w-{number}", 4, koordinator("train", 4))
    world.ask("w-0")
    world.until(lambda: "(4 pods start together): insufficient capacity" in told(world, "ps"))
    assert "created" not in told(world, "ps")


def test_a_pod_hears_that_its_gang_is_complete_before_kube_scheduler_asks_about_any_of_it_again() -> None:
    world = GangWorld(pace=Pace(hold_s=0.0, change_s=0.0))
    other, _ = world.place("other", spec_text("b"))
    for number in range(2):
        world.pod(f"w-{number}", 4, koordinator("train", 3))
        world.ask(f"w-{number}")
    world.until(lambda: "2 of 3 pods created" in told(world, "w-0") and "2 of 3 pods created" in told(world, "w-1"))
    world.pod("w-2", 4, koordinator("train", 3))
    world.delete(other)  # may have made room, so that all are tried, beginning with the first
    for number in range(3):
        world.until(lambda name=f"w-{number}": "(3 pods start together)" in told(world, name))


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
    world.start("w-0", "w-1", "w-2")  # the last has its node, the others are about to
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


def test_a_gang_that_is_created_anew_while_its_pods_still_end_starts_whole() -> None:
    world = started("once-satisfied")
    world.drop("w-0")
    for name in ("w-1", "w-2"):
        world.kube.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        world.become(name, "Running")
    for number in range(3):
        world.pod(f"again-{number}", 2 if number else 4, koordinator("train", 3))
    assert "insufficient" in world.ask("again-0")
    again = world.restarted()
    assert "insufficient" in again.ask("again-1")
    again.become("w-1", "Succeeded")
    assert set(again.settle()) == {"w-1", "w-2"}
    again.become("w-2", "Succeeded")
    assert {"again-0", "again-1", "again-2"} <= again.settle().keys()


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
    world.until(lambda: len(world.kube.leaving) == 5)
    assert sorted(name for _, name in world.kube.leaving) == ["low-0", "low-1", "low-2", "low-3", "ps"]


def test_a_gang_that_keeps_its_minimum_loses_no_more_than_it_has_to() -> None:
    world = GangWorld()
    for number in range(4):
        world.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(world.settle()) == 4
    world.pod("high", 4, priorityClassName="high", priority=1000)
    world.settle(1)
    world.until(lambda: world.kube.leaving)
    world.pass_time(0.1)
    assert len(world.kube.leaving) == 1


def test_pods_beyond_the_minimum_are_the_first_to_go() -> None:
    world = GangWorld()
    for number in range(2):
        world.pod(f"w-{number}", 4, koordinator("train", 1))
    assert len(world.settle()) == 2
    world.pod("high", 4, priorityClassName="high", priority=1000)
    world.settle(1)
    world.until(lambda: world.kube.leaving)
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
    world.until(lambda: ("w-0", "GangTimedOut") in world.kube.events)
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


@pytest.mark.parametrize("name", ["ns/w-1", "podgroup/ns/train"])
def test_nobody_can_take_the_names_that_a_gang_needs(name: str) -> None:
    world = GangWorld()
    world.pod("stranger", 2, {SCHEDULING_SPEC: spec_text("a", 2, group=name, pods=2)}, namespace="other")
    assert world.ask("stranger")
    for number in range(2):
        world.pod(f"w-{number}", 2, koordinator("train", 2))
    assert sorted(world.settle()) == ["stranger", "w-0", "w-1"]
    assert sorted(world.groups()) == ["ns/w-0", "ns/w-1", f"other:{name}"]
