"""A plan that was made before, against the inputs of now."""

from collections.abc import Collection, Mapping

from hived.cells.state import State
from hived.values.errors import UserError
from hived.values.specs import BindInfo, ClusterSpec, PodPlacement, PodRequest
from hived_extender.api.defrag import DefragPlan, Inputs, Move, PlannedPod, WantedOutcome
from hived_extender.defrag.execution import Failed, Rehearsal, Requests
from hived_extender.defrag.model import View, views_for
from hived_extender.defrag.states import copy_of, spec_of
from hived_extender.defrag.wants import Shape, read_wants


def refusals(cluster: ClusterSpec, inputs: Inputs, plan: DefragPlan, movable: Collection[str]) -> list[str]:
    """Why a plan does not hold any more, move by move; empty if it does. Cost: a copy of the core."""
    copy = copy_of(cluster, inputs)
    rehearsal = Rehearsal(copy)
    for move in plan.moves:
        group = copy.running.get(move.group)
        if group is None or move.group in copy.refused:
            return [f"affinity group {move.group} does not run any more"]
        if {(info.node, info.leaf_cell_indices) for info in group.infos} != {(one.node, one.cells) for one in move.was}:
            return [f"affinity group {move.group} is not where it was"]
        if not group.entry.may_move and group.requests[0].spec.virtual_cluster not in movable:
            return [f"affinity group {move.group} does not allow to be moved"]
    for step in sorted({move.step for move in plan.moves}):
        try:
            _make(rehearsal, [move for move in plan.moves if move.step == step])
        except (Failed, UserError) as error:
            return [error.message]
    jobs = _jobs(inputs)
    return [
        reason
        for number, wanted in enumerate(plan.wanted)
        if wanted.is_met and (reason := _unmet(rehearsal, plan.vc, number, wanted, jobs))
    ]


def placement_of(places: Collection[PlannedPod], chain: str) -> BindInfo:
    """The bind info of the places of a group; smaller pods first. Raises UserError if there are none."""
    sizes: dict[int, list[PodPlacement]] = {}
    for place in places:
        sizes.setdefault(len(place.cells), []).append(PodPlacement(place.node, place.cells, place.types))
    members = tuple(tuple(sizes[size]) for size in sorted(sizes))
    if not members:
        raise UserError("the plan names no new place for a guaranteed group")
    return BindInfo(members[0][0].node, members[0][0].leaf_cell_indices, chain, members)


def _make(rehearsal: Rehearsal, moves: Collection[Move]) -> None:
    """Make the moves of one step. Raises UserError."""
    for move in moves:
        rehearsal.leave(move.group)
    for move in moves:
        if move.is_guaranteed:
            rehearsal.come(move.group, placement_of(move.becomes, rehearsal.running[move.group].entry.chain))


def _jobs(inputs: Inputs) -> dict[str, list[PodRequest]]:
    return {
        job.name: [PodRequest(f"wanted/{job.name}/{i}", job.name, "", spec_of(one)) for i, one in enumerate(job.specs)]
        for job in inputs.waiting
    }


def _unmet(
    rehearsal: Rehearsal, vc: str, number: int, wanted: WantedOutcome, jobs: Mapping[str, list[PodRequest]]
) -> str:
    """Why something wanted has no room after the moves, "" if it has."""
    try:
        shape = Shape(wanted.shape, job=wanted.shape) if wanted.shape in jobs else read_wants((wanted.shape,))[0]
    except UserError:
        return f"job {wanted.shape} does not wait any more"
    requests = jobs[shape.job] if shape.job else _requests(rehearsal.state, vc, number, shape)
    if rehearsal.want(shape, requests).is_met:
        return ""
    facts = rehearsal.facts
    why = rehearsal.kept_out or (
        "" if facts is None else next(filter(None, (facts.obstacle(one, ()) for one in requests)), "")
    )
    return f"there would be no room for {wanted.shape} after the moves" + (f" ({why})" if why else "")


def _requests(state: State, vc: str, number: int, shape: Shape) -> list[PodRequest]:
    view = max(views_for(state, vc, shape), key=lambda one: (state.topology.view_leaf_counts[one], -one))
    return list(Requests(vc, View(state, view).chain, {})(number, shape))
