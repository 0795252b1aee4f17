"""The core's what-if: apply facts in order, ask questions, and restore everything.

A question may assume facts: pods have ended, nodes have healed. It may bind pods on the way, and evict others. All of
it happens on the state itself while the journal records, and is undone, with the order of the views (rule 5.2). A
scenario of a copy takes facts for good: for questions outside of the state's lock, and for virtual time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hived.cells.copying import copy_state
from hived.cells.journal import Mark, mark, undo_changes
from hived.cells.state import NO_GROUP, DecidedBind, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray
from hived.cells.views import forget_order, restore_order, save_order
from hived.complete.known_waits import forget_waits
from hived.deciding import decide
from hived.life.groups import remember_members, remember_order
from hived.life.victims import leaving_with
from hived.scheduler import Fact, check_asked, handle, take_in, while_recording
from hived.values.decisions import Applied, Bind, Decision, Preempt
from hived.values.errors import UserError
from hived.values.events import Event, Offer, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import BindInfo, PodRequest

Result = TypeVar("Result")
T = TypeVar("T")
_START: Mark = (0, 0)


@dataclass(frozen=True, slots=True)
class Asked:
    """A pod, nodes that it may use (bool, shape (node_count,); None: all) or an offer, and `own` of the request."""

    pod: PodRequest
    suggested: npt.NDArray[np.bool_] | None = None
    offer: Offer | None = None
    own: IntArray | None = None

    def at(self, phase: Phase, now_s: float | None) -> ScheduleRequested:
        """The request at a moment, as in `ScheduleRequested`."""
        return ScheduleRequested(self.pod, phase, self.suggested, self.offer, now_s, self.own)


class Scenario:
    """A state as it might be at `now_s`, in seconds since 1970; None if no lost work counts.

    Questions change nothing. Facts change `state` for good; only a copy takes any.
    """

    def __init__(self, state: State, now_s: float | None = None) -> None:
        self.state, self.now_s = state, now_s

    @classmethod
    def copied(cls, state: State, now_s: float | None = None, room: "Scenario | None" = None) -> "Scenario":
        """Copy a state into a scenario, using the memory of `room`, a scenario that is over. Cost O(cells + groups)."""
        return cls(copy_state(state, None if room is None else room.state), now_s)

    # ---- questions

    def tentatively(self, act: Callable[[], Result]) -> Result:
        """Run a function that changes the state while the journal records, undo all changes, and return its result.

        The function may be called again from the start, when the journal was full. Cost O(cells) of copying the order
        of the views, besides that of the function.
        """
        state = self.state

        def act_and_undo() -> Result:
            found = act()
            undo_changes(state, _START)
            return found

        order, plan, waits = save_order(state.cells), state.last_plan, state.known_waits
        try:
            return while_recording(state, act_and_undo)
        finally:
            restore_order(state.cells, order)
            state.last_plan, state.known_waits = plan, waits

    def plan(
        self, bundles: Sequence[Sequence[Asked]], facts: Sequence[Fact] = (), evicted: list[str] | None = None
    ) -> list[list[Decision] | UserError]:
        """Decide, as `handle` in the Filtering phase, bundles of pods that run whole or not at all (rule 15.5). Each
        pod finds earlier pods that can run in place: pods of its own bundle, and of earlier bundles that can run as a
        whole. Of a bundle with a refused pod, the error. Cost: the facts and the searches, and that of `tentatively`.

        facts : supposed before
        evicted : if given, pods that would have to preempt are bound as well, once their victims have left; the names
            of the groups that have to leave or are preempted lazily are written here, of all bundles that can run
        """
        return self.tentatively(lambda: self._plan(bundles, facts, evicted))

    def places(self, asked: Sequence[Asked], facts: Sequence[Fact] = ()) -> list[BindInfo] | None:
        """The places of pods that start together without victims; None if one has none. Cost: see `plan`."""
        (found,) = self.plan([asked], facts)
        bound = [] if isinstance(found, UserError) else [one.bind_info for one in found if isinstance(one, Bind)]
        return bound if len(bound) == len(asked) else None

    def start_in_turn(self, steps: Sequence[tuple[Sequence[Fact], Asked | None]]) -> list[bool]:
        """Say of each step whether its pod would start without victims; True for a step without a pod.

        steps : facts, and the pod that is asked about after them; it finds the pods of earlier steps in place

        Cost: the facts and the searches, and that of `tentatively`.
        """

        def act() -> list[bool]:
            remember_order(self.state)
            found: list[bool] = []
            for facts, asked in steps:
                self._suppose(facts)
                try:
                    found.append(asked is None or isinstance(self._plan_one(asked, None), Bind))
                except UserError:
                    found.append(False)
            return found

        return self.tentatively(act)

    def cells(self, asked: Asked, facts: Sequence[Fact] = ()) -> DecidedBind | None:
        """The cells of a new group that starts after some facts without victims; None if it would not.

        Cost: the facts and a search, and that of `tentatively`. Raises UserError as `handle` does.
        """
        state, event, before = self.state, asked.at(Phase.FILTERING, self.now_s), self.state.last_bind

        def decide_after() -> DecidedBind | None:
            remember_order(state)
            self._suppose(facts)
            check_asked(state, event)
            return state.last_bind if isinstance(decide(state, event), Bind) else None

        try:
            return self.tentatively(decide_after)
        finally:
            state.last_bind = before

    # ---- facts, for good

    def tell(self, facts: Iterable[Event]) -> None:
        """Apply facts, one after the other. Raises UserError as `handle` does, of the first refused one."""
        for fact in facts:
            handle(self.state, fact)

    def apply(self, fact: PodAllocated | Fact) -> Applied:
        """Apply a fact, and say which groups it preempts lazily or cancels. Raises UserError as `handle` does."""
        return take_in(self.state, fact)

    def leave(self, pods: Iterable[PodRequest]) -> None:
        """Delete these pods; groups that are not there are ignored."""
        self.tell(map(PodDeleted, pods))

    def ask(self, asked: Asked, phase: Phase = Phase.FILTERING) -> Decision:
        """Decide as `handle`; in the Preempting phase cells are reserved. Cost: a search."""
        return handle(self.state, asked.at(phase, self.now_s))

    def start(self, asked: Asked) -> Decision:
        """Ask, and carry out a Bind. Cost: a search."""
        decision = self.ask(asked)
        if isinstance(decision, Bind):
            self.apply(PodAllocated(asked.pod, decision.bind_info, decision.lazily_preempted))
        return decision

    # ---- how a question is answered

    def _plan(
        self, bundles: Sequence[Sequence[Asked]], facts: Sequence[Fact], evicted: list[str] | None
    ) -> list[list[Decision] | UserError]:
        state = self.state
        if facts or evicted is not None:
            remember_order(state)
        if evicted is not None:
            evicted.clear()
        self._suppose(facts)
        found: list[list[Decision] | UserError] = []
        for bundle in bundles:
            before, count = mark(state), len(evicted or ())
            decisions: list[Decision] = []
            try:
                for asked in bundle:
                    decisions.append(self._plan_one(asked, evicted))
                found.append(decisions)
            except UserError as error:
                found.append(error)
            is_changed = evicted is not None or any(isinstance(decision, Bind) for decision in decisions)
            if is_changed and not _is_whole(found[-1]):
                undo_changes(state, before)
                forget_order(state.arrays, state.cells)
                forget_waits(state)
                if evicted is not None:
                    del evicted[count:]  # they stay, as it does not start
        return found

    def _suppose(self, facts: Sequence[Fact]) -> None:
        """Apply facts while the journal records, so that they can be taken back."""
        state = self.state
        for name in dict.fromkeys(fact.pod.spec.group.name for fact in facts if isinstance(fact, PodDeleted)):
            if (group := state.groups.get(name)) is not None:
                remember_members(state, group)
        for fact in facts:
            take_in(state, fact)

    def _plan_one(self, asked: Asked, evicted: list[str] | None) -> Decision:
        state, pod = self.state, asked.pod
        event = asked.at(Phase.FILTERING, self.now_s)
        check_asked(state, event)
        if pod.spec.group.name in state.groups:
            remember_members(state, state.groups[pod.spec.group.name])
        decision = decide(state, event)
        if evicted is not None and isinstance(decision, Preempt):
            decision = self._evict(event, evicted)
        if isinstance(decision, Bind):
            if evicted is not None:
                evicted += decision.lazily_preempted
            take_in(state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))
        return decision

    def _evict(self, event: ScheduleRequested, evicted: list[str]) -> Decision:
        """Reserve the cells of a pod, delete its victims, and ask again with their nodes offered."""
        state = self.state
        found = decide(state, replace(event, phase=Phase.PREEMPTING))
        if not isinstance(found, Preempt):
            return found
        evicted += found.lazily_preempted
        reserved = state.groups[event.pod.spec.group.name].physical
        users = np.unique(state.cells.using[reserved]).tolist()
        victims = leaving_with(state, (state.group_by_number[number] for number in users if number != NO_GROUP))
        evicted += [group.name for group in victims]
        self._suppose([PodDeleted(pod) for group in victims for pod in group.holders if pod is not None])
        offer = event.offer and replace(event.offer, nodes=event.offer.nodes | event.offer.after)
        return decide(state, replace(event, offer=offer))


def _is_whole(found: list[Decision] | UserError) -> bool:
    return not isinstance(found, UserError) and all(isinstance(decision, Bind) for decision in found)


def pods_of(state: State, groups: Iterable[str]) -> list[PodRequest]:
    """All pods of these groups, each once, also pods that wait for victims."""
    known = [state.groups[name] for name in groups if name in state.groups]
    pods = (pod for one in known for pod in (*one.holders, *one.preempting_pods.values()) if pod is not None)
    return list({pod.uid: pod for pod in pods}.values())


def nodes_of(state: State, groups: Iterable[str]) -> BoolArray:
    """The nodes on which these groups have cells, or reserve them; bool, shape (nodes,)."""
    found = np.zeros(len(state.topology.node_names), np.bool_)
    for name in groups:
        if (group := state.groups.get(name)) is not None:
            found[state.arrays.node[group.physical[group.physical != NO_CELL]]] = True
    return found


def once_left(asked: Asked, left: BoolArray) -> Asked:
    """The same request once pods have left these nodes: Kubernetes then offers nodes that were full because of them."""
    offer = asked.offer
    if offer is None or not (offer.after & left).any():
        return asked
    return replace(asked, offer=replace(offer, nodes=offer.nodes | (offer.after & left), after=offer.after & ~left))


def least_prefix(candidates: Sequence[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T] | None:
    """The shortest prefix of candidates that is enough, without candidates that can stay; None if all are not enough.

    A later one stays if it can, then an earlier one. Cost: O(log) questions for the prefix, one for each of its
    candidates.
    """
    if is_enough(()):
        return []
    enough = first_enough(candidates, is_enough)
    return None if enough is None else without_needless(enough, is_enough)


def first_enough(candidates: Sequence[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T] | None:
    """The shortest prefix of candidates, one at least, that is enough; None if all are not. Cost: O(log) questions."""
    most = 1
    while not is_enough(candidates[:most]):
        if most >= len(candidates):
            return None
        most *= 2
    least, most = most // 2, min(most, len(candidates))  # `least` are not enough
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if is_enough(candidates[:middle]) else (middle, most)
    return list(candidates[:most])


def without_needless(leaving: list[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T]:
    """Drop candidates that can stay, where all are enough: each is tested once, the last one first."""
    for place in reversed(range(len(leaving))):
        rest = leaving[:place] + leaving[place + 1 :]
        if is_enough(rest):
            leaving = rest
    return leaving
