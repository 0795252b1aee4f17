"""The answer to a pod: `Bind`, `Preempt` or `Wait`, by the cells of its group (rules 5.1 to 5.6, 12.9, 12.10)."""

from dataclasses import replace

from hived.cells.journal import mark, undo_changes
from hived.cells.state import CellState, DecidedBind, Group, GroupState, State
from hived.cells.topology import NO_CELL, IntArray
from hived.complete.known_waits import forget_waits
from hived.complete.offers import are_offered, may_keep
from hived.hived_rules.placement import Placement
from hived.life.checks import check_agreement, check_own
from hived.life.groups import (
    bind_info_for,
    bind_info_of_slot,
    describe_placement,
    first_free_slot,
    leaf_range,
    member_slots,
)
from hived.life.preemption import cancel_preemption, start_preemption
from hived.life.victims import find_victims, has_victims, victims_of
from hived.life.virtual_leaves import choose_virtual
from hived.search import search, search_offered
from hived.values.decisions import Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import Offer, Phase, ScheduleRequested
from hived.values.specs import PodRequest, Rules

NAMED_PODS = 4
"""Pods that a message names."""


def decide(state: State, event: ScheduleRequested) -> Decision:
    """Answer a request that `scheduler` has checked. Runs while the journal records.

    Kept of it are a new preemption in the Preempting phase, the end of the group's own one, and its membership.
    A group that waits for its victims is joined, or its reservation ends if its cells became unusable (rules 5.5, 5.6,
    12.9).
    """
    pod = event.pod
    group = state.groups.get(pod.spec.group.name)
    if group is None:
        return _decide_new(state, event)
    check_agreement(pod, group)
    if group.state is not GroupState.PREEMPTING:
        return decide_member(state, pod, group, event.offer)
    is_asked = event.phase is Phase.PREEMPTING or (event.offer is not None and not has_victims(state, group.physical))
    if is_asked and not _may_stay(state, event, group):
        cancel_preemption(state, group)
        forget_waits(state)
        decision = _decide_new(state, event)
        return replace(decision, cancelled=(group.name, *decision.cancelled))
    victims = victims_of(state, group)
    group.preempting_pods[pod.uid] = pod
    if victims:
        return Preempt(victims)
    if event.offer is not None and not are_offered(state, group.members, group.physical, event.offer):
        return Wait("others have left its cells, and Kubernetes does not offer their nodes yet", is_emptied=True)
    return Bind(bind_info_of_slot(state, group, member_slots(group.members, pod.spec.leaf_cell_count).start))


def decide_member(state: State, pod: PodRequest, group: Group, offer: Offer | None = None) -> Decision:
    """Answer a pod of a group that has its cells: it takes the first free slot of its size (rules 5.3, 5.4).

    With an offer, the first one on a node that will do (rule 12.10).
    """
    slots = member_slots(group.members, pod.spec.leaf_cell_count)
    slot = first_free_slot(group, slots)
    if offer is not None and slot is not None and not _may_have(state, group, slot, offer):
        more = (each for each in range(slot + 1, slots.stop) if group.holders[each] is None)
        slot = next((each for each in more if _may_have(state, group, each, offer)), None)
        if slot is None:
            return Wait("the cells that its group has left for it are on nodes that Kubernetes does not offer")
    if slot is None:
        raise UserError(_too_many(state, group, pod.spec.leaf_cell_count, slots))
    if group.state is GroupState.BEING_PREEMPTED:
        leaves = group.physical[leaf_range(group.members, slot)]
        leaves = leaves[leaves != NO_CELL]
        if not ((state.cells.state[leaves] == CellState.USED) & (state.cells.using[leaves] == group.number)).all():
            return Wait("the affinity group is being preempted")
    return Bind(bind_info_of_slot(state, group, slot))


