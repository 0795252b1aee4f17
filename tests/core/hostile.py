"""Events that no honest cluster sends: made-up bind info, stale bindings, pods of other groups, odd masks.

`python -m tests.core.hostile SEED ...` plays one run per seed, so that processes can be compared. It prints a digest
of every decision, the whole memory and the order of the views.
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from hived.cells.state import State
from hived.scheduler import handle, new_state
from hived.values.decisions import Bind, Decision
from hived.values.errors import UserError
from hived.values.events import Event, LeavesLost, NodeHealthChanged, Phase, PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import BindInfo, GroupSpec, MemberSpec, PodPlacement, PodRequest, PodSpec
from tests.core.builders import random_cluster

LENGTH = 60


class Hostile:
    """A seeded source of events for one cluster; it remembers pods and bindings to repeat and to twist them."""

    def __init__(self, state: State, seed: int) -> None:
        self.state, self.source = state, Random(seed)
        topology = state.topology
        self.nodes = [*topology.node_names, "elsewhere"]
        self.vcs = [*state.spec.virtual_clusters, "NOVC"]
        pins = [pin for vc in state.spec.virtual_clusters.values() for pin in vc.pinned_cell_ids]
        self.pins, self.leaf_types = [*pins, "nopin"], [*topology.leaf_type_chains, "NOTYPE"]
        self.cell_types = ["", "NOTYPE", *sorted({name for chain in topology.chains for name in chain.types})]
        self.chains = ["NOCHAIN", *(chain.name for chain in topology.chains)]
        self.pods: list[PodRequest] = []
        self.bindings: list[tuple[PodRequest, Bind]] = []
        self.count = 0

    def next(self) -> Event:
        kind = self.source.random()
        if kind < 0.35:
            return self.schedule()
        if kind < 0.5 and self.bindings:
            wanted, decision = self.source.choice(self.bindings)
            return PodAllocated(wanted, decision.bind_info, decision.lazily_preempted)
        if kind < 0.65:
            return self.allocate()
        if kind < 0.85 and self.pods:
            return self.delete()
        if kind < 0.93:
            return NodeHealthChanged(self.source.choice(self.nodes), self.source.random() < 0.65)
        known = tuple(self.source.choice([0, 1, 3, 3, -1, 32, 2**40]) for _ in range(self.source.choice([0, 0, 1, 3])))
        return LeavesLost(
            self.source.choice(self.nodes),
            self.source.choice(self.leaf_types),
            self.source.choice([0, 1, 2, -1, 2**40]),
            known,
        )

    def learn(self, event: Event, decision: Decision | None) -> None:
        """Remember the last pods and bindings."""
        if isinstance(event, ScheduleRequested | PodAllocated):
            self.pods = [*self.pods[-30:], event.pod]
        if isinstance(event, ScheduleRequested) and isinstance(decision, Bind):
            self.bindings = [*self.bindings[-10:], (event.pod, decision)]

    def pod(self) -> PodRequest:
        """A new pod of a new group, or one that says it belongs to a known group."""
        self.count += 1
        source, uid = self.source, f"p{self.count}"
        if self.pods and source.random() < 0.3:
            known = source.choice(self.pods)
            member = source.choice(known.spec.group.members)
            return replace(known, uid=uid, spec=replace(known.spec, leaf_cell_count=member.leaf_cell_count))
        counts = {source.choice([1, 1, 2, 2, 3, 4]): source.choice([1, 1, 2, 3]) for _ in range(source.choice([1, 2]))}
        members = tuple(MemberSpec(counts[size], size) for size in sorted(counts))
        name = source.choice([uid, f"p{source.randint(1, self.count)}"]) if source.random() < 0.2 else uid
        if source.random() < 0.05:
            members = members[::-1]
        spec = PodSpec(
            virtual_cluster=source.choice(self.vcs),
            priority=source.choice([-1, -1, 0, 0, 1, 5, 10]),
            leaf_cell_count=source.choice(members).leaf_cell_count if source.random() < 0.95 else 7,
            group=GroupSpec(name, members),
            pinned_cell_id=source.choice(self.pins) if source.random() < 0.1 else "",
            leaf_cell_type=source.choice(self.leaf_types) if source.random() < 0.3 else "",
            lazy_preemption=source.random() < 0.4,
            ignore_suggested_nodes=source.random() < 0.5,
        )
        return PodRequest(uid, uid, "ns", spec)

    def schedule(self) -> ScheduleRequested:
        wanted = self.source.choice(self.pods) if self.pods and self.source.random() < 0.4 else self.pod()
        suggested = None
        if self.source.random() < 0.4:
            length = len(self.state.topology.node_names) + self.source.choice([0, 0, 0, 0, 0, 1, -1])
            suggested = np.array([self.source.random() < 0.8 for _ in range(length)], np.bool_)
        return ScheduleRequested(wanted, self.source.choice(list(Phase)), suggested)

    def allocate(self) -> PodAllocated:
        """Bind info of another pod, or made up, mostly with a spec of the same sizes."""
        info = self.bind_info()
        bound = self.pod() if self.source.random() < 0.5 or not self.pods else self.source.choice(self.pods)
        sizes = {len(p[0].leaf_cell_indices): len(p) for p in info.members if p}
        if self.source.random() < 0.7 and sizes and 0 not in sizes:
            members = tuple(MemberSpec(sizes[size], size) for size in sorted(sizes))
            own = len(info.leaf_cell_indices)
            name = bound.spec.group.name if self.source.random() < 0.4 else f"h{self.count}"
            spec = replace(
                bound.spec,
                leaf_cell_count=own if own in sizes else members[0].leaf_cell_count,
                group=GroupSpec(name, members),
            )
            bound = replace(bound, spec=spec)
        names = sorted(self.state.groups)
        lazily = self.source.sample(names, min(len(names), self.source.choice([0, 0, 0, 1, 2])))
        return PodAllocated(bound, info, (*lazily, "ghost") if self.source.random() < 0.1 else tuple(lazily))

    def bind_info(self) -> BindInfo:
        source = self.source
        if self.bindings and source.random() < 0.6:
            info = source.choice(self.bindings)[1].bind_info
        else:
            members = tuple(
                tuple(self.placement(size) for _ in range(source.choice([1, 2, 3])))
                for size in source.sample([1, 2, 3, 4], source.choice([1, 1, 2]))
            )
            own = source.choice(source.choice(members))
            info = BindInfo(own.node, own.leaf_cell_indices, source.choice(self.chains), members)
        twists: list[dict[str, Any]] = [
            {"node": source.choice(self.nodes)},
            {"leaf_cell_indices": ()},
            {"members": ()},
            {"members": ((),)},
            {"members": info.members[::-1]},
            {"members": (*info.members, *info.members[:1])},
        ]
        return replace(info, **source.choice(twists)) if source.random() < 0.35 else info

    def placement(self, size: int) -> PodPlacement:
        source = self.source
        devices = tuple(source.choice([0, 0, 1, 1, 2, 3, 4, 5, 8, 32, 33, -1, 2**40]) for _ in range(size))
        count = source.choice([size, size, size, 0, 1, size + 1])
        return PodPlacement(
            source.choice(self.nodes), devices, tuple(source.choice(self.cell_types) for _ in range(count))
        )

    def delete(self) -> PodDeleted:
        gone = self.source.choice(self.pods)
        if self.source.random() < 0.2:
            other = self.source.choice(self.pods).spec.group.name
            gone = replace(gone, spec=replace(gone.spec, group=replace(gone.spec.group, name=other)))
        return PodDeleted(gone)


def start(seed: int) -> tuple[State, Hostile]:
    """A random cluster, nearly all of whose nodes are healthy, and its enemy."""
    state = new_state(random_cluster(seed))
    enemy = Hostile(state, seed)
    for node in state.topology.node_names:
        handle(state, NodeHealthChanged(node, enemy.source.random() < 0.9))
    return state, enemy


def play(seed: int) -> Iterator[tuple[State, str]]:
    """One run: the state after each event, and what was answered."""
    state, enemy = start(seed)
    for _ in range(LENGTH):
        event = enemy.next()
        decision, answer = None, ""
        try:
            decision = handle(state, event)
            answer = repr(decision)
        except UserError as error:
            answer = error.message
        enemy.learn(event, decision)
        yield state, answer


def digest(seed: int) -> str:
    """Of every answer, and of memory and view order after each event."""
    running = hashlib.sha256()
    for state, answer in play(seed):
        running.update(answer.encode())
        running.update(state.cells.memory.tobytes())
        running.update(state.cells.view_order.tobytes())
    return running.hexdigest()


if __name__ == "__main__":
    print(*(digest(int(seed)) for seed in sys.argv[1:]))
