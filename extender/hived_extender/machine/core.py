"""The core during one term of leadership: its state, the record of its events, and its answers.

A term begins with an empty state, is told every healthy node and bound pod, and ends by dropping the state. So restart,
take-over and a changed configuration are one procedure, and no belief from before leading reaches a decision. Not
thread-safe: the service calls it under its lock.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from hived.cells.state import CellState, Group, GroupState, State
from hived.cells.topology import NO_CELL, IntArray
from hived.complete.offers import slot_nodes
from hived.life.groups import bind_info_of_slot, without_place
from hived.scenario import Asked, Scenario
from hived.scheduler import check_changed_request, handle, new_state
from hived.values.decisions import Applied, Bind, Decision, Preempt, Wait
from hived.values.errors import InvariantError, UserError
from hived.values.events import (
    Event,
    GangChanged,
    GroupReserved,
    GroupSplit,
    GroupsUpgraded,
    LeavesLost,
    NodeHealthChanged,
    Offer,
    Phase,
    PodAllocated,
    PodDeleted,
    PodProgressed,
    ScheduleRequested,
)
from hived.values.specs import (
    NO_TIMES,
    OPPORTUNISTIC_PRIORITY,
    BindInfo,
    ClusterSpec,
    Gang,
    PodRequest,
    PodSpec,
    WorkTimes,
)
from hived_extender.kube.clocks import timestamp
from hived_extender.machine.devices.table import NodeDevices, Selector
from hived_extender.machine.recording.record import Draft, Operations, Recorder

log = logging.getLogger(__name__)

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Refused(Wait):
    """The search found no room for `request` with `offer`; requests with cells or reservations wait otherwise."""

    request: PodRequest | None = None
    offer: Offer | None = None


class Term(msgspec.Struct):
    """The present term: its core, None while another replica leads."""

    core: "Core | None" = None

    def tell_time(self, now_s: float) -> None:
        """Set the time in seconds since 1970 for all questions until the next call."""
        if self.core is not None:
            self.core.now_s = now_s


class Core:
    """One term; `on_room` is called after every event that may let a waiting pod in.

    Every event or question raises as `hived.scheduler.handle` does. `lazy_times` has the moment of each lazy preemption
    by group; `last_event` is for bug reports. `change_count` grows when answers may change, `version` when the state
    may. `number` is unique in the process. `touched` has groups whose cells may have changed; None without a follower.
    `now_s` is set by the machine, in seconds since 1970. `before_victims` runs before questions that may choose
    victims; it may tell of gangs.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        recorder: Operations | None,
        on_room: Callable[[], None],
        on_lazy: Callable[[Group], None],
        is_successor: bool = False,
    ) -> None:
        """Cost O(cells). `on_lazy` is called with each group that is preempted lazily. A successor logs nothing."""
        self.state = new_state(spec)
        self.lazy_times: dict[str, str] = {}
        self.lazy_versions: dict[str, int] = {}  # the configuration that took a group's guarantee, where one did
        self._lazy_preemptors: dict[str, str] = {}  # those that an earlier state knew
        self.last_event: Event | None = None
        self.change_count = 0
        self.version = 0
        self.number = next(_numbers)
        self.touched: dict[str, None] | None = None
        self._followers: list[dict[str, None]] = []
        self.now_s: float | None = None
        self.before_victims: Callable[[], None] = lambda: None
        self._answers: dict[PodSpec, Bind | Wait] = {}  # by what was asked for since the last change
        self._recorder = recorder
        self._on_room = on_room
        self._on_lazy = on_lazy
        self._is_successor = is_successor
        if recorder is not None:
            recorder.began()

    def follow(self) -> dict[str, None]:
        """All groups, and from now on those whose cells may have changed. Whoever follows takes them out."""
        self._followers.append(found := dict.fromkeys(self.state.groups))
        return found

    def unfollow(self, followed: dict[str, None]) -> None:
        """The end of `follow`."""
        self._followers = [each for each in self._followers if each is not followed]

    def record_nothing(self) -> None:
        """Stop recording: this copy of the core answers a hypothetical question."""
        self._recorder = None

    @property
    def node_names(self) -> tuple[str, ...]:
        """The configured nodes, in the order of masks."""
        return self.state.topology.node_names

    def set_node(self, name: str, is_healthy: bool) -> None:
        """Mark a configured node healthy or bad."""
        self._tell(NodeHealthChanged(name, is_healthy))
        self._on_room()  # also if it is bad: whoever reserved cells there has to look for others

    def set_lost(self, node: str, leaf_type: str, count: int, known: Sequence[int] = ()) -> None:
        """Set the number of lost leaf cells of a type on a node; 0 restores all.

        `known` are device indices of some of them. Call it after the node's pods are told, and again when they change:
        leaf cells in use are chosen last.
        """
        self._tell(LeavesLost(node, leaf_type, count, tuple(known)))
        self._on_room()

    def adopt(self, request: PodRequest, info: BindInfo, times: WorkTimes = NO_TIMES) -> None:
        """Replay a pod at the place in its annotations. Raises UserError if that is impossible."""
        self._tell(PodAllocated(request, info, times=times))

    def progress(self, request: PodRequest, times: WorkTimes) -> None:
        """Take the start or a checkpoint of a pod with cells. It only changes the choice of victims."""
        self.last_event = PodProgressed(request, times)
        self._tell_quietly(self.last_event)

    def regroup(self, gang: Gang) -> None:
        """Link groups that go on together. It only changes the choice of victims."""
        self._tell_quietly(GangChanged(gang))

    def reserve(self, pods: Sequence[PodRequest], info: BindInfo, *, may_be_free: bool = False) -> None:
        """Reserve the cells of `info` for the group of these pods, as in an earlier term or newly.

        With `may_be_free` the cells need no users. Call it after the users are told. Raises UserError, and changes
        nothing, if the cells cannot be reserved so.
        """
        self._tell(GroupReserved(tuple(pods), info, may_be_free))

    def delete(self, request: PodRequest, *, was_bound: bool = True) -> None:
        """Delete a pod. The record says whether one with a place `was_bound` to it."""
        self._tell(PodDeleted(request), was_bound=was_bound)
        self._on_room()
        if request.spec.group.name not in self.state.groups:
            self.lazy_times.pop(request.spec.group.name, None)
            self.lazy_versions.pop(request.spec.group.name, None)
            self._lazy_preemptors.pop(request.spec.group.name, None)

    def check_changed(self, request: PodRequest) -> None:
        """Raise UserError if a waiting pod may not change its request to this."""
        check_changed_request(self.state, request)

    def decide(
        self, request: PodRequest, phase: Phase, offer: Offer | None, *, commit: bool, own: IntArray | None = None
    ) -> Bind | Preempt | Wait:
        """Find a place for a pod on nodes of `offer` or on any, in its `own` virtual cells if they are free.

        With `commit`, a bind is carried out at once.
        """
        is_bind, event = False, ScheduleRequested(request, phase, offer=offer, now_s=self.now_s, own=own)
        if request.spec.priority > OPPORTUNISTIC_PRIORITY:
            self.before_victims()
        try:
            decision = self._apply(event)
            is_bind = isinstance(decision, Bind)
        finally:
            if self._recorder is not None:
                self._recorder.asked(event, self.node_names, commit=commit and is_bind)
        if isinstance(decision, Applied):
            raise InvariantError(f"the core answered a request with {decision}")
        if isinstance(decision, Bind) and commit:
            self._apply(PodAllocated(request, decision.bind_info, decision.lazily_preempted))
        return _marked(self.state, decision, request, offer)

    def try_waiting(self, request: PodRequest, everywhere: Offer | None) -> Bind | Preempt | Wait:
        """Ask as `decide` does in the Filtering phase for a waiting pod, with every node offered (rule 5.14).

        Until the next change, equal requests share one answer from a table; there may be thousands.
        """
        spec = request.spec
        if spec.group.name in self.state.groups:
            return self.decide(request, Phase.FILTERING, everywhere, commit=False)
        wanted = spec.of_group("")
        known = self._answers.get(wanted)
        if known is not None:
            return known
        decision = self.decide(request, Phase.FILTERING, everywhere, commit=False)
        if not isinstance(decision, Preempt):
            self._answers[wanted] = decision
        return decision

    def forget_answers(self) -> None:
        """Clear the table of `try_waiting` although nothing has changed."""
        self._answers.clear()

    def split(self, group: str, pods: Sequence[PodRequest], slots: Sequence[Sequence[int]] = ()) -> None:
        """Split the pods of an allocated group into own groups: `pods[i]` gets slot i, or `slots[i]`."""
        self._tell(GroupSplit(group, tuple(pods), tuple(map(tuple, slots))))

    def upgrade(self, pods: Sequence[PodRequest], own: IntArray) -> bool:
        """Give groups on borrowed cells these virtual cells, where they are; `pods` are all of theirs.

        False, and nothing changes, if the hardware cannot be behind them, or a pod has its place already.
        """
        upgraded = GroupsUpgraded(tuple(pods), own)
        try:
            self._apply(upgraded)
        except UserError as error:
            log.debug("not upgraded", extra={"fields": {"reason": error.message}})
            return False
        for name in dict.fromkeys(pod.spec.group.name for pod in pods):
            self.lazy_times.pop(name, None)
            self._lazy_preemptors.pop(name, None)
        if self._recorder is not None:
            self._recorder.told(upgraded, infos=map(self.info_of, pods))
        return True

    def is_lent(self, group: str) -> bool:
        """True if a group with cells borrows them."""
        found = self.state.groups.get(group)
        return found is not None and found.virtual is None

    def lend_all(self, groups: Iterable[str]) -> bool | None:
        """Take the places of groups of one job where one of them borrows its cells: a queued job borrows as a whole.

        True if they borrow now, None if there are none.
        """
        lent = {name: self.is_lent(name) for name in dict.fromkeys(groups)}
        if any(lent.values()) and not all(lent.values()):
            for name in (name for name, is_lent in lent.items() if not is_lent and name in self.state.groups):
                times = dict(self.state.groups[name].times)
                places = [(pod, self.info_of(pod)) for pod in self.pods_of([name])]
                for pod, _ in places:
                    self.delete(pod)
                for pod, info in places:
                    lent_info = replace(info, members=without_place(info.members))
                    self.adopt(pod, lent_info, times.get(pod.uid, NO_TIMES))
        return any(lent.values()) if lent else None

    def pods_of(self, groups: Iterable[str]) -> list[PodRequest]:
        """All pods that hold cells of these groups, once each."""
        known = [self.state.groups[name] for name in dict.fromkeys(groups) if name in self.state.groups]
        return list({pod.uid: pod for group in known for pod in group.holders if pod is not None}.values())

    def info_of(self, pod: PodRequest) -> BindInfo:
        """The place of a pod with cells. Cost O(1), and O(pods) for the first of a group."""
        group = self.state.groups[pod.spec.group.name]
        return bind_info_of_slot(self.state, group, group.slots_of[pod.uid][0])

    def has_group(self, name: str) -> bool:
        """True if the affinity group exists in any state."""
        return name in self.state.groups

    def holders(self, group: str) -> list[str]:
        """The uids of pods with cells of a group."""
        found = self.state.groups.get(group)
        return [] if found is None else [pod.uid for pod in found.holders if pod is not None]

    def slots_of(self, group: str, uid: str) -> list[int]:
        """The slots of a group held by one pod."""
        found = self.state.groups.get(group)
        return [] if found is None or len(found.holders) < 2 else list(found.slots_of.get(uid, ()))

    def nodes_of(self, group: str) -> list[str]:
        """The nodes of a group's cells, ascending."""
        found = self.state.groups.get(group)
        if found is None:
            return []
        nodes = self.state.arrays.node[found.physical[found.physical != NO_CELL]]
        return [self.node_names[node] for node in sorted({int(node) for node in nodes})]

    def slot_nodes(self, group: Group) -> list[str]:
        """The node of each slot of a group; "" if its first cell is not configured any more."""
        found, names = slot_nodes(self.state, group.members, group.physical), self.node_names
        return ["" if node == NO_CELL else names[node] for node in found.tolist()]

    def bind_info_of(self, group: str) -> BindInfo:
        """The place of a group's first pod, now or once its victims are gone."""
        return bind_info_of_slot(self.state, self.state.groups[group], 0)

    def has_all_cells(self, group: str) -> bool:
        """True if an allocated group has all its cells to itself, and its place in its VC."""
        found = self.state.groups.get(group)
        return found is not None and bool((found.physical != NO_CELL).all()) and found.lazy_preemptor is None

    def plan(
        self,
        bundles: Sequence[Sequence[Asked]],
        gone: Sequence[PodRequest] = (),
        evicted: list[str] | None = None,
    ) -> list[list[Bind | Preempt | Wait] | UserError]:
        """Answer as `decide` to each bundle in turn, with earlier ones in place; the state does not change.

        A bundle runs together or not at all; if one of its requests is refused, its answer is the error.

        gone : pods that have left by then
        evicted : as in `Scenario.plan`
        """
        self.before_victims()
        facts = [PodDeleted(pod) for pod in gone if pod.spec.group.name in self.state.groups]
        plans = Scenario(self.state, self.now_s).plan(bundles, facts, evicted)
        return [
            found if isinstance(found, UserError) else _decided(self.state, found, bundle)
            for found, bundle in zip(plans, bundles, strict=True)
        ]

    def is_waiting_for_victims(self, request: PodRequest) -> bool:
        """True if the pod's group reserves cells, all healthy; a preemption that lost a node begins again."""
        return self.reserves(request) and not self.has_lost_cells(request)

    def has_lost_cells(self, request: PodRequest) -> bool:
        """True if the pod's group reserves cells and some are bad."""
        return self.reserves(request) and bool(self.state.cells.bad[_cells_of(self.state, request)].any())

    def is_emptied(self, request: PodRequest) -> bool:
        """True if the cells reserved for the pod's group have no users any more."""
        cells = self.state.cells.state
        return self.reserves(request) and bool((cells[_cells_of(self.state, request)] == CellState.RESERVED).all())

    def is_victim(self, request: PodRequest) -> bool:
        """True while a cell of the pod's group is reserved by another: the whole group must leave (rule 8.1)."""
        group = self.state.groups.get(request.spec.group.name)
        if group is None or group.state is not GroupState.BEING_PREEMPTED:
            return False
        # A group whose preemptor was cancelled keeps its state, but gets its cells back.
        return bool((self.state.cells.state[_cells_of(self.state, request)] == CellState.RESERVING).any())

    def take_over(self, successor: "Core", version: int = 0) -> None:
        """Adopt the state of another core, built from all cell users under its configuration of this version.

        Holders of this core, such as a binding being written, keep the same term. Groups that lose something are
        logged.
        """
        lazy = [name for name, group in successor.state.groups.items() if group.virtual is None]
        known = {name: preemptor for name in lazy if (preemptor := self.lazy_preemptor(name)) is not None}
        times = {name: self.lazy_times[name] for name in known if name in self.lazy_times}
        lost = _lazily_preempted(self.state, successor.state)
        _log(_cancelled(self.state, successor.state), lost)
        versions = {name: number for name, number in self.lazy_versions.items() if name in lazy}
        self.lazy_versions = versions | dict.fromkeys(lost, version)
        self.state, self._lazy_preemptors = successor.state, known
        self.lazy_times = times | {name: self.lazy_times.get(name, time) for name, time in successor.lazy_times.items()}
        self.last_event = None
        self.change_count += 1
        self.version += 1
        self._answers.clear()
        if isinstance(self._recorder, Recorder) and isinstance(successor._recorder, Draft):
            self._recorder.take_over(successor._recorder)

    def lazy_preemptor(self, name: str) -> str | None:
        """The group that took this one's place in its VC; None if it has a place or the preemptor is unknown.

        A group replayed without its place names itself or none in the state: annotations say no more.
        """
        group = self.state.groups.get(name)
        if group is None or group.virtual is not None:
            return None
        return group.lazy_preemptor if group.lazy_preemptor not in (None, name) else self._lazy_preemptors.get(name)

    def reserves(self, request: PodRequest) -> bool:
        """True if cells are reserved for the pod's group, healthy or not."""
        group = self.state.groups.get(request.spec.group.name)
        return group is not None and group.state is GroupState.PREEMPTING

    def _tell(self, fact: Event, *, was_bound: bool = True) -> None:
        """Write a fact down, and apply it."""
        if self._recorder is not None:
            self._recorder.told(fact, self.now_s, was_bound=was_bound)
        self._apply(fact)

    def _tell_quietly(self, fact: Event) -> None:
        """The same for a fact that changes nothing but the choice of victims."""
        if self._recorder is not None:
            self._recorder.told(fact)
        self.version += 1
        handle(self.state, fact)

    def _apply(self, event: Event) -> Decision:
        self.last_event = event
        if not (isinstance(event, ScheduleRequested) and event.phase is Phase.FILTERING):
            self._answers.clear()
            self.change_count += 1
            self.version += 1
        decision = handle(self.state, event)
        if self.touched is not None:
            self.touched |= dict.fromkeys(_groups_of(event, decision))
        for each in self._followers:
            each.update(dict.fromkeys(_groups_of(event, decision)))
        if decision.cancelled:
            self.version += 1
            self._on_room()
        preempted = decision.lazily_preempted if isinstance(decision, Applied | Preempt) else ()  # not yet: a Bind's
        if not self._is_successor:
            _log(decision.cancelled, preempted, gave_up=isinstance(decision, Preempt) and decision.gave_up)
        for name in preempted:
            self.lazy_times[name] = timestamp()
            self._on_lazy(self.state.groups[name])
        return decision


