"""A solution carried out in a copy of the core, move by move: nothing is promised that the core does not do.

Each moved group leaves, and the core is asked for its new place, on the nodes that the solution says. Then the wanted
things are asked for, as anybody would ask. Opportunistic groups that are in the way of a move leave first.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from hived.decisions import Bind, Preempt
from hived.errors import UserError
from hived.events import Offer, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.groups import bind_info_for
from hived.scheduler import handle
from hived.specs import MIN_GUARANTEED_PRIORITY, BindInfo, GroupSpec, MemberSpec, PodRequest, PodSpec
from hived.state import NO_GROUP, State
from hived.topology import NO_CELL, BoolArray, Chain
from hived_extender.api.defrag import Move, PlannedPod, WantedOutcome
from hived_extender.defrag.model import View
from hived_extender.defrag.puzzle import Mover, Puzzle, Solution
from hived_extender.defrag.states import Running
from hived_extender.defrag.wants import Shape

SECONDS_PER_HOUR = 3600.0

Step = tuple[int, ...]
"""Numbers of movers that leave together, before any of them comes back."""


class Failed(UserError):
    """The core does something else than the solution says."""


def steps_of(puzzle: Puzzle, solution: Solution) -> list[Step]:
    """The order of moves. A mover goes once its new place is free, or is free as soon as it has left its old one."""
    movers = puzzle.movers
    guests = [(number,) for number in solution.moved if movers[number].is_guest]
    free = [
        capacity - own - lent for capacity, own, lent in zip(puzzle.capacity, puzzle.fixed, puzzle.lent, strict=True)
    ]
    for number, mover in enumerate(movers):
        if not (mover.is_guest and number in solution.moved):
            _add(free, mover.pods, -1)
    pending = [number for number in solution.moved if not movers[number].is_guest]
    steps: list[Step] = []
    while pending:
        step = next((each for each in _tries(pending) if _fits(puzzle, solution, free, each)), tuple(pending))
        for number in step:
            _add(free, movers[number].pods, 1)
            _add(free, _arriving(puzzle, solution, number), -1)
            pending.remove(number)
        steps.append(step)
    return guests + steps


def _tries(pending: Sequence[int]) -> Iterator[Step]:
    yield from ((number,) for number in pending)
    for i, number in enumerate(pending):
        yield from ((number, other) for other in pending[i + 1 :])


def _fits(puzzle: Puzzle, solution: Solution, free: Sequence[int], step: Step) -> bool:
    needed: dict[int, int] = {}
    for number in step:
        for bin_, size in _arriving(puzzle, solution, number):
            needed[bin_] = needed.get(bin_, 0) + size
        for bin_, size in puzzle.movers[number].pods:
            needed[bin_] = needed.get(bin_, 0) - size
    return all(amount <= free[bin_] for bin_, amount in needed.items() if amount > 0)


def _arriving(puzzle: Puzzle, solution: Solution, number: int) -> list[tuple[int, int]]:
    sizes = [size for _, size in puzzle.movers[number].pods]
    return list(zip(solution.bins[number], sizes, strict=True))


def _add(free: list[int], pods: Sequence[tuple[int, int]], sign: int) -> None:
    for bin_, size in pods:
        free[bin_] += sign * size


class Execution:
    """Moves and asks in one state, which is used up by it."""

    def __init__(self, state: State, running: Mapping[str, Running], lost: Mapping[str, int]) -> None:
        """`lost` has leaf-seconds by group."""
        self._state = state
        self._running = dict(running)
        self._lost = lost
        self.moves: list[Move] = []

    def carry_out(self, view: View, puzzle: Puzzle, solution: Solution) -> None:
        """Do all moves. Raises Failed if the core does not."""
        self._initial = {bin_: int(cell) for bin_, cell in enumerate(view.behind.tolist())}
        first = self.moves[-1].step + 1 if self.moves else 1
        for number, step in enumerate(steps_of(puzzle, solution), first):
            was = {name: self._places(name) for each in step for name in puzzle.movers[each].names}
            for name in was:
                self._leave(name)
            for each in step:
                mover = puzzle.movers[each]
                bins = list(solution.bins.get(each, ()))
                for name in mover.names:
                    own = [bins.pop(0) for _ in range(_pod_count(self._running[name]))] if bins else []
                    becomes = [] if mover.is_guest else self._return(view, name, own)
                    self._note(number, name, mover, was[name], becomes)

    def ask(self, shapes: Sequence[Shape], requests_of: "Requests") -> list[WantedOutcome]:
        """Ask for these in turn, each with those before it in place; who is preempted for it leaves."""
        return [self._ask(shape, requests_of(number, shape)) for number, shape in enumerate(shapes)]

    def _ask(self, shape: Shape, requests: Sequence[PodRequest]) -> WantedOutcome:
        places: list[PlannedPod] = []
        preempted: list[str] = []
        for request in requests:
            decision = handle(self._state, ScheduleRequested(request))
            if isinstance(decision, Preempt):
                uids = {uid for each in decision.victims_by_node.values() for uid in each}
                leaving = [
                    name for name, group in self._running.items() if any(pod.uid in uids for pod in group.requests)
                ]
                for name in leaving:
                    self._leave(name)
                preempted += leaving
                decision = handle(self._state, ScheduleRequested(request))
            if not isinstance(decision, Bind):
                return WantedOutcome(shape=shape.text, is_met=False)
            handle(self._state, PodAllocated(request, decision.bind_info, decision.lazily_preempted))
            places += [
                PlannedPod(one.node, one.leaf_cell_indices) for size in decision.bind_info.members for one in size
            ]
        return WantedOutcome(shape=shape.text, is_met=True, places=places, preempts=preempted)

    def _leave(self, name: str) -> None:
        for request in self._running[name].requests:
            handle(self._state, PodDeleted(request))

    def _places(self, name: str) -> list[PlannedPod]:
        return [PlannedPod(info.node, info.leaf_cell_indices) for info in self._running[name].infos]

    def _return(self, view: View, name: str, bins: Sequence[int]) -> list[PlannedPod]:
        """Put a group that has left on the nodes of these bins."""
        group = self._running[name]
        request = group.requests[0]
        for masks in self._masks(view, bins):
            nodes = np.stack(masks)
            offer = Offer(nodes, np.zeros_like(nodes))
            decision = handle(self._state, ScheduleRequested(request, Phase.FILTERING, offer=offer))
            if isinstance(decision, Bind) and not decision.lazily_preempted:
                self._bind(name, decision.bind_info)
                own = self._state.groups[name]
                if own.virtual is None or NO_CELL in own.virtual or NO_CELL in own.physical:
                    raise Failed(f"the core puts {name} there, but not with the guarantee of its virtual cluster")
                return self._places(name)
        raise Failed(f"the core does not put {name} where there should be room")

    def _bind(self, name: str, info: BindInfo) -> None:
        """All pods of a group, as they were, at the places of `info`."""
        group = self._running[name]
        infos, slots = [], _slots(group)
        for request, slot in zip(group.requests, slots, strict=True):
            own = bind_info_for(info.members, slot, info.cell_chain)
            handle(self._state, PodAllocated(request, own))
            infos.append(own)
        self._running[name] = msgspec.structs.replace(group, infos=tuple(infos))

    def _masks(self, view: View, bins: Sequence[int]) -> Iterator[list[BoolArray]]:
        """The nodes for each pod: at first the very ones, then others that nobody uses, then any of the kind."""
        state, bound = self._state, self._state.cells.bound
        node = state.arrays.node
        exact, clean, others = [], [], []
        for bin_ in bins:
            cell = int(bound[view.bins[bin_]])
            if cell != NO_CELL:
                mask = self._only(int(node[cell]))
                exact.append(mask)
                clean.append(mask)
                others.append(mask)
                continue
            elsewhere = self._unbound(view, bin_)
            before = self._initial[bin_]
            home = self._only(int(node[before])) & elsewhere if before != NO_CELL else elsewhere
            exact.append(home if home.any() else elsewhere)
            clean.append(elsewhere & ~self._is_lent())
            others.append(elsewhere)
        yield exact
        yield clean
        yield others

    def _only(self, node: int) -> BoolArray:
        mask = np.zeros(len(self._state.topology.node_names), np.bool_)
        mask[node] = True
        return mask

    def _unbound(self, view: View, bin_: int) -> BoolArray:
        """The nodes that could become those of a bin that has no hardware."""
        state = self._state
        arrays, bound = state.arrays, state.cells.bound
        cell = int(view.bins[bin_])
        if arrays.level[cell] < view.chain.node_level:
            return np.ones(len(state.topology.node_names), np.bool_)
        is_taken = np.zeros(len(state.topology.node_names), np.bool_)
        behind = bound[view.bins]
        is_taken[arrays.node[behind[behind != NO_CELL]]] = True
        above = int(arrays.parent[cell])
        while above != NO_CELL and bound[above] == NO_CELL:
            above = int(arrays.parent[above])
        if above == NO_CELL:
            return ~is_taken
        physical = int(bound[above])
        leaves = slice(
            int(arrays.first_leaf[physical]),
            int(arrays.first_leaf[physical]) + int(arrays.leaf_count[arrays.chain_level[physical]]),
        )
        mask = np.zeros_like(is_taken)
        mask[arrays.node[leaves]] = True
        return mask & ~is_taken

    def _is_lent(self) -> BoolArray:
        """Per node: does anybody use a leaf of it?"""
        arrays, using = self._state.arrays, self._state.cells.using
        mask = np.zeros(len(self._state.topology.node_names), np.bool_)
        leaves = arrays.node_leaf[using[arrays.node_leaf] != NO_GROUP]
        mask[arrays.node[leaves]] = True
        return mask

    def _note(
        self, step: int, name: str, mover: Mover, was: Sequence[PlannedPod], becomes: Sequence[PlannedPod]
    ) -> None:
        group = self._running[name]
        spec = group.requests[0].spec
        self.moves.append(
            Move(
                step=step,
                group=name,
                gang=group.entry.gang,
                vc=spec.virtual_cluster,
                priority=spec.priority,
                is_guaranteed=not mover.is_guest,
                was=list(was),
                becomes=list(becomes),
                lost_gpu_hours=self._lost.get(name, 0) / SECONDS_PER_HOUR,
            )
        )

    def settle_guests(self) -> None:
        """Find places for opportunistic groups that had to leave, as far as there are any that nobody else needs."""
        for i, move in enumerate(self.moves):
            if not move.is_guaranteed:
                request = self._running[move.group].requests[0]
                decision = handle(self._state, ScheduleRequested(request))
                if isinstance(decision, Bind):
                    self._bind(move.group, decision.bind_info)
                    self.moves[i] = msgspec.structs.replace(move, becomes=self._places(move.group))


def _pod_count(group: Running) -> int:
    return sum(member.pod_count for member in group.requests[0].spec.group.members)


def _slots(group: Running) -> list[int]:
    """The slot of each pod of a group: of its size, one after the other."""
    starts, start = {}, 0
    for member in group.requests[0].spec.group.members:
        starts[member.leaf_cell_count] = start
        start += member.pod_count
    slots = []
    for request in group.requests:
        size = request.spec.leaf_cell_count
        slots.append(starts[size])
        starts[size] += 1
    return slots


class Requests:
    """The requests behind the things wanted: those of a waiting job, or ours."""

    def __init__(self, vc: str, chain: Chain, jobs: Mapping[str, Sequence[PodRequest]]) -> None:
        self._vc, self._chain, self._jobs = vc, chain, jobs

    def __call__(self, number: int, shape: Shape) -> Sequence[PodRequest]:
        """The requests of one of them; each is the first pod of its group, with which the whole group is placed."""
        if shape.job:
            return self._jobs[shape.job]
        chain, name = self._chain, f"wanted/{number}"
        members, within = shape.members, ""
        if shape.cell_type:
            level = chain.type_levels[shape.cell_type]
            per_node = chain.leaf_count(min(level, chain.node_level))
            members = (MemberSpec(chain.leaf_count(level) // per_node, per_node),)
            within = shape.cell_type if level not in (1, chain.node_level) else ""
        spec = PodSpec(
            virtual_cluster=self._vc,
            priority=MIN_GUARANTEED_PRIORITY,
            leaf_cell_count=members[0].leaf_cell_count,
            group=GroupSpec(name, members),
            leaf_cell_type=chain.types[0],
            within_cell=within,
        )
        return [PodRequest(name, name, "", spec)]
