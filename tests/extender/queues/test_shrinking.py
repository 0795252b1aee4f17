"""Jobs that need less than they have: other jobs get the rest of their cells (rule 32.8)."""

from msgspec.structs import replace

from tests.extender.queues.by_hand import QueuesByHand
from tests.extender.queues.small import Desk, unit


def on_both_nodes() -> QueuesByHand:
    """`big` has two pods of a node each, `small` waits for one."""
    queues = QueuesByHand()
    queues.create("big", 2)
    queues.look()
    queues.bring_pods("big")
    queues.create("small", 1)
    queues.look()
    assert queues.let_go() == ["big"]
    return queues


def test_slots_that_no_pod_will_take_are_the_next_jobs() -> None:
    queues = QueuesByHand()
    queues.create("big", 2)
    queues.look()
    queues.create("small", 1)
    queues.look()
    assert queues.let_go() == ["big"]
    queues.scale("big", 1)
    queues.look()
    assert queues.let_go() == ["big", "small"]


def test_a_pod_that_still_ends_keeps_its_cells() -> None:
    queues = on_both_nodes()
    queues.scale("big", 1)
    queues.look()
    assert queues.let_go() == ["big"]
    queues.end_pod("big-1")
    queues.look()
    assert queues.let_go() == ["big", "small"]


def test_whichever_pod_has_ended_its_cells_are_the_next_jobs() -> None:
    queues = on_both_nodes()
    queues.end_pod("big-0")
    queues.look()
    assert queues.let_go() == ["big"]
    queues.scale("big", 1)
    queues.look()
    assert queues.let_go() == ["big", "small"]
    queues.bring_pods("small")
    nodes = {queues.cluster.kube.pods[pod]["spec"]["nodeName"] for pod in ("big-1", "small-0")}
    assert len(nodes) == 2
    assert "" not in nodes


def test_another_leader_knows_that_it_gave_back() -> None:
    queues = on_both_nodes()
    queues.end_pod("big-1")
    queues.scale("big", 1)
    queues.look()
    queues.bring_pods("small")
    queues.restart()
    queues.look()
    assert queues.let_go() == ["big", "small"]
    queues.scale("big", 2)
    queues.look()
    assert queues.let_go() == ["small"]


def test_one_that_shrank_while_nobody_led_gives_back() -> None:
    queues = on_both_nodes()
    queues.end_pod("big-1")
    queues.scale("big", 1)
    queues.restart()
    queues.look()
    assert queues.let_go() == ["big", "small"]


def test_one_that_needs_more_again_waits_for_its_turn() -> None:
    queues = on_both_nodes()
    queues.scale("big", 1)
    queues.end_pod("big-1")
    queues.look()
    queues.scale("big", 2)
    queues.look()
    queues.look()
    assert queues.let_go() == ["small"]
    assert queues.order() == ["big"]


def test_one_that_needs_no_pods_any_more_holds_nothing() -> None:
    queues = QueuesByHand()
    queues.create("big", 2)
    queues.look()
    queues.jobs["big"] = replace(queues.jobs["big"], need=None)
    queues.news["big"] = None
    queues.create("small", 2)
    queues.look()
    assert "small" in queues.let_go()


def test_a_part_of_its_own_schedule_is_free_for_the_next_one() -> None:
    desk = Desk()
    assert desk.come(unit("big", "C", pods=2)) == ["big"]
    assert desk.come(unit("small", "C", at=1.0)) == []
    desk.live.release("big")
    desk.queues.shrunk(unit("big", "C", pods=1))
    assert desk.turn() == ["small"]


def test_a_borrower_that_shrinks_counts_for_less() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("own", "A"), unit("big", "A", pods=2, at=1.0))
    before = desk.queues.shares()["A"]
    desk.queues.shrunk(unit("big", "A", pods=1, at=1.0))
    assert desk.queues.shares()["A"] < before
