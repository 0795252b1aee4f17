"""Turns of the own schedules that are cut while news come (rules 29.9, 30.4)."""

from hived_extender.queues.queues import Queues
from hived_extender.queues.table import Pace
from hived_extender.queues.units import Start, Stop
from tests.extender.queues.live import Live
from tests.extender.queues.small import SPEC, unit


def test_news_of_one_virtual_cluster_hold_up_no_other_although_they_need_all_of_each_turn() -> None:
    queues, live = Queues(SPEC, pace=Pace(searches=4)), Live(SPEC)
    queues.arrived(unit("runs", "A"))
    for number in range(8):
        queues.arrived(unit(f"waits{number}", "A", 3 + number % 2, priority=number, at=1))
    while queues.turn(0, live) or queues.is_cut:
        pass
    queues.arrived(unit("other", "B"))
    found = list[str]()
    for _ in range(10):
        queues.moved("waits0", "front")
        found += [order.key for order in queues.turn(1, live) if isinstance(order, Start)]
    assert found == ["other"]


def test_a_walk_along_many_kinds_without_room_is_cut_and_ends_as_a_whole_one() -> None:
    found = {}
    for searches in (3, 10_000):
        queues, live = Queues(SPEC, pace=Pace(searches=searches)), Live(SPEC)
        queues.arrived(unit("runs", "A", 7))
        for number in range(40):
            queues.arrived(unit(f"waits{number}", "A", 3, at=1, limit_s=100.0 + number))
        queues.arrived(unit("small", "A", 1, at=2))
        parts, started = 0, list[str]()
        while not parts or queues.is_cut:
            started += [order.key for order in queues.turn(1, live) if isinstance(order, Start)]
            parts += 1
        found[searches] = started, queues.order("A"), parts
    assert found[3][:2] == found[10_000][:2]
    assert (found[3][2] > 1, found[10_000][2]) == (True, 1)


def test_of_those_of_lower_priority_the_one_that_has_been_due_for_the_shortest_time_loses_its_place() -> None:
    for first, second in (("x", "y"), ("y", "x")):  # names and cells decide nothing
        queues, live = Queues(SPEC), Live(SPEC)
        queues.arrived(unit(first, "C", 4))
        queues.turn(0, live)
        queues.arrived(unit(second, "C", 4, at=25))
        queues.turn(25, live)
        queues.arrived(unit("high", "C", 4, priority=7, at=28))
        assert [order.key for order in queues.turn(28, live) if isinstance(order, Stop)] == [second]
