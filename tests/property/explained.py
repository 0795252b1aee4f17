"""Random small clusters in use, and explanations of groups that wait there, judged by carrying out what they say.

A cause is right if the group has a place once it is taken away: on a copy of the state others end, nodes heal, or the
offer is dropped, by events and requests alone. A set of causes is the least if no set of fewer helps, and none of its
own parts. "Never" is right exactly if the group has no place in a new cluster whose nodes are all healthy. `python -m
tests.property.explained --states 10000` looks at so many states.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from random import Random

import numpy as np

from hived.copying import copy_state
from hived.decisions import Bind, Preempt, Wait
from hived.emptied import Emptied, every_node
from hived.errors import UserError
from hived.events import LeavesLost, Limit, NodeHealthChanged, Offer, Phase, PodDeleted, ScheduleRequested
from hived.explaining import explain_wait
from hived.explanation import Cause, Explanation
from hived.scheduler import handle, idle_state, new_state
from hived.specs import GroupSpec, MemberSpec, PodRequest, Rules
from hived.state import State
from tests.core.builders import fingerprint
from tests.property.false_waits import KINDS, World, change, make_room, new_world, random_group, small_spec

STEPS = 25
EVERY = frozenset({Cause.IN_USE, Cause.BAD, Cause.KUBERNETES})


@dataclass
class Counts:
    """How many states a run met, and how many waits of each set of causes."""

    states: int = 0
    waits: dict[frozenset[Cause], int] = field(default_factory=dict)


def run_world(seed: int, steps: int, rules: Rules) -> Counts:
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
            found = judge(world, group, offer, emptied, f"seed {seed}, step {step}")
            counts.waits[found] = counts.waits.get(found, 0) + 1
    return counts


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


def judge(world: World, group: PodRequest, offer: Offer | None, emptied: Emptied, where: str) -> frozenset[Cause]:
    """Check one explanation; returns its causes, with others in one form."""
    state = world.state
    before = fingerprint(state), _order(state)
    explanation = explain_wait(state, group, offer, emptied)
    assert (fingerprint(state), _order(state)) == before, f"{where}: explaining changed the state"
    assert explanation == explain_wait(state, group, offer, Emptied()), f"{where}: it hangs on earlier questions"
    check_counts(state, group, offer, explanation, where)
    causes = frozenset(Cause.IN_USE if cause is Cause.IN_PIECES else cause for cause in explanation.causes)
    assert len(causes) == len(explanation.causes), where
    ever = has_place(healthy(state), group, None if offer is None else every_node(state, group))
    assert (causes == {Cause.NEVER}) == (not ever and not any(helps(state, group, offer, some) for some in subsets()))
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
            handle(copy, LeavesLost(node, "GPU", 0))
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
    ever = [size for size in range(1, 9) if has_place(healthy(state), single(group, size), None)]
    assert found.largest_ever == max(ever, default=0), (where, found)
    for holder in found.holders:
        assert holder.leaves, where
        is_own = holder.vc == state.topology.vc_index[group.spec.virtual_cluster] and not holder.is_lent
        least = group.spec.priority if is_own else min(0, group.spec.priority)
        assert (state.cells.priority[list(holder.leaves)] >= least).all(), (where, group.spec, found)
    assert [len(holder.leaves) for holder in found.holders] == sorted((len(h.leaves) for h in found.holders), reverse=True)


def single(group: PodRequest, size: int) -> PodRequest:
    spec = replace(group.spec, leaf_cell_count=size, group=GroupSpec("single", (MemberSpec(1, size),)), within_cell="")
    return replace(group, uid="single", spec=spec)


def _order(state: State) -> list[bytes]:
    return [getattr(state.cells, name).tobytes() for name in ("view_order", "view_keys", "changed", "is_sorted")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first cluster")
    options = parser.parse_args()
    states, waits, seed = 0, dict[frozenset[Cause], int](), options.seed
    while states < options.states:
        for rules in Rules:
            found = run_world(seed, STEPS, rules)
            states += found.states
            for causes, count in found.waits.items():
                waits[causes] = waits.get(causes, 0) + count
        seed += 1
        if seed % 20 == 0 or states >= options.states:
            told = ", ".join(f"{' and '.join(sorted(c.value for c in key))}: {n}" for key, n in sorted(waits.items(), key=str))
            print(f"{states} of {options.states} states; waits by cause: {told}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
