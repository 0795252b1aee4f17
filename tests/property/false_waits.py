"""Random small clusters in use, and groups that wait there although a placement exists, judged from plain facts.

Two to six nodes of two pairs of two GPUs. A wait is false if some placement within VC safety exists on leaves that are
free, lent, or used by groups of the own VC with lower priority. The judge tries every placement and knows nothing of
the core's state (`tests.quality`). `python -m tests.property.false_waits --states 100000` looks at so many states.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from hived.cells.state import State
from hived.life.status import physical_cluster
from hived.scheduler import check_invariants, handle, new_state
from hived.values.decisions import Applied, Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import LeavesLost, NodeHealthChanged, Offer, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import (
    BindInfo,
    ClusterSpec,
    MemberSpec,
    PodRequest,
    Rules,
)
from tests.core.builders import pod, quota, tree_cluster
from tests.driver import history_parser, seeds
from tests.quality.exhaustive import Wanted, exists, may_evict
from tests.quality.plain import Facts, Plain, is_safe

KINDS = ("NODE", "RACK", "MIX", "PAIR")
STEPS = 30
_LEAVES = {"ROW": 16, "RACK": 8, "NODE": 4, "PAIR": 2}
_PATHS = {"RACK": "RACK", "NODE": "RACK.NODE", "PAIR": "RACK.NODE.PAIR"}


def small_spec(source: Random, kind: str, *, combines: bool, rules: Rules = Rules.BETTER) -> ClusterSpec:
    """One to three racks of two nodes, and two or three VCs with cells of a kind, as many as fit."""
    racks = source.choice([1, 2, 2, 3])
    pinned = source.random() < 0.15
    choices = {"NODE": ["NODE"], "RACK": ["RACK", "NODE"], "MIX": ["RACK", "NODE", "PAIR", "PAIR"], "PAIR": ["PAIR"]}
    names = ["A", "B"] if source.random() < 0.7 else ["A", "B", "C"]
    promised: dict[str, dict[str, int]] = {name: {} for name in names}
    # larger cells first, so that everything fits
    left, drawn = racks * 8 - 8 * pinned, [source.choice(choices[kind]) for _ in range(racks * 4)]
    for each in sorted(drawn, key=lambda each: -_LEAVES[each]):
        if _LEAVES[each] <= left and source.random() < 0.85:
            own = promised[source.choice(names)]
            own[_PATHS[each]] = own.get(_PATHS[each], 0) + 1
            left -= _LEAVES[each]
    vcs = (
        replace(quota(name, own, ("pin",) if pinned and name == "A" else ()), combines=combines)
        for name, own in promised.items()
    )
    pins = {"n0": "pin"} if pinned else None
    return tree_cluster({"RACK": 2, "NODE": 2, "PAIR": 2}, *vcs, tops=racks, pins=pins, rules=rules)


@dataclass
class World:
    """A core and the plain facts about it, kept alike."""

    state: State
    facts: Facts
    pods: dict[str, PodRequest] = field(default_factory=dict)
    bound: dict[str, BindInfo] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()
    losses: dict[str, LeavesLost] = field(default_factory=dict)
    number: int = 0

    def may_take(self, wanted: Wanted) -> Callable[[int], bool]:
        """The leaves that a group may take: not lost, and nobody of equal or higher priority is on them."""
        is_weaker = may_evict(self.facts, wanted)
        return lambda leaf: leaf not in self.lost and is_weaker(leaf)

    def ask(self, wanted: PodRequest, nodes: frozenset[str] | None, *, by_offer: bool = False) -> object:
        """The core's decision; nothing changes."""
        mask = None
        if nodes is not None:
            mask = np.isin(self.state.topology.node_names, sorted(nodes))
        if not by_offer:
            return handle(self.state, ScheduleRequested(wanted, Phase.FILTERING, mask))
        slots, count = sum(m.pod_count for m in wanted.spec.group.members), len(self.state.topology.node_names)
        row = np.ones(count, np.bool_) if mask is None else mask
        offer = Offer(np.repeat(row[None], slots, axis=0), np.zeros((slots, count), np.bool_))
        return handle(self.state, ScheduleRequested(wanted, Phase.FILTERING, offer=offer))

    def bind(self, wanted: PodRequest, decision: Bind) -> None:
        """Carry a decision out."""
        applied = handle(self.state, PodAllocated(wanted, decision.bind_info, decision.lazily_preempted))
        assert isinstance(applied, Applied)
        assert applied.lazily_preempted == decision.lazily_preempted, (applied, decision)
        for name in applied.lazily_preempted:
            self.facts.leave_vc(name)
        name, spec, info = wanted.spec.group.name, wanted.spec, decision.bind_info
        running = self.facts.running(name, spec.virtual_cluster, spec.priority, info.members, info.cell_chain)
        self.facts.add(running)
        self.pods[name], self.bound[name] = wanted, decision.bind_info
        assert (self.state.groups[name].virtual is None) == (spec.priority < 0)
        assert is_safe(self.facts, self.facts.owners())
        self.check()

    def lose(self, node: str, count: int) -> None:
        """So many leaves of a node are lost; the inspected status says which."""
        self.losses[node] = LeavesLost(node, "GPU", count)
        handle(self.state, self.losses[node])
        self.check()

    def check(self) -> None:
        """Does the core's state keep its rules, and does it know the same groups?"""
        check_invariants(self.state)
        self.lost = frozenset(lost_leaves(self)) if self.losses else frozenset()
        assert self.state.groups.keys() == self.facts.groups.keys()

    def restarted(self) -> State:
        """The state that a restart makes of the nodes and of what bound pods say."""
        state = new_state(self.state.spec)
        for node in state.topology.node_names:
            handle(state, NodeHealthChanged(node, node not in self.facts.bad))
        for loss in self.losses.values():
            handle(state, loss)
        for name, pod_of in self.pods.items():
            lost = self.facts.groups[name].priority < 0 <= pod_of.spec.priority
            handle(state, PodAllocated(pod_of, _without_types(self.bound[name]) if lost else self.bound[name]))
        check_invariants(state)
        return state

    def end(self, name: str) -> None:
        """A group ends."""
        handle(self.state, PodDeleted(self.pods.pop(name)))
        self.facts.remove(name)
        self.check()

    def set_health(self, node: str, *, is_healthy: bool) -> None:
        """A node breaks or heals."""
        handle(self.state, NodeHealthChanged(node, is_healthy))
        if is_healthy:
            self.facts.bad.discard(node)
        else:
            self.facts.bad.add(node)
        self.check()


