"""Cells held for jobs of queues: the pods of the job get just these (rules 32.1 to 32.3)."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from hived.life.groups import virtual_leaves
from hived.scheduler import check_invariants
from hived.values.decisions import Wait
from hived.values.errors import UserError
from hived_extender.jobs.annotations import BIND_INFO, SCHEDULING_SPEC
from hived_extender.jobs.wire import Node, Pod
from hived_extender.kube.client import KubeError
from hived_extender.machine.holds import HeldBind, NeededByClaims, NeedsVictims, NoCells, RoomMade
from hived_extender.machine.recording.operations import STAND_IN
from hived_extender.machine.stimuli import Claimed, HoldAsked, HoldShrunk, HoldState, Victims
from tests.extender.machine.small_cluster import NODES, node, node_json, spec_text, to_node
from tests.extender.machine.small_gangs import koordinator
from tests.extender.machine.small_jobs import SmallJobCluster, hold, job, template


def nodes_of(bind: HeldBind) -> list[str]:
    return [pod.node for member in bind.bind_info.members for pod in member]


def stand_ins(cluster: SmallJobCluster) -> list[str]:
    return [name for name in cluster.groups() if name.startswith(STAND_IN)]


def labelled(name: str, rack: str) -> Node:
    body = node_json(name)
    body["metadata"]["labels"] = {"rack": rack}
    return to_node(body)


def leaves_of(cluster: SmallJobCluster, vc: str = "a") -> list[int]:
    arrays = cluster.state.arrays
    number = cluster.state.topology.vc_index[vc]
    return [leaf for leaf in range(len(arrays.level)) if arrays.level[leaf] == 1 and arrays.vc[leaf] == number]


# --- holding -------------------------------------------------------------------------------------------------------


def test_the_answer_has_the_place_of_every_pod() -> None:
    cluster = SmallJobCluster()
    found = cluster.held(hold())
    assert len(set(nodes_of(found))) == 2
    assert sorted(found.virtual) == leaves_of(cluster)
    assert cluster.state_of() == HoldState(2, 2, 0, 0)
    check_invariants(cluster.state)


def test_the_answer_is_the_same_for_as_long_as_the_cells_are_held() -> None:
    cluster = SmallJobCluster()
    assert cluster.hold(hold()) == cluster.hold(hold())
    assert len(stand_ins(cluster)) == 1


def test_cells_that_the_own_schedule_gives_are_taken() -> None:
    cluster = SmallJobCluster()
    own = tuple(leaves_of(cluster)[4:])
    assert cluster.held(hold(pods=1, own=own)).virtual == own


def test_wrong_own_cells_are_refused_and_nothing_is_held() -> None:
    cluster = SmallJobCluster()
    with pytest.raises(UserError, match="3 are given, expected int32 ids of 4 leaf cells"):
        cluster.hold(hold(pods=1, own=(1, 2, 3)))
    assert stand_ins(cluster) == []


def test_a_job_without_room_is_told_why() -> None:
    cluster = SmallJobCluster()
    found = cluster.hold(hold(pods=3))
    assert isinstance(found, Wait)
    assert "insufficient capacity" in found.reason
    assert stand_ins(cluster) == []


def test_nobody_is_evicted_for_a_hold() -> None:
    cluster = SmallJobCluster()
    for number in range(4):
        cluster.pod(f"o-{number}", priorityClassName="low")
    cluster.settle()
    assert isinstance(cluster.hold(hold()), NeedsVictims)
    cluster.pass_time(60)
    assert cluster.kube.leaving == []


def test_a_replica_that_does_not_lead_holds_nothing() -> None:
    cluster = SmallJobCluster(is_leading=False)
    with pytest.raises(UserError, match="does not lead"):
        cluster.hold(hold())


def test_nodes_that_the_template_does_not_tolerate_are_not_held() -> None:
    cluster = SmallJobCluster()
    for name in NODES[:3]:
        cluster.service.node_seen(labelled(name, "a" if name == "n1" else "b"))
    chosen = template(nodeSelector={"rack": "a"})
    assert nodes_of(cluster.held(hold(pods=1, templates=(chosen,)))) == ["n1"]
    assert isinstance(cluster.hold(hold("other", pods=1, templates=(chosen,))), Wait)


# --- pods ----------------------------------------------------------------------------------------------------------


def test_pods_get_the_cells_that_were_held_for_them() -> None:
    cluster = SmallJobCluster()
    found = cluster.held(hold())
    rival = cluster.pod("rival", 4)
    assert "NodeNames" not in cluster.filter(rival)
    for name in ("w-0", "w-1"):
        cluster.come(name)
    placed = cluster.settle()
    assert sorted(placed[name] for name in ("w-0", "w-1")) == sorted(nodes_of(found))
    assert cluster.state_of() == HoldState(2, 0, 2, 2)
    assert stand_ins(cluster) == []
    check_invariants(cluster.state)


def test_the_virtual_cells_stay_the_same_when_pods_come() -> None:
    cluster = SmallJobCluster()
    own = tuple(leaves_of(cluster)[4:])
    cluster.hold(hold(pods=1, own=own))
    cluster.come("w-0")
    cluster.settle()
    assert virtual_leaves(cluster.state, "ns/w-0") == own


def test_another_opportunistic_pod_does_not_get_held_cells() -> None:
    cluster = SmallJobCluster()
    found = cluster.held(hold(pods=3, priority=-1))
    for number in range(2):
        cluster.pod(f"rival-{number}", priorityClassName="low")
    rivals = cluster.settle()
    assert len(rivals) == 1
    assert not set(rivals.values()) & set(nodes_of(found))


def test_a_borrowed_job_is_opportunistic_whatever_its_pods_say() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=1, priority=-1))
    cluster.come("w-0")
    cluster.settle()
    written = json.loads(cluster.kube.pods["w-0"]["metadata"]["annotations"][SCHEDULING_SPEC])
    assert written["priority"] == -1
    assert cluster.groups()["ns/w-0"]["priority"] == -1


def test_so_is_a_job_whose_pods_speak_our_own_words() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=1, priority=-1))
    cluster.come("w-0", annotations={SCHEDULING_SPEC: spec_text()})
    cluster.settle()
    written = json.loads(cluster.kube.pods["w-0"]["metadata"]["annotations"][SCHEDULING_SPEC])
    assert written["priority"] == -1
    again = cluster.restarted_jobs()
    assert again.groups()["ns/w-0"]["priority"] == -1
    assert again.cells() == cluster.cells()


def test_an_affinity_group_takes_the_place_that_is_held_for_it() -> None:
    cluster = SmallJobCluster()
    found = cluster.held(hold())
    text = spec_text(group="g", pods=2)
    for name in ("w-0", "w-1"):
        cluster.come(name, annotations={SCHEDULING_SPEC: text})
    placed = cluster.settle()
    assert sorted(placed.values()) == sorted(nodes_of(found))
    assert set(cluster.groups()) == {"ns:g"}
    assert virtual_leaves(cluster.state, "ns:g") == found.virtual
    check_invariants(cluster.state)


def test_a_gang_starts_in_the_cells_that_are_held_for_it() -> None:
    cluster = SmallJobCluster()
    found = cluster.held(hold(pods=4, gpus=2))
    for number in range(4):
        cluster.come(f"w-{number}", gpus=2, annotations=koordinator("train", 4))
    placed = cluster.settle()
    assert sorted(placed.values()) == sorted(nodes_of(found))
    assert cluster.state_of() == HoldState(4, 0, 4, 4)
    check_invariants(cluster.state)


def test_pods_of_a_gang_beyond_its_minimum_get_theirs_too() -> None:
    cluster = SmallJobCluster()
    found = cluster.held(hold(pods=4, gpus=2))
    for number in range(3):
        cluster.come(f"w-{number}", gpus=2, annotations=koordinator("train", 2))
    cluster.settle()
    assert cluster.state_of() == HoldState(4, 1, 3, 3)
    cluster.come("w-3", gpus=2, annotations=koordinator("train", 2))
    assert sorted(cluster.settle().values()) == sorted(nodes_of(found))


def test_pods_of_a_gang_that_take_no_cells_may_go_with_the_others() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=2))
    for number, gpus in enumerate((4, 4, 0)):
        cluster.come(f"w-{number}", gpus=gpus, annotations=koordinator("train", 3))
    cluster.filter(cluster.kube.pods["w-0"])
    assert cluster.filter(cluster.kube.pods["w-2"])["NodeNames"] == list(NODES)
    assert cluster.state_of() == HoldState(2, 0, 2, 0)


def test_a_pod_that_waits_for_victims_takes_held_cells_instead() -> None:
    cluster = SmallJobCluster()
    for number in range(4):
        cluster.pod(f"o-{number}", priorityClassName="low")
    cluster.settle()
    pod = cluster.come("w-0")
    assert "NodeNames" not in cluster.filter(pod)
    cluster.pass_time()
    victims = {name for _, name in cluster.kube.leaving}
    cluster.drop(next(name for name in ("o-0", "o-1") if name not in victims))
    found = cluster.held(hold(pods=1))
    assert cluster.filter(pod)["NodeNames"] == nodes_of(found)
    assert cluster.groups()["ns/w-0"]["state"] == "Allocated"
    assert cluster.state_of() == HoldState(1, 0, 1, 0)
    check_invariants(cluster.state)


def test_a_pod_of_another_size_is_placed_like_any_other_and_its_slot_is_given_back() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=1))
    cluster.come("w-0", gpus=2)
    assert cluster.settle()
    assert cluster.state_of() == HoldState(1, 0, 1, 1)


def test_a_pod_is_not_forced_where_kube_scheduler_does_not_want_it() -> None:
    cluster = SmallJobCluster()
    (home,) = nodes_of(cluster.held(hold(pods=1)))
    pod = cluster.come("w-0")
    others = [name for name in NODES if name != home]
    assert cluster.filter(pod, others)["NodeNames"][0] in others
    assert cluster.state_of().is_lost
    assert stand_ins(cluster) == []


def test_a_borrowed_job_stays_opportunistic_where_its_cells_are_lost() -> None:
    cluster = SmallJobCluster()
    (home,) = nodes_of(cluster.held(hold(pods=1, priority=-1)))
    pod = cluster.come("w-0")
    cluster.filter(pod, [name for name in NODES if name != home])
    assert cluster.groups()["ns/w-0"]["priority"] == -1


def test_preempting_does_not_take_held_cells_or_evict_anybody() -> None:
    cluster = SmallJobCluster()
    for number in range(3):
        cluster.pod(f"o-{number}", priorityClassName="low")
    cluster.settle()
    cluster.hold(hold(pods=1))
    pod = cluster.come("w-0")
    assert "NodeNames" in cluster.filter(pod)
    cluster.pass_time(30)
    assert cluster.kube.leaving == []


# --- cells that are lost -------------------------------------------------------------------------------------------


def test_a_guarantee_takes_back_what_a_borrowed_job_holds() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=4, priority=-1))
    guaranteed = cluster.pod("g", 4)
    cluster.filter(guaranteed)
    assert cluster.state_of() == HoldState(4, 0, 0, 0, is_lost=True)
    assert cluster.settle()
    check_invariants(cluster.state)


def test_cells_of_a_node_that_fails_are_held_no_longer() -> None:
    cluster = SmallJobCluster()
    (home,) = nodes_of(cluster.held(hold(pods=1)))
    cluster.service.node_seen(node(home, is_ready=False))
    assert cluster.state_of().is_lost
    (other,) = nodes_of(cluster.held(hold(pods=1)))
    assert other != home
    assert not cluster.state_of().is_lost


def test_a_pod_that_goes_before_it_is_bound_loses_its_cells() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=1))
    pod = cluster.come("w-0")
    cluster.filter(pod)
    cluster.drop("w-0")
    assert cluster.state_of().is_lost


def test_a_pod_that_ends_after_it_was_bound_loses_nothing() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold())
    cluster.come("w-0")
    cluster.settle()
    cluster.become("w-0", "Succeeded")
    assert cluster.state_of() == HoldState(2, 1, 0, 0)


def test_slots_that_pods_have_are_not_held_again() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold())
    cluster.come("w-0")
    placed = cluster.settle()
    again = cluster.restarted_jobs()
    assert again.state_or_none() is None
    found = again.held(hold())
    assert len(set(nodes_of(found))) == 2
    assert again.state_of() == HoldState(2, 1, 1, 1)
    assert nodes_of(found)[0] == placed["w-0"]


def test_all_slots_taken_is_an_answer_too() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=1))
    cluster.come("w-0")
    cluster.settle()
    again = cluster.restarted_jobs()
    assert nodes_of(again.held(hold(pods=1))) == [cluster.placed()["w-0"]]
    assert again.state_of() == HoldState(1, 0, 1, 1)


def test_pods_that_run_keep_their_priority_after_a_restart_and_others_get_it_again() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(priority=-1))
    cluster.come("w-0")
    cluster.settle()
    again = cluster.restarted_jobs()
    again.hold(hold(priority=-1))
    again.come("w-1")
    again.settle()
    assert {again.groups()[name]["priority"] for name in ("ns/w-0", "ns/w-1")} == {-1}


# --- dropping ------------------------------------------------------------------------------------------------------


def test_a_pod_that_names_a_job_of_the_name_but_not_this_one_gets_no_held_cells() -> None:
    cluster = SmallJobCluster()
    cluster.held(hold())
    cluster.come("thief", job_uid="forged")
    cluster.ask("thief")
    assert "ns/thief" not in cluster.groups()
    assert cluster.state_of() == HoldState(2, 2, 0, 0)


def test_pods_of_an_earlier_job_of_the_name_keep_their_cells_and_take_no_slot_of_the_later_one() -> None:
    cluster = SmallJobCluster()
    cluster.come("old", job_uid="earlier")
    cluster.ask("old")
    assert not isinstance(cluster.hold(hold()), HeldBind)
    found = cluster.tell(HoldAsked(hold(pods=1), is_start=True))
    assert isinstance(found, HeldBind)
    assert cluster.state_of() == HoldState(1, 1, 0, 0)


def test_a_job_whose_last_pods_are_gone_may_shrink_and_holds_nothing() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold())
    for name in ("w-0", "w-1"):
        cluster.come(name)
        cluster.settle()
    for name in ("w-0", "w-1"):
        cluster.drop(name)
    assert cluster.tell(HoldShrunk(hold(pods=1))) == ()
    assert cluster.groups() == {}
    assert isinstance(cluster.hold(hold(pods=1)), HeldBind)


def test_what_is_dropped_is_free_for_others() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold())
    cluster.come("w-0")
    cluster.settle()
    cluster.drop_hold()
    assert stand_ins(cluster) == []
    assert set(cluster.groups()) == {"ns/w-0"}
    rival = cluster.pod("rival", 4)
    assert "NodeNames" in cluster.filter(rival)


def test_pods_that_wait_ask_at_their_own_priority_once_the_hold_is_dropped() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=1, priority=-1))
    cluster.come("w-0")
    cluster.drop_hold()
    cluster.settle()
    assert cluster.groups()["ns/w-0"]["priority"] == 0


def test_another_job_of_the_name_takes_the_place_of_the_first() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold(pods=1))
    later = hold(pods=1)
    ref = job()
    other = type(ref)(ref.api_version, ref.kind, ref.namespace, ref.name, "uid-2")
    cluster.hold(type(later)(other.key, other, later.spec))
    assert len(stand_ins(cluster)) == 1


# --- victims -------------------------------------------------------------------------------------------------------


def borrowing(*names: str) -> SmallJobCluster:
    """Borrowed jobs of one pod each run on all nodes."""
    cluster = SmallJobCluster()
    for name in names:
        cluster.hold(hold(name, pods=1, priority=-1))
        cluster.come(f"{name}-0", name)
        cluster.settle()
    return cluster


def test_the_first_candidates_that_are_enough_have_to_leave() -> None:
    cluster = borrowing("j0", "j1", "j2", "j3")
    found = cluster.victims(hold(pods=1), "j2", "j0", "j1", "j3")
    assert found == Victims((job("j2"),))
    assert cluster.kube.leaving == []


def test_none_leaves_that_could_have_stayed() -> None:
    cluster = borrowing("j0", "j1", "j2")
    found = cluster.victims(hold(pods=2), "j0", "j1", "j2")
    assert found is not None
    assert len(found.jobs) == 1


def test_nobody_has_to_leave_where_there_is_room() -> None:
    assert borrowing("j0").victims(hold(pods=1), "j0") == Victims(())


def test_all_of_them_may_be_too_few() -> None:
    assert borrowing("j0", "j1", "j2", "j3").victims(hold(pods=3), "j0", "j1", "j2", "j3") is None


def full_nodes() -> SmallJobCluster:
    """Borrowed jobs run on all nodes, and kube-scheduler has found two of them full for a pod like theirs."""
    cluster = borrowing("j0", "j1", "j2", "j3")
    cluster.filter(cluster.come("alike", "other"), [node for node in NODES if node not in taken(cluster, "j0", "j1")])
    cluster.drop("alike")
    return cluster


def taken(cluster: SmallJobCluster, *names: str) -> list[str]:
    """The nodes of the pods of jobs."""
    return [cluster.kube.pods[f"{name}-0"]["spec"]["nodeName"] for name in names]


def test_nodes_that_only_candidates_keep_full_are_to_be_had_once_they_leave() -> None:
    cluster = full_nodes()
    wanted = hold(pods=2, templates=(template(), template()))
    found = cluster.victims(wanted, "j0", "j1", "j2", "j3")
    assert found == Victims((job("j0"), job("j1")))


def with_little(much: dict[str, str], little: dict[str, str]) -> SmallJobCluster:
    """On each node a borrowed job that has much of what there is besides GPUs, and one that has little."""
    cluster = SmallJobCluster()
    for name in NODES:
        body = node_json(name)
        room = {"nvidia.com/gpu": "4", "cpu": "8", "memory": "32Gi", "pods": "20", "example.com/fpga": "2"}
        body["status"]["allocatable"] = room
        cluster.service.node_seen(to_node(body))
    cluster.service.machine.cache.nodes.keep_shares(False)
    for number in range(4):
        for kind, needs in (("much", much), ("little", little)):
            name = f"{kind}{number}"
            cluster.held(hold(name, pods=1, gpus=2, priority=-1))
            pod = cluster.come(f"{name}-0", name, 2)
            pod["spec"]["containers"][0]["resources"]["requests"] = needs
            cluster.kube.touch(pod)
            cluster.see(pod)
            cluster.settle()
    return cluster


def asking_for(needs: dict[str, str], **spec: Any) -> Pod:
    """The template of a pod with two GPUs."""
    resources = {"limits": {"nvidia.com/gpu": 2}, "requests": needs}
    pod = {"metadata": {"namespace": "ns"}, "spec": {"containers": [{"name": "main", "resources": resources}], **spec}}
    return msgspec.convert(pod, Pod)


@pytest.mark.parametrize(
    ("resource", "much", "little"),
    [("cpu", "6", "1"), ("memory", "30Gi", "1Gi"), ("example.com/fpga", "2", "0")],
)
def test_the_job_leaves_that_has_what_a_due_one_lacks(resource: str, much: str, little: str) -> None:
    cluster = with_little({resource: much}, {resource: little})
    wanted = hold(pods=1, gpus=2, templates=(asking_for({resource: much}),))
    names = [f"{kind}{number}" for kind in ("little", "much") for number in range(4)]
    found = cluster.victims(wanted, *names)
    assert found is not None
    assert len(found.jobs) == 1
    assert found.jobs[0].name.startswith("much")


def test_no_job_leaves_where_a_due_one_would_not_start_all_the_same() -> None:
    cluster = with_little({"cpu": "6"}, {"cpu": "1"})
    wanted = hold(pods=1, gpus=2, templates=(asking_for({"cpu": "8"}),))
    assert cluster.victims(wanted, "little0", "little1", "little2", "little3") is None
    found = cluster.victims(wanted, *(f"{kind}{number}" for number in range(4) for kind in ("little", "much")))
    assert found is not None
    assert len({cluster.kube.pods[f"{one.name}-0"]["spec"]["nodeName"] for one in found.jobs}) == 1
    assert len(found.jobs) == 2


def test_a_borrower_may_have_the_nodes_that_only_candidates_keep_full() -> None:
    cluster = full_nodes()
    wanted = hold(pods=2, priority=-1, templates=(template(), template()))
    assert cluster.victims(wanted, "j0", "j1") == Victims((job("j0"), job("j1")))


def test_a_claim_of_a_borrower_has_the_nodes_that_its_own_victims_keep_full() -> None:
    cluster = full_nodes()
    claim = Claimed(hold("first", pods=2, priority=-1, templates=(template(), template())), (job("j0"), job("j1")))
    cluster.drop("j0-0")
    kept = cluster.tell(HoldAsked(hold("second", pods=1, priority=-1, templates=(template(),)), (claim,)))
    assert isinstance(kept, NeededByClaims)


def test_a_claim_has_the_nodes_that_its_own_victims_keep_full() -> None:
    cluster = full_nodes()
    claim = Claimed(hold("first", pods=2, templates=(template(), template())), (job("j0"), job("j1")))
    cluster.drop("j0-0")
    kept = cluster.tell(HoldAsked(hold("second", pods=1, priority=-1, templates=(template(),)), (claim,)))
    assert isinstance(kept, NeededByClaims)


def test_all_opportunistic_work_leaves_for_a_claim_that_takes_lent_cells() -> None:
    cluster = borrowing("j0", "j1", "j2")
    small = hold("small", pods=1)
    for takes_lent, answer in ((False, HeldBind), (True, NeededByClaims)):
        claim = Claimed(hold("large", pods=2), (), takes_lent)
        assert isinstance(cluster.tell(HoldAsked(small, (claim,))), answer)
        cluster.drop_hold("small")


def test_groups_of_no_job_leave_after_the_candidates_newest_first() -> None:
    cluster = SmallJobCluster()
    for number in range(4):
        cluster.pod(f"o-{number}", priorityClassName="low")
        cluster.settle()
    assert cluster.victims(hold(pods=1)) == Victims((), ("ns/o-3",))


def test_a_held_job_that_is_no_candidate_stays() -> None:
    cluster = borrowing("j0", "j1", "j2", "j3")
    assert cluster.victims(hold(pods=1), "j1") == Victims((job("j1"),))
    assert cluster.victims(hold(pods=1)) is None


def test_cells_that_are_held_for_a_candidate_count() -> None:
    cluster = SmallJobCluster()
    cluster.hold(hold("j0", pods=4, priority=-1))
    assert cluster.victims(hold(pods=1), "j0") == Victims((job("j0"),))


def test_asking_for_victims_changes_nothing() -> None:
    cluster = borrowing("j0", "j1", "j2", "j3")
    before = cluster.snapshot()
    cluster.victims(hold(pods=2), "j0", "j1", "j2")
    assert cluster.snapshot() == before
    check_invariants(cluster.state)


def test_evicted_groups_are_told_for_whom() -> None:
    cluster = SmallJobCluster()
    cluster.pod("o-0", priorityClassName="low")
    cluster.settle()
    cluster.evict("ns/o-0", winner="Job/ns/train/u-1")
    cluster.pass_time(5)
    assert cluster.kube.leaving == [("evicted", "o-0")]
    assert "its cells are needed by Job/ns/train (uid u-1)" in cluster.kube.messages


def test_evicted_groups_are_not_told_the_name_of_a_job_of_another_namespace() -> None:
    cluster = SmallJobCluster()
    cluster.pod("o-0", priorityClassName="low")
    cluster.settle()
    cluster.evict("ns/o-0", winner="Job/secret/big/u-2")
    cluster.pass_time(5)
    assert "its cells are needed by a job of another namespace (uid u-2)" in cluster.kube.messages


def test_a_pod_that_is_gone_before_its_eviction_is_answered_left_for_that_job() -> None:
    cluster = SmallJobCluster()
    cluster.pod("o-0", priorityClassName="low")
    cluster.settle()
    cluster.evict("ns/o-0", winner="Job/ns/train/u-1")
    cluster.delete(cluster.kube.pods["o-0"])  # the eviction is on its way still
    (end,) = cluster.service.machine.tallies.ends
    assert (end.is_preempted, end.by) == (True, "Job/ns/train")
    cluster.pass_time(5)
    assert cluster.kube.leaving == []


def test_a_pod_that_ends_while_its_eviction_is_refused_left_for_nobody() -> None:
    cluster = SmallJobCluster()
    cluster.pod("o-0", priorityClassName="low")
    cluster.settle()
    cluster.kube.refusals.append(KubeError(429, "TooManyRequests", "a budget"))
    cluster.evict("ns/o-0", winner="Job/ns/train/u-1")
    cluster.pass_time(0.1)
    cluster.delete(cluster.kube.pods["o-0"])
    (end,) = cluster.service.machine.tallies.ends
    assert not end.is_preempted


def test_a_pod_that_was_gone_before_its_eviction_left_for_nobody() -> None:
    cluster = SmallJobCluster()
    cluster.pod("o-0", priorityClassName="low")
    cluster.settle()
    uid = cluster.kube.pods.pop("o-0")["metadata"]["uid"]  # of which no watch has told yet
    cluster.evict("ns/o-0", winner="Job/ns/train/u-1")
    cluster.pass_time(0.1)
    cluster.service.pod_gone(uid)
    (end,) = cluster.service.machine.tallies.ends
    assert not end.is_preempted


def test_a_refused_eviction_is_tried_again() -> None:
    cluster = SmallJobCluster()
    cluster.pod("o-0", priorityClassName="low")
    cluster.settle()
    cluster.pass_time(5)
    cluster.kube.refusals.append(KubeError(429, "TooManyRequests", "a budget"))
    cluster.evict("ns/o-0")
    cluster.pass_time(5)
    assert cluster.kube.leaving == [("evicted", "o-0")]


def test_a_hold_survives_other_pods_of_all_kinds() -> None:
    cluster = SmallJobCluster()
    answers = [cluster.held(hold(pods=1))]
    for number in range(3):
        cluster.pod(f"o-{number}", 2, priorityClassName="low")
        cluster.pod(f"g-{number}", 2)
        cluster.settle()
        answers.append(cluster.held(hold(pods=1)))
    assert all(one == other for one, other in pairwise(answers))
    assert BIND_INFO in cluster.kube.pods["g-0"]["metadata"]["annotations"]


def test_once_room_was_made_nobody_gets_cells_in_the_rest_of_a_walk() -> None:
    cluster = SmallJobCluster()
    pods = [cluster.place(f"there-{number}", spec_text(group=f"there-{number}"))[0] for number in range(2)]
    cluster.place("other", spec_text(vc="b", group="other"))
    lent = [hold(name, 1, priority=-1) for name in ("first", "second", "third")]
    cluster.held(hold("spare", 1, priority=-1))
    assert isinstance(cluster.tell(HoldAsked(lent[0], walk=1)), NoCells)
    cluster.delete(pods[0])
    assert isinstance(cluster.tell(HoldAsked(lent[1], walk=1)), RoomMade)
    assert len(stand_ins(cluster)) == 1
    assert isinstance(cluster.tell(HoldAsked(lent[0], walk=2)), HeldBind)
    assert isinstance(cluster.tell(HoldAsked(lent[1], walk=2)), NoCells)
    cluster.delete(pods[1])
    assert isinstance(cluster.tell(HoldAsked(lent[2])), HeldBind)
