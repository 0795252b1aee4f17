"""Plans of the desk: one is made for the job that waits first, and one is checked before it is carried out."""

from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY
from hived_extender.api.defrag import DefragPlan, Inputs, Move
from hived_extender.insight.defrag.collecting import Collected
from hived_extender.insight.defrag.execution import placement_of, read_groups, refusals, spec_of
from hived_extender.insight.defrag.planner import LIMITS, NOTHING_POSSIBLE, PLAN, Limits, Task, job_shapes, plan
from hived_extender.machine.stimuli import MoveOrder

__all__ = ["LIMITS", "NOTHING_POSSIBLE", "PLAN", "checked_orders", "head", "names_of_jobs", "plan_for"]


def head(inputs: Inputs, vc: str) -> str | None:
    """The guaranteed job of a VC that is first to be tried; None if none waits."""
    for job in inputs.waiting:
        spec = spec_of(job.specs[0])
        if spec.virtual_cluster == vc and spec.priority >= MIN_GUARANTEED_PRIORITY:
            return job.name
    return None


def plan_for(collected: Collected, job: str, limits: Limits) -> DefragPlan:
    """A plan for a job that waits."""
    vc, shapes = job_shapes(collected.inputs, job)
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


def names_of_jobs(inputs: Inputs, found: DefragPlan) -> frozenset[str]:
    """The waiting jobs that a plan makes room for, and their pods; empty unless all that is wanted are jobs."""
    wanted = {one.shape for one in found.wanted}
    jobs = [job for job in inputs.waiting if job.name in wanted]
    return (
        frozenset(name for job in jobs for name in (job.name, *job.pods)) if len(jobs) == len(wanted) else frozenset()
    )


def checked_orders(collected: Collected, found: DefragPlan) -> tuple[MoveOrder, ...]:
    """The moves of a plan, for the service. Raises UserError (409) if it does not hold any more."""
    reasons = refusals(collected.cluster, collected.inputs, found, collected.moving.movable)
    if reasons:
        raise UserError("the plan does not hold any more: " + "; ".join(reasons), 409)
    groups = read_groups(collected.inputs)
    return tuple(_order_of(move, groups[move.group].entry.chain) for move in found.moves)


def _order_of(move: Move, chain: str) -> MoveOrder:
    """One move for the service. An opportunistic group finds its new place by itself."""
    becomes = placement_of(move.becomes, chain) if move.is_guaranteed else None
    return MoveOrder(move.step, move.group, move.gang, tuple(move.was), becomes)