def _groups_of(event: Event, decision: Decision) -> Iterator[str]:
    """The groups whose cells an event may have changed."""
    yield from decision.cancelled
    match event:
        case PodAllocated(pod=pod) | PodDeleted(pod=pod):
            yield pod.spec.group.name
        case ScheduleRequested(pod=pod) if not isinstance(decision, Bind):
            yield pod.spec.group.name
        case GroupReserved(pods=pods) | GroupsUpgraded(pods=pods):
            yield from (pod.spec.group.name for pod in pods)
        case GroupSplit(group=group, pods=pods):
            yield group
            yield from (pod.spec.group.name for pod in pods)
    if isinstance(decision, Applied | Preempt):
        yield from decision.lazily_preempted


def _marked(
    state: State, decision: Bind | Preempt | Wait, request: PodRequest, offer: Offer | None
) -> Bind | Preempt | Wait:
    """Turn a search's refusal into `Refused`; pass other decisions on."""
    if not isinstance(decision, Wait) or decision.is_emptied or request.spec.group.name in state.groups:
        return decision
    return Refused(decision.reason, decision.cancelled, False, request, offer)


def _decided(state: State, found: Sequence[Decision], bundle: Sequence[Asked]) -> list[Bind | Preempt | Wait]:
    """The planned decisions about the first of a bundle's pods."""
    both = zip(found, bundle, strict=False)
    return [_marked(state, one, asked.pod, asked.offer) for one, asked in both if not isinstance(one, Applied)]


