"""The life of a gang, as kube-scheduler and its pods' authors see it (rules 26.1, 26.3, 26.6, 26.12)."""

import pytest

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.kinds import kueue
from hived_extender.machine.notices import Pace
from tests.extender.machine.small_cluster import spec_text, to_pod
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


def test_a_gang_starts_when_its_last_pod_is_there() -> None:
    cluster = SmallGangCluster()
    for name in ("w-0", "w-1"):
        cluster.pod(name, 2, koordinator("train", 3))
    assert cluster.ask("w-0") == "rejected by podgroup/ns/train: 2 of 3 pods created (missing w-2)"
    assert cluster.ask("w-1") == "rejected by podgroup/ns/train: 2 of 3 pods created (missing w-2)"
    assert cluster.groups() == {}
    cluster.pod("w-2", 2, koordinator("train", 3))
    assert cluster.ask("w-2") in {"n0", "n1", "n2", "n3"}
    assert set(cluster.groups()) == {"ns/w-0", "ns/w-1", "ns/w-2"}
    assert len(cluster.settle()) == 3


def told(cluster: SmallGangCluster, name: str) -> str:
    """The text of a pod's condition."""
    conditions = cluster.kube.pods[name]["status"].get("conditions") or [{"message": ""}]
    return str(conditions[0]["message"])


def test_pods_that_were_asked_about_before_hear_who_has_come_since() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        cluster.pod(f"w-{number}", 2, koordinator("train", 3))
        cluster.ask(f"w-{number}")
    for name in ("w-0", "w-1"):
        cluster.until(lambda name=name: "2 of 3 pods created" in told(cluster, name))
        assert "(missing w-2)" in told(cluster, name)


def test_a_gang_that_is_complete_in_time_is_not_said_to_lack_pods() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        cluster.pod(f"w-{number}", 4, koordinator("train", 2))
        cluster.pass_time(0.5)  # longer than it takes until pods that nobody has asked about are tried
    cluster.pass_time(60)
    assert cluster.kube.events == []


def test_a_pod_that_nobody_asks_about_any_more_hears_that_its_gang_is_complete() -> None:
    cluster = SmallGangCluster()
    cluster.pod("ps", 0, koordinator("train", 4))
    cluster.ask("ps")
    for number in range(3):
        cluster.pod(f"w-{number}", 4, koordinator("train", 4))
    cluster.ask("w-0")
    cluster.until(lambda: "needs 3 nodes of 4 GPUs each at once; it can never run" in told(cluster, "ps"))
    assert "created" not in told(cluster, "ps")


def test_a_pod_hears_that_its_gang_is_complete_before_kube_scheduler_asks_about_any_of_it_again() -> None:
    cluster = SmallGangCluster(pace=Pace(hold_s=0.0, change_s=0.0))
    other, _ = cluster.place("other", spec_text("b"))
    for number in range(2):
        cluster.pod(f"w-{number}", 4, koordinator("train", 3))
        cluster.ask(f"w-{number}")
    cluster.until(
        lambda: "2 of 3 pods created" in told(cluster, "w-0") and "2 of 3 pods created" in told(cluster, "w-1")
    )
    cluster.pod("w-2", 4, koordinator("train", 3))
    cluster.delete(other)  # may have made room, so that all are tried, beginning with the first
    for number in range(3):
        cluster.until(lambda name=f"w-{number}": "needs 3 nodes of 4 GPUs each at once" in told(cluster, name))
        assert "created" not in told(cluster, f"w-{number}")


def test_kube_scheduler_is_asked_anew_about_pods_that_it_tells_of_an_incomplete_gang() -> None:
    """Else its condition would say that pods are missing for as long as the gang waits for room."""
    cluster = SmallGangCluster()
    for number in range(3):
        cluster.pod(f"w-{number}", 4, koordinator("train", 3))
        answer = cluster.filter(cluster.kube.pods[f"w-{number}"])
    assert "needs 3 nodes of 4 GPUs each at once" in str(answer)
    cluster.until(lambda: {path.rsplit("/", 1)[1] for path, _ in cluster.kube.patches} >= {"w-0", "w-1"})
    for name in ("w-0", "w-1"):
        answer = cluster.filter(cluster.kube.pods[name])
        assert "needs 3 nodes of 4 GPUs each at once" in str(answer)
        assert "not complete" not in str(answer)


