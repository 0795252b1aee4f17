"""A solution carried out in copies of the core: nothing is promised that the core does not do (rule 28.4).

A copy is told of the same nodes, pods and reservations as the service's state, by the inputs of a plan.

First comes a *sketch*: all groups that move leave at once, and the wanted things come. The core is asked for a new
place of each group on the nodes that the solution says. So the leaf cells of each group are known. Then comes a
*rehearsal*, move by move, as a service makes them: a group leaves, and comes back to these very cells. The wanted
things come last, and are asked for as by any user. An earlier plan is checked by a rehearsal on the inputs of now.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, BoolArray, Chain, IntArray
from hived.cells.views import chain_of_view
from hived.life.groups import bind_info_for
from hived.scenario import Asked, Scenario
from hived.scheduler import new_state
from hived.values.decisions import Bind, Decision, Preempt
from hived.values.errors import UserError
from hived.values.events import (
    GroupReserved,
    LeavesLost,
    NodeHealthChanged,
    Offer,
    PodAllocated,
)
from hived.values.specs import (
    MIN_GUARANTEED_PRIORITY,
    BindInfo,
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PodPlacement,
    PodRequest,
    PodSpec,
    WorkTimes,
    count_pods,
)
from hived_extender.api.defrag import (
    DefragPlan,
    InputGroup,
    InputPod,
    InputRules,
    Inputs,
    Move,
    PlannedPod,
    WantedOutcome,
)
from hived_extender.insight.defrag.collecting import KubeFacts
from hived_extender.insight.defrag.model import View, views_for
from hived_extender.insight.defrag.puzzle import NO_BINS, Puzzle, Shape, Solution, read_wants
from hived_extender.jobs.annotations import read_spec
from hived_extender.machine.core import Placed, in_replay_order


class Running(msgspec.Struct, frozen=True):
    """A group of the inputs: the requests of its pods, with their places, and its entry there."""

    name: str
    requests: tuple[PodRequest, ...]
    infos: tuple[BindInfo, ...]
    entry: InputGroup


class Copy(msgspec.Struct, frozen=True):
    """A scenario of its own, made of inputs. `refused` are groups whose place cannot be; they are left out. `facts` are
    about Kubernetes' own rules.
    """

    scenario: Scenario
    inputs: Inputs
    running: Mapping[str, Running]
    refused: Collection[str]
    facts: KubeFacts

    @property
    def state(self) -> State:
        """The state of the scenario."""
        return self.scenario.state

    def requests_of(self, job: str) -> Sequence[PodRequest]:
        """The requests of a waiting job; none if it does not wait."""
        found = next((one.specs for one in self.inputs.waiting if one.name == job), [])
        return [PodRequest(f"wanted/{job}/{i}", job, "", spec_of(each)) for i, each in enumerate(found)]

    def again(self) -> "Copy":
        """Another one as long as nothing has changed in this one. Cost O(cells + groups), and that of the facts."""
        other = Scenario.copied(self.state, self.scenario.now_s)
        return Copy(other, self.inputs, self.running, self.refused, _facts(other.state, self.inputs))


def read_groups(inputs: Inputs) -> dict[str, Running]:
    """The groups by name. Raises UserError for a spec that cannot be read, or a pod without a place of its group."""
    found: dict[str, Running] = {}
    for entry in inputs.groups:
        spec = spec_of(entry.spec)
        if spec.group.name in found:
            raise UserError(f"affinity group {spec.group.name} is listed twice")
        found[spec.group.name] = _running(spec, entry)
    return found


def spec_of(fields: Mapping[str, object]) -> PodSpec:
    """A spec as `pods.annotations.spec_fields` writes it. Raises UserError."""
    spec = read_spec(msgspec.json.encode(fields).decode(), ignores_by_default=True)
    beside = fields.get("beside", "")
    return spec if not isinstance(beside, str) or not beside else replace(spec, beside=beside)


def copy_of(cluster: ClusterSpec, inputs: Inputs) -> Copy:
    """A state that was told of all inputs. Cost O(cells + pods)."""
    running = read_groups(inputs)
    found, bad, refused = Scenario(new_state(cluster), inputs.at), frozenset(inputs.bad_nodes), set[str]()
    found.tell(NodeHealthChanged(node, True) for node in found.state.topology.node_names if node not in bad)
    for placed in in_replay_order(_placed(running.values())):
        try:
            found.tell([PodAllocated(placed.request, placed.info, times=placed.times)])
        except UserError:
            refused.add(placed.request.spec.group.name)
    found.tell(LeavesLost(loss.node, loss.leaf_type, loss.count, loss.known) for loss in inputs.losses)
    for name in sorted(name for name, group in running.items() if group.entry.is_reserved):
        try:
            found.tell([GroupReserved(running[name].requests, running[name].infos[0])])
        except UserError:
            refused.add(name)
    return Copy(found, inputs, running, refused, _facts(found.state, inputs))


def _facts(state: State, inputs: Inputs) -> KubeFacts:
    """Raises UserError for facts that cannot be read."""
    leaf_counts = np.diff(state.arrays.node_leaf_start)
    try:
        return KubeFacts(inputs.rules or InputRules(), state.topology.node_names, leaf_counts)
    except (msgspec.ValidationError, IndexError) as error:
        raise UserError(f"the rules of the inputs cannot be read: {error}") from None


def _placed(groups: Iterable[Running]) -> Iterator[Placed]:
    for group in groups:
        if not group.entry.is_reserved:
            times = WorkTimes(group.entry.started_at, group.entry.checkpointed_at)
            yield from (Placed(*one, times) for one in zip(group.requests, group.infos, strict=True))


def _running(spec: PodSpec, entry: InputGroup) -> Running:
    places = tuple(tuple(PodPlacement(one.node, one.cells, one.types) for one in size) for size in entry.places)
    known = {(one.node, one.leaf_cell_indices) for size in places for one in size}
    specs: dict[int, PodSpec] = {}
    requests, infos = [], []
    for pod in entry.pods:
        size = len(pod.cells)
        if (pod.node, pod.cells) not in known:
            raise UserError(
                f"pod {pod.namespace}/{pod.name} is not at a place of its affinity group {spec.group.name}: "
                f"{pod.node} {list(pod.cells)} is not among its places"
            )
        if size not in specs:
            specs[size] = _sized(spec, size)
        requests.append(_request(pod, specs[size]))
        infos.append(BindInfo(pod.node, pod.cells, entry.chain, places))
    if not requests:
        raise UserError(f"affinity group {spec.group.name} has no pods")
    return Running(spec.group.name, tuple(requests), tuple(infos), entry)


def _request(pod: InputPod, spec: PodSpec) -> PodRequest:
    return PodRequest(pod.uid, pod.name, pod.namespace, spec)


def _sized(spec: PodSpec, size: int) -> PodSpec:
    return spec if spec.leaf_cell_count == size else replace(spec, leaf_cell_count=size)


class Failed(UserError):
    """The core does something else than the solution says, or Kubernetes would; of a `group`, where one is to blame.

    `nodes` would not take its pods by Kubernetes' rules, by number. The job that is wanted counts as a group here.
    """

    def __init__(self, message: str, group: str = "", nodes: frozenset[int] = NO_BINS) -> None:
        super().__init__(message)
        self.group, self.nodes = group, nodes


class Want(msgspec.Struct, frozen=True):
    """One thing wanted, in one view. Each of its requests is the first pod of its group, with which the whole group is
    placed.
    """

    shape: Shape
    requests: Sequence[PodRequest]
    view: int


def want_of(copy: Copy, vc: str, number: int, shape: Shape) -> Want:
    """A thing that a VC wants, in that of its views which has most cells: the requests of a waiting job, or ours.

    Raises UserError if no view could have it.
    """
    state, job = copy.state, copy.requests_of(shape.job)
    counts = state.topology.view_leaf_counts
    view = max(_views(state, vc, shape, job), key=lambda one: (counts[one], -one))
    return Want(shape, job or [_request_of(chain_of_view(state, view), vc, f"wanted/{number}", shape)], view)


def _views(state: State, vc: str, shape: Shape, job: Sequence[PodRequest]) -> list[int]:
    views = views_for(state, vc, shape)
    if not job:
        return views
    spec, topology = job[0].spec, state.topology
    if spec.pinned_cell_id:
        return [topology.pinned_views[topology.vc_index[vc], spec.pinned_cell_id]]
    chains = topology.leaf_type_chains.get(spec.leaf_cell_type, ()) if spec.leaf_cell_type else None
    own = {view: chain for (_, chain), view in topology.vc_views.items() if view in views}
    return [view for view in views if chains is None or own[view] in chains] or views


def _request_of(chain: Chain, vc: str, name: str, shape: Shape) -> PodRequest:
    members, within = shape.members, ""
    if shape.cell_type:
        level = chain.type_levels[shape.cell_type]
        per_node = chain.leaf_count(min(level, chain.node_level))
        members = (MemberSpec(chain.leaf_count(level) // per_node, per_node),)
        within = shape.cell_type if level not in (1, chain.node_level) else ""
    spec = PodSpec(
        virtual_cluster=vc,
        priority=MIN_GUARANTEED_PRIORITY,
        leaf_cell_count=members[0].leaf_cell_count,
        group=GroupSpec(name, members),
        leaf_cell_type=chain.types[0],
        within_cell=within,
    )
    return PodRequest(name, name, "", spec)


class Rehearsal:
    """Pods that leave, come back and are asked for in one copy, which is used up by it.

    Kubernetes' rules are asked about each pod that comes, in the state at that moment. `kept_out` says why pods of the
    last thing wanted could not come to their nodes.
    """

    is_forced = False
    """Do pods come to their nodes whatever the rules say?"""

    def __init__(self, copy: Copy) -> None:
        self.scenario, self.state = copy.scenario, copy.state
        self.running: dict[str, Running] = dict(copy.running)
        self.facts = copy.facts
        self.kept_out = ""

    def leave(self, name: str) -> None:
        """All pods of a group are gone."""
        requests = self.running[name].requests
        self.facts.leave(request.uid for request in requests)
        self.scenario.leave(requests)

    def move(self, infos: Mapping[str, BindInfo | None]) -> None:
        """Groups leave, and then come to these places; None for one that does not come back. Raises as `come`."""
        for name in infos:
            self.leave(name)
        for name, info in infos.items():
            if info is not None:
                self.come(name, info)

    def come(self, name: str, info: BindInfo) -> None:
        """All pods of a group run at the places of `info`.

        Raises Failed if that costs a group its guarantee, or if Kubernetes would not let a pod come.
        """
        group = self.running[name]
        infos = []
        for request, slot in zip(group.requests, slots_of(group), strict=True):
            own = bind_info_for(info.members, slot, info.cell_chain)
            applied = self.scenario.apply(PodAllocated(request, own))
            if applied.lazily_preempted or applied.cancelled:
                raise Failed(f"{name} cannot be put at its new place without harm to others", name)
            infos.append(own)
        nodes_of_pods = [(request, own.node) for request, own in zip(group.requests, infos, strict=True)]
        node, why = self.facts.come(nodes_of_pods, is_forced=self.is_forced)
        if why:
            nodes = frozenset({self.state.topology.node_index[node]})
            raise Failed(f"node {node} would not take {name}: {why}", name, nodes)
        now = self.state.groups[name]
        is_guaranteed = now.spec.priority >= MIN_GUARANTEED_PRIORITY
        if NO_CELL in now.physical or (is_guaranteed and (now.virtual is None or NO_CELL in now.virtual)):
            raise Failed(f"{name} would not have the guarantee of its virtual cluster at its new place", name)
        self.running[name] = msgspec.structs.replace(group, infos=tuple(infos))

    def ask(self, request: PodRequest, offer: Offer | None = None) -> BindInfo | None:
        """Return where the group of a pod could be without evictions, None if nowhere."""
        decision = self.scenario.ask(Asked(request, offer=offer))
        return decision.bind_info if isinstance(decision, Bind) and not decision.lazily_preempted else None

    def want(self, want: Want) -> WantedOutcome:
        """Ask for something wanted, and leave it in place; who is preempted for it leaves."""
        places: list[PlannedPod] = []
        preempted: list[str] = []
        self.kept_out = ""
        for request in want.requests:
            decision = self._decide(request)
            if isinstance(decision, Preempt):
                uids = set(decision.victims)
                leaving = [name for name, one in self.running.items() if any(pod.uid in uids for pod in one.requests)]
                for name in leaving:
                    self.leave(name)
                preempted += leaving
                decision = self._decide(request)
            if not isinstance(decision, Bind):
                return WantedOutcome(shape=want.shape.text, is_met=False)
            self.kept_out = self.facts.seat(request, decision.bind_info)
            if self.kept_out:
                return WantedOutcome(shape=want.shape.text, is_met=False)
            self.scenario.apply(PodAllocated(request, decision.bind_info, decision.lazily_preempted))
            places += places_in(decision.bind_info)
        return WantedOutcome(shape=want.shape.text, is_met=True, places=places, preempts=preempted)

    def _decide(self, request: PodRequest) -> Decision:
        return self.scenario.ask(Asked(request, offer=self.facts.offer(request)))


def places_in(info: BindInfo) -> list[PlannedPod]:
    """The places of all pods of a group."""
    return [
        PlannedPod(one.node, one.leaf_cell_indices, one.preassigned_cell_types) for size in info.members for one in size
    ]


def slots_of(group: Running) -> list[int]:
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


class Sketch(Rehearsal):
    """The state after all moves, and with it the new place of each group.

    Groups come in another order than they will, so Kubernetes' rules count as far as no order matters to them.
    """

    is_forced = True

    def draw(
        self,
        view: View,
        puzzle: Puzzle,
        solution: Solution,
        wanted: Sequence[Sequence[PodRequest]],
        *,
        refused: Mapping[str, Sequence[frozenset[int]]],
        wanted_first: bool = False,
    ) -> dict[str, BindInfo]:
        """The new places of the guaranteed groups that move. Raises Failed if there are none.

        Groups whose nodes are known go first, then what is wanted, then groups that take cells without hardware yet:
        these must not take what is wanted. Wanted cells inside nodes may have to go before all of them. `refused` has
        the nodes that the pod of each slot of a group may not come to.
        """
        self._refused = refused
        self._view, self._before, self._homes = view, self._used_nodes(), view.behind.copy()
        homes: dict[str, tuple[int, ...]] = {}
        for number in solution.moved:
            for name in puzzle.movers[number].names:
                self.leave(name)
            homes.update(_bins_by_name(self, puzzle, solution, number))
        self._known = self.state.cells.bound[view.bins]
        first = {} if wanted_first else {name: bins for name, bins in homes.items() if NO_CELL not in self._of(bins)}
        found = {name: self._put(name, bins) for name, bins in first.items()}
        for requests in wanted:
            self._reserve(requests)
        return found | {name: self._put(name, bins) for name, bins in homes.items() if name not in first}

    def _of(self, bins: Sequence[int]) -> IntArray:
        """The hardware behind bins; other virtual cells may have it once something is placed."""
        found: IntArray = self._known[list(bins)]
        return found

    def _reserve(self, requests: Sequence[PodRequest]) -> None:
        """Have something wanted in place, rather on used nodes: unused ones are for groups that move there."""
        for request in requests:
            pods = count_pods(request.spec.group.members)
            used = np.broadcast_to(self._before, (pods, len(self._before))).copy()
            if (offer := self.facts.offer(request)) is not None:
                used &= offer.nodes
            info = self.ask(request, Offer(used, np.zeros_like(used))) if used.any() else None
            info = info or self.ask(request, offer)
            if info is not None:
                self.scenario.apply(PodAllocated(request, info))

    def _put(self, name: str, bins: Sequence[int]) -> BindInfo:
        """Put a group on the nodes of these bins."""
        request = self.running[name].requests[0]
        tried: list[BoolArray] = []
        refused = self._refused.get(name, ())
        for masks in zip(*(self._masks(bin_) for bin_ in bins), strict=True):
            nodes = np.stack(masks)
            for slot, each in enumerate(refused):
                nodes[slot, sorted(each)] = False
            if any((nodes == each).all() for each in tried):
                continue
            tried.append(nodes)
            info = self.ask(request, Offer(nodes, np.zeros_like(nodes)))
            if info is not None:
                self.come(name, info)
                return info
        raise Failed(f"the core does not put {name} where there should be room", name)

    def _masks(self, bin_: int) -> Iterator[BoolArray]:
        """The nodes for a pod: its very node if known, else nodes unused before, unused now, or any."""
        state = self.state
        cell = int(self._known[bin_])
        if cell != NO_CELL:
            known = self._only(int(state.arrays.node[cell]))
            for _ in range(4):
                yield known
            return
        elsewhere = self._unbound(bin_)
        home = int(self._homes[bin_])
        is_home = self._only(int(state.arrays.node[home])) & elsewhere if home != NO_CELL else elsewhere & ~self._before
        yield is_home
        yield elsewhere & ~self._before
        yield elsewhere & ~self._used_nodes()
        yield elsewhere

    def _only(self, node: int) -> BoolArray:
        mask = np.zeros(len(self.state.topology.node_names), np.bool_)
        mask[node] = True
        return mask

    def _unbound(self, bin_: int) -> BoolArray:
        """The nodes that could become those of a bin that has no hardware."""
        view, arrays, bound = self._view, self.state.arrays, self.state.cells.bound
        cell = int(view.bins[bin_])
        if arrays.level[cell] < view.chain.node_level:
            return np.ones(len(self.state.topology.node_names), np.bool_)
        is_taken = np.zeros(len(self.state.topology.node_names), np.bool_)
        is_taken[arrays.node[self._known[self._known != NO_CELL]]] = True
        above = int(arrays.parent[cell])
        while above != NO_CELL and bound[above] == NO_CELL:
            above = int(arrays.parent[above])
        if above == NO_CELL:
            return ~is_taken
        physical = int(bound[above])
        first = int(arrays.first_leaf[physical])
        mask = np.zeros_like(is_taken)
        mask[arrays.node[first : first + int(arrays.leaf_count[arrays.chain_level[physical]])]] = True
        return mask & ~is_taken

    def _used_nodes(self) -> BoolArray:
        """Per node: is a leaf of it in use?"""
        arrays, using = self.state.arrays, self.state.cells.using
        mask = np.zeros(len(self.state.topology.node_names), np.bool_)
        mask[arrays.node[arrays.node_leaf[using[arrays.node_leaf] != NO_GROUP]]] = True
        return mask


def _bins_by_name(
    sketch: Rehearsal, puzzle: Puzzle, solution: Solution, number: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The bins of the pods of each group of a mover; none of a guest."""
    left = list(solution.bins.get(number, ()))
    for name in puzzle.movers[number].names if left else ():
        count = count_pods(sketch.running[name].requests[0].spec.group.members)
        yield name, tuple(left[:count])
        left = left[count:]