def _cells_of(state: State, request: PodRequest) -> IntArray:
    """The configured leaf cells of the pod's group."""
    physical = state.groups[request.spec.group.name].physical
    held: IntArray = physical[physical != NO_CELL]
    return held


def _log(cancelled: Sequence[str], lazily_preempted: Iterable[str], *, gave_up: bool = False) -> None:
    if gave_up:
        log.info("other victims may lose less work; the search for them was given up")
    if cancelled:
        log.info("preemption cancelled", extra={"fields": {"groups": cancelled}})
    for name in lazily_preempted:
        log.info("lazily preempted", extra={"fields": {"group": name}})


def _cancelled(before: State, after: State) -> list[str]:
    """The preempting groups missing from another state."""
    return [
        name
        for name, group in before.groups.items()
        if group.state is GroupState.PREEMPTING and name not in after.groups
    ]


def _lazily_preempted(before: State, after: State) -> list[str]:
    """The groups that have their place in one state and have lost it in another."""
    return [
        name
        for name, group in after.groups.items()
        if group.virtual is None and (old := before.groups.get(name)) is not None and old.virtual is not None
    ]


class Placed(NamedTuple):
    """A pod that runs, or is being bound, at `info`."""

    request: PodRequest
    info: BindInfo
    times: WorkTimes = NO_TIMES