def _too_many(state: State, group: Group, size: int, slots: range) -> str:
    """The error for a pod without a slot in its group; `rules: hived` has the reference's."""
    if state.spec.rules is Rules.HIVED:
        return (
            f"Requesting more pods than the configured number for {size} leaf cells ({len(slots)} pods) "
            f"in affinity group {group.name}"
        )
    names = [f"{pod.namespace}/{pod.name}" for slot in slots if (pod := group.holders[slot]) is not None]
    more = f" and {len(names) - NAMED_PODS} more" if len(names) > NAMED_PODS else ""
    is_one = len(names) == 1
    return (
        f"affinity group {group.name} has all its pods of {size} leaf cells: {', '.join(names[:NAMED_PODS])}{more} "
        f"{'has its' if is_one else 'have their'} cells; delete {'that' if is_one else 'one of them'}, or name another "
        "affinity group"
    )


def _may_have(state: State, group: Group, slot: int, offer: Offer) -> bool:
    """True if the node of a slot is offered as it is, or the slot's first leaf is not configured any more."""
    leaf = group.physical[leaf_range(group.members, slot).start]
    return bool(leaf == NO_CELL or offer.nodes[slot, state.arrays.node[leaf]])


def _may_stay(state: State, event: ScheduleRequested, group: Group) -> bool:
    """True if every cell that a preempting group reserves is healthy and, unless ignored (rule 2.9), suggested or
    offered.
    """
    held = group.physical[group.physical != NO_CELL]
    if state.cells.bad[held].any():
        return False
    if event.offer is not None:
        return may_keep(state, group.members, group.physical, event.offer)
    if group.spec.ignore_suggested_nodes or event.suggested is None:
        return True
    return bool(event.suggested[state.arrays.node[held]].all())


def _decide_new(state: State, event: ScheduleRequested) -> Bind | Preempt | Wait:
    """Search for a new group, and in the Preempting phase reserve the cells found."""
    pod = event.pod
    before = mark(state)
    offer = event.offer
    own = event.own
    if own is not None:
        check_own(state, pod, own)
    found = search(state, pod, event.suggested, own) if offer is None else search_offered(state, pod, offer, own)
    if isinstance(found, Wait):
        undo_changes(state, before)
        return found
    if not has_victims(state, found.physical):
        decision = _bind_new(state, pod, found)
        undo_changes(state, before)
        return decision
    if event.phase is Phase.FILTERING:
        victims = find_victims(state, found.physical)
        undo_changes(state, before)
        return Preempt(victims, gave_up=found.gave_up)
    forget_waits(state)
    cancelled = start_preemption(state, pod, found.physical, _behind(state, pod, found))
    victims = victims_of(state, state.groups[pod.spec.group.name])
    return Preempt(victims, cancelled, found.lazily_preempted, found.gave_up)


def _behind(state: State, pod: PodRequest, found: Placement) -> IntArray | None:
    """The virtual leaves of a new reservation. Under `rules: 2` they are the leaves of a bind there.

    So the numbers of a VC's cells do not tell if a group had to leave, and later choices do not hang on it (rule
    18.5). Cost O(leaves x height x fan-out).
    """
    if state.spec.rules is Rules.HIVED or found.virtual is None or found.keeps_virtual:
        return found.virtual
    levels = state.arrays.level[state.arrays.root[found.virtual]]
    try:
        return choose_virtual(state, pod.spec, found.physical, levels)
    except UserError:  # cells of the VC that lower priorities leave are not free yet
        return found.virtual


def _bind_new(state: State, pod: PodRequest, found: Placement) -> Bind:
    members = pod.spec.group.members
    placements = describe_placement(state, members, found.physical, found.virtual, None)
    chain = state.topology.chain_of(int(found.physical[0])).name
    slot = member_slots(members, pod.spec.leaf_cell_count).start
    bind_info = bind_info_for(placements, slot, chain)
    state.last_bind = DecidedBind(bind_info, pod.spec, slot, found.physical, found.virtual, found.keeps_virtual)
    return Bind(bind_info, found.lazily_preempted, gave_up=found.gave_up)
