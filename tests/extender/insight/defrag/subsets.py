"""Every set of a few groups moved in a copy of the core: what a plan could have been, by trying."""

from itertools import combinations, permutations

from hived.scheduler import handle
from hived.values.events import PodAllocated
from hived.values.specs import MIN_GUARANTEED_PRIORITY
from hived_extender.api.defrag import Inputs
from hived_extender.insight.defrag.execution import Failed, Rehearsal, copy_of, want_of
from hived_extender.insight.defrag.planner import Task

MOST_MOVED = 2


def can_have_room(task: Task, movable: list[str]) -> bool:
    """Is there room for all that is wanted once up to MOST_MOVED groups have moved, in some order?"""
    return any(
        _have_room(task, order)
        for count in range(1, MOST_MOVED + 1)
        for some in combinations(movable, count)
        for order in permutations(some)
    )


def may_move(inputs: Inputs) -> list[str]:
    """The groups whose owners allow it."""
    return sorted(group.name for group in inputs.groups if group.may_move)


def _have_room(task: Task, moved: tuple[str, ...]) -> bool:
    copy = copy_of(task.cluster, task.inputs)
    rehearsal = Rehearsal(copy)
    for name in moved:
        rehearsal.leave(name)
    for number, shape in enumerate(task.shapes):
        for request in want_of(copy, task.vc, number, shape).requests:
            info = rehearsal.ask(request)
            if info is None:
                return False
            handle(rehearsal.state, PodAllocated(request, info))
    return all(_comes_back(rehearsal, name) for name in moved)


def _comes_back(rehearsal: Rehearsal, name: str) -> bool:
    """Does a group find another place? Opportunistic ones need not."""
    request = rehearsal.running[name].requests[0]
    if request.spec.priority < MIN_GUARANTEED_PRIORITY:
        return True
    info = rehearsal.ask(request)
    if info is None:
        return False
    try:
        rehearsal.come(name, info)
    except Failed:
        return False
    return True
