"""Who waits and who runs, made ready to be played forward again and again from one snapshot.

Jobs are numbered: those that wait in the order in which they are served, then those that run, by name. A job that runs
may have many groups, one for each pod of its gang; they end together.
"""

import math
from collections.abc import Hashable, Sequence

import msgspec
import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL, BoolArray, Topology
from hived.values.decisions import Decision, Preempt
from hived.values.events import Offer
from hived.values.specs import OPPORTUNISTIC_PRIORITY, PodRequest
from hived_extender.insight.snapshot import RunningFacts, Snapshot, WaitingEntry
from hived_extender.machine.counts import PodEnd

GRACE_S = 30.0
"""Of a group of which nothing is known."""

MOST_COMPARED = 1 << 20
"""Entries of masks that are compared."""


def may_have(state: State, entry: WaitingEntry, decision: Decision) -> bool:
    """May a job have the cells of a decision? One that preempts nobody takes back lent cells alone."""
    if entry.preempts or not isinstance(decision, Preempt):
        return True
    victims = {uid for uids in decision.victims_by_node.values() for uid in uids}
    return not any(
        group.virtual is not None and not victims.isdisjoint(group.slots_of) for group in state.groups.values()
    )


class Waiter(msgspec.Struct, frozen=True, eq=False):
    """A job that waits, for so many `leaves`. Jobs of one `kind` get the same answers, so they are refused together.

    `is_asked` is false for a job that cannot be asked for as it is. `is_restricted`: there are nodes that it could not
    use even if nobody were on them.
    """

    entry: WaitingEntry
    kind: Hashable
    leaves: int
    is_asked: bool
    is_restricted: bool

    @property
    def is_opportunistic(self) -> bool:
        """Does it take cells that nobody promises it?"""
        return self.entry.priority <= OPPORTUNISTIC_PRIORITY

    def offers(self, opened: BoolArray | None, *, keeps_rules: bool = False) -> list[Offer | None]:
        """The nodes for each part now that groups have left the nodes in `opened`, shape (nodes,); None: as at first.

        Rules between pods count what was there at first. They are left out later, unless the answer has to be safe.
        """
        if opened is None:
            return list(self.entry.offers)
        found: list[Offer | None] = []
        for number, offer in enumerate(self.entry.offers):
            if offer is None:
                found.append(None)
                continue
            fit = self.entry.fits[number] if number < len(self.entry.fits) else offer.nodes
            nodes = offer.nodes | (fit & opened)
            found.append(Offer(nodes, offer.after & ~nodes, offer.rules if keeps_rules else ()))
        return found


class Runner(msgspec.Struct, frozen=True, eq=False):
    """A job that runs. `age_s` is its age, and `left_s` how long it still has its cells at the most by its own
    declaration, or as it is leaving already; None if it does not say, or has stayed longer. It has `grace_s` to leave.
    If others take its cells now, it is gone in `gone_s` at the latest; infinite if nobody knows.
    """

    name: str
    groups: tuple[str, ...]
    vc: str
    priority: int
    leaves: int
    age_s: float
    left_s: float | None
    grace_s: float
    is_leaving: bool = False
    gone_s: float = math.inf

    @property
    def is_opportunistic(self) -> bool:
        """Does it have cells that nobody promised it?"""
        return self.priority <= OPPORTUNISTIC_PRIORITY


class Scene(msgspec.Struct, frozen=True, eq=False):
    """See the module. `state` is a copy that nobody else has, to be copied again. `promised` has the leaf cells of each
    virtual cluster. `is_whole`: no node is bad. `lost` and `ends` are those of the snapshot. `at` is in seconds since
    1970.
    """

    state: State
    at: float
    waiters: tuple[Waiter, ...]
    runners: tuple[Runner, ...]
    runner_of: dict[str, int]
    promised: dict[str, int]
    is_whole: bool
    lost: Sequence[tuple[int, str]] = ()
    ends: Sequence[PodEnd] = ()

    def number(self, entry: WaitingEntry) -> int:
        """The number of a waiting job. Raises ValueError if it is of another snapshot."""
        for number, each in enumerate(self.waiters):
            if each.entry is entry:
                return number
        raise ValueError(f"{entry.name} waits in another snapshot")