def lost_leaves(world: World) -> Iterator[int]:
    """The leaves that are shown as bad on nodes that are not."""
    plain = world.facts.plain
    shown = [(top, top["cellType"], "") for top in physical_cluster(world.state)]
    for cell, chain, node in shown:
        name = cell["cellAddress"].rsplit("/", 1)[-1]
        inside = name if cell.get("isNodeLevel") else node
        shown += [(child, chain, inside) for child in cell.get("cellChildren", ())]
        if "cellChildren" not in cell and cell["cellHealthiness"] == "Bad" and node not in world.facts.bad:
            yield plain.leaf_at[chain, node, int(name)]


def _without_types(info: BindInfo) -> BindInfo:
    """As a lazily preempted group's bind info is written anew."""
    members = tuple(
        tuple(replace(place, preassigned_cell_types=("",) * len(place.leaf_cell_indices)) for place in member)
        for member in info.members
    )
    return replace(info, members=members)


def new_world(spec: ClusterSpec) -> World:
    """All nodes healthy, nothing running."""
    state = new_state(spec)
    for node in state.topology.node_names:
        handle(state, NodeHealthChanged(node, True))
    return World(state, Facts(Plain(spec)))


def random_group(source: Random, world: World, *, has_wishes: bool) -> PodRequest:
    """A group that is new to the world."""
    members = source.choice(
        [
            ((1, 1),), ((1, 2),), ((1, 3),), ((1, 4),), ((2, 1),), ((2, 2),), ((2, 3),), ((2, 4),), ((3, 1),),
            ((3, 2),), ((1, 1), (1, 2)), ((1, 2), (1, 3)), ((1, 1), (1, 3)), ((2, 1), (1, 2)), ((1, 2), (1, 4)),
            ((2, 1), (1, 4)), ((1, 1), (1, 2), (1, 3)),
        ]
    )  # fmt: skip
    world.number += 1
    spec: dict[str, object] = {}
    vc, priority = source.choice(world.state.topology.vc_names), source.choice([-1, -1, 0, 0, 0, 1])
    if has_wishes and source.random() < 0.25:
        spec["within_cell"] = source.choice(["PAIR", "NODE", "RACK"])
    if has_wishes and priority >= 0 and vc == "A" and world.facts.plain.pins["A"] and source.random() < 0.3:
        spec["pinned_cell_id"] = "pin"
    if source.random() < 0.1:
        spec["lazy_preemption"] = True
    return pod(
        f"g{world.number}", vc=vc, priority=priority, members=members,
        ignore_suggested_nodes=source.random() < 0.5, **spec,
    )  # fmt: skip


def wanted_by(world: World, group: PodRequest, nodes: frozenset[str] | None) -> Wanted:
    """The same request for the judge."""
    spec = group.spec
    return Wanted(
        spec.group.name, spec.virtual_cluster, spec.priority, sizes_of(spec.group.members),
        None if spec.ignore_suggested_nodes else nodes, spec.within_cell, spec.pinned_cell_id,
        world.state.spec.virtual_clusters[spec.virtual_cluster].combines,
    )  # fmt: skip