def test_a_gang_without_room_holds_nothing() -> None:
    cluster = SmallGangCluster()
    for number in range(3):
        cluster.pod(f"w-{number}", 4, koordinator("train", 3))
    assert cluster.settle() == {}
    never = "needs 3 nodes of 4 GPUs each at once; it can never run: a has 2 in all"
    rejected = 'Gang "ns/train" gets rejected due to member Pod "w-0" is unschedulable with reason'
    assert cluster.ask("w-0") == f'{rejected} "{never}"'
    assert cluster.groups() == {}


def test_beyond_the_minimum_pods_start_one_by_one() -> None:
    cluster = SmallGangCluster()
    for number in range(4):
        cluster.pod(f"w-{number}", 4, koordinator("train", 2, total_number=4))
    assert sorted(cluster.settle()) == ["w-0", "w-1"]
    assert cluster.ask("w-2") == "needs 1 node of 4 GPUs; a has 2 of 2 in use by train (priority 0)"
    cluster.drop("w-0")
    assert sorted(cluster.settle()) == ["w-1", "w-2"]


def test_a_pod_without_devices_belongs_to_the_gang() -> None:
    cluster = SmallGangCluster()
    cluster.pod("ps", 0, koordinator("train", 3))
    cluster.pod("w-0", 4, koordinator("train", 3))
    assert "2 of 3 pods created" in cluster.ask("ps")
    cluster.pod("w-1", 4, koordinator("train", 3))
    assert sorted(cluster.settle()) == ["ps", "w-0", "w-1"]
    assert set(cluster.groups()) == {"ns/w-0", "ns/w-1"}


def test_a_restart_finds_the_same() -> None:
    cluster = SmallGangCluster()
    for number in range(3):
        cluster.pod(f"w-{number}", 2, koordinator("train", 3))
    cluster.start("w-0", "w-1", "w-2")  # the last has its node, the others are about to
    assert len(cluster.placed()) == 1
    before = {name: group["physicalPlacement"] for name, group in cluster.groups().items()}
    again = cluster.restarted()
    assert {name: group["physicalPlacement"] for name, group in again.groups().items()} == before
    assert len(again.settle(1)) == 3


# Replaced members: who counts


def run_all(cluster: SmallGangCluster) -> None:
    """Every pod with a node begins to run."""
    for name in cluster.placed():
        cluster.become(name, "Running")


def started(policy: str, pods: int = 3) -> SmallGangCluster:
    """A gang of which all pods are needed, and run."""
    cluster = SmallGangCluster()
    for number in range(pods):
        cluster.pod(f"w-{number}", 2, koordinator("train", pods, match_policy=policy))
    assert len(cluster.settle()) == pods
    run_all(cluster)
    return cluster


def replace(cluster: SmallGangCluster, name: str, policy: str, pods: int = 3) -> None:
    """The pod is gone, and its controller makes another of its name."""
    cluster.drop(name)
    pod = cluster.pod(name, 2, koordinator("train", pods, match_policy=policy), uid=f"uid-{name}-again")
    assert pod["metadata"]["uid"].endswith("again")


def test_once_satisfied_a_gang_takes_any_pod() -> None:
    cluster = started("once-satisfied")
    for name in ("w-0", "w-1"):
        cluster.drop(name)
    cluster.pod("w-0", 2, koordinator("train", 3, match_policy="once-satisfied"), uid="uid-again")
    assert sorted(cluster.settle()) == ["w-0", "w-2"]


def test_a_gang_that_is_created_anew_while_its_pods_still_end_starts_whole() -> None:
    cluster = started("once-satisfied")
    cluster.drop("w-0")
    for name in ("w-1", "w-2"):
        cluster.kube.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        cluster.become(name, "Running")
    for number in range(3):
        cluster.pod(f"again-{number}", 2 if number else 4, koordinator("train", 3))
    assert "in use by train (priority 0, gone by" in cluster.ask("again-0")
    again = cluster.restarted()
    assert "in use by train (priority 0, gone by" in again.ask("again-1")
    again.become("w-1", "Succeeded")
    assert set(again.settle()) == {"w-1", "w-2"}
    again.become("w-2", "Succeeded")
    assert {"again-0", "again-1", "again-2"} <= again.settle().keys()


