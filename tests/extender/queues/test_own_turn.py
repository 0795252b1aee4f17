"""Turns of the own schedules that are cut while news come."""

from hived_extender.queues.queues import Queues
from hived_extender.queues.table import Pace
from hived_extender.queues.units import Start
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