def sizes_of(members: tuple[MemberSpec, ...]) -> tuple[int, ...]:
    """Leaves of each pod."""
    return tuple(member.leaf_cell_count for member in members for _ in range(member.pod_count))


@dataclass(frozen=True)
class Finding:
    """A group that waits although it has a place."""

    seed: int
    step: int
    group: PodRequest
    nodes: frozenset[str] | None
    reason: str


@dataclass
class Counts:
    """What a run met."""

    states: int = 0
    waits: int = 0
    binds: int = 0
    preempts: int = 0
    findings: list[Finding] = field(default_factory=list)


def run_world(seed: int, steps: int, rules: Rules = Rules.BETTER, *, by_offer: bool = False) -> Counts:
    """One random cluster and `steps` requests, each in another state."""
    source, counts = Random(seed), Counts()
    kind = KINDS[seed % len(KINDS)]
    spec = small_spec(source, kind, combines=seed % 8 >= 4, rules=rules)
    world = new_world(spec)
    for step in range(steps):
        counts.states += 1
        change(source, world, 0.08 if seed % 5 == 0 else 0.0)
        group = random_group(source, world, has_wishes=seed % 3 != 0)
        names = world.state.topology.node_names
        nodes = frozenset(n for n in names if source.random() < 0.7) if source.random() < 0.5 else None
        try:
            decision = world.ask(group, nodes, by_offer=by_offer and not group.spec.ignore_suggested_nodes)
        except UserError:
            continue
        if isinstance(decision, Bind):
            counts.binds += 1
            if source.random() < 0.8:
                world.bind(group, decision)
                if rules is Rules.BETTER:  # a restart may cost a group of the reference its place in the VC
                    check_place(world, wanted_by(world, group, nodes))
        elif isinstance(decision, Preempt):
            counts.preempts += 1
            if source.random() < 0.5:
                make_room(world, decision)
                again = world.ask(group, nodes)
                if isinstance(again, Bind):
                    world.bind(group, again)
        elif isinstance(decision, Wait):
            counts.waits += 1
            wanted = wanted_by(world, group, nodes)
            if exists(world.facts, wanted, world.may_take(wanted)):
                counts.findings.append(Finding(seed, step, group, nodes, decision.reason))
    return counts


def check_place(world: World, wanted: Wanted) -> None:
    """Is a group that was just bound where it may be, and would it be there again after a restart?"""
    plain, group = world.facts.plain, world.facts.groups[wanted.name]
    assert sorted(map(len, group.pods)) == sorted(wanted.sizes)
    nodes = [{plain.node[leaf] for leaf in own} for own in group.pods]
    assert all(len(own) == 1 for own in nodes)
    assert not set.union(*nodes) & world.facts.bad
    assert not world.lost & {leaf for own in group.pods for leaf in own}
    assert wanted.nodes is None or set.union(*nodes) <= wanted.nodes
    leaves = [leaf for own in group.pods for leaf in own]
    if wanted.within:
        assert len({plain.above(leaf, plain.level_of(wanted.within)) for leaf in leaves}) == 1
    for own in group.pods:
        roots = {root for root in group.roots for leaf in own if leaf in plain.leaves[root]}
        assert len(roots) == (wanted.priority >= 0) or (wanted.combines and len(roots) > 1)
    again = world.restarted()
    for name, known in world.state.groups.items():
        assert again.groups[name].physical.tolist() == known.physical.tolist()
        assert (again.groups[name].virtual is None) == (known.virtual is None)


def change(source: Random, world: World, chance_of_loss: float) -> None:
    """Groups end, nodes break or heal, and leaves are lost or found, now and then."""
    running = sorted(world.facts.groups)
    for name in running:
        if source.random() < 0.12 * (len(running) > 2):
            world.end(name)
    if source.random() < 0.12:
        node = source.choice(world.state.topology.node_names)
        world.set_health(node, is_healthy=node in world.facts.bad)
    if source.random() < chance_of_loss:
        world.lose(source.choice(world.state.topology.node_names), source.choice([0, 0, 1, 2, 3]))


def make_room(world: World, decision: Preempt) -> None:
    uids = {uid for own in decision.victims_by_node.values() for uid in own}
    for name in sorted(world.facts.groups):
        if world.pods[name].uid in uids:
            world.end(name)


def main() -> None:
    total = Counts()
    options = history_parser("tests.property.false_waits", __doc__, "states", 100_000).parse_args()
    for seed in seeds(options, lambda: total.states, lambda: f"{total.waits} waits, none false"):
        found = run_world(seed, STEPS, by_offer=seed % 7 == 0)
        total.states += found.states
        total.waits += found.waits
        if found.findings:
            sys.exit(f"a false wait: {found.findings[0]}")


if __name__ == "__main__":
    main()