def test_waiting_and_running_pods_count_together() -> None:
    cluster = started("waiting-and-running")
    replace(cluster, "w-0", "waiting-and-running")
    assert len(cluster.settle()) == 3
    cluster.drop("w-0")
    cluster.drop("w-1")
    cluster.pod("w-0", 2, koordinator("train", 3, match_policy="waiting-and-running"), uid="uid-third")
    assert cluster.settle() == {"w-2": cluster.placed()["w-2"]}
    assert cluster.ask("w-0") == "rejected by podgroup/ns/train: 2 of 3 pods created (missing w-1)"


def test_running_pods_do_not_count_if_only_waiting_ones_do() -> None:
    cluster = started("only-waiting")
    replace(cluster, "w-0", "only-waiting")
    assert sorted(cluster.settle()) == ["w-1", "w-2"]
    reason = "pods that run do not count by match policy only-waiting"
    assert cluster.ask("w-0") == f"rejected by podgroup/ns/train: 1 of 3 pods created ({reason})"


def test_pods_that_succeeded_count_where_the_policy_says_so() -> None:
    for policy, starts in (("waiting-and-running", False), ("waiting-running-succeed", True)):
        cluster = started(policy)
        cluster.become("w-1", "Succeeded")
        replace(cluster, "w-0", policy)
        cluster.settle()
        assert bool(cluster.kube.pods["w-0"]["spec"]["nodeName"]) is starts
        again = cluster.restarted()
        again.settle()
        assert bool(cluster.kube.pods["w-0"]["spec"]["nodeName"]) is starts


def test_a_pod_that_succeeded_counts_no_more_once_it_is_deleted() -> None:
    cluster = started("waiting-running-succeed")
    cluster.become("w-1", "Succeeded")
    cluster.drop("w-1")
    replace(cluster, "w-0", "waiting-running-succeed")
    assert sorted(cluster.settle()) == ["w-2"]


# Gangs that start together


def test_groups_of_gangs_start_together_or_not_at_all() -> None:
    both = '["ns/ps", "ns/worker"]'
    cluster = SmallGangCluster()
    cluster.pod("ps-0", 2, koordinator("ps", 1, groups=both))
    cluster.pod("worker-0", 2, koordinator("worker", 2, groups=both))
    assert cluster.settle() == {}
    assert cluster.ask("ps-0") == "rejected by podgroup/ns/worker: 1 of 2 pods created (missing worker-1)"
    cluster.pod("worker-1", 2, koordinator("worker", 2, groups=both))
    assert sorted(cluster.settle()) == ["ps-0", "worker-0", "worker-1"]


def test_a_gang_is_bound_to_another_also_if_only_that_says_so() -> None:
    cluster = SmallGangCluster()
    cluster.pod("worker-0", 2, koordinator("worker", 1))
    cluster.pod("ps-0", 2, koordinator("ps", 2, groups='["ns/ps", "ns/worker"]'))
    assert cluster.ask("worker-0") == "rejected by podgroup/ns/ps: 1 of 2 pods created (missing ps-1)"


def test_a_group_waits_for_gangs_that_nobody_has_created() -> None:
    cluster = SmallGangCluster()
    cluster.pod("ps-0", 2, koordinator("ps", 1, groups='["ns/ps", "ns/worker"]'))
    expected = "rejected by podgroup/ns/worker, which starts together with ns/ps: no pods created"
    assert cluster.ask("ps-0") == expected


# Mistakes


def test_pods_of_one_gang_have_to_agree() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", 2, koordinator("train", 2))
    cluster.pod("w-1", 2, koordinator("train", 3))
    text = "the pods of podgroup/ns/train disagree: the minimum is 2 by w-0 and 3 by w-1; make them equal"
    assert (cluster.ask("w-0"), cluster.ask("w-1")) == (text, text)
    cluster.drop("w-1")
    cluster.pod("w-2", 2, koordinator("train", 2), priorityClassName="high", priority=1000)
    text = "the pods of podgroup/ns/train disagree: the priority of w-0 is 0, of w-2 100"
    assert cluster.ask("w-0").startswith(text)
    assert cluster.placed() == {}


def test_a_gang_is_of_one_namespace() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", 2, koordinator("train", 2))
    cluster.pod("w-1", 2, koordinator("train", 2), namespace="other")
    assert "and namespace other has 1 pod of a podgroup train too: a gang is of one namespace" in cluster.ask("w-0")


def test_a_device_that_no_cell_means_is_told() -> None:
    cluster = SmallGangCluster()
    limits = {"limits": {"amd.com/gpu": "1"}}
    cluster.pod("p", 0, containers=[{"name": "main", "resources": limits}])
    assert cluster.ask("p").startswith("asks for amd.com/gpu, which no leaf cell type means: set skuTypes")


