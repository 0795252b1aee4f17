"""Random small states in which a job waits; and changes carried out there for real, step by step as a service would.

`python -m tests.extender.insight.carried_out --states 10000` looks at so many.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, BoolArray
from hived.life.groups import bind_info_of_slot
from hived.scenario import Asked, Scenario
from hived.scheduler import check_invariants, handle
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import LeavesLost, NodeHealthChanged, Offer, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import (
    ClusterSpec,
    GroupSpec,
    MemberSpec,
    PodRequest,
    Rules,
    VirtualCellSpec,
    VirtualClusterSpec,
    WorkTimes,
)
from hived_config.access import AccessRules
from hived_extender.api.waiting import Unblock
from hived_extender.insight.snapshot import RunningFacts, Snapshot, WaitingEntry, jobs_of
from hived_extender.insight.unblocks import unblocks_of
from hived_extender.machine.core import Placed, StateInputs
from hived_extender.machine.offers import Asking
from hived_extender.reconfiguration.successor import Successor
from tests.driver import history_parser, seeds
from tests.property.false_waits import KINDS, World, change, make_room, new_world, random_group, small_spec


def snapshot_of(state: State, *waiting: WaitingEntry, access: AccessRules | None = None) -> Snapshot:
    """A snapshot of a state that no service has."""
    names = state.topology.node_names
    bad = {names[node]: ("NotReady", None) for node in np.flatnonzero(state.cells.node_bad)}
    running = {name: RunningFacts(job=name, namespace="ns", pods=(name,)) for name in state.groups}
    return Snapshot(state, (0, 0), 0.0, waiting, running, bad, {}, access or AccessRules(), {}, jobs_of(state, running))


def entry_of(request: PodRequest, fit: BoolArray, offer: Offer | None = None) -> WaitingEntry:
    """A job of one part; `fit` as in `WaitingEntry`."""
    spec = request.spec
    return WaitingEntry(
        name=spec.group.name, namespace="ns", vc=spec.virtual_cluster, priority=spec.priority, pods=(request.name,),
        parts=(Asking(Asked(request, offer=offer), fit),),
    )  # fmt: skip


def random_entry(source: Random, world: World) -> WaitingEntry:
    """A job that is new to the world. Half of them may use some nodes, and others of these once pods leave them."""
    request = random_group(source, world, has_wishes=True)
    count = len(world.state.topology.node_names)
    if source.random() < 0.5:
        return entry_of(request, np.ones((1, count), np.bool_))
    slots = sum(one.pod_count for one in request.spec.group.members)
    fit = np.array([[source.random() < 0.8 for _ in range(count)]])
    leaves, used = world.state.arrays.node_leaf, np.zeros(count, np.bool_)
    used[world.state.arrays.node[leaves[world.state.cells.using[leaves] != NO_GROUP]]] = True
    now = fit & (np.array([source.random() < 0.7 for _ in range(count)]) | ~used)
    after = fit & ~now if request.spec.priority >= 0 else np.zeros_like(fit)
    offer = Offer(np.repeat(now, slots, axis=0), np.repeat(after, slots, axis=0))
    request = replace(request, spec=replace(request.spec, ignore_suggested_nodes=False))
    return entry_of(request, fit, offer)


class Carried:
    """A change on a copy of the state, as people, nodes and the service would make it."""

    def __init__(self, snapshot: Snapshot, entry: WaitingEntry) -> None:
        self.state, self.at = copy_state(snapshot.state), snapshot.at
        self.bad_before = snapshot.bad.__contains__
        (part,) = entry.parts
        self.request, self.offer, self.fit = part.request, part.offer, part.fit

    def carry_out(self, words: str) -> None:
        """Make the change of these words true; jobs that move are asked for again by `come_back`."""
        name, _, value = words.partition("=")
        spec = self.request.spec
        if name == "opportunistic":
            spec = replace(spec, priority=-1, pinned_cell_id="")
            if self.offer is not None:
                self.offer = replace(self.offer, after=np.zeros_like(self.offer.after))
        elif name == "priority":
            if spec.priority < 0 and self.offer is not None:  # from now on others may have to leave for it
                self.offer = replace(self.offer, after=self.fit & ~self.offer.nodes)
            spec = replace(spec, priority=int(value))
        elif name == "vc":
            spec = replace(spec, virtual_cluster=value, pinned_cell_id="")
        elif name == "leafType":
            spec = replace(spec, leaf_cell_type=value, pinned_cell_id="")
        elif name == "pods":
            pods, size = map(int, value.split("x"))
            spec = replace(spec, leaf_cell_count=size, group=GroupSpec(spec.group.name, (MemberSpec(pods, size),)))
            if self.offer is not None:
                rows = self.offer.nodes[:1].repeat(pods, axis=0), self.offer.after[:1].repeat(pods, axis=0)
                self.offer = Offer(*rows)
        elif name == "ends":
            self.end(value.split(","))
        elif name == "heal":
            for node in value.split(","):
                handle(self.state, NodeHealthChanged(node, True))
                handle(self.state, LeavesLost(node, "GPU", 0))
                self._open([self.state.topology.node_index[node]], is_new=self.bad_before(node))
        elif name == "cells":
            self.state = promised(self.state, resized(self.state.spec.virtual_clusters, value))
        elif name == "combine":
            clusters = self.state.spec.virtual_clusters
            self.state = promised(self.state, {**clusters, value: replace(clusters[value], combines=True)})
        self.request = replace(self.request, spec=spec)

    def end(self, names: Sequence[str]) -> None:
        """All pods of these groups end, and their nodes are offered to those pods that fit."""
        for name in names:
            group = self.state.groups[name]
            leaves = group.physical[group.physical != NO_CELL]
            self._open(sorted(set(self.state.arrays.node[leaves].tolist())))
            for pod in {one.uid: one for one in group.holders if one is not None}.values():
                handle(self.state, PodDeleted(pod))

    def _open(self, nodes: Sequence[int], *, is_new: bool = False) -> None:
        """Nodes are offered where the pods fit; new nodes fit all pods, as these demand nothing of nodes."""
        if self.offer is not None:
            now = self.offer.nodes.copy()
            now[:, nodes] |= True if is_new else self.fit[:, nodes]
            self.offer = Offer(now, self.offer.after & ~now)

    def start(self) -> list[str]:
        """Have the job start; returns the groups that were preempted for it. Fails if it waits."""
        left: list[str] = []
        decision = self._ask(Phase.FILTERING)
        for _ in range(4):
            if not isinstance(decision, Preempt):
                break
            reserved = self._ask(Phase.PREEMPTING)
            assert isinstance(reserved, Preempt)
            uids = {uid for own in reserved.victims_by_node.values() for uid in own}
            victims = [name for name, group in self.state.groups.items() if uids & set(group.slots_of)]
            self.end(victims)
            left += [*reserved.lazily_preempted, *victims]
            decision = self._ask(Phase.FILTERING)
        assert isinstance(decision, Bind), decision
        handle(self.state, PodAllocated(self.request, decision.bind_info, decision.lazily_preempted))
        check_invariants(self.state)
        return [*left, *decision.lazily_preempted]

    def come_back(self, pods: Sequence[PodRequest]) -> None:
        """Groups that have left start anew, and nobody has to leave for them."""
        for pod in pods:
            decision = handle(self.state, ScheduleRequested(pod))
            assert isinstance(decision, Bind), decision
            handle(self.state, PodAllocated(pod, decision.bind_info, decision.lazily_preempted))

    def _ask(self, phase: Phase) -> object:
        return handle(self.state, ScheduleRequested(self.request, phase, offer=self.offer, now_s=self.at))


def resized(before: Mapping[str, VirtualClusterSpec], value: str) -> Mapping[str, VirtualClusterSpec]:
    """Virtual clusters that are promised more cells, or fewer."""
    clusters = dict(before)
    for one in value.split(","):
        vc, _, cells = one.rpartition(":")
        count, path = cells.split("x", 1)
        counts = {cell.cell_type: cell.cell_count for cell in clusters[vc].virtual_cells}
        counts[path] = counts.get(path, 0) + int(count)
        own = tuple(VirtualCellSpec(name, number) for name, number in counts.items())
        clusters[vc] = replace(clusters[vc], virtual_cells=own)
    return clusters


def promised(state: State, clusters: Mapping[str, VirtualClusterSpec]) -> State:
    """The state that a push of another configuration leads to, in which all that runs is where it was."""
    names = state.topology.node_names
    healthy = frozenset(names[node] for node in np.flatnonzero(state.cells.node_bad == 0))
    placed = {
        pod.uid: Placed(pod, bind_info_of_slot(state, group, slot), group.times.get(pod.uid, WorkTimes()))
        for group in state.groups.values()
        for slot, pod in enumerate(group.holders)
        if pod is not None
    }
    successor = Successor(replace(state.spec, virtual_clusters=clusters))
    successor.catch_up(StateInputs(healthy, placed))
    assert not successor.unaccounted
    found = successor.core.state
    leaves = state.arrays.node_leaf
    for node in dict.fromkeys(state.arrays.node[leaves[state.cells.lost[leaves] > 0]].tolist()):
        own_leaves = leaves[(state.arrays.node[leaves] == node) & (state.cells.lost[leaves] > 0)]
        devices = tuple(state.arrays.device[own_leaves].tolist())
        handle(found, LeavesLost(state.topology.node_names[node], "GPU", len(devices), devices))
    for group in state.groups.values():
        assert (found.groups[group.name].virtual is None) == (group.virtual is None)
    return found


def check(snapshot: Snapshot, entry: WaitingEntry, unblock: Unblock) -> None:
    """Carry a change out: the job starts, and nobody else leaves than was said."""
    carried = Carried(snapshot, entry)
    name, _, value = unblock.change.partition("=")
    if name == "move":
        names = value.split(",")
        moving = [one for each in names for one in snapshot.state.groups[each].holders[:1] if one is not None]
        carried.end(names)
        assert carried.start() == []
        carried.come_back(moving)
    else:
        carried.carry_out(unblock.change)
        left = carried.start()
        assert sorted(set(left)) == sorted(unblock.victims), left


def run(seed: int, steps: int, counts: Counter[str]) -> None:
    """One random cluster in `steps` states; counts jobs that wait, and changes that were carried out by their kind."""
    source = Random(seed)
    spec: ClusterSpec = small_spec(
        source, KINDS[seed % len(KINDS)], combines=seed % 8 >= 4, rules=Rules.BETTER if seed % 3 else Rules.HIVED
    )
    world = new_world(spec)
    for step in range(steps):
        change(source, world, 0.08 if seed % 5 == 0 else 0.02)
        entry = random_entry(source, world)
        counts["states"] += 1
        (part,) = entry.parts
        request, offer = part.request, part.offer
        try:
            (decisions,) = Scenario(world.state).plan([[Asked(request, offer=offer)]])
        except UserError:
            continue
        if isinstance(decisions, UserError):
            continue
        (decision,) = decisions
        if isinstance(decision, Bind) and source.random() < 0.8:
            world.bind(request, decision)
        elif isinstance(decision, Preempt) and source.random() < 0.5:
            make_room(world, decision)
        elif isinstance(decision, Wait):
            counts["waits"] += 1
            snapshot = snapshot_of(world.state, entry)
            before = world.state.cells.memory.tobytes()
            found = unblocks_of(snapshot, entry)
            assert world.state.cells.memory.tobytes() == before
            counts["helped"] += bool(found)
            for one in found:
                counts[one.change.partition("=")[0]] += 1
                try:
                    check(snapshot, entry, one)
                except (AssertionError, UserError) as error:
                    raise AssertionError(f"seed {seed} step {step}, {entry.name} {request.spec}: {one}") from error


def main() -> None:
    counts: Counter[str] = Counter()
    options = history_parser("tests.extender.insight.carried_out", __doc__, "states", 10_000).parse_args()
    for seed in seeds(options, lambda: counts["states"], lambda: f"{counts['waits']} waits"):
        run(seed, 25, counts)
    print(dict(sorted(counts.items())))


if __name__ == "__main__":
    main()
