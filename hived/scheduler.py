"""The only entrance to the core: `handle(state, event)` takes an event, changes the state, returns a decision.

A decision that is not carried out changes nothing (rule 5.2): a search runs while the journal records and is undone.
Exceptions are the order of the views, the pod's own cancelled preemption, and a new preemption in the Preempting phase.
A `Bind` is carried out by the event `PodAllocated`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from hived.cells.journal import JournalFull, grow_journal, start_recording, stop_recording, undo_changes
from hived.cells.safety import relieve_chains
from hived.cells.state import CellState, GroupState, State, empty_state
from hived.cells.topology import NO_CELL, Topology
from hived.cells.views import forget_order
from hived.complete.known_waits import forget_waits
from hived.complete.offers import check_offer
from hived.deciding import decide, decide_member
from hived.life.allocation import occupy_reserved, release_group, split_group
from hived.life.bind_info import check_bind_info, named_leaves, planned_roots
from hived.life.checks import check_agreement, check_request
from hived.life.groups import (
    check_members,
    find_slot,
    leave_slots,
    remove_group,
    take_slot,
)
from hived.life.health import exchange_doomed, lose_leaves, set_node_health
from hived.life.invariants import broken_rule
from hived.life.losses import check_times, forget_times, milliseconds, note_first_times, note_times
from hived.life.preassigned import bind_pinned_cell
from hived.life.preemption import cancel_preemption, preempt_lazily_for
from hived.life.restore import restore_group, restore_reservation
from hived.life.upgrade import upgrade_groups
from hived.life.victims import change_gang, note_seats
from hived.values.decisions import Applied, Decision
from hived.values.errors import InvariantError, UserError
from hived.values.events import (
    Event,
    GangChanged,
    GroupReserved,
    GroupSplit,
    GroupsUpgraded,
    LeavesLost,
    NodeHealthChanged,
    PodAllocated,
    PodDeleted,
    PodProgressed,
    ScheduleRequested,
)
from hived.values.specs import ClusterSpec, PodRequest

Fact = PodDeleted | NodeHealthChanged | LeavesLost
Result = TypeVar("Result")
_START = (0, 0)


def new_state(spec: ClusterSpec) -> State:
    """A scheduler for a cluster in which every node is still bad (rule 10.2). Cost O(cells)."""
    state = idle_state(spec)
    nodes = state.arrays.node[state.arrays.node_leaf]
    by_chain = nodes[np.argsort(state.arrays.node_leaf, kind="stable")]
    _, first = np.unique(by_chain, return_index=True)
    set_node_health(state.arrays, state.cells, by_chain[np.sort(first)].astype(np.int32), 1)
    return state


def idle_state(spec: ClusterSpec, topology: Topology | None = None) -> State:
    """A scheduler for an unused cluster of healthy nodes. Cost O(cells).

    topology : of the same configuration, if there is one already
    """
    state = empty_state(spec, topology)
    topology = state.topology
    for (_, pinned_id), root in sorted(topology.pinned_roots.items()):
        bind_pinned_cell(state.arrays, state.cells, topology.pinned_cells[pinned_id], root)
    return state


def handle(state: State, event: Event) -> Decision:
    """Handle one event.

    Returns Bind, Preempt or Wait for `ScheduleRequested`, else Applied. Raises UserError if the pod asks for something
    impossible or contradictory; nothing has changed then (rule 5.12). Raises InvariantError if the state breaks its own
    rules; a schedule request is taken back then, after a half-applied fact the state is not to be used any more.
    """
    match event:
        case GangChanged():
            change_gang(state, event.gang)
            return Applied()
        case PodProgressed():
            check_times(event.times)
            applied = _progress(state, event)
        case ScheduleRequested():
            check_asked(state, event)
            return while_recording(state, lambda: decide(state, event))
        case PodAllocated() | PodDeleted() | NodeHealthChanged() | LeavesLost():
            return take_in(state, event)
        case GroupSplit():
            forget_waits(state)
            split_group(state, event.group, event.pods, event.slots)
            applied = Applied()
        case GroupsUpgraded():
            forget_waits(state)
            applied = while_recording(state, lambda: _upgrade(state, event))
        case GroupReserved():
            forget_waits(state)
            applied = while_recording(state, lambda: _reserve(state, event))
    relieve_chains(state)
    return applied


def take_in(state: State, fact: PodAllocated | Fact) -> Applied:
    """Apply a fact, also while the journal records. Raises as `handle`."""
    forget_waits(state)
    match fact:
        case PodAllocated():
            check_members(fact.pod.spec)
            check_times(fact.times)
            applied = _allocate(state, fact)
        case PodDeleted():
            applied = _delete(state, fact.pod)
        case NodeHealthChanged() | LeavesLost():
            applied = _change_health(state, fact)
    relieve_chains(state)
    return applied


def check_asked(state: State, event: ScheduleRequested) -> None:
    """Raise UserError for a request that contradicts itself, and set its time."""
    check_members(event.pod.spec)
    if event.suggested is not None and event.suggested.shape != (len(state.topology.node_names),):
        raise UserError(f"suggested nodes must be a mask of {len(state.topology.node_names)} nodes")
    if event.offer is not None:
        if event.suggested is not None:
            raise UserError("suggested nodes and an offer were both given; an offer stands in their place")
        check_offer(event.offer, event.pod.spec.group, len(state.topology.node_names))
    state.now_ms = milliseconds(event.now_s)


def while_recording(state: State, decide: Callable[[], Result]) -> Result:
    """Let `decide` change the state while the journal records; any interruption undoes the changes."""
    while True:
        start_recording(state)
        try:
            return decide()
        except JournalFull:
            _undo_all(state)
            grow_journal(state)
        except BaseException:
            _undo_all(state)
            raise
        finally:
            stop_recording(state)


def _undo_all(state: State) -> None:
    """Restore the state before the event, wherever it was interrupted."""
    undo_changes(state, _START)
    forget_order(state.arrays, state.cells)
    forget_waits(state)


def check_changed_request(state: State, pod: PodRequest) -> None:
    """Raise UserError if the core would refuse a pod's changed request.

    To be asked before the pod's old request is deleted, which must not happen for one that is refused. Changes nothing.
    A pod may always leave the preempting group that it belongs to, so that a gang can change as a whole, pod by pod.
    """
    check_members(pod.spec)
    group = state.groups.get(pod.spec.group.name)
    if group is None or pod.uid in group.preempting_pods:
        check_request(state, pod)
        return
    check_agreement(pod, group)
    if group.state is not GroupState.PREEMPTING:
        decide_member(state, pod, group)


def _allocate(state: State, event: PodAllocated) -> Applied:
    pod, bind_info = event.pod, event.bind_info
    group = state.groups.get(pod.spec.group.name)
    if group is None:
        return _allocate_first(state, event)
    check_agreement(pod, group)
    if group.state is GroupState.PREEMPTING:
        held = group.physical[group.physical != NO_CELL]
        if (state.cells.state[held] != CellState.RESERVED).any():
            # bound by another component before its victims left: the free cells are worked out anew (rule 8.10)
            check_bind_info(pod, bind_info)
            cancel_preemption(state, group)
            applied = _allocate_first(state, event)
            return replace(applied, cancelled=(group.name, *applied.cancelled))
    slot = find_slot(state, group, pod, bind_info)
    if group.state is GroupState.PREEMPTING:
        occupy_reserved(state.arrays, state.cells, group.physical, group.number, int(group.spec.elastic))
        group.state = GroupState.ALLOCATED
        group.preempting_pods.clear()
        state.victims.pop(group.number, None)
    if take_slot(group, slot, pod):
        note_seats(state, group, pod.uid, (slot,), is_taken=True)
    note_first_times(state, group, pod.uid, event.times)
    return Applied()


def _allocate_first(state: State, event: PodAllocated) -> Applied:
    """Allocate the first pod of a group, which brings the placement of all."""
    pod, bind_info = event.pod, event.bind_info
    leaves = named_leaves(state, pod, bind_info)
    preempted = _carry_out_lazy_preemptions(state, event) if event.lazily_preempted else []
    group, more, cancelled = restore_group(state, pod, leaves)
    take_slot(group, find_slot(state, group, pod, bind_info) if leaves.slot is None else leaves.slot, pod)
    note_first_times(state, group, pod.uid, event.times)
    return Applied((*preempted, *more), tuple(cancelled))


def _progress(state: State, event: PodProgressed) -> Applied:
    """Record the times of a pod that holds cells; of any other they are ignored."""
    group = state.groups.get(event.pod.spec.group.name)
    if group is not None and event.pod.uid in group.slots_of:
        note_times(state, group, event.pod.uid, event.times)
    return Applied()


def _carry_out_lazy_preemptions(state: State, event: PodAllocated) -> list[str]:
    """Repeat the changes of other groups by the search behind a Bind; they were undone with the search."""
    known = map(state.groups.get, event.lazily_preempted)
    groups = [group for group in known if group is not None and group.state is not GroupState.PREEMPTING]
    if not groups:
        return []
    plan = state.last_plan
    if plan is not None and plan[0] == event.pod.spec.group.name:
        _, physical, virtual = plan
    else:
        physical, virtual = planned_roots(state, event.bind_info)
    return preempt_lazily_for(state, groups, physical, virtual, event.pod.spec.group.name)


def _reserve(state: State, event: GroupReserved) -> Applied:
    restore_reservation(state, event.pods, event.bind_info, may_be_free=event.may_be_free)
    return Applied()


def _upgrade(state: State, event: GroupsUpgraded) -> Applied:
    upgrade_groups(state, event.pods, event.own)
    return Applied()


def _change_health(state: State, event: NodeHealthChanged | LeavesLost) -> Applied:
    node = state.topology.node_index.get(event.node)
    if node is None:
        return Applied()
    if isinstance(event, LeavesLost):
        lose_leaves(state, node, event)
    else:
        set_node_health(state.arrays, state.cells, np.array([node], np.int32), int(not event.is_healthy))
    exchange_doomed(state.arrays, state.cells, node)
    return Applied()


def _delete(state: State, pod: PodRequest) -> Applied:
    """Delete a pod: free its slots, or cancel its preemption once no pod of the group is left (rules 2.13, 8.6)."""
    group = state.groups.get(pod.spec.group.name)
    if group is None:
        return Applied()
    if group.state is GroupState.PREEMPTING:
        if group.preempting_pods.pop(pod.uid, None) is not None and not group.preempting_pods:
            cancel_preemption(state, group)
            return Applied(cancelled=(group.name,))
        return Applied()
    left = leave_slots(group, pod.uid)
    note_seats(state, group, pod.uid, left, is_taken=False)
    if group.times:
        forget_times(state, group, pod.uid)
    if left and not group.slots_of:
        release_group(state.arrays, state.cells, group.physical)
        remove_group(state, group)
    return Applied()


def check_invariants(state: State) -> None:
    """Raise InvariantError naming the first rule that the state breaks. Cost O(cells); meant for tests and replays."""
    broken = broken_rule(state)
    if broken:
        raise InvariantError(broken)
