"""Turns try units in the order that is shown, by each policy, and moves give it (rules 29.2, 29.3)."""

import random
from itertools import product

import pytest
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import (
    OPPORTUNISTIC_PRIORITY,
    CellTypeSpec,
    ClusterSpec,
    PhysicalCellSpec,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from hived.values.specs import Rules as CellRules
from hived_extender.queues.policies import POLICIES, Policy, QueueRules, Rules
from hived_extender.queues.units import Unit
from tests.extender.queues.small import Desk, unit

NODES = 8
SPEC = ClusterSpec(
    {"NODE": CellTypeSpec("NODE", "GPU", 4, is_node_level=True)},
    tuple(PhysicalCellSpec("NODE", address=f"n{number}") for number in range(NODES)),
    {"A": VirtualClusterSpec("A", (VirtualCellSpec("NODE", NODES),))},
    rules=CellRules.BETTER,
)
ALL = unit("all", gpus=4, pods=NODES, priority=50)
QUEUES = ("x", "y")
PLACED, SIZED = "by place", "by size"
MOVES = 12


@pytest.fixture(params=(PLACED, SIZED))
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Policies as they are, and with one more order within a queue: `Priority` with small jobs first."""
    if request.param == SIZED:
        row = POLICIES[Policy.PRIORITY]._replace(within=lambda unit, place: (float(unit.leaf_count), place))
        monkeypatch.setitem(POLICIES, Policy.PRIORITY, row)
    return str(request.param)


def desk_of(policies: tuple[Policy, Policy], draw: random.Random, *, is_lent: bool) -> Desk:
    """Two queues of a virtual cluster, all cells of which are in use, and units that wait in them."""
    desk = Desk(spec=SPEC)
    rules = [QueueRules(policy, borrows=True, priority=draw.randrange(2)) for policy in policies]
    desk.queues.told_rules(Rules(queues=dict(zip(QUEUES, rules, strict=True))))
    assert desk.come(replace(ALL, queue="x")) == ["all"]
    assert desk.come(*(waiting(f"{number}", draw, is_lent=is_lent) for number in range(10))) == []
    return desk


def waiting(key: str, draw: random.Random, *, is_lent: bool) -> Unit:
    priority = OPPORTUNISTIC_PRIORITY if is_lent else draw.randrange(2)
    made = unit(key, gpus=1, pods=draw.randint(1, 3), priority=priority, at=float(draw.randrange(4)))
    return replace(made, queue=draw.choice(QUEUES))


def check_order(desk: Desk) -> None:
    """All start in the order that is shown once there is room for all."""
    shown = {queue: desk.queues.order(queue) for queue in QUEUES}
    for queue, keys in shown.items():
        assert [desk.queues.position(key) for key in keys] == list(range(1, len(keys) + 1))
        assert desk.queues.first(queue, 3) == keys[:3]
    started = desk.end("all", desk.now + 60.0)
    assert len(started) == 10
    for keys in shown.values():
        assert [key for key in started if key in keys] == keys


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("is_lent", [False, True], ids=["own", "lent"])
@pytest.mark.parametrize("policies", list(product(POLICIES, repeat=2)), ids=" ".join)
def test_units_are_tried_in_the_order_that_is_shown(policies: tuple[Policy, Policy], is_lent: bool, order: str) -> None:
    for seed in range(4):
        check_order(desk_of(policies, random.Random(f"{policies} {seed}"), is_lent=is_lent))


def test_queues_are_never_compared_by_another_order_within(order: str) -> None:
    rules = Rules(queues={"x": QueueRules(Policy.HIVED), "y": QueueRules(Policy.PRIORITY)})
    assert (rules.rank("x", 0, 0.0) == rules.rank("y", 0, 0.0)) == (order == PLACED)


def refusal(desk: Desk, key: str, to: str) -> str:
    """The error of a move, "" if it is made."""
    try:
        desk.queues.moved(key, to)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_move_gives_the_order_or_says_that_the_policy_does_not_allow_it(policy: Policy) -> None:
    refused = 0
    for seed in range(4):
        draw = random.Random(f"{policy} {seed}")
        desk = desk_of((policy, policy), draw, is_lent=True)
        for _ in range(MOVES):
            was = desk.queues.order("x")
            key, other = draw.sample(was, 2)
            to = draw.choice(("front", "back", other))
            error = refusal(desk, key, to)
            if error:
                refused += 1
                assert error.endswith(
                    f"policy {policy} of queue x orders jobs of one priority by more than their place"
                )
                assert desk.queues.order("x") == was
                continue
            now = desk.queues.order("x")
            assert [each for each in now if each != key] == [each for each in was if each != key]
            before = now[: now.index(key)]
            assert before == {"front": [], "back": now[:-1]}.get(to, before)
            assert other not in before or to != other
        check_order(desk)
    assert (refused > 0) == (POLICIES[policy].within is not POLICIES[Policy.HIVED].within)
