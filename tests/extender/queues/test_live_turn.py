"""Turns of the live cluster: quotas of entitled units, and cut turns (rules 29.9, 29.10, 31.7, 31.10)."""

from functools import partial

from msgspec.structs import replace

from hived.life.groups import nodes_of_slots
from hived.values.decisions import Bind, Wait
from hived_extender.jobs.quotas.tree import Quota, QuotaTree
from hived_extender.queues.ledger import TreeLedger
from hived_extender.queues.policies import QueueRules, Rules
from hived_extender.queues.queues import Queues
from hived_extender.queues.room import Ask, Pending, RoomMade
from hived_extender.queues.table import Pace
from hived_extender.queues.units import Start, Unit
from tests.extender.queues.live import Live
from tests.extender.queues.small import SPEC, Desk, unit


def of_quota(key: str, vc: str, gpus: int, at: float, *, priority: int = -1) -> Unit:
    return replace(unit(key, vc, gpus, at=at, priority=priority), queue=f"root/{vc}", request={"gpu": float(gpus)})


def with_one_node_left(most: float, of_all: float = 32.0) -> Desk:
    """Quota A may use so much, and all together so much; three nodes are full."""
    least = {"A": 3.0, "B": 4.0, "C": 8.0}
    quotas = {
        f"root/{name}": Quota(f"root/{name}", "root", min={"gpu": amount}, max={"gpu": most if name == "A" else 16.0})
        for name, amount in least.items()
    }
    root = Quota("root", min={"gpu": 32.0}, max={"gpu": of_all}, children=tuple(quotas))
    desk = Desk()
    desk.queues.told_rules(Rules(), partial(TreeLedger, QuotaTree({"root": root, **quotas})))
    full = [of_quota("b", "B", 4, 0, priority=0), *(of_quota(f"c{n}", "C", 4, n, priority=0) for n in range(2))]
    assert sorted(desk.come(*full)) == ["b", "c0", "c1"]
    return desk


def test_nobody_borrows_the_quota_of_a_unit_that_is_due_while_others_leave_for_it() -> None:
    desk = with_one_node_left(most=3.0)
    desk.come(of_quota("other", "C", 2, 3), of_quota("early", "A", 1, 4))
    assert desk.come(of_quota("due", "A", 3, 5, priority=0)) == []
    assert sorted(desk.leaving) == ["early", "other"]
    assert desk.come(of_quota("late", "A", 1, 6)) == []
    assert desk.leave() == ["due"]


def test_nobody_else_leaves_a_quota_while_enough_leave_it_already() -> None:
    desk = with_one_node_left(most=4.0)
    for number, (key, vc, gpus) in enumerate((("stays", "A", 1), ("other", "C", 2), ("leaves", "A", 1))):
        desk.now = float(number)
        desk.come(of_quota(key, vc, gpus, number))
    desk.come(of_quota("due", "A", 3, 5, priority=0))
    assert sorted(desk.leaving) == ["leaves", "other"]
    desk.queues.room_made()
    desk.turn()
    assert sorted(desk.leaving) == ["leaves", "other"]
    assert desk.leave() == ["due"]


def test_borrowers_of_other_quotas_leave_if_the_max_of_all_quotas_is_in_the_way() -> None:
    desk = with_one_node_left(most=4.0, of_all=15.0)
    assert desk.come(of_quota("lent", "C", 3, 3)) == ["lent"]
    assert desk.come(of_quota("due", "A", 1, 4, priority=0)) == ["due"]
    assert desk.leaving == ["lent"]


def lending(pace: Pace) -> tuple[Queues, Live]:
    """Queues that all may borrow."""
    queues = Queues(SPEC, pace=pace)
    queues.told_rules(Rules(default=QueueRules(borrows=True)))
    return queues, Live(SPEC)


def starts(queues: Queues, live: Live) -> list[str]:
    """Those of one turn, which may be cut."""
    return [order.key for order in queues.turn(0.0, live) if isinstance(order, Start)]


def test_units_are_lent_cells_although_news_for_the_due_need_all_of_each_turn() -> None:
    queues, live = lending(Pace(questions=1))
    queues.arrived(unit("there", "B", 1))
    assert starts(queues, live) == ["there"]
    (node,) = nodes_of_slots(live.state, live.state.groups["there"])
    for other in live.state.topology.node_names:
        live.set_health(other, other == node)
    queues.arrived(unit("due", "A", 4, is_preemptible=False))
    queues.arrived(unit("lent", "C", 1, priority=-1))
    found = list[str]()
    for _ in range(10):
        queues.room_made()
        found += starts(queues, live)
    assert found == ["lent"]


def test_a_unit_that_is_due_meanwhile_comes_before_the_rest_of_a_walk_of_borrowers() -> None:
    queues, live = lending(Pace(questions=1))
    queues.arrived(unit("c", "C", 4, pods=2))
    queues.arrived(unit("b", "B", 4))
    queues.arrived(unit("a", "A", 3))
    while not queues.own_cells("a") or queues.is_cut:
        starts(queues, live)
    for gpus in (2, 3, 4):
        queues.arrived(unit(f"large{gpus}", "B", gpus, priority=-1))
    assert starts(queues, live) == []
    assert queues.is_cut
    queues.arrived(unit("due", "A", 1))
    assert starts(queues, live) == ["due"]


class Freeing(Live):
    """A live cluster in which a unit ends after the question for another one, and news of that come later."""

    def __init__(self, ends: dict[str, str], *, always: bool = False) -> None:
        super().__init__(SPEC)
        self.ends, self.always = ends, always
        self.room = self.began = self.walk = 0
        self.order: list[str] = []

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        if pending.walk and pending.walk == self.walk and self.began != self.room:
            return RoomMade("cells have come free")
        self.order.append(ask.unit.key)
        found = super().hold(ask, pending)
        self.walk, self.began = pending.walk, self.room
        ended = self.ends.pop(ask.unit.key, None)
        if ended is not None:
            self.release(ended)
        self.room += ended is not None or self.always
        return found


def crowded(live: Live) -> Queues:
    """Three nodes are used by their owners, and one is lent."""
    queues = Queues(SPEC)
    queues.told_rules(Rules(default=QueueRules(borrows=True)))
    for key in ("A", "B", "C"):
        live.add(Ask(unit(f"there-{key}", key, 4), False))
    return queues


def test_nobody_passes_a_unit_for_which_cells_come_free_after_its_question() -> None:
    live = Freeing({"first": "there-B"})
    queues = crowded(live)
    live.add(Ask(unit("there-too", "C", 4), False))
    for at, (key, gpus) in enumerate((("first", 4), ("second", 3))):
        queues.arrived(unit(key, "A", gpus, at=at, priority=-1))
    assert starts(queues, live) == ["first"]
    assert live.order == ["first", "first", "second"]


def test_a_walk_ends_although_cells_come_free_all_the_time() -> None:
    live = Freeing({}, always=True)
    queues = crowded(live)
    live.add(Ask(unit("there-too", "C", 4), False))
    for at, gpus in enumerate((4, 3, 2)):
        queues.arrived(unit(f"u{gpus}", "A", gpus, at=at, priority=-1))
    assert starts(queues, live) == []
    assert live.order[-3:] == ["u4", "u3", "u2"]
    assert not queues.is_cut
