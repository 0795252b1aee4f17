"""Random small clusters in use, and explanations of groups that wait there, judged by carrying out what they say.

A cause is right if the group has a place once it is taken away: on a copy of the state others end, nodes heal, or the
offer is dropped, by events and requests alone. A set of causes is the least if no set of fewer helps, and none of its
own parts. Where cells are counted instead of asking the core (rule 20.7), no cause may be added. "Never" is right only
if the group has no place in a new cluster whose nodes are all healthy, and always then. `make why`
looks at 20,000 states.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from random import Random
from unittest.mock import patch

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import State
from hived.scheduler import handle, idle_state, new_state
from hived.values.decisions import Bind, Cause, Explanation, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import (
    LeavesLost,
    Limit,
    NodeHealthChanged,
    Offer,
    Phase,
    PodAllocated,
    PodDeleted,
    ScheduleRequested,
)
from hived.values.specs import GroupSpec, MemberSpec, PodRequest, Rules
from hived.why import explaining
from hived.why.explaining import explain_wait
from hived.why.relaxing import Emptied, every_node
from tests.core.builders import busy_state, fingerprint, pod, random_cluster, set_nodes
from tests.driver import history_parser, seeds
from tests.property.false_waits import KINDS, change, make_room, new_world, random_group, small_spec

STEPS = 25
EVERY = frozenset({Cause.IN_USE, Cause.BAD, Cause.KUBERNETES})


@dataclass
class Counts:
    """How many states a run met, and how many waits of each set of causes."""

    states: int = 0
    waits: dict[frozenset[Cause], int] = field(default_factory=dict)


def run_world(seed: int, rules: Rules, steps: int = STEPS) -> Counts:
    """One random cluster and `steps` requests, each in another state; AssertionError for a wrong explanation."""
    source, counts, emptied = Random(seed), Counts(), Emptied()
    world = new_world(small_spec(source, KINDS[seed % len(KINDS)], combines=seed % 8 >= 4, rules=rules))
    for step in range(steps):
        counts.states += 1
        change(source, world, 0.08 if seed % 5 == 0 else 0.0)
        group = random_group(source, world, has_wishes=seed % 3 != 0)
        offer = random_offer(source, world.state, group) if source.random() < 0.5 else None
        try:
            decision = handle(world.state, ScheduleRequested(group, Phase.FILTERING, offer=offer))
        except UserError:
            continue
        if isinstance(decision, Bind):
            if source.random() < 0.8:
                world.bind(group, decision)
        elif isinstance(decision, Preempt):
            if source.random() < 0.5:
                make_room(world, decision)
        elif isinstance(decision, Wait):
            found = judge(world.state, group, offer, emptied, f"seed {seed}, step {step}")
            counts.waits[found] = counts.waits.get(found, 0) + 1
    return counts


def run_busy(seed: int, rules: Rules) -> Counts:
    """Requests on a cluster of several chains, with preempting groups, in the middle of its life."""
    source, counts, emptied = Random(seed), Counts(), Emptied()
    state = busy_state(replace(random_cluster(seed), rules=rules), source, pods=source.choice([4, 12, 30]))
    if source.random() < 0.3:
        for node in state.topology.node_names:
            for leaf_type in state.topology.leaf_type_chains:
                handle(state, LeavesLost(node, leaf_type, source.choice([0, 0, 1, 2])))
    for number in range(STEPS):
        counts.states += 1
        group = busy_request(source, state, f"asked{number}")
        offer = random_offer(source, state, group) if source.random() < 0.5 else None
        try:
            decision = handle(state, ScheduleRequested(group, source.choice(list(Phase)), offer=offer))
        except UserError:
            continue
        if isinstance(decision, Wait) and group.spec.group.name not in state.groups:
            found = judge(state, group, offer, emptied, f"busy seed {seed}, request {number}, {rules}")
            counts.waits[found] = counts.waits.get(found, 0) + 1
        if isinstance(decision, Bind):
            handle(state, PodAllocated(group, decision.bind_info, decision.lazily_preempted))
        elif source.random() < 0.3:
            set_nodes(state, source.choice(state.topology.node_names), is_healthy=source.random() < 0.6)
    return counts


def busy_request(source: Random, state: State, name: str) -> PodRequest:
    """A group of any kind: of one or two sizes, for a type, a pinned cell or a cell to be below."""
    topology, vc = state.topology, source.choice(state.topology.vc_names)
    spec: dict[str, object] = {"lazy_preemption": source.random() < 0.3, "elastic": source.random() < 0.2}
    pins = [pin for number, pin in topology.pinned_roots if topology.vc_names[number] == vc]
    if pins and source.random() < 0.3:
        spec["pinned_cell_id"] = source.choice(pins)
    elif source.random() < 0.3:
        spec["leaf_cell_type"] = source.choice(sorted(topology.leaf_type_chains))
    if source.random() < 0.2:
        spec["within_cell"] = source.choice(topology.chains[0].types)
    sizes = sorted(source.sample([1, 2, 3, 4, 8], source.choice([1, 1, 1, 2])))
    members = tuple((source.choice([1, 1, 2, 3]), size) for size in sizes)
    return pod(name, vc=vc, priority=source.choice([-1, 0, 0, 1, 5]), members=members, **spec)


def random_offer(source: Random, state: State, group: PodRequest) -> Offer:
    """Nodes for each pod, the same or others; sometimes some that will do once pods leave, or a rule between pods."""
    slots = sum(member.pod_count for member in group.spec.group.members)
    count = len(state.topology.node_names)
    part = source.choice([0.3, 0.6, 0.9])

    def mask(part: float) -> np.ndarray:
        return np.array([source.random() < part for _ in range(count)], np.bool_)

    nodes = np.stack([mask(part)] * slots) if source.random() < 0.7 else np.stack([mask(part) for _ in range(slots)])
    after = np.stack([mask(0.3)] * slots) & ~nodes if source.random() < 0.3 else np.zeros_like(nodes)
    rules = ()
    if source.random() < 0.2:
        domain, room = np.arange(count, dtype=np.int32), np.array([source.choice([0, 1, 1, 2]) for _ in range(count)])
        rules = (Limit(domain, np.ones(slots, np.int64), room.astype(np.int64)),)
    return Offer(nodes, after, rules)


def judge(state: State, group: PodRequest, offer: Offer | None, emptied: Emptied, where: str) -> frozenset[Cause]:
    """Check one explanation; returns its causes, with others in one form."""
    before = fingerprint(state), _order(state)
    explanation = explain_wait(state, group, offer, emptied)
    assert (fingerprint(state), _order(state)) == before, f"{where}: explaining changed the state"
    assert explanation == explain_wait(state, group, offer, Emptied()), f"{where}: it hangs on earlier questions"
    check_counts(state, group, offer, explanation, where)
    check_counted(state, group, offer, explanation, where)
    causes = frozenset(Cause.IN_USE if cause is Cause.IN_PIECES else cause for cause in explanation.causes)
    assert len(causes) == len(explanation.causes), where
    ever = has_place(healthy(state), group, None if offer is None else every_node(state, group))
    is_never = not ever and not any(helps(state, group, offer, some) for some in subsets())
    assert (causes == {Cause.NEVER}) == is_never, f"{where}: {causes} of {group.spec}"
    if causes == {Cause.NEVER}:
        return causes
    assert helps(state, group, offer, causes), f"{where}: without {causes} {group.spec} still waits"
    for some in subsets():
        if len(some) < len(causes):
            assert not helps(state, group, offer, some), f"{where}: {some} is enough, not {causes}"
    return causes


def subsets() -> Iterator[frozenset[Cause]]:
    every = sorted(EVERY, key=lambda cause: cause.value)
    return map(frozenset, chain.from_iterable(combinations(every, count) for count in range(4)))


def helps(state: State, group: PodRequest, offer: Offer | None, causes: frozenset[Cause]) -> bool:
    """Has the group a place once these are taken away?"""
    copy = copy_state(state)
    if Cause.IN_USE in causes:
        for other in list(copy.groups.values()):
            for pod in (*other.holders, *other.preempting_pods.values()):
                if pod is not None:
                    handle(copy, PodDeleted(pod))
        assert not copy.groups
        if offer is not None:  # pods have left the nodes that they had to leave
            offer = replace(offer, nodes=offer.nodes | offer.after, after=np.zeros_like(offer.after))
    if Cause.BAD in causes:
        was_bad = state.cells.node_bad == 1
        for node in state.topology.node_names:
            for leaf_type in state.topology.leaf_type_chains:
                handle(copy, LeavesLost(node, leaf_type, 0))
            handle(copy, NodeHealthChanged(node, True))
        if offer is not None:
            offer = replace(offer, nodes=offer.nodes | was_bad)
    if offer is not None and Cause.KUBERNETES in causes:
        offer = every_node(state, group)
    return has_place(copy, group, offer)


def has_place(state: State, group: PodRequest, offer: Offer | None) -> bool:
    return not isinstance(handle(state, ScheduleRequested(group, Phase.FILTERING, offer=offer)), Wait)


def healthy(state: State) -> State:
    """A new cluster of which every node is healthy."""
    fresh = new_state(state.spec)
    for node in fresh.topology.node_names:
        handle(fresh, NodeHealthChanged(node, True))
    assert (fresh.cells.memory == idle_state(state.spec).cells.memory).all() or fresh.cells.bad.sum() == 0
    return fresh


def check_counts(state: State, group: PodRequest, offer: Offer | None, found: Explanation, where: str) -> None:
    """Do the numbers add up, and are they those of single pods that are asked for?"""
    assert found.total == found.free + found.in_use + found.in_pieces + found.bad + found.refused, where
    assert min(found.total, found.free, found.in_use, found.in_pieces, found.bad, found.refused) >= 0, (where, found)
    fresh, most = healthy(state), found.largest_ever
    assert most == 0 or has_place(fresh, single(group, most), None), (where, found)
    assert not any(has_place(fresh, single(group, size), None) for size in range(most + 1, 33)), (where, found)
    for holder in found.holders:
        assert holder.leaves, where
        is_own = holder.vc == state.topology.vc_index[group.spec.virtual_cluster] and not holder.is_lent
        is_own = is_own and state.groups[holder.name].spec.pinned_cell_id == group.spec.pinned_cell_id
        least = group.spec.priority if is_own else min(0, group.spec.priority)
        assert (state.cells.priority[list(holder.leaves)] >= least).all(), (where, group.spec, found)
    assert [len(holder.leaves) for holder in found.holders] == sorted(
        (len(h.leaves) for h in found.holders), reverse=True
    )


def check_counted(state: State, group: PodRequest, offer: Offer | None, exact: Explanation, where: str) -> None:
    """Where cells are counted instead of asking the core, no cause is added, and nothing is called impossible."""
    with patch.object(explaining, "MOST_SEARCHED", 0):
        counted = explain_wait(state, group, offer, Emptied())
    if exact.causes == (Cause.NEVER,) or state.spec.rules is Rules.BETTER:
        assert (counted.causes == (Cause.NEVER,)) == (exact.causes == (Cause.NEVER,)), where
    assert len(counted.causes) <= len(exact.causes), (where, counted.causes, exact.causes)


def single(group: PodRequest, size: int) -> PodRequest:
    spec = replace(group.spec, leaf_cell_count=size, group=GroupSpec("single", (MemberSpec(1, size),)), within_cell="")
    return replace(group, uid="single", spec=spec)


def _order(state: State) -> list[bytes]:
    return [getattr(state.cells, name).tobytes() for name in ("view_order", "view_keys", "changed", "is_sorted")]


def main() -> None:
    states, waits = Counter[str](), Counter[str]()
    options = history_parser("tests.property.explained", __doc__, "states", 10_000).parse_args()
    for seed in seeds(options, states.total, lambda: f"waits by cause: {dict(sorted(waits.items()))}"):
        for found in (run(seed, rules) for rules in Rules for run in (run_world, run_busy)):
            states["all"] += found.states
            for causes, count in found.waits.items():
                waits[" and ".join(sorted(cause.value for cause in causes))] += count


if __name__ == "__main__":
    main()