def scene_of(snapshot: Snapshot) -> Scene:
    """Everything that each play of a snapshot needs. Cost: a copy of the state, O(groups + waiting jobs)."""
    with snapshot.lock:
        state = copy_state(snapshot.state)
    runners = tuple(_runners(snapshot, state))
    return Scene(
        state,
        snapshot.at,
        tuple(_waiter(entry) for entry in snapshot.waiting),
        runners,
        {group: number for number, runner in enumerate(runners) for group in runner.groups},
        _promised(state.topology),
        not bool(state.cells.node_bad.any()) and not bool(state.cells.lost_total.any()),
        snapshot.lost,
        snapshot.ends,
    )


def leaf_count(request: PodRequest) -> int:
    """Leaf cells of the whole group of a pod."""
    return sum(member.pod_count * member.leaf_cell_count for member in request.spec.group.members)


def has_own_cells(group: Group) -> bool:
    """Does a group use cells of its virtual cluster, and not those of others?"""
    return group.virtual is not None


def _waiter(entry: WaitingEntry) -> Waiter:
    parts = zip(entry.requests, entry.offers, entry.fits or (None,) * len(entry.requests), strict=True)
    kinds: list[Hashable] = []
    is_restricted = False
    for request, offer, fit in parts:
        kinds.append((request.spec.of_group(""), None if offer is None else _key(offer, fit)))
        is_restricted |= offer is not None and (fit is None or not bool(fit.all()))
    is_asked = bool(entry.requests) and not entry.refusal
    return Waiter(entry, (entry.preempts, *kinds), sum(map(leaf_count, entry.requests)), is_asked, is_restricted)


def _key(offer: Offer, fit: BoolArray | None) -> Hashable:
    """Equal for offers that are equal; one with rules between pods equals itself only."""
    if offer.rules:
        return id(offer)
    return _content(offer.nodes), _content(offer.after), None if fit is None else _content(fit)


def _content(mask: BoolArray) -> Hashable:
    """The content of a mask; large ones with different rows equal themselves only."""
    if mask.strides[0] == 0 or len(mask) == 1:
        return len(mask), np.packbits(mask[0]).tobytes()
    return np.packbits(mask).tobytes() if mask.size <= MOST_COMPARED else id(mask)


def _runners(snapshot: Snapshot, state: State) -> Sequence[Runner]:
    jobs: dict[str, list[tuple[Group, RunningFacts | None]]] = {}
    for name, group in state.groups.items():
        if group.state is not GroupState.PREEMPTING:
            facts = snapshot.running.get(name)
            jobs.setdefault(facts.job if facts is not None else name, []).append((group, facts))
    return [_runner(name, jobs[name], state, snapshot.at) for name in sorted(jobs)]


def _runner(name: str, groups: Sequence[tuple[Group, RunningFacts | None]], state: State, at: float) -> Runner:
    first = groups[0][0]
    known = [facts for _, facts in groups if facts is not None]
    started = [facts.started_s for facts in known if facts.started_s is not None]
    lefts = [None if facts is None else _left_s(facts, at) for _, facts in groups]
    limited = [left for left in lefts if left is not None]
    return Runner(
        name=name,
        groups=tuple(group.name for group, _ in groups),
        vc=first.spec.virtual_cluster,
        priority=first.priority if has_own_cells(first) else OPPORTUNISTIC_PRIORITY,
        leaves=sum(len(group.physical) for group, _ in groups),
        age_s=max(at - min(started, default=at), 0.0),
        left_s=max(limited) if len(limited) == len(lefts) else None,
        grace_s=max((facts.grace_s for facts in known), default=GRACE_S),
        is_leaving=len(known) == len(groups) and all(facts.is_leaving for facts in known),
        gone_s=max(_gone_s(group, facts, state, at) for group, facts in groups),
    )


def _gone_s(group: Group, facts: RunningFacts | None, state: State, at: float) -> float:
    """Seconds until a group is gone that has to leave now; infinite once that moment is over, or with a bad node, where
    pods may never end.
    """
    leaves = group.physical[group.physical != NO_CELL]
    if facts is None or facts.gone_s < at or bool(state.cells.node_bad[state.arrays.node[leaves]].any()):
        return math.inf
    return facts.gone_s - at


def _left_s(facts: RunningFacts, at: float) -> float | None:
    """How long a group still has its cells at the most; None once it has stayed longer than it or Kubernetes said."""
    ends = [end - at for end in (facts.ends_s, facts.leaves_s if facts.is_leaving else None) if end is not None]
    left_s = min(ends, default=-1.0)
    return left_s if left_s >= 0 else None


def _promised(topology: Topology) -> dict[str, int]:
    arrays = topology.arrays
    return {
        name: sum(int(arrays.leaf_count[arrays.chain_level[cell]]) for cell in topology.preassigned[vc])
        for vc, name in enumerate(topology.vc_names)
    }