class Reserved(NamedTuple):
    """Pods of one group with reserved cells in `info`."""

    pods: tuple[PodRequest, ...]
    info: BindInfo


class StateInputs(msgspec.Struct, frozen=True):
    """The inputs that rebuild a state after a restart or under another configuration.

    Healthy nodes, configured or not; pods with cells, by uid; reservations, by group; facts about devices of nodes, by
    name, and about DeviceClasses. `queued` has the groups of each queued job with cells.
    """

    healthy_nodes: frozenset[str] = frozenset()
    placed: Mapping[str, Placed] = msgspec.field(default_factory=dict)
    reserved: Mapping[str, Reserved] = msgspec.field(default_factory=dict)
    devices: Mapping[str, NodeDevices] = msgspec.field(default_factory=dict)
    device_classes: Mapping[str, Selector] = msgspec.field(default_factory=dict)
    queued: Sequence[Sequence[str]] = ()


def reservations(state: State) -> dict[str, Reserved]:
    """The reservations of a state, by group."""
    return {
        group.name: Reserved(tuple(group.preempting_pods.values()), bind_info_of_slot(state, group, 0))
        for group in state.groups.values()
        if group.state is GroupState.PREEMPTING
    }


def in_replay_order(placed: Iterable[Placed]) -> list[Placed]:
    """Sort by falling priority, so that lazily preempted groups find their cells taken; in a group, pods that say so
    come first.
    """
    return sorted(placed, key=_replay_key)


def _replay_key(placed: Placed) -> tuple[int, bool, str, str]:
    request, info, _ = placed
    has_place = all(info.members[0][0].preassigned_cell_types)
    return -request.spec.priority, has_place, request.namespace, request.name