def test_a_refused_member_is_named() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", 2, koordinator("train", 2))
    cluster.pod("w-1", 2, {**koordinator("train", 2), "hivedscheduler.microsoft.com/virtual-cluster": "nowhere"})
    assert "nowhere" in cluster.ask("w-1")
    expected = "rejected by podgroup/ns/train: 2 of 2 pods created (w-1 refused (see the events there))"
    assert cluster.ask("w-0") == expected


def test_a_pod_behind_a_gate_is_waited_for() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", 2, koordinator("train", 2))
    pod = cluster.pod("w-1", 2, koordinator("train", 2), schedulingGates=[{"name": "later"}])
    assert "w-1 held by a scheduling gate" in cluster.ask("w-0")
    del pod["spec"]["schedulingGates"]
    cluster.kube.touch(pod)
    cluster.see(pod)
    assert len(cluster.settle()) == 2


@pytest.mark.parametrize("gate", kueue.GATES)
def test_a_pod_that_kueue_has_not_admitted_does_not_count_as_ready(gate: str) -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", 2, koordinator("train", 2))
    pod = cluster.pod("w-1", 2, koordinator("train", 2), schedulingGates=[{"name": gate}])
    expected = "rejected by podgroup/ns/train: 2 of 2 pods created (w-1: Kueue has not admitted it yet)"
    assert cluster.ask("w-0") == expected
    del pod["spec"]["schedulingGates"]
    cluster.kube.touch(pod)
    cluster.see(pod)
    assert len(cluster.settle()) == 2


# Others


def test_a_gang_that_falls_below_its_minimum_leaves_as_a_whole() -> None:
    cluster = SmallGangCluster()
    cluster.pod("ps", 0, koordinator("low", 5))
    for number in range(4):
        cluster.pod(f"low-{number}", 4, koordinator("low", 5), priorityClassName="low", priority=-10)
    assert len(cluster.settle()) == 5
    cluster.pod("high", 4, priorityClassName="high", priority=1000)
    cluster.settle(1)
    cluster.until(lambda: len(cluster.kube.leaving) == 5)
    assert sorted(name for _, name in cluster.kube.leaving) == ["low-0", "low-1", "low-2", "low-3", "ps"]


def test_a_gang_that_keeps_its_minimum_loses_no_more_than_it_has_to() -> None:
    cluster = SmallGangCluster()
    for number in range(4):
        cluster.pod(f"low-{number}", 4, koordinator("low", 3), priorityClassName="low", priority=-10)
    assert len(cluster.settle()) == 4
    cluster.pod("high", 4, priorityClassName="high", priority=1000)
    cluster.settle(1)
    cluster.until(lambda: cluster.kube.leaving)
    cluster.pass_time(0.1)
    assert len(cluster.kube.leaving) == 1


def test_pods_beyond_the_minimum_are_the_first_to_go() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        cluster.pod(f"w-{number}", 4, koordinator("train", 1))
    assert len(cluster.settle()) == 2
    cluster.pod("high", 4, priorityClassName="high", priority=1000)
    cluster.settle(1)
    cluster.until(lambda: cluster.kube.leaving)
    assert cluster.kube.leaving == [("evicted", "w-1")]


def test_what_is_reserved_for_a_gang_is_given_back_when_a_pod_of_it_goes() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        cluster.pod(f"w-{number}", 4)
    assert len(cluster.settle()) == 2
    for number in range(2):
        cluster.pod(f"high-{number}", 4, koordinator("high", 2), priorityClassName="high", priority=1000)
    cluster.settle(1)
    assert cluster.groups()["podgroup/ns/high"]["state"] == "Preempting"
    cluster.drop("high-1")
    assert "podgroup/ns/high" not in cluster.groups()


def test_what_is_reserved_for_a_pod_by_itself_is_given_back_when_it_needs_others() -> None:
    cluster = SmallGangCluster()
    cluster.pod("low", 4)
    high = koordinator("high", 2, total_number=3)
    for number in range(2):
        cluster.pod(f"high-{number}", 2, high, priorityClassName="high", priority=1000)
    assert len(cluster.settle()) == 3
    cluster.pod("high-2", 4, high, priorityClassName="high", priority=1000)
    cluster.settle(1)
    assert cluster.groups()["ns/high-2"]["state"] == "Preempting"
    cluster.drop("high-0")
    cluster.drop("high-1")
    assert "ns/high-2" not in cluster.groups()