def refusals(cluster: ClusterSpec, inputs: Inputs, plan: DefragPlan, movable: Collection[str]) -> list[str]:
    """Return why a plan does not hold any more, move by move; empty if it does. Cost: a copy of the core."""
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
            rehearsal.move({one.group: _new_place(copy, one) for one in plan.moves if one.step == step})
        except UserError as error:
            return [error.message]
    met = [(number, one.shape) for number, one in enumerate(plan.wanted) if one.is_met]
    return [reason for number, text in met if (reason := _unmet(copy, rehearsal, plan.vc, number, text))]


def placement_of(places: Collection[PlannedPod], chain: str) -> BindInfo:
    """The bind info of the places of a group; smaller pods first. Raises UserError if there are none."""
    sizes: dict[int, list[PodPlacement]] = {}
    for place in places:
        sizes.setdefault(len(place.cells), []).append(PodPlacement(place.node, place.cells, place.types))
    members = tuple(tuple(sizes[size]) for size in sorted(sizes))
    if not members:
        raise UserError("the plan names no new place for a guaranteed group")
    return BindInfo(members[0][0].node, members[0][0].leaf_cell_indices, chain, members)


def _new_place(copy: Copy, move: Move) -> BindInfo | None:
    """None for an opportunistic group, which finds one by itself. Raises UserError."""
    return placement_of(move.becomes, copy.running[move.group].entry.chain) if move.is_guaranteed else None


def _unmet(copy: Copy, rehearsal: Rehearsal, vc: str, number: int, text: str) -> str:
    """Return why something wanted has no room after the moves, "" if it has."""
    try:
        shape = Shape(text, job=text) if copy.requests_of(text) else read_wants((text,))[0]
    except UserError:
        return f"job {text} does not wait any more"
    want = want_of(copy, vc, number, shape)
    if rehearsal.want(want).is_met:
        return ""
    why = rehearsal.kept_out or rehearsal.facts.obstacle(want.requests, ())
    return f"there would be no room for {text} after the moves" + (f" ({why})" if why else "")
