"""A job's certificate from a snapshot: the core's causes, and those that only the service knows."""

import threading

from hived.why.relaxing import Emptied
from hived_extender.api.waiting import Certificate
from hived_extender.insight.answering import Answering
from hived_extender.insight.judge import Judge
from hived_extender.insight.snapshot import take
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text, tainted
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator
from tests.extender.machine.small_rooms import SmallRooms


def certificate(small: SmallCluster, name: str) -> Certificate:
    snapshot = take(small.service)
    entry = snapshot.find(name)
    assert entry is not None
    return Judge(snapshot, Emptied(), threading.Lock()).certificate(entry)


def test_it_says_the_same_as_kube_scheduler_was_told() -> None:
    small = SmallCluster()
    small.place("one")
    small.place("two", spec_text(priority=3))
    told = small.filter(small.create("three"))["FailedNodes"]["hivedscheduler"]
    found = certificate(small, "ns/three")
    assert (
        found.sentence == told == "needs 1 node of 4 GPUs; a has 2 of 2 in use by one (priority 0) and two (priority 3)"
    )
    assert found.reason == "insufficient capacity when scheduling in VC a"


def test_bad_nodes_are_a_cause_of_their_own() -> None:
    small = SmallCluster()
    for name in ("n0", "n1", "n2", "n3"):
        small.service.node_seen(node(name, is_cordoned=True))
    small.create("p")
    found = certificate(small, "ns/p")
    assert (found.cause, found.also, found.never) == ("bad", [], False)
    assert "nodes n0 and n2 are cordoned" in found.sentence
    assert {one.node for one in found.bad_nodes} <= {"n0", "n1", "n2", "n3"}


def test_nodes_that_kubernetes_refuses_have_their_rule() -> None:
    small = SmallGangCluster()
    for name in ("n0", "n1", "n2", "n3"):
        small.service.node_seen(tainted(name))
    small.pod("p")
    found = certificate(small, "ns/p")
    assert found.cause == "kubernetes"
    assert "4 of 4 nodes cannot take it (node(s) had untolerated taint {broken: }" in found.rules
    assert found.sentence.startswith("needs 1 node of 4 GPUs; Kubernetes rules out ")


def test_a_gang_that_is_not_complete_says_so() -> None:
    small = SmallGangCluster()
    small.pod("g-0", annotations=koordinator("g", 2))
    found = certificate(small, "podgroup/ns/g")
    assert (found.cause, found.never) == ("incomplete", False)
    assert "1 of 2 pods created" in found.sentence


def test_a_mistake_says_so() -> None:
    small = SmallCluster()
    small.create("wrong", spec_text(leaf_cells=0))
    found = certificate(small, "ns/wrong")
    assert found.cause == "invalid"
    assert "LeafCellNumber is non-positive" in found.sentence


def test_a_job_with_room_has_nothing_in_its_way() -> None:
    small = SmallCluster()
    small.create("p")
    found = certificate(small, "ns/p")
    assert found.cause == "order"
    assert found.sentence == "needs 1 node of 4 GPUs; a has room now; it starts when kube-scheduler asks about it next"


def test_lent_cells_name_their_borrowers() -> None:
    small = SmallCluster()
    for name in ("o0", "o1", "o2", "o3"):
        small.place(name, spec_text("a", priority=-1))
    small.create("p", spec_text("b", priority=2))
    found = certificate(small, "ns/p")
    assert found.cause == "lent"
    assert found.sentence.startswith("needs 1 node of 4 GPUs; its cells are being reclaimed from o")
    assert "(opportunistic)" in found.sentence


def test_jobs_that_ask_alike_cost_one_explanation() -> None:
    small = SmallCluster()
    small.place("one")
    small.place("two")
    for number in range(5):
        small.create(f"w{number}")
    snapshot = take(small.service)
    judge = Judge(snapshot, Emptied(), threading.Lock())
    found = {judge.certificate(entry).sentence for entry in snapshot.waiting}
    assert len(found) == len(judge._known) == 1


def test_nobody_is_said_to_leave_who_would_leave_in_vain() -> None:
    small = SmallRooms(1)
    small.start("above", 2, priority=9, needs={"cpu": "6"})
    small.start("low", 2)
    small.pod("high", 2, priority=5, needs={"cpu": "6"})
    assert small.settle() == set()
    found = certificate(small, "ns/high")
    assert (found.cause, found.holders) == ("kubernetes", [])
    assert found.sentence == (
        "needs 1 pod of 2 GPUs; others use its cells, and kube-scheduler would refuse it even without them "
        "(n0: Insufficient cpu)"
    )
    told = Answering(small.service, fresh_s=0.0).why("ns/high").certificate
    assert told is not None
    assert told.untried == "Kubernetes keeps it off its cells by rules that hived does not know"
