"""Work of the desk with plans: one is made for the job that waits first, and checked before it is carried out."""

from hived.errors import UserError
from hived.specs import MIN_GUARANTEED_PRIORITY
from hived_extender.api.defrag import DefragPlan, Inputs, Move
from hived_extender.defrag.checking import placement_of, refusals
from hived_extender.defrag.collecting import Collected
from hived_extender.defrag.limits import Limits
from hived_extender.defrag.planner import PLAN, Task, job_shapes, plan
from hived_extender.defrag.states import read_groups, spec_of
from hived_extender.service.stimuli import MoveOrder

__all__ = ["PLAN", "checked_orders", "plan_for_head"]


def plan_for_head(collected: Collected, vc: str, limits: Limits) -> DefragPlan | None:
    """A plan for the guaranteed job of a VC that is first to be tried; None if none waits."""
    job = _head(collected.inputs, vc)
    if job is None:
        return None
    _, shapes = job_shapes(collected.inputs, job)
    return plan(
        Task(
            cluster=collected.cluster,
            inputs=collected.inputs,
            vc=vc,
            shapes=shapes,
            movable=collected.moving.movable,
            limits=limits,
        )
    )


def checked_orders(collected: Collected, found: DefragPlan) -> tuple[MoveOrder, ...]:
    """The moves of a plan as the service makes them. Raises UserError (409) if it does not hold any more."""
    reasons = refusals(collected.cluster, collected.inputs, found, collected.moving.movable)
    if reasons:
        raise UserError("the plan does not hold any more: " + "; ".join(reasons), 409)
    groups = read_groups(collected.inputs)
    return tuple(_order_of(move, groups[move.group].entry.chain) for move in found.moves)


def _order_of(move: Move, chain: str) -> MoveOrder:
    """A move as the service makes it. An opportunistic group finds its new place by itself."""
    becomes = placement_of(move.becomes, chain) if move.is_guaranteed else None
    return MoveOrder(move.step, move.group, move.gang, tuple(move.was), becomes)


def _head(inputs: Inputs, vc: str) -> str | None:
    """The guaranteed job of a VC that is first to be tried."""
    for job in inputs.waiting:
        spec = spec_of(job.specs[0])
        if spec.virtual_cluster == vc and spec.priority >= MIN_GUARANTEED_PRIORITY:
            return job.name
    return None
