"""Plans: each one, carried out in another core, reaches what it promised."""

from random import Random

import pytest

from hived.decisions import Bind, Preempt
from hived.errors import UserError
from hived.events import PodAllocated, PodDeleted, ScheduleRequested
from hived.scheduler import check_invariants, handle
from hived.specs import BindInfo, PodPlacement
from hived.topology import NO_CELL
from hived_extender.api.defrag import DefragPlan
from hived_extender.defrag.execution import Requests
from hived_extender.defrag.planner import NOTHING_NEEDED, PLAN, Task, plan
from hived_extender.defrag.states import Copy, copy_of
from hived_extender.defrag.wants import read_wants
from tests.extender.defrag.random_states import Fragmented, random_state

WANTS = ("1xNODE", "2xNODE", "1xRACK", "1xPAIR", "3xPAIR", "2x2", "1x4", "3x1")


def planned(found: Fragmented, *wants: str) -> DefragPlan:
    return plan(Task(found.cluster, found.inputs, "a", read_wants(wants)))


def carry_out(found: Fragmented, made: DefragPlan) -> Copy:
    """The moves as a service makes them: pods leave, and come back to the very places of the plan."""
    copy = copy_of(found.cluster, found.inputs)
    for step in sorted({move.step for move in made.moves}):
        moves = [move for move in made.moves if move.step == step]
        for move in moves:
            for request in copy.running[move.group].requests:
                handle(copy.state, PodDeleted(request))
        for move in moves:
            if move.is_guaranteed:
                _come_back(copy, move.group, [(one.node, one.cells) for one in move.becomes])
        check_invariants(copy.state)
    return copy


def _come_back(copy: Copy, name: str, places: list[tuple[str, tuple[int, ...]]]) -> None:
    state, group = copy.state, copy.running[name]
    chain = group.infos[0].cell_chain
    types = [p.preassigned_cell_types[0] for size in group.infos[0].members for p in size]
    members = tuple(PodPlacement(node, cells, (types[0],) * len(cells)) for node, cells in places)
    for request, (node, cells) in zip(group.requests, places, strict=True):
        handle(state, PodAllocated(request, BindInfo(node, cells, chain, (members,))))
    own = state.groups[name]
    assert own.virtual is not None
    assert NO_CELL not in own.virtual


@pytest.mark.parametrize("seed", range(300))
def test_plans_reach_what_they_promise(seed: int) -> None:
    random = Random(seed)
    found = random_state(random)
    want = random.choice(WANTS)
    try:
        made = planned(found, want)
    except UserError:
        return
    print(want, made.outcome, made.reason, made.is_optimal, len(made.moves))
    assert "confirm" not in made.reason, (want, made)
    if made.outcome == PLAN:
        assert made.is_optimal
