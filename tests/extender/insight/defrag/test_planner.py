"""Each plan, carried out in another core, reaches what it promised (rules 28.2 to 28.4)."""

from random import Random

import pytest

from hived.cells.topology import NO_CELL
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Applied, Bind, Preempt
from hived.values.errors import UserError
from hived.values.events import PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import BindInfo, PodPlacement
from hived_config.loader import load_text
from hived_extender.api.defrag import DefragPlan, Inputs, Move
from hived_extender.insight.defrag.execution import Copy, copy_of, want_of
from hived_extender.insight.defrag.planner import PLAN, Task, plan
from hived_extender.insight.defrag.puzzle import read_wants
from tests.extender.insight.defrag.random_states import Fragmented, random_state
from tests.property.examples import examples

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
                _come_back(copy, move)
        check_invariants(copy.state)
    return copy


def _come_back(copy: Copy, move: Move) -> None:
    """The pods of a group are bound at their new places."""
    state, group = copy.state, copy.running[move.group]
    members = (tuple(PodPlacement(one.node, one.cells, one.types) for one in move.becomes),)
    for request, place in zip(group.requests, move.becomes, strict=True):
        info = BindInfo(place.node, place.cells, group.infos[0].cell_chain, members)
        assert handle(state, PodAllocated(request, info)) == Applied()
    own = state.groups[move.group]
    assert own.virtual is not None
    assert NO_CELL not in own.virtual


def ask_in_turn(found: Fragmented, made: DefragPlan, copy: Copy, *wants: str) -> list[bool]:
    """What the core answers to each thing wanted, each in place before the next; who is preempted leaves."""
    answers = []
    for number, shape in enumerate(read_wants(wants)):
        (request,) = want_of(copy, "a", number, shape).requests
        decision = handle(copy.state, ScheduleRequested(request))
        if isinstance(decision, Preempt):
            uids = {uid for each in decision.victims_by_node.values() for uid in each}
            for group in copy.running.values():
                for pod in group.requests:
                    if pod.uid in uids:
                        assert pod.spec.priority < 0
                        handle(copy.state, PodDeleted(pod))
            decision = handle(copy.state, ScheduleRequested(request))
        answers.append(isinstance(decision, Bind))
        if isinstance(decision, Bind):
            handle(copy.state, PodAllocated(request, decision.bind_info))
    return answers


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(examples(200)))
def test_plans_reach_what_they_promise(seed: int) -> None:
    random = Random(seed)
    found = random_state(random)
    want = random.choice(WANTS)
    try:
        made = planned(found, want)
    except UserError:
        return  # the virtual cluster has no such cells
    assert "confirm" not in made.reason
    copy = carry_out(found, made)
    assert ask_in_turn(found, made, copy, want) == [one.is_met for one in made.wanted]
    assert made.outcome != PLAN or made.is_optimal


TWO_CHAINS = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: A100, childCellNumber: 2, isNodeLevel: true}
    T4-NODE: {childCellType: T4, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: a0}
  - {cellType: T4-NODE, cellAddress: t0}
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 1}, {cellType: T4-NODE, cellNumber: 1}]}
"""


def test_cells_of_two_chains_can_be_wanted_at_once() -> None:
    cluster = load_text(TWO_CHAINS, "two.yaml", environ={}).cluster
    made = plan(Task(cluster, Inputs(at=0.0, configuration=""), "a", read_wants(("1xNODE", "1xT4-NODE"))))
    assert [one.is_met for one in made.wanted] == [True, True]