def test_a_pod_that_was_refused_by_itself_reserves_with_its_gang_alone() -> None:
    cluster = SmallGangCluster()
    high = koordinator("high", 2, total_number=3)
    for number, gpus in enumerate((4, 4, 2)):
        cluster.pod(f"high-{number}", gpus, high, priorityClassName="high", priority=1000)
    assert len(cluster.settle()) == 2
    cluster.drop("high-0")
    cluster.drop("high-1")
    for number in range(2):
        cluster.pod(f"low-{number}", 4)
        cluster.ask(f"low-{number}")
    cluster.pod("high-3", 2, high, priorityClassName="high", priority=1000)
    cluster.settle(1)
    assert {name for name, group in cluster.groups().items() if group["state"] == "Preempting"} == {"podgroup/ns/high"}


def test_a_gang_starts_when_its_victims_have_gone() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        cluster.pod(f"w-{number}", 4)
    cluster.settle()
    for number in range(2):
        cluster.pod(f"high-{number}", 4, koordinator("high", 2), priorityClassName="high", priority=1000)
    cluster.settle(1)
    cluster.drop("w-0")
    assert sorted(cluster.settle(1)) == ["w-1"]
    cluster.drop("w-1")
    assert sorted(cluster.settle()) == ["high-0", "high-1"]


def test_the_waiting_time_is_told_when_it_is_over() -> None:
    cluster = SmallGangCluster()
    cluster.pod("w-0", 2, koordinator("train", 2, waiting_time="20ms"))
    cluster.ask("w-0")
    cluster.until(lambda: ("w-0", "GangTimedOut") in cluster.kube.events)
    expected = "podgroup/ns/train has waited for 0.02 s and could not start; it goes on waiting"
    assert expected in cluster.kube.messages
    cluster.service.close()


@pytest.mark.parametrize("later", [None, "3h"])
def test_a_waiting_time_that_pods_give_up_or_change_is_not_told(later: str | None) -> None:
    cluster = SmallGangCluster()
    pod = cluster.pod("w-0", 2, koordinator("train", 2, waiting_time="1h"))
    cluster.ask("w-0")
    cluster.pass_time(1800.0)
    pod["metadata"]["annotations"] = koordinator("train", 2, waiting_time=later) if later else {}
    if not later:  # the same gang in words that have no waiting time
        prefix = "pod-group.scheduling.sigs.k8s.io/"
        pod["metadata"]["labels"] = {f"{prefix}name": "train", f"{prefix}min-available": "2"}
    cluster.kube.touch(pod)
    cluster.service.pod_seen(to_pod(pod))
    cluster.ask("w-0")
    cluster.pass_time(1801.0)
    assert not cluster.service.fault
    assert ("w-0", "GangTimedOut") not in cluster.kube.events
    cluster.pass_time(4 * 3600.0)
    assert (("w-0", "GangTimedOut") in cluster.kube.events) is (later is not None)


def test_what_was_asked_for_one_pod_is_forgotten_when_it_starts_with_others() -> None:
    cluster = SmallGangCluster()
    for number in range(2):
        pod = cluster.pod(f"high-{number}", 2, koordinator("high", 2), priorityClassName="high", priority=1000)
        cluster.filter(pod)
    cluster.service.follow("another leads")
    for number in range(2):
        cluster.pod(f"w-{number}", 4)
    cluster.lead()
    for name in ("w-0", "w-1", "high-0", "high-1"):
        cluster.ask(name)
    assert set(cluster.groups()) == {"ns/w-0", "ns/w-1", "podgroup/ns/high"}


@pytest.mark.parametrize("name", ["ns/w-1", "podgroup/ns/train"])
def test_nobody_can_take_the_names_that_a_gang_needs(name: str) -> None:
    cluster = SmallGangCluster()
    cluster.pod("stranger", 2, {SCHEDULING_SPEC: spec_text("a", 2, group=name, pods=2)}, namespace="other")
    assert cluster.ask("stranger")
    for number in range(2):
        cluster.pod(f"w-{number}", 2, koordinator("train", 2))
    assert sorted(cluster.settle()) == ["stranger", "w-0", "w-1"]
    assert sorted(cluster.groups()) == ["ns/w-0", "ns/w-1", f"other:{name}"]
