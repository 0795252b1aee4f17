"""Groups that go on together, as others have told: who leaves with whom (rule 8.14)."""

from collections.abc import Iterable

from hived.specs import Gang
from hived.state import Group, GroupState, State


def change_gang(state: State, gang: Gang) -> None:
    """What was told of a gang of this name counts no more; this does. Cost O(groups of the gang, as it was and is)."""
    before = state.gangs.pop(gang.name, None)
    state.victims.clear()
    for name in before.groups if before is not None else ():
        if state.gang_of.get(name) is before:
            del state.gang_of[name]
    if gang.groups:
        state.gangs[gang.name] = gang
        state.gang_of.update(dict.fromkeys(gang.groups, gang))


def leaving_with(state: State, groups: Iterable[Group]) -> list[Group]:
    """These groups and all that cannot go on without them. Cost O(groups of their gangs)."""
    found = {group.name: group for group in groups}
    if not state.gang_of:
        return list(found.values())
    gangs = {gang.name: gang for name in found if (gang := state.gang_of.get(name)) is not None}
    for gang in gangs.values():
        lost = [
            (sum(len(found[name].slots_of) for name in limit.groups if name in found), limit) for limit in gang.limits
        ]
        if any(pods > limit.spare for pods, limit in lost):
            members = (state.groups.get(name) for name in gang.groups)
            found |= {one.name: one for one in members if one is not None and one.state is not GroupState.PREEMPTING}
    return list(found.values())
